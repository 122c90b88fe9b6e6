"""Static counts of PTX and SASS side by side."""

from __future__ import annotations

import pytest

from fa_bench import ptx
from fa_bench.model import gpus
from fa_bench.profiling.build import KernelFile, build
from fa_bench.profiling.result import StaticCount
from fa_bench.profiling.sass import access_bytes, compare, disassemble, opcodes
from fa_bench.ptx.isa import Form, Row
from fa_bench.ptx.program import Instruction

LISTING = """
	.target	sm_80

//--------------------- .text.other  --------------------------
	.section	.text.other,"ax",@progbits
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;

//--------------------- .text.scale  --------------------------
	.section	.text.scale,"ax",@progbits
        .global         scale
.text.scale:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   HFMA2.MMA R5, -RZ, RZ, 0, 2.384185791015625e-07 ;
        /*0020*/              @!PT LDS RZ, [RZ] ;
        /*0030*/                   LDGSTS.E.BYPASS.128 [R9], [R4.64] ;
        /*0040*/                   LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0050*/              @!P0 LDS.64 R6, [R7] ;
        /*0060*/                   LDSM.16.M88.4 R8, [R9] ;
        /*0070*/                   HMMA.16816.F32 R4, R4, R8, R12 ;
        /*0080*/                   STL [R1], R4 ;
        /*0090*/                   LDG.E.U16 R2, [R2.64] ;
        /*00a0*/                   HFMA2 R5, R6, R7, R8 ;
        /*00b0*/             @UP0 UIADD3 UR4, UR4, 0x1, URZ ;
        /*00c0*/               @P1 EXIT ;
        /*00d0*/                   EXIT ;
.L_x_0:
        /*00e0*/                   BRA `(.L_x_0);
        /*00f0*/                   NOP;
        /*0100*/                   NOP;
"""


def kernel(body: str) -> ptx.Kernel:
    return ptx.load(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry scale()\n{\n.reg .pred %p<9>; .reg .b16 %rs<9>;"
        f" .reg .b32 %r<30>; .reg .f32 %f<30>; .reg .b64 %rd<9>;\n{body}\nret;\n}}\n"
    ).kernel("scale")


def test_the_opcodes_of_one_kernel_without_what_never_runs() -> None:
    codes = opcodes(LISTING, "scale")
    # The load guarded by !PT and the jump to itself with its padding never execute; an immediate by way of HFMA2 is a
    # move.
    assert codes == (
        *("MOV", "MOV", "LDGSTS.E.BYPASS.128", "LDG.E.128.CONSTANT", "LDS.64", "LDSM.16.M88.4", "HMMA.16816.F32"),
        *("STL", "LDG.E.U16", "HFMA2", "UIADD3", "EXIT", "EXIT"),
    )
    assert opcodes(LISTING, "other") == ("IMAD.MOV.U32",)
    assert opcodes(LISTING, "missing") == ()


def test_both_counted_in_the_same_groups() -> None:
    body = """
        ld.global.nc.v2.f32 {%f1, %f2}, [%rd1];
        ld.global.v2.f32 {%f1, %f2}, [%rd1+8];
        ld.global.u16 %rs1, [%rd1];
        @%p1 ld.shared.f32 %f3, [%r1];
        ld.shared.f32 %f4, [%r1+4];
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];
        cp.async.cg.shared.global [%r1], [%rd1], 16;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
            {%f1,%f2,%f3,%f4}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%f1,%f2,%f3,%f4};
        ex2.approx.ftz.f32 %f1, %f1;
        fma.rn.f32 %f1, %f2, %f3, %f4;
    """
    counts = compare(kernel(body), opcodes(LISTING, "scale"))
    assert counts == (
        StaticCount("matrix product", 1, 1),
        # x4 and M88.4 are four 8 x 8 matrices of halves, 512 bytes for 32 lanes.
        StaticCount("ldmatrix", 1, 1, 16, 16),
        StaticCount("asynchronous copy", 1, 1, 16, 16),
        # 8 + 8 + 2 bytes per lane became 16 + 2.
        StaticCount("global load", 3, 2, 18, 18),
        StaticCount("shared load", 2, 1, 8, 8),
        StaticCount("local store", 0, 1, 0, 4),
        StaticCount("special function", 1, 0),
        StaticCount("f32 multiply-add", 1, 0),
        StaticCount("f16 multiply-add", 0, 1),
        StaticCount("all instructions", 11, 13),
    )
    assert [count.group for count in counts if not count.differs] == [
        "matrix product",
        "ldmatrix",
        "asynchronous copy",
    ]


@pytest.mark.parametrize(
    ("text", "kind", "nbytes"),
    [
        # 16 x 16 halves for 32 lanes; 32 x 16 of A and 16 x 8 of B; 16 x 16 floats.
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%r2], %r3", "f16", 16),
        ("wmma.load.a.sync.aligned.row.m32n8k16.global.f16 {%r1}, [%rd2], %r3", "f16", 32),
        ("wmma.load.b.sync.aligned.col.m32n8k16.global.f16 {%r1}, [%rd2], %r3", "f16", 8),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {%f1}, %r3", "f32", 32),
    ],
)
def test_a_matrix_moves_its_share_per_lane(text: str, kind: str, nbytes: int) -> None:
    form = Form(Row("wmma", "wmma", "load-store", (kind,)), (kind,), frozenset())
    assert access_bytes(Instruction(form, (), None, 1, text)) == nbytes


@pytest.mark.usefixtures("nvrtc", "nvdisasm")
def test_a_real_cubin() -> None:
    source = 'extern "C" __global__ void twice(float4* x) { float4 v = x[threadIdx.x]; v.x *= 2; x[threadIdx.x] = v; }'
    built = build(KernelFile("twice.cu", source), [None], gpus.get("a100-sxm-80"))
    text = disassemble(built.compiled.cubin)
    assert text is not None
    counts = {count.group: count for count in compare(built.load("twice"), opcodes(text, "twice"))}
    # One 16-byte load and one 16-byte store in either text.
    assert counts["global load"] == StaticCount("global load", 1, 1, 16, 16)
    assert counts["global store"] == StaticCount("global store", 1, 1, 16, 16)
    assert counts["all instructions"].sass > 3


@pytest.mark.usefixtures("nvdisasm")
def test_what_is_no_cubin_is_not_disassembled() -> None:
    assert disassemble(b"no cubin") is None


def test_without_nvdisasm_there_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fa_bench.nvrtc.find_tool", lambda name: None)
    assert disassemble(b"") is None
