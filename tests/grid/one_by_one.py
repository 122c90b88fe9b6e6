"""Grids expanded to cases, and the same cases planned and predicted one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fa_bench.cli.planning import ModelOnly
from fa_bench.grid.predict import blocks
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.build import Predictor, case_columns, predicted_columns
from fa_bench.sweep.plan import SweepRequest, plan
from fa_bench.sweep.predict import predict_global

Row = dict[str, Any]


def from_grid(request: SweepRequest, gpu: Gpu, predictor: Predictor = predict_global) -> list[Row]:
    """A row per case, numbers as Python's."""
    rows = []
    for block in blocks(request, (ModelOnly(),), gpu, predictor):
        columns = {"status": block.status, "reason": block.reason, **block.columns}
        arrays = {name: values.tolist() for name, values in columns.items() if isinstance(values, np.ndarray)}
        assert {len(values) for values in arrays.values()} <= {block.count}
        rows += [
            {name: arrays[name][index] if name in arrays else value for name, value in columns.items()}
            for index in range(block.count)
        ]
    return rows


def one_by_one(request: SweepRequest, gpu: Gpu, predictor: Predictor = predict_global) -> list[Row]:
    """The same from the plan of a sweep, case by case."""
    return [
        {
            "status": planned.status,
            "reason": planned.reason,
            "gpu": gpu.slug,
            **case_columns(planned.case),
            **predicted_columns(predictor(planned.case, gpu)),
        }
        for planned in plan(request, (ModelOnly(),), gpu).cases
    ]


def in_order(rows: list[Row]) -> list[Row]:
    """Rows in an order of their own: a grid has another than a plan."""
    return sorted(rows, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))
