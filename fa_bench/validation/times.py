"""Published times beside predicted ones: FlashAttention's tables, and what others published since.

``fa1-runtimes`` has the runtime tables of FlashAttention (arXiv 2205.14135, tables 7 and 9 to 20), ``times`` every
other published time or rate that constants may be fitted to, and ``held-out`` those that none is fitted to. Which
figures are left out is in the data and was decided without a prediction (`fa_bench.published`); beside the error
without them stands the error with all of them that are cases.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.published import Point, held_out, incomplete, points
from fa_bench.validation.predicting import PredictTime
from fa_bench.validation.result import (
    Column,
    Comparison,
    LeftOut,
    Score,
    Summary,
    Validation,
    Value,
    deviation,
    known_deviations,
    mean_or_none,
    score,
)

FA1_NAME: Final = "fa1-runtimes"
NAME: Final = "times"
HELD_OUT_NAME: Final = "held-out"
_FA1_SOURCES: Final = ("FlashAttention table 7", "FlashAttention tables 9-20")

Row = Mapping[str, Value]


def validate_fa1(predict: PredictTime) -> Validation:
    """Predict every runtime of FlashAttention's tables."""
    rows = _rows(predict, _fa1_points())
    published = "FlashAttention (arXiv 2205.14135), tables 7 and 9 to 20: D = 64, A100 40 GB"
    return _validation(FA1_NAME, published, rows, ())


def validate(predict: PredictTime) -> Validation:
    """Predict every other published time."""
    rows = _rows(predict, _other_points())
    published = "papers, blogs, issues and benchmark repositories, row by row in fa_bench/data/published_points.csv"
    return _validation(NAME, published, rows, [(row.source, row.left_out) for row in incomplete()])


def validate_held_out(predict: PredictTime) -> Validation:
    """Predict the published times that no constant is fitted to."""
    published = "held out: never fitted; row by row in fa_bench/data/held_out_points.csv"
    return _validation(HELD_OUT_NAME, published, _rows(predict, held_out()), ())


def _fa1_points() -> list[Point]:
    return [point for point in points() if point.source in _FA1_SOURCES]


def _other_points() -> list[Point]:
    return [point for point in points() if point.source not in _FA1_SOURCES]


def _rows(predict: PredictTime, wanted: Iterable[Point]) -> tuple[Row, ...]:
    cached = functools.cache(predict)
    return tuple(_row(cached, point) for point in wanted)


def _row(predict: PredictTime, point: Point) -> Row:
    s = point.shape
    known: dict[str, Value] = {
        "published_by": point.source,
        "gpu": point.gpu,
        "gpu_published": point.gpu_published,
        "impl": point.impl,
        "impl_published": point.impl_published,
        "direction": point.direction,
        "dtype": point.dtype,
        "batch": s.batch,
        "heads_q": s.heads_q,
        "heads_kv": s.heads_kv,
        "seq_q": s.seq_q,
        "seq_kv": s.seq_kv,
        "head_dim": s.head_dim,
        "causal": s.causal,
        "dropout_p": point.features.dropout_p,
        "padding_mask": point.masked,
        "value_published": point.value,
        "unit_published": point.unit,
        "time_ms_published": point.ms,
    }
    try:
        ours = predict(point.case(), gpus.get(point.gpu))
    except Unsupported as error:
        return known | _prediction(None) | {"left_out": point.left_out, "no_model": error.message}
    return (
        known
        | _prediction((ours.ms, ours.low_ms, ours.high_ms, ours.limiter, deviation(ours.ms, point.ms)))
        | {"left_out": point.left_out, "no_model": None}
    )


_PREDICTION: Final = ("time_ms_model", "time_low_ms_model", "time_high_ms_model", "limiter_model", "time_deviation")


def _prediction(values: tuple[Value, ...] | None) -> dict[str, Value]:
    return dict.fromkeys(_PREDICTION) if values is None else dict(zip(_PREDICTION, values, strict=True))


def _validation(name: str, published: str, rows: tuple[Row, ...], missing: Iterable[tuple[str, str]]) -> Validation:
    by_source = _groups(rows, "published_by", "gpu")
    summaries = (_by_publication(by_source), _by_implementation(rows))
    left_out = Counter((str(row["published_by"]), str(row["left_out"])) for row in rows if row["left_out"])
    left_out.update(missing)
    left_out.update((str(row["impl"]), str(row["no_model"])) for row in rows if row["no_model"] and not row["left_out"])
    return Validation(
        name,
        published,
        (Comparison("times", "times, published and predicted", _COLUMNS, rows, "", summaries),),
        tuple(LeftOut(what, count, reason) for (what, reason), count in left_out.items()),
        scores=tuple(found for names, group in by_source.items() if (found := _score(names, group)).all_figures),
    )


_COLUMNS: Final = (
    Column("published_by", "published by"),
    Column("gpu", "GPU"),
    Column("impl", "ours"),
    Column("time_ms_published", "published", "ms"),
    Column("time_ms_model", "predicted", "ms"),
    Column("time_deviation", "error", "deviation"),
)


def _groups(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[name]) for name in names), []).append(row)
    return found


def _deviations(rows: Iterable[Row]) -> list[float]:
    return known_deviations(rows, "time_deviation")


def _kept(row: Row) -> bool:
    return row["left_out"] is None


def _score(names: tuple[str, ...], group: Sequence[Row]) -> Score:
    what, gpu = names
    return score(what, gpu, _deviations(filter(_kept, group)), _deviations(itertools.filterfalse(_kept, group)))


def _by_publication(groups: Mapping[tuple[str, ...], Sequence[Row]]) -> Summary:
    rows: list[Row] = []
    for (publication, gpu), group in groups.items():
        kept, both = _deviations(filter(_kept, group)), _deviations(group)
        if both:
            inside = [_inside(row) for row in group if _kept(row) and row["time_ms_model"] is not None]
            rows.append(
                {
                    "published_by": publication,
                    "gpu": gpu,
                    "figures": len(kept),
                    "mape": mean_or_none(kept),
                    "inside": sum(inside) / len(inside) if inside else None,
                    "all_figures": len(both),
                    "all_mape": mean_or_none(both),
                }
            )
    columns = (
        Column("published_by", "published by"),
        Column("gpu", "GPU"),
        Column("figures", "n", "count"),
        Column("mape", "MAPE", "percent"),
        Column("inside", "inside", "percent"),
        Column("all_figures", "all", "count"),
        Column("all_mape", "MAPE", "percent"),
    )
    note = (
        "inside: published times that lie in the predicted interval. all: with the figures that are left out and are "
        "cases of an implementation that has a model."
    )
    return Summary("Times, by publication and GPU", columns, tuple(rows), note)


def _by_implementation(rows: Iterable[Row]) -> Summary:
    found: list[Row] = []
    for (impl, gpu, direction), group in _groups(rows, "impl", "gpu", "direction").items():
        if kept := _deviations(filter(_kept, group)):
            found.append(
                {
                    "impl": impl,
                    "gpu": gpu,
                    "direction": direction,
                    "figures": len(kept),
                    "mape": mean_or_none(kept),
                    "bias": sum(kept) / len(kept),
                    "worst": max(kept, key=abs),
                }
            )
    columns = (
        Column("impl", "implementation"),
        Column("gpu", "GPU"),
        Column("direction", "pass"),
        Column("figures", "n", "count"),
        Column("mape", "MAPE", "percent"),
        Column("bias", "bias", "deviation"),
        Column("worst", "worst", "deviation"),
    )
    note = "bias: the mean of the signed errors. A row for every figure is in --format csv and json."
    return Summary("Times, by implementation", columns, tuple(found), note)


def _inside(row: Row) -> bool:
    published, low, high = row["time_ms_published"], row["time_low_ms_model"], row["time_high_ms_model"]
    assert isinstance(published, float) and isinstance(low, float) and isinstance(high, float)
    return low <= published <= high
