"""What caches answer, as a table: shares, DRAM beside its model, the limits, what stays in L2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fa_bench.records import Record, TensorTraffic
from fa_bench.report.caches import caches_table, passages


def _row(tensor: str, op: str, level: str, source: str, nbytes: int, **more: int) -> TensorTraffic:
    fields: dict[str, object] = {"tensor": tensor, "op": op, "level": level, "source": source, "bytes": nbytes}
    return TensorTraffic(case_id="0123456789abcdef", kernel="k", **(fields | more))  # type: ignore[arg-type]


#: Q: 4 KiB asked for, a quarter of it found in L1, 3 KiB asked of L2, a third of it found; 2 KiB from DRAM.
ROWS = [
    _row("Q", "read", "global", "model", 4096),
    _row("Q", "read", "global", "emulated", 4096, requests=16, hit_bytes=1024),
    _row("Q", "read", "l2", "emulated", 3072, requests=24, hit_bytes=1024),
    _row("Q", "read", "dram", "emulated", 2048),
    _row("Q", "read", "dram", "model", 1024),
    _row("O", "write", "global", "emulated", 2048, requests=8),
    _row("O", "write", "l2", "emulated", 2048, requests=16),
]


@pytest.fixture
def counted(record: Callable[..., Record]) -> Record:
    return record(
        backend="emulator",
        gpu="a30",
        dram_read_bytes_emulated=2048,
        dram_write_bytes_emulated=0,
        dram_read_bytes_emulated_low=1024,
        dram_read_bytes_emulated_high=4096,
        dram_write_bytes_emulated_low=0,
        dram_write_bytes_emulated_high=0,
        l2_dirty_bytes_emulated=2048,
        emulated_fraction=0.5,
    )


def test_a_passage_has_every_level() -> None:
    q, o = passages(ROWS)
    assert (q.requests, q.global_bytes, q.l1_hit_bytes) == (16, 4096, 1024)
    assert (q.l2_requests, q.l2_bytes, q.l2_hit_bytes) == (24, 3072, 1024)
    assert (q.dram_bytes, q.dram_model_bytes) == (2048, 1024)
    # Nothing of O reached DRAM, and nobody predicted anything of it.
    assert (o.l1_hit_bytes, o.l2_bytes, o.l2_hit_bytes, o.dram_bytes, o.dram_model_bytes) == (None, 2048, None, 0, None)


def test_what_is_written_back_while_a_later_kernel_runs_is_a_row() -> None:
    (*_, late) = passages([*ROWS, _row("P", "write", "dram", "emulated", 512)])
    assert (late.tensor, late.global_bytes, late.l2_bytes, late.dram_bytes) == ("P", 0, 0, 512)


def test_the_table_shows_shares_and_limits(counted: Record) -> None:
    table = caches_table(counted, ROWS)
    assert table is not None
    assert table.rows == (
        ("k", "Q", "read", "25.0 %", "3 KiB", "33.3 %", "2 KiB", "1 KiB"),
        ("k", "O", "write", "-", "2 KiB", "-", "0 B", "-"),
    )
    assert "2 KiB (between 1 KiB and 4 KiB) read from DRAM; 0 B (in all variants) written to DRAM." in table.note
    assert "2 KiB that were written are still in L2 at the end." in table.note
    assert "50.0 % of the slices ran" in table.note


def test_without_cache_counts_there_is_no_table(counted: Record) -> None:
    plain = [row for row in ROWS if row.level == "global"]
    assert passages(plain) == []
    assert caches_table(counted, plain) is None


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ((2304, 0), "Model, without running anything: +12.5 % reads, +0.0 % writes."),  # 256 of 2048 more
        ((2048, 1024), "Model, without running anything: +0.0 % reads, 1 KiB of writes where there are none."),
        ((1024, None), "Model, without running anything: -50.0 % reads."),
    ],
)
def test_the_models_error_stands_in_the_note(counted: Record, model: tuple[int, int | None], expected: str) -> None:
    record = replace(counted, dram_read_bytes_model=model[0], dram_write_bytes_model=model[1])
    table = caches_table(record, ROWS)
    assert table is not None and expected in table.note.splitlines()


def test_without_a_model_there_is_no_error(counted: Record) -> None:
    table = caches_table(counted, ROWS)
    assert table is not None and "Model" not in table.note
