"""Which row stands against which."""

from __future__ import annotations

from sample_runs import record

from fa_bench.comparison.pairing import pair, tile_changes
from fa_bench.records import Record


def row(case_id: str, block_m: int = 64, seq: int = 512, **fields: object) -> Record:
    return record(case_id=case_id, block_m=block_m, seq_q=seq, seq_kv=seq, **fields)


def ids(pairs: tuple[tuple[Record, Record], ...]) -> list[tuple[str, str]]:
    return [(old.case_id, new.case_id) for old, new in pairs]


def test_by_case_a_part_of_a_run_pairs_with_the_whole() -> None:
    whole, part = [row("a"), row("b"), row("c")], [row("c"), row("a"), row("x")]
    found = pair(whole, part)
    assert ids(found.pairs) == [("a", "a"), ("c", "c")]
    assert [r.case_id for r in found.only_before] == ["b"]
    assert [r.case_id for r in found.only_after] == ["x"]


def test_the_same_case_on_another_backend_is_another_row() -> None:
    found = pair([row("a", backend="cuda")], [row("a", backend="emulator")])
    assert found.pairs == ()
    assert len(found.only_before) == len(found.only_after) == 1


def test_by_shape_the_tile_may_differ() -> None:
    before, after = [row("a64", 64), row("b64", 64, 1024)], [row("b128", 128, 1024), row("a128", 128)]
    assert pair(before, after).pairs == ()
    found = pair(before, after, "shape")
    assert ids(found.pairs) == [("a64", "a128"), ("b64", "b128")]
    assert tile_changes(*found.pairs[0]) == (("block_m", 64, 128),)


def test_by_shape_the_same_tile_comes_first_and_what_is_ambiguous_stays_alone() -> None:
    before = [row("64", 64), row("128", 128)]
    found = pair(before, [row("128'", 128), row("32'", 32)], "shape")
    assert ids(found.pairs) == [("64", "32'"), ("128", "128'")]
    # Which of the two is the 64 of before? Nobody can say.
    found = pair([row("64", 64)], [row("32'", 32), row("16'", 16)], "shape")
    assert found.pairs == ()
    assert [r.case_id for r in found.only_after] == ["32'", "16'"]


def test_by_shape_a_changed_kernel_of_the_users_pairs_with_what_it_was() -> None:
    # The hash of its files is part of the case.
    old, new = (record(case_id=c, impl="mine", block_m=None, block_n=None, stages=None) for c in "xy")
    assert ids(pair([old], [new], "shape").pairs) == [("x", "y")]


def test_by_shape_nothing_but_the_tile_may_differ() -> None:
    changes: dict[str, object] = {
        "impl": "flash1", "backend": "emulator", "dtype": "bf16", "layout": "bshd", "batch": 2, "heads_q": 2,
        "heads_kv": 2, "seq_q": 8, "seq_kv": 8, "head_dim": 128, "causal": True, "seed": 1,
    }  # fmt: skip
    for name, value in changes.items():
        assert pair([record()], [record(**{name: value})], "shape").pairs == (), name
    for name in ("block_m", "block_n", "num_warps"):
        assert len(pair([record()], [record(**{name: 8})], "shape").pairs) == 1, name
