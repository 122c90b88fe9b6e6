"""What an algorithm room offers: a program to run, exact traffic and work.

An algorithm knows its kernels: which source to compile with which defines, which buffers it needs, how it is
launched, how many bytes each launch asks of global memory and how much work it does. It knows nothing of how it
is executed (CuPy or the emulator) and nothing of ``fa_bench.ptx``; a test holds that, because the count must
never be made from the formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from fa_bench.cases import Case, Direction, Tile
from fa_bench.model.gpu import Gpu
from fa_bench.sizes import ceil_div

Role = Literal["input", "output", "workspace"]
Op = Literal["read", "write"]
CType = Literal["bool", "i32", "u32", "i64", "u64", "f32", "f64"]

#: Both backends place every buffer at a multiple of this many bytes; the traffic models rely on it.
BASE_ALIGNMENT: Final = 256
SECTOR_BYTES: Final = 32

#: Stands for the tensor where bytes are known of a kernel as a whole: hardware counters can't tell tensors apart.
ALL_TENSORS: Final = "all"

#: Bytes of an element; what is beyond a case's own types is for workspaces.
ELEMENT_BYTES: Final[dict[str, int]] = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "u8": 1, "i32": 4, "i64": 8}


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named device buffer.

    Parameters
    ----------
    name : str
        ``Q, K, V, O, LSE, S, P, P_drop, O_acc, l, m, dO, dQ, dK, dV, delta, dP, dS, dQ_acc, bias, slopes, sinks`` — the
        names of the reports.
    dtype : str
        One of `ELEMENT_BYTES`; ``fp16``, ``bf16`` or ``fp32`` for Q, K, V and O.
    shape : tuple of int
        Logical shape in elements, always in the order batch, heads, seq, (head_dim or pitch).
    strides : tuple of int
        Strides in elements, one per axis of ``shape``: the layout lives here.
    role : {"input", "output", "workspace"}
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: Role

    @property
    def nbytes(self) -> int:
        """Bytes that must be allocated (the furthest element plus one)."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel to compile.

    Parameters
    ----------
    source : str
        Path below ``kernels/``, e.g. ``flash2/flash2_fwd.cu``; the absolute path of a user's own ``.cu`` or ``.ptx``.
    entry : str
        Name of the ``extern "C"`` kernel.
    defines : tuple of (str, str)
        Preprocessor definitions: tile sizes and element type are compile-time.
    """

    source: str
    entry: str
    defines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar kernel argument with its C type, so that no launcher has to guess a width."""

    ctype: CType
    value: int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. ``args`` holds buffer names (pointers) and scalars in parameter order."""

    kernel: KernelSpec
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    args: tuple[str | Scalar, ...]
    #: CTAs of slice s are ``s * ctas_per_slice ... (s + 1) * ctas_per_slice - 1`` in linear order; 0 if CTAs are
    #: not ordered by slice.
    ctas_per_slice: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """All that a backend needs in order to run a case once.

    ``setup`` runs once, before the inputs of ``launches`` are complete, and is neither counted nor timed: the forward
    pass of a case that is the backward pass alone.
    """

    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    setup: tuple[Launch, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``."""
        return next(b for b in self.buffers if b.name == name)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, each rounded up to the base alignment."""
        return sum(ceil_div(b.nbytes, BASE_ALIGNMENT) * BASE_ALIGNMENT for b in self.buffers)


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """Bytes that one kernel moves for one tensor, in one direction, at one level.

    ``requests`` are warp instructions at the level ``global`` and lines beyond; ``hit_bytes`` are those that the cache
    of the level answers. Both are known only where they were counted.
    """

    kernel: str
    tensor: str
    op: Op
    bytes: int
    requests: int | None = None
    hit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic that a case executes, whole tiles counted (masked lanes work too)."""

    flops_executed: int
    exp_count: int
    #: (kernel entry, FLOPs on the tensor cores, FLOPs on the FMA pipe, exponentials) per launch.
    per_kernel: tuple[tuple[str, int, int, int], ...] = field(default=())


#: `Algorithm.fused` of one that knows sizes and a causal mask alone.
PLAIN: Final[Mapping[Direction, frozenset[str]]] = {}


class Algorithm(Protocol):
    """One algorithm room. Registered in ``fa_bench.algorithms``.

    `program`, `traffic` and `work` of ours also take a case whose sizes are arrays, with an element for each of many
    cases (:mod:`fa_bench.sizes`), and then have arrays where one case has numbers.
    """

    name: str
    version: str
    #: One sentence for ``fa-bench kernels``.
    summary: str
    #: Tensors beside Q, K, V, O and LSE that grow with the problem, for the documentation.
    uses_tile: bool
    #: Passes that it has kernels for.
    directions: tuple[Direction, ...]
    #: What a pass knows beside sizes and a causal mask: first words of what `AttentionShape.named` and `Features.named`
    #: say.
    fused: Mapping[Direction, frozenset[str]]

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The default tile for ``case`` (whose tile is ignored) on ``gpu``, legal there.

        Of sizes it depends on the `fa_bench.algorithms.tiles.length_kind` of lengths at most.
        """
        ...

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with ``num_warps`` (and anything else left to the algorithm) filled in."""
        ...

    def smem_bytes(self, case: Case) -> int:
        """Largest dynamic + static shared memory of one CTA in bytes."""
        ...

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` cannot run on ``gpu`` (a sentence that names the largest tile that fits), or None."""
        ...

    def program(self, case: Case) -> Program:
        """Buffers and launches of ``case``."""
        ...

    def traffic(self, case: Case) -> Sequence[TensorBytes] | None:
        """Exact global traffic of ``case`` in bytes, per kernel, tensor and direction; None where nobody derived it."""
        ...

    def work(self, case: Case) -> Work | None:
        """FLOPs and exponentials executed; None where nobody counted them."""
        ...

    def explain(self, case: Case) -> str:
        """The traffic's derivation with the numbers of ``case`` put in, for ``io-model --explain``."""
        ...
