"""The GB10 paper's formula, and where K and V leave L2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fa_bench.algorithms.base import TensorBytes
from fa_bench.model import gpus
from fa_bench.validation import gb10
from fa_bench.validation.run import Runner


@pytest.mark.parametrize(
    ("seq", "tile_rows", "causal", "sectors"),
    [
        # 128 bytes per row are 4 sectors. Q and O: 2 · 4 · 128. One tile per 64 rows: 2 · (K + V = 8 · 128).
        (128, 64, False, 1024 + 2 * 1024),
        # Causal: the first tile sees no block before its own, the second one: 64 rows of K and of V, 512 sectors.
        (128, 64, True, 1024 + 512),
        # 8 · 8000 · (1 + 100), and 8 · 8000 · (50 + 1/2)
        (8000, 80, False, 6_464_000),
        (8000, 80, True, 3_232_000),
    ],
)
def test_the_formula(seq: int, tile_rows: int, causal: bool, sectors: int) -> None:
    assert gb10.published_sectors(seq, tile_rows, causal) == sectors
    ratio = seq / tile_rows
    assert sectors == 8 * seq * (ratio / 2 + 0.5 if causal else 1 + ratio)


def test_the_formula_is_for_whole_tiles() -> None:
    with pytest.raises(ValueError, match="1000 is not a multiple of 64"):
        gb10.published_sectors(1000, 64, False)


def test_lse_and_the_diagonal_are_all_that_the_formula_leaves_out(full_backend: Callable) -> None:
    backend = full_backend()
    found = gb10.validate(Runner(backend), quick=True)
    (sectors,) = found.comparisons
    assert {slug for _, slug in backend.ran} == {"gb10"}
    # S = 1024, T = 64, causal: 16 tiles read 1 + 2 + … + 16 = 136 blocks of 64 rows of K and V, 512 sectors each; Q and
    # O are 8192; LSE 1024 · 4 / 32 = 128. The formula: 4 · 1024 · 17 = 69,632. 16 diagonal blocks: 16 · 512 = 8192.
    row = next(row for row in sectors.rows if (row["seq"], row["causal"]) == (1024, True))
    assert row["sectors_emulated"] == 136 * 512 + 8192 + 128 == 77_952
    assert (row["sectors_published"], row["sectors_lse"], row["sectors_diagonal"]) == (69_632, 128, 8192)
    assert row["deviation"] == pytest.approx(77_952 / 69_632 - 1)
    assert [row["sectors_unexplained"] for row in sectors.rows] == [0] * 4
    assert found.failures == ()


def test_a_sector_that_nothing_explains_fails(full_backend: Callable) -> None:
    found = gb10.validate(Runner(full_backend(extra={"l2": 32})), quick=True)
    assert found.failures[0] == "gb10, S = 1024, T = 64: 1 sectors at L2 are not accounted for."
    assert len(found.failures) == 4


def test_where_k_and_v_leave_l2(full_backend: Callable) -> None:
    class Shrinking(type(full_backend())):  # type: ignore[misc]  # the fixture's class
        """Reads K and V twice from DRAM where they take more than 22 MiB."""

        def _more(self, parts: list[TensorBytes], level: str) -> list[TensorBytes]:
            kv_bytes = sum(part.bytes for part in parts if part.tensor in "KV")
            factor = 2 if level == "dram" and kv_bytes > 22 * 2**20 else 1
            return [replace(part, bytes=part.bytes * (factor if part.tensor in "KV" else 1)) for part in parts]

    backend = Shrinking()
    found = gb10.validate(Runner(backend), quick=False)
    residence = found.comparisons[1]
    # Two waves of 48 CTAs of 16 query rows. K and V of S rows are 256·S bytes: 20 MiB at 80k, 22 at 88k, 23 at 92k.
    assert {case.shape.seq_q for case, _ in backend.ran if case.shape.seq_kv > 9000} == {1536}
    rows = {row["seq"]: row for row in residence.rows}
    assert rows[80 * 1024]["kv_bytes"] == 20 * 2**20
    assert [rows[k * 1024]["reread_share"] for k in (80, 88, 92, 128)] == [0, 0, 1, 1]
    # 96 CTAs read K and V, Q is read once; DRAM serves all of it once.
    asked = 96 * 20 * 2**20 + 1536 * 128
    assert rows[80 * 1024]["l2_hit_share"] == pytest.approx(1 - (20 * 2**20 + 1536 * 128) / asked)
    assert "It begins between 22 MiB and 23 MiB. Published: 20 MiB of 24 MiB" in residence.note
    assert gpus.get("gb10").sm_count == 48


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ([0.5, 1.0], "It begins at or below 1 MiB."),
        ([0.0, 0.01, 0.02], "It begins between 2 MiB and 3 MiB."),
        ([0.0, 0.0], "It doesn't begin at these lengths."),
    ],
)
def test_the_sentence_on_where_it_begins(shares: list[float], sentence: str) -> None:
    rows = [{"reread_share": share, "kv_bytes": (k + 1) * 2**20} for k, share in enumerate(shares)]
    assert gb10._onset(rows) == sentence


def test_the_tile_of_the_last_part_leaves_room_for_one_cta_per_sm() -> None:
    # (16 + 2 · 256) rows of 128 bytes are 66 KiB, of an SM's 100.
    gpu = gpus.get("gb10")
    smem_bytes = (gb10.RESIDENT_TILE.block_m + 2 * gb10.RESIDENT_TILE.block_n) * 128
    assert gpu.smem_per_sm_bytes // (smem_bytes + 1024) == 1
