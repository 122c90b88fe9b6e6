"""The table of what hardware counted, with its words. No figure was measured: all are made up, to be worked out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fa_bench.records import Record, TensorTraffic
from fa_bench.report.case_traffic import case_traffic
from fa_bench.report.io_model import document, flat_rows
from fa_bench.report.levels import explained, hardware_document, levels_table

KIB = 1024
MODE = "kernel replay, caches flushed, clocks free"
#: 3 MiB and 1 MiB are expected at the level global; Q, K and V are 384 KiB.
MADE_UP: dict[str, Any] = {
    "backend": "cuda",
    "counter_status": "ok",
    "counter_kernels": 1,
    "counter_mode": MODE,
    "global_read_bytes_measured": 3072 * KIB,
    "global_write_bytes_measured": 1024 * KIB,
    "l2_read_bytes_measured": 2624 * KIB,  # 3072 less 512 that L1 answers, and 64 spilled
    "l2_write_bytes_measured": 1152 * KIB,  # 1024, and 128 spilled
    "dram_read_bytes_measured": 448 * KIB,  # the inputs' 384, and 64
    "dram_write_bytes_measured": 256 * KIB,
    "local_read_bytes_measured": 64 * KIB,
    "local_write_bytes_measured": 128 * KIB,
    "l2_dirty_bytes_emulated": 800 * KIB,
    "spill_bytes": 16,
}


def measured(level: str, op: str, nbytes: int, hit: int | None = None) -> TensorTraffic:
    return TensorTraffic(
        case_id="c", kernel="k", tensor="all", op=op, level=level, source="measured", bytes=nbytes, hit_bytes=hit
    )  # type: ignore[arg-type]


TRAFFIC = (measured("global", "read", 3072 * KIB, 512 * KIB), measured("l2", "read", 2624 * KIB, 2176 * KIB))


def test_what_parts_the_levels_is_told_with_figures(record: Callable[..., Record]) -> None:
    assert explained(record(**MADE_UP), TRAFFIC) == [
        f"Measured: 1 launch, {MODE}. Cold figures, not those of a run that finds its data in L2.",
        "Global: as expected, to the byte.",
        "Global to L2, reads: 448 KiB below global; L1 answers 512 KiB, spilled registers add up to 64 KiB.",
        "Global to L2, writes: 128 KiB above global; spilled registers add up to 128 KiB.",
        # 448 of 2624 KiB are from DRAM: 17.1 %. Hits were 2176 of 2624.
        "L2 to DRAM, reads: L2 answers 82.9 %; its counter of hits says 82.9 %.",
        "DRAM reads: the inputs and 64 KiB.",
        "L2 to DRAM, writes: 256 KiB of 1.12 MiB were written back; 896 KiB were still in L2, or overwritten there, "
        "when a kernel ended (emulated: 800 KiB).",
        "Local memory: 64 KiB read, 128 KiB written; the compiler reports 16 spilled bytes per thread.",
    ]


def test_what_nothing_accounts_for_is_called_unexplained(record: Callable[..., Record]) -> None:
    more = explained(record(**MADE_UP | {"l2_read_bytes_measured": 2724 * KIB}), TRAFFIC)
    assert more[2].endswith("L1 answers 512 KiB, spilled registers add up to 64 KiB, 100 KiB more is unexplained.")
    # Spills may hit L1, so their bytes may be missing from L2; what is missing beyond is not theirs.
    less = explained(record(**MADE_UP | {"l2_read_bytes_measured": 2550 * KIB}), TRAFFIC)
    assert less[2].endswith("10 KiB less is unexplained.")
    assert "unexplained" not in explained(record(**MADE_UP | {"l2_read_bytes_measured": 2560 * KIB}), TRAFFIC)[2]
    written = explained(record(**MADE_UP | {"dram_write_bytes_measured": 1162 * KIB}), TRAFFIC)
    assert written[6] == "L2 to DRAM, writes: 10 KiB more than was written to L2; it is unexplained."


def test_several_kernels_pay_for_flushed_caches(record: Callable[..., Record]) -> None:
    def model(kernel: str, tensor: str, op: str, nbytes: int) -> TensorTraffic:
        fields = {"kernel": kernel, "tensor": tensor, "op": op, "bytes": nbytes}
        return TensorTraffic(case_id="c", level="global", source="model", **fields)  # type: ignore[arg-type]

    # The second kernel reads S twice, of which DRAM gives one; its own P is in L2 when it reads that again.
    predicted = [
        *(model("a", "Q", "read", 99 * KIB), model("a", "S", "write", 40 * KIB)),
        *(model("b", "S", "read", 80 * KIB), model("b", "P", "write", 20 * KIB), model("b", "P", "read", 20 * KIB)),
    ]
    sentences = explained(record(**MADE_UP | {"counter_kernels": 2}), [*predicted, *TRAFFIC])
    assert sentences[0].startswith("Measured: 2 launches, ")
    assert (
        "DRAM reads: the inputs and 64 KiB; caches are flushed before each kernel, so up to 40 KiB that one leaves to "
        "the next are among them."
    ) in sentences


def test_global_bytes_that_differ_are_said_by_direction(record: Callable[..., Record]) -> None:
    sentences = explained(record(**MADE_UP | {"global_read_bytes_measured": 3071 * KIB}), TRAFFIC)
    assert "Global reads: 1 KiB below what was expected." in sentences
    assert not any(sentence.startswith("Global writes") for sentence in sentences)


def test_a_kernel_without_spills_and_caches_is_told_in_a_few_words(record: Callable[..., Record]) -> None:
    plain = {"l2_read_bytes_measured": 3072 * KIB, "l2_write_bytes_measured": 1024 * KIB, "spill_bytes": 0}
    none = {"local_read_bytes_measured": 0, "local_write_bytes_measured": 0}
    sentences = explained(record(**MADE_UP | plain | none), ())
    assert sentences[2:4] == ["Global to L2, reads: the same.", "Global to L2, writes: the same."]
    assert not any(sentence.startswith("Local memory") for sentence in sentences)


def test_levels_stand_side_by_side_in_80_columns(record: Callable[..., Record]) -> None:
    table = levels_table(record(**MADE_UP | {"dram_read_bytes_emulated": 448 * KIB * 2}), TRAFFIC)
    assert table is not None
    assert table.rows[0] == ("global", "read", "3,145,728", "3,145,728", "3,145,728", "0")
    assert table.rows[2] == ("L2", "read", "-", "-", "2,686,976", "-")
    assert table.rows[4] == ("DRAM", "read", "-", "917,504", "458,752", "-50.0 %")


def test_a_missing_figure_is_a_dash_and_a_zero_is_a_zero(record: Callable[..., Record]) -> None:
    changes = {"dram_read_bytes_measured": None, "dram_write_bytes_measured": 0, "counter_reason": "No dram_read here."}
    table = levels_table(record(**MADE_UP | changes), TRAFFIC)
    assert table is not None
    assert [row[4] for row in table.rows[4:]] == ["-", "0"]
    assert "No dram_read here." in table.note and "L2 to DRAM, reads" not in table.note
    assert "0 B of 1.12 MiB were written back" in table.note


def test_a_failure_is_the_only_sentence(record: Callable[..., Record]) -> None:
    failed = record(backend="cuda", counter_status="no_permission", counter_reason="ncu may not.")
    assert explained(failed, ()) == ["Not measured, no_permission: ncu may not."]


def test_without_hardware_counters_there_is_no_table(record: Callable[..., Record]) -> None:
    assert levels_table(record(), ()) is None and hardware_document(record(), ()) is None


def test_measured_bytes_are_of_no_tensor_and_no_difference_of_one(record: Callable[..., Record]) -> None:
    model = TensorTraffic(
        case_id="c", kernel="k", tensor="Q", op="read", level="global", source="model", bytes=3000 * KIB
    )
    case = case_traffic(record(**MADE_UP), [model, *TRAFFIC])
    assert (case.source, case.equal, [line.tensor for line in case.lines]) == (None, True, ["Q"])
    (csv_row,) = (row for row in flat_rows([case]) if row["source"] == "measured")
    assert (csv_row["tensor"], csv_row["predicted_bytes"], csv_row["difference_bytes"]) == ("all", 3000 * KIB, 72 * KIB)
    (made,) = document([case])["cases"]
    assert made["hardware"]["levels"][0]["measured_bytes"] == 3072 * KIB
    assert made["hardware"]["status"] == "ok" and len(made["hardware"]["explained"]) == 8
