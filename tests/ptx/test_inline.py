"""Device functions: parameters, returns, divergence, local variables, and the calls that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench.ptx.isa import PtxError, UnsupportedInstruction
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load

#: Seven lines stand before what ``head`` holds.
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def results(engine, functions: str, body: str, declarations: str = "") -> list[int]:
    """What each lane leaves in %r1; %r0 is the lane."""
    memory = Memory()
    out = memory.allocate("out", 128).view(np.uint32)
    text = engine.wrap(
        f"mov.u32 %r0, %tid.x;\nmov.u32 %r1, 0;\n{body}\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\n"
        "st.global.u32 [%rd0], %r1;",
        ".param .u64 out",
        declarations,
    ).replace(".visible .entry", f"{functions}\n.visible .entry")
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))])
    return out.tolist()


def call(name: str, result: str, *arguments: str) -> str:
    """A call of 32-bit parameters as compilers write it."""
    lines = ["{"]
    for k, argument in enumerate(arguments):
        lines.append(f".param .b32 param{k};\nst.param.b32 [param{k}+0], {argument};")
    passed = ", ".join(f"param{k}" for k in range(len(arguments)))
    lines.append(
        f".param .b32 retval0;\ncall.uni (retval0), {name}, ({passed});\nld.param.b32 {result}, [retval0+0];\n}}"
    )
    return "\n".join(lines)


def function(name: str, count: int, body: str) -> str:
    """A function of 32-bit parameters p0, p1 ... and result r, with registers of the caller's names."""
    params = ", ".join(f".param .b32 {name}_p{k}" for k in range(count))
    return (
        f".func (.param .b32 r) {name} ({params})\n{{\n.reg .b32 %r<8>;\n.reg .pred %p<4>;\n"
        + "".join(f"ld.param.u32 %r{k}, [{name}_p{k}];\n" for k in range(count))
        + f"{body}\n}}\n"
    )


TWICE = function("twice", 1, "add.u32 %r1, %r0, %r0;\nst.param.b32 [r+0], %r1;\nret;")
#: 1 for lanes below %r1, by an early return; a loop to n otherwise: 1 + 2 + ... + n.
SUM = function(
    "sum",
    2,
    "setp.ge.u32 %p1, %r0, %r1;\n@%p1 bra GO;\nmov.u32 %r2, 1;\nst.param.b32 [r+0], %r2;\nret;\n"
    "GO:\nmov.u32 %r2, 0;\nLOOP:\nadd.u32 %r2, %r2, %r0;\nsub.u32 %r0, %r0, 1;\nsetp.ne.u32 %p0, %r0, 0;\n"
    "@%p0 bra LOOP;\n"
    "st.param.b32 [r+0], %r2;\nret;",
)


def test_registers_and_labels_are_the_copys_own(engine):
    """Two calls with different arguments; the caller's %r0 and its own label LOOP are not touched."""
    body = call("twice", "%r2", "%r0") + "\nLOOP:\n" + call("twice", "%r3", "%r2") + "\nadd.u32 %r1, %r3, %r0;"
    assert results(engine, TWICE, body) == [5 * lane for lane in range(32)]


def test_lanes_return_from_different_places(engine):
    """Lanes below 3 return early, the others loop as often as their number says; all meet behind the call."""
    body = call("sum", "%r1", "%r0", "3") + "\nadd.u32 %r1, %r1, 1000;"
    assert results(engine, SUM, body) == [1001 if n < 3 else 1000 + n * (n + 1) // 2 for n in range(32)]


def test_calls_in_calls_and_in_loops(engine):
    """outer(x) = sum(twice(x), 1); it is called for x = 1, 2, 3 and the results are added: 3 + 10 + 21."""
    outer = function(
        "outer", 1, call("twice", "%r1", "%r0") + call("sum", "%r2", "%r1", "1") + "st.param.b32 [r], %r2;"
    )
    body = (
        "mov.u32 %r4, 1;\nAGAIN:\n"
        + call("outer", "%r2", "%r4")
        + "\nadd.u32 %r1, %r1, %r2;\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p0, %r4, 4;\n@%p0 bra AGAIN;"
    )
    assert results(engine, TWICE + SUM + outer, body) == [34] * 32


def test_a_guarded_call_is_for_the_lanes_whose_guard_holds(engine):
    body = (
        "setp.lt.u32 %p0, %r0, 4;\nmov.u32 %r1, 7;\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r0;\n"
        "@%p0 call (b), twice, (a);\n@%p0 ld.param.b32 %r1, [b];"
    )
    assert results(engine, TWICE, body) == [0, 2, 4, 6] + [7] * 28


def test_parameters_in_registers(engine):
    """The older form: formal parameters and results are registers, arguments may be immediates."""
    scale = ".func (.reg .b32 r) scale (.reg .b32 x, .reg .b32 y)\n{\nmad.lo.u32 r, x, y, 1;\n}\n"
    assert results(engine, scale, "call (%r1), scale, (%r0, 5);") == [5 * lane + 1 for lane in range(32)]


def test_narrow_parameters_fill_their_registers(engine):
    """-3 passed as a byte: read as s8 it is -3, as u8 253; the register has 32 bits."""
    narrow = (
        ".func (.param .b32 r) narrow (.param .b8 x)\n{\n.reg .b32 %r<4>;\nld.param.s8 %r0, [x];\n"
        "ld.param.u8 %r1, [x];\n"
        "mad.lo.s32 %r2, %r0, 1000, %r1;\nst.param.b32 [r], %r2;\nret;\n}\n"
    )
    body = (
        "mov.u32 %r2, -3;\n.param .b8 a;\n.param .b32 b;\nst.param.b8 [a], %r2;\ncall (b), narrow, (a);\n"
        "ld.param.b32 %r1, [b];"
    )
    assert results(engine, narrow, body) == [(-3000 + 253) % 2**32] * 32
    assert load_kernel(engine, narrow, body).local_bytes == 0


def load_kernel(engine, functions: str, body: str):
    return load(engine.wrap(body).replace(".visible .entry", f"{functions}\n.visible .entry")).kernel("k")


def test_parts_of_other_sizes_go_through_memory(engine):
    """The caller writes two words, the function reads one of 64 bits and a half: the parameter lies in local memory."""
    parts = (
        ".func (.param .b32 r) parts (.param .align 8 .b8 x[8])\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd0;\n"
        "ld.param.b64 %rd0, [x];\nshr.u64 %rd0, %rd0, 32;\ncvt.u32.u64 %r0, %rd0;\nld.param.u16 %r1, [x+2];\n"
        "add.u32 %r0, %r0, %r1;\nst.param.b32 [r], %r0;\nret;\n}\n"
    )
    body = (
        "shl.b32 %r2, %r0, 16;\n.param .align 8 .b8 a[8];\n.param .b32 b;\nst.param.v2.b32 [a], {%r2, 500};\n"
        "call (b), parts, (a);\nld.param.b32 %r1, [b];"
    )
    assert results(engine, parts, body) == [500 + lane for lane in range(32)]
    assert load_kernel(engine, parts, body).local_bytes == 8


def test_the_address_of_a_parameter(engine):
    """A function may index its parameter: element lane mod 4 of four words."""
    index = (
        ".func (.param .b32 r) index (.param .align 4 .b8 x[16], .param .b32 i)\n{\n"
        ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
        "mov.b64 %rd0, x;\nld.param.u32 %r0, [i];\nmad.wide.u32 %rd1, %r0, 4, %rd0;\nld.param.u32 %r1, [%rd1];\n"
        "cvta.local.u64 %rd2, %rd1;\nld.u32 %r2, [%rd2];\nadd.u32 %r1, %r1, %r2;\nst.param.b32 [r], %r1;\nret;\n}\n"
    )
    body = (
        ".param .align 4 .b8 a[16];\n.param .b32 i;\n.param .b32 b;\nst.param.b32 [a], 10;\nst.param.b32 [a+4], 20;\n"
        "st.param.b32 [a+8], 30;\nst.param.b32 [a+12], %r0;\nand.b32 %r2, %r0, 3;\nst.param.b32 [i], %r2;\n"
        "call (b), index, (a, i);\nld.param.b32 %r1, [b];"
    )
    assert results(engine, index, body) == [2 * (10, 20, 30, lane)[lane % 4] for lane in range(32)]


def test_local_variables_of_a_function(engine):
    """Each function has its own, each lane its own: the caller's array survives the call that fills another."""
    fill = (
        ".func (.param .b32 r) fill (.param .b32 x)\n{\n.local .align 4 .b8 buffer[8];\n.reg .b32 %r<4>;\n"
        "ld.param.u32 %r0, [x];\nst.local.u32 [buffer+4], %r0;\nld.local.u32 %r1, [buffer+4];\n"
        "st.param.b32 [r], %r1;\nret;\n}\n"
    )
    body = (
        "st.local.u32 [buffer], %r0;\n" + call("fill", "%r2", "99") + call("fill", "%r3", "%r0")
        + "\nld.local.u32 %r1, [buffer];\nadd.u32 %r1, %r1, %r2;\nadd.u32 %r1, %r1, %r3;"
    )  # fmt: skip
    assert results(engine, fill, body, ".local .align 4 .b8 buffer[4];") == [99 + 2 * lane for lane in range(32)]


def test_labels_in_braces_are_local(engine):
    """Inline assembly repeats its labels: each pair of braces has its own, outer ones are seen from within."""
    spin = "{\n.reg .pred p;\nWAIT:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 p, %r1, {0};\n@p bra WAIT;\n@!p bra END{1};\n}"
    body = (
        spin.replace("{0}", "5").replace("{1}", "1")
        + "\nEND1:\n"
        + spin.replace("{0}", "9").replace("{1}", "2")
        + "\nEND2:"
    )
    assert results(engine, "", body) == [9] * 32


@pytest.mark.parametrize(
    "functions, body, named",
    [
        (
            ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);",
            call("vprintf", "%r1", "1", "2"),
            "vprintf",
        ),
        (function("again", 1, call("again", "%r1", "%r0")), call("again", "%r1", "1"), "again"),
        (TWICE, call("twice", "%r1"), "twice"),
        (TWICE, call("missing", "%r1", "%r0"), "missing"),
        (TWICE, "call (%r1), %rd0, (%r0), prototype;", "%rd0"),
        (TWICE, ".param .b32 a;\n.param .b32 b;\nst.param.b64 [a], %rd0;\ncall (b), twice, (a);", "st.param.b64"),
    ],
)
def test_calls_that_are_refused(functions, body, named):
    """Without a body, recursive, with another number of parameters, unknown, indirect, beyond a parameter's end."""
    text = f"{HEAD}{functions}\n.entry k()\n{{\n.reg .b32 %r<8>;\n.reg .b64 %rd<2>;\n{body}\nret;\n}}\n"
    with pytest.raises(UnsupportedInstruction) as refused:
        load(text)
    assert named in refused.value.text
    assert text.splitlines()[refused.value.line - 1].strip().rstrip(";") in refused.value.text.replace(";", "")


def test_recursion_through_two_functions_is_refused():
    first, second = (function(a, 1, call(b, "%r1", "%r0")) for a, b in (("f", "g"), ("g", "f")))
    with pytest.raises(UnsupportedInstruction, match="call"):
        load(f"{HEAD}{first}{second}.entry k()\n{{\n.reg .b32 %r<8>;\n{call('f', '%r1', '1')}\n}}\n")


def test_a_label_stands_once():
    with pytest.raises(PtxError, match="two labels"):
        load(f"{HEAD}.entry k()\n{{\nA:\nA:\nret;\n}}\n")
