"""Comparisons, selection, moves, special registers, address conversion."""

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory

M32 = 0xFFFFFFFF
ONE, TWO, NAN = 0x3F800000, 0x40000000, 0x7FC00000


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        # 0xFFFFFFFF is -1 for s types and the largest number for u types.
        ("setp.lt.s32", "1 32 32", [(M32, 1, 1), (1, 1, 0), (1, M32, 0)]),
        ("setp.lt.u32", "1 32 32", [(M32, 1, 0), (1, M32, 1)]),
        ("setp.le.s32", "1 32 32", [(1, 1, 1), (2, 1, 0)]),
        ("setp.gt.u32", "1 32 32", [(M32, 1, 1), (1, 1, 0)]),
        ("setp.ge.s32", "1 32 32", [(M32, 0, 0), (0, M32, 1), (4, 4, 1)]),
        ("setp.eq.b32", "1 32 32", [(7, 7, 1), (7, 8, 0)]),
        ("setp.ne.s64", "1 64 64", [(1 << 32, 0, 1), (5, 5, 0)]),
        ("setp.lo.u32", "1 32 32", [(1, M32, 1), (M32, 1, 0)]),
        ("setp.ls.u32", "1 32 32", [(1, 1, 1), (M32, 1, 0)]),
        ("setp.hi.u32", "1 32 32", [(M32, 1, 1), (1, 1, 0)]),
        ("setp.hs.u32", "1 32 32", [(1, 1, 1), (0, 1, 0)]),
        ("setp.lt.s16", "1 16 16", [(0xFFFF, 1, 1)]),
        ("setp.lt.u16", "1 16 16", [(0xFFFF, 1, 0)]),
        ("setp.gt.s64", "1 64 64", [(-1, 0, 0), (0, -1, 1)]),
        ("setp.gt.u64", "1 64 64", [(-1, 0, 1)]),
        ("setp.eq.u16", "1 16 16", [(3, 3, 1)]),
    ],
)
def test_integer_comparisons(engine, op, widths, rows):
    engine.check(op, widths, rows)


@pytest.mark.parametrize(
    "compare, less, equal, greater, unordered",
    [
        ("eq", 0, 1, 0, 0),
        ("ne", 1, 0, 1, 0),
        ("lt", 1, 0, 0, 0),
        ("le", 1, 1, 0, 0),
        ("gt", 0, 0, 1, 0),
        ("ge", 0, 1, 1, 0),
        ("equ", 0, 1, 0, 1),
        ("neu", 1, 0, 1, 1),
        ("ltu", 1, 0, 0, 1),
        ("leu", 1, 1, 0, 1),
        ("gtu", 0, 0, 1, 1),
        ("geu", 0, 1, 1, 1),
        ("num", 1, 1, 1, 0),
        ("nan", 0, 0, 0, 1),
    ],
)
def test_float_comparisons(engine, compare, less, equal, greater, unordered):
    """-0 equals +0; a NaN on either side is unordered."""
    rows = [
        (ONE, TWO, less),
        (ONE, ONE, equal),
        (0x80000000, 0, equal),
        (TWO, ONE, greater),
        (NAN, ONE, unordered),
        (ONE, NAN, unordered),
    ]
    engine.check(f"setp.{compare}.f32", "1 32 32", rows)


def test_comparison_flushes_subnormals_only_with_ftz(engine):
    engine.check("setp.eq.ftz.f32", "1 32 32", [(1, 0, 1), (0x80000001, 0x00400000, 1)])
    engine.check("setp.eq.f32", "1 32 32", [(1, 0, 0)])


@pytest.mark.parametrize("combine, function", [("and", min), ("or", max), ("xor", lambda a, b: a ^ b)])
def test_combined_comparison_with_both_predicates(engine, combine, function):
    """p = (a < b) op c and q = !(a < b) op c, over all four cases; !c as a source is inverted."""
    inputs = {"a": (32, [0, 0, 1, 1]), "b": (32, [1, 1, 1, 1]), "c": (1, [0, 1, 0, 1])}
    body = f"setp.lt.{combine}.s32 %p|%q, %a, %b, %c;\nsetp.lt.{combine}.s32 %n, %a, %b, !%c;"
    results = engine.evaluate(body, inputs, {"p": 1, "q": 1, "n": 1})
    less, c = [1, 1, 0, 0], [0, 1, 0, 1]
    assert results["p"] == [function(t, k) for t, k in zip(less, c, strict=True)]
    assert results["q"] == [function(1 - t, k) for t, k in zip(less, c, strict=True)]
    assert results["n"] == [function(t, 1 - k) for t, k in zip(less, c, strict=True)]


def test_both_predicates_without_combination(engine):
    inputs = {"a": (32, [ONE, NAN])}
    results = engine.evaluate(f"setp.eq.f32 %p|%q, %a, 0f{ONE:08X};", inputs, {"p": 1, "q": 1})
    assert results == {"p": [1, 0], "q": [0, 1]}


@pytest.mark.parametrize(
    "op, widths, rows",
    [
        ("selp.b32", "32 32 32 1", [(1, 2, 1, 1), (1, 2, 0, 2)]),
        ("selp.f32", "32 32 32 1", [(NAN, ONE, 1, NAN)]),
        ("selp.u16", "16 16 16 1", [(1, 2, 0, 2)]),
        ("selp.s64", "64 64 64 1", [(1 << 40, 2, 1, 1 << 40)]),
        ("mov.u32", "32 32", [(M32, M32)]),
        ("mov.f32", "32 32", [(0x7F800001, 0x7F800001)]),
        ("mov.b64", "64 64", [(1 << 63, 1 << 63)]),
        ("mov.pred", "1 1", [(1, 1), (0, 0)]),
        ("mov.u16", "16 16", [(0xABCD, 0xABCD)]),
    ],
)
def test_selection_and_moves(engine, op, widths, rows):
    engine.check(op, widths, rows)


def test_vectors_pack_and_unpack_lowest_first(engine):
    inputs = {"a": (32, [0x11223344]), "b": (32, [0x55667788]), "h": (16, [0xAAAA]), "g": (16, [0xBBBB])}
    body = (
        "mov.b64 %w, {%a, %b};\nmov.b64 {%lo, %hi}, %w;\nmov.b32 %two, {%h, %g};\nmov.b32 {%first, %second}, %a;\n"
        "mov.b64 %quad, {%h, %g, %g, %h};\nmov.b64 {_, %only}, %w;"
    )
    outputs = {"w": 64, "lo": 32, "hi": 32, "two": 32, "first": 16, "second": 16, "quad": 64, "only": 32}
    results = engine.evaluate(body, inputs, outputs)
    assert {name: values[0] for name, values in results.items()} == {
        "w": 0x5566778811223344,
        "lo": 0x11223344,
        "hi": 0x55667788,
        "two": 0xBBBBAAAA,
        "first": 0x3344,
        "second": 0x1122,
        "quad": 0xAAAABBBBBBBBAAAA,
        "only": 0x55667788,
    }


def test_immediates(engine):
    """Hexadecimal floats keep their pattern, decimal ones and negative integers take the type's encoding."""
    body = (
        "mov.b32 %a, 0f7F800001;\nmov.f32 %b, 1.5;\nmov.u32 %c, -1;\nmov.b16 %h, -2;\nmov.b64 %w, 0x8000000000000000;\n"
        "mov.s64 %n, -1;\nadd.s32 %e, %c, 0x10;\nmov.pred %p, 1;\nmov.f32 %g, -0.5;\nmov.u32 %v, WARP_SZ;\n"
        "mov.f64 %x, 1.5;\nmov.b64 %y, 0dFFF8000000000001;"
    )
    outputs = {
        "a": 32,
        "b": 32,
        "c": 32,
        "h": 16,
        "w": 64,
        "n": 64,
        "e": 32,
        "p": 1,
        "g": 32,
        "v": 32,
        "x": 64,
        "y": 64,
    }
    results = engine.evaluate(body, {}, outputs)
    assert {name: values[0] for name, values in results.items()} == {
        "a": 0x7F800001,
        "b": 0x3FC00000,
        "c": M32,
        "h": 0xFFFE,
        "w": 1 << 63,
        "n": (1 << 64) - 1,
        "e": 15,
        "p": 1,
        "g": 0xBF000000,
        "v": 32,
        "x": 0x3FF8000000000000,
        "y": 0xFFF8000000000001,
    }


def test_guard_keeps_lanes_where_it_is_false(engine):
    inputs = {"a": (32, [1, 2, 3, 4]), "d": (32, [9, 9, 9, 9]), "g": (1, [1, 0, 1, 0])}
    assert engine.evaluate("@%g mov.u32 %d, %a;", inputs, {"d": 32})["d"] == [1, 9, 3, 9]
    assert engine.evaluate("@!%g mov.u32 %d, %a;", inputs, {"d": 32})["d"] == [9, 2, 9, 4]


def test_lane_special_registers(engine):
    names = ["laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"]
    body = "\n".join(f"mov.u32 %{name[-2:]}x, %{name};" for name in names)
    results = engine.evaluate(body, {}, {f"{name[-2:]}x": 32 for name in names})
    lanes = range(32)
    assert results["idx"] == list(lanes)
    assert results["eqx"] == [1 << k for k in lanes]
    assert results["ltx"] == [(1 << k) - 1 for k in lanes]
    assert results["lex"] == [(2 << k) - 1 for k in lanes]
    assert results["gtx"] == [M32 ^ (2 << k) - 1 for k in lanes]
    assert results["gex"] == [M32 ^ (1 << k) - 1 for k in lanes]


def test_thread_and_block_special_registers(engine):
    """Threads are numbered x first, then y, then z; blocks likewise. Each thread writes what it sees to its own row."""
    names = [f"{kind}.{axis}" for kind in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    block, grid = (3, 4, 5), (2, 3, 2)
    threads, blocks = 60, 12
    body = (
        "mov.u32 %r0, %tid.z;\nmov.u32 %r1, %ntid.y;\nmov.u32 %r2, %tid.y;\nmad.lo.u32 %r0, %r0, %r1, %r2;\n"
        "mov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.u32 %r0, %r0, %r1, %r2;\n"
        "mov.u32 %r3, %ctaid.z;\nmov.u32 %r1, %nctaid.y;\nmov.u32 %r2, %ctaid.y;\nmad.lo.u32 %r3, %r3, %r1, %r2;\n"
        "mov.u32 %r1, %nctaid.x;\nmov.u32 %r2, %ctaid.x;\nmad.lo.u32 %r3, %r3, %r1, %r2;\n"
        f"mad.lo.u32 %r0, %r3, {threads}, %r0;\n"
        "ld.param.u64 %rd0, [out];\nmad.wide.u32 %rd0, %r0, 48, %rd0;\n"
        + "\n".join(f"mov.u32 %r1, %{n};\nst.global.u32 [%rd0+{4 * k}], %r1;" for k, n in enumerate(names))
    )
    memory = Memory()
    seen = memory.allocate("out", blocks * threads * 48).view(np.uint32).reshape(blocks, threads, 12)
    counters = engine.launch(
        engine.wrap(body, ".param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address("out"))],
        grid=grid,
        block=block,
    )
    assert counters.ctas == blocks
    for b in range(blocks):
        for t in range(threads):
            expected = [t % 3, t // 3 % 4, t // 12, *block, b % 2, b // 2 % 3, b // 6, *grid]
            assert seen[b, t].tolist() == expected


def test_address_conversion(engine):
    """Global addresses are generic ones; a shared address comes back from its generic form."""
    inputs = {"a": (64, [0x1234, 1 << 40]), "s": (64, [0, 64])}
    body = (
        "cvta.to.global.u64 %g, %a;\ncvta.global.u64 %h, %g;\n"
        "cvta.shared.u64 %rd0, %s;\ncvta.to.shared.u64 %u, %rd0;\nsetp.ne.u64 %differ, %rd0, %s;"
    )
    results = engine.evaluate(body, inputs, {"g": 64, "h": 64, "u": 64, "differ": 1})
    assert results["g"] == results["h"] == [0x1234, 1 << 40]
    assert results["u"] == [0, 64]
    assert results["differ"] == [1, 1]
