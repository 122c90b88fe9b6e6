"""FlashAttention's table 21: memory of a forward and a backward pass, PyTorch's attention beside FlashAttention.

Batch 16, 8 heads, D = 64, fp16, no dropout and no mask, on an A100 40 GB (arXiv 2205.14135, appendix E). Ours is what a
program of ours has to allocate (`Program.nbytes`): for PyTorch's attention that of ``standard``, with Q, K, V, O and
four gradients, and S, P, dP and dS of N x N; for FlashAttention that of flash2, with the same eight tensors, LSE and
the row sums of dO·O. FlashAttention's first backward pass adds to dQ once for each block of keys, in fp32; its code
(``csrc/flash_attn/fmha_api.cpp``: ``loop``, ``dq_tmp``) allocates that where there are more keys than one block of
256, as ``flash2-atomic`` here always does.

The published figures are whole MiB: each is a sum of whole tensors, 4 of N² and 10 of N x D for PyTorch, which no other
meaning of MB gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from fa_bench import algorithms, datafiles
from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.published.points import FA1_FILE
from fa_bench.units import format_percent
from fa_bench.validation.fa1_figure2 import BLOCK
from fa_bench.validation.result import (
    Column,
    Comparison,
    LeftOut,
    Validation,
    Value,
    deviation,
    known_deviations,
    mean_or_none,
    score,
)

NAME: Final = "fa1-memory"
_TABLE: Final = "21"
_MIB: Final = 1024**2
#: Published methods that hold what kernels of ours hold.
_STANDARD: Final = ("PyTorch Attention", "Megatron")
_FLASH: Final = "FlashAttention"


def validate() -> Validation:
    """Hold the memory of our programs against every exact method of the table."""
    fields = [row for row in datafiles.rows(FA1_FILE) if row["table"] == _TABLE]
    rows = tuple(_rows(row for row in fields if not row["left_out"]))
    methods = dict.fromkeys(str(row["method"]) for row in rows)
    gpu = str(rows[0]["gpu"])
    return Validation(
        NAME,
        "FlashAttention (arXiv 2205.14135), table 21: forward and backward, batch 16, 8 heads, D = 64, fp16",
        (_comparison(rows),),
        tuple(_left_out(row for row in fields if row["left_out"])),
        scores=tuple(score(method, gpu, _deviations(rows, method)) for method in methods),
    )


def impl_of(method: str, seq: int) -> str:
    """Whose memory is held against a published method at this length.

    Examples
    --------
    >>> impl_of("Megatron", 512), impl_of("FlashAttention", 256), impl_of("FlashAttention", 512)
    ('standard', 'flash2', 'flash2-atomic')
    """
    if method in _STANDARD:
        return "standard"
    if method == _FLASH:
        return "flash2" if seq <= BLOCK else "flash2-atomic"
    raise ValueError(f"nothing here holds what {method!r} holds")


def allocated_bytes(impl: str, shape: AttentionShape, gpu: Gpu) -> int:
    """What forward and backward of ``impl`` have to allocate in fp16; no tile of it changes that."""
    algorithm = algorithms.get(impl)
    case = Case(impl, shape, direction="fwd+bwd")
    return algorithm.program(replace(case, tile=algorithm.auto_tile(case, gpu))).nbytes


def _rows(fields: Iterator[Mapping[str, str]]) -> Iterator[dict[str, Value]]:
    for row in fields:
        heads, seq, head_dim = int(row["heads"]), int(row["seq"]), int(row["head_dim"])
        shape = AttentionShape(int(row["batch"]), heads, heads, seq, seq, head_dim)
        impl = impl_of(row["method"], seq)
        gpu = gpus.get(row["gpu"])
        published, ours = int(row["value"]) * _MIB, allocated_bytes(impl, shape, gpu)
        tensor = shape.slices * seq * head_dim * 2
        yield {
            "method": row["method"],
            "gpu": gpu.slug,
            "impl": impl,
            "seq": seq,
            "memory_bytes_published": published,
            "memory_bytes_model": ours,
            "memory_deviation": deviation(ours, published),
            # In fp16 tensors of N x D.
            "tensors_missing": (published - ours) / tensor,
        }


def _comparison(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("method", "method"),
        Column("seq", "N", "size"),
        Column("memory_bytes_published", "published", "bytes"),
        Column("impl", "ours"),
        Column("memory_bytes_model", "allocates", "bytes"),
        Column("memory_deviation", "error", "deviation"),
        Column("tensors_missing", "rest", "number"),
    )
    means = ", ".join(
        f"{method} {format_percent(mean_or_none(_deviations(rows, method)) or 0.0)}"
        for method in dict.fromkeys(str(row["method"]) for row in rows)
    )
    note = (
        f"MAPE: {means}. rest: what is missing, in tensors of N x D. It does not grow with N, so nothing of N x N is "
        "missing: two tensors in PyTorch, which keeps no LSE (hence 1.97), three in FlashAttention, as many as a copy "
        "of Q, K and V. Up to N = 512 the published figures are cut to whole MiB."
    )
    return Comparison("memory", "Memory of forward and backward", columns, rows, note)


def _deviations(rows: tuple[Mapping[str, Value], ...], method: str) -> list[float]:
    return known_deviations((row for row in rows if row["method"] == method), "memory_deviation")


def _left_out(fields: Iterator[Mapping[str, str]]) -> Iterator[LeftOut]:
    groups: dict[str, list[str]] = {}
    for row in fields:
        groups.setdefault(row["left_out"], []).append(row["method"])
    for reason, methods in groups.items():
        yield LeftOut(f"table {_TABLE}, {len(set(methods))} methods", len(methods), reason)
