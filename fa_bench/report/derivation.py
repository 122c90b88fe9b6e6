"""The papers' formulas for one shape, step by step with its numbers, for ``io-model --explain``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fa_bench.cases import AttentionShape
from fa_bench.model import bounds
from fa_bench.report.theory import bound_dim, pass_theories, split
from fa_bench.sizes import ceil_div
from fa_bench.units import format_bytes, format_count, format_number, format_ratio

#: Instead of the derivation of a packed batch.
PACKED: Final = "The papers' formulas are of one length: of a packed batch they say nothing."


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm of a paper: what it reads and writes, as products of sizes.

    A term is the direction, the tensor, and factors joined with ``·``: Sq, Skv, d (columns of Q and K), dv (of V and
    O), Tc and Tr (blocks of keys and of queries), and numbers.
    """

    name: str
    terms: tuple[tuple[str, str, str], ...]


def _terms(read: str, write: str) -> tuple[tuple[str, str, str], ...]:
    """Terms written as ``Q Sq·d, K Skv·d``."""
    terms = []
    for op, text in (("read", read), ("write", write)):
        for term in text.split(", "):
            tensor, _, factors = term.partition(" ")
            terms.append((op, tensor, factors))
    return tuple(terms)


#: By pass. Each says in symbols what a function of ``fa_bench.model.bounds`` counts; a test compares them.
ALGORITHMS: Final[Mapping[str, tuple[Algorithm, ...]]] = {
    "fwd": (
        Algorithm(
            "Standard attention, Algorithm 0 of FlashAttention",
            _terms("Q Sq·d, K Skv·d, S Sq·Skv, P Sq·Skv, V Skv·dv", "S Sq·Skv, P Sq·Skv, O Sq·dv"),
        ),
        Algorithm(
            "FlashAttention, Algorithm 1: K and V in the outer loop",
            _terms(
                "K Skv·d, V Skv·dv, Q Tc·Sq·d, O Tc·Sq·dv, l Tc·Sq, m Tc·Sq",
                "O Tc·Sq·dv, l Tc·Sq, m Tc·Sq",
            ),
        ),
        Algorithm(
            "FlashAttention-2, Algorithm 1: Q in the outer loop",
            _terms("Q Sq·d, K Tr·Skv·d, V Tr·Skv·dv", "O Sq·dv, LSE Sq"),
        ),
    ),
    "bwd": (
        Algorithm(
            "Standard attention, Algorithm 3 of FlashAttention",
            _terms(
                "P 2·Sq·Skv, dO 2·Sq·dv, V Skv·dv, dP Sq·Skv, dS 2·Sq·Skv, K Skv·d, Q Sq·d",
                "dV Skv·dv, dP Sq·Skv, dS Sq·Skv, dQ Sq·d, dK Skv·d",
            ),
        ),
        Algorithm(
            "FlashAttention, Algorithm 4: K and V in the outer loop",
            _terms(
                "K Skv·d, V Skv·dv, Q Tc·Sq·d, O Tc·Sq·dv, dO Tc·Sq·dv, dQ Tc·Sq·d, l Tc·Sq, m Tc·Sq",
                "dQ Tc·Sq·d, dK Skv·d, dV Skv·dv",
            ),
        ),
        Algorithm(
            "FlashAttention-2, Algorithm 2: D = rowsum(dO ∘ O) first, then K and V in the outer loop",
            _terms(
                "O Sq·dv, dO Sq·dv, K Skv·d, V Skv·dv, "
                "Q Tc·Sq·d, O Tc·Sq·dv, dO Tc·Sq·dv, dQ Tc·Sq·d, L Tc·Sq, D Tc·Sq",
                "D Sq, dQ Tc·Sq·d, dK Skv·d, dV Skv·dv",
            ),
        ),
    ),
}


def derivation(shape: AttentionShape, itemsize: int, direction: str, sram_bytes: int, whose: str) -> str:
    """Block sizes from M, each algorithm's terms, the theorems, the bound and its regime: one slice of ``shape``.

    Parameters
    ----------
    itemsize : int
        Bytes of an element.
    direction : {"fwd", "bwd", "fwd+bwd"}
    sram_bytes : int
        M in bytes.
    whose : str
        Where M is from, in words.
    """
    if shape.seqlens is not None:
        return PACKED
    m_elements = bounds.sram_elements(sram_bytes, itemsize)
    block_m, block_n = bounds.flash1_blocks(m_elements, shape.head_dim, shape.dim_v)
    sizes = {
        "Sq": shape.seq_q,
        "Skv": shape.seq_kv,
        "d": shape.head_dim,
        "dv": shape.dim_v,
        "Tc": ceil_div(shape.seq_kv, block_n),
        "Tr": ceil_div(shape.seq_q, block_m),
    }
    lines = [
        f"M = {format_bytes(sram_bytes)} ({whose}) / {itemsize} bytes = {format_count(m_elements)} elements",
        *_blocks(shape, m_elements, block_m, block_n, sizes),
    ]
    for part in direction.split("+"):
        lines.append(
            "Backward pass, one slice, in elements" if part == "bwd" else "Forward pass, one slice, in elements"
        )
        for algorithm in ALGORITHMS[part]:
            lines += _counted(algorithm, sizes)
        lines += _theorem(shape, m_elements, backward=part == "bwd")
        if part == "fwd" and (shape.causal or shape.windowed):
            lines += _masked(shape, m_elements, block_m, block_n)
        lines += _bound(shape, m_elements, part)
    return "\n".join(lines)


def distance_line(name: str, moved_bytes: int, shape: AttentionShape, itemsize: int, direction: str, m: int) -> str:
    """How far a kernel's predicted bytes are from the bound for ``m`` elements."""
    bound = shape.slices * sum(one.bound for one in pass_theories(shape, direction, m))
    moved = f"{name}: {format_count(moved_bytes)} bytes / {itemsize} = {_number(moved_bytes / itemsize)} elements"
    if not bound:
        return f"{moved}; no pair is visible, and the bound is 0"
    slices = f" in {shape.slices} slices" if shape.slices > 1 else ""
    return f"{moved} = {format_ratio(moved_bytes / itemsize / bound)} the bound of {_number(bound)}{slices}"


def split_lines(name: str, shape: AttentionShape, tile: tuple[int, int], itemsize: int, sm_count: int) -> list[str]:
    """What it costs to divide K and V among CTAs until each SM has one; nothing where each has, or under a mask."""
    divided = None if shape.causal or shape.windowed else split(shape, tile, itemsize, sm_count)
    if divided is None:
        return []
    queries, dim_v = shape.seq_q, shape.dim_v
    partial = 2 * divided.splits * queries * (dim_v + 1)
    more_q = (divided.used - 1) * queries * shape.head_dim
    return [
        f"{name} with K and V in {divided.splits} splits, a CTA for each of {sm_count} SMs:",
        f"  partial O and LSE, written and read, 2·splits·Sq·(dv + 1) = 2·{divided.splits}·{queries}·{dim_v + 1} = "
        f"{format_count(partial)} elements of 4 bytes a slice",
        f"  Q by {divided.used} splits with a block: (used - 1)·Sq·d = {format_count(more_q)} elements more a slice",
        f"  {format_count(divided.elements)} elements, {format_count(divided.nbytes)} bytes in all",
    ]


def _number(value: float) -> str:
    """A whole number in groups of three, any other rounded to it."""
    return format_count(round(value))


def _blocks(
    shape: AttentionShape, m_elements: int, block_m: int, block_n: int, sizes: Mapping[str, int]
) -> tuple[str, ...]:
    """Block sizes from M (Algorithm 1, line 1), and how many blocks there are."""
    twice = shape.head_dim + shape.dim_v
    if shape.dim_v == shape.head_dim:
        four, br = f"4d⌉ = ⌈{m_elements} / {4 * shape.head_dim}", f"min(Bc, d) = min({block_n}, {shape.head_dim})"
    else:
        four = f"2·(d + dv)⌉ = ⌈{m_elements} / {2 * twice}"
        br = f"min(Bc, ⌊(d + dv)/2⌋) = min({block_n}, {twice // 2})"
    return (
        f"Sq = {shape.seq_q}, Skv = {shape.seq_kv}, d = {shape.head_dim}"
        + (f", dv = {shape.dim_v}" if shape.dim_v != shape.head_dim else ""),
        f"Bc = ⌈M / {four}⌉ = {block_n} keys a block;  Tc = ⌈Skv / Bc⌉ = {sizes['Tc']}",
        f"Br = {br} = {block_m} queries a block;  Tr = ⌈Sq / Br⌉ = {sizes['Tr']}",
    )


def _counted(algorithm: Algorithm, sizes: Mapping[str, int]) -> list[str]:
    """An algorithm's terms with numbers, and their sums."""
    sums = {"read": 0, "write": 0}
    lines = [f"  {algorithm.name}"]
    same = sizes["d"] == sizes["dv"]
    for op, tensor, text in algorithm.terms:
        factors = text.split("·")
        numbers = [sizes[factor] if factor in sizes else int(factor) for factor in factors]
        value = math.prod(numbers)
        sums[op] += value
        shown = "·".join("d" if factor == "dv" and same else factor for factor in factors)
        put_in = f" = {'·'.join(map(str, numbers))}" if len(numbers) > 1 else ""
        lines.append(f"    {op:5} {tensor:4} {shown}{put_in} = {format_count(value)}")
    loaded, stored = format_count(sums["read"]), format_count(sums["write"])
    lines.append(f"    {loaded} loaded + {stored} stored = {format_count(sum(sums.values()))}")
    return lines


def _theorem(shape: AttentionShape, m_elements: int, *, backward: bool) -> list[str]:
    """Theorem 2 or 5, and the order of standard attention beside it."""
    number = 5 if backward else 2
    size = (shape.seq_q, shape.seq_kv, shape.head_dim)
    # Head dims are multiples of 8, so that their mean is whole.
    dim = (shape.head_dim + shape.dim_v) // 2
    mean = "" if shape.dim_v == shape.head_dim else f", d being the mean ({shape.head_dim} + {shape.dim_v}) / 2"
    figure = round(bounds.flash1_theorem2(*size, m_elements, shape.dim_v))
    order = bounds.standard_order(*size, shape.dim_v)
    return [
        f"  Theorem {number} of FlashAttention, constant 1{mean}",
        f"    Sq·Skv·d² / M = {shape.seq_q}·{shape.seq_kv}·{dim}² / {m_elements} = {format_count(figure)}",
        f"    of standard attention: N·d + N² = {format_count(order)}",
    ]


def _masked(shape: AttentionShape, m_elements: int, block_m: int, block_n: int) -> list[str]:
    """Proposition 4, and FlashAttention-2 without the blocks that the mask hides."""
    left = bounds.mask_blocks(shape, block_m, block_n)
    size, dim_v = (shape.seq_q, shape.seq_kv, shape.head_dim), shape.dim_v
    figure = round(bounds.flash1_proposition4(*size, m_elements, left.density, dim_v))
    sparse = bounds.flash1(*size, block_n, dim_v, left.visited_rows).total
    second = bounds.flash2(*size, block_m, dim_v, left.visited_keys).total
    return [
        f"  The mask leaves {left.nonzero} of {left.blocks} blocks of {block_m} x {block_n}: s = "
        f"{format_number(left.density)}; the algorithms above visit all of them",
        f"    Proposition 4, constant 1: N·d + s·Sq·Skv·d² / M = {format_count(figure)}",
        f"    FlashAttention, Algorithm 5: rows of Q_i, O_i, l_i and m_i {left.visited_rows} for Tc·Sq: "
        f"{format_count(sparse)}",
        f"    FlashAttention-2, section 3.1: rows of K_j and V_j {left.visited_keys} for Tr·Skv: "
        f"{format_count(second)}",
    ]


def _bound(shape: AttentionShape, m_elements: int, part: str) -> list[str]:
    """The bound of Saha and Ye, its regime, and what its proof gives with constants."""
    dim, pairs = bound_dim(shape, part), shape.visible_pairs
    letter = "d" if part == "fwd" or shape.dim_v == shape.head_dim else "dv"
    bound, proved = bounds.saha_ye(pairs, dim, m_elements), bounds.proved_bound(pairs, dim, m_elements)
    if (regime := bounds.regime(dim, m_elements)) == bounds.LARGE:
        relation, formula, numbers = ">=", f"{letter}² / M", f"{dim}² / {m_elements}"
    else:
        relation, formula, numbers = "<", f"{letter} / √M", f"{dim} / √{m_elements}"
    product = "Q·Kᵀ" if part == "fwd" else "dO·Vᵀ"
    return [
        f"  Bound of Saha and Ye for {format_count(pairs)} visible entries of {product}, constant 1",
        f"    M = {m_elements} {relation} {letter}² = {dim**2}: {regime}",
        f"    pairs·{formula} = {pairs}·{numbers} = {format_count(round(bound))}",
        f"    with its proof's constants at least min(pairs / 2, pairs·{letter}² / M) - M = "
        f"{format_count(round(proved))}, if one CTA with M on chip computes the slice",
    ]
