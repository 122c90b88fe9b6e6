"""Points that nothing is fitted to: read as cases, apart from the fit's, and left out by the same rules."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fa_bench import datafiles
from fa_bench.cases import AttentionShape
from fa_bench.model import gpus
from fa_bench.published import Point, held_out, points
from fa_bench.published.points import HELD_OUT_FILE, POINTS_FILE

HELD = held_out()


def one(source: str, impl: str, seq_q: int, **more: object) -> Point:
    found = [p for p in HELD if (p.source, p.impl, p.shape.seq_q) == (source, impl, seq_q)]
    found = [
        p for p in found if all(getattr(p, name, getattr(p.shape, name, None)) == want for name, want in more.items())
    ]
    assert len(found) == 1, found
    return found[0]


def test_every_row_is_a_case() -> None:
    assert len(HELD) == len(list(datafiles.rows(HELD_OUT_FILE))) == 415
    assert all(row["source_url"].startswith("https://") and row["note"] for row in datafiles.rows(HELD_OUT_FILE))


def test_the_file_has_the_columns_of_the_others() -> None:
    held, other = (list(next(iter(datafiles.rows(name)))) for name in (HELD_OUT_FILE, POINTS_FILE))
    assert held == other


def test_no_case_of_a_fitted_point_is_held_out() -> None:
    def place(point: Point) -> tuple[str, str, str]:
        return point.gpu, point.impl, point.case().case_id

    fitted = {place(point) for point in points() if point.left_out is None}
    assert not [point for point in HELD if place(point) in fitted]
    assert not {id(point) for point in points()} & {id(point) for point in HELD}


def test_rates_and_times() -> None:
    # FlashAttention-3, figure 5: 648 TFLOP/s at 1 x 16 heads, 16k, D = 128: 4 · 16 · 16384² · 128 / 648e12 = 3.394 ms.
    bar = one("FlashAttention-3 fig. 5", "flash-attn-3", 16384, head_dim=128)
    assert bar.shape == AttentionShape(1, 16, 16, 16384, 16384, 128)
    assert bar.ms == pytest.approx(3.394, abs=0.001)
    # A backward pass counts 2.5 times as much: 2.5 · 4 · 4 · 32 · 16384² · 64 / 2 / 320.319e12 = 34.33 ms.
    flash = one("Triton-to-tile-IR B200", "flash-attn-2", 16384, direction="bwd", head_dim=64, causal=True)
    assert flash.ms == pytest.approx(34.33, abs=0.01)


def test_rates_that_stand_beside_times_agree_with_them() -> None:
    # The cuDNN sweep on an A100 PCIe prints 184.285 TFLOP/s beside 23.865443 ms.
    point = one("cudnn-frontend A100", "torch-cudnn", 16384, heads_q=64)
    assert (point.gpu, point.tflops) == ("a100-pcie-80", pytest.approx(184.285, rel=1e-4))
    # cuDNN's table of a B200: 1108.688 TFLOP/s backward at 32k in 79.338 ms.
    point = one("cudnn-frontend B200", "torch-cudnn", 32768, direction="bwd")
    assert point.tflops == pytest.approx(1108.688, rel=1e-4)


def test_nothing_that_stays_in_beats_the_peak() -> None:
    for point in HELD:
        peak = gpus.get(point.gpu).tensor_tflops(point.dtype)
        if point.left_out is None:
            assert peak is not None and point.tflops < peak, point


def test_no_point_comes_twice() -> None:
    seen = Counter((p.source, p.gpu_published, p.impl_published, p.case().case_id) for p in HELD)
    assert set(seen.values()) == {1}


def test_nothing_that_stays_in_stands_apart_in_its_table_or_is_the_hosts_time() -> None:
    # The rules of test_points.py: over 10 % off both neighbours, or less than 1.25 times the time for twice the length.
    rows: dict[tuple[object, ...], list[Point]] = {}
    for point in HELD:
        s = point.shape
        if s.seq_q == s.seq_kv and point.left_out is None:
            key = (point.source, point.impl_published, point.direction, s.heads_q, s.heads_kv, s.head_dim, s.causal)
            batch = None if s.batch * s.seq_q in (16384, 32768) else s.batch
            rows.setdefault((*key, batch), []).append(point)
    for row in rows.values():
        row.sort(key=lambda point: point.shape.seq_q)
        for before, here, after in zip(row, row[1:], row[2:], strict=False):
            assert 0.9 * min(before.tflops, after.tflops) <= here.tflops <= 1.1 * max(before.tflops, after.tflops), here
        for short, long in itertools.pairwise(row):
            if long.shape.batch == short.shape.batch:
                assert long.ms >= 1.25 * short.ms, long


def test_every_reason_follows_from_the_source() -> None:
    assert Counter(point.left_out for point in HELD if point.left_out) == {
        "the GPU is not named": 17,
        "cuDNN, efficient and math are within 0.2 % of each other: one kernel ran for all": 2,
        "a kernel of its own, after the tutorial's": 20,
    }
