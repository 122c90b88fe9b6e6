"""Validations as tables, rows and a document."""

from __future__ import annotations

from fa_bench.report.validation import document, flat_rows, tables
from fa_bench.validation.result import Column, Comparison, LeftOut, Validation

COLUMNS = (
    Column("name", "what"),
    Column("causal", "causal"),
    Column("seq", "seq", "size"),
    Column("sectors", "sectors", "count"),
    Column("dram_bytes", "MB", "megabytes"),
    Column("l2_bytes", "L2", "bytes"),
    Column("share", "share", "percent"),
    Column("error", "error", "deviation"),
)
ROW = {
    "name": "a",
    "causal": True,
    "seq": 2048,
    "sectors": 1_234_567,
    "dram_bytes": 6_291_456,
    "l2_bytes": 24 * 2**20,
    "share": 0.979,
    "error": -0.0014,
    "not_shown": 7,
}
ONE = Validation(
    "one",
    "somebody",
    (
        Comparison("first", "Both of them", COLUMNS, (ROW, {"name": "b", "causal": False}), "A note."),
        Comparison("second", "Others", (Column("x", "x", "count"),), ({"x": 5},)),
    ),
    (LeftOut("something", 3, "no reason"),),
    ("It is off.",),
)
TWO = Validation("two", "others", (Comparison("only", "T", (Column("x", "x", "count"),), ({"x": 1},)),))


def test_each_cell_is_written_in_its_unit_and_what_is_not_known_is_a_dash() -> None:
    first, second, left_out = tables(ONE)
    assert first.title == "one: Both of them"
    assert [column.title for column in first.columns] == [column.title for column in COLUMNS]
    assert [column.align for column in first.columns] == ["left"] * 2 + ["right"] * 6
    assert first.rows == (
        ("a", "yes", "2k", "1,234,567", "6.29", "24 MiB", "97.9 %", "-0.1 %"),
        ("b", "no", "-", "-", "-", "-", "-", "-"),
    )
    assert second.rows == (("5",),)
    assert left_out.title == "one: left out"
    assert left_out.rows == (("something", "3", "no reason"),)


def test_who_published_stands_below_the_first_table() -> None:
    first, second, _ = tables(ONE)
    assert first.note == "A note. Published: somebody."
    assert second.note == ""
    assert len(tables(TWO)) == 1


def test_csv_has_every_figure_of_every_comparison() -> None:
    rows = flat_rows([ONE, TWO])
    assert [(row["source"], row["comparison"]) for row in rows] == [
        ("one", "first"),
        ("one", "first"),
        ("one", "second"),
        ("two", "only"),
    ]
    assert len({tuple(row) for row in rows}) == 1  # the same columns in the same order
    assert rows[0]["not_shown"] == 7
    assert (rows[0]["x"], rows[2]["x"], rows[1]["seq"]) == (None, 5, None)


def test_the_document_says_whether_all_passed() -> None:
    found = document([ONE, TWO])
    assert (found["schema"], found["passed"]) == (1, False)
    one, two = found["sources"]
    assert one["left_out"] == [{"what": "something", "rows": 3, "reason": "no reason"}]
    assert one["failures"] == ["It is off."]
    assert one["comparisons"][0]["rows"][0] == ROW
    assert two["failures"] == []
    assert document([TWO])["passed"] is True
