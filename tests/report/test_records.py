"""Tables of sweep rows: names, what varies, outcomes, summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.report.names import case_name, record_name
from fa_bench.report.records import (
    RecordTable,
    counted_as_predicted,
    failures,
    status_counts,
    summary_tables,
)


def case(impl: str = "flash2", seq: int = 1024, head_dim: int = 64, causal: bool = False, heads: int = 1) -> Case:
    return Case(impl, AttentionShape(1, heads, 1, seq, seq, head_dim, causal), tile=Tile(64, 64))


def test_a_case_and_its_record_have_one_name(record: Callable) -> None:
    assert case_name(case()) == record_name(record())
    assert case_name(case()).impl == "flash2 64x64/1"
    assert case_name(case()).shape() == "1k fp16 D=64 full bhsd B=1 H=1"


def test_ragged_grouped_and_untiled_names(record: Callable) -> None:
    name = record_name(
        record(impl="numpy-flash", block_m=None, block_n=None, stages=None, seq_q=127, seq_kv=300, heads_q=8,
               heads_kv=2, causal=True)
    )  # fmt: skip
    assert name.impl == "numpy-flash"
    assert name.shape() == "127x300 fp16 D=64 causal bhsd B=1 H=8:2"


def test_a_packed_batch_is_named_by_its_first_lengths(record: Callable) -> None:
    packed = dataclasses.replace(case(), shape=AttentionShape.packed([(5, 7), (0, 3)], 1, 1, 64))
    named = record_name(record(seq_q=5, seq_kv=7, batch=2, seqlens="5x7 0x3"))
    assert case_name(packed) == named
    assert named.shape() == "5x7 fp16 D=64 full bhsd B=2 (5x7 0x3) H=1"
    longer = record_name(record(seq_q=5, seq_kv=7, batch=4, seqlens="5x7 0x3 1x1 2x2"))
    assert longer.facts["batch"] == "B=4 (5x7 0x3 1x1 ...)"


def test_what_is_constant_stands_in_the_title_and_what_varies_in_the_rows(record: Callable) -> None:
    table = RecordTable([case(causal=False), case(causal=True)], "emulated")
    assert table.table.title == "emulated; fp16, D=64, bhsd, B=1, H=1"
    assert table.row(record(causal=True))[0] == "1k causal"
    assert table.heading(record(causal=True)) == ""


def test_rows_that_would_be_too_wide_are_grouped_under_headings(record: Callable) -> None:
    # Name 14, five columns of 42 characters, six gaps: 62. "1k D=64 full H=8:1" has 18 characters, which makes 80,
    # "1k D=128 causal H=8:1" has 21.
    fits = RecordTable([case(), case(head_dim=128), case(causal=True), case(heads=8)], "")
    assert fits.heading(record()) == ""
    assert fits.row(record())[0] == "1k D=64 full H=1"
    table = RecordTable([case(), case(head_dim=128, causal=True, heads=8)], "")
    assert table.heading(record()) == "seq 1k, D=64, full, H=1"
    assert table.heading(record(impl="flash1")) == ""
    assert table.heading(record(head_dim=128)) == "seq 1k, D=128, full, H=1"
    assert table.row(record())[0] == "1k"
    assert table.filled([record()]).rows[0][0] == "1k D=64 full H=1"


def test_cells(record: Callable) -> None:
    table = RecordTable([case()], "")
    assert table.row(record()) == ("1k", "flash2 64x64/1", "-", "3 MiB", "1 MiB", "= model", "ok 1.0e-04")
    timed = record(backend="cuda", time_ms=1.5, time_p20_ms=1.4, time_p80_ms=1.6, time_source="cuda-events",
                   global_read_bytes_emulated=None, global_write_bytes_emulated=None)  # fmt: skip
    assert table.row(timed)[2:] == ("1.50 ms", "3 MiB", "1 MiB", "-", "ok 1.0e-04")
    oom = record(status="oom", status_reason="Too large.", max_abs_err=None, global_read_bytes_model=None)
    assert table.row(oom)[-1] == "oom"
    assert table.row(oom)[3] == "-"


@pytest.mark.parametrize(
    ("counted", "equal"),
    [((3 * 2**20, 2**20), True), ((3 * 2**20 + 32, 2**20), False), ((3 * 2**20, None), False), ((None, None), None)],
)
def test_counts_beside_the_model(counted: tuple[int | None, int | None], equal: bool | None, record: Callable) -> None:
    row = record(global_read_bytes_emulated=counted[0], global_write_bytes_emulated=counted[1])
    assert counted_as_predicted(row) is equal


def test_failures_name_rows_and_reasons(record: Callable) -> None:
    rows = [
        record(),
        record(status="skipped", status_reason="It doesn't fit."),
        record(status="error", status_reason="Lane 3\nis lost."),
        record(global_read_bytes_emulated=0),
    ]
    assert failures(rows) == [
        "flash2 64x64/1, 1k fp16 D=64 full bhsd B=1 H=1: error. Lane 3 is lost.",
        "flash2 64x64/1, 1k fp16 D=64 full bhsd B=1 H=1: the bytes counted are not those of the model.",
    ]


def test_status_counts_put_ok_first(record: Callable) -> None:
    rows = [record(status="error", status_reason="x"), record(), record(), record(status="oom", status_reason="x")]
    assert status_counts(rows) == "2 ok, 1 error, 1 oom"
    assert status_counts([]) == "no rows"


def test_summary_has_the_best_tile_and_standards_ratio(record: Callable) -> None:
    # flash2 moves 3 + 1 = 4 MiB in one tile and 1 + 1 = 2 MiB in the other, standard 7 + 1 = 8 MiB: four times.
    rows = [
        record(impl="standard", case_id="a", global_read_bytes_model=7 * 2**20),
        record(case_id="b"),
        record(case_id="d", block_m=128, global_read_bytes_model=2**20),
        record(case_id="e", impl="flash1", status="error", status_reason="x"),
    ]
    (table,) = summary_tables(rows)
    assert [column.title for column in table.columns] == ["seq", "standard", "flash2"]
    assert table.rows == (("1k", "8 MiB", "2 MiB (4.00×)"),)


def test_summary_of_times_only_on_a_gpu(record: Callable) -> None:
    def timed(impl: str, backend: str, ms: float) -> object:
        return record(impl=impl, backend=backend, time_ms=ms, time_p20_ms=ms, time_p80_ms=ms, time_source="cuda-events",
                      global_read_bytes_model=None)  # fmt: skip

    (table,) = summary_tables([timed("standard", "cuda", 3.0), timed("flash2", "cuda", 1.0)])
    assert table.rows == (("1k", "3.00 ms", "1.00 ms (3.00×)"),)
    assert summary_tables([timed("standard", "host", 3.0), timed("flash2", "host", 1.0)]) == ()


def test_a_summary_of_one_implementation_is_left_out(record: Callable) -> None:
    assert summary_tables([record()]) == ()


UNPREDICTED = {"global_read_bytes_model": None, "global_write_bytes_model": None}


def test_without_a_model_the_counted_bytes_are_shown(record: Callable) -> None:
    mine = record(impl="mine", **UNPREDICTED)
    assert counted_as_predicted(mine) is None
    assert failures([mine]) == []
    # 3 MiB read and 1 MiB written, as `record` counts them.
    assert RecordTable([case()], "").row(mine)[2:6] == ("-", "-", "-", "4 MiB")
    (table,) = summary_tables([record(impl="standard", case_id="a", global_read_bytes_model=7 * 2**20), mine])
    assert table.rows == (("1k", "8 MiB", "4 MiB (2.00×)"),)
    assert table.note == "Counted, since there is no model: mine."


def test_the_column_has_room_for_counted_bytes_where_there_is_no_model() -> None:
    for content, width in (("", 7), ("0123456789abcdef", 8)):
        table = RecordTable([dataclasses.replace(case(), content=content)], "").table
        assert next(column.width for column in table.columns if column.title == "counted") == width
        assert ("where there is no model" in table.note) == bool(content)
