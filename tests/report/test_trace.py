"""Tables of a trace, and the words beside them, made from steps that are written down here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fa_bench.algorithms.base import Program
from fa_bench.algorithms.tensors import qkvo
from fa_bench.backends.base import Verification
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.report.trace import row_states, step_rows, trace_document, trace_tables
from fa_bench.report.trace_tiles import progress, visits
from fa_bench.report.trace_words import dedented, doing
from fa_bench.tracing.result import Comparison, Counted, Step, Touch, Trace, Values

NAN = float("nan")
#: 32 queries, 32 keys, tiles of 16x16: 2 x 2 tiles; rows of 8 elements are 16 bytes, so a tile of Q is 256.
CASE = Case("flash2", AttentionShape(1, 1, 1, 32, 32, 8), tile=Tile(16, 16, 1, 1))


def read(tensor: str, first: int) -> Touch:
    return Touch(tensor, "read", 256, (first, first + 16), (0, 8))


def steps_of(cta: int) -> list[Step]:
    """One CTA of flash2: Q and K, then per tile S and the rest with the next loads in between, at the end O."""
    rows = (16 * cta, 16 * cta + 16)

    def step(computed: tuple, keys: tuple[int, int] | None, *touches: Touch) -> Step:
        return Step("flash2_fwd", cta, touches, computed, rows if keys else None, keys)

    return [
        step((), None, read("Q", rows[0]), read("K", 0)),
        step(("S",), (0, 16), read("V", 0)),
        step(("state", "P", "O"), (0, 16), read("K", 16)),
        step(("S",), (16, 32), read("V", 16)),
        step(("state", "P", "O"), (16, 32)),
        step((), None, Touch("O", "write", 256, rows, (0, 8))),
    ]


@pytest.fixture
def trace() -> Trace:
    """After the first tile O is 1, after the second 2; the exact result is 2.25 in row 3 and 2 elsewhere."""
    state = np.tile(np.array([[1, 2]], np.float32), (32, 1))
    exact = np.full((32, 8), 2.0)
    exact[3] = 2.25
    o = np.repeat(state[:, :, None], 8, axis=2)
    at = np.array([[2, 4]] * 16 + [[8, 10]] * 16, np.int32)
    values = Values(state, 10 * state, state / 4, np.zeros((32, 32)), np.zeros((32, 32)), o, at, at)  # type: ignore[arg-type]
    return Trace(
        case=CASE,
        bug="",
        program=Program(qkvo(CASE), ()),
        steps=(*steps_of(0), *steps_of(1)),
        values=values,
        output=o[:, 1].astype(np.float64),
        running=o.astype(np.float64),
        exact=exact,
        verification=Verification(0.25, 0.1, 0.5, "fp64", passed=True),
        traffic=(Counted("flash2_fwd", "Q", "read", 512, 512), Counted("flash2_fwd", "O", "write", 512, 512)),
    )


def test_errors_are_the_largest_of_a_row(trace: Trace) -> None:
    assert trace.row_errors[[2, 3]].tolist() == [0, 0.25]
    assert trace.running_errors[[2, 3]].tolist() == [[1, 0], [1.25, 0.25]]


def test_visits_join_the_steps_of_a_tile(trace: Trace) -> None:
    """Loads go with the tile that follows them, the store with the last; per CTA 6 transfers of 256 bytes."""
    found = visits(trace)
    assert [(v.first, v.last, v.rows, v.keys) for v in found] == [
        (0, 2, (0, 16), (0, 16)),
        (3, 5, (0, 16), (16, 32)),
        (6, 8, (16, 32), (0, 16)),
        (9, 11, (16, 32), (16, 32)),
    ]
    assert [(v.read, v.written) for v in found[:2]] == [(("Q", "K", "V"), ()), (("V",), ("O",))]
    assert [v.nbytes for v in found] == [1024, 512] * 2
    assert [v.so_far_bytes for v in found] == [1024, 1536, 2560, 3072]


def test_visits_of_a_kernel_without_products_are_one(trace: Trace) -> None:
    init = [Step("flash1_init", k, (Touch("O", "write", 64, (k, k + 1), (0, 8)),), (), None, None) for k in range(3)]
    (found,) = visits(replace(trace, steps=tuple(init)))
    assert (found.first, found.last, found.rows, found.nbytes) == (0, 2, None, 192)


def test_tables(trace: Trace) -> None:
    order, race, steps, row, moved, verdict = trace_tables(Comparison((trace,), {}, None, 3), steps=2)
    assert order.title == "32 queries and keys, D=8, fp16, no mask, tiles 16x16"
    assert order.rows == (("1 2",), ("3 4",))
    # The steps move 3072 bytes: 512, 256, 256, 256, 0, 256 per CTA. The tables' traffic is 1024: a quarter is less than
    # the first step, and all of it the first three, after which the first tile is done.
    assert race.rows == tuple(
        (text, cells)
        for text, picture in (
            ("256 B", ("··", "··")),
            ("512 B", ("··", "··")),
            ("768 B", ("░·", "··")),
            ("1 KiB", ("█·", "··")),
        )
        for text, cells in zip((text, ""), picture, strict=True)
    )
    assert steps.rows == (
        ("1", "fwd", "0–15", "0–15", "Q K V", "", "1 KiB", "1 KiB"),
        ("2", "fwd", "0–15", "16–31", "V", "O", "512 B", "1.50 KiB"),
    )
    assert steps.note == "2 more, to 1 KiB; --steps 4 shows all."
    assert row.rows[0] == ("flash2", "0–15", "1.000", "10.00", "0.2500", "1.000", "1.000", "1.000", "1.2e+00")
    assert row.rows[-1] == ("float64", "all", "-", "-", "-", "2.250", "2.250", "2.250", "-")
    assert moved.rows == (("Q", "512 B", "-"), ("O", "-", "512 B"), ("all", "512 B", "512 B"))
    assert verdict.rows == (("flash2", "1,024", "1,024", "2.5e-01", "5.0e-01", "ok"),)


def test_tiles_that_do_not_fit_are_thinned_out(trace: Trace) -> None:
    """30 x 30 tiles of 16: numbers up to 900 take 30 * 4 - 1 columns, every second of them 15 * 4 - 1; 30 lines of
    them in the second table are 8 at one in four."""
    tiles = [(i, j) for i in range(30) for j in range(30)]
    place = [((16 * i, 16 * i + 16), (16 * j, 16 * j + 16)) for i, j in tiles]
    steps = tuple(Step("flash2_fwd", 0, (read("K", 0),), ("S",), rows, keys) for rows, keys in place)
    state = np.ones((480, 30), np.float32)
    values = replace(trace.values, m=state, l=state, factor=state, state_step=np.ones((480, 30), np.int32),
                     output_step=np.full((480, 30), 900, np.int32))  # fmt: skip
    case = replace(CASE, shape=AttentionShape(1, 1, 1, 480, 480, 8))
    exact = np.ones((480, 8))
    large = replace(trace, case=case, steps=steps, values=values, running=np.ones((480, 30, 8)), exact=exact,
                    output=exact)  # fmt: skip
    order, race, *_ = trace_tables(Comparison((large,), {}, None, 0), steps=0)
    assert order.title.startswith("480 queries and keys")
    assert len(order.rows) == 15
    # Tile (2, 4) is number 2 * 30 + 4 + 1.
    assert order.rows[0][0].split()[:3] == ["1", "3", "5"]
    assert order.rows[1][0].split()[2] == "65"
    assert order.note.endswith("Of the 30x30 tiles one in 2 is shown, either way.")
    assert len(race.rows) == 4 * 8
    assert all(len(cells) == 8 for _, cells in race.rows)
    assert race.note.endswith("Of the 30x30 tiles one in 4 is shown, either way.")


def test_progress_of_standard_attention_has_three_states(trace: Trace) -> None:
    """S of all tiles, then the state of whole rows, then O: steps 0-3, 4-5 and 6-9, of 100 bytes each."""
    first, second = (0, 16), (16, 32)
    products = [
        *((("S",), rows, keys) for rows in (first, second) for keys in (first, second)),
        *((("state", "P"), rows, (0, 32)) for rows in (first, second)),
        *((("O",), rows, keys) for rows in (first, second) for keys in (first, second)),
    ]
    steps = [Step("k", 0, (Touch("Q", "read", 100, (0, 1), None),), *product) for product in products]  # type: ignore[arg-type]
    never, state = np.full((32, 2), NAN, np.float32), np.full((32, 2), -1, np.int32)
    state[:16, 1], state[16:, 1] = 4, 5
    output = np.array([[6, 7]] * 16 + [[8, 9]] * 16, np.int32)
    values = replace(trace.values, factor=never, state_step=state, output_step=output)
    standard = replace(trace, steps=tuple(steps), values=values)
    assert progress(standard, 300) == ["░░", "░·"]
    assert progress(standard, 599) == ["▒▒", "░░"]
    assert progress(standard, 700) == ["█▒", "▒▒"]
    assert progress(standard, 1000) == ["██", "██"]


def test_a_byte_or_a_result_that_is_off_shows(trace: Trace) -> None:
    off = replace(trace, traffic=(Counted("flash2_fwd", "Q", "read", 512, 544),))
    wrong = replace(trace, verification=replace(trace.verification, passed=False))
    for bad, verdict in ((off, "differs"), (wrong, "wrong_result")):
        comparison = Comparison((bad,), {}, None, 0)
        assert trace_tables(comparison, 0)[-1].rows[0][-1] == verdict
        assert not comparison.passed
        assert trace_document(comparison)["passed"] is False


def test_what_an_algorithm_does_not_have_is_unknown(trace: Trace) -> None:
    """Standard attention: m and l of the whole row only, no rescale factor."""
    never = np.full((32, 2), NAN, np.float32)
    m, at = never.copy(), np.full((32, 2), -1, np.int32)
    m[:, 1], at[:, 1] = 5, 7
    values = replace(trace.values, m=m, l=m, factor=never, state_step=at)
    first, last = row_states(replace(trace, values=values), 0)
    assert (first["m"], first["rescale"], first["error"]) == (None, None, 1.0)
    assert (last["m"], last["rescale"], last["error"]) == (5.0, None, 0.0)


def test_rows_for_csv_count_up(trace: Trace) -> None:
    rows = step_rows(Comparison((trace,), {}, None, 0))
    assert len(rows) == 12
    assert rows[1] == {
        "impl": "flash2", "bug": None, "step": 1, "kernel": "flash2_fwd", "cta": 0, "doing": "S = Q·Kᵀ",
        "query_first": 0, "query_last": 15, "key_first": 0, "key_last": 15,
        "read_bytes": 256, "write_bytes": 0, "so_far_bytes": 768,
    }  # fmt: skip
    assert rows[-1]["so_far_bytes"] == 3072


def test_words() -> None:
    q = read("Q", 0)
    out = Touch("O", "write", 256, (0, 16), (0, 8))
    assert doing(Step("k", 0, (q,), (), None, None)) == "load"
    assert doing(Step("k", 0, (out,), (), None, None)) == "store"
    assert doing(Step("flash1_init", 0, (out,), (), None, None)) == "O = 0, l = 0, m = −∞"
    assert doing(Step("k", 0, (q,), ("state", "P"), (0, 8), (0, 32))) == "P = softmax(S)"


def test_a_diff_loses_the_indentation_that_all_lines_share() -> None:
    diff = "--- a\n+++ a\n@@ -1,3 +1,3 @@\n     one\n-        two\n+    three\n #pragma unroll\n \n"
    assert dedented(diff) == ["--- a", "+++ a", "@@ -1,3 +1,3 @@", " one", "-    two", "+three", " #pragma unroll", " "]
