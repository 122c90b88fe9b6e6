"""``fa_bench.profile``, from Python."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

import fa_bench
from fa_bench.errors import KernelFault, UsageError
from fa_bench.profiling import api, diff, launchfile, signature
from fa_bench.profiling import args as arguments


@pytest.mark.usefixtures("nvrtc")
def test_the_examples_in_the_docstrings() -> None:
    for module in (api, arguments, diff, launchfile, signature):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def test_an_attribute_that_the_package_does_not_have() -> None:
    with pytest.raises(AttributeError, match="no attribute 'profiel'"):
        fa_bench.profiel  # noqa: B018


def test_ptx_as_text_or_file(scale_ptx: str, tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32)
    (tmp_path / "scale.ptx").write_text(scale_ptx)
    for source in (scale_ptx, tmp_path / "scale.ptx", str(tmp_path / "scale.ptx")):
        report = fa_bench.profile(source, grid=1, block=32, args=[x, "out:f32[32]", 3.0])
        assert (report.outputs["scale_y"] == 3 * x).all()
        assert report.lines[0].file in ("kernel.ptx", "scale.ptx")


def test_arrays_of_the_caller_stay_as_they_are(scale_ptx: str) -> None:
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    report = fa_bench.profile(scale_ptx, "scale", 1, 32, {"x": x, "y": y, "factor": np.float32(2)})
    assert not y.any()
    assert report.outputs["y"].tolist() == [2.0] * 32


def test_one_array_that_is_passed_twice_is_one_array(scale_ptx: str) -> None:
    x = np.ones(32, np.float32)
    report = fa_bench.profile(scale_ptx, "scale", 1, 32, (x, x, 2.0))
    assert report.outputs["scale_x"].tolist() == [2.0] * 32
    assert [(moved.tensor, moved.op) for moved in report.traffic] == [("scale_x", "read"), ("scale_x", "write")]
    assert list(report.arguments) == ["scale_x", "scale_y", "scale_factor"]
    # Equal numbers are not one thing.
    assert fa_bench.profile(scale_ptx, "scale", 1, 32, (x, x.copy(), 2.0)).outputs["scale_y"].tolist() == [2.0] * 32


@pytest.mark.usefixtures("nvrtc")
def test_the_source_of_a_raw_kernel() -> None:
    code = r"""
    extern "C" __global__ void axpy(const float* x, float* y, float a, int n) {
        int i = blockDim.x * blockIdx.x + threadIdx.x;
        if (i < n)
            y[i] += a * x[i];
    }
    """
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    report = fa_bench.profile(code, "axpy", (2,), (64,), (x, y, np.float32(2), np.int32(100)))
    assert (report.outputs["y"] == 1 + 2 * x).all()
    # 100 floats are 12.5 sectors; the last warp's four lanes have a sector alone: 13 for each access.
    assert report.bytes("x") == report.bytes("y") == report.bytes("y", "write") == 13 * 32
    (line,) = (line for line in report.lines if line.sectors)
    assert (line.file, line.line, line.text) == ("kernel.cu", 5, "y[i] += a * x[i];")


@pytest.mark.usefixtures("nvrtc")
def test_bfloat16_by_its_bits() -> None:
    code = """
    #include <cuda_bf16.h>
    __global__ void twice(__nv_bfloat16* x) {
        x[threadIdx.x] = __float2bfloat16(2 * __bfloat162float(x[threadIdx.x]));
    }
    """
    ones = np.full(32, 0x3F80, np.uint16)
    assert fa_bench.profile(code, "twice", 1, 32, [ones]).outputs["x"].tolist() == [0x4000] * 32
    drawn = fa_bench.profile(code, "twice", 1, 32, {"x": "ones:bf16[32]"})
    assert drawn.outputs["x"].tolist() == [0x4000] * 32


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        fa_bench.profile(tmp_path / "none.cu")
    with pytest.raises(UsageError, match="There is no file 'none"):
        fa_bench.profile("none.ptx")
    (tmp_path / "binary.cu").write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(UsageError, match="neither CUDA C"):
        fa_bench.profile(tmp_path / "binary.cu")
    with pytest.raises(UsageError, match="can't be read"):
        fa_bench.profile(tmp_path)
    with pytest.raises(UsageError, match="no GPU"):
        fa_bench.profile(".version 7.0\n.target sm_80\n", gpu="none")


@pytest.mark.usefixtures("nvrtc")
def test_cuda_as_text_with_includes_and_options(tmp_path: Path) -> None:
    (tmp_path / "factor.cuh").write_text("#define FACTOR BASE\n")
    code = '#include "factor.cuh"\n__global__ void k(float* x) { x[threadIdx.x] = FACTOR / x[threadIdx.x]; }\n'
    x = np.full(32, 2, np.float32)
    report = fa_bench.profile(
        code, "k", 1, 32, [x], defines={"BASE": 8}, includes=[tmp_path], options=["--use_fast_math"]
    )
    assert report.outputs["x"].tolist() == [4.0] * 32


def test_checks_find_what_a_plain_run_does_not() -> None:
    """Element 0 of the output stays empty; the result alone says so only where one looks at it."""
    text = (
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y)\n{\n.reg .b64 %rd<3>;\n"
        ".reg .b32 %r<2>;\nld.param.u64 %rd0, [y];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 4;\n"
        "add.u64 %rd2, %rd0, %rd1;\nst.global.u32 [%rd2+4], %r0;\nret;\n}\n"
    )
    arguments = {"y": "out:i32[33]"}
    assert fa_bench.profile(text, "k", block=32, args=arguments).outputs["y"][1:].tolist() == list(range(32))
    with pytest.raises(KernelFault, match=r"The output y\[0\] \(byte 0\) was never written\."):
        fa_bench.profile(text, "k", block=32, args=arguments, check=True)
