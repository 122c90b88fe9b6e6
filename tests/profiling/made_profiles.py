"""Profiles made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fa_bench.profiling.result import Fit, KernelProfile, Line, Profile, Resources, StaticCount, Traffic

LINES = (
    Line("k.cu", 3, "int i = threadIdx.x;", 10, 320, live_registers=4),
    Line("k.cu", 5, "tile[i] = in[i];", 20, 640, read_sectors=8, requests=2, least_sectors=8, shared_requests=2,
         wavefronts=2, live_registers=6, tensors=("in",)),
    Line("k.cu", 6, "__syncthreads();", 4, 128, live_registers=2),
    Line("k.cu", 7, "out[i] = tile[i * 2];", 30, 480, write_sectors=8, requests=2, least_sectors=8, shared_requests=2,
         wavefronts=4, conflicts=2, live_registers=5, tensors=("out",)),
)  # fmt: skip


def launch(**changes: Any) -> KernelProfile:
    """A launch whose sums follow from its lines."""
    lines: tuple[Line, ...] = changes.get("lines", LINES)
    made = KernelProfile(
        kernel="k",
        entry="_Z1kPfS_",
        grid=(2, 1, 1),
        block=(32, 1, 1),
        arguments={"in": "f32[64]", "out": "f32[64]"},
        compiler="NVRTC 13.5",
        resources=Resources(16, 0, 256, 0),
        occupancy=Fit("a100-sxm-80", 32, 32, 0.5, ("blocks",)),
        traffic=(
            Traffic("in", "f32[64]", 256, "read", 2, sum(line.read_sectors for line in lines), 8),
            Traffic("out", "f32[64]", 256, "write", 2, sum(line.write_sectors for line in lines), None),
        ),
        instructions={"load-store": 10, "integer": sum(line.instructions for line in lines) - 10},
        lanes=sum(line.lanes for line in lines),
        shared_requests=4,
        wavefronts=sum(line.wavefronts for line in lines),
        conflicts=sum(line.conflicts for line in lines),
        lines=lines,
        sass=(StaticCount("shared load", 4, 1, 16, 16), StaticCount("local store", 0, 2, 0, 8)),
        unwritten={"out": 3},
        notes=("A note.",),
    )
    return replace(made, **changes)


def profile(*launches: KernelProfile, **changes: Any) -> Profile:
    return replace(Profile("k.cu", "0.1.0", "a100-sxm-80", 0, launches or (launch(),)), **changes)
