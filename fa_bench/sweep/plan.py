"""From axes to cases: what a sweep will run, in which order, and what it skips and why.

Planning runs nothing. It asks an algorithm what it can do on the target GPU, and a backend how much memory a case
would take and how much is free, so that ``--dry-run`` and the sweep itself see the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from fa_bench import algorithms
from fa_bench.algorithms.base import Algorithm
from fa_bench.backends.base import BackendName
from fa_bench.cases import AttentionShape, Case, Direction, DType, Features, Layout, Tile
from fa_bench.errors import Unsupported, UsageError, nearest
from fa_bench.model.gpu import Gpu
from fa_bench.units import format_bytes

#: ``"auto"`` or (block_m, block_n).
Block: TypeAlias = Literal["auto"] | tuple[int, int]
#: Keys to the left and to the right of a query that it sees, None for no limit; None for no window at all.
Window: TypeAlias = tuple[int | None, int | None] | None
#: Causal or not, keys to the left and to the right.
_Mask: TypeAlias = tuple[bool, int | None, int | None]
_NO_FEATURES: Final = Features()
PlanStatus = Literal["run", "skipped", "unsupported"]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The axes of a sweep as the user gave them; every tuple is an axis.

    Parameters
    ----------
    seqs : tuple of int
        Query lengths; none for a packed batch.
    seqs_kv : tuple of int
        Key lengths, each combined with every query length; empty for square shapes (seq_kv = seq_q).
    head_dims : tuple of int
    blocks : tuple of Block
        Tiles of the implementations that have one; ``"auto"`` leaves it to the algorithm and the target GPU.
    stages : tuple of int
        Depths of the K/V buffering; empty leaves it to the algorithm (1 for a tile that was given).
    impls : tuple of str
        Implementations; empty for all that the backends offer.
    dtypes, causal, layouts, directions : tuple
    windows : tuple of Window
        Sliding windows, (left, right), None for none. A causal mask takes the left side of each.
    features : tuple of Features
    head_dim_v : int, optional
        Columns of V and O; head_dim if not given.
    batches, heads : tuple of int
        1 if neither they nor ``tokens`` and ``hidden`` are given.
    heads_kv : tuple of int
        K/V heads, each combined with every number of query heads; as many as these if not given.
    tokens : int, optional
        Instead of ``batches``: batch = tokens // seq_q.
    seqlens : tuple of (int, int), optional
        Instead of ``seqs`` and ``batches``: queries and keys of each sequence of one packed batch.
    hidden : int, optional
        Instead of ``heads``: heads = hidden // head_dim.
    device : str
        ``auto``, ``cuda``, ``emulator`` or ``host``.
    gpu : str, optional
        Slug of the target GPU as it was asked for.
    seed : int
        Seed of the inputs, at least 0.

    Raises
    ------
    UsageError
        If a value is off, whatever else the axes hold.
    """

    seqs: tuple[int, ...]
    seqs_kv: tuple[int, ...] = ()
    head_dims: tuple[int, ...] = (64,)
    blocks: tuple[Block, ...] = ("auto",)
    stages: tuple[int, ...] = ()
    impls: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ("fp16",)
    causal: tuple[bool, ...] = (False,)
    layouts: tuple[Layout, ...] = ("bhsd",)
    directions: tuple[Direction, ...] = ("fwd",)
    windows: tuple[Window, ...] = (None,)
    features: tuple[Features, ...] = (_NO_FEATURES,)
    head_dim_v: int | None = None
    batches: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    heads_kv: tuple[int, ...] = ()
    tokens: int | None = None
    seqlens: tuple[tuple[int, int], ...] | None = None
    hidden: int | None = None
    device: str = "auto"
    gpu: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for axis in ("seqs", "head_dims", "blocks", "dtypes", "causal", "layouts", "directions", "windows", "features"):
            if not getattr(self, axis) and (axis != "seqs" or self.seqlens is None):
                raise UsageError(f"The axis {axis} is empty.")
        for one, given, other in (("batch", self.batches, "tokens"), ("heads", self.heads, "hidden")):
            if given and getattr(self, other) is not None:
                raise UsageError(f"{one} and {other} can't both be given: {other} sets the {one}.")
        if self.seqlens is not None and (self.seqs or self.seqs_kv or self.batches or self.tokens):
            raise UsageError("seqlens stand for seqs, seqs_kv, batch and tokens: none of them can be given beside it.")
        if self.seed < 0:
            raise UsageError(f"seed must be at least 0, not {self.seed}.")
        for block, stages in itertools.product(self.blocks, self.stages or (1,)):
            Tile(*((16, 16) if block == "auto" else block), stages=stages)
        for dtype, layout, direction in itertools.product(self.dtypes, self.layouts, self.directions):
            Case("any", next(self.kinds()), dtype, layout=layout, direction=direction)
        for _ in self._telling():
            pass  # a shape checks itself

    def shapes(self) -> Iterator[AttentionShape]:
        """All shapes, ascending in seq_q, then seq_kv, without repetition."""
        return self._shapes(self.lengths(), unique(self.head_dims), self._masks(), self.batches, self.heads)

    def kinds(self) -> Iterator[AttentionShape]:
        """Shapes of each head dimension and mask, of the shortest length, the first batch and the first heads alone."""
        return self._shapes(self.lengths()[:1], unique(self.head_dims), self._masks(), self.batches[:1], self.heads[:1])

    def cases(self, impls: Sequence[str]) -> Iterator[Case]:
        """All cases of some implementations, which are neighbours at each shape; none has a tile yet."""
        axes = unique(self.dtypes), unique(self.layouts), unique(self.directions), unique(self.features)
        for shape in self.shapes():
            for dtype, layout, direction, features, impl in itertools.product(*axes, impls):
                content = algorithms.content_of(impl)
                yield Case(impl, shape, dtype, None, layout, direction, self.seed, content, features)

    def lengths(self) -> list[tuple[int, int]]:
        """Queries and keys, ascending; none for a packed batch."""
        return _pairs(self.seqs, self.seqs_kv)

    def batches_of(self, seq_q: int) -> tuple[int, ...]:
        """Batch sizes of a length."""
        if self.tokens is None:
            return unique(self.batches) or (1,)
        if not 1 <= seq_q <= self.tokens:
            raise UsageError(
                f"{self.tokens} tokens hold no sequence of length {seq_q}.",
                hint="Shorten the sequences, or give more tokens or a batch.",
            )
        return (self.tokens // seq_q,)

    def heads_of(self, head_dim: int) -> tuple[tuple[int, int], ...]:
        """Query heads and K/V heads of a head dimension."""
        return self._heads(head_dim, self.heads)

    def _telling(self) -> Iterator[AttentionShape]:
        """Shapes that show whether any of all is off: every value is in one, and the largest and smallest meet."""
        far = _pairs(_ends(self.seqs), _ends(self.seqs_kv))
        head_dims, masks = unique(self.head_dims), self._masks()
        yield from self._shapes(far, head_dims, masks[:1], _ends(self.batches), _ends(self.heads))
        yield from self._shapes(far[:1], head_dims[:1], masks, self.batches[:1], self.heads)

    def _shapes(
        self,
        lengths: Sequence[tuple[int, int]],
        head_dims: Sequence[int],
        masks: Sequence[_Mask],
        batches: tuple[int, ...],
        heads: tuple[int, ...],
    ) -> Iterator[AttentionShape]:
        # A packed batch has no pair of lengths.
        pairs: Sequence[tuple[int, int] | None] = lengths or [None]
        for pair, head_dim, (causal, left, right) in itertools.product(pairs, head_dims, masks):
            mask = (causal, left, right, self.head_dim_v)
            for heads_q, heads_kv in self._heads(head_dim, heads):
                if pair is None and self.seqlens is not None:
                    yield AttentionShape.packed(self.seqlens, heads_q, heads_kv, head_dim, *mask)
                elif pair is not None:
                    for batch in unique(batches) or self.batches_of(pair[0]):
                        sizes = (batch, heads_q, heads_kv, *pair, head_dim)
                        yield AttentionShape(*sizes, *mask)

    def _masks(self) -> tuple[_Mask, ...]:
        return unique(itertools.starmap(_mask, itertools.product(self.causal, self.windows)))

    def _heads(self, head_dim: int, heads: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        if self.hidden is not None:
            if not 1 <= head_dim <= self.hidden:
                raise UsageError(
                    f"A hidden size of {self.hidden} holds no head of {head_dim}.",
                    hint="Give a smaller head_dim, or a larger hidden size or heads.",
                )
            heads = (self.hidden // head_dim,)
        return tuple(
            (heads_q, heads_kv) for heads_q in unique(heads) or (1,) for heads_kv in unique(self.heads_kv) or (heads_q,)
        )


def _mask(causal: bool, window: Window) -> _Mask:
    """Causal, left and right of a shape; a window of all keys up to the query is causal, so that it has one case_id."""
    left, right = window or (None, None)
    if (left, right) == (None, 0):
        return True, None, None
    return causal, left, None if causal else right


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One cell of the plan.

    Parameters
    ----------
    case : Case
        With its tile resolved; ``tile`` is None where the implementation has none, or where none is legal.
    backend : {"cuda", "emulator", "host"}
    status : {"run", "skipped", "unsupported"}
    reason : str
        Why it does not run; empty if it does.
    required_bytes : int, optional
        Predicted peak memory on the backend, None if it could not be asked.
    """

    case: Case
    backend: BackendName
    status: PlanStatus = "run"
    reason: str = ""
    required_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep does, in order."""

    request: SweepRequest
    gpu: Gpu
    cases: tuple[PlannedCase, ...]

    @property
    def runnable(self) -> tuple[PlannedCase, ...]:
        """The cases that run."""
        return tuple(planned for planned in self.cases if planned.status == "run")


class PlanningBackend(Protocol):
    """The part of a backend that planning asks."""

    @property
    def name(self) -> BackendName: ...

    def implementations(self) -> Sequence[str]: ...

    def free_memory_bytes(self) -> int | None: ...

    def required_bytes(self, case: Case) -> int: ...


AlgorithmLookup = Callable[[str], Algorithm | None]


def plan(
    request: SweepRequest,
    backends: Sequence[PlanningBackend],
    gpu: Gpu,
    algorithm_of: AlgorithmLookup = algorithms.find,
) -> SweepPlan:
    """Turn axes into cases.

    Sequence lengths ascend outermost, so that the first rows are quick; at each shape the implementations are
    neighbours, in the order they were asked for. An implementation runs on the first backend that offers it, and
    one without a tile appears once per shape.

    Parameters
    ----------
    request : SweepRequest
    backends : sequence of backends
        In order of preference.
    gpu : Gpu
        Target of tiles, limits and predictions.
    algorithm_of : callable, optional
        Implementation -> its algorithm room or None.

    Raises
    ------
    UsageError
        If an implementation is not offered by any of the backends.
    """
    backend_of: dict[str, PlanningBackend] = {}
    for backend in backends:
        for impl in backend.implementations():
            backend_of.setdefault(impl, backend)
    impls = unique(request.impls) or tuple(backend_of)
    for impl in impls:
        if impl not in backend_of:
            here = ", ".join(backend.name for backend in backends)
            raise UsageError(f"Implementation {impl!r} does not run on {here} here.", nearest(impl, backend_of))
    free = {backend.name: backend.free_memory_bytes() for backend in backends}

    cases: dict[Case, PlannedCase] = {}
    for bare in request.cases(impls):
        backend = backend_of[bare.impl]
        for planned in _planned(bare, algorithm_of(bare.impl), request, gpu, backend, free[backend.name]):
            cases.setdefault(planned.case, planned)
    return SweepPlan(request, gpu, tuple(cases.values()))


def _planned(
    bare: Case,
    algorithm: Algorithm | None,
    request: SweepRequest,
    gpu: Gpu,
    backend: PlanningBackend,
    free_bytes: int | None,
) -> Iterator[PlannedCase]:
    """The cells of one implementation at one shape: one per tile, or one if it has no tile."""
    if reason := algorithms.lacking(bare, algorithm):
        yield PlannedCase(bare, backend.name, "unsupported", reason)
        return
    if algorithm is None:
        yield _within_memory(bare, backend, free_bytes)
        return
    for tile in _tiles(bare, algorithm, request, gpu) if algorithm.uses_tile else (None,):
        if isinstance(tile, Unsupported):
            yield PlannedCase(bare, backend.name, "unsupported", tile.message)
            continue
        case = replace(bare, tile=tile)
        status, reason = judged(case, algorithm, gpu)
        if status == "run":
            yield _within_memory(case, backend, free_bytes)
        else:
            yield PlannedCase(case, backend.name, status, reason)


def judged(case: Case, algorithm: Algorithm, gpu: Gpu) -> tuple[PlanStatus, str]:
    """Whether a case with its tile can run on ``gpu``, and why not."""
    reason = algorithm.unsupported(case, gpu)
    if reason is None:
        return "run", ""
    # A smaller tile would fit: the case is skipped. A type or architecture without a kernel: unsupported.
    fits = algorithm.smem_bytes(case) <= gpu.smem_per_block_bytes
    return "unsupported" if fits else "skipped", reason


def _tiles(bare: Case, algorithm: Algorithm, request: SweepRequest, gpu: Gpu) -> Iterator[Tile | Unsupported]:
    for block in unique(request.blocks):
        for stages in unique(request.stages) or (None,):
            try:
                if block == "auto":
                    tile = algorithm.auto_tile(bare, gpu)
                    if stages is not None:
                        tile = replace(tile, stages=stages)
                else:
                    tile = Tile(*block, stages=1 if stages is None else stages)
                yield algorithm.resolve(bare, tile)
            except Unsupported as error:
                yield error


def _within_memory(case: Case, backend: PlanningBackend, free_bytes: int | None) -> PlannedCase:
    try:
        required = backend.required_bytes(case)
    except Unsupported as error:
        return PlannedCase(case, backend.name, "unsupported", error.message)
    if free_bytes is not None and required > free_bytes:
        reason = f"It needs {format_bytes(required)} of memory; {format_bytes(free_bytes)} are free."
        return PlannedCase(case, backend.name, "skipped", reason, required)
    return PlannedCase(case, backend.name, required_bytes=required)


def _pairs(seqs: Iterable[int], seqs_kv: Iterable[int]) -> list[tuple[int, int]]:
    """Lengths of queries and keys, ascending; square where there are none of keys."""
    return [(seq_q, seq_kv) for seq_q in sorted(set(seqs)) for seq_kv in sorted(set(seqs_kv)) or [seq_q]]


def _ends(values: Iterable[int]) -> tuple[int, ...]:
    """The smallest and the largest."""
    ascending = sorted(set(values))
    return tuple(ascending[:: max(1, len(ascending) - 1)])


def unique(items: Iterable[Item]) -> tuple[Item, ...]:
    """``items`` in their order, each once."""
    return tuple(dict.fromkeys(items))
