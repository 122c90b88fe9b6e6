"""The Triton kernel: compiled for sm_80 where Triton is installed, and executed by the emulator, without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from fa_bench import ptx  # noqa: E402
from fa_bench.algorithms.library_flash import library_model, triton_tile  # noqa: E402
from fa_bench.algorithms.tensors import qkvo  # noqa: E402
from fa_bench.backends.baselines import find  # noqa: E402
from fa_bench.backends.torch_impls import TorchAttention  # noqa: E402
from fa_bench.backends.triton_impls import NUM_STAGES, constants, scale_log2  # noqa: E402
from fa_bench.cases import AttentionShape, Case, DType, Layout  # noqa: E402
from fa_bench.model import gpus  # noqa: E402
from fa_bench.reference import make_inputs, verify  # noqa: E402

GPU = gpus.get("a100-sxm-80")


# ------------------------------------------------------------------------------------------- how it is launched


class Kernel:
    """Stands for the compiled kernel, and does in NumPy what its arguments say, strides and scale included."""

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def launch(q: Any, k: Any, v: Any, o: Any, lse: Any, *numbers: Any, **options: Any) -> None:
            *strides, heads_q, group, seq_q, seq_kv, scale = numbers
            assert strides == [stride for x in (q, k, v, o) for stride in x.stride()[:3]]
            assert (heads_q, heads_q // group, seq_q, seq_kv) == (q.shape[1], k.shape[1], q.shape[2], k.shape[2])
            assert grid == (q.shape[0] * heads_q * -(-seq_q // options["BLOCK_M"]), 1, 1)
            assert options["num_stages"] == NUM_STAGES and options["DIM"] >= options["HEAD_DIM"] == q.shape[-1]
            k, v = (x.repeat_interleave(group, dim=1).double() for x in (k, v))
            s = q.double() @ k.transpose(2, 3) * scale * np.log(2)
            if options["CAUSAL"]:
                hidden = torch.arange(seq_kv) > torch.arange(seq_q)[:, None] + seq_kv - seq_q
                s = s.masked_fill(hidden, -torch.inf)
            lse.copy_(s.logsumexp(-1))
            o.copy_(torch.exp(s - s.logsumexp(-1, keepdim=True)) @ v)

        return launch


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("shape", [AttentionShape(2, 4, 2, 33, 65, 40), AttentionShape(1, 2, 2, 20, 50, 128, True)])
def test_the_launch_says_what_the_case_is(
    shape: AttentionShape, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    kernel: Any = SimpleNamespace(flash_forward=Kernel())
    monkeypatch.setitem(sys.modules, "fa_bench.backends.triton_flash", kernel)
    case = Case("triton-flash", shape, "bf16", layout=layout)
    inputs = make_inputs(case)
    attention = TorchAttention(case, inputs)
    result = attention()
    assert result[0].stride() == attention._qkv[0].stride()  # O lies as Q does
    verdict = verify(case, *attention.to_numpy(result), inputs)
    assert verdict.passed, verdict.detail


def test_every_tile_fits_the_smallest_gpu() -> None:
    # 99 KiB on compute capability 8.6, 8.9 and 12.0. D = 256: 2 · 256 · (64 + 4 · 32) = 96 KiB.
    for head_dim, smem_bytes in ((64, 49_152), (128, 98_304), (256, 98_304)):
        model = library_model(Case("triton-flash", AttentionShape(1, 1, 1, 64, 64, head_dim)), GPU)
        assert model is not None
        # D = 64: 2 · 64 · (128 + 4 · 64) = 48 KiB; D = 128: twice that.
        assert model.tile.smem_bytes == smem_bytes <= 101_376
        assert model.work.flops_executed == 4 * model.tile.block_m * model.tile.dim * -(-64 // model.tile.block_n) * (
            model.tile.block_n
        )


# --------------------------------------------------------------------------------------------- what it computes


def compiled(case: Case) -> Any:
    """Triton's own compiler, for a GPU that is not here; every size that a multiple of 16 is, is said to be one."""
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fa_bench.backends.triton_flash import flash_forward

    element = {"fp16": "*fp16", "bf16": "*bf16"}[case.dtype]
    types = dict.fromkeys("QKVO", element) | {"LSE": "*fp32", "scale_log2": "fp32"}
    types |= dict.fromkeys(("heads_q", "group", "seq_q", "seq_kv"), "i32")
    fixed = constants(case)
    signature = {name: "constexpr" if name in fixed else types.get(name, "i64") for name in flash_forward.arg_names}
    aligned = [number for number, value in enumerate(arguments(case, dict.fromkeys("QKVO", 0))[:17]) if value % 16 == 0]
    attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
    source = ASTSource(fn=flash_forward, signature=signature, constexprs=fixed, attrs=attributes)
    options = {"num_warps": triton_tile(case.shape.head_dim).num_warps, "num_stages": NUM_STAGES}
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)


def arguments(case: Case, addresses: dict[str, int]) -> list[Any]:
    shape = case.shape
    pointers = [np.uint64(addresses[name]) for name in "QKVO"] + [np.uint64(addresses.get("LSE", 0))]
    strides = [np.int64(stride) for buffer in qkvo(case) for stride in buffer.strides[:3]]
    sizes = [np.int32(size) for size in (shape.heads_q, shape.group, shape.seq_q, shape.seq_kv)]
    # Two pointers of Triton's own end the list: scratch memory that this kernel has none of.
    return [*pointers, *strides, *sizes, np.float32(scale_log2(shape.head_dim)), np.uint64(0), np.uint64(0)]


CASES = [
    (AttentionShape(1, 2, 1, 200, 333, 64, True), "fp16", "bshd"),
    (AttentionShape(1, 1, 1, 130, 100, 40), "fp16", "bhsd"),  # columns and rows that end inside of a tile
]
LONG_CASES = [
    (AttentionShape(1, 1, 1, 128, 128, 64), "fp16", "bhsd"),
    (AttentionShape(2, 2, 1, 200, 77, 64, True), "bf16", "bhsd"),  # queries 0 ... 122 see nothing
    (AttentionShape(1, 1, 1, 130, 200, 96, True), "bf16", "bshd"),
    (AttentionShape(1, 1, 1, 130, 200, 256, True), "fp16", "bhsd"),
    (AttentionShape(1, 1, 1, 1, 33, 16, True), "fp16", "bhsd"),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "layout"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG_CASES)],
    ids=str,
)
# Triton warns of changes to come in its own defaults.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_its_ptx_computes_attention_and_moves_what_the_model_says(
    shape: AttentionShape, dtype: DType, layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    case = Case("triton-flash", shape, dtype, layout=layout)
    baseline = find("triton-flash")
    assert baseline is not None and baseline.unsupported(case, "cuda", "sm_80") is None
    binary, inputs, memory = compiled(case), make_inputs(case), ptx.Memory()
    for buffer in qkvo(case):
        values = memory.allocate(buffer.name, buffer.nbytes).view(inputs["Q"].dtype)
        if buffer.name in inputs:
            logical = inputs[buffer.name]
            values[:] = (logical if layout == "bhsd" else logical.swapaxes(1, 2)).ravel()
    memory.allocate("LSE", shape.slices * shape.seq_q * 4)
    addresses = {name: memory.address(name) for name in ("Q", "K", "V", "O", "LSE")}
    tile = triton_tile(shape.head_dim)
    counters = ptx.launch(
        ptx.load(binary.asm["ptx"]).kernel("flash_forward"),
        grid=(shape.slices * -(-shape.seq_q // tile.block_m), 1, 1),
        block=(tile.num_warps * 32, 1, 1),
        args=arguments(case, addresses),
        memory=memory,
        smem_bytes=binary.metadata.shared,
    )
    o = memory.array("O").view(inputs["Q"].dtype)
    if layout == "bhsd":
        o = o.reshape(inputs["Q"].shape)
    else:
        o = o.reshape(shape.batch, shape.seq_q, shape.heads_q, shape.head_dim).swapaxes(1, 2)
    lse = memory.array("LSE").view(np.float32).reshape(shape.batch, shape.heads_q, shape.seq_q)
    verdict = verify(case, o, lse, inputs)
    assert verdict.passed, verdict.detail
    model = library_model(case, GPU)
    assert (model is None) == (shape.head_dim == 40)  # rows of 80 bytes: no whole sectors
    for part in () if model is None else model.traffic:
        counted = counters.tensors[part.tensor]
        assert (counted.read_bytes if part.op == "read" else counted.write_bytes) == part.bytes, part.tensor
    if model is not None:
        # And once per row its sum's reciprocal, in each of the four lanes that share the row. Above 128 columns Triton
        # computes some of them in two layouts, which the model leaves out.
        rows = shape.slices * -(-shape.seq_q // tile.block_m) * tile.block_m
        computed, least = counters.instructions["sfu"] * 32, model.work.exp_count + 4 * rows
        assert computed == least if shape.head_dim <= 128 else computed >= least
