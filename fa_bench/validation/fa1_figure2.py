"""FlashAttention's Figure 2: bytes through HBM, FLOPs and time of one shape, forward and backward, on an A100.

Batch 64, 16 heads, N = 1024, D = 64, fp16. docs/model.md derives every number: what our kernels move of the same
shape (DRAM estimate of ``standard``, flash2 and ``flash2-atomic``), and which passes over N² PyTorch's operators add. A
pass is one read or one write of N² elements in fp16. Which operators ran is not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fa_bench import algorithms, datafiles
from fa_bench.cases import AttentionShape, Case, Features, Tile
from fa_bench.errors import Unsupported
from fa_bench.model import bounds, gpus
from fa_bench.model.dram import dram_traffic
from fa_bench.validation.predicting import PredictTime
from fa_bench.validation.result import (
    Column,
    Comparison,
    LeftOut,
    Score,
    Validation,
    Value,
    deviation,
    known_deviations,
    score,
)

NAME: Final = "fa1-figure2"
#: The paper says A100; its tables are of the 40 GB board.
GPU: Final = "a100-sxm-40"
SHAPE: Final = AttentionShape(64, 16, 16, 1024, 1024, 64)
_DROPOUT: Final = 0.1
#: Tiles of the io-model preset.
_TILES: Final = {"standard": Tile(128, 128), "flash2": Tile(64, 64), "flash2-atomic": Tile(64, 64)}
#: Keys of a block in FlashAttention's first kernels for D = 64.
BLOCK: Final = 256

#: Passes over N² of standard attention: S written and read; P written, read for PV, for dV and for dS; dP written and
#: read; dS written, read for dQ and for dK.
_PASSES: Final = 11
#: Tensors of N x D: Q, K, V and O forward, eight backward.
_TENSORS: Final = 12
#: Copies of Q, K, V, dQ, dK and dV to and from the layout of batched products: read and written.
_COPIES: Final = 2 * 6
#: Passes that PyTorch's operators add: ``masked_fill`` reads and writes S and dS; an added mask reads and writes S;
#: dropout reads and writes P and dP, and writes and reads a byte for each element.
_ADDED: Final = {"padding mask": 4, "GPT-2 medium": 2 + 5}
_OPERATORS: Final = {"padding mask": "masked_fill", "GPT-2 medium": "added mask, dropout"}


@dataclass(frozen=True, slots=True)
class Published:
    """One bar of one version of the figure; None where that version's figure isn't known."""

    version: str
    method: str
    causal: bool
    dropout: bool
    gflop: float | None
    hbm_gb: float
    ms: float

    def case(self) -> Case:
        """What was timed, without the key-padding mask."""
        return Case(
            "pytorch-eager" if self.method == "standard" else "flash-attn-1",
            replace(SHAPE, causal=self.causal),
            layout="bshd",
            direction="fwd+bwd",
            features=Features(dropout_p=_DROPOUT if self.dropout else 0.0),
        )


def published() -> tuple[Published, ...]:
    """All rows of the file that comes with fa-bench."""
    return tuple(
        Published(
            row["version"],
            row["method"],
            row["causal"] == "1",
            row["dropout"] == "1",
            float(row["gflop"]) if row["gflop"] else None,
            float(row["hbm_gb"]),
            float(row["ms"]),
        )
        for row in datafiles.rows("fa1_figure2.csv")
    )


def validate(predict: PredictTime) -> Validation:
    """Hold formulas, the DRAM model and predicted times against the figure."""
    rows = published()
    moved, flops, times = tuple(_bytes_rows(rows)), tuple(_flop_rows(rows)), tuple(_time_rows(predict, rows))
    odd = "12 times fewer than the products of its shape, 825 and 962"
    return Validation(
        NAME,
        "FlashAttention (arXiv 2205.14135), Figure 2, two versions: A100, batch 64, 16 heads, N = 1024, D = 64, fp16",
        (_bytes(moved), _flops(flops), _times(times)),
        (
            LeftOut("GFLOPs", len(flops), odd),
            LeftOut("time, padding mask", 2, "a key-padding mask, which no case here has"),
            *(LeftOut(f"time, {row['version']}", 1, str(row["no_model"])) for row in times if row["no_model"]),
        ),
        scores=tuple(_scores(moved, times)),
    )


def dram_bytes(impl: str) -> int:
    """Bytes between L2 and HBM that the DRAM model gives one of our implementations for the figure's shape."""
    algorithm = algorithms.get(impl)
    case = Case(impl, SHAPE, direction="fwd+bwd")
    case = replace(case, tile=algorithm.resolve(case, _TILES[impl]))
    asked = algorithm.traffic(case)
    assert asked is not None
    return sum(part.bytes for part in dram_traffic(algorithm.program(case), asked, gpus.get(GPU)))


def passes_bytes(passes: int, tensors: int) -> int:
    """Bytes of passes over N² and over tensors of N x D.

    Examples
    --------
    >>> passes_bytes(11 + 4, 12) / 1e9, passes_bytes(11 + 7, 12) / 1e9
    (33.822867456, 40.2653184)
    """
    rows = SHAPE.slices * SHAPE.seq_q
    return 2 * rows * (passes * SHAPE.seq_kv + tensors * SHAPE.head_dim)


def _readings(row: Published) -> Iterator[tuple[str, str, int]]:
    """Kind, words and bytes of what can stand beside a bar."""
    if row.method == "standard":
        yield "kernels", "our kernels, DRAM model", dram_bytes("standard")
        passes, words = _PASSES + _ADDED[row.version], _OPERATORS[row.version]
        yield "operators", f"with {words}", passes_bytes(passes, _TENSORS)
        yield "copies", "and six copies", passes_bytes(passes, _TENSORS + _COPIES)
    else:
        yield "kernels", "flash2-atomic, DRAM model", dram_bytes("flash2-atomic")
        yield "deterministic", "flash2, DRAM model", dram_bytes("flash2")
        n, d = SHAPE.seq_q, SHAPE.head_dim
        elements = bounds.flash1(n, n, d, BLOCK).total + bounds.flash1_backward(n, n, d, BLOCK).total
        yield "accesses", f"every access, blocks of {BLOCK}", 2 * SHAPE.slices * elements


def _bytes_rows(rows: Iterable[Published]) -> Iterator[dict[str, Value]]:
    for row in rows:
        gigabytes = row.hbm_gb
        for kind, words, nbytes in _readings(row):
            yield {
                "method": row.method,
                "version": row.version,
                "reading": kind,
                "ours": words,
                "dram_gb_published": gigabytes,
                "dram_gb_model": nbytes / 1e9,
                "dram_deviation": deviation(nbytes / 1e9, gigabytes),
            }


def _bytes(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("method", "method"),
        Column("version", "figure"),
        Column("ours", "ours"),
        Column("dram_gb_published", "GB", "number"),
        Column("dram_gb_model", "ours", "number"),
        Column("dram_deviation", "error", "deviation"),
    )
    note = (
        "In 10^9 bytes, read and written. Standard attention makes 11 passes over N² and moves 12 tensors of N x D; "
        "PyTorch's operators add passes, 4 for masked_fill, 2 for an added mask, 5 for dropout. Which of them ran is "
        "not published: the sums say which are enough."
    )
    return Comparison("bytes", "HBM traffic", columns, rows, note)


def _flop_rows(rows: Iterable[Published]) -> Iterator[dict[str, Value]]:
    for row in rows:
        if row.gflop is not None:
            products = 6 if row.method == "standard" else 7
            ours = 2 * products * SHAPE.total_visible_pairs * SHAPE.head_dim / 1e9
            yield {
                "method": row.method,
                "version": row.version,
                "products": products,
                "gflop_published": row.gflop,
                "gflop_model": ours,
                "gflop_ratio": ours / row.gflop,
            }


def _flops(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("method", "method"),
        Column("version", "figure"),
        Column("products", "products", "count"),
        Column("gflop_published", "GFLOP", "number"),
        Column("gflop_model", "formula", "number"),
        Column("gflop_ratio", "ratio", "number"),
    )
    note = (
        "formula: 2·B·H·N²·D for each product, no block skipped. The columns agree in one thing only: recomputation "
        "costs a seventh product, 1.17 by the formula, 1.13 as published."
    )
    return Comparison("flops", "FLOPs, left out of every mean", columns, rows, note)


def _time_rows(predict: PredictTime, rows: Iterable[Published]) -> Iterator[dict[str, Value]]:
    for row in rows:
        known: dict[str, Value] = {"method": row.method, "version": row.version, "time_ms_published": row.ms}
        try:
            ours = predict(row.case(), gpus.get(GPU))
        except Unsupported as error:
            yield known | {"time_ms_model": None, "time_deviation": None, "no_model": error.message}
        else:
            yield known | {"time_ms_model": ours.ms, "time_deviation": deviation(ours.ms, row.ms), "no_model": None}


def _times(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("method", "method"),
        Column("version", "figure"),
        Column("time_ms_published", "published", "ms"),
        Column("time_ms_model", "predicted", "ms"),
        Column("time_deviation", "error", "deviation"),
    )
    note = "Predicted without the key-padding mask, where the figure has one."
    return Comparison("times", "Time of forward and backward", columns, rows, note)


def _scores(moved: Iterable[Mapping[str, Value]], times: Iterable[Mapping[str, Value]]) -> Iterator[Score]:
    for kind, words in (("kernels", "HBM bytes, our kernels"), ("operators", "HBM bytes, PyTorch's operators")):
        yield score(words, GPU, known_deviations((row for row in moved if row["reading"] == kind), "dram_deviation"))
    kept, others = (
        known_deviations((row for row in times if (row["version"] == "GPT-2 medium") is wanted), "time_deviation")
        for wanted in (True, False)
    )
    yield score("time", GPU, kept, others)
