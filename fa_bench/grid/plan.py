"""From axes to groups of cases that are planned alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fa_bench.algorithms.tiles import length_kind
from fa_bench.grid.sizes import IntArray, Sizes
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.plan import PlannedCase, PlanningBackend, SweepRequest, plan

#: Cases of a block: few enough for a core's caches, enough that a call of NumPy is for many.
BLOCK_CASES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that differ in batch, heads and lengths, and whose tile does not depend on them.

    Parameters
    ----------
    planned : PlannedCase
        One of them, as it is planned.
    seq_q, seq_kv : ndarray of int64
        Lengths, pair by pair.
    batches : ndarray of int64
        Batch sizes, ``[length, batch]``.
    heads : ndarray of int64
        Query heads and K/V heads, ``[pair, 2]``.
    """

    planned: PlannedCase
    seq_q: IntArray
    seq_kv: IntArray
    batches: IntArray
    heads: IntArray

    def __len__(self) -> int:
        return self.batches.size * len(self.heads)

    def blocks(self) -> Iterator[Sizes]:
        """Sizes of the cases, lengths ascending outermost, then batches, then heads."""
        for start in range(0, len(self), BLOCK_CASES):
            places = np.arange(start, min(start + BLOCK_CASES, len(self)))
            length, batch, heads = np.unravel_index(places, (*self.batches.shape, len(self.heads)))
            heads_q, heads_kv = self.heads[heads].T
            yield Sizes(self.batches[length, batch], heads_q, heads_kv, self.seq_q[length], self.seq_kv[length])


def groups(request: SweepRequest, backends: Sequence[PlanningBackend], gpu: Gpu) -> Iterator[Group]:
    """The cases of ``request`` in groups: lengths of a kind ascending outermost, then as a plan orders them.

    Parameters
    ----------
    request : SweepRequest
        Not of a packed batch.
    backends : sequence of backends
        In order of preference; how much memory they have plays no part.
    gpu : Gpu
    """
    lengths = sorted(request.lengths(), key=lambda pair: (*map(length_kind, pair), *pair))
    for _, alike in itertools.groupby(lengths, lambda pair: tuple(map(length_kind, pair))):
        pairs = list(alike)
        seq_q, seq_kv = np.array(pairs, np.int64).T
        batches = np.array([request.batches_of(seq) for seq, _ in pairs], np.int64)
        one = replace(
            request,
            seqs=pairs[0][:1],
            seqs_kv=pairs[0][1:],
            batches=request.batches[:1],
            heads=request.heads[:1],
            heads_kv=request.heads_kv[:1],
        )
        for planned in plan(one, backends, gpu).cases:
            heads = np.array(request.heads_of(planned.case.shape.head_dim), np.int64)
            yield Group(planned, seq_q, seq_kv, batches, heads)


def case_count(request: SweepRequest, impls: int) -> int:
    """Cases of ``request`` at most: those that come out alike are counted once only in its plan.

    Parameters
    ----------
    impls : int
        Implementations.
    """
    if request.seqlens is not None:
        lengths = 1
    else:
        lengths = sum(len(request.batches_of(seq_q)) for seq_q, _ in request.lengths())
    heads = sum(len(request.heads_of(head_dim)) for head_dim in set(request.head_dims))
    count = lengths * heads * impls
    for axis in (request.causal, request.windows, request.dtypes, request.layouts, request.directions):
        count *= len(set(axis))
    return count * len(set(request.features)) * len(set(request.blocks)) * max(1, len(set(request.stages)))
