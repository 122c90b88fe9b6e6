"""Launches profiled: what is counted, what is refused, what a fault says, arrays that several launches share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fa_bench.errors import KernelFault, UsageError
from fa_bench.model import gpus
from fa_bench.profiling.args import parse
from fa_bench.profiling.build import KernelFile
from fa_bench.profiling.result import Cached, KernelProfile
from fa_bench.profiling.run import Launch, run
from fa_bench.ptx import PtxError

A100 = gpus.get("a100-sxm-80")


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ptxas nor nvdisasm, so that the same is known everywhere."""
    monkeypatch.setattr("fa_bench.nvrtc.find_tool", lambda name: None)


def profiled(text: str, grid: int = 1, block: int | None = 64, smem: int = 0, **arguments: str) -> KernelProfile:
    parsed = tuple(parse(name, value) for name, value in arguments.items())
    launch = Launch(None, (grid, 1, 1), None if block is None else (block, 1, 1), smem, parsed)
    return run(KernelFile("scale.ptx", text), [launch], A100).launches[0]


def scale(text: str, n: int = 64, **options: int) -> KernelProfile:
    return profiled(text, x=f"range:f32[{n}]", y=f"out:f32[{n}]", factor="f32=2", **options)


def test_what_a_small_kernel_does(scale_ptx: str) -> None:
    report = scale(scale_ptx)
    assert report.outputs["y"].tolist() == [2 * i for i in range(64)]
    assert list(report.outputs) == ["y"]
    # Two warps: each reads and writes 128 bytes, four sectors, in one request.
    x, y = report.traffic
    assert (x.tensor, x.op, x.requests, x.sectors, x.least_sectors, x.bytes) == ("x", "read", 2, 8, 8, 256)
    assert (y.tensor, y.op, y.requests, y.sectors, y.least_sectors) == ("y", "write", 2, 8, 8)
    assert report.bytes("x") == report.bytes("y", "write") == 256
    assert report.bytes("x", "write") == 0
    # Eleven instructions, two warps, all lanes.
    assert (report.warp_instructions, report.lanes, report.lane_share) == (22, 22 * 32, 1.0)
    assert report.instructions["load-store"] == 2 * 5
    assert report.arguments == {"x": "f32[64]", "y": "f32[64]", "factor": "f32=2.0"}
    assert report.resources.registers is None
    # 32 CTAs of two warps fill the 64 warps of an SM.
    assert (report.occupancy.blocks_per_sm, report.occupancy.warps_per_sm) == (32, 64)


def test_lines_add_up_to_the_whole(scale_ptx: str) -> None:
    report = scale(scale_ptx)
    assert sum(line.instructions for line in report.lines) == report.warp_instructions
    assert sum(line.bytes for line in report.lines) == report.global_bytes
    load = next(line for line in report.lines if line.text.startswith("ld.global"))
    assert (load.read_sectors, load.requests, load.tensors) == (8, 2, ("x",))
    assert scale_ptx.splitlines()[load.line - 1].strip() == load.text
    # Before the load both addresses, of two words each, and the factor are live; after it one address and two floats.
    assert load.live_registers == 5


def test_divergence_and_the_least_possible(scale_ptx: str) -> None:
    # Lanes 0 to 9 of one warp: ten words are two sectors, which hold 64 of the 40 bytes.
    text = scale_ptx.replace("mul.wide.u32", "setp.gt.u32 %p1, %r1, 9;\n@%p1 exit;\nmul.wide.u32").replace(
        ".reg .b32", ".reg .pred %p<2>;\n.reg .b32"
    )
    report = scale(text, block=32)
    assert report.traffic[0].sectors == report.traffic[0].least_sectors == 2
    # Six instructions run with 32 lanes, the last seven with ten.
    assert report.lanes == 6 * 32 + 7 * 10
    # A column of a matrix with rows of 64 bytes: every lane has a sector of its own, 32 instead of 4.
    strided = scale(scale_ptx.replace("mul.wide.u32 %rd3, %r1, 4", "mul.wide.u32 %rd3, %r1, 64"), n=1024, block=32)
    assert (strided.traffic[0].sectors, strided.traffic[0].least_sectors) == (32, 4)


def test_elements_that_were_not_written_are_counted(scale_ptx: str) -> None:
    report = profiled(scale_ptx, x="f32[64]", y="out:f32[100]", factor="f32=2")
    assert report.unwritten == {"y": 36}
    assert profiled(scale_ptx, x="f32[64]", y="zeros:f32[100]", factor="f32=2").unwritten == {}


def test_an_access_to_one_of_two_tensors_has_no_least_bytes(scale_ptx: str) -> None:
    # The address is x or y by a predicate: both are known, neither alone.
    text = scale_ptx.replace(
        "ld.global.f32 %f2, [%rd4]",
        "setp.lt.u32 %p1, %r1, 32;\nselp.b64 %rd4, %rd4, %rd5, %p1;\nld.global.f32 %f2, [%rd4]",
    ).replace(".reg .b32", ".reg .pred %p<2>;\n.reg .b32")
    report = profiled(text, x="f32[64]", y="f32[64]", factor="f32=2")
    reads = {moved.tensor: moved for moved in report.traffic if moved.op == "read"}
    assert {name: moved.least_sectors for name, moved in reads.items()} == {"x": None, "y": None}
    assert sum(moved.sectors for moved in reads.values()) == 8
    load = next(line for line in report.lines if line.text.startswith("ld.global"))
    assert load.tensors == ("x", "y")


def test_a_tensor_that_is_not_touched_is_there_with_nothing(scale_ptx: str) -> None:
    text = scale_ptx.replace("[scale_y];\n", "[scale_y];\n").replace("st.global.f32 [%rd5], %f3;", "")
    untouched = scale(text).traffic[1]
    assert (untouched.tensor, untouched.requests, untouched.sectors) == ("y", 0, 0)
    with pytest.raises(UsageError, match="no tensor 'z'"):
        scale(text).bytes("z")


def test_a_fault_names_the_line(scale_ptx: str) -> None:
    with pytest.raises(KernelFault, match="outside every buffer") as fault:
        profiled(scale_ptx, x="f32[32]", y="f32[64]", factor="f32=2")
    number = 1 + scale_ptx.splitlines().index("    ld.global.f32 %f2, [%rd4];")
    assert fault.value.message.endswith(f"It is scale.ptx:{number}: ld.global.f32 %f2, [%rd4];")


def test_the_same_instructions_on_other_lines_have_those_lines(scale_ptx: str) -> None:
    scale(scale_ptx)
    with pytest.raises(KernelFault, match=r"scale\.ptx:24: ld\.global") as fault:
        profiled("\n\n\n" + scale_ptx, x="f32[32]", y="f32[64]", factor="f32=2")
    assert "(PTX line 24)" in fault.value.message


def test_an_instruction_that_is_not_known_names_the_line(scale_ptx: str) -> None:
    with pytest.raises(PtxError, match=r"does not know .* It is scale\.ptx:22: tanh\.exact") as refused:
        profiled(scale_ptx.replace("mul.f32 %f3, %f2, %f1", "tanh.exact %f3, %f2"))
    assert refused.value.exit_code == 1


def test_a_null_pointer_faults(scale_ptx: str) -> None:
    with pytest.raises(KernelFault, match="0x0"):
        profiled(scale_ptx, x="null", y="f32[64]", factor="f32=2")


def test_launches_that_cannot_be(scale_ptx: str) -> None:
    with pytest.raises(UsageError, match="at most 1024 threads"):
        scale(scale_ptx, block=2048)
    with pytest.raises(UsageError, match="no GPU has more than"):
        scale(scale_ptx, smem=1 << 20)
    with pytest.raises(UsageError, match="takes 3 arguments, not 1"):
        profiled(scale_ptx, x="f32[32]")


def test_the_block_is_what_the_kernel_declares_else_128(scale_ptx: str) -> None:
    assert scale(scale_ptx, n=128, block=None).block == (128, 1, 1)
    bounded = scale_ptx.replace(")\n{", ")\n.maxntid 32, 2, 1\n{")
    assert scale(bounded, block=None).block == (32, 2, 1)


def test_launches_share_their_arrays(scale_ptx: str) -> None:
    x, y, z = (parse(name, text) for name, text in (("x", "range:f32[32]"), ("y", "out:f32[32]"), ("z", "out:f32[32]")))
    factor = parse("factor", "3")
    launches = [
        Launch(None, (1, 1, 1), (32, 1, 1), 0, (x, y, factor), positional=True),
        Launch(None, (1, 1, 1), (32, 1, 1), 0, (y, z, factor), positional=True),
    ]
    report = run(KernelFile("scale.ptx", scale_ptx), launches, A100)
    first, second = report.launches
    assert first.outputs["y"].tolist() == [3 * i for i in range(32)]
    assert second.outputs["z"].tolist() == [9 * i for i in range(32)]
    # Each launch counts for itself.
    assert [moved.tensor for moved in first.traffic] == ["x", "y"]
    assert [(moved.tensor, moved.bytes) for moved in second.traffic] == [("y", 128), ("z", 128)]


@pytest.mark.usefixtures("nvrtc")
def test_a_fault_in_cuda_names_the_line_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float* x) {\n  int i = threadIdx.x;\n  x[i + 1] = 1;\n}\n")
    file = KernelFile("k.cu", (tmp_path / "k.cu").read_text(), tmp_path)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), 0, (parse("x", "f32[32]"),))
    with pytest.raises(KernelFault, match=r"outside every buffer\. It is k\.cu:3: x\[i \+ 1\] = 1;$"):
        run(file, [launch], A100)


@pytest.mark.usefixtures("nvrtc")
def test_the_number_of_threads_changes_nothing(kernels: Path) -> None:
    file = KernelFile("transpose.cu", (kernels / "transpose.cu").read_text(), kernels)
    arguments = tuple(parse(*pair) for pair in (("in", "f32[128,128]"), ("out", "out:f32[128,128]"), ("width", "128")))
    launch = Launch(None, (4, 4, 1), (32, 8, 1), 0, arguments)
    one, two = (run(file, [launch], A100, jobs=jobs) for jobs in (1, 2))
    assert one == two
    assert np.array_equal(one.launches[0].outputs["out"], two.launches[0].outputs["out"])


def test_what_the_caches_see(scale_ptx: str) -> None:
    """Two launches on the same arrays: x comes from DRAM once; y stays in L2, where both launches write it."""
    parsed = tuple(
        parse(name, value) for name, value in (("x", "range:f32[64]"), ("y", "out:f32[64]"), ("factor", "f32=2"))
    )
    launch = Launch(None, (1, 1, 1), (64, 1, 1), 0, parsed)
    first, second = run(KernelFile("scale.ptx", scale_ptx), [launch, launch], A100, caches=True).launches
    assert first.caches == (Cached("x", "read", 0, 2, 8, 0, 8), Cached("y", "write", 0, 2, 8, 0, 0))
    assert second.caches == (Cached("x", "read", 0, 2, 8, 8, 0), Cached("y", "write", 0, 2, 8, 0, 0))
    assert (first.l2_dirty_bytes, second.l2_dirty_bytes) == (256, 256)
    plain = scale(scale_ptx)
    assert (plain.caches, plain.l2_dirty_bytes) == ((), None)
    assert first.lines == plain.lines


def test_checks_and_caches_are_not_one_run(scale_ptx: str) -> None:
    launch = Launch(None, (1, 1, 1), (64, 1, 1), 0, ())
    with pytest.raises(UsageError, match="need a run each"):
        run(KernelFile("scale.ptx", scale_ptx), [launch], A100, check=True, caches=True)
