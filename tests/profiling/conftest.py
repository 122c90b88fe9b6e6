"""Kernels that this project's own sources did not shape; profiles made by hand, which tests import as a module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fa_bench.compiler import nvrtc_available
from fa_bench.nvrtc import find_tool

sys.path.insert(0, str(Path(__file__).parent))

KERNELS = Path(__file__).parent / "kernels"

#: Four launches' worth of PTX without line information: y[i] = 2 x[i], through a pointer and a number.
SCALE_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(
    .param .u64 scale_x,
    .param .u64 scale_y,
    .param .f32 scale_factor
)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [scale_x];
    ld.param.u64 %rd2, [scale_y];
    ld.param.f32 %f1, [scale_factor];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd5], %f3;
    ret;
}
"""


@pytest.fixture
def kernels() -> Path:
    return KERNELS


@pytest.fixture
def scale_ptx() -> str:
    return SCALE_PTX


@pytest.fixture
def nvrtc() -> None:
    """Skip where there is no compiler."""
    if (reason := nvrtc_available()) is not None:
        pytest.skip(reason)


@pytest.fixture
def nvdisasm() -> None:
    """Skip where there is no disassembler."""
    if find_tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not here (pip install 'fa-bench[sass]')")
