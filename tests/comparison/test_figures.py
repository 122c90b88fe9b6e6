"""Bytes by tensor and source, resources."""

from __future__ import annotations

from sample_runs import moved, record

from fa_bench.comparison.figures import Figure, Total, byte_figures, columns_of_bytes, resource_figures, totals
from fa_bench.records import RECORDS

MI = 2**20


def test_every_byte_column_is_compared() -> None:
    # Each on its own: a change of the one column is found, whichever it is.
    columns = [column for pair in columns_of_bytes().values() for column in pair.values()]
    assert len(columns) == 20  # three levels, three sources, two directions; and local memory by hardware counters
    others = {c for c in RECORDS.columns if "_bytes_" in c} - set(columns)
    assert all(c.startswith(("l2_dirty", "dram_")) and c.endswith(("_emulated", "_low", "_high")) for c in others)
    for column in columns:
        level, op, _, source = column.split("_")
        (figure,) = byte_figures(record(**{column: 10}), record(**{column: 25}), ((), ()))
        assert figure == Figure(f"{level} {op}", 10, 25, (source,))  # type: ignore[arg-type]
        assert figure.delta == 15


def test_a_change_is_named_by_tensor_and_sources_that_agree_are_one() -> None:
    old = record(**{f"global_read_bytes_{s}": 48 * MI for s in ("model", "emulated")})
    new = record(**{f"global_read_bytes_{s}": 32 * MI for s in ("model", "emulated")})
    before = [moved(t, "read", 16 * MI, source=s) for s in ("model", "emulated") for t in "QKV"]
    after = [
        moved(t, "read", n * MI, source=s) for s in ("model", "emulated") for t, n in (("Q", 16), ("K", 8), ("V", 8))
    ]
    assert byte_figures(old, new, (before, after)) == (
        Figure("global K read", 16 * MI, 8 * MI, ("model", "emulated")),
        Figure("global V read", 16 * MI, 8 * MI, ("model", "emulated")),
    )


def test_kernels_of_a_case_are_summed() -> None:
    old, new = record(global_write_bytes_model=30), record(global_write_bytes_model=35)
    before = [moved("S", "write", 10), moved("S", "write", 20)]
    after = [moved("S", "write", 15), moved("S", "write", 20)]
    assert byte_figures(old, new, (before, after)) == (Figure("global S write", 30, 35, ("model",)),)


def test_a_tensor_that_came_was_0() -> None:
    old, new = record(global_write_bytes_model=30), record(global_write_bytes_model=37)
    before = [moved("S", "write", 30)]
    after = [moved("S", "write", 30), moved("LSE", "write", 7), moved("LSE", "read", 9)]
    assert byte_figures(old, new, (before, after)) == (Figure("global LSE write", 0, 7, ("model",)),)


def test_what_the_tensors_do_not_explain_stands_as_a_whole() -> None:
    old, new = record(global_read_bytes_model=10), record(global_read_bytes_model=30)
    lines = ([moved("K", "read", 10)], [moved("K", "read", 15)])
    assert byte_figures(old, new, lines) == (
        Figure("global K read", 10, 15, ("model",)),
        Figure("global read", 10, 30, ("model",)),
    )
    # One side has no traffic.csv.
    assert byte_figures(old, new, (lines[0], [])) == (Figure("global read", 10, 30, ("model",)),)


def test_what_a_side_does_not_know_is_no_zero() -> None:
    (figure,) = byte_figures(record(dram_read_bytes_measured=0), record(), ((), ()))
    assert (figure.name, figure.before, figure.after, figure.delta) == ("dram read", 0, None, None)
    assert byte_figures(record(), record(), ((), ())) == ()


def test_where_lines_are_lost_no_tensor_is_known_and_a_whole_that_changed_stands() -> None:
    old, new = record(global_read_bytes_model=30), record(global_read_bytes_model=37)
    lines = [moved("K", "read", 10), moved("V", "read", 20)]
    unknown = (Figure("global K read", 10, None, ("model",)), Figure("global V read", 20, None, ("model",)))
    assert byte_figures(old, old, (lines, None)) == unknown
    assert byte_figures(old, new, (lines, None)) == (*unknown, Figure("global read", 30, 37, ("model",)))
    # There is nothing to name where the other side has no traffic.csv, or has lost it too.
    assert byte_figures(old, old, ((), None)) == byte_figures(old, old, (None, None)) == ()


def test_totals_are_read_and_written_together_by_source() -> None:
    old = record(global_read_bytes_model=1, global_write_bytes_model=2, dram_read_bytes_emulated=4)
    new = record(global_read_bytes_model=8, global_write_bytes_model=16, dram_read_bytes_emulated=5)
    # Of what neither counted nothing is said.
    assert totals(old, new) == (Total("global", "model", 3, 24), Total("dram", "emulated", 4, 5))
    # What one side lacks leaves its total open.
    assert totals(old, record(dram_read_bytes_emulated=4, dram_write_bytes_emulated=0)) == (
        Total("global", "model", 3, None),
        Total("dram", "emulated", None, 4),
    )


def test_resources() -> None:
    found = resource_figures(record(registers=128, spill_bytes=None), record(registers=140, spill_bytes=8))
    assert [(f.name, f.before, f.after, f.changed) for f in found] == [
        ("registers", 128, 140, True),
        ("spills", None, 8, True),
        ("smem", 49152, 49152, False),
        ("error", 1e-4, 1e-4, False),
    ]
