"""Published points: read as cases, and each rule for leaving one out worked out anew from the data alone."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest

from fa_bench.cases import AttentionShape, Case, Features
from fa_bench.model import gpus
from fa_bench.published import Point, incomplete, points

POINTS = points()
FA1 = "FlashAttention tables 9-20"


def one(**wanted: object) -> Point:
    found = [point for point in POINTS if all(getattr(point, name) == value for name, value in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def test_every_row_of_the_files_is_a_point_or_says_why_not() -> None:
    # published_points.csv has 493 rows; fa1_tables.csv 1231, of which 93 are of table 21.
    assert len(POINTS) + len(incomplete()) == 493 + 1231 - 93
    assert all(row.left_out for row in incomplete())
    assert Counter(row.left_out for row in incomplete()) == {
        "fp8: no case has that type": 34,
        "batch and heads are not stated": 9,
        "batch and heads are not stated; above the peak at the boost clock": 2,
        "whether the mask is causal is not stated": 2,
        "the GPU is not named: GB200 or B300": 7,
    }


def test_a_rate_becomes_a_time() -> None:
    # FlashAttention-2, figure 4: 203 TFLOP/s at batch 1, 16 heads, 16k, D = 128, forward and backward:
    # 3.5 · 4 · 16 · 16384² · 128 = 7.697e12 FLOP, over 203e12 a second = 37.91 ms.
    point = one(source="FlashAttention-2 fig. 4", impl="flash-attn-2", shape=_square(1, 16, 16384, 128))
    assert (point.value, point.unit, point.gpu) == (203, "TFLOPs/s", "a100-sxm-80")
    assert point.ms == pytest.approx(37.91, abs=0.01)
    assert point.tflops == pytest.approx(203)


def test_a_causal_rate_counts_half() -> None:
    # FlashAttention-3, figure 5: 616 TFLOP/s at batch 1, 16 heads, 16k, D = 128, forward, causal:
    # 4 · 16 · 16384² · 128 / 2 = 1.0995e12 FLOP, 1.785 ms.
    shape = _square(1, 16, 16384, 128, causal=True)
    point = one(source="FlashAttention-3 fig. 5", impl="flash-attn-3", shape=shape)
    assert (point.value, point.direction) == (616, "fwd")
    assert point.ms == pytest.approx(1.785, abs=0.001)


def test_microseconds() -> None:
    # PyTorch's pull request 126122: 836.327 µs.
    point = one(source="pytorch#126122", impl="torch-cudnn", shape=_square(1, 32, 4096, 64))
    assert (point.unit, point.ms) == ("us", pytest.approx(0.836327))


def test_a_row_of_the_first_papers_tables() -> None:
    # Table 17: PyTorch attention, 4096, dropout, no mask, forward and backward: 67.29 ms on an A100 40 GB.
    point = one(source=FA1, impl="pytorch-eager", direction="fwd+bwd", masked=False, ms=67.29)
    shape = _square(16, 8, 4096, 64)
    assert (point.gpu, point.note, point.shape) == ("a100-sxm-40", "table 17", shape)
    dropped = Features(dropout_p=0.1)
    assert point.case() == Case("pytorch-eager", shape, layout="bshd", direction="fwd+bwd", features=dropped)


def test_pytorchs_attention_takes_heads_before_positions() -> None:
    layouts = {(point.impl.startswith("torch-"), point.case().layout) for point in points()}
    assert layouts == {(True, "bhsd"), (False, "bshd")}


def test_decode_is_a_forward_pass_of_one_query() -> None:
    point = one(source="TileOPs#2084")
    assert (point.direction, point.shape.seq_q, point.shape.seq_kv) == ("fwd", 1, 1024)
    assert point.left_out == "SM clock locked at 1500 of 1980 MHz"


def test_the_published_names_stay() -> None:
    point = one(source="gau-nernst fa-5090", impl="torch-cudnn")
    assert (point.gpu_published, point.gpu, point.impl_published) == ("RTX 5090 (400W)", "rtx-5090", "torch SDPA cuDNN")


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="ms must be positive, not 0"):
        replace(POINTS[0], ms=0.0)


def test_nothing_that_stays_in_beats_the_peak() -> None:
    for point in POINTS:
        peak = gpus.get(point.gpu).tensor_tflops(point.dtype)
        if point.left_out is None:
            assert peak is not None and point.tflops < peak, point


def test_no_point_comes_twice() -> None:
    seen = Counter((p.source, p.gpu_published, p.impl_published, p.masked, p.case().case_id) for p in POINTS)
    assert set(seen.values()) == {1}


def test_a_rate_beside_a_time_fits_it() -> None:
    # Where a note repeats the rate ("369.9 TFLOPS"), the shape that we read must give it: within a percent.
    pattern = re.compile(r"(\d+\.\d+) TFLOP")
    checked = 0
    for point in POINTS:
        found = pattern.search(point.note)
        if found and point.metric == "latency":
            assert point.tflops == pytest.approx(float(found[1]), rel=0.01), point
            checked += 1
    assert checked > 80


def test_what_stands_apart_in_its_table_is_left_out() -> None:
    # A rate over 10 % below both neighbours in length, or above both, in one table of about equal work per length.
    reasons = {way: f"over 10 % {way} than both neighbours of its table" for way in ("slower", "faster")}
    expected = set()
    for row in _tables(lambda point: not point.source.startswith("FlashAttention table")):
        for before, here, after in zip(row, row[1:], row[2:], strict=False):
            if here.tflops < 0.9 * min(before.tflops, after.tflops):
                expected.add((here.source, here.value, reasons["slower"]))
            if here.tflops > 1.1 * max(before.tflops, after.tflops):
                expected.add((here.source, here.value, reasons["faster"]))
    named = {(p.source, p.value, p.left_out) for p in POINTS if p.left_out in reasons.values()}
    assert named == expected
    assert {value for _, value, _ in named} == {306.94, 88.67, 57.73, 68.98}


def test_what_does_not_grow_with_the_length_is_the_host() -> None:
    # Twice the length is at least twice the work: less than 1.25 times the time is not the GPU's.
    reason = "does not grow with the length: time of the host"
    expected = set()
    for row in _tables(lambda point: point.source == FA1 and point.impl in _EXACT and not point.masked):
        for short, long in itertools.pairwise(row):
            if long.ms < 1.25 * short.ms:
                expected |= {_place(short), _place(long)}
    assert {_place(point) for point in POINTS if point.left_out == reason} == expected
    assert len(expected) == 34


_EXACT = ("pytorch-eager", "megatron", "flash-attn-1", "apex-fmha")


def test_the_first_papers_other_rows_are_left_out_by_rule() -> None:
    for point in POINTS:
        if point.source.startswith("FlashAttention table"):
            if point.impl not in _EXACT:
                assert point.left_out == "approximate or sparse: less work than the shape says"
            elif point.masked:
                assert point.left_out == "a key-padding mask, which no case here has"


def _square(batch: int, heads: int, seq: int, head_dim: int, *, causal: bool = False) -> AttentionShape:
    return AttentionShape(batch, heads, heads, seq, seq, head_dim, causal)


def _place(point: Point) -> tuple[object, ...]:
    return (point.note, point.impl, point.shape.seq_q)


def _tables(wanted: Callable[[Point], bool]) -> list[list[Point]]:
    """Points of one table that differ in length and batch only, by length."""
    rows: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in POINTS:
        if wanted(point) and point.shape.seq_q > 1:
            s = point.shape
            note = point.note if point.source == FA1 else ""
            names = (point.source, note, point.gpu_published, point.impl_published, point.direction, point.masked)
            batch = s.batch if point.source == "JakeFlasher A30" else 0
            rows[(*names, point.dtype, s.heads_q, s.heads_kv, s.head_dim, s.causal, batch)].append(point)
    return [sorted(row, key=lambda point: point.shape.seq_kv) for row in rows.values()]
