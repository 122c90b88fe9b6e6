"""PTX text: what is read, how scopes and labels resolve, and what is refused, with its line."""

import pytest

from fa_bench.ptx.isa import PtxError, UnsupportedInstruction
from fa_bench.ptx.parser import load
from fa_bench.ptx.program import Addr, Imm, Label, Pair, Param, Reg, Special, Symbol, Vec

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str, params: str = "", head: str = ""):
    """Kernel ``k`` with the body from line 5 on (line 4 opens it)."""
    return load(f"{HEAD}{head}.visible .entry k({params}) {{\n{body}\n}}\n").kernel("k")


def test_operands_of_every_kind():
    k = kernel(
        ".reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p<2>; .reg .f32 %f1;\n"
        ".shared .align 16 .b8 tile[64];\n"
        "mov.u32 %r1, %tid.x;\n"
        "mov.b64 {%r1, _}, %rd1;\n"
        "setp.lt.and.s32 %p0|%p1, %r1, -5, !%p0;\n"
        "ld.global.v2.b32 {%r2, %r3}, [%rd1+8];\n"
        "ld.param.u64 %rd2, [x];\n"
        "mov.u32 %r2, tile;\n"
        "st.shared.u32 [tile+4], %r1;\n"
        "mov.f32 %f1, 0f3F800000;\n"
        "st.global.u32 [%rd1+-16], %r1;\n"
        "@!%p0 bra $L_1;\n"
        "$L_1:\nret;",
        ".param .u64 x",
    )
    i = k.instructions
    assert i[0].operands == (Reg("%r1"), Special("%tid.x"))
    assert i[1].operands == (Vec((Reg("%r1"), Reg("_"))), Reg("%rd1"))
    assert i[2].operands == (Pair(Reg("%p0"), Reg("%p1")), Reg("%r1"), Imm(-5), Reg("%p0", negated=True))
    assert i[3].operands == (Vec((Reg("%r2"), Reg("%r3"))), Addr(Reg("%rd1"), 8))
    assert i[4].operands == (Reg("%rd2"), Addr(Symbol("x")))
    assert i[5].operands == (Reg("%r2"), Symbol("tile"))
    assert i[6].operands == (Addr(Symbol("tile"), 4), Reg("%r1"))
    assert i[7].operands == (Reg("%f1"), Imm(1.0, 0x3F800000))
    assert i[8].operands[0] == Addr(Reg("%rd1"), -16)
    assert i[9].operands == (Label("$L_1"),)
    assert i[9].guard == Reg("%p0", negated=True)
    assert k.labels == {"$L_1": 10}
    assert k.registers["%rd2"] == 64 and k.registers["%p1"] == 1 and k.registers["%f1"] == 32


def test_immediates():
    k = kernel(
        ".reg .b64 %rd<2>; .reg .f32 %f<2>;\nmov.b64 %rd1, 0xFFFFFFFFFFFFFFFF;\nmov.b64 %rd1, 0x10U;\n"
        "mov.b64 %rd1, -7;\nmov.b64 %rd1, 0d3FF8000000000000;\nmov.f32 %f1, 2.5e-1;\nmov.b64 %rd1, WARP_SZ;"
    )
    values = [i.operands[1] for i in k.instructions]
    assert values == [Imm(2**64 - 1), Imm(16), Imm(-7), Imm(1.5, 0x3FF8000000000000), Imm(0.25), Imm(32)]


def test_lines_types_and_modifiers():
    k = kernel(
        ".reg .b32 %r<3>;\n\n// comment\nadd.s32 %r1, %r1,\n  %r2; /* two\nlines */ fma.rn.ftz.f32 %r1, %r1, %r2, %r2;"
    )
    first, second = k.instructions
    assert (first.line, second.line) == (8, 10)
    assert second.row.name == "fma.f32" and second.type == "f32" and second.bits == 32
    assert second.has("ftz") and second.has("rn") and not second.has("sat")
    assert second.written() == (Reg("%r1"),) and second.read() == (Reg("%r1"), Reg("%r2"), Reg("%r2"))


def test_line_information():
    k = kernel(
        ".reg .b32 %r<3>;\nmov.u32 %r1, 0;\n.loc 1 17 3\nmov.u32 %r1, 1;\nmov.u32 %r1, 2;\n"
        ".loc 2 4 9, function_name $L__info0, inlined_at 1 20 1\nmov.u32 %r1, 3;"
    )
    assert [i.source for i in k.instructions] == [None, (1, 17), (1, 17), (2, 4)]


def test_inner_scopes_hide_outer_registers():
    """Inline assembly declares the same name twice; each brace has its own, the outer one is back afterwards."""
    k = kernel(
        ".reg .b32 %r<2>; .reg .b32 t;\nmov.u32 t, 1;\n{\n.reg .b64 t;\nmov.u64 t, 2;\n}\n"
        "{ .reg .pred t;\nmov.pred t, 1;\n}\nmov.u32 t, 3;"
    )
    names = [i.operands[0].name for i in k.instructions]
    assert names[0] == names[3] == "t"
    assert len(set(names)) == 3
    assert [k.registers[n] for n in names] == [32, 64, 1, 32]


def test_labels_inside_scopes_and_vectors_across_lines():
    k = kernel(
        ".reg .b32 %r<9>; .reg .pred %p1;\n{\nINNER:\nmov.b32 %r1, 1;\n@%p1 bra INNER;\n}\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n {%r1, %r2,\n %r3, %r4}, {%r1, %r2, %r3, %r4},\n"
        " {%r5, %r6},\n {%r1, %r2, %r3, %r4};"
    )
    assert k.labels == {"INNER": 0}
    assert [len(o.items) for o in k.instructions[2].operands] == [4, 4, 2, 4]
    assert k.instructions[2].line == 11


def test_parameters_are_laid_out_by_their_alignment():
    k = kernel(
        "ret;",
        ".param .u8 a, .param .u64 .ptr .global .align 16 b, .param .f32 c, .param .align 8 .b8 d[12], .param .u16 e",
    )
    assert k.params == (
        Param("a", 1, 0),
        Param("b", 8, 8),
        Param("c", 4, 16),
        Param("d", 12, 24),
        Param("e", 2, 36),
    )
    assert k.param_bytes == 38


def test_shared_variables_of_the_module_and_the_kernel():
    """Static ones in order and aligned; the dynamic one behind them at its own alignment."""
    k = kernel(
        ".shared .align 4 .f32 sums[3];\n.shared .align 8 .b8 rows[2][5];\nret;",
        head=".extern .shared .align 16 .b8 dynamic[];\n.shared .b8 flag;\n",
    )
    # flag 0, sums 4 ... 16, rows 16 ... 26, dynamic from 32 on.
    assert k.shared == {"flag": 0, "sums": 4, "rows": 16, "dynamic": 32}
    assert k.static_smem_bytes == 32


def test_several_kernels_and_launch_bounds():
    module = load(
        f"{HEAD}.visible .entry one()\n.maxntid 16, 4, 2\n.minnctapersm 2\n{{\nret;\n}}\n"
        ".entry two(.param .u32 n)\n{\nret;\n}\n"
    )
    assert set(module.kernels) == {"one", "two"}
    assert module.target == "sm_80"
    assert module.kernel("one").max_threads == 128
    assert module.kernel("two").max_threads is None
    with pytest.raises(KeyError):
        module.kernel("three")


@pytest.mark.parametrize(
    "body, line, name",
    [
        ("ret;\ntanh.f32 %f1, %f2;", 6, "tanh.f32"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {a}, b, c;", 5, "wgmma"),
        (".reg .b32 %r<3>;\nadd.f128 %r1, %r1, %r2;", 6, "add.f128"),
        (".reg .b32 %r<3>;\nadd.rz.rn.f32 %r1, %r1, %r2;", 6, "add.rz.rn.f32"),
        (".reg .b32 %r<3>;\nadd.s32 %r1, %r1;", 6, "add.s32 %r1, %r1"),
        (".reg .b32 %r<3>;\nret; mul.lo.s32 %r1, %r1, %r2, %r2;", 6, "mul.lo.s32"),
        (".reg .b32 %r<3>;\nmma.sync.aligned.m16n8k16.row.col.f32.f32.f32.f32 {%r1}, {%r1}, {%r1}, {%r1};", 6, "mma"),
        (".reg .b32 %r<3>;\ncvt.f16.s32 %r1, %r2;", 6, "cvt.f16.s32"),
        (".surfref stack;", 5, ".surfref"),
        (".reg .b128 %q;", 5, ".reg .b128"),
    ],
)
def test_unknown_instructions_are_refused_with_their_line(body, line, name):
    with pytest.raises(UnsupportedInstruction) as refused:
        kernel(body)
    assert refused.value.line == line
    assert name in refused.value.text
    assert f"PTX line {line}" in str(refused.value)


@pytest.mark.parametrize(
    "body, message",
    [
        (".reg .b32 %r<3>;\nmov.u32 %r1, %r7;", r"line 6.*%r7"),
        (".reg .b32 %r<3>;\n@%p3 mov.u32 %r1, 1;", r"line 6.*%p3"),
        ("ret;\nbra MISSING;", r"line 6.*MISSING"),
        (".reg .b32 %r<3>;\nld.shared.u32 %r1, [%r1*4];", r"line 6.*address"),
        (".reg .b32 %r<3>;\nmov.u32 %r1, 12abc;", r"line 6.*12abc"),
        ("ret;\nret", r"line 6"),
    ],
)
def test_broken_text_is_refused_with_its_line(body, message):
    with pytest.raises(PtxError, match=message):
        kernel(body)


@pytest.mark.parametrize(
    "text, message",
    [
        ("hello", "target"),
        (HEAD, "no kernel"),
        (f"{HEAD}.entry k() {{ ret;", "closing brace"),
        (f"{HEAD}.entry k(.param .texref t) {{ ret; }}", "parameter"),
    ],
)
def test_files_that_are_no_ptx(text, message):
    with pytest.raises(PtxError, match=message):
        load(text)


def test_names_in_comments_are_no_code():
    assert len(kernel("// bra NOWHERE;\n/* tanh.approx.f32 x; } */\nret;").instructions) == 1
