"""What the papers' formulas say of a record's shape, in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fa_bench.cases import ITEMSIZE, AttentionShape
from fa_bench.model import bounds, gpus
from fa_bench.model.gpu import Gpu
from fa_bench.records import Record

#: By pass and implementation; in docs/cli.md too.
_FORMULAS: Final[Mapping[str, Mapping[str, str]]] = {
    "fwd": {
        "standard": "4·N² + 4·N·d",
        "flash1": "2·N·d + Tc·N·(3·d + 4)",
        "flash2": "2·N·d + 2·Tr·N·d + N",
    },
    "bwd": {
        "standard": "7·N² + 8·N·d",
        "flash2": "6·N·d + N + Tc·N·(5·d + 2)",
    },
}


def paper_bytes(record: Record) -> int | None:
    """What the implementation's paper counts, in bytes of the record's type; None where there is no formula."""
    elements = 0
    for part in _passes(record):
        moved = _paper_elements(record, part)
        if moved is None:
            return None
        elements += moved.total
    return elements * _slices(record) * ITEMSIZE[record.dtype]


def _passes(record: Record) -> list[str]:
    """The passes that the record's direction consists of: ``fwd``, ``bwd`` or both."""
    return record.direction.split("+")


def paper_formula(record: Record) -> str | None:
    """The formula behind :func:`paper_bytes`; None where there is none for one of the passes."""
    return _formula(record.impl, _passes(record))


def formulas_by_impl(record: Record) -> dict[str, str]:
    """The papers' formulas for the record's passes, by implementation."""
    found = {impl: _formula(impl, _passes(record)) for impl in _FORMULAS["fwd"]}
    return {impl: formula for impl, formula in found.items() if formula is not None}


def _formula(impl: str, parts: Sequence[str]) -> str | None:
    formulas = [_FORMULAS[part].get(impl) for part in parts]
    known = [formula for formula in formulas if formula is not None]
    return ", backward ".join(known) if len(known) == len(formulas) else None


def _paper_elements(record: Record, part: str) -> bounds.Elements | None:
    if record.seqlens is not None:
        return None
    size, dim_v = (record.seq_q, record.seq_kv, record.head_dim), record.head_dim_v
    backward = part == "bwd"
    if record.impl == "standard":
        return bounds.standard_backward(*size, dim_v) if backward else bounds.standard(*size, dim_v)
    if record.impl == "flash1" and record.block_n is not None and not backward:
        return bounds.flash1(*size, record.block_n, dim_v)
    if record.impl == "flash2" and record.block_m is not None and record.block_n is not None:
        if backward:
            return bounds.flash2_backward(*size, record.block_n, dim_v)
        return bounds.flash2(*size, record.block_m, dim_v)
    return None


@dataclass(frozen=True, slots=True)
class Theorem2:
    """N²d²/M of the first paper in bytes, with M as the paper means it and as it is often misread."""

    sram_bytes: int
    bytes_m_in_elements: int
    bytes_m_in_bytes: int


def theorem2(record: Record, sram_bytes: int | None = None) -> Theorem2 | None:
    """Theorem 2 for the record's shape, constant 1; None without a GPU, for gradients and packed batches.

    Parameters
    ----------
    sram_bytes : int, optional
        M in bytes, where it is not to be that of the record's GPU.
    """
    stated = stated_sram_bytes(record, sram_bytes)
    if stated is None or record.direction != "fwd" or record.seqlens is not None:
        return None
    itemsize = ITEMSIZE[record.dtype]
    size, dim_v = (record.seq_q, record.seq_kv, record.head_dim), record.head_dim_v
    scale = _slices(record) * itemsize
    return Theorem2(
        stated,
        round(scale * bounds.flash1_theorem2(*size, bounds.sram_elements(stated, itemsize), dim_v)),
        round(scale * bounds.flash1_theorem2_m_in_bytes(*size, stated, dim_v)),
    )


def sram_of(gpu: Gpu, stated_bytes: int | None) -> int:
    """M in bytes: as stated, else the shared memory that a CTA may have on a GPU."""
    return gpu.smem_per_block_bytes if stated_bytes is None else stated_bytes


def sram_in_words(gpu: str | None, *, stated: bool) -> str:
    """Where M is from."""
    return "as stated" if stated else f"shared memory of a CTA on {gpu}"


def stated_sram_bytes(record: Record, sram_bytes: int | None) -> int | None:
    """`sram_of` the record's GPU; as stated also without one, else None."""
    return sram_bytes if record.gpu is None else sram_of(gpus.get(record.gpu), sram_bytes)


def record_shape(record: Record) -> AttentionShape:
    """The shape of a record that is no packed batch."""
    return AttentionShape(
        *(record.batch, record.heads_q, record.heads_kv, record.seq_q, record.seq_kv, record.head_dim, record.causal),
        *(record.window_left, record.window_right, record.head_dim_v),
    )


def _slices(record: Record) -> int:
    return record.batch * record.heads_q
