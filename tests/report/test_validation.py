"""Validations as tables, rows and a document."""

from __future__ import annotations

from fa_bench.report.validation import document, flat_rows, overview, tables
from fa_bench.validation.result import Column, Comparison, LeftOut, Score, Summary, Validation

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
    assert (found["schema"], found["passed"]) == (2, False)
    one, two = found["sources"]
    assert one["left_out"] == [{"what": "something", "rows": 3, "reason": "no reason"}]
    assert one["failures"] == ["It is off."]
    assert one["comparisons"][0]["rows"][0] == ROW
    assert two["failures"] == []
    assert document([TWO])["passed"] is True


MANY = Validation(
    "many",
    "all of them",
    (
        Comparison(
            "rows",
            "Rows",
            (Column("x", "x", "count"),),
            ({"x": 1}, {"x": 2}),
            summaries=(
                Summary(
                    "Means", (Column("t", "time", "ms"), Column("r", "rest", "number")), ({"t": 0.5, "r": 2.94},), "N."
                ),
            ),
        ),
    ),
    scores=tuple(Score(f"s{i}", "a30", i, i / 100, 2 * i, i / 50) for i in range(1, 6)),
)


def test_a_summary_stands_in_a_table_in_place_of_the_rows() -> None:
    (table,) = tables(MANY)
    assert (table.title, table.rows) == ("many: Means", (("500 µs", "2.94"),))
    assert table.note == "N. Published: all of them."
    assert [row["x"] for row in flat_rows([MANY])] == [1, 2]
    (comparison,) = document([MANY])["sources"][0]["comparisons"]
    assert (len(comparison["rows"]), comparison["summaries"]) == (
        2,
        [{"title": "Means", "rows": [{"t": 0.5, "r": 2.94}]}],
    )


def test_the_overview_has_few_scores_one_by_one_and_many_in_one() -> None:
    few = Validation("few", "x", (), failures=("It is off.",), scores=MANY.scores[:1])
    table = overview([few, MANY])
    # 1 + 2 + 3 + 4 + 5 = 15 figures, (1·1 + 2·2 + 3·3 + 4·4 + 5·5) / 15 = 3.67 %; twice that of twice as many.
    assert table.rows == (
        ("few", "s1", "1", "1.0 %", "2", "2.0 %", "1"),
        ("many", "5 publications and GPUs", "15", "3.7 %", "30", "7.3 %", "0"),
    )


def test_scores_are_in_the_document() -> None:
    assert document([MANY])["sources"][0]["scores"][0] == {
        "what": "s1", "gpu": "a30", "figures": 1, "mape": 0.01, "all_figures": 2, "all_mape": 0.02,
    }  # fmt: skip


def test_a_score_without_figures_is_a_dash() -> None:
    nothing = Validation("none", "x", (), scores=(Score("s", "a30", 0, None, 1, 0.5),))
    assert overview([nothing]).rows == (("none", "s", "0", "-", "1", "50.0 %", "0"),)
