"""From groups of cases to columns of predictions, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fa_bench import algorithms
from fa_bench.algorithms.tensors import padded_head_dim
from fa_bench.algorithms.tiles import GRID_LIMIT
from fa_bench.cases import Case
from fa_bench.grid.block import Block
from fa_bench.grid.plan import Group, groups
from fa_bench.grid.sizes import Sizes, grid_case
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.build import Predictor, case_columns, predicted_columns
from fa_bench.sweep.plan import PlannedCase, PlanningBackend, SweepRequest, judged, plan
from fa_bench.sweep.predict import predict_global


def blocks(
    request: SweepRequest, backends: Sequence[PlanningBackend], gpu: Gpu, predictor: Predictor = predict_global
) -> Iterator[Block]:
    """Predictions of all cases of ``request``, at most `fa_bench.grid.plan.BLOCK_CASES` at a time.

    Parameters
    ----------
    request : SweepRequest
        Its implementations named.
    backends : sequence of backends
        In order of preference.
    gpu : Gpu
    predictor : callable, optional
        What is predicted: by default global bytes, FLOPs, exponentials and compulsory bytes.
        :func:`fa_bench.sweep.predict.predict` adds DRAM bytes and what rests on them, and takes far longer.
    """
    ours = tuple(impl for impl in request.impls if impl in algorithms.names() and request.seqlens is None)
    others = tuple(impl for impl in request.impls if impl not in ours)
    if ours:
        for group in groups(replace(request, impls=ours), backends, gpu):
            for sizes in group.blocks():
                yield from _predicted(group, sizes, gpu, predictor)
    if others:
        for planned in plan(replace(request, impls=others), backends, gpu).cases:
            yield _block(planned, planned.case, 1, gpu, predictor)


def _predicted(group: Group, sizes: Sizes, gpu: Gpu, predictor: Predictor) -> Iterator[Block]:
    """The cases of ``sizes`` in one block, and each in a block of its own that arrays can't hold."""
    case = group.planned.case
    apart = sizes.exceed_64_bits(padded_head_dim(max(case.shape.head_dim, case.shape.dim_v)))
    if case.tile is not None and not apart.all():
        within = ~apart
        apart[within] = _beyond_a_grid(grid_case(case, sizes.chosen(within)))
    together = sizes.chosen(~apart)
    if len(together):
        planned = _replanned(group.planned, together.case(case, 0), gpu)
        yield _block(planned, grid_case(case, together), len(together), gpu, predictor)
    for index in np.flatnonzero(apart).tolist():
        planned = _replanned(group.planned, sizes.case(case, index), gpu)
        yield _block(planned, planned.case, 1, gpu, predictor)


def _block(planned: PlannedCase, case: Case, count: int, gpu: Gpu, predictor: Predictor) -> Block:
    columns = {"gpu": gpu.slug, **case_columns(case), **predicted_columns(predictor(case, gpu))}
    return Block(count, planned.status, planned.reason, case, columns)


def _beyond_a_grid(case: Case) -> npt.NDArray[np.bool_]:
    """Which cases have a launch with more CTAs than a grid holds, which is refused case by case."""
    launches = algorithms.get(case.impl).program(case).launches
    ctas: npt.NDArray[np.int64] = np.max([launch.grid[0] for launch in launches], axis=0)
    return ctas > GRID_LIMIT


def _replanned(planned: PlannedCase, case: Case, gpu: Gpu) -> PlannedCase:
    """Another case of the same group, planned on its own."""
    if case.tile is None:
        return replace(planned, case=case)
    status, reason = judged(case, algorithms.get(case.impl), gpu)
    return replace(planned, case=case, status=status, reason=reason)
