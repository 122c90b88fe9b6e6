"""All that is known of one tile: predicted, compiled, counted, measured. What is not known is None."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from fa_bench.algorithms.base import Algorithm, Work
from fa_bench.algorithms.tiles import resolved_tile
from fa_bench.cases import Case, Tile
from fa_bench.model.dram import bytes_per_kernel, dram_traffic
from fa_bench.model.gpu import Gpu
from fa_bench.model.occupancy import Occupancy, occupancy
from fa_bench.records import FAILED_STATUSES, Record
from fa_bench.tuning.counts import Trial
from fa_bench.tuning.predict import Prediction, predict

#: Work of one mma.m16n8k16: what instructions and wavefronts are counted per, whatever the kernel multiplies with.
MMA_FLOPS: Final = 2 * 16 * 8 * 16


@dataclass(frozen=True, slots=True)
class Known:
    """One tile on one GPU, for the shape that was asked about.

    Parameters
    ----------
    trial : Trial
        Its small runs; ``trial.case`` is the case that was asked about.
    work : Work
    global_bytes : int
        What its instructions ask of memory, exactly; reads and writes.
    dram_bytes : int
        Estimate of what crosses between L2 and DRAM.
    smem_bytes : int
        Shared memory of a CTA.
    occupancy : Occupancy, optional
        What an SM holds; None until the compiler has said how many registers there are.
    waves : float, optional
        CTAs over those that the GPU holds at a time.
    prediction : Prediction, optional
        None where nothing was counted.
    record : Record, optional
        What became of it on a GPU, at the shape that was asked about.
    dram_bytes_emulated : int, optional
        What crosses between L2 and DRAM in emulated caches.
    """

    trial: Trial
    work: Work
    global_bytes: int
    dram_bytes: int
    smem_bytes: int
    occupancy: Occupancy | None
    waves: float | None
    prediction: Prediction | None
    record: Record | None = None
    dram_bytes_emulated: int | None = None

    @property
    def case(self) -> Case:
        """The case that was asked about."""
        return self.trial.case

    @property
    def tile(self) -> Tile:
        """Its tile, with warps."""
        return resolved_tile(self.case)

    @property
    def registers(self) -> int | None:
        """Registers per thread."""
        return None if self.trial.resources is None else self.trial.resources.registers

    @property
    def spill_bytes(self) -> int | None:
        """Bytes that a thread stores and loads for want of registers."""
        return None if self.trial.resources is None else self.trial.resources.spill_bytes

    @property
    def wavefronts_per_mma(self) -> float | None:
        """Clocks of an SM's shared memory per `MMA_FLOPS`."""
        return self._per_mma(self.trial.total("wavefronts"))

    @property
    def instructions_per_mma(self) -> float | None:
        """Warp instructions of the PTX, moves left out, per `MMA_FLOPS`."""
        return self._per_mma(self.trial.total("instructions"))

    @property
    def conflicts(self) -> float | None:
        """Wavefronts beyond those that the data need."""
        return self.trial.total("conflicts")

    @property
    def time_ms(self) -> float | None:
        """Median time on a GPU, of a verified run."""
        return self.record.time_ms if self.record is not None and self.record.status == "ok" else None

    @property
    def fault(self) -> str:
        """Why nothing may be said for the tile, or why it has no time; empty if all is well."""
        if self.trial.status != "ok":
            return self.trial.reason
        return self.record.status_reason or "" if self.record is not None else ""

    @property
    def wrong(self) -> bool:
        """Whether a result or a byte was wrong, or a run failed."""
        failed = self.record is not None and self.record.status in FAILED_STATUSES
        return failed or self.trial.status not in ("ok", "unknown")

    def _per_mma(self, count: float | None) -> float | None:
        return None if count is None else count / (self.work.flops_executed / MMA_FLOPS)


def known(trial: Trial, algorithm: Algorithm, gpu: Gpu) -> Known:
    """Put together what models and a trial say of a tile.

    Parameters
    ----------
    trial : Trial
    algorithm : Algorithm
        The one of its case; with traffic and work.
    gpu : Gpu
    """
    case = trial.case
    program, traffic, work = algorithm.program(case), algorithm.traffic(case), algorithm.work(case)
    assert traffic is not None and work is not None
    resources = trial.resources
    smem_bytes = algorithm.smem_bytes(case)
    if resources is not None and resources.smem_bytes is not None:
        smem_bytes = resources.smem_bytes
    resident = None
    if resources is not None and resources.registers is not None:
        resident = occupancy(gpu, threads=resources.threads, smem_bytes=smem_bytes, registers=resources.registers)
    dram = dram_traffic(program, traffic, gpu)
    ctas = max(math.prod(launch.grid) for launch in program.launches)
    prediction = None
    if resident is not None and resident.blocks_per_sm and trial.counters:
        blocks = resident.blocks_per_sm
        prediction = predict(case, work, program.launches, bytes_per_kernel(dram), trial.counters, blocks, gpu)
    return Known(
        trial,
        work,
        global_bytes=sum(part.bytes for part in traffic),
        dram_bytes=sum(part.bytes for part in dram),
        smem_bytes=smem_bytes,
        occupancy=resident,
        waves=None if not resident or not resident.blocks_per_sm else ctas / gpu.sm_count / resident.blocks_per_sm,
        prediction=prediction,
    )
