"""Launch a kernel: worker threads, their memory, fault reports, counters.

Each worker has its own context, shared memory, warp states, site caches and counters; CTAs are handed out by an
atomic counter. Generated code runs outside Python's global lock, so all cores work.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.errors import KernelFault
from fa_bench.ptx.counters import InstructionCounters, LaunchCounters, SharedCounters, TensorCounters
from fa_bench.ptx.jit import CompiledKernel, compile_kernel
from fa_bench.ptx.layout import (
    DEADLOCK,
    DONE,
    FAULT,
    FAULTS,
    LANES,
    STOPPED,
    WAITING,
    WINDOW_SHIFT,
    WINDOWS,
    Buffers,
    Context,
    GlobalSite,
    SharedSite,
    Warp,
)
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Kernel

#: Backward jumps that a CTA may take before it is taken for a hang. A 16k-token tile loop takes about 10^4.
DEFAULT_BUDGET: Final = 1 << 32
#: Backward jumps after which a warp lets the others go on: a wait for another warp must end.
SLICE: Final = 4096
MAX_THREADS: Final = 1024
MAX_SHARED_BYTES: Final = 227 << 10
#: What messages call the spaces by the number of their window.
_SPACES: Final = {WINDOWS["shared"]: "shared", WINDOWS["local"]: "a thread's local", WINDOWS["const"]: "constant",
                  WINDOWS["param"]: "parameter"}  # fmt: skip


class _Worker:
    """Memory of one worker thread."""

    def __init__(
        self,
        compiled: CompiledKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: NDArray[np.uint8],
        shared_bytes: int,
        memory: Memory,
        stop: NDArray[np.uint32],
        budget: int,
    ) -> None:
        plan = compiled.plan
        storage = compiled.kernel.storage
        threads = block[0] * block[1] * block[2]
        self.num_warps = -(-threads // LANES)
        self.context = _aligned(Context.SIZE)
        self.shared = _aligned(max(shared_bytes, 1))
        self.warps = _aligned(self.num_warps * plan.warp_bytes)
        self.gsites = _aligned(max(len(plan.global_sites), 1) * GlobalSite.STRIDE)
        self.ssites = _aligned(max(len(plan.shared_sites), 1) * SharedSite.WAYS * SharedSite.SIZE)
        self.block_counts = np.zeros((len(plan.blocks), 2), np.uint64)
        ranges = memory.buffers()
        self.names = [b.name for b in ranges]
        self.sites = (len(plan.global_sites), len(plan.shared_sites))
        self.buffers = _aligned(max(len(ranges), 1) * Buffers.SIZE)
        for k, buffer in enumerate(ranges):
            _put("<qq", self.buffers, k * Buffers.SIZE, buffer.address, buffer.address + buffer.nbytes)
        self.variables = np.array([storage.address(name) for name in storage.globals], np.uint64)
        c = Context
        for offset, address in (
            (c.PARAMS, params.ctypes.data),
            (c.PARAMS_SIZE, compiled.kernel.param_bytes),
            (c.VARIABLES, self.variables.ctypes.data),
            (c.CONSTANT, storage.constant.ctypes.data),
            (c.CONSTANT_SIZE, storage.constant.size),
            (c.SHARED, self.shared.ctypes.data),
            (c.BUFFERS, self.buffers.ctypes.data),
            (c.GSITES, self.gsites.ctypes.data),
            (c.SSITES, self.ssites.ctypes.data),
            (c.BLOCK_COUNTS, self.block_counts.ctypes.data),
            (c.STOP, stop.ctypes.data),
            (c.WARPS, self.warps.ctypes.data),
            (c.BUDGET_START, budget),
            (c.SLICE_START, min(SLICE, budget)),
        ):
            _put("<Q", self.context, offset, address)
        for offset, values in (
            (c.NBUFFERS, (len(ranges), shared_bytes)),
            (c.NTID, block),
            (c.NCTAID, grid),
            (c.NWARPS, (self.num_warps, threads)),
        ):
            _put(f"<{len(values)}i", self.context, offset, *values)
        thread = np.arange(self.num_warps * LANES, dtype=np.int32)
        tid = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))
        for w in range(self.num_warps):
            state = self.warps[w * plan.warp_bytes :]
            _put("<i", state, Warp.WARP_ID, w)
            for axis in range(3):
                part = tid[axis][w * LANES : (w + 1) * LANES].astype(np.int32)
                offset = Warp.TID + axis * 4 * LANES
                state[offset : offset + 4 * LANES] = part.view(np.uint8)

    def tensor_counts(self) -> NDArray[np.uint64]:
        """Counters of each buffer, in the order of ``names``."""
        records = self.buffers.view(np.uint64).reshape(-1, Buffers.SIZE // 8)[: len(self.names)]
        return records[:, Buffers.COUNTS // 8 :]

    def global_counts(self) -> NDArray[np.uint64]:
        """Requests and sectors of each global access site."""
        records = self.gsites.view(np.uint64).reshape(-1, GlobalSite.STRIDE // 8)
        return records[: self.sites[0], GlobalSite.REQUESTS // 8 : GlobalSite.TOTAL // 8 + 1]

    def shared_counts(self) -> NDArray[np.uint64]:
        """Requests, wavefronts and least possible wavefronts of each shared access site, over its records."""
        records = self.ssites.view(np.uint64).reshape(-1, SharedSite.WAYS, SharedSite.SIZE // 8)
        counts: NDArray[np.uint64] = records[: self.sites[1], :, SharedSite.REQUESTS // 8 :].sum(axis=1)
        return counts

    def field(self, offset: int, form: str = "<i") -> int:
        """One field of the context."""
        return _get(form, self.context, offset)[0]


def _put(form: str, place: NDArray[np.uint8], offset: int, *values: int) -> None:
    struct.pack_into(form, place.data, offset, *values)


def _get(form: str, place: NDArray[np.uint8], offset: int) -> tuple[int, ...]:
    return struct.unpack_from(form, place.data, offset)


def _aligned(nbytes: int, alignment: int = 64) -> NDArray[np.uint8]:
    whole = np.zeros(nbytes + alignment, np.uint8)
    start = -whole.ctypes.data % alignment
    return whole[start : start + nbytes]


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

    Returns
    -------
    LaunchCounters

    Raises
    ------
    KernelFault
        If the kernel does something illegal: says which instruction, lane and address.
    ValueError
        If the launch itself is malformed.
    UnsupportedInstruction
        If the emulator cannot compile an instruction.
    """
    threads = block[0] * block[1] * block[2]
    if min(*grid, *block) < 1 or threads > MAX_THREADS:
        raise ValueError(
            f"A launch needs extents of at least 1 and at most {MAX_THREADS} threads, not {grid} x {block}."
        )
    shared_bytes = kernel.static_smem_bytes + smem_bytes
    if shared_bytes > MAX_SHARED_BYTES:
        raise ValueError(f"{shared_bytes} bytes of shared memory exceed the largest GPU's {MAX_SHARED_BYTES}.")
    compiled = compile_kernel(kernel, block[1] == block[2] == 1, counting)
    params = _pack(kernel, args)
    memory = kernel.storage.beside(memory)
    total = grid[0] * grid[1] * grid[2]
    chosen: NDArray[np.uint64] | None = None
    if ctas is not None:
        chosen = np.asarray(ctas, np.uint64)
        if chosen.size and int(chosen.max()) >= total:
            raise ValueError(f"CTA {int(chosen.max())} is outside the grid of {total}.")
        total = int(chosen.size)
    stop = np.zeros(1, np.uint32)
    following = np.zeros(1, np.uint64)
    workers = [
        _Worker(compiled, grid, block, params, shared_bytes, memory, stop, budget)
        for _ in range(max(1, min(jobs, total)))
    ]

    def run(worker: _Worker) -> int:
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
            raise KernelFault(_diagnosis(compiled, worker, code, memory))
    return _counters(compiled, workers, per_instruction)


def _run_all(run: Any, workers: list[_Worker], stop: NDArray[np.uint32]) -> list[int]:
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


def _pack(kernel: Kernel, args: Sequence[np.generic[Any]]) -> NDArray[np.uint8]:
    if len(args) != len(kernel.params):
        raise ValueError(f"Kernel {kernel.name} takes {len(kernel.params)} arguments, not {len(args)}.")
    packed = _aligned(max(kernel.param_bytes, 1))
    for k, (param, value) in enumerate(zip(kernel.params, args, strict=True)):
        content = value.tobytes()
        if len(content) != param.size:
            raise ValueError(
                f"Argument {k} of kernel {kernel.name} has {param.size} bytes, but {value.dtype} has {len(content)}."
            )
        packed[param.offset : param.offset + param.size] = np.frombuffer(content, np.uint8)
    return packed


def _diagnosis(compiled: CompiledKernel, worker: _Worker, code: int, memory: Memory) -> str:
    c = Context
    kernel = compiled.kernel
    cta = tuple(worker.field(c.CTAID + 4 * k) for k in range(3))
    if code == DEADLOCK:
        return f"Kernel {kernel.name}, CTA {cta}: deadlock; {_waiting(compiled, worker)}."
    kind = worker.field(c.FAULT_KIND)
    site = worker.field(c.FAULT_SITE)
    if kind == 4:
        # Lanes met at the end of a basic block.
        site = compiled.plan.blocks[site][1] - 1
    instruction = kernel.instructions[min(site, len(kernel.instructions) - 1)]
    where = f"Kernel {kernel.name}, CTA {cta}, warp {worker.field(c.FAULT_WARP)}"
    what = f"{instruction.text!r} (PTX line {instruction.line})"
    if kind in (1, 2, 3, 8, 9, 10):
        lane, size = worker.field(c.FAULT_LANE), worker.field(c.FAULT_SIZE)
        address = worker.field(c.FAULT_ADDRESS, "<Q")
        text = f"{where}, lane {lane}: {what} accesses {size} bytes at {_place(kind, address, worker, memory)}"
        return f"{text}, which {FAULTS[kind]}."
    if kind == 4:
        return f"{where}: the barrier {what} {FAULTS[kind]}."
    if kind in (11, 12, 13):
        return f"{where}: {what} {FAULTS[kind]}."
    return f"{where}: {FAULTS[kind]} at {what}."


def _place(kind: int, address: int, worker: _Worker, memory: Memory) -> str:
    space = address >> WINDOW_SHIFT
    if kind != 3 and space in _SPACES:
        return f"offset {address & (1 << WINDOW_SHIFT) - 1} of {_SPACES[space]} memory"
    if kind == 3:
        return f"shared offset {address} (of {worker.field(Context.SHARED_SIZE)})"
    found = memory.find(address)
    if found is not None:
        return f"{address:#x} ({found.name} + {address - found.address})"
    if kind == 2 and address < worker.field(Context.SHARED_SIZE):
        return f"shared offset {address}"
    nearest = memory.nearest(address)
    if nearest is None:
        return f"{address:#x} (no buffer is registered)"
    end = nearest.address + nearest.nbytes
    if address >= nearest.address:
        return (
            f"{address:#x} (nearest buffer: {nearest.name}, {nearest.nbytes} bytes, ends {address - end} bytes before)"
        )
    return f"{address:#x} (nearest buffer: {nearest.name}, starts {nearest.address - address} bytes behind)"


def _waiting(compiled: CompiledKernel, worker: _Worker) -> str:
    parts = []
    for w in range(worker.num_warps):
        state = worker.warps[w * compiled.plan.warp_bytes :]
        if _get("<i", state, Warp.STATE)[0] != WAITING:
            continue
        barrier, threads = _get("<ii", state, Warp.BARRIER)
        arrived = worker.field(Context.ARRIVED + 4 * barrier)
        wanted = threads or worker.num_warps * LANES
        parts.append(f"warp {w} waits at barrier {barrier}, where {arrived} of {wanted} threads arrived")
    return "; ".join(parts)


#: The fields of TensorCounters in the order of a buffer's counters; one place is not used.
_COUNTS: Final = {
    "read_requests": Buffers.READ,
    "read_sectors": Buffers.READ + 2,
    "write_requests": Buffers.WRITE,
    "write_sectors": Buffers.WRITE + 2,
    "atomic_requests": Buffers.ATOMIC,
    "atomic_sectors": Buffers.ATOMIC + 2,
}


def _counters(compiled: CompiledKernel, workers: list[_Worker], per_instruction: bool) -> LaunchCounters:
    plan = compiled.plan
    blocks = _total([w.block_counts for w in workers])
    tensors = {
        name: TensorCounters(**{field: int(counts[index]) for field, index in _COUNTS.items()})
        for name, counts in zip(workers[0].names, _total([w.tensor_counts() for w in workers]), strict=True)
    }
    shared = _total([w.shared_counts() for w in workers])
    requests, wavefronts, ideal = (int(v) for v in shared.sum(axis=0))
    instructions: dict[str, int] = {}
    for (start, end), count in zip(plan.blocks, blocks[:, 0].tolist(), strict=True):
        if count:
            for instruction in compiled.kernel.instructions[start:end]:
                instructions[instruction.row.klass] = instructions.get(instruction.row.klass, 0) + count
    return LaunchCounters(
        tensors,
        SharedCounters(requests, wavefronts, wavefronts - ideal),
        instructions,
        sum(instructions.values()),
        sum(w.field(Context.CTAS_DONE, "<q") for w in workers),
        _by_instruction(compiled, blocks, _total([w.global_counts() for w in workers]), shared)
        if per_instruction
        else (),
    )


def _total(parts: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    total: NDArray[np.uint64] = np.sum(parts, axis=0, dtype=np.uint64)
    return total


def _by_instruction(
    compiled: CompiledKernel,
    blocks: NDArray[np.uint64],
    global_sites: NDArray[np.uint64],
    shared_sites: NDArray[np.uint64],
) -> tuple[InstructionCounters, ...]:
    plan = compiled.plan
    table = np.zeros((len(compiled.kernel.instructions), 7), np.int64)
    for (start, end), counts in zip(plan.blocks, blocks, strict=True):
        table[start:end, :2] = counts
    for index, counts in zip(plan.global_sites, global_sites, strict=True):
        table[index, 2:4] += counts.astype(np.int64)
    for index, counts in zip(plan.shared_sites, shared_sites, strict=True):
        requests, wavefronts, ideal = counts.astype(np.int64)
        table[index, 4:] += (requests, wavefronts, wavefronts - ideal)
    return tuple(InstructionCounters(*row) for row in table.tolist())
