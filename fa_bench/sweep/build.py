"""From what is known of a case to its rows: pure functions of the case, its prediction and its run's result."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from fa_bench.algorithms.base import Op, TensorBytes, Work
from fa_bench.backends.base import BackendName, Counts, Level, Resources, RunResult, Samples, Verification
from fa_bench.cases import INIT, Case
from fa_bench.measure.statistics import quantile
from fa_bench.model.flops import tflops
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import occupancy
from fa_bench.records import Record, Source, Status, TensorTraffic
from fa_bench.sweep.counters import counter_columns
from fa_bench.units import format_bytes, format_error, format_ms, format_si

_OPS: Final[tuple[Op, Op]] = ("read", "write")
_LIKELY_CAUSE: Final = "Likely the timed launches did not do all of the work, or the GPU is another one than that."


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the models say of a case; None and empty where they say nothing.

    Parameters
    ----------
    flops_nominal : int
        As the FlashAttention papers count, see ``fa_bench.model.flops``.
    compulsory_read_bytes, compulsory_write_bytes : int
        Q, K and V once; O once.
    impl_version : str, optional
    work : Work, optional
        FLOPs and exponentials that are executed, whole tiles counted.
    traffic : mapping of level to sequence of TensorBytes
        Bytes per kernel, tensor and direction; exact at the level ``global``.
    roofline_ms : float, optional
    roofline_limiter : str, optional
    roofline_source : {"datasheet", "measured"}, optional
        Whose peaks the roofline rests on; None without one.
    arithmetic_intensity : float, optional
        Nominal FLOPs per byte of modelled dram traffic.
    library_tile : (int, int), optional
        Rows of Q and of K/V in the tile that a library chooses for the case; it is no part of the case.
    """

    flops_nominal: int
    compulsory_read_bytes: int
    compulsory_write_bytes: int
    impl_version: str | None = None
    work: Work | None = None
    traffic: Mapping[Level, Sequence[TensorBytes]] = field(default_factory=dict)
    roofline_ms: float | None = None
    roofline_limiter: str | None = None
    roofline_source: Literal["datasheet", "measured"] | None = None
    arithmetic_intensity: float | None = None
    library_tile: tuple[int, int] | None = None

    def without_gpu(self) -> Prediction:
        """What stays true on the host, where the same name stands for other code."""
        return Prediction(
            self.flops_nominal, self.compulsory_read_bytes, self.compulsory_write_bytes, impl_version=self.impl_version
        )


Predictor = Callable[[Case, Gpu], Prediction]


@dataclass(frozen=True, slots=True)
class Site:
    """Where and when a row came to be."""

    run_id: str
    timestamp: datetime
    backend: BackendName
    device: str
    gpu: Gpu


def unrun_record(site: Site, case: Case, status: Status, reason: str, prediction: Prediction | None) -> Record:
    """The row of a case that gave no result: identity, ``status`` with its reason, and what was predicted."""
    predicted = {} if prediction is None else predicted_columns(prediction)
    return Record(**(_identity(site, case) | predicted), status=status, status_reason=reason)


def run_record(site: Site, case: Case, result: RunResult, prediction: Prediction) -> Record:
    """The row of a case that ran.

    Its status is ``ok`` only if the output was verified and the times are possible: a time that is not above zero,
    or that beats the target's peak FLOP/s or bandwidth on a GPU, is ``invalid_timing`` and leaves no time.

    Raises
    ------
    ValueError
        Naming the column, when the backend returned an impossible value.
    """
    fault = None
    if result.samples is not None:
        fault = timing_fault(case, result.samples, prediction, site)
    columns = _identity(site, case) | predicted_columns(prediction) | _measured(result)
    status, reason = _verdict(result.verification)
    if status == "ok" and fault is not None:
        status, reason = "invalid_timing", fault
    if result.samples is not None and fault is None:
        columns |= _times(result.samples, prediction.flops_nominal)
        if site.backend == "cuda":
            columns["fits_l2"] = _tensor_bytes(prediction) <= site.gpu.l2_bytes
    if result.counts is not None:
        columns |= _counted(result.counts, source_of(site.backend))
    if result.emulated is not None:
        columns |= _counted(result.emulated, "emulated")
    if result.hardware is not None:
        columns |= counter_columns(result.hardware)
    if result.resources is not None:
        columns["blocks_per_sm"] = blocks_per_sm(result.resources, site.gpu)
    return Record(**columns, status=status, status_reason=reason)


def traffic_rows(case: Case, traffic: Mapping[Level, Sequence[TensorBytes]], source: Source) -> list[TensorTraffic]:
    """Rows of ``traffic.csv``; what a kernel does to a tensor in several launches is summed."""
    same: defaultdict[tuple[Level, str, str, Op], list[TensorBytes]] = defaultdict(list)
    for level, parts in traffic.items():
        for part in parts:
            same[level, part.kernel, part.tensor, part.op].append(part)
    return [
        TensorTraffic(
            case_id=case.case_id,
            kernel=kernel,
            tensor=tensor,
            op=op,
            level=level,
            source=source,
            bytes=sum(int(part.bytes) for part in parts),
            requests=_sum_known(part.requests for part in parts),
            hit_bytes=_sum_known(part.hit_bytes for part in parts),
        )
        for (level, kernel, tensor, op), parts in same.items()
    ]


def _sum_known(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += int(value)
    return total


def source_of(backend: BackendName) -> Source:
    """Where a backend's counts come from."""
    return "emulated" if backend == "emulator" else "measured"


def blocks_per_sm(resources: Resources, gpu: Gpu) -> int | None:
    """CTAs of the case's largest kernel that are resident on one SM; None if its resources are not known."""
    smem_bytes, registers = resources.smem_bytes, resources.registers
    if smem_bytes is None or registers is None:
        return None
    return occupancy(gpu, threads=resources.threads, smem_bytes=smem_bytes, registers=registers).blocks_per_sm


def timing_fault(case: Case, samples: Samples, prediction: Prediction, site: Site) -> str | None:
    """Why the times cannot be true, or None.

    On a GPU the median is held against two floors: nominal FLOPs at the dtype's dense peak, and the compulsory
    reads that cannot be in L2 (all of them if it was cold) at the peak bandwidth. Both peaks are the data sheet's, the
    former at the highest clock; the sentence says so, and what such a time comes from as a rule.
    """
    times = samples.times_ms
    if not times:
        return "No time was sampled."
    worst = min(times, key=lambda t: t if math.isfinite(t) else -math.inf)
    if not math.isfinite(worst) or worst <= 0:
        return (
            f"A time of {worst} ms was sampled: nothing ran between the two readings of the clock, or it ran elsewhere."
        )
    if site.backend != "cuda":
        return None
    gpu, median_ms = site.gpu, quantile(sorted(times), 0.5)
    peak = _peak_tflops(case, gpu)
    rate = tflops(prediction.flops_nominal, median_ms)
    if rate > peak:
        return (
            f"{format_ms(median_ms)} would be {format_si(rate * 1e12, 'FLOP/s')}, "
            f"above the peak of {format_si(peak * 1e12, 'FLOP/s')} in the data sheet of {gpu.name}. {_LIKELY_CAUSE}"
        )
    cached = 0 if samples.l2_state == "cold" else gpu.l2_bytes
    from_dram = max(0, prediction.compulsory_read_bytes - cached)
    if from_dram > median_ms * 1e6 * gpu.mem_bandwidth_gbs:
        beyond = f" beyond the {format_bytes(cached)} that L2 holds" if cached else ""
        return (
            f"{format_ms(median_ms)} is too short to read {format_bytes(from_dram)}{beyond} at the "
            f"{format_si(gpu.mem_bandwidth_gbs * 1e9, 'B/s')} in the data sheet of {gpu.name}. {_LIKELY_CAUSE}"
        )
    return None


def _tensor_bytes(prediction: Prediction) -> int:
    """Q, K, V and O."""
    return int(prediction.compulsory_read_bytes + prediction.compulsory_write_bytes)


def _peak_tflops(case: Case, gpu: Gpu) -> float:
    """The most that any unit of ``gpu`` can do in this type, at the highest clock that it may be set to."""
    # TF32 counts for fp32: libraries may use it.
    return max(gpu.fp32_tflops, gpu.tensor_tflops(case.dtype) or 0.0) * gpu.boost_max_mhz / gpu.boost_mhz


def _identity(site: Site, case: Case) -> dict[str, Any]:
    return {
        "run_id": site.run_id,
        "case_id": case.case_id,
        "timestamp": site.timestamp.isoformat(timespec="seconds"),
        "backend": site.backend,
        "device": site.device,
        "gpu": target_of(site.backend, site.gpu),
        **case_columns(case),
    }


def case_columns(case: Case) -> dict[str, Any]:
    """The columns that a case itself decides; sizes of a grid of cases are arrays."""
    shape, tile, features = case.shape, case.tile, case.features
    return {
        "impl": case.impl,
        "dtype": case.dtype,
        "direction": case.direction,
        "layout": case.layout,
        "batch": shape.batch,
        "heads_q": shape.heads_q,
        "heads_kv": shape.heads_kv,
        "seq_q": shape.seq_q,
        "seq_kv": shape.seq_kv,
        "head_dim": shape.head_dim,
        "causal": shape.causal,
        "window_left": shape.window_left,
        "window_right": shape.window_right,
        "dropout_p": float(features.dropout_p),
        "block_m": tile and tile.block_m,
        "block_n": tile and tile.block_n,
        "stages": tile and tile.stages,
        "num_warps": tile and tile.num_warps,
        "seed": case.seed,
        "init": INIT,
        "causal_align": "bottom-right" if shape.causal or shape.windowed else None,
        "head_dim_v": shape.dim_v,
        "softcap": float(features.softcap),
        "bias": features.bias,
        "alibi": features.alibi,
        "sinks": features.sinks,
        "seqlens": shape.seqlens_text,
    }


def target_of(backend: BackendName, gpu: Gpu) -> str | None:
    """The ``gpu`` column: the target's slug, None on the host, where no GPU plays a part."""
    return None if backend == "host" else gpu.slug


def predicted_columns(prediction: Prediction) -> dict[str, Any]:
    """The columns of what the models say; those of a grid of cases are arrays."""
    columns: dict[str, Any] = {
        "impl_version": prediction.impl_version,
        "flops_nominal": prediction.flops_nominal,
        "compulsory_read_bytes": prediction.compulsory_read_bytes,
        "compulsory_write_bytes": prediction.compulsory_write_bytes,
        "roofline_ms": prediction.roofline_ms,
        "roofline_limiter": prediction.roofline_limiter,
        "roofline_source": prediction.roofline_source,
        "arithmetic_intensity": prediction.arithmetic_intensity,
    }
    if prediction.library_tile is not None:
        columns["block_m"], columns["block_n"] = prediction.library_tile
    if prediction.work is not None:
        columns["flops_executed"] = prediction.work.flops_executed
        columns["exp_count"] = prediction.work.exp_count
    return columns | _sums(prediction.traffic, "model")


def _sums(traffic: Mapping[Level, Sequence[TensorBytes]], source: Source) -> dict[str, Any]:
    return {
        f"{level}_{op}_bytes_{source}": sum(part.bytes for part in parts if part.op == op)
        for level, parts in traffic.items()
        for op in _OPS
    }


def _counted(counts: Counts, source: Source) -> dict[str, Any]:
    columns: dict[str, Any] = {name: int(nbytes) for name, nbytes in _sums(counts.traffic, source).items()}
    if source == "emulated":
        columns["emulated_fraction"] = float(counts.fraction)
        dirty = [extra["l2_dirty_bytes"] for extra in counts.extra.values() if "l2_dirty_bytes" in extra]
        if dirty:
            # What the last kernel leaves.
            columns["l2_dirty_bytes_emulated"] = dirty[-1]
        for op, (low, high) in counts.dram_interval.items():
            columns[f"dram_{op}_bytes_emulated_low"] = low
            columns[f"dram_{op}_bytes_emulated_high"] = high
    return columns


def _times(samples: Samples, flops_nominal: int) -> dict[str, Any]:
    times = sorted(samples.times_ms)
    median_ms = float(quantile(times, 0.5))
    return {
        "time_ms": median_ms,
        "time_p20_ms": float(quantile(times, 0.2)),
        "time_p80_ms": float(quantile(times, 0.8)),
        "time_samples": len(times),
        "time_source": samples.source,
        "l2_state": samples.l2_state or None,
        "launch_bound": bool(samples.launch_bound),
        "noisy": bool(samples.noisy),
        "time_drift": _float(samples.drift),
        "time_dropped": int(samples.dropped),
        "time_fallback": samples.fallback or None,
        "launch_floor_ms": _float(samples.floor_ms),
        "tflops": tflops(flops_nominal, median_ms),
    }


def _measured(result: RunResult) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "mem_peak_bytes": _int(result.mem_peak_bytes),
        "mem_source": result.mem_source or None,
        "nvml_mem_peak_bytes": _int(result.nvml_mem_peak_bytes),
        "nvml_mem_source": result.nvml_mem_source or None,
        "nvml_interval_ms": _float(result.nvml_interval_ms),
        "power_w": _float(result.power_w),
        "energy_mj": _float(result.energy_mj),
        "energy_launches": _int(result.energy_launches),
        "sm_clock_mhz": _float(result.sm_clock_mhz),
        "sm_clock_min_mhz": _float(result.sm_clock_min_mhz),
        "mem_clock_mhz": _float(result.mem_clock_mhz),
        "temperature_c": _float(result.temperature_c),
        "throttle_reasons": result.throttle_reasons or None,
        "device_reason": result.device_reason or None,
        "throttled": result.throttled,
    }
    if result.resources is not None:
        resources = result.resources
        columns |= {
            "compile_ms": _float(resources.compile_ms),
            "nvrtc_version": resources.nvrtc_version or None,
            "registers": _int(resources.registers),
            "smem_bytes": _int(resources.smem_bytes),
            "spill_bytes": _int(resources.spill_bytes),
        }
    if result.verification is not None:
        # An output that holds NaN has no error figure.
        columns |= {
            "max_abs_err": _finite(result.verification.max_abs_err),
            "rel_err": _finite(result.verification.rel_err),
            "err_reference": result.verification.reference,
        }
    return columns


def _verdict(verification: Verification | None) -> tuple[Status, str | None]:
    if verification is None:
        return "error", "The output was not verified."
    if verification.passed:
        return "ok", None
    error, bound = verification.max_abs_err, verification.bound
    figure = format_error(error) if math.isfinite(error) else str(error)
    reason = f"The error is {figure}, the format explains {format_error(bound)}. {verification.detail}"
    return "wrong_result", reason.strip()


def _int(value: int | None) -> int | None:
    return None if value is None else int(value)


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
