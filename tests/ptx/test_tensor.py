"""ldmatrix and mma: which lane gets which element, exact sums, order and rounding, special values."""

import numpy as np
import pytest

from fa_bench.ptx.memory import Memory

LANE = range(32)


def load_matrices(engine, matrices: int, trans: bool, reverse: bool = False) -> np.ndarray:
    """Registers per lane after ldmatrix; row r of matrix m holds 64 m + 8 r + (0 ... 7) in 16-bit elements."""
    memory = Memory()
    memory.allocate("rows", 512).view(np.uint16)[:] = np.arange(256)
    out = memory.allocate("out", 512).view(np.uint32).reshape(32, 4)
    registers = [f"%r{8 + k}" for k in range(matrices)]
    suffix = ".trans" if trans else ""
    body = (
        "mov.u32 %r0, %tid.x;\nmul.lo.u32 %r1, %r0, 16;\nld.param.u64 %rd0, [rows];\nld.param.u64 %rd1, [out];\n"
        "mad.wide.u32 %rd0, %r0, 16, %rd0;\nmad.wide.u32 %rd1, %r0, 16, %rd1;\n"
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0];\nst.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};\nbar.sync 0;\n"
        + ("sub.u32 %r1, 496, %r1;\n" if reverse else "")
        + f"ldmatrix.sync.aligned.m8n8.x{matrices}{suffix}.shared.b16 {{{', '.join(registers)}}}, [%r1];\n"
        + "\n".join(f"st.global.u32 [%rd1+{4 * k}], {r};" for k, r in enumerate(registers))
    )
    engine.launch(
        engine.wrap(body, ".param .u64 rows, .param .u64 out"),
        memory=memory,
        args=[np.uint64(memory.address("rows")), np.uint64(memory.address("out"))],
        smem_bytes=512,
    )
    return out[:, :matrices]


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row(engine, matrices):
    """Lane t holds columns 2 (t mod 4) and one more of row t div 4, the lower column in the lower half."""
    found = load_matrices(engine, matrices, trans=False)
    for t in LANE:
        for m in range(matrices):
            first = 64 * m + 8 * (t // 4) + 2 * (t % 4)
            assert found[t, m] == (first + 1) << 16 | first


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_ldmatrix_trans_gives_each_lane_two_neighbours_of_a_column(engine, matrices):
    """The matrix is transposed: lane t holds rows 2 (t mod 4) and one more of column t div 4."""
    found = load_matrices(engine, matrices, trans=True)
    for t in LANE:
        for m in range(matrices):
            first = 64 * m + 8 * (2 * (t % 4)) + t // 4
            assert found[t, m] == (first + 8) << 16 | first


def test_ldmatrix_takes_row_r_of_matrix_m_from_lane_8m_plus_r(engine):
    """With the lanes' addresses reversed, row r of matrix m is the one that lane 31 - 8m - r pointed to before."""
    found = load_matrices(engine, 4, trans=False, reverse=True)
    for t in LANE:
        for m in range(4):
            first = 8 * (31 - (8 * m + t // 4)) + 2 * (t % 4)
            assert found[t, m] == (first + 1) << 16 | first


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """16-bit patterns of values that the format holds exactly."""
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    patterns = values.astype(np.float32).view(np.uint32)
    assert not (patterns & 0xFFFF).any()
    return patterns >> 16


def multiply(engine, A: np.ndarray, B: np.ndarray, C: np.ndarray, kind: str = "f16") -> np.ndarray:
    """D = A B + C through one mma; fragments as the PTX ISA's figures for m16n8k16 lay them out.

    With g = lane div 4 and t = lane mod 4: A's registers hold (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8) and the next
    column each; B's hold rows 2t and 2t+8 and the next row each of column g; C's and D's are (g, 2t), (g, 2t+1),
    (g+8, 2t), (g+8, 2t+1).
    """
    a, b = encode(A, kind), encode(B, kind)
    inputs = {}
    for k, (row, column) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8)]):
        places = [(lane // 4 + row, 2 * (lane % 4) + column) for lane in LANE]
        inputs[f"a{k}"] = (32, [int(a[i, j] | a[i, j + 1] << 16) for i, j in places])
    for k in range(2):
        places = [(2 * (lane % 4) + 8 * k, lane // 4) for lane in LANE]
        inputs[f"b{k}"] = (32, [int(b[i, j] | b[i + 1, j] << 16) for i, j in places])
    corners = [[(lane // 4 + 8 * (k // 2), 2 * (lane % 4) + k % 2) for lane in LANE] for k in range(4)]
    c = C.astype(np.float32).view(np.uint32)
    for k in range(4):
        inputs[f"c{k}"] = (32, [int(c[place]) for place in corners[k]])
    body = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%d0, %d1, %d2, %d3}}, {{%a0, %a1, %a2, %a3}}, "
        "{%b0, %b1}, {%c0, %c1, %c2, %c3};"
    )
    results = engine.evaluate(body, inputs, {f"d{k}": 32 for k in range(4)})
    D = np.zeros((16, 8), np.uint32)
    for k in range(4):
        for lane, place in enumerate(corners[k]):
            D[place] = results[f"d{k}"][lane]
    return D.view(np.float32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_mma_of_small_integers_is_exact(engine, kind):
    """Products of integers up to 64 and their sums are exact in fp32, in any order."""
    random = np.random.default_rng(7)
    A, B = random.integers(-64, 65, (16, 16)), random.integers(-64, 65, (16, 8))
    C = random.integers(-1000, 1001, (16, 8))
    assert (multiply(engine, A, B, C, kind) == A @ B + C).all()


def test_mma_places_every_element(engine):
    """A unit in A at (i, k) copies row k of B to row i of D, and nothing else."""
    B = np.arange(128).reshape(16, 8) + 1.0
    for i, k in [(0, 0), (3, 9), (8, 1), (15, 14), (7, 15)]:
        A = np.zeros((16, 16))
        A[i, k] = 1
        expected = np.zeros((16, 8))
        expected[i] = B[k]
        assert (multiply(engine, A, B, np.zeros((16, 8))) == expected).all()


def test_mma_sums_in_order_with_one_rounding_per_step(engine):
    """Each 2^-24 added to 1 is a tie that goes back to 1; summed first, the sixteen would make 1 + 2^-20."""
    A, B = np.full((16, 16), 2.0**-12), np.full((16, 8), 2.0**-12)
    assert (multiply(engine, A, B, np.ones((16, 8))) == 1).all()
    # From 0 the partial sums k * 2^-24 are exact.
    assert (multiply(engine, A, B, np.zeros((16, 8))) == 2.0**-20).all()
    # 1 at k = 0 first, then the ties; -1 at k = 15 leaves 0. The other way round (k = 15 first) would leave 14 * 2^-24.
    A[:, 0], B[0, :], A[:, 15], B[15, :] = 1, 1, -1, 1
    assert (multiply(engine, A, B, np.zeros((16, 8))) == 0).all()


def test_mma_keeps_subnormals_and_propagates_specials(engine):
    A, B, C = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    A[0, 0], B[0, 0] = 2.0**-24, 1.0  # the least fp16 number
    A[1, 1], B[1, 1] = np.inf, 2.0
    A[2, 2], B[2, 2] = np.inf, 0.0
    A[3, 3], B[3, 3] = 65504, 65504  # 4290774016 = 2^32 - 2^22 + 2^10, exact in fp32
    C[4, 4] = np.nan
    D = multiply(engine, A, B, C)
    assert D[0, 0] == 2.0**-24
    assert D[1, 1] == np.inf
    assert np.isnan(D[2, 2])
    assert D[3, 3] == 65504**2
    assert np.isnan(D[4, 4])
    # inf times the zeros of the other columns is NaN as well.
    assert np.isnan(D[1, 0])
    assert (D[5:] == 0).all()


def test_mma_accumulates_in_place(engine):
    """d and c are the same registers, twice over, as kernels write it: all ones give 16, then 32."""
    ones = 0x3C003C00
    inputs = {name: (32, [ones]) for name in ("a0", "a1", "a2", "a3", "b0", "b1")}
    inputs |= {f"c{k}": (32, [0]) for k in range(4)}
    mma = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, "
        "{%c0, %c1, %c2, %c3};\n"
    )
    results = engine.evaluate(mma + "mov.b32 %first, %c1;\n" + mma, inputs, {"first": 32, "c0": 32, "c3": 32})
    assert results == {"first": [0x41800000], "c0": [0x42000000], "c3": [0x42000000]}
