"""Layouts in memory, C types of arguments, alignment classes, resources: worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench.algorithms.base import Buffer, KernelSpec, Launch, Program, Scalar
from fa_bench.algorithms.tensors import qkvo, row_vector
from fa_bench.backends.programs import (
    alignment_classes,
    arguments,
    filled,
    fitting_arguments,
    output,
    resources,
    tensor_view,
)
from fa_bench.cases import AttentionShape, Case, Layout
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import UsageError
from fa_bench.ptx import load
from fa_bench.reference import make_inputs


def test_a_buffers_strides_are_its_layout() -> None:
    # Logical [1, 2 heads, 3 rows, 2 dims], heads next to each other in memory (bshd): row r, head h starts at
    # element r · 4 + h · 2.
    buffer = Buffer("Q", "fp16", (1, 2, 3, 2), (12, 2, 4, 1), "input")
    values = np.arange(12, dtype=np.float16).reshape(1, 2, 3, 2)
    raw = filled(buffer, values)
    assert raw.nbytes == 24
    assert raw.view(np.float16).tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]
    np.testing.assert_array_equal(tensor_view(buffer, raw), values)


def test_padding_between_rows_is_poison() -> None:
    # Pitch 4 for 3 columns: (2 - 1) · 4 + 3 = 7 elements; element 3 belongs to no row.
    buffer = Buffer("S", "fp32", (1, 1, 2, 3), (8, 8, 4, 1), "workspace")
    raw = filled(buffer, np.ones((1, 1, 2, 3), np.float32))
    assert raw.nbytes == 28
    assert np.isnan(raw.view(np.float32)).tolist() == [False, False, False, True, False, False, False]


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_what_goes_in_comes_out(dtype: str, layout: Layout) -> None:
    case = Case("flash2", AttentionShape(2, 3, 3, 5, 5, 16), dtype, layout=layout)  # type: ignore[arg-type]
    tensors = qkvo(case)
    program = Program((*tensors, row_vector("LSE", case, "output")), ())
    values = make_inputs(case)["Q"]
    got = output(program, "O", filled(tensors[3], values), case)
    np.testing.assert_array_equal(got, values)
    assert got.flags.c_contiguous
    lse = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    np.testing.assert_array_equal(output(program, "LSE", filled(program.buffer("LSE"), lse), case), lse)


def test_scalars_get_their_c_type() -> None:
    args = ("Q", Scalar("i32", 7), Scalar("i64", 2**40), Scalar("f32", 0.125))
    launch = Launch(KernelSpec("a.cu", "a"), (1, 1, 1), (32, 1, 1), 0, args)
    wrapped = arguments(launch, lambda name: f"&{name}")
    assert wrapped == ["&Q", 7, 2**40, 0.125]
    assert [type(x) for x in wrapped[1:]] == [np.int32, np.int64, np.float32]
    with pytest.raises(OverflowError):
        arguments(Launch(launch.kernel, (1, 1, 1), (1, 1, 1), 0, (Scalar("i32", 2**31),)), str)


def test_every_c_type_has_its_width() -> None:
    args = (Scalar("bool", 1), Scalar("u32", 2**32 - 1), Scalar("u64", 2**63), Scalar("f64", 0.1))
    wrapped = arguments(Launch(KernelSpec("a.cu", "a"), (1, 1, 1), (32, 1, 1), 0, args), str)
    assert [value.nbytes for value in wrapped] == [1, 4, 8, 8]
    assert wrapped == [True, 2**32 - 1, 2**63, 0.1]


def test_arguments_are_those_that_the_kernel_takes() -> None:
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text = head + ".visible .entry a(.param .u64 q, .param .u32 n)\n{\n    ret;\n}\n"
    kernel = load(text).kernel("a")

    def fitting(*args: str | Scalar) -> list[object]:
        launch = Launch(KernelSpec("a.cu", "a"), (1, 1, 1), (32, 1, 1), 0, args)
        return fitting_arguments(launch, kernel, lambda name: np.uint64(16))

    assert fitting("Q", Scalar("i32", 7)) == [16, 7]
    for args, said in (
        (("Q",), "Kernel a takes 2 arguments, not 1: correct args of this kernel in its TOML file."),
        (("Q", Scalar("i64", 7)), "Argument 2 of kernel a has 4 bytes, but i64 has 8: correct args"),
        (("Q", "K"), "Argument 2 of kernel a has 4 bytes, but the pointer K has 8: correct args"),
        ((Scalar("f32", 1), Scalar("i32", 7)), "Argument 1 of kernel a has 8 bytes, but f32 has 4: correct args"),
    ):
        with pytest.raises(UsageError, match=said):
            fitting(*args)


def classes(case: Case) -> list[list[int]]:
    return alignment_classes(Program((*qkvo(case), row_vector("LSE", case, "output")), ()), case.shape)


def test_whole_lines_are_all_alike() -> None:
    # fp16, D = 64: a slice of 32 rows is 4096 bytes and its LSE 128 bytes: every slice starts a line.
    assert classes(Case("flash2", AttentionShape(2, 4, 2, 32, 32, 64))) == [list(range(8))]


def test_odd_rows_make_classes() -> None:
    # fp16, D = 40, one row: Q and O slices start at 80 · s mod 128, K and V (one head) at 0, LSE at 4 · s mod 128.
    # 80 s mod 128 repeats every 8 slices (80 · 8 = 640 = 5 · 128), 4 s every 32: all 16 differ.
    assert len(classes(Case("flash2", AttentionShape(1, 16, 1, 1, 1, 40)))) == 16
    # With 32 rows: 2560 s mod 128 = 0 and 128 s mod 128 = 0: one class again.
    assert len(classes(Case("flash2", AttentionShape(1, 16, 1, 32, 32, 40)))) == 1
    # With 8 rows: Q at 640 s = 0 mod 128, LSE at 32 s mod 128: four classes, every fourth slice.
    assert classes(Case("flash2", AttentionShape(1, 8, 1, 8, 8, 40))) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_kv_heads_are_entered_by_group() -> None:
    # bshd, D = 8: head h of Q starts at 16 h bytes, K/V head g at 16 g; LSE (32 rows) at multiples of 128.
    # 4 query heads on 2 K/V heads: (Q, K) offsets (0, 0), (16, 0), (32, 16), (48, 16): four classes.
    case = Case("flash2", AttentionShape(2, 4, 2, 32, 32, 8), layout="bshd")
    # A batch is 32 · 4 · 16 = 2048 bytes of Q and 1024 of K, whole lines: the second batch repeats the first.
    assert classes(case) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def compiled(name: str, registers: int, static: int, spills: int, ms: float) -> CompiledKernel:
    return CompiledKernel(name, "", b"", registers, static, spills, "13.0", ms)


def test_resources_are_of_the_kernel_with_most_shared_memory() -> None:
    def launch(name: str, smem: int) -> Launch:
        return Launch(KernelSpec("x.cu", name), (1, 1, 1), (32, 1, 1), smem, ())

    got = resources(
        [launch("a", 1000), launch("b", 900), launch("a", 1000)],
        [compiled("a", 40, 0, 8, 5.0), compiled("b", 90, 200, 0, 7.0), compiled("a", 40, 0, 8, 5.0)],
    )
    # b takes 900 + 200 = 1100 bytes; a, launched twice, was compiled once: spills 8, time 12 ms.
    assert (got.registers, got.smem_bytes, got.spill_bytes, got.compile_ms) == (90, 1100, 8, 12.0)
    assert got.threads == 32


def test_what_nobody_said_is_not_known() -> None:
    ptx = CompiledKernel("a", "", b"", None, None, None, "", None)
    launches = [Launch(KernelSpec(f"{name}.ptx", name), (1, 1, 1), (8, 4, 2), 64, ()) for name in "ab"]
    got = resources(launches, [ptx, compiled("b", 40, 0, 8, 5.0)])
    # Both take 64 bytes as far as is known; b has more registers.
    assert (got.threads, got.registers, got.smem_bytes, got.spill_bytes, got.compile_ms) == (64, 40, 64, None, None)
    got = resources(launches[:1], [ptx])
    assert (got.registers, got.smem_bytes, got.nvrtc_version) == (None, None, "")
