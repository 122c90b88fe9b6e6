"""The emulator backend with checks: our kernels are clean, and what is wrong is said in terms of their sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fa_bench import algorithms, nvrtc
from fa_bench.backends import emulator, why_not
from fa_bench.backends.checking import slices_that_ran, source_lines
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import CompiledKernel, compile_kernel
from fa_bench.errors import DeviceUnavailable, KernelFault
from fa_bench.model.gpu import Gpu

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))
needs_nvrtc = pytest.mark.skipif(nvrtc.unavailable() is not None, reason=str(nvrtc.unavailable()))

RAGGED = AttentionShape(1, 4, 2, 70, 90, 40, causal=True)


def case_of(impl: str, shape: AttentionShape, dtype: str = "fp16", stages: int = 1, layout: str = "bhsd") -> Case:
    case = Case(impl, shape, dtype, layout=layout)  # type: ignore[arg-type]
    return replace(case, tile=algorithms.get(impl).resolve(case, Tile(32, 32, stages=stages)))


def assert_clean(case: Case, gpu: Gpu) -> None:
    result = EmulatorBackend(checks=True).run(case, gpu)
    assert result.verification is not None and result.verification.passed


@pytest.mark.parametrize(
    ("impl", "dtype", "stages"),
    [("standard", "fp16", 1), ("flash1", "bf16", 1), ("flash2", "fp16", 2), ("flash2", "fp32", 1)],
)
def test_our_kernels_are_clean(impl: str, dtype: str, stages: int, any_gpu: Gpu) -> None:
    """Ragged, causal, two query heads on each K/V head."""
    assert_clean(case_of(impl, RAGGED, dtype, stages), any_gpu)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(
    "shape",
    [
        RAGGED,
        AttentionShape(1, 1, 1, 1, 1, 64),
        AttentionShape(2, 2, 1, 127, 300, 128),
        AttentionShape(1, 1, 1, 300, 127, 256),
    ],
    ids=str,
)
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_our_kernels_are_clean_on_every_kind_of_shape(
    impl: str, dtype: str, stages: int, shape: AttentionShape, layout: str, any_gpu: Gpu
) -> None:
    case = case_of(impl, shape, dtype, stages, layout)
    if reason := algorithms.get(impl).unsupported(case, any_gpu):
        pytest.skip(reason)
    assert_clean(case, any_gpu)


def broken(old: str, new: str) -> Callable[..., CompiledKernel]:
    """A compiler whose PTX differs in one place."""

    def compiled(spec: Any, sm: str, **options: Any) -> CompiledKernel:
        kernel = compile_kernel(spec, sm, **options)
        return replace(kernel, ptx=kernel.ptx.replace(old, new, 1))

    return compiled


@needs_nvrtc
@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("bar.sync", "// bar.sync", ["a race", "ptx.cuh:", "from tile.cuh:", "from flash2_fwd.cu:"]),
        ("cp.async.wait_group", "// cp.async.wait_group", ["in flight", "from flash2_fwd.cu:"]),
    ],
)
def test_a_missing_barrier_or_wait_is_named_by_its_source_lines(
    old: str, new: str, parts: list[str], any_gpu: Gpu
) -> None:
    backend = EmulatorBackend(checks=True, compiler=broken(old, new))
    with pytest.raises(KernelFault, match=r"^Kernel flash2_fwd, CTA \(0, 0, 0\), warp \d, lane \d+: ") as fault:
        backend.run(case_of("flash2", RAGGED), any_gpu)
    for part in parts:
        assert part in fault.value.message


def test_without_a_compiler_the_lines_are_those_of_the_ptx(any_gpu: Gpu) -> None:
    """A compiler that has no line information, because there is just PTX that came with the program."""
    cut = broken("cp.async.wait_group", "// cp.async.wait_group")

    def shipped(spec: Any, sm: str, lineinfo: bool = False) -> CompiledKernel:
        if lineinfo:
            raise DeviceUnavailable("There is no NVRTC.")
        return cut(spec, sm)

    with pytest.raises(KernelFault, match=r"\(PTX line \d+\) reads 16 bytes.*is in flight"):
        EmulatorBackend(checks=True, compiler=shipped).run(case_of("flash2", RAGGED), any_gpu)


def test_an_element_of_the_output_that_is_not_written(any_gpu: Gpu) -> None:
    """The last store of the PTX is that of LSE, one per row: without it row 0 is the first one missing."""

    def compiled(spec: Any, sm: str, **options: Any) -> CompiledKernel:
        kernel = compile_kernel(spec, sm, **options)
        head, store, tail = kernel.ptx.rpartition("st.global.f32")
        if not store:
            head, store, tail = kernel.ptx.rpartition("st.global.b32")
        return replace(kernel, ptx=f"{head}// {store}{tail}")

    with pytest.raises(
        KernelFault, match=r"The output LSE\[0, 0, 0\] \(byte 0\) was never written, nor were 279 others"
    ):
        EmulatorBackend(checks=True, compiler=compiled).run(case_of("flash2", RAGGED), any_gpu)


def test_of_a_large_case_the_slices_that_ran_are_looked_at(any_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "ALL_SLICES_FMA", 0)
    case = case_of("flash2", AttentionShape(2, 4, 2, 8, 24, 40), layout="bshd")
    result = EmulatorBackend(checks=True).run(case, any_gpu)
    assert result.counts is not None and result.counts.fraction < 1


def test_slices_are_picked_by_batch_and_head() -> None:
    """Slice 5 of 2 x 4 is batch 1, head 1."""
    program = algorithms.get("flash2").program(case_of("flash2", AttentionShape(2, 4, 4, 8, 8, 8)))
    masks = slices_that_ran(program, [5])
    assert sorted(masks) == ["LSE", "O"]
    assert np.argwhere(masks["O"]).tolist() == [[1, 1, 0, 0]]
    assert slices_that_ran(program, None) == {}


def test_checks_need_memory_for_their_shadow() -> None:
    """17 bytes per byte of O (4 x 70 rows of 40 halves) and of LSE (4 x 70 floats); inputs have no shadow."""
    case = case_of("flash2", RAGGED)
    plain, checked = (EmulatorBackend(checks=checks).required_bytes(case) for checks in (False, True))
    assert checked - plain == 17 * (4 * 70 * 40 * 2 + 4 * 70 * 4)


def test_ptx_without_lines_names_none() -> None:
    assert source_lines(".version 8.0\n.target sm_80\n")(2) == ""
