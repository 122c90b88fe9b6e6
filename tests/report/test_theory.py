"""What the papers say beside a record, with figures worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fa_bench.records import Record, TensorTraffic
from fa_bench.report.case_traffic import CaseTraffic, case_traffic
from fa_bench.report.io_model import document, flat_rows, theory_tables
from fa_bench.report.theory import CSV_FIELDS, case_theory


def moved(record: Record, nbytes: int, source: str = "model") -> CaseTraffic:
    fields: dict[str, Any] = {"case_id": "c", "kernel": "k", "tensor": "Q", "op": "read", "level": "global"}
    return case_traffic(record, [TensorTraffic(**fields, source=source, bytes=nbytes)])  # type: ignore[arg-type]


def rows_of(*cases: CaseTraffic, sram_bytes: int | None = None) -> dict[str, tuple[str, ...]]:
    (table,) = theory_tables(cases, sram_bytes)
    return {row[0]: row[1:] for row in table.rows}


def test_a_forward_pass_in_fp32_by_hand(record: Callable) -> None:
    # 163 KiB are 41,728 elements of 4 bytes: Bc = 41,728 / 256 = 163, Tc = 7. Algorithm 1 moves 1,536,000 elements.
    # N²d²/M = 2^20 · 2^12 / 41,728 = 102,927.7 elements, four times that in bytes: 411,710.8.
    theory = case_theory(moved(record(dtype="fp32"), 4_117_108))
    assert theory is not None
    assert (theory.sram_bytes, theory.m_elements) == (166_912, 41_728)
    assert (theory.block_m, theory.block_n) == (64, 163)
    assert (theory.theorem_elements, theory.theorem_bytes) == (102_928, 411_711)
    assert (theory.algorithm_elements, theory.algorithm_bytes) == (1_536_000, 6_144_000)
    assert (theory.regime, theory.bound_elements, theory.bound_bytes) == ("large cache", 102_928, 411_711)
    assert theory.predicted_distance == pytest.approx(10)
    assert theory.counted_distance is None


def test_m_as_stated_goes_before_the_gpus(record: Callable) -> None:
    # 8 KiB are 4096 halves, exactly d²: N² elements; a byte pair less, and the cache is small: N²d/√M with M = 4095.
    at = case_theory(moved(record(), 2**20), 8192)
    below = case_theory(moved(record(gpu=None), 2**20), 8190)
    assert at is not None and below is not None
    assert (at.regime, at.bound_elements) == ("large cache", 2**20)
    assert (below.regime, below.bound_elements) == ("small cache", round(2**20 * 64 / 4095**0.5))
    assert at.predicted_distance == 0.5
    assert case_theory(moved(record(gpu=None), 2**20)) is None


def test_slices_passes_and_a_dim_of_v_of_its_own(record: Callable) -> None:
    # M = 32 KiB: 16,384 halves. d = 192, dv = 128: Bc = ⌈16384 / 640⌉ = 26, Br = 26, Tc = ⌈256 / 26⌉ = 10.
    # Algorithm 1: K 256·192, V 256·128; ten passes of 256 rows of Q (192), O twice (256), l, m twice (4):
    # 81,920 + 2560 · 452 = 1,239,040. Algorithm 4: K, V, dK, dV 163,840; passes of Q, dQ twice (576), O, dO (256),
    # l, m: 163,840 + 2560 · 834 = 2,298,880. Theorems: 256² · 160² / 16384 = 102,400 each.
    # Bound: QKᵀ with d = 192, d² = 36,864 > M: 65,536 · 192 / 128 = 98,304. dO·Vᵀ with dv = 128: dv² = M: 65,536.
    # Eight slices.
    made = record(
        direction="fwd+bwd", batch=2, heads_q=4, heads_kv=2, seq_q=256, seq_kv=256, head_dim=192, head_dim_v=128
    )
    theory = case_theory(moved(made, 8 * 163_840 * 2 * 3), 32 * 1024)
    assert theory is not None
    assert (theory.block_m, theory.block_n) == (26, 26)
    assert theory.algorithm_elements == 8 * (1_239_040 + 2_298_880)
    assert theory.theorem_elements == 8 * 2 * 102_400
    assert theory.bound_elements == 8 * (98_304 + 65_536)
    assert theory.predicted_distance == 3
    assert theory.regime == "large cache"  # of the smaller dim, 128


def test_the_bound_has_the_visible_pairs_and_proposition_4_the_nonzero_blocks(record: Callable) -> None:
    # M = 32 KiB = 16,384 halves: Bc = 64, Br = 64. Of 16 x 16 blocks 136 lie on or below the diagonal: s = 0.53125.
    # Pairs 1024 · 1025 / 2 = 524,800; bound 524,800 · 4096 / 16,384 = 131,200.
    # Proposition 4: 65,536 + 0.53125 · 2^20 · 2^12 / 2^14 = 65,536 + 139,264.
    case = moved(record(causal=True), 262_400)
    theory = document([case], 32 * 1024)["cases"][0]["theory"]
    assert (theory["bound_elements"], theory["predicted_distance"]) == (131_200, 1.0)
    assert (theory["density"], theory["proposition4_elements"]) == (0.53125, 204_800)
    assert theory["theorem_elements"] == 262_144  # no mask
    # 136 · 64 = 8704 rows: Algorithm 5 131,072 + 8704 · 196, FlashAttention-2 131,072 + 1024 + 8704 · 128.
    assert (theory["algorithm5_elements"], theory["flash2_sparse_elements"]) == (1_837_056, 1_246_208)
    rows = rows_of(case, sram_bytes=32 * 1024)
    assert rows["Proposition 4, s = 0.531"] == ("204,800", "400 KiB", "1.56×")
    assert rows["FlashAttention, Alg. 5"] == ("1,837,056", "3.50 MiB", "14.0×")
    assert rows["FlashAttention-2, blocks skipped"] == ("1,246,208", "2.38 MiB", "9.50×")


def test_split_kv_fills_the_sms(record: Callable) -> None:
    # One query of 8 heads on the A100's 108 SMs: 13 splits. 8192 keys in tiles of 64 are 128: 10 to each of 13.
    # Q by 13: 13 · 64. K and V: 2 · 8192 · 64. 13 partial O and LSE, written and read: 26 · 65. O and LSE: 65.
    made = record(seq_q=1, seq_kv=8192, heads_q=8, heads_kv=8)
    theory = document([moved(made, 1)])["cases"][0]["theory"]
    whole = 832 + 1_048_576 + 1690 + 65
    assert (theory["split_kv_splits"], theory["split_kv_elements"]) == (13, 8 * whole)
    assert theory["split_kv_bytes"] == 8 * (2 * (832 + 1_048_576 + 64) + 4 * (1690 + 1))
    # 64 slices with two Q tiles each leave no SM idle.
    busy = document([moved(record(seq_q=128, heads_q=64, heads_kv=64), 1)])["cases"][0]["theory"]
    assert (busy["split_kv_splits"], busy["split_kv_elements"], busy["split_kv_bytes"]) == (None, None, None)


def test_the_rows_of_a_shape(record: Callable) -> None:
    # M = 163 KiB in halves: 83,456; Bc = 326, Br = 64; Tc = 4, Tr = 16. Standard 4,456,448; Algorithm 1 2·65,536 +
    # 4096 · 196 = 933,888; FlashAttention-2 2,229,248. The bound is 51,464 elements, 102,928 bytes.
    flash2, standard = moved(record(batch=1), 2_058_560), moved(record(impl="standard"), 10_292_800, "emulated")
    rows = rows_of(flash2, standard)
    assert rows == {
        "bound of Saha and Ye": ("51,464", "101 KiB", "1.00×"),
        "inputs and outputs once": ("262,144", "512 KiB", "5.09×"),
        "Theorem 2": ("51,464", "101 KiB", "1.00×"),
        "standard, Alg. 0": ("4,456,448", "8.50 MiB", "86.6×"),
        "FlashAttention, Alg. 1": ("933,888", "1.78 MiB", "18.1×"),
        "FlashAttention-2, Alg. 1": ("2,229,248", "4.25 MiB", "43.3×"),
        "flash2 64x64/1, K/V in 6 splits": ("3,355,648", "7.93 MiB", "80.7×"),
        "flash2 64x64/1, predicted": ("1,029,280", "1.96 MiB", "20.0×"),
        "standard 64x64/1, emulated": ("5,146,400", "9.82 MiB", "100×"),
    }


def test_backward_has_the_names_and_counts_of_the_backward_pass(record: Callable) -> None:
    # Algorithm 4 with Tc = 4: 4 · 65,536 + 4096 · 322 = 1,581,056; FlashAttention-2 6 · 65,536 + 1024 + 4096 · 322.
    rows = rows_of(moved(record(direction="bwd"), 2))
    assert rows["FlashAttention, Alg. 4"][0] == "1,581,056"
    assert rows["FlashAttention-2, Alg. 2"][0] == "1,713,152"
    assert rows["standard, Alg. 3"][0] == "7,864,320"
    assert rows["Theorem 5"][0] == rows["bound of Saha and Ye"][0] == "51,464"
    both = rows_of(moved(record(direction="fwd+bwd"), 2))
    assert both["FlashAttention, Alg. 1 and 4"][0] == "2,514,944"
    assert both["bound of Saha and Ye"][0] == "102,928"  # twice 51,463.9


def test_what_binds_is_said(record: Callable) -> None:
    def note(**fields: Any) -> str:
        (table,) = theory_tables([moved(record(**fields), 2)])
        return table.note

    assert "Inputs and outputs are more than the bound" in note()
    assert "Inputs and outputs" not in note(seq_q=16384, seq_kv=16384)
    assert "Theorem 2 as it is often misread, with M in bytes: 50.3 KiB." in note()
    assert "no mask" in note(causal=True) and "no mask" not in note()


def test_where_nothing_is_known_nothing_is_said(record: Callable) -> None:
    packed = moved(record(seqlens="1024x1024", batch=1), 2)
    assert theory_tables([packed]) == ()
    assert document([packed])["cases"][0]["theory"] is None
    (row,) = flat_rows([packed])
    assert {row[name] for name in CSV_FIELDS} == {None}


def test_columns_of_the_csv(record: Callable) -> None:
    (row,) = flat_rows([moved(record(), 1_029_280)], 32 * 1024)
    # 16,384 halves: 2^32 / 2^14 = 2^18. Algorithm 1: Bc = 64, Tc = 16: 131,072 + 16,384 · 196.
    assert {name: row[name] for name in CSV_FIELDS} == {
        "sram_bytes": 32_768,
        "m_elements": 16_384,
        "theorem_elements": 2**18,
        "algorithm_elements": 3_342_336,
        "bound_elements": 2**18,
        "predicted_distance": 1_029_280 / 2**19,
        "counted_distance": None,
    }
    (counted,) = flat_rows([moved(record(), 2**19, "emulated")], 32 * 1024)
    assert (counted["predicted_distance"], counted["counted_distance"]) == (None, 1.0)
