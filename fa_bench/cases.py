"""What is run: an attention shape, a tile and the identity of one case.

Words and tensor layout follow the FlashAttention papers: Q and O are ``[batch, heads_q, seq_q, head_dim]``,
K and V are ``[batch, heads_kv, seq_kv, head_dim]``. Everything here is frozen and checks itself when built.
This module knows nothing of kernels, devices or files.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from fa_bench.errors import UsageError
from fa_bench.sizes import choose, clamp, most

DType = Literal["fp16", "bf16", "fp32"]
Layout = Literal["bhsd", "bshd"]
Direction = Literal["fwd", "bwd", "fwd+bwd"]

DTYPES: Final[tuple[DType, ...]] = ("fp16", "bf16", "fp32")
LAYOUTS: Final[tuple[Layout, ...]] = ("bhsd", "bshd")
DIRECTIONS: Final[tuple[Direction, ...]] = ("fwd", "bwd", "fwd+bwd")
ITEMSIZE: Final[dict[str, int]] = {"fp16": 2, "bf16": 2, "fp32": 4}
#: Distribution of Q, K and V (`fa_bench.reference.make_inputs`). Values decide power, and so clocks.
INIT: Final = "normal"
MAX_HEAD_DIM: Final = 256
#: Largest softcap: models have 20 to 50.
MAX_SOFTCAP: Final = 1000
#: Longest sequence: a single head of it fills the largest GPUs, and predictions stay immediate.
MAX_SEQ: Final = 2**27
#: Most (batch, query head) pairs: CTAs lie on the x axis of a grid.
MAX_SLICES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One attention problem, without its data type.

    Parameters
    ----------
    batch, heads_q, heads_kv, seq_q, seq_kv, head_dim : int
        Sizes, all at least 1; ``heads_q`` is a multiple of ``heads_kv`` (grouped-query attention shares K/V
        head ``h // (heads_q // heads_kv)``); ``head_dim`` is a multiple of 8 up to 256. At most `MAX_SEQ` and
        `MAX_SLICES`.
    causal : bool
        Bottom-right aligned, as FlashAttention 2.1 and later: key ``j`` is visible to query ``i`` iff
        ``j <= i + seq_kv - seq_q``.
    window_left, window_right : int, optional
        A sliding window on the same diagonal: query ``i`` sees keys from ``i + seq_kv - seq_q - window_left`` to
        ``i + seq_kv - seq_q + window_right``; None for no limit. ``causal`` is a right window of 0.
    head_dim_v : int, optional
        Columns of V and O where they are not ``head_dim``.
    seqlens : tuple of (int, int), optional
        Queries and keys of each sequence of a batch whose sequences differ in length; a sequence may have none of
        either. ``batch`` is their number, ``seq_q`` and ``seq_kv`` are the longest, the mask is each sequence's own.
        Tensors are packed: batch 1, and as many rows as all sequences have together. See `packed`.

    Raises
    ------
    UsageError
        If a size is off.
    """

    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_kv: int
    head_dim: int
    causal: bool = False
    window_left: int | None = None
    window_right: int | None = None
    head_dim_v: int | None = None
    seqlens: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.seqlens is not None:
            self._check_seqlens(self.seqlens)
        lengths = ("seq_q", "seq_kv") if self.seqlens is None else ()
        for name in ("batch", "heads_q", "heads_kv", *lengths, "head_dim"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        for name in ("seq_q", "seq_kv"):
            if getattr(self, name) > MAX_SEQ:
                raise UsageError(f"{name} must be at most {MAX_SEQ}, not {getattr(self, name)}.")
        if self.slices > MAX_SLICES:
            raise UsageError(f"batch · heads_q must be at most {MAX_SLICES}, not {self.slices}.")
        if self.heads_q % self.heads_kv:
            raise UsageError(
                f"heads_q must be a multiple of heads_kv, but {self.heads_q} is not a multiple of {self.heads_kv}."
            )
        for name, dim in (("head_dim", self.head_dim), ("head_dim_v", self.dim_v)):
            if dim % 8 or not 8 <= dim <= MAX_HEAD_DIM:
                raise UsageError(
                    f"{name} must be a multiple of 8 up to {MAX_HEAD_DIM}, not {dim}.",
                    hint=f"The nearest legal {name} is {min(MAX_HEAD_DIM, max(8, round(dim / 8) * 8))}.",
                )
        for name in ("window_left", "window_right"):
            size = getattr(self, name)
            if size is not None and not 0 <= size <= MAX_SEQ:
                raise UsageError(f"{name} must be from 0 to {MAX_SEQ}, not {size}.")
        if self.causal and self.window_right:
            raise UsageError(f"A causal mask is a right window of 0: window_right can't be {self.window_right}.")

    def _check_seqlens(self, seqlens: tuple[tuple[int, int], ...]) -> None:
        longest = tuple(max((pair[side] for pair in seqlens), default=0) for side in (0, 1))
        if (len(seqlens), *longest) != (self.batch, self.seq_q, self.seq_kv):
            raise UsageError(
                f"Lengths of {len(seqlens)} sequences, of up to {longest[0]} x {longest[1]}, are no batch of "
                f"{self.batch} of up to {self.seq_q} x {self.seq_kv}."
            )
        for side, name in enumerate(("queries", "keys")):
            if any(pair[side] < 0 for pair in seqlens):
                raise UsageError(f"A sequence has at least 0 {name}, not {min(pair[side] for pair in seqlens)}.")
            if (total := sum(pair[side] for pair in seqlens)) > MAX_SEQ:
                raise UsageError(f"A packed batch must have at most {MAX_SEQ} {name}, not {total}.")

    @classmethod
    def packed(
        cls,
        seqlens: Iterable[tuple[int, int]],
        heads_q: int,
        heads_kv: int,
        head_dim: int,
        causal: bool = False,
        window_left: int | None = None,
        window_right: int | None = None,
        head_dim_v: int | None = None,
    ) -> AttentionShape:
        """A batch of sequences of these (queries, keys) each.

        Raises
        ------
        UsageError
            If no sequence has a query, or none a key: there would be nothing to compute.
        """
        lengths = tuple(seqlens)
        queries, keys = (max((pair[side] for pair in lengths), default=0) for side in (0, 1))
        if not queries or not keys:
            raise UsageError(f"A packed batch needs a sequence with {'keys' if queries else 'queries'}.")
        mask = (causal, window_left, window_right)
        return cls(len(lengths), heads_q, heads_kv, queries, keys, head_dim, *mask, head_dim_v, lengths)

    def sequence(self, batch: int) -> AttentionShape:
        """The shape of one sequence of a packed batch, itself a packed batch of one; else that of one of the batch."""
        if self.seqlens is None:
            return replace(self, batch=1)
        return self._of_length(self.seqlens[batch])

    def _of_length(self, pair: tuple[int, int]) -> AttentionShape:
        return replace(self, batch=1, seq_q=pair[0], seq_kv=pair[1], seqlens=(pair,))

    @property
    def seqlens_text(self) -> str | None:
        """Queries x keys of each sequence of a packed batch, in words: ``5x7 0x3 128x128``; else None."""
        return None if self.seqlens is None else " ".join(f"{queries}x{keys}" for queries, keys in self.seqlens)

    @property
    def cu_seqlens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Row of the packed tensors at which each sequence begins, and at last their rows: of queries and of keys."""
        sides = zip(*(self.seqlens or ()), strict=True)
        queries, keys = (tuple(itertools.accumulate(side, initial=0)) for side in sides)
        return queries, keys

    @property
    def tensor_sizes(self) -> tuple[int, int, int]:
        """Of the tensors: their batch, and rows of a head in those of queries and in those of keys."""
        if self.seqlens is None:
            return self.batch, self.seq_q, self.seq_kv
        return 1, sum(pair[0] for pair in self.seqlens), sum(pair[1] for pair in self.seqlens)

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.heads_q // self.heads_kv

    @property
    def slices(self) -> int:
        """Number of (batch, query head) pairs."""
        return self.batch * self.heads_q

    @property
    def diagonal(self) -> int:
        """``seq_kv - seq_q``: query ``i`` sees keys ``j <= i + diagonal`` when causal."""
        return self.seq_kv - self.seq_q

    @property
    def dim_v(self) -> int:
        """Columns of V and O."""
        return self.head_dim if self.head_dim_v is None else self.head_dim_v

    @property
    def right(self) -> int | None:
        """Keys behind the diagonal that a query sees: 0 when causal, None for no limit."""
        return 0 if self.causal else self.window_right

    @property
    def windowed(self) -> bool:
        """Whether the mask is more than causal or none."""
        return self.window_left is not None or (self.window_right is not None and not self.causal)

    @property
    def named(self) -> tuple[str, ...]:
        """What is asked for beside the sizes and a causal mask, in words: ``window 128,0``, ``head_dim_v 64``."""
        sides = (self.window_left, 0 if self.causal else self.window_right)
        window = ",".join("-" if side is None else str(side) for side in sides)
        return (
            *((f"window {window}",) if self.windowed else ()),
            *((f"head_dim_v {self.dim_v}",) if self.dim_v != self.head_dim else ()),
            *(("packed batch",) if self.seqlens is not None else ()),
        )

    def visible_range(self, query: int) -> tuple[int, int]:
        """First key that query row ``query`` sees, and the first one after it that it does not; equal for nothing."""
        here = query + self.diagonal
        first = 0 if self.window_left is None else clamp(here - self.window_left, 0, self.seq_kv)
        end = self.seq_kv if self.right is None else clamp(here + self.right + 1, 0, self.seq_kv)
        return first, most(first, end)

    def visible_keys(self, query: int) -> int:
        """Number of keys that query row ``query`` sees (0 where it sees nothing)."""
        first, end = self.visible_range(query)
        return end - first

    @property
    def seen_keys(self) -> int:
        """Keys of one sequence that some query sees: a run of them, since windows move by one key from row to row."""
        return (self.seq_q > 0) * (self.visible_range(self.seq_q - 1)[1] - self.visible_range(0)[0])

    @property
    def blind_queries(self) -> int:
        """Queries of one sequence that see no key: the first ones, above the first key."""
        if not self.seq_kv:
            return self.seq_q
        return 0 if self.right is None else min(self.seq_q, max(0, -self.diagonal - self.right))

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one slice, of the longest lengths, that the mask leaves visible, in closed form."""
        # A row's end is never before its first key, so the sum of differences is the difference of sums.
        end = self._clamped_sum(None if self.right is None else self.right + 1)
        first = 0 if self.window_left is None else self._clamped_sum(-self.window_left)
        return end - first

    def _clamped_sum(self, offset: int | None) -> int:
        """Σ over query rows i of ``i + diagonal + offset``, held between 0 and seq_kv; seq_kv each without offset."""
        if offset is None:
            return self.seq_q * self.seq_kv
        start = self.diagonal + offset
        # Rows before `low` are held at 0, rows from `high` on at seq_kv.
        low = clamp(-start, 0, self.seq_q)
        high = clamp(self.seq_kv - start, low, self.seq_q)
        between = (high - low) * (2 * start + low + high - 1) // 2
        return between + (self.seq_q - high) * self.seq_kv

    @property
    def nominal_pairs(self) -> float:
        """Pairs that the FlashAttention papers count per slice: half of seq_q·seq_kv when causal and square."""
        return self._twice_nominal / 2

    @property
    def _twice_nominal(self) -> int:
        """Twice `nominal_pairs`: a whole number."""
        twice_visible = 2 * self.visible_pairs
        if not self.causal or self.windowed:
            return twice_visible
        return choose(self.seq_q == self.seq_kv, self.seq_q * self.seq_kv, twice_visible)

    @property
    def total_visible_pairs(self) -> int:
        """`visible_pairs` of all slices together, each of its own length."""
        return self.heads_q * sum(times * shape.visible_pairs for shape, times in self.by_length())

    @property
    def twice_nominal_pairs(self) -> int:
        """Twice the `nominal_pairs` of all slices together, which is exact: one slice's may end in a half."""
        return self.heads_q * sum(times * shape._twice_nominal for shape, times in self.by_length())

    def by_length(self) -> Iterator[tuple[AttentionShape, int]]:
        """Sequences of different lengths, and how many of the batch have each."""
        if self.seqlens is None:
            yield self, self.batch
            return
        for pair, times in Counter(self.seqlens).items():
            yield self._of_length(pair), times


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel's compile-time tile.

    Parameters
    ----------
    block_m, block_n : int
        Rows of Q and of K/V per tile (Br and Bc in the papers): multiples of 16 from 16 to 256.
    stages : int
        Depth of the K/V buffering, 1 or 2.
    num_warps : int
        Warps per CTA; 0 stands for "the algorithm's choice" and is resolved before a case is built.
    """

    block_m: int
    block_n: int
    stages: int = 1
    num_warps: int = 0

    def __post_init__(self) -> None:
        for name in ("block_m", "block_n"):
            value = getattr(self, name)
            if value % 16 or not 16 <= value <= 256:
                raise UsageError(f"{name} must be a multiple of 16 from 16 to 256, not {value}.")
        if self.stages not in (1, 2):
            raise UsageError(f"stages must be 1 or 2, not {self.stages}.")
        if self.num_warps not in (0, 1, 2, 4, 8):
            raise UsageError(f"num_warps must be 1, 2, 4 or 8, not {self.num_warps}.")

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n}"


@dataclass(frozen=True, slots=True)
class Features:
    """What is done to scores and probabilities beside scaling and masking.

    In this order: ``s = scale · q·k``; softcap; bias; ALiBi; softmax, with the sink in its normaliser; dropout.

    Parameters
    ----------
    softcap : float
        ``s = softcap · tanh(s / softcap)``; 0 for none.
    bias : bool
        Adds a bias ``[heads_q, seq_q, seq_kv]`` of the case's type, the same for every batch.
    alibi : bool
        Adds ``-slope_h · |i + seq_kv - seq_q - j|``, with the slopes of the ALiBi paper.
    sinks : bool
        A learned logit per query head that takes part in the normaliser and has no value.
    dropout_p : float
        Probability that a pair is dropped, at least 0 and below 1; what is kept is scaled by 1 / (1 - p).

    Raises
    ------
    UsageError
        If a figure is off.
    """

    softcap: float = 0.0
    bias: bool = False
    alibi: bool = False
    sinks: bool = False
    dropout_p: float = 0.0

    def __post_init__(self) -> None:
        # Beyond, softcap · tanh(s / softcap) is s, and computing it in fp32 would only lose digits.
        if not 0 <= self.softcap <= MAX_SOFTCAP:
            raise UsageError(f"softcap must be from 0 (none) to {MAX_SOFTCAP}, not {self.softcap:g}.")
        if not 0 <= self.dropout_p < 1:
            raise UsageError(f"dropout_p must be at least 0 and below 1, not {self.dropout_p}.")

    @property
    def named(self) -> tuple[str, ...]:
        """What is asked for, in words: ``softcap 30``, ``alibi`` ..."""
        words = (
            f"softcap {self.softcap:g}" if self.softcap else "",
            "bias" if self.bias else "",
            "alibi" if self.alibi else "",
            "sinks" if self.sinks else "",
            f"dropout {self.dropout_p:g}" if self.dropout_p else "",
        )
        return tuple(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of a sweep: what runs, on which shape, in which tile.

    Parameters
    ----------
    impl : str
        Implementation slug (``flash2``, ``numpy-standard``, ``torch-math`` ...).
    shape : AttentionShape
    dtype : {"fp16", "bf16", "fp32"}
        Type of Q, K, V and O. Accumulation is fp32 in every kernel of ours.
    tile : Tile or None
        None for implementations without a tile.
    layout : {"bhsd", "bshd"}
        Order of the tensors in memory.
    direction : {"fwd", "bwd", "fwd+bwd"}
        Forward; backward, given what the forward pass left; or one after the other.
    seed : int
        Seed of the standard normal inputs.
    content : str
        Hash of the files of an implementation that is the user's own; empty for all that come with fa-bench.
    features : Features
    """

    impl: str
    shape: AttentionShape
    dtype: DType = "fp16"
    tile: Tile | None = None
    layout: Layout = "bhsd"
    direction: Direction = "fwd"
    seed: int = 0
    content: str = ""
    features: Features = Features()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}.")
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout must be one of {', '.join(LAYOUTS)}, not {self.layout!r}.")
        if self.direction not in DIRECTIONS:
            raise UsageError(f"direction must be one of {', '.join(DIRECTIONS)}, not {self.direction!r}.")

    @property
    def forward(self) -> bool:
        """Whether the forward pass is part of what is run, timed and counted."""
        return self.direction != "bwd"

    @property
    def backward(self) -> bool:
        """Whether the backward pass is."""
        return self.direction != "fwd"

    @property
    def itemsize(self) -> int:
        """Bytes per element of Q, K, V and O."""
        return ITEMSIZE[self.dtype]

    @property
    def case_id(self) -> str:
        """Hash of the device-free identity; the key that runs are compared by."""
        s, t, f = self.shape, self.tile, self.features
        identity = [
            self.impl, self.dtype, self.layout, self.direction, self.seed,
            s.batch, s.heads_q, s.heads_kv, s.seq_q, s.seq_kv, s.head_dim, s.causal,
            None if t is None else [t.block_m, t.block_n, t.stages, t.num_warps],
            *([self.content] if self.content else []),
            # Only where they are asked for, so that all other cases keep their names.
            *([s.window_left, s.window_right, s.head_dim_v] if s.windowed or s.head_dim_v is not None else []),
            *([f.softcap, f.bias, f.alibi, f.sinks, f.dropout_p] if f != Features() else []),
            *([s.seqlens_text] if s.seqlens is not None else []),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
