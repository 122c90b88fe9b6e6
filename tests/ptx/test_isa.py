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
    "opcode, same",
    [
        # Several spellings of one form.
        ("ld.volatile.global.u32", "ld.global.volatile.u32"),
        ("ld.acquire.gpu.shared::cta.v2.u32", "ld.shared.acquire.gpu.v2.u32"),
        ("bar.cta.red.popc.u32", "bar.red.popc.u32"),
        ("ld.param::entry.u64", "ld.param.u64"),
        ("mbarrier.arrive.shared::cta.b64", "mbarrier.arrive.shared.b64"),
    ],
)
def test_spellings(opcode, same):
    assert match(opcode) is not None
    assert match(opcode) == match(same)


@pytest.mark.parametrize(
    "opcode",
    [
        "add", "add.f128", "add.s32.s32.wide", "add.sat.u32", "cvt.f16.bf16", "bar", "x",
        # exactly one of a group
        "atom.global.u32", "atom.add.min.u32", "atom.add.f16", "setp.f32", "setp.lt.gt.f32", "ld.global.ca.cg.u32",
        "mad.rn.rz.f64", "cvta.u64", "ldmatrix.sync.aligned.m8n8.shared.b16",
        # no modifier twice, no type of another form
        "ld.global.global.u32", "add.ftz.ftz.f32", "min.relu.u32", "bar.red.popc.pred", "atom.exch.f32",
        # vectors up to 128 bits, in global memory up to 256
        "ld.shared.v4.u64", "ld.global.v8.u64", "st.local.v4.f64",
        # later hardware
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "cp.async.bulk.shared::cluster.global", "mapa.u64",
        "mbarrier.try_wait.shared.b64", "setmaxnreg.inc.sync.aligned.u32", "elect.sync", "ld.shared::cluster.u32",
        "red.async.global.add.u32", "griddepcontrol.wait", "barrier.cluster.arrive",
    ],
)  # fmt: skip
def test_no_match(opcode):
    assert match(opcode) is None
