"""Another kernel's stores among ours, as the caches see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fa_bench.backends.base import Spills
from fa_bench.backends.spills import LOCAL, dram_bytes, passed
from fa_bench.cases import AttentionShape, Tile
from fa_bench.compiler import nvrtc_available
from fa_bench.model import gpus
from fa_bench.validation.run import flash2_case

pytestmark = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

#: 2 heads of 2 tiles of 64 queries; without a mask each CTA sees 128 / 64 = 2 tiles of K and V.
CASE = flash2_case(AttentionShape(1, 2, 2, 128, 128, 64), Tile(64, 64))
SPILLS = Spills(per_tile=8, per_cta=20)
A30 = gpus.get("a30")


def test_every_tile_and_every_cta_stores() -> None:
    """4 CTAs with 2 · 8 + 20 sectors each; under a causal mask the first CTA of a head has one tile less."""
    counted = passed(CASE, A30, SPILLS).counted["flash2_fwd"][0][LOCAL]
    assert (counted.l2_write_sectors, counted.l2_write_requests) == (4 * 36, 4 * 9)
    causal = replace(CASE, shape=replace(CASE.shape, causal=True))
    assert passed(causal, A30, SPILLS).counted["flash2_fwd"][0][LOCAL].l2_write_sectors == 4 * 36 - 2 * 8


def test_our_own_requests_are_as_they_were() -> None:
    """Q, K and V have 2 heads of 128 rows of 128 bytes, 1024 sectors; K and V are asked for twice."""
    counted = passed(CASE, A30, SPILLS).counted["flash2_fwd"][0]
    assert [counted[name].l2_read_sectors for name in "QKV"] == [1024, 2048, 2048]
    assert dram_bytes(CASE, A30, SPILLS) == 3 * 1024 * 32


def test_in_a_small_l2_they_push_lines_out() -> None:
    small = replace(A30, sm_count=2, l2_bytes=64 << 10)
    assert dram_bytes(CASE, small, Spills(8, 200)) > dram_bytes(CASE, small, Spills(0, 4))
