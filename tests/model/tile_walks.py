"""The papers' algorithms as loops over tiles that touch every element: the oracle of the formulas.

Each walk has the loop order of its algorithm and nothing of its formula. What is touched is counted one element at a
time, and what a mask leaves of a tile is found by looking at each of its pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

#: Whether query i sees key j.
Visible = Callable[[int, int], bool]


def all_visible(query: int, key: int) -> bool:
    return True


class Hbm:
    """Counts elements loaded and stored, by tensor."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()

    def load(self, rows: range, columns: int, *tensors: str) -> None:
        touch(self.reads, rows, columns, tensors)

    def store(self, rows: range, columns: int, *tensors: str) -> None:
        touch(self.writes, rows, columns, tensors)


def touch(counter: Counter[str], rows: range, columns: int, tensors: tuple[str, ...]) -> None:
    for tensor in tensors:
        for _row in rows:
            for _column in range(columns):
                counter[tensor] += 1


def tiles(length: int, block: int) -> list[range]:
    """Rows of each tile, the last one ragged."""
    return [range(start, min(start + block, length)) for start in range(0, length, block)]


def seen(rows: range, keys: range, visible: Visible) -> bool:
    """Whether a tile of scores has a visible pair."""
    return any(visible(i, j) for i in rows for j in keys)


def standard(seq_q: int, seq_kv: int, d: int, dv: int) -> Hbm:
    """Algorithm 0: three steps, each of which reads its operands and writes its result."""
    hbm, queries, keys = Hbm(), range(seq_q), range(seq_kv)
    hbm.load(keys, d, "K")
    for i in queries:
        hbm.load(range(i, i + 1), d, "Q")
        hbm.store(range(i, i + 1), seq_kv, "S")
    for i in queries:
        hbm.load(range(i, i + 1), seq_kv, "S")
        hbm.store(range(i, i + 1), seq_kv, "P")
    hbm.load(keys, dv, "V")
    for i in queries:
        hbm.load(range(i, i + 1), seq_kv, "P")
        hbm.store(range(i, i + 1), dv, "O")
    return hbm


def standard_backward(seq_q: int, seq_kv: int, d: int, dv: int) -> Hbm:
    """Algorithm 3: dV, dP, dS, dQ, dK, a step each."""
    hbm, queries, keys = Hbm(), range(seq_q), range(seq_kv)
    hbm.load(queries, seq_kv, "P")
    hbm.load(queries, dv, "dO")
    hbm.store(keys, dv, "dV")
    hbm.load(queries, dv, "dO")
    hbm.load(keys, dv, "V")
    hbm.store(queries, seq_kv, "dP")
    hbm.load(queries, seq_kv, "P", "dP")
    hbm.store(queries, seq_kv, "dS")
    hbm.load(queries, seq_kv, "dS")
    hbm.load(keys, d, "K")
    hbm.store(queries, d, "dQ")
    hbm.load(queries, seq_kv, "dS")
    hbm.load(queries, d, "Q")
    hbm.store(keys, d, "dK")
    return hbm


def flash1(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, visible: Visible = all_visible) -> Hbm:
    """Algorithm 1, and 5 where a tile has no visible pair: K and V outside, Q inside."""
    hbm = Hbm()
    for keys in tiles(seq_kv, bc):
        hbm.load(keys, d, "K")
        hbm.load(keys, dv, "V")
        for rows in tiles(seq_q, br):
            if not seen(rows, keys, visible):
                continue
            hbm.load(rows, d, "Q")
            hbm.load(rows, dv, "O")
            hbm.load(rows, 1, "l", "m")
            hbm.store(rows, dv, "O")
            hbm.store(rows, 1, "l", "m")
    return hbm


def flash1_backward(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, visible: Visible = all_visible) -> Hbm:
    """Algorithm 4: l and m are the statistics of a row."""
    hbm = Hbm()
    backward_loops(hbm, tiles(seq_q, br), tiles(seq_kv, bc), d, dv, ("l", "m"), visible)
    return hbm


def backward_loops(
    hbm: Hbm,
    row_tiles: list[range],
    key_tiles: list[range],
    d: int,
    dv: int,
    statistics: tuple[str, str],
    visible: Visible,
) -> None:
    """K and V outside, all that has rows of Q inside."""
    for keys in key_tiles:
        hbm.load(keys, d, "K")
        hbm.load(keys, dv, "V")
        for rows in row_tiles:
            if not seen(rows, keys, visible):
                continue
            hbm.load(rows, d, "Q", "dQ")
            hbm.load(rows, dv, "O", "dO")
            hbm.load(rows, 1, *statistics)
            hbm.store(rows, d, "dQ")
        hbm.store(keys, d, "dK")
        hbm.store(keys, dv, "dV")


def flash2(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, visible: Visible = all_visible) -> Hbm:
    """Algorithm 1 of FlashAttention-2: Q outside, K and V inside; tiles without a visible pair are skipped."""
    hbm = Hbm()
    for rows in tiles(seq_q, br):
        hbm.load(rows, d, "Q")
        for keys in tiles(seq_kv, bc):
            if seen(rows, keys, visible):
                hbm.load(keys, d, "K")
                hbm.load(keys, dv, "V")
        hbm.store(rows, dv, "O")
        hbm.store(rows, 1, "LSE")
    return hbm


def flash2_backward(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, visible: Visible = all_visible) -> Hbm:
    """Algorithm 2 of FlashAttention-2: D first, then as Algorithm 4 with L and D."""
    hbm = Hbm()
    hbm.load(range(seq_q), dv, "dO", "O")
    hbm.store(range(seq_q), 1, "D")
    backward_loops(hbm, tiles(seq_q, br), tiles(seq_kv, bc), d, dv, ("L", "D"), visible)
    return hbm


def split_kv(seq_q: int, seq_kv: int, d: int, dv: int, br: int, bc: int, splits: int) -> Hbm:
    """FlashAttention-2 with its K and V tiles dealt out to ``splits`` CTAs, and the kernel that combines them."""
    hbm, key_tiles = Hbm(), tiles(seq_kv, bc)
    each = 1
    while each * splits < len(key_tiles):
        each += 1
    for rows in tiles(seq_q, br):
        for split in range(splits):
            mine = key_tiles[split * each : (split + 1) * each]
            if mine:
                hbm.load(rows, d, "Q")
            for keys in mine:
                hbm.load(keys, d, "K")
                hbm.load(keys, dv, "V")
            if splits > 1:
                hbm.store(rows, dv, "O_partial")
                hbm.store(rows, 1, "LSE_partial")
    for rows in tiles(seq_q, br):
        if splits > 1:
            for _split in range(splits):
                hbm.load(rows, dv, "O_partial")
                hbm.load(rows, 1, "LSE_partial")
        hbm.store(rows, dv, "O")
        hbm.store(rows, 1, "LSE")
    return hbm


def square_tiling(n: int, d: int, block: int) -> Hbm:
    """Algorithm 1 of Saha and Ye: A = exp(QKᵀ) in square tiles, written to memory, then A·V in square tiles."""
    hbm = Hbm()
    for rows in tiles(n, block):
        for keys in tiles(n, block):
            for columns in tiles(d, block):
                hbm.load(rows, len(columns), "Q")
                hbm.load(keys, len(columns), "K")
            hbm.store(rows, len(keys), "A")
        hbm.store(rows, 1, "sums")
    for rows in tiles(n, block):
        hbm.load(rows, 1, "sums")
        for columns in tiles(d, block):
            for keys in tiles(n, block):
                hbm.load(rows, len(keys), "A")
                hbm.load(keys, len(columns), "V")
            hbm.store(rows, len(columns), "O")
    return hbm
