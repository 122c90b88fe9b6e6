"""Published times as cases of ours.

``published_points.csv`` holds times and rates of many sources, ``fa1_tables.csv`` the runtime tables of FlashAttention
(arXiv 2205.14135, appendix E), and ``held_out_points.csv`` what predicted times are tried on but never fitted to. A
rate becomes a time by the FLOPs that its source counts, which for all of them are those of `fa_bench.model.flops`:
forward ``4·B·H·N²·D``, half of it when causal, backward 2.5 and both 3.5 times as much (FlashAttention-2, section 4.1;
``benchmarks/benchmark_flash_attention.py`` of its authors).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from fa_bench import datafiles
from fa_bench.cases import DTYPES, AttentionShape, Case, Direction, DType, Features
from fa_bench.model import flops, gpus
from fa_bench.published.names import impl_slug

POINTS_FILE: Final = "published_points.csv"
#: Times that no constant is fitted to: `points` doesn't return them, so ``scripts/fit_prediction.py`` never sees them.
HELD_OUT_FILE: Final = "held_out_points.csv"
FA1_FILE: Final = "fa1_tables.csv"
#: Tables of FlashAttention with runtimes; 21 is memory.
FA1_TABLES: Final = ("7", *map(str, range(9, 21)))
#: The tables name dropout and no rate, on which neither work nor bytes depend: BERT's.
FA1_DROPOUT: Final = 0.1

#: A published unit in milliseconds.
_MS: Final = {"ms": 1.0, "us": 1e-3}
_RATE: Final = "TFLOPs/s"
#: What a published name of a type or a direction means here. One time for "fp16/bf16" is taken as fp16's; one query
#: for a sequence is a forward pass.
_DTYPES: Final = {"fp16/bf16": "fp16"}
_DIRECTIONS: Final = {"decode": "fwd", "fwd_bwd": "fwd+bwd"}


@dataclass(frozen=True, slots=True)
class Point:
    """One published time.

    Parameters
    ----------
    source : str
        Who published it, in a few words: ``FlashAttention-2 fig. 4``.
    source_url : str
    gpu, gpu_published : str
        The registry's slug, and the name in the source.
    impl, impl_published : str
        Slug (`fa_bench.published.names`) and the name in the source.
    direction : {"fwd", "bwd", "fwd+bwd"}
    dtype : {"fp16", "bf16", "fp32"}
    shape : AttentionShape
    features : Features
        Dropout, where it was on.
    masked : bool
        Whether there was a key-padding mask, which no shape here has.
    ms : float
        The time, worked out if a rate was published.
    metric, unit : str
    value : float
        As published: ``latency`` in ``ms`` or ``us``, ``throughput`` in ``TFLOPs/s``.
    note : str
    left_out : str or None
        Why the figure can't be held against a model of what ``case`` says; None if it can.
    """

    source: str
    source_url: str
    gpu: str
    gpu_published: str
    impl: str
    impl_published: str
    direction: Direction
    dtype: DType
    shape: AttentionShape
    features: Features
    masked: bool
    ms: float
    metric: str
    value: float
    unit: str
    note: str
    left_out: str | None

    def __post_init__(self) -> None:
        if not self.ms > 0:
            raise ValueError(f"ms must be positive, not {self.ms}")

    def case(self) -> Case:
        """What was measured, without a key-padding mask.

        The layout is that of the FlashAttention packages, or of PyTorch's scaled dot product attention, which takes
        heads before positions.
        """
        return Case(
            self.impl,
            self.shape,
            dtype=self.dtype,
            layout="bhsd" if self.impl.startswith("torch-") else "bshd",
            direction=self.direction,
            features=self.features,
        )

    @property
    def tflops(self) -> float:
        """The rate in 10^12 FLOP/s as the papers count it."""
        return flops.tflops(flops.nominal(self.shape, self.direction), self.ms)


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A published figure that is no case: a size, the mask or the GPU isn't given, or no case has its type."""

    source: str
    source_url: str
    gpu_published: str
    impl_published: str
    value: float
    unit: str
    left_out: str


def points() -> tuple[Point, ...]:
    """Every published time that is a case, those that are left out among them, but those held out."""
    return tuple(row for row in _rows() if isinstance(row, Point))


@functools.cache
def held_out() -> tuple[Point, ...]:
    """Published times that were collected after the constants were fitted, and that nothing is fitted to."""
    rows = [_point(fields) for fields in datafiles.rows(HELD_OUT_FILE)]
    return tuple(row for row in rows if isinstance(row, Point))


def incomplete() -> tuple[Incomplete, ...]:
    """Published figures that no case can be made of."""
    return tuple(row for row in _rows() if isinstance(row, Incomplete))


@functools.cache
def _rows() -> tuple[Point | Incomplete, ...]:
    many = [_point(fields) for fields in datafiles.rows(POINTS_FILE)]
    first = [_fa1_point(fields) for fields in datafiles.rows(FA1_FILE) if fields["table"] in FA1_TABLES]
    return (*many, *first)


def _point(fields: Mapping[str, str]) -> Point | Incomplete:
    dtype = _DTYPES.get(fields["dtype"], fields["dtype"])
    gpu = gpus.find(fields["gpu"])
    if gpu is None or dtype not in DTYPES or not fields["batch"] or not fields["causal"]:
        return Incomplete(
            source=fields["source"],
            source_url=fields["source_url"],
            gpu_published=fields["gpu"],
            impl_published=fields["impl"],
            value=float(fields["value"]),
            unit=fields["unit"],
            left_out=fields["left_out"],
        )
    batch, heads, kv_heads = (int(fields[name]) for name in ("batch", "heads", "kv_heads"))
    seq_q, seq_k, head_dim = (int(fields[name]) for name in ("seq_q", "seq_k", "head_dim"))
    shape = AttentionShape(batch, heads, kv_heads, seq_q, seq_k, head_dim, causal=fields["causal"] == "1")
    direction = cast(Direction, _DIRECTIONS.get(fields["direction"], fields["direction"]))
    value = float(fields["value"])
    rate = fields["unit"] == _RATE
    return Point(
        source=fields["source"],
        source_url=fields["source_url"],
        gpu=gpu.slug,
        gpu_published=fields["gpu"],
        impl=impl_slug(fields["impl"]),
        impl_published=fields["impl"],
        direction=direction,
        dtype=dtype,
        shape=shape,
        features=Features(),
        masked=False,
        ms=flops.nominal(shape, direction) / value * 1e-9 if rate else value * _MS[fields["unit"]],
        metric=fields["metric"],
        value=value,
        unit=fields["unit"],
        note=fields["note"],
        left_out=fields["left_out"] or None,
    )


def _fa1_point(fields: Mapping[str, str]) -> Point:
    heads, seq = int(fields["heads"]), int(fields["seq"])
    value = float(fields["value"])
    return Point(
        source="FlashAttention table 7" if fields["table"] == "7" else "FlashAttention tables 9-20",
        source_url=fields["source_url"],
        gpu=gpus.get(fields["gpu"]).slug,
        gpu_published=fields["gpu"],
        impl=impl_slug(fields["method"]),
        impl_published=fields["method"],
        direction=cast(Direction, _DIRECTIONS.get(fields["pass"], fields["pass"])),
        dtype=cast(DType, fields["dtype"]),
        shape=AttentionShape(int(fields["batch"]), heads, heads, seq, seq, int(fields["head_dim"])),
        features=Features(dropout_p=FA1_DROPOUT if fields["dropout"] == "1" else 0.0),
        masked=fields["masking"] == "1",
        ms=value * _MS[fields["unit"]],
        metric="latency",
        value=value,
        unit=fields["unit"],
        note=f"table {fields['table']}",
        left_out=fields["left_out"] or None,
    )
