"""Derivations: their terms are what the formulas count, and the numbers in the text are those of the formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fa_bench.cases import AttentionShape
from fa_bench.model import bounds
from fa_bench.report.derivation import ALGORITHMS, PACKED, Algorithm, derivation, distance_line, split_lines

sizes = st.integers(1, 300)


def counted(algorithm: Algorithm, of: dict[str, int]) -> tuple[Counter[str], Counter[str]]:
    """Elements by tensor that the terms stand for, read and written."""
    sums: dict[str, Counter[str]] = {"read": Counter(), "write": Counter()}
    for op, tensor, text in algorithm.terms:
        sums[op][tensor] += math.prod(of[factor] if factor in of else int(factor) for factor in text.split("·"))
    return sums["read"], sums["write"]


@given(sizes, sizes, sizes, sizes, sizes, sizes)
def test_the_terms_are_what_the_formulas_count(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int) -> None:
    of = {"Sq": seq_q, "Skv": seq_kv, "d": d, "dv": dv, "Tc": -(-seq_kv // bc), "Tr": -(-seq_q // br)}
    size = (seq_q, seq_kv, d)
    formulas = {
        "fwd": (bounds.standard(*size, dv), bounds.flash1(*size, bc, dv), bounds.flash2(*size, br, dv)),
        "bwd": (
            bounds.standard_backward(*size, dv),
            bounds.flash1_backward(*size, bc, dv),
            bounds.flash2_backward(*size, bc, dv),
        ),
    }
    for part, algorithms in ALGORITHMS.items():
        for algorithm, formula in zip(algorithms, formulas[part], strict=True):
            assert counted(algorithm, of) == (formula.reads, formula.writes), algorithm.name


def lines_of(
    shape: AttentionShape, direction: str = "fwd", itemsize: int = 4, sram_bytes: int = 163 * 1024
) -> list[str]:
    return [line.strip() for line in derivation(shape, itemsize, direction, sram_bytes, "as stated").splitlines()]


SQUARE = AttentionShape(1, 1, 1, 1024, 1024, 64)


def test_the_first_papers_example_step_by_step() -> None:
    lines = lines_of(SQUARE)
    # 166,912 / 4 elements, / 256 keys a block, 1024 / 163 blocks; 7 passes over Q, O, l and m.
    assert lines[0] == "M = 163 KiB (as stated) / 4 bytes = 41,728 elements"
    assert "Bc = ⌈M / 4d⌉ = ⌈41728 / 256⌉ = 163 keys a block;  Tc = ⌈Skv / Bc⌉ = 7" in lines
    assert "Br = min(Bc, d) = min(163, 64) = 64 queries a block;  Tr = ⌈Sq / Br⌉ = 16" in lines
    assert "read  Q    Tc·Sq·d = 7·1024·64 = 458,752" in lines
    assert "1,062,912 loaded + 473,088 stored = 1,536,000" in lines
    assert "2,162,688 loaded + 66,560 stored = 2,229,248" in lines
    # 2^32 / 41,728 = 102,927.7; the entries of a part are at most M²/d², so 102,928 - 41,728 = 61,200 are proved.
    assert "Sq·Skv·d² / M = 1024·1024·64² / 41728 = 102,928" in lines
    assert "M = 41728 >= d² = 4096: large cache" in lines
    assert "pairs·d² / M = 1048576·64² / 41728 = 102,928" in lines
    assert (
        "with its proof's constants at least min(pairs / 2, pairs·d² / M) - M = 61,200, if one CTA with M on chip"
        in (" ".join(lines))
    )


def test_a_small_cache_a_mask_and_a_dim_of_v_of_its_own() -> None:
    # M = 1 KiB / 2 = 512 < 64². 36 pairs see each other of 8 queries; 36 · 64 / √512 = 101.8.
    # d = 64, dv = 128: 2 · 192 = 384 elements a row: ⌈512 / 384⌉ = 2 keys, min(2, 96) = 2 queries a block.
    # Of 4 x 4 blocks 10 are left: s = 0.625. Proposition 4: 8 · 128 + 0.625 · 64 · 96² / 512 = 1024 + 720.
    shape = AttentionShape(1, 1, 1, 8, 8, 64, causal=True, head_dim_v=128)
    lines = lines_of(shape, itemsize=2, sram_bytes=1024)
    assert "Bc = ⌈M / 2·(d + dv)⌉ = ⌈512 / 384⌉ = 2 keys a block;  Tc = ⌈Skv / Bc⌉ = 4" in lines
    assert "M = 512 < d² = 4096: small cache" in lines
    assert "pairs·d / √M = 36·64 / √512 = 102" in lines
    assert "Sq·Skv·d² / M = 8·8·96² / 512 = 1,152" in lines
    assert "Proposition 4, constant 1: N·d + s·Sq·Skv·d² / M = 1,744" in lines
    assert any(line.startswith("The mask leaves 10 of 16 blocks of 2 x 2: s = 0.625") for line in lines)
    # Algorithm 5: K 512, V 1024, 20 rows of 64 + 2 · 128 + 4; FlashAttention-2: Q 512, 20 rows of 192, O 1024, LSE 8.
    assert any(line.endswith("20 for Tc·Sq: 8,016") for line in lines)
    assert any(line.endswith("20 for Tr·Skv: 5,384") for line in lines)
    backward = lines_of(shape, "bwd", 2, 1024)
    # dO·Vᵀ has dv = 128: 36 · 128 / √512 = 203.6.
    assert "pairs·dv / √M = 36·128 / √512 = 204" in backward


def test_each_pass_of_a_direction_is_derived() -> None:
    both = lines_of(SQUARE, "fwd+bwd")
    assert [line for line in both if line.endswith("one slice, in elements")] == [
        "Forward pass, one slice, in elements",
        "Backward pass, one slice, in elements",
    ]
    assert both.count("M = 41728 >= d² = 4096: large cache") == 2
    assert derivation(AttentionShape.packed([(5, 7)], 1, 1, 64), 2, "fwd", 1024, "as stated") == PACKED


def test_how_far_a_kernel_is() -> None:
    # 2^32 / 2^14 = 2^18 elements in each of 6 slices; 3 · 6 · 2^18 elements of two bytes.
    shape = AttentionShape(2, 3, 3, 1024, 1024, 64)
    line = distance_line("flash2", 6 * 2**20 * 3 // 2, shape, 2, "fwd", 2**14)
    assert line == "flash2: 9,437,184 bytes / 2 = 4,718,592 elements = 3.00× the bound of 1,572,864 in 6 slices"


def test_what_a_split_costs() -> None:
    # One CTA for 4 SMs, 16 K/V tiles: 4 splits. 2 · 4 · 1 · 65 partial elements, and Q another 3 times.
    shape = AttentionShape(1, 1, 1, 1, 1024, 64)
    lines = split_lines("flash2", shape, (64, 64), 2, sm_count=4)
    assert lines[0] == "flash2 with K and V in 4 splits, a CTA for each of 4 SMs:"
    assert "2·4·1·65 = 520 elements" in lines[1]
    assert "(used - 1)·Sq·d = 192 elements" in lines[2]
    # Q 256, K and V 131,072, partial 520, O 64, LSE 1.
    assert lines[3].strip() == "131,913 elements, 264,868 bytes in all"
    assert split_lines("flash2", shape, (64, 64), 2, sm_count=1) == []
    assert split_lines("flash2", AttentionShape(1, 1, 1, 1, 9, 64, causal=True), (64, 64), 2, sm_count=4) == []


def test_cases_that_differ_in_their_implementation_share_the_theory() -> None:
    from fa_bench.cases import Case, Tile
    from fa_bench.model import gpus
    from fa_bench.report.explain import explained, titled_texts

    a100 = gpus.get("a100-sxm-80")
    make: Callable[..., Any] = lambda impl, dtype="fp16": explained(  # noqa: E731
        Case(impl, SQUARE, dtype, Tile(64, 64)), f"bytes of {impl}", 4096, a100, None
    )
    cases = [make("flash1"), make("flash2"), make("flash2", "bf16")]
    titles = [title for title, _ in titled_texts(cases)]
    assert [title for title in titles if title.startswith("Theory")] == [
        "Theory, 1k fp16 D=64 full bhsd B=1 H=1 fwd",
        "Theory, 1k bf16 D=64 full bhsd B=1 H=1 fwd",
    ]
    shared = dict(titled_texts(cases))[titles[3]]
    assert "shared memory of a CTA on a100-sxm-80" in shared
    assert "flash1 64x64/1: 4,096 bytes" in shared and "flash2 64x64/1: 4,096 bytes" in shared
    assert explained(cases[0].case, "", None, a100, 2048).distance == ""
    assert "(as stated) / 2 bytes = 1,024 elements" in explained(cases[0].case, "", None, a100, 2048).theory
