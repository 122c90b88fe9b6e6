"""Cases, run or not, as rows. Whatever happens to one becomes a status; nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fa_bench.backends.base import Backend, Outcome, RunResult, TakesTurns
from fa_bench.cases import Case
from fa_bench.errors import OutOfMemory, Unsupported, described
from fa_bench.model.gpu import Gpu
from fa_bench.records import Status, TensorTraffic
from fa_bench.sweep.build import (
    Prediction,
    Predictor,
    Site,
    run_record,
    source_of,
    traffic_rows,
    unrun_record,
)
from fa_bench.sweep.counters import checked
from fa_bench.sweep.journal import CaseRows, CaseSamples
from fa_bench.sweep.plan import PlannedCase, PlanStatus


def run_case(planned: PlannedCase, backend: Backend, site: Site, predict: Predictor) -> CaseRows:
    """Run one case, see `run_group`."""
    return run_group((planned,), backend, site, predict)[0]


def run_group(group: Sequence[PlannedCase], backend: Backend, site: Site, predict: Predictor) -> tuple[CaseRows, ...]:
    """Predict cases, run them unless the plan says otherwise, several in turns, and put both into rows.

    Known failures become their status: out of memory ``oom``, unsupported ``unsupported``; any other exception
    ``error``, with its sentence or, where it is unknown, its type and place. The other cases go on.

    Parameters
    ----------
    group : sequence of PlannedCase
        On ``backend``. One with status ``skipped`` or ``unsupported`` does not run and is a row with its reason and
        prediction.
    backend : Backend
    site : Site
    predict : callable
        (case, gpu) -> Prediction.
    """
    predictions = [_prediction(planned.case, planned.status, site, predict) for planned in group]
    running = [
        planned.case
        for planned, prediction in zip(group, predictions, strict=True)
        if planned.status == "run" and isinstance(prediction, Prediction)
    ]
    outcomes = dict(zip(running, _outcomes(running, backend, site.gpu), strict=True))
    return tuple(
        _rows(planned, site, prediction, outcomes.get(planned.case))
        for planned, prediction in zip(group, predictions, strict=True)
    )


def _prediction(case: Case, status: PlanStatus, site: Site, predict: Predictor) -> Prediction | Exception:
    """What the models say; of a kernel that does not exist only what is true of any."""
    try:
        prediction = predict(case, site.gpu)
        return prediction.without_gpu() if site.backend == "host" or status == "unsupported" else prediction
    except Exception as error:
        return error


def _outcomes(cases: Sequence[Case], backend: Backend, gpu: Gpu) -> Sequence[Outcome]:
    """What became of each case; those of a backend that takes turns run together."""
    if len(cases) > 1 and isinstance(backend, TakesTurns):
        try:
            return backend.run_together(cases, gpu)
        except Exception as error:
            return [error] * len(cases)
    outcomes: list[Outcome] = []
    for case in cases:
        try:
            outcomes.append(backend.run(case, gpu))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def _rows(planned: PlannedCase, site: Site, prediction: Prediction | Exception, outcome: Outcome | None) -> CaseRows:
    if isinstance(prediction, Exception):
        return _failed(planned, site, prediction)
    if planned.status != "run":
        return unrun_rows(planned, site, planned.status, planned.reason, prediction)
    if not isinstance(outcome, RunResult):
        assert outcome is not None, "every case that runs has an outcome"
        return _failed(planned, site, outcome, prediction)
    try:
        outcome = _believed(outcome, planned.case, prediction)
        record = run_record(site, planned.case, outcome, prediction)
        return CaseRows(record, _traffic(planned, prediction, outcome), _samples(planned, outcome))
    except Exception as error:  # the backend gave what cannot be
        return _failed(planned, site, error, prediction)


def _failed(planned: PlannedCase, site: Site, error: Exception, prediction: Prediction | None = None) -> CaseRows:
    status: Status = "error"
    if isinstance(error, Unsupported):
        status = "unsupported"
    elif isinstance(error, OutOfMemory | MemoryError):
        status = "oom"
    reason = "The machine ran out of memory." if isinstance(error, MemoryError) else described(error)
    return unrun_rows(planned, site, status, reason, prediction)


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
    if result is not None and result.emulated is not None:
        rows += traffic_rows(planned.case, result.emulated.traffic, "emulated")
    if result is not None and result.hardware is not None and result.hardware.counts is not None:
        rows += traffic_rows(planned.case, result.hardware.counts.traffic, "measured")
    return tuple(rows)


def _believed(outcome: RunResult, case: Case, prediction: Prediction) -> RunResult:
    """``outcome`` without hardware counts that cannot be."""
    if outcome.hardware is None:
        return outcome
    return replace(outcome, hardware=checked(outcome.hardware, case, prediction.compulsory_read_bytes))


def _samples(planned: PlannedCase, result: RunResult) -> CaseSamples | None:
    taken = result.samples
    if taken is None:
        return None
    times_ms = tuple(float(time_ms) for time_ms in taken.times_ms)
    return CaseSamples(planned.case.case_id, planned.backend, taken.source, taken.l2_state or None, times_ms)
