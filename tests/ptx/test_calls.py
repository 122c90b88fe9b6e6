"""Device functions and indexed branches."""

import numpy as np
import pytest

from fa_bench.errors import KernelFault
from fa_bench.ptx.isa import PtxError
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load

SQUARE = """
.func (.param .b32 result) square(.param .b32 a)
{
.reg .b32 %r<3>;
ld.param.u32 %r1, [a];
mul.lo.u32 %r2, %r1, %r1;
st.param.b32 [result], %r2;
ret;
}
"""


def call(function: str, result: str, *arguments: str) -> str:
    """The call of a function of 32-bit parameters as compilers write it."""
    stores = "".join(f".param .b32 p{k};\nst.param.b32 [p{k}], {a};\n" for k, a in enumerate(arguments))
    names = ", ".join(f"p{k}" for k in range(len(arguments)))
    return (
        f"{{\n.reg .b32 temp_reg;\n{stores}.param .b32 retval;\ncall.uni (retval), {function}, ({names});\n"
        f"ld.param.b32 {result}, [retval];\n}}\n"
    )


def run(engine, functions: str, body: str, declarations: str = "") -> list[int]:
    """out[lane] = %r9; the lane is in %r0."""
    memory = Memory()
    out = memory.allocate("out", 128).view(np.uint32)
    text = engine.wrap(
        f"mov.u32 %r0, %tid.x;\nmov.u32 %r9, 0;\n{body}\nld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 4, %rd0;\n"
        "st.global.u32 [%rd0], %r9;",
        ".param .u64 out",
        declarations,
    ).replace(".address_size 64\n", f".address_size 64\n{functions}\n")
    engine.launch(text, memory=memory, args=[np.uint64(memory.address("out"))])
    return out.tolist()


def test_a_function_returns_a_value(engine):
    assert run(engine, SQUARE, call("square", "%r9", "%r0")) == [lane**2 for lane in range(32)]


def test_registers_of_a_call_are_its_own(engine):
    """The function's %r1 and %r2 are not the kernel's; two calls do not disturb each other."""
    body = "mov.u32 %r1, 5;\nmov.u32 %r2, 6;\nadd.u32 %r3, %r0, 1;\n" + call("square", "%r4", "%r0")
    body += call("square", "%r5", "%r3") + "sub.u32 %r9, %r5, %r4;\nadd.u32 %r9, %r9, %r1;\nadd.u32 %r9, %r9, %r2;"
    # (l + 1)^2 - l^2 = 2 l + 1, and 5 + 6.
    assert run(engine, SQUARE, body) == [2 * lane + 12 for lane in range(32)]


def test_functions_call_functions(engine):
    """fourth(a) = square(square(a))."""
    fourth = (
        ".func (.param .b32 result) fourth(.param .b32 a)\n{\n.reg .b32 %r<4>;\nld.param.u32 %r1, [a];\n"
        + call("square", "%r2", "%r1")
        + call("square", "%r3", "%r2")
        + "st.param.b32 [result], %r3;\nret;\n}\n"
    )
    assert run(engine, SQUARE + fourth, call("fourth", "%r9", "%r0")) == [lane**4 for lane in range(32)]


def test_labels_and_early_returns_of_a_function(engine):
    """The lanes below 8 leave by a first return; both calls have their own label SMALL."""
    clip = (
        ".func (.param .b32 result) clip(.param .b32 a)\n{\n.reg .b32 %r<3>;\n.reg .pred %p<2>;\n"
        "ld.param.u32 %r1, [a];\n"
        "setp.lt.u32 %p1, %r1, 8;\n@%p1 bra SMALL;\nmov.u32 %r1, 8;\nst.param.b32 [result], %r1;\nret;\nSMALL:\n"
        "add.u32 %r1, %r1, 100;\nst.param.b32 [result], %r1;\nret;\n}\n"
    )
    body = "add.u32 %r2, %r0, 4;\n" + call("clip", "%r3", "%r0") + call("clip", "%r4", "%r2")
    body += "mad.lo.u32 %r9, %r3, 1000, %r4;"

    def clipped(value: int) -> int:
        return value + 100 if value < 8 else 8

    assert run(engine, clip, body) == [1000 * clipped(lane) + clipped(lane + 4) for lane in range(32)]


def test_a_guarded_call(engine):
    """Only the odd lanes call."""
    body = "and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 bra SKIP;\n" + call("square", "%r9", "%r0") + "SKIP:"
    assert run(engine, SQUARE, body) == [lane**2 if lane % 2 else 0 for lane in range(32)]


def test_a_function_with_several_parameters_and_memory(engine):
    """The function gets a pointer to local memory and stores through it."""
    store = (
        ".func store(.param .b64 place, .param .b32 value)\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n"
        "ld.param.u64 %rd1, [place];\nld.param.u32 %r1, [value];\nst.u32 [%rd1+4], %r1;\nret;\n}\n"
    )
    body = (
        "mov.u64 %rd1, depot;\ncvta.local.u64 %rd1, %rd1;\nmul.lo.u32 %r1, %r0, 3;\n"
        "{\n.param .b64 p0;\nst.param.b64 [p0], %rd1;\n.param .b32 p1;\nst.param.b32 [p1], %r1;\n"
        "call.uni store, (p0, p1);\n}\nld.local.u32 %r9, [depot+4];"
    )
    assert run(engine, store, body, ".local .align 8 .b8 depot[8];") == [3 * lane for lane in range(32)]


def test_parameters_in_registers(engine):
    """The form of hand-written PTX: formal parameters are registers."""
    weighted = ".func (.reg .u32 %out) weighted(.reg .u32 %a, .reg .u32 %b)\n{\nmad.lo.u32 %out, %a, 10, %b;\nret;\n}\n"
    assert run(engine, weighted, "call (%r9), weighted, (%r0, 7);") == [10 * lane + 7 for lane in range(32)]


def test_a_forward_declaration(engine):
    declared = ".func (.param .b32 result) square(.param .b32 a);\n"
    assert run(engine, declared + SQUARE, call("square", "%r9", "%r0")) == [lane**2 for lane in range(32)]


RECURSIVE = (
    ".func (.param .b32 result) again(.param .b32 a)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [a];\n"
    + call("again", "%r2", "%r1")
    + "st.param.b32 [result], %r2;\nret;\n}\n"
)


@pytest.mark.parametrize(
    "functions, body",
    [
        (RECURSIVE, call("again", "%r9", "%r0")),
        ("", call("nowhere", "%r9", "%r0")),
        (SQUARE, "mov.u64 %rd1, square;\n{\n.param .b32 p0;\n.param .b32 q0;\ncall (q0), %rd1, (p0), proto;\n}"),
        (SQUARE, "call.uni square;"),
    ],
    ids=["recursion", "no such function", "indirect", "no arguments"],
)
def test_what_is_not_inlined_is_refused(engine, functions, body):
    with pytest.raises(PtxError):
        run(engine, functions, body)


def jump(index: str, guard: str = "") -> str:
    """%r9 becomes 10, 20 or 30 by the index; 7 where no jump is made."""
    return (
        f"TABLE: .branchtargets A, B, C;\n{guard} brx.idx {index}, TABLE;\nmov.u32 %r9, 7;\nbra END;\n"
        "A:\nmov.u32 %r9, 10;\nbra END;\nB:\nmov.u32 %r9, 20;\nbra END;\nC:\nmov.u32 %r9, 30;\nEND:\n"
    )


def test_indexed_branch_of_each_lane(engine):
    body = "rem.u32 %r1, %r0, 3;\n" + jump("%r1")
    assert run(engine, "", body) == [10 * (lane % 3 + 1) for lane in range(32)]


def test_indexed_branch_of_the_whole_warp(engine):
    assert run(engine, "", "mov.u32 %r1, 2;\n" + jump("%r1")) == [30] * 32


def test_guarded_indexed_branch(engine):
    body = "rem.u32 %r1, %r0, 3;\nsetp.lt.u32 %p0, %r0, 16;\n" + jump("%r1", "@%p0")
    assert run(engine, "", body) == [10 * (lane % 3 + 1) if lane < 16 else 7 for lane in range(32)]


def test_indexed_branch_in_a_loop(engine):
    """Three rounds through all targets: the lane's sum of 10, 20 and 30 in some order."""
    body = (
        "mov.u32 %r5, 0;\nmov.u32 %r6, 0;\nLOOP:\nadd.u32 %r1, %r0, %r5;\nrem.u32 %r1, %r1, 3;\n"
        + jump("%r1")
        + "add.u32 %r6, %r6, %r9;\nadd.u32 %r5, %r5, 1;\nsetp.lt.u32 %p0, %r5, 3;\n@%p0 bra LOOP;\nmov.u32 %r9, %r6;"
    )
    assert run(engine, "", body) == [60] * 32


def test_an_index_beyond_the_table_is_a_fault(engine):
    with pytest.raises(KernelFault, match="branch targets"):
        run(engine, "", jump("%r0"))


@pytest.mark.parametrize("body", ["brx.idx %r0, NOWHERE;", "T: .branchtargets A;\nbra T;\nA:", "brx.idx %r0, A;\nA:"])
def test_malformed_indexed_branches(engine, body):
    with pytest.raises(PtxError):
        load(engine.wrap(body))
