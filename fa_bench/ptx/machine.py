"""Launch a kernel: worker threads, their memory, fault reports, counters.

Each worker has its own context, shared memory, warp states, site caches and counters; CTAs are handed out by an
atomic counter. Generated code runs outside Python's global lock, so all cores work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import KernelFault
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.diagnosis import Report, Where
from fa_bench.ptx.jit import Mode, compile_kernel
from fa_bench.ptx.layout import DEADLOCK, DONE, FAULT, STOPPED, Context
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Kernel
from fa_bench.ptx.sanitizer import Sanitizer
from fa_bench.ptx.tally import counters_of
from fa_bench.ptx.worker import Tally, Worker, packed

#: Backward jumps that a CTA may take before it is taken for a hang. A 16k-token tile loop takes about 10^4.
DEFAULT_BUDGET: Final = 1 << 32
#: Backward jumps after which a warp lets the others go on: a wait for another warp must end.
SLICE: Final = 4096
MAX_THREADS: Final = 1024
MAX_SHARED_BYTES: Final = 227 << 10


def launch(
    kernel: Kernel,
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    args: Sequence[np.generic[Any]],
    memory: Memory,
    smem_bytes: int = 0,
    ctas: Sequence[int] | None = None,
    jobs: int = 1,
    budget: int = DEFAULT_BUDGET,
    counting: bool = True,
    per_instruction: bool = False,
    checks: Sanitizer | None = None,
    where: Where | None = None,
) -> LaunchCounters:
    """Run a kernel on the CPU and count what it does.

    Parameters
    ----------
    kernel : Kernel
        From :func:`fa_bench.ptx.load`.
    grid, block : tuple of int
        Extents in x, y, z.
    args : sequence of NumPy scalars
        One per parameter, of exactly its size; pointers as ``np.uint64`` (:meth:`Memory.address`).
    memory : Memory
        All bytes that the kernel may touch.
    smem_bytes : int
        Dynamic shared memory per CTA in bytes.
    ctas : sequence of int, optional
        Linear CTA numbers to run (x fastest); all of the grid by default.
    jobs : int
        Worker threads.
    budget : int
        Backward jumps that one CTA may take.
    counting : bool
        Without it traffic and conflicts stay zero and no access is checked; for measuring what counting costs.
    per_instruction : bool
        Fill ``by_instruction``.
    checks : Sanitizer, optional
        Look for races, for reads of what was never written, and for more (see docs/emulator.md). The CTAs run one after
        the other then.
    where : callable, optional
        From a PTX line to what messages call its source, such as ``scale.cu:12``; empty if that is not known.

    Returns
    -------
    LaunchCounters

    Raises
    ------
    KernelFault
        If the kernel does something illegal: says which instruction, lane and address. With ``checks``, their first
        finding.
    ValueError
        If the launch itself is malformed.
    UnsupportedInstruction
        If the emulator cannot compile an instruction.
    """
    shared_bytes = shared_bytes_of(kernel, grid, block, smem_bytes)
    mode: Mode = "checked" if checks is not None else "counted" if counting else "uncounted"
    compiled = compile_kernel(kernel, block[1] == block[2] == 1, mode)
    params = packed(kernel, args)
    memory = kernel.storage.beside(memory)
    chosen = None if ctas is None else chosen_ctas(grid, ctas)
    total = math.prod(grid) if chosen is None else len(chosen)
    stop = np.zeros(1, np.uint32)
    following = np.zeros(1, np.uint64)
    workers = [
        Worker(compiled, grid, block, params, shared_bytes, Tally(compiled, memory), stop, budget, SLICE)
        for _ in range(1 if checks is not None else max(1, min(jobs, total)))
    ]
    watch = None if checks is None else checks.watch(compiled, workers[0], memory, total)

    def run(worker: Worker) -> int:
        code = compiled.run_ctas(
            worker.context.ctypes.data,
            following.ctypes.data,
            None if chosen is None else chosen.ctypes.data,
            total,
        )
        if code != DONE:
            stop[0] = 1
        return int(code)

    codes = _run_all(run, workers, stop)
    for worker, code in zip(workers, codes, strict=True):
        if code in (FAULT, DEADLOCK):
            raise KernelFault(Report(compiled, memory, where, checks, watch, chosen).sentence(worker, code))
    ctas_done = sum(worker.field(Context.CTAS_DONE, "<q") for worker in workers)
    return counters_of(compiled, [worker.tally for worker in workers], ctas_done, per_instruction)


def shared_bytes_of(kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], smem_bytes: int) -> int:
    """Shared memory of a CTA, static and dynamic.

    Raises
    ------
    ValueError
        If no GPU could start such a launch.
    """
    threads = math.prod(block)
    if min(*grid, *block) < 1 or threads > MAX_THREADS:
        raise ValueError(
            f"A launch needs extents of at least 1 and at most {MAX_THREADS} threads, not {grid} x {block}."
        )
    shared_bytes = kernel.static_smem_bytes + smem_bytes
    if shared_bytes > MAX_SHARED_BYTES:
        raise ValueError(f"{shared_bytes} bytes of shared memory exceed the largest GPU's {MAX_SHARED_BYTES}.")
    return shared_bytes


def chosen_ctas(grid: tuple[int, int, int], ctas: Sequence[int] | None) -> NDArray[np.uint64]:
    """Linear numbers of the CTAs to run.

    Raises
    ------
    ValueError
        If one is outside the grid.
    """
    total = math.prod(grid)
    chosen = np.arange(total, dtype=np.uint64) if ctas is None else np.asarray(ctas, np.uint64)
    if chosen.size and int(chosen.max()) >= total:
        raise ValueError(f"CTA {int(chosen.max())} is outside the grid of {total}.")
    return chosen


def _run_all(run: Any, workers: list[Worker], stop: NDArray[np.uint32]) -> list[int]:
    """Run every worker in a thread; an interrupt stops them and is passed on."""
    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(run, worker) for worker in workers]
        try:
            # Waiting with a time limit lets the main thread take signals.
            while wait(futures, timeout=0.2).not_done:
                pass
        except BaseException:
            stop[0] = 1
            raise
        codes = [future.result() for future in futures]
    if STOPPED in codes and not any(code in (FAULT, DEADLOCK) for code in codes):
        raise KeyboardInterrupt
    return codes
