"""A device's own peaks, as they were measured, beside those of its data sheet.

A data sheet's peak is a product of clocks and units that no kernel reaches; what a device really does in a loop of
nothing but matrix products, or of nothing but copies, is a nearer roof. Here is what to do with such figures. How they
are measured is `fa_bench.measure.peaks`, where they are kept is `fa_bench.stored_peaks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

from fa_bench.model.gpu import Gpu
from fa_bench.units import format_si

#: By how much a measured peak may exceed the data sheet's before one of the two is taken for wrong.
TOLERANCE: Final = 0.02

#: Figure -> what people call it, its unit and the factor to it.
QUANTITIES: Final[dict[str, tuple[str, str, float]]] = {
    "fp16_tensor_tflops": ("fp16 tensor", "FLOP/s", 1e12),
    "bf16_tensor_tflops": ("bf16 tensor", "FLOP/s", 1e12),
    "fp32_tflops": ("fp32 FMA", "FLOP/s", 1e12),
    "read_gbs": ("memory read", "B/s", 1e9),
    "write_gbs": ("memory written", "B/s", 1e9),
    "copy_gbs": ("memory copied, both ways", "B/s", 1e9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeaks:
    """What one device did at most, in 10^12 FLOP/s and 10^9 B/s.

    Parameters
    ----------
    device : str
        The driver's name of it.
    identity : str
        Its UUID or, where it has none, its PCI bus id.
    measured_at : str
        Date and time, ISO 8601.
    driver : str, optional
    fp16_tensor_tflops, bf16_tensor_tflops : float, optional
        Of ``mma.sync`` with fp32 accumulators; None where the device has none.
    fp32_tflops : float
        Of FMA, two operations each.
    read_gbs, write_gbs, copy_gbs : float
        Of DRAM; for the copy the sum of both directions.
    sm_clock_mhz, mem_clock_mhz : float, optional
        Medians while this was measured.
    throttle_reasons : str
        What held the clocks down meanwhile, if anything did.

    Raises
    ------
    ValueError
        Naming the figure that is not a positive number.
    """

    device: str
    identity: str
    measured_at: str
    driver: str | None = None
    fp16_tensor_tflops: float | None = None
    bf16_tensor_tflops: float | None = None
    fp32_tflops: float
    read_gbs: float
    write_gbs: float
    copy_gbs: float
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    throttle_reasons: str = ""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if item.name in QUANTITIES:
                optional = item.name.endswith("_tensor_tflops")
                if not (value is None and optional) and not (is_number and math.isfinite(value) and value > 0):
                    raise ValueError(f"{item.name} must be a positive number, not {value!r}")
            elif item.name.endswith("_mhz"):
                if value is not None and not (is_number and math.isfinite(value) and value >= 0):
                    raise ValueError(f"{item.name} must be a number of at least 0, not {value!r}")
            elif not isinstance(value, str) and not (item.name == "driver" and value is None):
                raise ValueError(f"{item.name} must be text, not {value!r}")

    @property
    def bandwidth_gbs(self) -> float:
        """The most that went to or from memory."""
        return max(self.read_gbs, self.write_gbs, self.copy_gbs)

    def applied_to(self, gpu: Gpu) -> Gpu:
        """``gpu`` with these peaks instead of the data sheet's, for a roofline.

        What was not measured is not mixed in: TF32 and FP8 become unknown. Special functions keep their rate per
        clock at the data sheet's clock: theirs is no figure of the data sheet to begin with.
        """
        return replace(
            gpu,
            fp16_tensor_tflops=self.fp16_tensor_tflops,
            bf16_tensor_tflops=self.bf16_tensor_tflops,
            tf32_tensor_tflops=None,
            fp8_tensor_tflops=None,
            fp32_tflops=self.fp32_tflops,
            mem_bandwidth_gbs=self.bandwidth_gbs,
        )


def datasheet_peak(gpu: Gpu, quantity: str) -> float | None:
    """The data sheet's figure for one of `QUANTITIES`, in its unit; None where it has none."""
    figures = {
        "fp16_tensor_tflops": gpu.fp16_tensor_tflops,
        "bf16_tensor_tflops": gpu.bf16_tensor_tflops,
        "fp32_tflops": gpu.fp32_tflops,
    }
    return figures.get(quantity, gpu.mem_bandwidth_gbs)


def inconsistencies(peaks: MeasuredPeaks, gpu: Gpu) -> tuple[str, ...]:
    """One sentence per figure that is above what the data sheet allows, by more than the tolerance.

    Arithmetic may run at the highest clock that the driver sets, which on some boards is above the one that the data
    sheet's peaks refer to.
    """
    found = []
    for quantity, (name, unit, factor) in QUANTITIES.items():
        measured, sheet = getattr(peaks, quantity), datasheet_peak(gpu, quantity)
        if measured is None or sheet is None:
            continue
        allowed = sheet * (gpu.boost_max_mhz / gpu.boost_mhz if unit == "FLOP/s" else 1.0)
        if measured > allowed * (1 + TOLERANCE):
            found.append(
                f"{name}: {format_si(measured * factor, unit)} measured, at most {format_si(allowed * factor, unit)} "
                f"by the data sheet of {gpu.slug}: of another card, or a clock above {gpu.boost_max_mhz:g} MHz."
            )
    return tuple(found)
