"""The estimate of what is left: fixed times in, expected seconds worked out by hand, no clock."""

from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.cli.eta import Eta


def case(impl: str, seq: int, *, causal: bool = False) -> Case:
    return Case(impl, AttentionShape(1, 1, 1, seq, seq, 64, causal))


CASES = tuple(case(impl, seq) for seq in (1, 2, 3, 4) for impl in ("a", "b"))


def test_no_estimate_before_two_rows_of_each_implementation() -> None:
    eta = Eta(CASES)
    assert eta.seconds_left() is None
    eta.finished(case("a", 1), 1.0)
    eta.finished(case("b", 1), 1.0)
    eta.finished(case("a", 2), 2.0)
    assert eta.seconds_left() is None


def test_estimate_is_a_fixed_part_and_a_part_that_grows_with_the_pairs() -> None:
    # Work is pairs times 64, so 1, 4, 9 and 16 units for seq 1 to 4.
    # a takes 2 s + 1 s a unit: 3 s, 6 s; left are 11 s and 18 s. b takes 5 s whatever the size: left are 5 s and 5 s.
    eta = Eta(CASES)
    for impl, seq, seconds in (("a", 1, 3.0), ("b", 1, 5.0), ("a", 2, 6.0), ("b", 2, 5.0)):
        eta.finished(case(impl, seq), seconds)
    assert eta.seconds_left() == 11 + 18 + 5 + 5


def test_a_row_of_known_work_counts_as_the_last_one_took() -> None:
    # Two cases of the same work (they differ in layout only): the first took 4 s, so the second will.
    first = case("a", 8)
    second = Case("a", first.shape, layout="bshd")
    eta = Eta((first, second))
    eta.finished(first, 4.0)
    assert eta.seconds_left() == 4.0
    eta.finished(second, 4.0)
    assert eta.seconds_left() == 0.0


def test_a_larger_row_that_was_faster_does_not_make_the_rest_negative() -> None:
    eta = Eta(tuple(case("a", seq) for seq in (1, 2, 10)))
    eta.finished(case("a", 1), 9.0)
    eta.finished(case("a", 2), 1.0)
    assert eta.seconds_left() == 1.0


def test_causal_rows_count_their_visible_pairs() -> None:
    # 3 rows of a causal square of 3 see 1 + 2 + 3 = 6 pairs; with 1 pair in 1 s and 3 pairs in 3 s, 6 take 6 s.
    eta = Eta(tuple(case("a", seq, causal=True) for seq in (1, 2, 3)))
    eta.finished(case("a", 1, causal=True), 1.0)
    eta.finished(case("a", 2, causal=True), 3.0)
    assert eta.seconds_left() == 6.0


def test_rows_of_tiny_work_do_not_foretell_large_ones() -> None:
    # 4 units are done; 256 are 64 times that and still foretold, 289 are not.
    eta = Eta(tuple(case("a", seq) for seq in (1, 2, 17)))
    for seq in (1, 2):
        eta.finished(case("a", seq), float(seq * seq))
    assert eta.seconds_left() is None
    eta = Eta(tuple(case("a", seq) for seq in (1, 2, 16)))
    for seq in (1, 2):
        eta.finished(case("a", seq), float(seq * seq))
    assert eta.seconds_left() == 256.0


def test_rows_of_nearly_equal_work_are_not_extrapolated_by_their_difference() -> None:
    # 10² and 11² units in 1 s and 3 s would be 2 s per 21 units; 20² units take 3 s · 400 / 121 instead.
    eta = Eta(tuple(case("a", seq) for seq in (10, 11, 20)))
    eta.finished(case("a", 10), 1.0)
    eta.finished(case("a", 11), 3.0)
    assert eta.seconds_left() == 3.0 * 400 / 121


def test_types_are_learned_apart() -> None:
    # fp32 runs on the FMA pipe, many times slower in the emulator: the half-precision rows say nothing of it.
    single = Case("a", AttentionShape(1, 1, 1, 4, 4, 64), "fp32")
    eta = Eta((*(case("a", seq) for seq in (1, 2)), single))
    eta.finished(case("a", 1), 1.0)
    eta.finished(case("a", 2), 2.0)
    assert eta.seconds_left() is None


def test_our_kernels_count_the_tiles_that_they_execute() -> None:
    # standard skips nothing: causal rows take as long as others. 64 in 1 s, 128 (4 times as much) in 4 s: 256 take 16.
    def standard(seq: int, *, causal: bool) -> Case:
        return Case("standard", AttentionShape(1, 1, 1, seq, seq, 64, causal), tile=Tile(64, 64, 1, 4))

    cases = tuple(standard(seq, causal=causal) for seq in (64, 128, 256) for causal in (False, True))
    eta = Eta(cases)
    for done in cases[:4]:
        eta.finished(done, done.shape.seq_q**2 / 64**2)
    assert eta.seconds_left() == 16.0 + 16.0
