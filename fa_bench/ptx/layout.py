"""Byte layouts that generated code and Python share: the worker context, warp state, access sites, the queue.

Each class lists offsets in bytes. Generated code addresses fields by these numbers and nothing else.
"""

from __future__ import annotations

from typing import Final

LANES: Final = 32
SECTOR_BYTES: Final = 32
#: A generic address has the number of its space in its top byte; global addresses are those of the host.
WINDOW_SHIFT: Final = 56
WINDOWS: Final[dict[str, int]] = {"global": 0, "shared": 1, "local": 2, "const": 3, "param": 4}
SHARED_WINDOW: Final = 1 << WINDOW_SHIFT
LOCAL_WINDOW: Final = 2 << WINDOW_SHIFT
CONST_WINDOW: Final = 3 << WINDOW_SHIFT
PARAM_WINDOW: Final = 4 << WINDOW_SHIFT


class Context:
    """One worker thread's context: launch geometry, memory, counters, fault record."""

    PARAMS: Final = 0  # ptr
    SHARED: Final = 8  # ptr, shared memory of the CTA that runs
    BUFFERS: Final = 16  # ptr to nbuffers records (see Buffers)
    GSITES: Final = 24  # ptr to GlobalSite records
    SSITES: Final = 32  # ptr to SharedSite records
    BLOCK_COUNTS: Final = 40  # ptr to two u64 per basic block: warps that executed it, and their active lanes
    STOP: Final = 48  # ptr to u32: not zero = stop at the next loop or barrier
    WARPS: Final = 56  # ptr to the warp states of the CTA
    BUDGET: Final = 64  # i64: backward jumps that this CTA may still take
    BUDGET_START: Final = 72  # i64
    NBUFFERS: Final = 80  # i32
    SHARED_SIZE: Final = 84  # i32
    NTID: Final = 88  # i32 x 3
    NCTAID: Final = 100  # i32 x 3
    CTAID: Final = 112  # i32 x 3
    NWARPS: Final = 124  # i32
    NTHREADS: Final = 128  # i32
    FAULT_KIND: Final = 132  # i32, see FAULTS
    FAULT_SITE: Final = 136  # i32: index of the instruction
    FAULT_LANE: Final = 140  # i32
    FAULT_WARP: Final = 144  # i32
    FAULT_SIZE: Final = 148  # i32
    FAULT_ADDRESS: Final = 152  # i64
    ARRIVED: Final = 160  # i32 x 16: threads that arrived at each barrier
    CTAS_DONE: Final = 224  # i64
    SLICE: Final = 232  # i64: backward jumps until the warp that runs lets the others go on
    SLICE_START: Final = 240  # i64
    VARIABLES: Final = 256  # ptr to i64 per global variable: its address
    CONSTANT: Final = 264  # ptr, the constant bank
    CONSTANT_SIZE: Final = 272  # i64
    PARAMS_SIZE: Final = 280  # i64
    VOTES: Final = 288  # i32 x 16: threads that voted yes at each barrier
    VOTERS: Final = 352  # i32 x 16: threads that voted
    SIZE: Final = 448


class Buffers:
    """Record of one registered buffer."""

    LOW: Final = 0  # i64
    HIGH: Final = 8  # i64, one past the end
    #: u64 x 8: requests of direction d at index d, its sectors at d + 2.
    COUNTS: Final = 16
    SIZE: Final = 80

    #: Directions of an access.
    READ: Final = 0
    WRITE: Final = 1
    ATOMIC: Final = 4


class GlobalSite:
    """What one global-memory instruction did last, so that the same lane pattern costs a compare.

    Each instruction has ``WAYS`` records, picked by bits of the first lane's address: an instruction that meets a
    few alignments in turn keeps them apart.
    """

    WAYS: Final = 2  # address bit 4
    WAY_SHIFT: Final = 4

    DELTA: Final = 0  # i64 x 32: address minus the first lane's
    MASK: Final = 256  # i32, 0 = nothing cached
    ALIGN: Final = 260  # i32: first address mod 32
    MIN: Final = 264  # i64: smallest delta
    MAX: Final = 272  # i64: largest delta + access size
    LOW: Final = 280  # i64: bounds of the buffer
    HIGH: Final = 288  # i64
    COUNTS: Final = 296  # ptr to the buffer's counters
    SECTORS: Final = 304  # i64
    FLAGS: Final = 312  # i32
    SIZE: Final = 320
    #: Behind an instruction's records: u64 requests and sectors of this instruction.
    REQUESTS: Final = WAYS * SIZE
    TOTAL: Final = WAYS * SIZE + 8
    STRIDE: Final = WAYS * SIZE + 64


class SharedSite:
    """The same for a shared-memory instruction, with its own counters."""

    WAYS: Final = 8  # address bits 4 to 6
    WAY_SHIFT: Final = 4

    DELTA: Final = 0  # i32 x 32
    MASK: Final = 128  # i32
    ALIGN: Final = 132  # i32: first address mod 128
    MIN: Final = 136  # i32
    MAX: Final = 140  # i32
    WAVES: Final = 144  # i64
    PHASES: Final = 152  # i64
    FLAGS: Final = 160  # i32
    REQUESTS: Final = 168  # u64
    WAVEFRONTS: Final = 176  # u64
    IDEAL: Final = 184  # u64
    SIZE: Final = 192


class Warp:
    """Head of a warp's state; its registers follow at ``REGISTERS``, its copy queue behind them."""

    LIVE: Final = 0  # i32
    RESUME: Final = 4  # i32: block to go on with
    STATE: Final = 8  # i32: 0 ready, 1 waiting, 2 done
    BARRIER: Final = 12  # i32
    BARRIER_THREADS: Final = 16  # i32, 0 = all
    QUEUE_HEAD: Final = 20  # i32
    QUEUE_TAIL: Final = 24  # i32
    GROUPS: Final = 28  # i32: committed groups
    WARP_ID: Final = 32  # i32
    VOTES: Final = 36  # i32: what the barrier that the warp left has counted
    VOTERS: Final = 40  # i32
    YIELDED: Final = 44  # i32: block at which the warp's last slice ended
    PC: Final = 64  # i32 x 32
    TID: Final = 192  # i32 x 32, three times: x, y, z
    GROUP_END: Final = 576  # i32 x 64
    REGISTERS: Final = 832


class Queue:
    """One deferred ``cp.async`` of a warp."""

    SRC: Final = 0  # i64 x 32
    DST: Final = 256  # i32 x 32
    BYTES: Final = 384  # i32 x 32: bytes to read; the rest is zero-filled
    MASK: Final = 512  # i32
    COPY: Final = 516  # i32: bytes to write
    SIZE: Final = 576
    ENTRIES: Final = 512
    GROUPS: Final = 64


#: Contents of Warp.STATE.
READY: Final = 0
WAITING: Final = 1
FINISHED: Final = 2

#: Lanes that wait at a barrier for the rest of their warp have this much added to their block index: all others run
#: before them.
PARKED: Final = 1 << 30

#: Return codes of generated code.
DONE: Final = 0
BARRIER: Final = 1
FAULT: Final = 2
STOPPED: Final = 3
DEADLOCK: Final = 4
YIELD: Final = 5

#: Warp.RESUME of a warp whose lanes' own block indices say where to go on.
RESCHEDULE: Final = -1

#: Contents of FAULT_KIND.
FAULTS: Final[dict[int, str]] = {
    1: "is outside every buffer",
    2: "is not aligned to the access size",
    3: "is outside shared memory",
    4: "is reached by part of a warp while the rest waits at another one or never comes",
    5: "trap",
    6: "ran out of its instruction budget",
    7: "enters a block with part of its lanes that was proved to be entered by all",
    8: "is outside that space",
    9: "cannot be written",
    10: "has no atomic operations",
    11: "picks none of the branch targets",
    13: "needs all live lanes of the warp together",
    12: "is given a count that no mbarrier has, or one that its pending arrivals do not allow",
}

FLAG_OK: Final = 1
FLAG_CONTIGUOUS: Final = 2
FLAG_UNIFORM: Final = 4
