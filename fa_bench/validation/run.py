"""Running a case for a validation, once, and summing what was counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fa_bench import algorithms
from fa_bench.algorithms.base import Op
from fa_bench.backends.base import Backend, Level, Spills
from fa_bench.cases import AttentionShape, Case, DType, Layout, Tile
from fa_bench.errors import FaBenchError
from fa_bench.model.dram import dram_traffic
from fa_bench.model.gpu import Gpu

#: DRAM bytes of a case with another kernel's spills beside what its own kernel asks for.
WithSpills = Callable[[Case, Gpu, Spills], int]
#: What is about to run, in words.
Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes that one run moved at each level, all kernels and tensors together.

    ``dirty_bytes`` were written and are still in L2 at the end; ``dram_model_bytes`` is what the DRAM model predicts
    without running anything; ``fraction`` is the share of the case that was really run.
    """

    global_read_bytes: int
    global_write_bytes: int
    l2_read_bytes: int
    l2_write_bytes: int
    dram_read_bytes: int
    dram_write_bytes: int
    dram_model_bytes: int
    dirty_bytes: int
    fraction: float

    @property
    def dram_bytes(self) -> int:
        """Both directions."""
        return self.dram_read_bytes + self.dram_write_bytes


def flash2_case(shape: AttentionShape, tile: Tile, *, dtype: DType = "fp16", layout: Layout = "bshd") -> Case:
    """A case of our FlashAttention-2 with ``tile``, its warps chosen by the algorithm.

    The layout is that of the FlashAttention packages, batch, sequence, head, dimension, unless another is asked for.
    """
    case = Case("flash2", shape, dtype=dtype, layout=layout)
    return Case("flash2", shape, dtype=dtype, layout=layout, tile=algorithms.get("flash2").resolve(case, tile))


def no_spills(case: Case, gpu: Gpu, stores: Spills) -> int:
    """Where nobody can run that."""
    raise FaBenchError("Nothing here runs a kernel beside another one's spills.")


class Runner:
    """Runs cases on a backend that counts global memory, L2 and DRAM; a case that comes again is not run again.

    Parameters
    ----------
    backend : Backend
    announce : callable
        Told what is about to run.
    with_spills : callable
        Runs a case beside another kernel's spills (`fa_bench.backends.spills.dram_bytes`).
    """

    def __init__(
        self,
        backend: Backend,
        announce: Announce = lambda text: None,
        with_spills: WithSpills = no_spills,
    ) -> None:
        self._backend = backend
        self._with_spills = with_spills
        self._spilled: dict[tuple[str, Gpu, Spills], int] = {}
        self._announce = announce
        self._done: dict[tuple[str, Gpu], Counted] = {}

    def run(self, case: Case, gpu: Gpu) -> Counted:
        """What ``case`` moves on ``gpu``.

        Raises
        ------
        FaBenchError
            If it can't run, if its output is wrong, or if the backend doesn't count L2 and DRAM.
        """
        key = (case.case_id, gpu)
        if key not in self._done:
            s = case.shape
            mask = "causal" if s.causal else "full"
            self._announce(f"{case.impl} {case.tile}, {s.seq_q} x {s.seq_kv}, {mask}, for {gpu.name}")
            self._done[key] = self._run(case, gpu)
        return self._done[key]

    def dram_bytes_with(self, case: Case, gpu: Gpu, stores: Spills) -> int:
        """DRAM bytes of ``case``, read and written, if its kernel spilled too."""
        key = (case.case_id, gpu, stores)
        if key not in self._spilled:
            self._announce(f"{case.impl} {case.tile}, {case.shape.seq_q}, with spills, for {gpu.name}")
            self._spilled[key] = self._with_spills(case, gpu, stores)
        return self._spilled[key]

    def _run(self, case: Case, gpu: Gpu) -> Counted:
        result = self._backend.run(case, gpu)
        counts, verification = result.counts, result.verification
        if counts is None or not {"l2", "dram"} <= counts.traffic.keys():
            raise FaBenchError(f"{self._backend.name} does not count what L2 and DRAM see.")
        if verification is not None and not verification.passed:
            raise FaBenchError(f"{case.impl} for {gpu.name} gave a wrong result. {verification.detail}")

        def total(level: Level, op: Op) -> int:
            return sum(part.bytes for part in counts.traffic[level] if part.op == op)

        algorithm = algorithms.get(case.impl)
        model = dram_traffic(algorithm.program(case), algorithm.traffic(case) or (), gpu)
        return Counted(
            global_read_bytes=total("global", "read"),
            global_write_bytes=total("global", "write"),
            l2_read_bytes=total("l2", "read"),
            l2_write_bytes=total("l2", "write"),
            dram_read_bytes=total("dram", "read"),
            dram_write_bytes=total("dram", "write"),
            dram_model_bytes=sum(part.bytes for part in model),
            dirty_bytes=sum(counters.get("l2_dirty_bytes", 0) for counters in counts.extra.values()),
            fraction=counts.fraction,
        )
