"""State of a CTA while it runs, and the arrays that generated code counts in."""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fa_bench.ptx.jit import CompiledKernel
from fa_bench.ptx.layout import LANES, Buffers, Context, GlobalSite, SharedSite, Warp
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.program import Kernel


class Tally:
    """Where generated code counts: per buffer, access site and basic block; and what it remembers of the accesses.

    Parameters
    ----------
    compiled : CompiledKernel
    memory : Memory
    """

    def __init__(self, compiled: CompiledKernel, memory: Memory) -> None:
        plan, storage = compiled.plan, compiled.kernel.storage
        self.gsites = aligned(max(len(plan.global_sites), 1) * GlobalSite.STRIDE)
        self.ssites = aligned(max(len(plan.shared_sites), 1) * SharedSite.WAYS * SharedSite.SIZE)
        self.block_counts = np.zeros((len(plan.blocks), 2), np.uint64)
        ranges = memory.buffers()
        self.names = [b.name for b in ranges]
        self.sites = (len(plan.global_sites), len(plan.shared_sites))
        self.buffers = aligned(max(len(ranges), 1) * Buffers.SIZE)
        devices = memory.device_addresses()
        for k, buffer in enumerate(ranges):
            put("<qq", self.buffers, k * Buffers.SIZE, buffer.address, buffer.address + buffer.nbytes)
            put("<q", self.buffers, k * Buffers.SIZE + Buffers.SHIFT, devices[buffer.name] - buffer.address)
        for k, bypasses in enumerate(plan.bypasses):
            put("<i", self.gsites, k * GlobalSite.STRIDE + GlobalSite.BYPASS, bypasses)
        self.variables = np.array([storage.address(name) for name in storage.globals], np.uint64)

    def tensor_counts(self) -> NDArray[np.uint64]:
        """Counters of each buffer, in the order of ``names``."""
        records = self.buffers.view(np.uint64).reshape(-1, Buffers.SIZE // 8)[: len(self.names)]
        return records[:, Buffers.COUNTS // 8 : Buffers.SHIFT // 8]

    def global_counts(self) -> NDArray[np.uint64]:
        """Requests and sectors of each global access site."""
        records = self.gsites.view(np.uint64).reshape(-1, GlobalSite.STRIDE // 8)
        return records[: self.sites[0], GlobalSite.REQUESTS // 8 : GlobalSite.TOTAL // 8 + 1]

    def shared_counts(self) -> NDArray[np.uint64]:
        """Requests, wavefronts and least possible wavefronts of each shared access site, over its records."""
        records = self.ssites.view(np.uint64).reshape(-1, SharedSite.WAYS, SharedSite.SIZE // 8)
        counts: NDArray[np.uint64] = records[: self.sites[1], :, SharedSite.REQUESTS // 8 :].sum(axis=1)
        return counts


class Worker:
    """What one CTA at a time needs to run: context, shared memory, warp states, counters.

    Parameters
    ----------
    compiled : CompiledKernel
    grid, block : tuple of int
    params : ndarray of uint8
        The parameter space, see :func:`packed`.
    shared_bytes : int
        Static and dynamic.
    tally : Tally
        Where it counts; workers that one thread runs in turn may share it.
    stop : ndarray of uint32, shape (1,)
        Not zero: all workers of the launch stop.
    budget : int
        Backward jumps that a CTA may take.
    slice_jumps : int
        Backward jumps after which a warp lets the others go on: a wait for another warp must end.
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: NDArray[np.uint8],
        shared_bytes: int,
        tally: Tally,
        stop: NDArray[np.uint32],
        budget: int,
        slice_jumps: int,
    ) -> None:
        plan = compiled.plan
        storage = compiled.kernel.storage
        threads = block[0] * block[1] * block[2]
        self.num_warps = -(-threads // LANES)
        self.context = aligned(Context.SIZE)
        self.shared = aligned(max(shared_bytes, 1))
        self.warps = aligned(self.num_warps * plan.warp_bytes)
        self.tally = tally
        self._warp_bytes = plan.warp_bytes
        # The context holds their addresses only.
        self._kept = (params, stop)
        c = Context
        for offset, address in (
            (c.PARAMS, params.ctypes.data),
            (c.PARAMS_SIZE, compiled.kernel.param_bytes),
            (c.VARIABLES, tally.variables.ctypes.data),
            (c.CONSTANT, storage.constant.ctypes.data),
            (c.CONSTANT_SIZE, storage.constant.size),
            (c.SHARED, self.shared.ctypes.data),
            (c.BUFFERS, tally.buffers.ctypes.data),
            (c.GSITES, tally.gsites.ctypes.data),
            (c.SSITES, tally.ssites.ctypes.data),
            (c.BLOCK_COUNTS, tally.block_counts.ctypes.data),
            (c.STOP, stop.ctypes.data),
            (c.WARPS, self.warps.ctypes.data),
            (c.BUDGET_START, budget),
            (c.SLICE_START, min(slice_jumps, budget)),
        ):
            put("<Q", self.context, offset, address)
        for offset, values in (
            (c.NBUFFERS, (len(tally.names), shared_bytes)),
            (c.NTID, block),
            (c.NCTAID, grid),
            (c.NWARPS, (self.num_warps, threads)),
        ):
            put(f"<{len(values)}i", self.context, offset, *values)
        thread = np.arange(self.num_warps * LANES, dtype=np.int32)
        tid = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))
        for w in range(self.num_warps):
            state = self.warps[w * plan.warp_bytes :]
            put("<i", state, Warp.WARP_ID, w)
            for axis in range(3):
                part = tid[axis][w * LANES : (w + 1) * LANES].astype(np.int32)
                offset = Warp.TID + axis * 4 * LANES
                state[offset : offset + 4 * LANES] = part.view(np.uint8)

    def another(self) -> Worker:
        """A worker for another CTA of the same launch, counting in the same place; this one has not run yet."""
        made = copy.copy(self)
        made.context = aligned(Context.SIZE)
        made.context[:] = self.context
        made.shared = aligned(self.shared.size)
        made.warps = aligned(self.warps.size)
        rows = made.warps.reshape(self.num_warps, self._warp_bytes)
        rows[:, : Warp.REGISTERS] = self.warps.reshape(rows.shape)[:, : Warp.REGISTERS]
        put("<Q", made.context, Context.SHARED, made.shared.ctypes.data)
        put("<Q", made.context, Context.WARPS, made.warps.ctypes.data)
        return made

    def field(self, offset: int, form: str = "<i") -> int:
        """One field of the context."""
        return get(form, self.context, offset)[0]


def put(form: str, place: NDArray[np.uint8], offset: int, *values: int) -> None:
    struct.pack_into(form, place.data, offset, *values)


def get(form: str, place: NDArray[np.uint8], offset: int) -> tuple[int, ...]:
    return struct.unpack_from(form, place.data, offset)


def aligned(nbytes: int, alignment: int = 64) -> NDArray[np.uint8]:
    whole = np.zeros(nbytes + alignment, np.uint8)
    start = -whole.ctypes.data % alignment
    return whole[start : start + nbytes]


def packed(kernel: Kernel, args: Sequence[np.generic[Any]]) -> NDArray[np.uint8]:
    """The parameter space of a launch.

    Raises
    ------
    ValueError
        If the arguments are not one per parameter, each of its size.
    """
    if len(args) != len(kernel.params):
        raise ValueError(f"Kernel {kernel.name} takes {len(kernel.params)} arguments, not {len(args)}.")
    packed = aligned(max(kernel.param_bytes, 1))
    for k, (param, value) in enumerate(zip(kernel.params, args, strict=True)):
        content = value.tobytes()
        if len(content) != param.size:
            raise ValueError(
                f"Argument {k} of kernel {kernel.name} has {param.size} bytes, but {value.dtype} has {len(content)}."
            )
        packed[param.offset : param.offset + param.size] = np.frombuffer(content, np.uint8)
    return packed
