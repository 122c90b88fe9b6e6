"""One case, run or not, as rows. Whatever happens to it becomes a status; nothing is written here."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fa_bench.backends.base import Backend, RunResult
from fa_bench.errors import FaBenchError, OutOfMemory, Unsupported
from fa_bench.records import Record, Status, TensorTraffic
from fa_bench.sweep.build import (
    Prediction,
    Predictor,
    Site,
    run_record,
    source_of,
    traffic_rows,
    unrun_record,
)
from fa_bench.sweep.journal import CaseSamples
from fa_bench.sweep.plan import PlannedCase

#: Characters of an unknown error's message that a row keeps.
_MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class CaseRows:
    """All that is kept of one case: its record, its lines of ``traffic.csv`` and its raw times."""

    record: Record
    traffic: tuple[TensorTraffic, ...] = ()
    samples: CaseSamples | None = None


def run_case(planned: PlannedCase, backend: Backend, site: Site, predict: Predictor) -> CaseRows:
    """Predict a case, run it unless the plan says otherwise, and put both into rows.

    Known failures become their status: out of memory ``oom``, unsupported ``unsupported``; any other exception
    ``error``, with its sentence or, where it is unknown, its type and place.

    Parameters
    ----------
    planned : PlannedCase
        With status ``skipped`` or ``unsupported`` it does not run and is a row with its reason and prediction.
    backend : Backend
    site : Site
    predict : callable
        (case, gpu) -> Prediction.
    """
    prediction: Prediction | None = None
    try:
        prediction = predict(planned.case, site.gpu)
        if planned.status != "run":
            return unrun_rows(planned, site, planned.status, planned.reason, prediction)
        result = backend.run(planned.case, site.gpu)
        record = run_record(site, planned.case, result, prediction)
        traffic = _traffic(planned, prediction, result)
    except Unsupported as error:
        return unrun_rows(planned, site, "unsupported", error.message, prediction)
    except OutOfMemory as error:
        return unrun_rows(planned, site, "oom", error.message, prediction)
    except MemoryError:
        return unrun_rows(planned, site, "oom", "The machine ran out of memory.", prediction)
    except Exception as error:
        return unrun_rows(planned, site, "error", _reason(error), prediction)
    return CaseRows(record, traffic, _samples(planned, result))


def unrun_rows(
    planned: PlannedCase, site: Site, status: Status, reason: str, prediction: Prediction | None = None
) -> CaseRows:
    """Rows of a case without a result: what was predicted stays."""
    record = unrun_record(site, planned.case, status, reason, prediction)
    return CaseRows(record, _traffic(planned, prediction, None))


def _traffic(
    planned: PlannedCase, prediction: Prediction | None, result: RunResult | None
) -> tuple[TensorTraffic, ...]:
    rows: list[TensorTraffic] = []
    if prediction is not None:
        rows += traffic_rows(planned.case, prediction.traffic, "model")
    if result is not None and result.counts is not None:
        rows += traffic_rows(planned.case, result.counts.traffic, source_of(planned.backend))
    return tuple(rows)


def _samples(planned: PlannedCase, result: RunResult) -> CaseSamples | None:
    taken = result.samples
    if taken is None:
        return None
    times_ms = tuple(float(time_ms) for time_ms in taken.times_ms)
    return CaseSamples(planned.case.case_id, planned.backend, taken.source, taken.l2_state or None, times_ms)


def _reason(error: Exception) -> str:
    """A known error's sentence; of an unknown one its type, message and place, since the sweep goes on without it."""
    if isinstance(error, FaBenchError):
        return error.message
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({Path(place.filename).name}:{place.lineno})"[:_MAX_REASON]
