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
    FAULT_KIND: Final = 132  # i32, see diagnosis.py
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
    LOG: Final = 416  # ptr to the events of this CTA's turn, see Event
    LOG_COUNT: Final = 424  # i64
    LOG_LIMIT: Final = 432  # i64: events after which the warp that runs lets the others go on
    CHECKER: Final = 440  # ptr, see Checker
    SIZE: Final = 448


class Buffers:
    """Record of one registered buffer."""

    LOW: Final = 0  # i64
    HIGH: Final = 8  # i64, one past the end
    #: u64 x 8: requests of direction d at index d, its sectors at d + 2.
    COUNTS: Final = 16
    SHIFT: Final = 80  # i64: what is added to a host address to give that on the device
    SIZE: Final = 128

    #: Directions of an access.
    READ: Final = 0
    WRITE: Final = 1
    #: A ``cp.async`` to shared memory: a write that is done later.
    COPY: Final = 2
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
    #: i32: whether the instruction passes L1 by.
    BYPASS: Final = WAYS * SIZE + 16
    #: i32: index of the instruction << Origin.SHIFT, and what the instruction promises about order.
    ORIGIN: Final = WAYS * SIZE + 20
    STRIDE: Final = WAYS * SIZE + 64


class Event:
    """What one warp instruction asks of one 128-byte line, as an i64."""

    LINE_SHIFT: Final = 7
    LINE_BITS: Final = 33  # device address / 128
    SECTORS: Final = 33  # 4 bits: sectors of the line
    KIND: Final = 37  # 3 bits
    TENSOR: Final = 40  # 16 bits: place in the list of buffers
    FIRST: Final = 56  # 1 bit: the instruction's first line

    #: Kinds: a read that L1 may answer, one that passes L1 by, a write, an atomic operation.
    CACHED: Final = 0
    BYPASS: Final = 1
    WRITE: Final = 2
    ATOMIC: Final = 3


class Slot:
    """A place on an SM for one CTA."""

    CONTEXT: Final = 0  # ptr
    CTA: Final = 8  # i64
    CODE: Final = 16  # i64: START, then what the last turn returned
    SIZE: Final = 24


class Cache:
    """One set-associative cache: an SM's L1, or a partition of an L2."""

    WAYS: Final = 16
    PLACES: Final = 0  # ptr to SET_WORDS i64 per set
    SETS: Final = 8  # i64
    PAGE_LINES: Final = 16  # i64: lines of a DRAM page, which are written back together
    SIZE: Final = 24

    #: Where in a set's words these are, of each way: line number + 1, 0 = empty; valid sectors, dirty sectors << 4,
    #: tensor << 8; when it was used last.
    TAGS: Final = 0
    STATES: Final = WAYS
    STAMPS: Final = 2 * WAYS
    SET_WORDS: Final = 3 * WAYS


class Level:
    """An L2 with the DRAM behind it."""

    CACHES: Final = 0  # ptr to a Cache per partition
    PARTITIONS: Final = 8  # i64: 1 or 2
    PAIRS: Final = 16  # i64: 15 where DRAM gives sectors in pairs, else 0
    COUNTERS: Final = 24  # ptr to L2Counts of each tensor
    DIRTY_WAYS: Final = 32  # i64: dirty lines that a set may have
    SIZE: Final = 40


class System:
    """The caches of a GPU; several L2s may see the same requests."""

    CLOCK: Final = 0  # i64: events so far
    L1: Final = 8  # ptr to a Cache per SM
    L1_COUNTERS: Final = 16  # ptr to L1Counts of each tensor
    LEVELS: Final = 24  # ptr to Level records
    LEVEL_COUNT: Final = 32  # i64
    TENSORS: Final = 40  # ptr to i64 per buffer of the launch: the number of its tensor
    SIZE: Final = 48


class L1Counts:
    """Counters of a tensor at L1, u64 each."""

    READ_REQUESTS: Final = 0
    READ_SECTORS: Final = 1
    READ_HITS: Final = 2  # sectors
    WRITE_REQUESTS: Final = 3
    WRITE_SECTORS: Final = 4
    ATOMIC_REQUESTS: Final = 5
    ATOMIC_SECTORS: Final = 6
    FIELDS: Final = 7


class L2Counts:
    """Counters of a tensor at L2 and DRAM, u64 each."""

    READ_REQUESTS: Final = 0
    READ_SECTORS: Final = 1
    READ_HITS: Final = 2  # sectors
    ATOMIC_REQUESTS: Final = 3
    ATOMIC_SECTORS: Final = 4
    ATOMIC_HITS: Final = 5
    WRITE_REQUESTS: Final = 6
    WRITE_SECTORS: Final = 7
    DRAM_READ: Final = 8  # sectors
    DRAM_WRITE: Final = 9  # sectors
    FIELDS: Final = 10


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
    ORIGIN: Final = 164  # i32 in the first record, see GlobalSite
    REQUESTS: Final = 168  # u64
    WAVEFRONTS: Final = 176  # u64
    IDEAL: Final = 184  # u64
    SIZE: Final = 192


class Origin:
    """Flags of a site's ``ORIGIN``."""

    SHIFT: Final = 4
    STRONG: Final = 1  # volatile, relaxed, acquire, release or atomic: threads that it is strong for may race
    RELEASE: Final = 2
    COPY: Final = 4  # cp.async: how many bytes it reads is for @observe_copy


class Access:
    """What an access does to the shadow memory, as flags."""

    READS: Final = 1
    WRITES: Final = 2
    COPIES: Final = 4
    ACQUIRES: Final = 8
    RELEASES: Final = 16
    STRONG: Final = 32


class Checker:
    """What a launch with checks keeps beside the context.

    A clock is a u32 that a warp raises whenever it releases what it has done; a row of clocks has one per warp of the
    CTA. A byte's last write is a word: warp, flags, clock. Who made an access is a word: instruction, warp, lane.
    """

    MAX_WARPS: Final = 32
    ROW: Final = 4 * MAX_WARPS
    #: Words of shared memory's writes and reads.
    CLOCK_MASK: Final = (1 << 25) - 1
    CLOCK_LIMIT: Final = 1 << 24  # where the clocks of a new CTA start anew
    STRONG: Final = 1 << 25
    NOT_STRONG: Final = ~STRONG
    IN_FLIGHT: Final = 1 << 26
    WARP_SHIFT: Final = 27
    #: Words of global memory's writes and reads: number of the CTA, releases that it had made, STRONG_GLOBAL.
    CTA_SHIFT: Final = 11
    RELEASE_MASK: Final = (1 << 10) - 1
    #: Who made an access.
    WHO_INSTRUCTION: Final = 10
    WHO_INSTRUCTIONS: Final = ((1 << 21) - 1) << WHO_INSTRUCTION
    WHO_WARP: Final = 5
    WHO_SEVERAL: Final = -(1 << 31)  # lanes of one instruction, which wrote the same

    WARP: Final = 0  # i32: the warp that runs
    CLOCKS: Final = 8  # ptr to a row per warp: what it knows to be done
    ARRIVALS: Final = 16  # ptr to a row per barrier: what is done by those that have arrived
    EXITED: Final = 24  # ptr to a row: what is done by the warps that have ended
    SYNC: Final = 32  # ptr to a row per 4 bytes of shared memory: what was released there
    WRITES: Final = 40  # ptr to u32 per byte of shared memory, 0 = never written
    WRITERS: Final = 48  # ptr to u32 per byte: who
    READS: Final = 56  # ptr to u32 per warp and byte
    READERS: Final = 64  # ptr to u32 per warp and byte
    PITCH: Final = 72  # i64: bytes between the rows of two warps in READS and READERS
    LOCAL: Final = 80  # ptr to u8 per byte of local memory: whether it was written
    BUFFERS: Final = 88  # ptr to Shadow records, in the order of the context's buffers
    EXPECTED: Final = 96  # i32 x 16: threads that each barrier waits for in this phase
    CTA: Final = 160  # i32: number of the CTA that runs, counted over the launches of a program
    FIRST_CTA: Final = 164  # i32: the first one of this launch
    RELEASES: Final = 168  # ptr to u32 per CTA of the launch: accesses made before so many releases are released
    RELEASED: Final = 176  # i32: releases of the CTA that runs
    FENCED: Final = 180  # i32: their number at its last fence
    ACQUIRED: Final = 184  # i32: whether it has looked at what others may have released
    OTHER: Final = 192  # i32: who made the access that a finding names beside its own
    OTHER_CTA: Final = 196  # i32
    BYTE: Final = 200  # i32: the byte of the access that a finding is about
    #: The first read of shared memory that was never written; later it may turn out that another warp races to write.
    PENDING: Final = 204  # i32: 1 if there is one
    PENDING_SITE: Final = 208  # i32 each: instruction, warp, lane, bytes
    PENDING_WARP: Final = 212
    PENDING_LANE: Final = 216
    PENDING_SIZE: Final = 220
    PENDING_ADDRESS: Final = 224  # i64
    PENDING_BYTE: Final = 232  # i32
    SIZE: Final = 256


class Shadow:
    """What is known of the bytes of one buffer."""

    STATES: Final = 0  # ptr to u8 per byte, see below
    WRITES: Final = 8  # ptr to u32 per byte
    WRITERS: Final = 16  # ptr to u32 per byte
    READS: Final = 24  # ptr to u32 per byte
    READERS: Final = 32  # ptr to u32 per byte
    FLAGS: Final = 40  # i32
    SIZE: Final = 64

    #: Flags.
    INPUT: Final = 1  # must not be written
    WHOLE: Final = 2  # every byte holds data
    #: A byte's state: it holds data; a kernel wrote it.
    HOLDS: Final = 1
    WRITTEN: Final = 2


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
#: A slot's code before the first turn of its CTA.
START: Final = 6

#: Warp.RESUME of a warp whose lanes' own block indices say where to go on.
RESCHEDULE: Final = -1

#: Kinds of faults that checks find.
UNWRITTEN: Final = 14
RACE_WRITE: Final = 15
RACE_READ: Final = 16
IN_FLIGHT: Final = 17
CONFLICT: Final = 18
TO_INPUT: Final = 19
CTA_RACE_WRITE: Final = 20
CTA_RACE_READ: Final = 21
COUNTS_DIFFER: Final = 22

FLAG_OK: Final = 1
FLAG_CONTIGUOUS: Final = 2
FLAG_UNIFORM: Final = 4
