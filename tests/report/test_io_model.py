"""Traffic tables from records and traffic rows, with figures worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

from fa_bench.records import Record, TensorTraffic
from fa_bench.report.case_traffic import PREDICTED_ONLY, case_table, case_traffic
from fa_bench.report.io_model import document, flat_rows, totals_tables
from fa_bench.report.papers import paper_bytes, paper_formula, theorem2


def row(tensor: str, op: str, source: str, nbytes: int, **other: str) -> TensorTraffic:
    fields = {"case_id": "c", "kernel": "k", "level": "global"} | other
    return TensorTraffic(tensor=tensor, op=op, source=source, bytes=nbytes, **fields)  # type: ignore[arg-type]


MODEL = [row("Q", "read", "model", 2048), row("O", "write", "model", 1024)]
COUNTED = [row("Q", "read", "emulated", 2048), row("O", "write", "emulated", 1024)]


def test_predicted_and_counted_are_paired(record: Callable) -> None:
    case = case_traffic(record(), [*MODEL, *COUNTED])
    assert [(line.tensor, line.predicted_bytes, line.counted_bytes) for line in case.lines] == [
        ("Q", 2048, 2048),
        ("O", 1024, 1024),
    ]
    assert case.equal
    assert (case.total("read"), case.total("write"), case.total_bytes) == (2048, 1024, 3072)


def test_a_tensor_on_one_side_only_is_a_difference(record: Callable) -> None:
    counted_only = case_traffic(record(), [*MODEL, *COUNTED, row("S", "write", "emulated", 32)])
    assert not counted_only.equal
    assert counted_only.lines[-1].difference_bytes == 32
    predicted_only = case_traffic(record(), [*MODEL, *COUNTED[:1]])
    assert not predicted_only.equal
    assert predicted_only.lines[-1].difference_bytes == -1024


def test_other_cases_and_levels_do_not_count(record: Callable) -> None:
    others = [row("Q", "read", "model", 7, case_id="d"), row("Q", "read", "model", 9, level="dram")]
    case = case_traffic(record(), [*MODEL, *others])
    assert case.total_bytes == 3072
    assert case.source is None
    assert case.equal


def test_measured_goes_before_emulated(record: Callable) -> None:
    case = case_traffic(record(), [*MODEL, *COUNTED, row("Q", "read", "measured", 2080)])
    assert case.source == "measured"
    assert case.lines[0].counted_bytes == 2080


def test_the_table_of_a_case(record: Callable) -> None:
    table = case_table(case_traffic(record(), [*MODEL, *COUNTED[:1], row("O", "write", "emulated", 1056)]))
    assert table.title == "flash2 64x64/1, 1k fp16 D=64 full bhsd B=1 H=1"
    assert [column.title for column in table.columns] == [
        "kernel", "tensor", "op", "predicted B", "emulated B", "difference",
    ]  # fmt: skip
    assert table.rows == (("k", "Q", "read", "2,048", "2,048", "0"), ("k", "O", "write", "1,024", "1,056", "+32"))


def test_a_prediction_alone_has_no_empty_columns_and_no_excuse(record: Callable) -> None:
    predicted = record(status="skipped", status_reason=PREDICTED_ONLY)
    table = case_table(case_traffic(predicted, MODEL))
    assert len(table.columns) == 4
    assert table.note == ""
    unsupported = record(status="unsupported", status_reason="Needs sm_80.")
    assert case_table(case_traffic(unsupported, MODEL)).note == "unsupported: Needs sm_80."


def totals(records: list[Record]) -> list[tuple[str, ...]]:
    cases = [case_traffic(r, [row("Q", "read", "model", 1024 * (i + 1))]) for i, r in enumerate(records)]
    return [cells for table in totals_tables(cases) for cells in table.rows]


def test_totals_by_shape_with_the_ratio_to_standard(record: Callable) -> None:
    # Standard moves 1 KiB, flash2 2 KiB: 0.5 times. Papers' formulas in KiB of fp16 at N = 1024, d = 64:
    # 4·N² + 4·N·d = 4,456,448 elements = 8704 KiB = 8.5 MiB; 2·N·d·17 + N = 2,229,248 elements = 4.25 MiB.
    rows = totals([record(impl="standard"), record(), record(seq_q=512, seq_kv=512)])
    assert rows[0] == ("standard 64x64/1", "1 KiB", "0 B", "1 KiB", "8.50 MiB", "1.00×", "-")
    assert rows[1] == ("flash2 64x64/1", "2 KiB", "0 B", "2 KiB", "4.25 MiB", "0.500×", "-")
    assert rows[2][5] == "-"  # another shape, and no standard attention there


def test_the_totals_say_what_passes_through_dram(record: Callable) -> None:
    # 1 MiB read and 512 KiB written of the one, nothing known of the other.
    made = [record(impl="standard", dram_read_bytes_model=2**20, dram_write_bytes_model=2**19), record()]
    (table,) = totals_tables([case_traffic(r, [row("Q", "read", "model", 2**22)]) for r in made])
    assert "Through DRAM, estimated: standard 64x64/1 1.50 MiB." in table.note.splitlines()


def test_the_papers_count_every_slice_in_the_records_type(record: Callable) -> None:
    assert paper_bytes(record(batch=2, heads_q=4)) == 8 * 2 * 2_229_248
    assert paper_bytes(record(dtype="fp32")) == 4 * 2_229_248
    # Algorithm 1 with Bc = 64: Tc = 16, 2·N·d + 16·N·(3·64 + 4) = 131072 + 3,211,264 elements.
    assert paper_bytes(record(impl="flash1")) == 2 * 3_342_336
    assert paper_bytes(record(impl="numpy-flash")) is None
    assert paper_bytes(record(impl="flash2", block_m=None)) is None


def test_the_papers_count_each_pass_of_a_direction(record: Callable) -> None:
    # 7·N² + 8·N·d = 7,864,320 elements backward, 4,456,448 forward; 16 K/V tiles of Algorithm 2: 6·N·d + N +
    # 16·N·(5·d + 2) = 393,216 + 1024 + 5,275,648.
    found = {
        (impl, direction): (paper_bytes(made), paper_formula(made))
        for impl in ("standard", "flash2", "flash1")
        for direction in ("bwd", "fwd+bwd")
        for made in [record(impl=impl, direction=direction)]
    }
    assert found == {
        ("standard", "bwd"): (2 * 7_864_320, "7·N² + 8·N·d"),
        ("standard", "fwd+bwd"): (2 * (7_864_320 + 4_456_448), "4·N² + 4·N·d, backward 7·N² + 8·N·d"),
        ("flash2", "bwd"): (2 * 5_669_888, "6·N·d + N + Tc·N·(5·d + 2)"),
        ("flash2", "fwd+bwd"): (
            2 * (5_669_888 + 2_229_248),
            "2·N·d + 2·Tr·N·d + N, backward 6·N·d + N + Tc·N·(5·d + 2)",
        ),
        ("flash1", "bwd"): (None, None),
        ("flash1", "fwd+bwd"): (None, None),
    }
    assert theorem2(record(direction="bwd")) is None


def test_theorem_2_with_m_in_elements_and_in_bytes(record: Callable) -> None:
    # 163 KiB are 83,456 halves: 1024²·64² / 83456 = 51463.9 elements, 102,928 bytes; half of it with M in bytes.
    found = theorem2(record())
    assert found is not None
    assert (found.sram_bytes, found.bytes_m_in_elements, found.bytes_m_in_bytes) == (166_912, 102_928, 51_464)
    assert theorem2(record(gpu=None)) is None


def test_v_and_o_count_with_their_own_dim(record: Callable) -> None:
    # d = 64, dv = 128. flash2: Q 65,536, 16 times 1024 rows of K and V with 192, O 131,072, LSE 1024. Standard: S and P
    # 4 · 2^20, Q, K 131,072, V, O 262,144. flash1, Tc = 16: K, V 196,608 and 16,384 rows of 64 + 2 · 128 + 4.
    assert paper_bytes(record(head_dim_v=128)) == 2 * 3_343_360
    assert paper_bytes(record(impl="standard", head_dim_v=128)) == 2 * 4_587_520
    assert paper_bytes(record(impl="flash1", head_dim_v=128)) == 2 * 5_505_024
    # The mean of both is 96: 2^20 · 96² / 83,456 = 115,793.7 elements.
    found = theorem2(record(head_dim_v=128))
    assert found is not None and found.bytes_m_in_elements == 231_587


def test_flat_rows_and_document(record: Callable) -> None:
    case = case_traffic(record(), [*MODEL, *COUNTED])
    assert [(r["tensor"], r["predicted_bytes"], r["difference_bytes"], r["source"]) for r in flat_rows([case])] == [
        ("Q", 2048, 0, "emulated"),
        ("O", 1024, 0, "emulated"),
    ]
    made = document([case])
    assert (made["schema"], made["equal"], made["cases"][0]["total_bytes"]) == (1, True, 3072)
    assert document([case_traffic(record(), MODEL)])["equal"] is None


def test_every_field_of_the_document_is_documented(record: Callable) -> None:
    from pathlib import Path

    docs = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    section = docs.split("\n## io-model\n")[1].split("\n## ")[0]
    made = document([case_traffic(record(), MODEL)])
    (case,) = made["cases"]
    for field in (*made, *case, *case["paper"], *case["theory"], *case["traffic"][0]):
        assert f"`{field}`" in section, field


def test_without_a_prediction_every_line_has_the_count_alone(record: Callable) -> None:
    mine = case_traffic(record(impl="mine"), COUNTED)
    assert [(line.predicted_bytes, line.counted_bytes, line.difference_bytes) for line in mine.lines] == [
        (None, 2048, None),
        (None, 1024, None),
    ]
    assert mine.equal and not mine.predicted
    assert (mine.total("read"), mine.total_bytes, mine.counted("read"), mine.counted("write")) == (
        None,
        None,
        2048,
        1024,
    )
    table = case_table(mine)
    assert table.rows[0] == ("k", "Q", "read", "-", "2,048", "-")
    assert flat_rows([mine])[0]["predicted_bytes"] is None
    made = document([mine])
    assert made["equal"] is True
    assert (made["cases"][0]["read_bytes"], made["cases"][0]["standard_ratio"]) == (None, None)


def test_counted_totals_stand_in_a_table_of_their_own(record: Callable) -> None:
    standard = case_traffic(record(impl="standard"), [row("S", "read", "model", 6144)])
    mine = case_traffic(record(impl="mine"), COUNTED)
    predicted, counted = totals_tables([standard, mine])
    assert [cells[0] for cells in predicted.rows] == ["standard 64x64/1"]
    # Standard's 6144 bytes over the 2048 + 1024 that were counted.
    assert counted.rows == (("mine 64x64/1", "2 KiB", "1 KiB", "3 KiB", "2.00×"),)
    assert counted.title.startswith("Counted, 1k")
    (alone,) = totals_tables([mine])
    assert (alone.rows[0][-1], alone.note) == ("-", "")


def test_neither_predicted_nor_counted_says_so(record: Callable) -> None:
    mine = case_traffic(record(impl="mine", status="skipped", status_reason=PREDICTED_ONLY), [])
    assert case_table(mine).note == "It has no traffic model: its bytes can be counted, not predicted."
    assert totals_tables([mine]) == ()
    failed = case_traffic(record(impl="mine", status="oom", status_reason="Too large."), [])
    assert case_table(failed).note == "oom: Too large."


def test_standards_ratio_is_to_the_same_pass(record: Callable) -> None:
    # The i-th row moves i KiB: forward standard 1 and flash2 2, 0.5 times; backward 3 and 4, 0.75 times.
    rows = totals(
        [record(impl="standard"), record(), record(impl="standard", direction="bwd"), record(direction="bwd")]
    )
    assert [cells[5] for cells in rows] == ["1.00×", "0.500×", "1.00×", "0.750×"]
