"""Counters made into traffic and lines: directions, the least possible, atomics."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fa_bench import ptx
from fa_bench.profiling.collect import direction, least_sectors, live_registers, traffic
from fa_bench.ptx.counters import InstructionCounters
from fa_bench.ptx.isa import Form, Row
from fa_bench.ptx.program import Instruction


def instruction(op: str, kind: str = "f32", *modifiers: str) -> Instruction:
    row = Row(op, op, "load-store", (kind,), modifiers)
    return Instruction(Form(row, (kind,), frozenset(modifiers)), (), None, 1, f"{op}.{kind}")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("ld.global", "read"),
        ("ld", "read"),
        ("cp.async", "read"),
        ("st.global", "write"),
        ("st", "write"),
        ("atom", "atomic"),
        ("red", "atomic"),
        ("wmma.load.a", "read"),
        ("wmma.store.d", "write"),
    ],
)
def test_directions(op: str, expected: str) -> None:
    assert direction(instruction(op)) == expected


@pytest.mark.parametrize(
    ("modifiers", "counts", "least"),
    [
        # 32 floats in 32 sectors fit in four.
        ((), InstructionCounters(1, 32, 1, 32), 4),
        # 32 times 16 bytes are 16 sectors, and were.
        (("v4",), InstructionCounters(1, 32, 1, 16), 16),
        # One float for all lanes: one sector is the least that it can be.
        ((), InstructionCounters(1, 32, 1, 1), 1),
        # Three requests of one lane each are three sectors, however few bytes they want.
        ((), InstructionCounters(3, 3, 3, 3), 3),
        # A guard let one of ten requests through: not more than was asked for.
        ((), InstructionCounters(10, 320, 1, 4), 4),
    ],
)
def test_the_least_sectors(modifiers: tuple[str, ...], counts: InstructionCounters, least: int) -> None:
    assert least_sectors(instruction("ld.global", "f32", *modifiers), counts) == least


@dataclass(frozen=True)
class Counted:
    """Counters of a buffer that some emulator fills."""

    read_requests: int = 0
    read_sectors: int = 0
    write_requests: int = 0
    write_sectors: int = 0
    atomic_requests: int = 0
    atomic_sectors: int = 0


def test_atomics_are_a_direction_of_their_own(scale_ptx: str) -> None:
    kernel = ptx.load(scale_ptx).kernel("scale")
    load, store = (k for k, one in enumerate(kernel.instructions) if "global" in one.row.op)
    per_instruction = [InstructionCounters(1, 32)] * len(kernel.instructions)
    per_instruction[load] = InstructionCounters(1, 32, 1, 4)
    per_instruction[store] = InstructionCounters(1, 32, 1, 8)
    counters = ptx.LaunchCounters(
        tensors={"x": Counted(1, 4), "y": Counted(0, 0, 1, 8, 2, 2)},  # type: ignore[dict-item]
        by_instruction=per_instruction,
    )
    accesses = {load: frozenset({"x"}), store: frozenset({"y"})}
    rows = traffic(kernel, counters, accesses, {"x": ("f32[32]", 128), "y": ("f32[32]", 128)})
    assert [(row.tensor, row.op, row.requests, row.sectors, row.least_sectors) for row in rows] == [
        ("x", "read", 1, 4, 4),
        ("y", "write", 1, 8, 4),
        # No instruction of this kernel explains them.
        ("y", "atomic", 2, 2, None),
    ]


def test_live_registers(scale_ptx: str) -> None:
    kernel = ptx.load(scale_ptx).kernel("scale")
    # Two pointers are four words, one more for the factor, then for the index; the offset takes two, the addresses
    # replace what they are made of, the loaded value one, the product one.
    #   rd1 | rd1 rd2 | +f1 | +r1 | +rd3-r1 | +rd4-rd1 | +rd5-rd2-rd3 | +f2-rd4 | +f3-f1-f2 | rd5 f3 | nothing
    # Each instruction counts the larger of what lives before and after it.
    assert live_registers(kernel, one_dimensional=True) == [2, 4, 5, 6, 7, 7, 7, 5, 4, 3, 0]
