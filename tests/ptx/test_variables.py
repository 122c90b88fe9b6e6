"""Module-level variables: initialisers, layout, addresses, and that they belong to the module."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.ptx.isa import PtxError, UnsupportedInstruction
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.variables import Storage, declared


def content(declaration: str, name: str = "x") -> bytes:
    return Storage(declared(declaration)).array(name).tobytes()


@pytest.mark.parametrize(
    "declaration, expected",
    [
        (".global .align 4 .u32 x;", bytes(4)),
        (".visible .global .align 4 .u32 x = 5;", b"\5\0\0\0"),
        (".global .align 1 .b8 x[4] = {1, 2, 0xFF};", b"\1\2\xff\0"),
        (".global .b8 x[3] = {-1, 011, 255};", b"\xff\x09\xff"),
        (".const .align 4 .f32 x[2] = {0f3F800000, -2.5};", np.array([1, -2.5], np.float32).tobytes()),
        (".const .f64 x = 0d3FF8000000000000;", np.float64(1.5).tobytes()),
        (".global .u16 x[2][3] = {{1, 2}, {3}};", np.array([1, 2, 0, 3, 0, 0], np.uint16).tobytes()),
        (".global .u16 x[2][2] = {1, 2, 3};", np.array([1, 2, 3, 0], np.uint16).tobytes()),
        (".global .v2 .u32 x[2] = {{1, 2}, {3, 4}};", np.array([1, 2, 3, 4], np.uint32).tobytes()),
        (".global .u32 x[] = {7, 8};", np.array([7, 8], np.uint32).tobytes()),
        (".global .attribute(.managed) .align 8 .s64 x = -2;", np.int64(-2).tobytes()),
    ],
)
def test_initialisers(declaration, expected):
    assert content(declaration) == expected


def test_constants_lie_in_one_bank():
    """Each at its alignment: one byte, then four words at 4, then a double at 24."""
    storage = Storage(declared(".const .b8 a = 1;\n.const .align 4 .b32 b[4];\n.const .f64 c;\n.global .u32 g;"))
    assert [storage.address(name) for name in "abc"] == [0, 4, 24]
    assert storage.constant.size == 32
    assert storage.globals == ("g",)


def test_addresses_in_initialisers():
    """Of a global variable its address; of a constant one its offset, or with generic() its generic address."""
    storage = Storage(
        declared(
            ".global .u32 g[4];\n.const .u32 a[3];\n.const .u32 c[2];\n"
            ".global .u64 x[4] = {g, generic(g)+8, c, generic(c)+4};"
        )
    )
    found = storage.array("x").view(np.uint64).tolist()
    assert found == [storage.address("g"), storage.address("g") + 8, 12, (3 << 56) + 16]


@pytest.mark.parametrize(
    "declaration, error",
    [
        (".global .u32 x = f(1);", UnsupportedInstruction),
        (".global .u32 x[1] = {1, 2};", UnsupportedInstruction),
        (".global .texref x;", UnsupportedInstruction),
        (".global .u64 x = nowhere;", PtxError),
    ],
)
def test_declarations_that_are_refused(declaration, error):
    with pytest.raises(error):
        Storage(declared(declaration))


def test_a_refused_declaration_names_its_line():
    with pytest.raises(UnsupportedInstruction) as refused:
        ptx.load(".version 8.0\n.target sm_80\n.address_size 64\n.global .surfref s;\n.entry k() { ret; }")
    assert refused.value.line == 4


def test_globals_are_the_modules_own(engine):
    """Two loads of one text have a counter each; a launch leaves it for the next; the host reads and writes it."""
    text = engine.wrap(
        "ld.global.u32 %r0, [counter];\nadd.u32 %r0, %r0, 1;\nst.global.u32 [counter], %r0;\n"
        "mov.u64 %rd0, counter;\nld.global.u32 %r1, [%rd0+4];\nadd.u32 %r1, %r1, %r0;\nst.global.u32 [%rd0+4], %r1;"
    ).replace(".visible", ".global .align 4 .u32 counter[2] = {40};\n.visible")
    from fa_bench.ptx.interpreter import run

    function = run if engine.name == "interpreter" else ptx.launch
    first, second = ptx.load(text), ptx.load(text)
    for _ in range(3):
        counters = function(first.kernel("k"), grid=(1, 1, 1), block=(1, 1, 1), args=[], memory=Memory())
    assert first.variable("counter").view(np.uint32).tolist() == [43, 41 + 42 + 43]
    assert second.variable("counter").view(np.uint32).tolist() == [40, 0]
    assert counters.tensors["counter"].read_requests == 2
    second.variable("counter").view(np.uint32)[0] = 7
    function(second.kernel("k"), grid=(1, 1, 1), block=(1, 1, 1), args=[], memory=Memory())
    assert second.variable("counter").view(np.uint32).tolist() == [8, 8]


def test_a_buffer_may_not_have_a_variables_name(engine):
    text = engine.wrap("ret;").replace(".visible", ".global .u32 taken;\n.visible")
    memory = Memory()
    memory.allocate("taken", 4)
    with pytest.raises(ValueError, match="taken"):
        engine.launch(text, memory=memory)


def test_overruns_of_a_global_fault(engine):
    from fa_bench.errors import KernelFault

    text = engine.wrap("ld.global.u32 %r0, [small+8];").replace(".visible", ".global .u32 small[2];\n.visible")
    with pytest.raises(KernelFault, match="small"):
        engine.launch(text, memory=Memory(), block=(1, 1, 1))
