"""Errors against float64 beside those of PyTorch's own math, on normal data, on data with outliers, on huge logits.

PyTorch's math backend has two ways since 2.5. By default it converts fp16 and bf16 inputs to fp32 and computes there.
With allow_fp16_bf16_reduction_math_sdp(True), and always before 2.5, it multiplies them as they are and rounds scores
and weights to their type, as standard attention does when it stores them. Flash kernels round the weights alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from fa_bench import algorithms, ptx
from fa_bench.backends import why_not
from fa_bench.backends.programs import arguments, output, put_inputs
from fa_bench.cases import AttentionShape, Case, DType
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus
from fa_bench.storage import decode, encode

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))

A100 = gpus.get("a100-sxm-80")
N = 512
Kind = Literal["normal", "outliers", "huge"]
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
Array = NDArray[Any]


def drawn(kind: Kind, head_dim: int, dtype: DType = "fp16") -> dict[str, Array]:
    """Q, K and V: N(0, 1); the same plus N(0, 100) for one element in a thousand; or Q and K 30 times as large."""
    inputs = {}
    for name, stream in zip("QKV", np.random.SeedSequence(head_dim).spawn(3), strict=True):
        random = np.random.default_rng(stream)
        values = random.standard_normal((1, 1, N, head_dim))
        if kind == "outliers":
            values += random.normal(0, 10, values.shape) * (random.random(values.shape) < 0.001)
        if kind == "huge" and name != "V":
            values *= 30
        inputs[name] = encode(values.astype(np.float32), dtype)
    return inputs


def ours(impl: str, inputs: dict[str, Array], dtype: DType) -> Array:
    """O of a kernel of ours in its default tile. A window that hides nothing takes the fused kernel."""
    name, _, fused = impl.partition(" ")
    shape = AttentionShape(1, 1, 1, N, N, inputs["Q"].shape[-1])
    case = Case(name, replace(shape, window_left=N) if fused else shape, dtype)
    case = replace(case, tile=algorithms.get(name).auto_tile(case, A100))
    program, memory = algorithms.get(name).program(case), ptx.Memory()
    raw = {buffer.name: memory.allocate(buffer.name, buffer.nbytes) for buffer in program.buffers}
    put_inputs(program, raw, inputs)
    for launch in program.launches:
        compiled = compile_kernel(launch.kernel, A100.sm)
        args = arguments(launch, lambda buffer: np.uint64(memory.address(buffer)))
        kernel = ptx.load(compiled.ptx).kernel(compiled.entry)
        ptx.launch(kernel, grid=launch.grid, block=launch.block, args=args, smem_bytes=launch.smem_bytes, memory=memory)
    return decode(output(program, "O", raw["O"], case), np.float64)


def exact(inputs: dict[str, Array]) -> Array:
    q, k, v = (decode(inputs[name], np.float64) for name in "QKV")
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(p / p.sum(axis=-1, keepdims=True) @ v)


def torch_math(inputs: dict[str, Array], dtype: DType, *, in_fp32: bool) -> Array:
    """PyTorch's math backend, with fp32 between inputs and output or with their type throughout."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.from_numpy(decode(inputs[name], np.float64)).to(TYPES[dtype]) for name in "QKV")
    was = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(not in_fp32)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(was)
    return np.asarray(o.double().numpy())


def errors(o: Array, truth: Array) -> tuple[float, float]:
    """Largest and root mean square error."""
    assert np.isfinite(o).all()
    difference = o - truth
    return float(np.abs(difference).max()), float(np.sqrt((difference**2).mean()))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kind", ["normal", "outliers", "huge"])
@pytest.mark.parametrize("impl", ["flash2", "flash2 fused", "flash1", "standard", "standard fused"])
def test_errors_are_at_most_twice_pytorchs(impl: str, kind: Kind, head_dim: int, dtype: DType) -> None:
    inputs = drawn(kind, head_dim, dtype)
    truth = exact(inputs)
    found = errors(ours(impl, inputs, dtype), truth)
    # Standard attention is held against the same steps in the same type, flash kernels against fp32 as well.
    for in_fp32 in (False,) if impl.startswith("standard") else (False, True):
        for error, limit in zip(found, errors(torch_math(inputs, dtype, in_fp32=in_fp32), truth), strict=True):
            assert error <= 2 * limit


def test_the_bound_is_one_that_a_worse_kernel_breaks() -> None:
    # fp16 throughout, as standard attention has it: on normal data about four times the error of fp32 between.
    inputs = drawn("normal", 64)
    truth = exact(inputs)
    rounded, wide = (errors(torch_math(inputs, "fp16", in_fp32=in_fp32), truth)[0] for in_fp32 in (False, True))
    assert rounded > 2 * wide


def test_huge_logits_are_huge() -> None:
    # 900 · |q|·|k| / sqrt(64): thousands, far beyond what exp takes in fp32 (88) without its maximum.
    q, k = (drawn("huge", 64)[name].astype(np.float64) for name in "QK")
    assert np.abs(q @ k.swapaxes(-1, -2)).max() / 8 > 1000
