"""What the papers' formulas are made of: elements by tensor, M in elements, and the block sizes that M gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fa_bench.sizes import ceil_div, least


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements that an algorithm moves between HBM and the chip, by tensor."""

    reads: Mapping[str, int]
    writes: Mapping[str, int]

    @property
    def loaded(self) -> int:
        """Elements read, all tensors together."""
        return sum(self.reads.values())

    @property
    def stored(self) -> int:
        """Elements written, all tensors together."""
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        """Elements read and written."""
        return self.loaded + self.stored

    def nbytes(self, itemsize: int, fp32: Collection[str] = ()) -> int:
        """Bytes read and written, with ``itemsize`` bytes an element and four for the tensors named in ``fp32``.

        Examples
        --------
        >>> Elements({"Q": 100}, {"O": 100, "LSE": 10}).nbytes(2, fp32={"LSE"})
        440
        """
        moved = [*self.reads.items(), *self.writes.items()]
        return sum(count * (4 if tensor in fp32 else itemsize) for tensor, count in moved)


def mean_dim_times_two(head_dim: int, head_dim_v: int | None) -> int:
    """``head_dim + head_dim_v``: twice what stands for the papers' d where V and O have columns of their own number.

    The papers have one d for all tensors. Where a tensor of each kind is touched as often as one of the other (Q and O;
    K and V), their d is the mean of both.
    """
    return head_dim + (head_dim if head_dim_v is None else head_dim_v)


def sram_elements(sram_bytes: int, itemsize: int) -> int:
    """M as the papers mean it: how many elements of ``itemsize`` bytes fit in ``sram_bytes``.

    Examples
    --------
    163 KiB, the most that one CTA may have on an A100, in fp32 and in fp16:

    >>> sram_elements(163 * 1024, 4), sram_elements(163 * 1024, 2)
    (41728, 83456)
    """
    return sram_bytes // itemsize


def flash1_blocks(m_elements: int, head_dim: int, head_dim_v: int | None = None) -> tuple[int, int]:
    """Block sizes of Algorithms 1, 4 and 5, line 1, of [1]: ``(Br, Bc)`` with Bc = ⌈M/4d⌉ and Br = min(Bc, d).

    The four is for the four tiles that share the chip: Q_i, K_j, V_j and O_i. Br is at most d so that the scores,
    Br · Bc, take no more than a quarter of M (proof of Theorem 2). The ceiling makes the tiles exceed M where 4d does
    not divide it; a real kernel also rounds to its instruction's shape. With another head_dim of V and O the four
    tiles are ``Bc · 2 · (head_dim + head_dim_v)`` elements: d is the mean of both, and in Br rounded down. Algorithm 4
    takes the same sizes for eight tiles; the paper's proof is of the order only.

    Examples
    --------
    163 KiB at d = 64 in fp32, in fp16, and with bytes mistaken for elements:

    >>> flash1_blocks(41728, 64), flash1_blocks(83456, 64), flash1_blocks(166912, 64)
    ((64, 163), (64, 326), (64, 652))
    """
    twice = mean_dim_times_two(head_dim, head_dim_v)
    block_n = ceil_div(m_elements, 2 * twice)
    return least(block_n, twice // 2), block_n
