"""Runs to compare, written as a sweep leaves them; used by the tests of the command and of the tables as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fa_bench.measure.statistics import quantile
from fa_bench.records import Record, TensorTraffic
from fa_bench.sweep.journal import CaseSamples, run_files
from fa_bench.sweep.manifest import Identity, Manifest

#: Twenty-one times around 1 ms, from 0.990 to 1.010 in steps of 0.001, in an order without a trend.
NOISE = tuple(0.990 + 0.001 * (8 * i % 21) for i in range(21))
CONSTANT = (1.0,) * 20
#: Half at 1.0 ms, half at 1.2 ms.
BIMODAL = (1.0, 1.2) * 10
#: Sixty times that rise from 1.0 to 1.1 ms.
DRIFT = tuple(1.0 + 0.1 * i / 59 for i in range(60))


def record(**fields: Any) -> Record:
    """A verified flash2 row of a GPU without a time, but for what is given."""
    defaults: dict[str, Any] = {
        "run_id": "r", "case_id": "c", "timestamp": "2026-01-01T00:00:00+00:00", "impl": "flash2",
        "impl_version": "1", "backend": "cuda", "device": "a GPU", "gpu": "a100-sxm-80", "dtype": "fp16",
        "direction": "fwd", "layout": "bhsd", "batch": 1, "heads_q": 1, "heads_kv": 1, "seq_q": 4096, "seq_kv": 4096,
        "head_dim": 64, "causal": False, "block_m": 128, "block_n": 64, "stages": 1, "num_warps": 4, "seed": 0,
        "status": "ok", "max_abs_err": 1e-4, "err_reference": "fp64", "nvrtc_version": "13.0",
        "registers": 128, "smem_bytes": 49152, "spill_bytes": 0,
    }  # fmt: skip
    return Record(**(defaults | fields))


def timed(times_ms: Sequence[float], **fields: Any) -> Record:
    """A row with what a sweep writes of these samples."""
    ordered = sorted(times_ms)
    time = {
        "time_ms": quantile(ordered, 0.5), "time_p20_ms": quantile(ordered, 0.2), "time_p80_ms": quantile(ordered, 0.8),
        "time_samples": len(ordered), "time_source": "cuda-events", "l2_state": "cold", "noisy": False,
        "throttled": False, "launch_bound": False, "sm_clock_mhz": 1410.0,
    }  # fmt: skip
    return record(**(time | fields))


def failed(status: str = "error", **fields: Any) -> Record:
    """A row without a result."""
    return record(**({"status": status, "status_reason": "It broke", "max_abs_err": None, "registers": None} | fields))


def moved(
    tensor: str, op: str, nbytes: int, *, level: str = "global", source: str = "model", case_id: str = "c"
) -> TensorTraffic:
    """One line of traffic.csv."""
    return TensorTraffic(case_id=case_id, kernel="fwd", tensor=tensor, op=op, level=level, source=source, bytes=nbytes)


def manifest(run_id: str = "r", *, driver: str | None = "550.54", finished: bool = True, **identity: Any) -> Manifest:
    fields: dict[str, Any] = {
        "tool_version": "0.1.0", "nvrtc_version": "13.0", "gpu": "a100-sxm-80", "devices": {"cuda": "a GPU"},
    }  # fmt: skip
    return Manifest(
        run_id=run_id,
        created="2026-01-01T00:00:00+00:00",
        identity=Identity(**(fields | identity)),
        command=f"fa-bench sweep --out {run_id}",
        argv=("sweep", "--out", run_id),
        request={},
        environment={"driver": driver, "git_commit": "abc"},
        gpu={},
        finished="2026-01-01T00:01:00+00:00" if finished else None,
    )


def write(
    folder: Path,
    rows: Iterable[Record],
    samples: Iterable[tuple[Record, Sequence[float]]] = (),
    traffic: Iterable[TensorTraffic] = (),
    **about: Any,
) -> Path:
    """Write a run folder; ``about`` is what `manifest` takes."""
    folder.mkdir(parents=True)
    lines = [CaseSamples(r.case_id, r.backend, "cuda-events", "cold", tuple(times)) for r, times in samples]
    for name, text in run_files(manifest(**{"run_id": folder.name} | about), rows, traffic, lines).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_timed(folder: Path, times_ms: Sequence[float], *, keep: bool = True, about: Any = (), **fields: Any) -> Path:
    """Write a run of one timed row, with its samples if ``keep``."""
    row = timed(times_ms, **fields)
    return write(folder, [row], [(row, times_ms)] if keep else [], **dict(about))
