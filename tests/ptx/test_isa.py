"""The ISA table, and that the interpreter covers it exactly."""

import pytest

from fa_bench.ptx.interpreter import SEMANTICS
from fa_bench.ptx.interpreter.state import semantic
from fa_bench.ptx.isa import ROWS, TYPE_BITS, match


def test_every_row_has_exactly_one_semantic():
    assert set(SEMANTICS) == {row.name for row in ROWS}


def test_row_names_are_unique():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_are_consistent(row):
    assert set(row.types) <= set(TYPE_BITS)
    roles = row.operands.split(",") if row.operands else []
    assert 0 <= row.optional <= len(roles)
    assert all(set(signature) <= set(row.types) for signature in row.signatures)


def test_a_second_semantic_for_a_row_is_refused():
    with pytest.raises(ValueError, match=r"two semantics for 'add\.int'"):
        semantic("add.int")(lambda step: None)


@pytest.mark.parametrize(
    "opcode, name, types, modifiers",
    [
        ("add.s32", "add.int", ("s32",), set()),
        ("add.rn.ftz.f32", "add.f32", ("f32",), {"rn", "ftz"}),
        ("mul.wide.u16", "mul.wide", ("u16",), set()),
        ("setp.ltu.and.f32", "setp.f32", ("f32",), {"ltu", "and"}),
        ("cvt.rn.f16x2.f32", "cvt.half.pair", ("f16x2", "f32"), {"rn"}),
        (
            "ld.global.nc.L1::no_allocate.L2::128B.v4.u32",
            "ld.global",
            ("u32",),
            {"nc", "L1::no_allocate", "L2::128B", "v4"},
        ),
        ("cp.async.cg.shared.global", "cp.async", (), {"cg", "shared", "global"}),
        ("cp.async.commit_group", "cp.async.commit_group", (), set()),
        ("cvta.to.global.u64", "cvta.to", ("u64",), {"global"}),
        ("bar.sync", "bar.sync", (), set()),
    ],
)
def test_match(opcode, name, types, modifiers):
    form = match(opcode)
    assert form is not None
    assert (form.row.name, form.types, form.modifiers) == (name, types, frozenset(modifiers))


@pytest.mark.parametrize(
    "opcode",
    [
        "add", "add.s32.s32.wide", "bar", "x",
        # Modifiers that do not go together, are missing or belong to another form.
        "add.rn.rz.f64", "add.sat.u32", "fma.f32", "div.f32", "fma.rn.sat.relu.f16", "rcp.approx.f64", "mad.lo.sat.s32",
        "cvt.f16.bf16", "cvt.f16.f32", "cvt.rn.f32.f16", "cvt.rn.e4m3x2.f32", "cvt.rna.relu.tf32.f32", "cvt.rs.f16x2.f32",
        "setp.f32", "setp.lo.f32", "setp.eq.ne.s32", "set.eq.s16.f32", "prmt.b32.f4e.b4e", "ld.global.v2.v4.u32",
        # Shapes and types that do not exist together.
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "mma.sync.aligned.m16n8k8.row.col.satfinite.f32.f16.f16.f32", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "wmma.load.a.sync.aligned.m16n16k16.f16", "wmma.mma.sync.aligned.row.col.m16n16k8.f32.f32",
        # Hopper's and Blackwell's own.
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "cp.async.bulk.shared::cluster.global", "tcgen05.mma",
        "elect.sync", "setmaxnreg.inc.sync.aligned.u32", "mapa.u64", "griddepcontrol.wait", "barrier.cluster.arrive",
    ],  # fmt: skip
)
def test_no_match(opcode):
    assert match(opcode) is None
