"""A tile language's PTX, where Triton is installed: it compiles for sm_80 without a GPU, and runs unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fa_bench

triton: Any = pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
tl: Any = pytest.importorskip("triton.language")

pytestmark = pytest.mark.filterwarnings("ignore")


@triton.jit
def attention(Q, K, V, O, seq, scale, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):  # noqa: E741
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, D], tl.float32)
    for start in range(0, seq, KEYS):
        keys = start + tl.arange(0, KEYS)
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        v = tl.load(V + keys[:, None] * D + dims[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(tl.float16), v)
        largest = new
    tl.store(O + rows[:, None] * D + dims[None, :], (out / total[:, None]).to(tl.float16))


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel for an A100: fp16, D = 64, tiles of 64 by 64, four warps."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tensors = dict.fromkeys("QKVO", "*fp16")
    constants = {"D": 64, "ROWS": 64, "KEYS": 64}
    signature = {**tensors, "seq": "i32", "scale": "fp32", **dict.fromkeys(constants, "constexpr")}
    # Pointers and the length are multiples of 16, so that loads are wide and asynchronous.
    aligned = {(k,): [["tt.divisibility", 16]] for k in range(5)}
    source = ASTSource(attention, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4, "num_stages": 2})


def test_attention_in_triton(compiled: Any) -> None:
    seq, dim = 128, 64
    q, k, v = (np.random.default_rng(seed).standard_normal((seq, dim)).astype(np.float16) for seed in range(3))
    # Behind its own parameters a kernel takes two pointers to scratch memory, which this one does not use.
    arguments = {"Q": q, "K": k, "V": v, "O": "out:f16[128,64]", "seq": seq, "scale": 0.125, "s": None, "p": None}
    report = fa_bench.profile(
        compiled.asm["ptx"], "attention", grid=2, args=arguments, smem_bytes=compiled.metadata.shared
    )
    # .reqntid says how many threads.
    assert report.block == (128, 1, 1)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    # Weights up to 1 are rounded to halves, 2^-11 each, and so is the output, below 4.
    bound = 2**-11 * np.abs(v).max() + 2**-10
    assert np.abs(report.outputs["O"] - exact).max() < bound
    # Q and O once; K and V once for each of two CTAs. All in full sectors.
    assert {(moved.tensor, moved.op): moved.bytes for moved in report.traffic} == {
        ("Q", "read"): seq * dim * 2,
        ("K", "read"): 2 * seq * dim * 2,
        ("V", "read"): 2 * seq * dim * 2,
        ("O", "write"): seq * dim * 2,
    }
    # 4 · 128 · 128 · 64 floating-point operations, 4096 in an mma.m16n8k16.
    assert report.instructions["tensor"] == 4 * seq * seq * dim // 4096
    # Lines are those of this file.
    assert any("tl.dot" in line.text for line in report.hottest(5))
