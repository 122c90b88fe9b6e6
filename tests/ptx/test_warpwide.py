"""Shuffles, votes and the active mask, after the pseudo-code of the PTX ISA."""

import pytest

LANES = list(range(32))
FULL = 0xFFFFFFFF
WIDTH_8 = 0x18 << 8  # segment mask of eight lanes, as __shfl_*_sync(..., width=8) passes it


@pytest.mark.parametrize(
    "mode, b, c, source",
    [
        # Where the source is out of range (None) a lane keeps its own value and the predicate is false.
        ("up", 1, 0, [None, *LANES[:31]]),
        ("up", 0, 0, LANES),
        ("down", 1, 31, [*LANES[1:], None]),
        ("down", 16, 31, [lane + 16 if lane < 16 else None for lane in LANES]),
        ("bfly", 1, 31, [lane ^ 1 for lane in LANES]),
        ("bfly", 31, 31, [31 - lane for lane in LANES]),
        ("idx", 5, 31, [5] * 32),
        ("idx", 37, 31, [5] * 32),  # only the low five bits count
        # Segments of eight: lanes do not reach over their ends.
        ("up", 2, WIDTH_8, [lane - 2 if lane % 8 >= 2 else None for lane in LANES]),
        ("down", 2, WIDTH_8 | 31, [lane + 2 if lane % 8 < 6 else None for lane in LANES]),
        ("bfly", 4, WIDTH_8 | 31, [lane ^ 4 for lane in LANES]),
        ("bfly", 8, WIDTH_8 | 31, [lane ^ 8 if lane & 8 else None for lane in LANES]),
        ("idx", 3, WIDTH_8 | 31, [lane - lane % 8 + 3 for lane in LANES]),
        # A clamp of 7 without segments: sources beyond lane 7 are out of range.
        ("idx", 9, 7, [None] * 32),
        ("down", 2, 7, [lane + 2 if lane <= 5 else None for lane in LANES]),
    ],
)
def test_shuffle(engine, mode, b, c, source):
    inputs = {"a": (32, [1000 + lane for lane in LANES])}
    body = f"shfl.sync.{mode}.b32 %d|%p, %a, {b}, {c}, -1;\nshfl.sync.{mode}.b32 %e, %a, {b}, {c}, -1;"
    results = engine.evaluate(body, inputs, {"d": 32, "p": 1, "e": 32})
    expected = [1000 + (lane if s is None else s) for lane, s in zip(LANES, source, strict=True)]
    assert results["d"] == results["e"] == expected
    assert results["p"] == [int(s is not None) for s in source]


@pytest.mark.parametrize("mode", ["idx", "bfly", "up", "down"])
def test_shuffle_with_an_offset_per_lane(engine, mode):
    """b = 31 - lane: idx reverses; bfly gives lane ^ (31 - lane) = 31; the others are worked out per lane."""
    inputs = {"a": (32, [7 * lane for lane in LANES]), "b": (32, [31 - lane for lane in LANES])}
    clamp = 0 if mode == "up" else 31
    result = engine.evaluate(f"shfl.sync.{mode}.b32 %d, %a, %b, {clamp}, 0xffffffff;", inputs, {"d": 32})["d"]
    source = {
        "idx": [31 - lane for lane in LANES],
        "bfly": [31] * 32,
        "up": [2 * lane - 31 if 2 * lane >= 31 else lane for lane in LANES],
        "down": [31] * 32,
    }[mode]
    assert result == [7 * s for s in source]


def test_shuffle_among_the_lanes_of_a_branch(engine):
    """Lanes 0-15 exchange under their own mask; the others skip the branch."""
    inputs = {"a": (32, LANES), "d": (32, [99] * 32)}
    body = (
        "setp.ge.u32 %p0, %a, 16;\n@%p0 bra END;\nshfl.sync.bfly.b32 %d, %a, 1, 31, 0xffff;\nEND:\nadd.u32 %d, %d, 0;"
    )
    assert engine.evaluate(body, inputs, {"d": 32})["d"] == [lane ^ 1 for lane in range(16)] + [99] * 16


def test_warp_sum_by_butterfly(engine):
    body = "\n".join(f"shfl.sync.bfly.b32 %r0, %d, {step}, 31, -1;\nadd.u32 %d, %d, %r0;" for step in (16, 8, 4, 2, 1))
    assert engine.evaluate(body, {"d": (32, LANES)}, {"d": 32})["d"] == [496] * 32


@pytest.mark.parametrize(
    "votes, every, some, same, ballot",
    [
        ([1] * 32, 1, 1, 1, FULL),
        ([0] * 32, 0, 0, 1, 0),
        ([1] + [0] * 31, 0, 1, 0, 1),
        ([1] * 31 + [0], 0, 1, 0, 0x7FFFFFFF),
    ],
)
def test_vote(engine, votes, every, some, same, ballot):
    body = (
        "vote.sync.all.pred %all, %v, -1;\nvote.sync.any.pred %any, %v, -1;\nvote.sync.uni.pred %uni, %v, -1;\n"
        "vote.sync.ballot.b32 %ballot, %v, -1;\nvote.sync.ballot.b32 %not, !%v, 0xffffffff;"
    )
    results = engine.evaluate(body, {"v": (1, votes)}, {"all": 1, "any": 1, "uni": 1, "ballot": 32, "not": 32})
    assert results == {
        "all": [every] * 32,
        "any": [some] * 32,
        "uni": [same] * 32,
        "ballot": [ballot] * 32,
        "not": [FULL ^ ballot] * 32,
    }


def test_vote_among_the_lanes_of_a_branch(engine):
    """Lanes 8-31 vote "lane is odd": not all, some; their ballot has no bits of the other lanes."""
    inputs = {"a": (32, LANES), "d": (32, [0] * 32), "q": (1, [1] * 32)}
    body = (
        "and.b32 %r0, %a, 1;\nsetp.eq.u32 %p1, %r0, 1;\nsetp.lt.u32 %p0, %a, 8;\n@%p0 bra END;\n"
        "vote.sync.ballot.b32 %d, %p1, 0xffffff00;\nvote.sync.all.pred %q, %p1, 0xffffff00;\nEND:\nadd.u32 %d, %d, 0;"
    )
    results = engine.evaluate(body, inputs, {"d": 32, "q": 1})
    assert results["d"] == [0] * 8 + [0xAAAAAA00] * 24
    assert results["q"] == [1] * 8 + [0] * 24


def test_vote_in_groups_with_their_own_masks(engine):
    """Groups of eight lanes vote on "lane < 12" at one instruction, each under its own mask."""
    inputs = {"a": (32, LANES)}
    body = (
        "and.b32 %r0, %a, 24;\nshl.b32 %r1, 255, %r0;\nsetp.lt.u32 %p0, %a, 12;\n"
        "vote.sync.ballot.b32 %d, %p0, %r1;\nvote.sync.all.pred %all, %p0, %r1;\nvote.sync.any.pred %any, %p0, %r1;"
    )
    results = engine.evaluate(body, inputs, {"d": 32, "all": 1, "any": 1})
    assert results["d"] == [0xFF] * 8 + [0xF00] * 8 + [0] * 16
    assert results["all"] == [1] * 8 + [0] * 24
    assert results["any"] == [1] * 16 + [0] * 16


def test_active_mask(engine):
    """All lanes, then the two sides of a branch."""
    inputs = {"a": (32, LANES)}
    body = (
        "activemask.b32 %whole;\nsetp.lt.u32 %p0, %a, 4;\n@%p0 bra LOW;\nactivemask.b32 %side;\nbra END;\nLOW:\n"
        "activemask.b32 %side;\nEND:\nadd.u32 %side, %side, 0;"
    )
    results = engine.evaluate(body, inputs, {"whole": 32, "side": 32})
    assert results["whole"] == [FULL] * 32
    assert results["side"] == [0xF] * 4 + [0xFFFFFFF0] * 28
