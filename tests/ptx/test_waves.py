"""CTAs side by side: order, what is logged, equality with plain launches, faults."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx import L2, LaunchCounters, Memory, MemorySystem, Waves, launch, launch_waves, load, walk
from fa_bench.ptx.layout import Event

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: Reads x[ctaid, tid] with the instruction that is put in, and writes it to y after a barrier.
COPY = (
    HEAD
    + """
.visible .entry copy(.param .u64 x, .param .u64 y)
{{
  .reg .b32 %r<6>;  .reg .b64 %rd<6>;
  ld.param.u64 %rd0, [x];
  ld.param.u64 %rd1, [y];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd0, %rd2;
  {load} %r4, [%rd3];
  bar.sync 0;
  add.u64 %rd4, %rd1, %rd2;
  st.global.u32 [%rd4], %r4;
  ret;
}}
"""
)
#: Reads the same word of x as often as n says, one backward jump each.
LOOP = (
    HEAD
    + """
.visible .entry loop(.param .u64 x, .param .u32 n)
{
  .reg .b32 %r<6>;  .reg .b64 %rd<6>;  .reg .pred %p<2>;
  ld.param.u64 %rd0, [x];
  ld.param.u32 %r0, [n];
AGAIN:
  ld.global.u32 %r1, [%rd0];
  sub.u32 %r0, %r0, 1;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra AGAIN;
  ret;
}
"""
)


def _copy(words: int, instruction: str = "ld.global.cg.u32") -> tuple[Memory, dict]:
    memory = Memory()
    memory.allocate("x", words * 4).view(np.uint32)[:] = np.arange(words)
    memory.allocate("y", words * 4)
    kernel = load(COPY.format(load=instruction)).kernel("copy")
    args = [np.uint64(memory.address(name)) for name in ("x", "y")]
    return memory, {"kernel": kernel, "args": args, "memory": memory}


def _waves(words: int, ctas: int, slots: int, **more: object) -> tuple[Memory, Waves]:
    memory, call = _copy(words, **more)
    return memory, Waves(grid=(ctas, 1, 1), block=(words // ctas, 1, 1), slots=slots, **call)


def test_ctas_take_slots_in_order_and_the_next_one_takes_the_first_free_slot() -> None:
    """5 CTAs of 2 turns in 2 slots: 0 and 1 for two rounds, then 2 and 3, then 4 alone."""
    memory, waves = _waves(5 * 64, 5, 2)
    rounds = []
    for _ in waves.rounds():
        rounds.append([int(waves.slots[slot, 1]) for slot in range(2) if len(waves.events(slot))])
    assert rounds == [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]]
    assert memory.array("y").view(np.uint32).tolist() == list(range(5 * 64))


def test_events_say_line_sectors_kind_and_tensor() -> None:
    """64 threads of CTA 1 read words 64 to 127 of x: two warps, lines 2 and 3 of x, all sectors; then write them."""
    memory, waves = _waves(128, 2, 2)
    rounds = [[waves.events(slot).copy() for slot in range(2)] for _ in waves.rounds()]
    first_line = memory.device_addresses()["x"] // 128
    reads = rounds[0][1]
    assert (reads & (1 << 33) - 1).tolist() == [first_line + 2, first_line + 3]
    assert (reads >> Event.SECTORS & 15).tolist() == [15, 15]
    assert (reads >> Event.KIND & 7).tolist() == [Event.BYPASS, Event.BYPASS]
    assert [waves.names[t] for t in reads >> Event.TENSOR & 0xFFFF] == ["x", "x"]
    assert (rounds[1][1] >> Event.KIND & 7).tolist() == [Event.WRITE, Event.WRITE]


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("ld.global.u32", Event.CACHED),
        ("ld.global.nc.u32", Event.CACHED),
        ("ld.global.ca.u32", Event.CACHED),
        ("ld.global.cv.u32", Event.BYPASS),
        ("ld.volatile.global.u32", Event.BYPASS),
        ("ld.relaxed.gpu.global.u32", Event.BYPASS),
        ("ld.relaxed.cta.global.u32", Event.CACHED),
        ("ld.acquire.gpu.global.u32", Event.BYPASS),
    ],
)
def test_which_loads_pass_l1_by(instruction: str, kind: int) -> None:
    _, waves = _waves(32, 1, 1, instruction=instruction)
    events = next(waves.events(0).copy() for _ in waves.rounds())
    assert (events >> Event.KIND & 7).tolist() == [kind]


def test_counts_are_those_of_a_plain_launch() -> None:
    _, call = _copy(7 * 96)
    plain = launch(grid=(7, 1, 1), block=(96, 1, 1), **call)
    _, waves = _waves(7 * 96, 7, 3)
    for _ in waves.rounds():
        pass
    assert waves.counters() == plain
    assert waves.started == 7


def _through(system: MemorySystem, ctas: int, slots: int, jobs: int) -> LaunchCounters:
    _, call = _copy(ctas * 64, "ld.global.u32")
    waves = Waves(grid=(ctas, 1, 1), block=(64, 1, 1), slots=slots, jobs=jobs, **call)
    return launch_waves(waves, system, l1_bytes=4096)


def test_the_memory_system_sees_each_cta_on_its_sm() -> None:
    """12 CTAs read and write 256 bytes each: 8 sectors, all from DRAM; the writes stay in L2."""
    system = MemorySystem(sms=4, l2=[L2(1 << 16)])
    counters = _through(system, ctas=12, slots=8, jobs=1)
    x, y = system.counters()["x"], system.counters()["y"]
    assert (x.l1_read_sectors, x.l1_read_hits, x.l2_read_sectors, x.dram_read_sectors) == (96, 0, 96, 96)
    assert (x.l1_read_requests, x.l2_read_requests) == (24, 24)
    assert (y.l1_write_sectors, y.l2_write_sectors, y.dram_write_sectors) == (96, 96, 0)
    assert system.dirty_sectors() == {"x": 0, "y": 96}
    assert counters.tensors["x"].read_sectors == 96


def test_threads_do_not_change_a_count() -> None:
    seen = []
    for jobs in (1, 2, 3):
        system = MemorySystem(sms=4, l2=[L2(1 << 13)])
        seen.append((_through(system, ctas=40, slots=8, jobs=jobs), system.counters(), system.dirty_sectors()))
    assert seen[0] == seen[1] == seen[2]


def test_a_long_loop_is_cut_into_turns() -> None:
    """1000 backward jumps at 64 a turn: 999 / 64 rounds up to 16 turns, and each load is logged once."""
    memory = Memory()
    memory.allocate("x", 128)[:] = 0
    args = [np.uint64(memory.address("x")), np.uint32(1000)]
    steps = list(walk(load(LOOP).kernel("loop"), grid=(1, 1, 1), block=(32, 1, 1), args=args, memory=memory))
    assert [step.index for step in steps] == list(range(16))
    assert [step.done for step in steps] == [False] * 15 + [True]
    assert sum(len(step.accesses) for step in steps) == 1000


def test_a_full_log_ends_a_turn() -> None:
    """32 warps that read in step: 4096 events are reached after 128 of them each, before 64 jumps are not."""
    memory = Memory()
    memory.allocate("x", 128)[:] = 0
    args = [np.uint64(memory.address("x")), np.uint32(300)]
    waves = Waves(
        load(LOOP).kernel("loop"), grid=(1, 1, 1), block=(1024, 1, 1), args=args, memory=memory, slots=1
    )  # fmt: skip
    lengths = [len(waves.events(0)) for _ in waves.rounds()]
    assert sum(lengths) == 32 * 300
    assert max(lengths) <= 32 * 65


def test_steps_add_up_to_the_launch() -> None:
    _, call = _copy(3 * 64)
    plain = launch(grid=(3, 1, 1), block=(64, 1, 1), **call)
    total: Counter[tuple[str, str]] = Counter()
    order = []
    for step in walk(grid=(3, 1, 1), block=(64, 1, 1), ctas=[2, 0, 1], **call):
        total.update(step.traffic())
        order.append((step.cta, step.index, step.done))
        rows = [int(a["offset"]) for a in step.accesses]
        assert rows == [step.cta * 256, step.cta * 256 + 128]
    assert order == [(2, 0, False), (2, 1, True), (0, 0, False), (0, 1, True), (1, 0, False), (1, 1, True)]
    assert total == {("x", "read"): plain.tensors["x"].read_bytes, ("y", "write"): plain.tensors["y"].write_bytes}


def test_a_fault_names_its_cta() -> None:
    _, call = _copy(64)
    waves = Waves(grid=(3, 1, 1), block=(32, 1, 1), slots=3, **call)
    with pytest.raises(KernelFault, match=r"CTA \(2, 0, 0\), warp 0, lane 0: 'ld.global.cg.u32 .*outside every buffer"):
        list(waves.rounds())


def test_a_malformed_launch_is_refused() -> None:
    _, call = _copy(64)
    with pytest.raises(ValueError, match="CTA 3 is outside the grid of 2"):
        Waves(grid=(2, 1, 1), block=(32, 1, 1), slots=2, ctas=[0, 3], **call)


#: Each CTA takes a number and reads that line of x: which CTA reads which depends on who asks first.
TICKET = (
    HEAD
    + """
.visible .entry ticket(.param .u64 x, .param .u64 next)
{
  .reg .b32 %r<6>;  .reg .b64 %rd<6>;
  ld.param.u64 %rd0, [x];
  ld.param.u64 %rd1, [next];
  atom.global.add.u32 %r0, [%rd1], 1;
  and.b32 %r0, %r0, 63;
  mad.wide.u32 %rd2, %r0, 128, %rd0;
  ld.global.u32 %r1, [%rd2];
  ret;
}
"""
)


def test_atomic_tickets_are_drawn_in_one_order() -> None:
    """With several threads to run on, CTAs that tell each other something still run on one."""
    seen = []
    for jobs in (1, 3, 3):
        memory = Memory()
        memory.allocate("x", 64 * 128)[:] = 0
        memory.allocate("next", 4)[:] = 0
        args = [np.uint64(memory.address(name)) for name in ("x", "next")]
        system = MemorySystem(sms=5, l2=[L2.plain(1 << 12)])
        waves = Waves(
            load(TICKET).kernel("ticket"),
            grid=(300, 1, 1),
            block=(32, 1, 1),
            args=args,
            memory=memory,
            slots=40,
            jobs=jobs,
        )
        launch_waves(waves, system, l1_bytes=4096)
        seen.append(system.counters())
    assert seen[0] == seen[1] == seen[2]
