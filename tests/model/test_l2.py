"""Places, waves and what stays in L2, worked out by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_bench import algorithms
from fa_bench.algorithms.base import Buffer, KernelSpec, Launch, Op, Program
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.model.l2 import Moment, Stage, Use, passed, stage_of
from fa_bench.model.l2_cache import Cache, Places

KIB, MIB = 1024, 1024**2
ONE, TWO = Cache(MIB, 1), Cache(MIB, 2)


def use(**fields: object) -> Use:
    defaults: dict[str, object] = {
        "pattern": "streamed", "read_bytes": 0, "write_bytes": 0, "nbytes": 800, "heads": 1, "ctas_per_head": 8,
        "cta_share": 0.0, "places": 1.0, "variance": 0.0,
    }  # fmt: skip
    return Use(**(defaults | fields))  # type: ignore[arg-type]


def stage(entry: str = "k", *, ctas: int = 8, wave: int = 4, per_slice: int = 8, **uses: Use) -> Stage:
    return Stage(entry, ctas, wave, per_slice, True, uses)


def at(index: int, part: float) -> Moment:
    return Moment(index, part, part, part, part)


# --- the cache -------------------------------------------------------------------------------------------------------


def test_places_of_a_line() -> None:
    assert ONE.places(read=True, by_many=True) == ONE.places(read=False, by_many=False) == (1.0, 0.0)
    # Two partitions. Written: one place, in one of two at random: variance ½·½ per line and partition, of ½ a line.
    assert TWO.places(read=False, by_many=False) == (1.0, 0.5)
    # Read by one SM: its own partition has it for certain; the other one with ½, variance ¼. Of 1½ places that is 1/6.
    places, variance = TWO.places(read=True, by_many=False)
    assert places == 1.5
    assert variance == pytest.approx(0.25 / 1.5)
    assert TWO.places(read=True, by_many=True) == (2.0, 0.0)


def test_one_partition_holds_what_fits_and_no_more() -> None:
    assert ONE.held(Places(0.0, 0.0)) == 1.0
    assert ONE.held(Places(0.8 * MIB, 0.0)) > 0.999
    assert ONE.held(Places(1.25 * MIB, 0.0)) < 0.001
    # Sets that are filled evenly lose a line when the 17th comes, 16.5 on average.
    assert ONE.held(Places(MIB * 16.5 / 16, 0.0)) == pytest.approx(0.5)


def test_uneven_sets_lose_lines_before_the_cache_is_full() -> None:
    # Three quarters full with lines that were written: 12 of 16 in a set, variance 12 · ½ = 6; 16 are 4 / √6 = 1.63
    # standard deviations away.
    full = Places(0.75 * MIB, 0.5 * 0.75 * MIB)
    assert TWO.held(full) == pytest.approx(0.5 * (1 + math.erf(4 / math.sqrt(6) / math.sqrt(2))))
    assert TWO.held_dirty(full) < TWO.held(full)
    assert TWO.held_in_loop(full) < TWO.held(full)


def test_half_of_l2_may_be_dirty() -> None:
    assert ONE.excess(0.25 * MIB) == pytest.approx(0.0, abs=1)
    # Far above the limit the excess is the difference.
    assert ONE.excess(2.0 * MIB) == pytest.approx(1.5 * MIB, rel=1e-6)
    # At the limit, half of the sets are above it: the mean of the upper half of a normal distribution, σ / √(2π), with
    # σ = 5 % of half the cache.
    assert ONE.excess(0.5 * MIB) == pytest.approx(0.05 * 0.5 * MIB / math.sqrt(2 * math.pi))
    # 8 dirty lines in a set, of 16 that may be in either partition: variance 4, σ = 2 of 8.
    assert TWO.excess(0.5 * MIB) == pytest.approx(0.25 * 0.5 * MIB / math.sqrt(2 * math.pi))


def test_a_loop_keeps_lines_dirty_up_to_half_of_l2() -> None:
    for cache in (ONE, TWO):
        assert cache.dirty_in_loop(0.1 * MIB) > 0.99
        assert cache.dirty_in_loop(0.9 * MIB) < 0.05
    # Of 8 dirty lines on average in a set, most are in one that has more.
    assert TWO.dirty_in_loop(0.5 * MIB) < 0.5 < TWO.dirty_in_loop(0.35 * MIB)


# --- a launch --------------------------------------------------------------------------------------------------------


def test_streams_pass_with_the_ctas() -> None:
    s = stage(Q=use(read_bytes=800, places=1.5), O=use(write_bytes=800))
    # One of two waves: half of Q at 1.5 places, half of O.
    assert passed((s,), at(0, 0.0), at(0, 0.5)) == Places(800 / 2 * 1.5 + 800 / 2, 0.0)
    assert passed((s,), Moment(0, 1.0, 0.0, 0.0, 0.5), at(0, 1.0)) == Places(400.0, 0.0)


@pytest.mark.parametrize(
    ("wave", "heads_touched"),
    [
        (4, 2.0),  # CTAs 0-3 are heads 0 and 1
        (3, 2.0),  # 0-2: heads 0, 1; 3-5: heads 1, 2; 6-7 are no whole wave
        (2, 1.0),
        (1, 1.0),  # half of a head's CTAs, but all of its keys
        (8, 4.0),
    ],
)
def test_waves_touch_more_heads_than_they_fill(wave: int, heads_touched: float) -> None:
    # Four heads with two CTAs each, all of which read the whole head of 200 bytes.
    s = stage(wave=wave, K=use(pattern="shared", read_bytes=1600, heads=4, ctas_per_head=2, cta_share=1.0))
    assert passed((s,), at(0, 0.0), at(0, wave / 8)).nbytes == pytest.approx(heads_touched * 200)


def test_a_line_counts_once_between_two_launches() -> None:
    first = stage("a", S=use(write_bytes=800))
    second = stage("b", S=use(read_bytes=800, places=1.5), P=use(write_bytes=800))
    # From the middle of S's writing to the middle of its reading: its second half, then the first with copies.
    assert passed((first, second), at(0, 0.5), at(1, 0.5)).nbytes == 400 + 1.5 * 400 + 400
    # To the end: half of S would count twice. No more than all of it, each line at 1.5 places.
    assert passed((first, second), at(0, 0.5), at(1, 1.0)).nbytes == 1.5 * 800 + 800
    assert passed((first, second, second), at(0, 1.0), at(2, 0.0)).nbytes == 1.5 * 800 + 800


def test_one_pass_of_a_loop() -> None:
    # Two waves; Q and O_acc are looped four times, K streams past once.
    s = stage(
        per_slice=1,
        Q=use(pattern="looped", read_bytes=3200, places=1.5, variance=0.1),
        O_acc=use(pattern="looped", read_bytes=3200, write_bytes=2400, places=1.5, variance=0.1),
        K=use(read_bytes=800, places=1.5, variance=0.1),
        O=use(write_bytes=800),
    )
    assert s.passes == 4
    # A wave has 400 bytes of each. Q: one place, for a copy answers alone. K: a quarter of it in each pass.
    places, dirty_bytes = s.loop_places()
    assert places.nbytes == 400 + 1.5 * 400 + 1.5 * 100
    assert places.variance == pytest.approx(0.1 * (1.5 * 400 + 1.5 * 100))
    assert dirty_bytes == 400


# --- from programs ---------------------------------------------------------------------------------------------------


def stages(case: Case, blocks: int | None = None) -> list[Stage]:
    algorithm = algorithms.get(case.impl)
    case = dataclasses.replace(case, tile=algorithm.resolve(case, Tile(64, 64)))
    program = algorithm.program(case)
    parts = algorithm.traffic(case) or ()
    traffic: dict[tuple[str, str, Op], int] = {(part.kernel, part.tensor, part.op): part.bytes for part in parts}
    return [stage_of(program, launch, traffic, gpus.get("a30"), blocks) for launch in program.launches]


def test_flash2_shares_k_and_v() -> None:
    (s,) = stages(Case("flash2", AttentionShape(1, 8, 2, 512, 512, 64)), blocks=1)
    # 8 slices of 8 tiles on 56 SMs; 4 query heads, 32 CTAs, read one K/V head.
    assert (s.ctas, s.wave, s.ctas_per_slice) == (64, 56, 8)
    assert {name: use.pattern for name, use in s.uses.items()} == {
        "Q": "streamed", "K": "shared", "V": "shared", "O": "streamed", "LSE": "streamed",
    }  # fmt: skip
    k = s.uses["K"]
    assert (k.heads, k.ctas_per_head, k.cta_share, k.places) == (2, 32, 1.0, 2.0)
    assert not s.rolling


def test_a_causal_mask_makes_waves_roll() -> None:
    (s,) = stages(Case("flash2", AttentionShape(1, 8, 2, 512, 512, 64, causal=True)))
    # Tile t of 8 reads t + 1 eighths: 36 of 64 on average.
    assert s.uses["K"].cta_share == pytest.approx(36 / 64)
    assert s.rolling


def test_flash1_loops_over_a_slice() -> None:
    init, forward = stages(Case("flash1", AttentionShape(1, 8, 2, 512, 512, 64)))
    assert not init.in_step
    looped = {name for name, use in forward.uses.items() if use.pattern == "looped"}
    assert looped == {"Q", "O_acc", "l", "m"}
    assert forward.passes == 8
    assert forward.uses["K"].pattern == "shared"  # by four slices


def test_scores_read_tiles_of_k() -> None:
    scores, softmax, pv = stages(Case("standard", AttentionShape(1, 1, 1, 512, 512, 64)))
    # 64 tiles: one reads an eighth of K. Q's tile is read by 8 CTAs in a row, which is once.
    assert (scores.uses["K"].pattern, scores.uses["K"].cta_share) == ("shared", 1 / 8)
    assert scores.uses["Q"].pattern == "streamed"
    assert not softmax.in_step and scores.in_step and pv.in_step


def test_ctas_without_an_order_are_one_slice() -> None:
    strides = (4 * 512 * 64, 512 * 64, 64, 1)
    program = Program(
        (Buffer("K", "fp16", (1, 4, 512, 64), strides, "input"),),
        (Launch(KernelSpec("", "k"), (16, 1, 1), (128, 1, 1), 0, ()),),
    )
    s = stage_of(program, program.launches[0], {("k", "K", "read"): 16 * 262144}, gpus.get("a30"), None)
    # Every CTA reads all four heads, 256 KiB.
    assert (s.ctas_per_slice, s.uses["K"].heads, s.uses["K"].ctas_per_head, s.uses["K"].cta_share) == (16, 1, 16, 1.0)
