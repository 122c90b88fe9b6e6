"""What ptxas makes of the kernels: no spills in default tiles on any GPU, tensor cores on every 16-bit path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fa_bench import algorithms, nvrtc, ptx
from fa_bench.algorithms.base import KernelSpec
from fa_bench.cases import AttentionShape, Case, Direction, DType, Features
from fa_bench.compiler import compile_kernel, nvrtc_available
from fa_bench.model import gpus
from fa_bench.profiling.sass import disassemble, opcodes

pytestmark = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

#: Kernels without a matrix product.
NO_PRODUCT = {"standard_softmax", "standard_bwd_ds", "flash1_init", "flash2_bwd_preprocess", "flash2_bwd_convert"}


def default_kernels(case: Case, slug: str) -> Iterator[KernelSpec]:
    """The kernels of a case in its default tile on a GPU, each once."""
    algorithm, gpu = algorithms.get(case.impl), gpus.get(slug)
    case = replace(case, tile=algorithm.auto_tile(case, gpu))
    assert algorithm.unsupported(case, gpu) is None
    program = algorithm.program(case)
    yield from dict.fromkeys(launch.kernel for launch in (*program.setup, *program.launches))


def shape_of(head_dim: int, causal: bool = False) -> AttentionShape:
    return AttentionShape(1, 1, 1, 4096, 4096, head_dim, causal)


# --- spills ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", ["a100-sxm-80", "h100-sxm", "b200-sxm", "rtx-5090"])
@pytest.mark.parametrize(("dtype", "head_dim"), [("fp16", 96), ("bf16", 128)])
def test_flash2s_default_tiles_spill_nothing(gpu: str, dtype: DType, head_dim: int) -> None:
    (spec,) = default_kernels(Case("flash2", shape_of(head_dim, causal=True), dtype), gpu)
    assert compile_kernel(spec, gpus.get(gpu).sm).spill_bytes == 0


@pytest.mark.parametrize(("dtype", "head_dim"), [("fp16", 64), ("bf16", 96), ("fp16", 128)])
def test_flash1s_default_tiles_spill_nothing_where_registers_are_scarcest(dtype: DType, head_dim: int) -> None:
    for spec in default_kernels(Case("flash1", shape_of(head_dim), dtype), "b200-sxm"):
        assert compile_kernel(spec, "sm_100").spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [8, 40, 64, 96, 128])
@pytest.mark.parametrize("impl", ["flash2", "flash1", "standard"])
def test_no_default_tile_spills_on_any_gpu(impl: str, head_dim: int, dtype: DType) -> None:
    spilled = {}
    for gpu in gpus.all_gpus():
        if gpu.compute_capability >= (8, 0):
            for causal in (False, True):
                for spec in default_kernels(Case(impl, shape_of(head_dim, causal), dtype), gpu.slug):
                    if spills := compile_kernel(spec, gpu.sm).spill_bytes:
                        spilled[gpu.sm, spec] = spills
    assert spilled == {}


# --- tensor cores ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(nvrtc.find_tool("nvdisasm") is None, reason="nvdisasm is not here")
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("impl", "direction", "features"),
    [
        ("standard", "fwd", Features()),
        ("flash1", "fwd", Features()),
        ("flash2", "fwd", Features()),
        ("flash2", "fwd", Features(softcap=30.0)),
        ("standard", "bwd", Features()),
        ("flash2", "bwd", Features()),
        ("flash2-atomic", "bwd", Features()),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else ("fused" if value.softcap else "plain"),
)
def test_every_product_of_16_bit_elements_is_on_tensor_cores(
    impl: str, direction: Direction, features: Features, dtype: DType
) -> None:
    found = 0
    for spec in default_kernels(Case(impl, shape_of(64), dtype, direction=direction, features=features), "a100-sxm-80"):
        if spec.entry in NO_PRODUCT:
            continue
        compiled = compile_kernel(spec, "sm_80")
        text = disassemble(compiled.cubin)
        assert text is not None
        codes = Counter(code.split(".")[0] for code in opcodes(text, spec.entry))
        mma = sum(line.row.op.startswith("mma") for line in ptx.load(compiled.ptx).kernel(spec.entry).instructions)
        # mma.m16n8k16 is one HMMA.16816. Code that ptxas copies, for a loop's first turn say, has more of them.
        assert codes["HMMA"] >= mma > 0, spec.entry
        found += 1
    assert found
