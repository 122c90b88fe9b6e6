"""What is run: an attention shape, a tile and the identity of one case.

Words and tensor layout follow the FlashAttention papers: Q and O are ``[batch, heads_q, seq_q, head_dim]``,
K and V are ``[batch, heads_kv, seq_kv, head_dim]``. Everything here is frozen and checks itself when built.
This module knows nothing of kernels, devices or files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.errors import UsageError

DType = Literal["fp16", "bf16", "fp32"]
Layout = Literal["bhsd", "bshd"]
Direction = Literal["fwd"]

DTYPES: Final[tuple[DType, ...]] = ("fp16", "bf16", "fp32")
LAYOUTS: Final[tuple[Layout, ...]] = ("bhsd", "bshd")
ITEMSIZE: Final[dict[str, int]] = {"fp16": 2, "bf16": 2, "fp32": 4}
#: Distribution of Q, K and V (`fa_bench.reference.make_inputs`). Values decide power, and so clocks.
INIT: Final = "normal"
MAX_HEAD_DIM: Final = 256
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

    def __post_init__(self) -> None:
        for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim"):
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
        if self.head_dim % 8 or self.head_dim > MAX_HEAD_DIM:
            raise UsageError(
                f"head_dim must be a multiple of 8 up to {MAX_HEAD_DIM}, not {self.head_dim}.",
                hint=f"The nearest legal head_dim is {min(MAX_HEAD_DIM, max(8, round(self.head_dim / 8) * 8))}.",
            )

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

    def visible_keys(self, query: int) -> int:
        """Number of keys that query row ``query`` sees (0 where it sees nothing)."""
        if not self.causal:
            return self.seq_kv
        return max(0, min(self.seq_kv, query + self.diagonal + 1))

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one slice that the mask leaves visible, in closed form."""
        if not self.causal:
            return self.seq_q * self.seq_kv
        # Rows i with i + diagonal + 1 >= 1 see i + diagonal + 1 keys, never more than seq_kv
        # (the last row sees exactly seq_kv). first is the first row that sees a key.
        first = max(0, -self.diagonal)
        count = self.seq_q - first
        low = first + self.diagonal + 1
        return count * (low + self.seq_kv) // 2

    @property
    def nominal_pairs(self) -> float:
        """Pairs that the FlashAttention papers count per slice: half of seq_q·seq_kv when causal and square."""
        if self.causal and self.seq_q == self.seq_kv:
            return self.seq_q * self.seq_kv / 2
        return float(self.visible_pairs)


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
    direction : {"fwd"}
    seed : int
        Seed of the standard normal inputs.
    content : str
        Hash of the files of an implementation that is the user's own; empty for all that come with fa-bench.
    """

    impl: str
    shape: AttentionShape
    dtype: DType = "fp16"
    tile: Tile | None = None
    layout: Layout = "bhsd"
    direction: Direction = "fwd"
    seed: int = 0
    content: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}.")
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout must be one of {', '.join(LAYOUTS)}, not {self.layout!r}.")

    @property
    def itemsize(self) -> int:
        """Bytes per element of Q, K, V and O."""
        return ITEMSIZE[self.dtype]

    @property
    def case_id(self) -> str:
        """Hash of the device-free identity; the key that runs are compared by."""
        s, t = self.shape, self.tile
        identity = [
            self.impl, self.dtype, self.layout, self.direction, self.seed,
            s.batch, s.heads_q, s.heads_kv, s.seq_q, s.seq_kv, s.head_dim, s.causal,
            None if t is None else [t.block_m, t.block_n, t.stages, t.num_warps],
            *([self.content] if self.content else []),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
