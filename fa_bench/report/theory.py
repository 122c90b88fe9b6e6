"""What the papers say of a record's shape for a stated M, and how far a kernel is from the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from fa_bench.cases import ITEMSIZE, AttentionShape
from fa_bench.model import bounds, gpus
from fa_bench.records import Record
from fa_bench.report.case_traffic import CaseTraffic
from fa_bench.report.names import record_name
from fa_bench.report.papers import record_shape, sram_in_words, stated_sram_bytes, theorem2
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.sizes import ceil_div
from fa_bench.units import format_bytes, format_count, format_number, format_ratio

#: Figures of :class:`CaseTheory` that are columns of the CSV.
CSV_FIELDS: Final = (
    *("sram_bytes", "m_elements", "theorem_elements", "algorithm_elements", "bound_elements"),
    *("predicted_distance", "counted_distance"),
)


@dataclass(frozen=True, slots=True)
class CaseTheory:
    """The papers' figures for all slices and passes of a case, in elements and in bytes of the case's type.

    Attributes
    ----------
    sram_bytes, m_elements : int
        M: of the target GPU the shared memory that one CTA may have, or as stated.
    block_m, block_n : int
        Br and Bc of the first paper for M.
    theorem_elements : int
        Theorem 2 forward, Theorem 5 backward, constant 1.
    algorithm_elements : int
        Algorithm 1 forward, Algorithm 4 backward, at these block sizes, every access counted; no mask.
    regime : str
        ``large cache`` or ``small cache``: M >= d² or not, for the smaller d of a case with two.
    bound_elements : int
        The bound of Saha and Ye, constant 1, for the visible pairs.
    predicted_distance, counted_distance : float or None
        The kernel's global bytes over the bound's; None where they are not known.
    """

    sram_bytes: int
    m_elements: int
    block_m: int
    block_n: int
    theorem_elements: int
    theorem_bytes: int
    algorithm_elements: int
    algorithm_bytes: int
    regime: bounds.Regime
    bound_elements: int
    bound_bytes: int
    predicted_distance: float | None
    counted_distance: float | None


def case_theory(case: CaseTraffic, sram_bytes: int | None = None) -> CaseTheory | None:
    """The papers' figures for a case; None for a packed batch, and without a GPU if M is not stated.

    Parameters
    ----------
    sram_bytes : int, optional
        M in bytes, where it is not to be that of the record's GPU.
    """
    record = case.record
    stated = stated_sram_bytes(record, sram_bytes)
    if stated is None or record.seqlens is not None:
        return None
    shape, itemsize = record_shape(record), ITEMSIZE[record.dtype]
    m_elements = bounds.sram_elements(stated, itemsize)
    passes = pass_theories(shape, record.direction, m_elements)
    theorem, algorithm, bound = of_all_slices(shape, passes)
    counted = (case.counted("read"), case.counted("write"))
    return CaseTheory(
        stated,
        m_elements,
        passes[0].block_m,
        passes[0].block_n,
        round(theorem),
        round(theorem * itemsize),
        algorithm,
        algorithm * itemsize,
        bounds.regime(bound_dim(shape, record.direction), m_elements),
        round(bound),
        round(bound * itemsize),
        distance(case.total_bytes, bound * itemsize),
        distance(None if None in counted else sum(part or 0 for part in counted), bound * itemsize),
    )


def pass_theories(shape: AttentionShape, direction: str, m_elements: int) -> list[bounds.Theory]:
    """The figures of one slice for each pass of a direction."""
    return [
        bounds.theory(
            part == "bwd",
            *(shape.seq_q, shape.seq_kv, shape.head_dim),
            *(m_elements, shape.visible_pairs, shape.dim_v),
        )
        for part in direction.split("+")
    ]


def of_all_slices(shape: AttentionShape, passes: Sequence[bounds.Theory]) -> tuple[float, int, float]:
    """Elements of all slices and passes by the theorems, the algorithms and the bound."""
    return (
        shape.slices * sum(one.theorem for one in passes),
        shape.slices * sum(one.algorithm for one in passes),
        shape.slices * sum(one.bound for one in passes),
    )


def bound_dim(shape: AttentionShape, direction: str) -> int:
    """d of the product that the bound looks at: of QKᵀ forward, of dO·Vᵀ backward, the smaller of both."""
    dims = {"fwd": shape.head_dim, "bwd": shape.dim_v}
    return min(dims[part] for part in direction.split("+"))


def distance(moved_bytes: int | None, bound_bytes: float) -> float | None:
    """How many times the bound is moved; None where that isn't known, or nothing must be moved."""
    return None if moved_bytes is None or not bound_bytes else moved_bytes / bound_bytes


@dataclass(frozen=True, slots=True)
class Sparse:
    """What algorithms that skip the zero blocks of a mask move, in elements of all slices, at the paper's block sizes.

    Attributes
    ----------
    density : float
        s of Proposition 4: the fraction of nonzero blocks.
    proposition4_elements : int
        N·d + N²·d²·s/M, constant 1.
    algorithm5_elements, flash2_elements : int
        Algorithm 5 of FlashAttention, and FlashAttention-2 as its section 3.1 says, every access counted.
    """

    density: float
    proposition4_elements: int
    algorithm5_elements: int
    flash2_elements: int


def sparse(shape: AttentionShape, theory: CaseTheory) -> Sparse | None:
    """What skipping blocks leaves of a forward pass; None without a mask."""
    if not (shape.causal or shape.windowed):
        return None
    left = bounds.mask_blocks(shape, theory.block_m, theory.block_n)
    size, dim_v = (shape.seq_q, shape.seq_kv, shape.head_dim), shape.dim_v
    return Sparse(
        left.density,
        round(shape.slices * bounds.flash1_proposition4(*size, theory.m_elements, left.density, dim_v)),
        shape.slices * bounds.flash1(*size, theory.block_n, dim_v, left.visited_rows).total,
        shape.slices * bounds.flash2(*size, theory.block_m, dim_v, left.visited_keys).total,
    )


@dataclass(frozen=True, slots=True)
class Split:
    """FlashAttention-2 with its K/V tiles divided among CTAs, all slices.

    Attributes
    ----------
    splits, used : int
        Splits, and those that have a K/V tile.
    elements, nbytes : int
        All that is read and written; partial sums and the logsumexp have four bytes.
    """

    splits: int
    used: int
    elements: int
    nbytes: int


def split(shape: AttentionShape, tile: tuple[int, int], itemsize: int, sm_count: int) -> Split | None:
    """As many splits as give each SM a CTA, and no more than K/V tiles; None if that is one."""
    block_m, block_n = tile
    ctas = ceil_div(shape.seq_q, block_m) * shape.slices
    splits = min(sm_count // ctas, ceil_div(shape.seq_kv, block_n))
    if splits < 2:
        return None
    moved = bounds.split_kv(shape.seq_q, shape.seq_kv, shape.head_dim, block_m, block_n, splits, shape.dim_v)
    used = moved.reads["Q"] // (shape.seq_q * shape.head_dim)
    return Split(splits, used, shape.slices * moved.total, shape.slices * moved.nbytes(itemsize, bounds.PARTIAL))


def _split(record: Record) -> Split | None:
    """The same for a record of flash2's forward pass without a mask; None for any other."""
    block_m, block_n = record.block_m, record.block_n
    if record.impl != "flash2" or record.direction != "fwd" or record.gpu is None or record.seqlens is not None:
        return None
    shape = record_shape(record)
    if block_m is None or block_n is None or shape.causal or shape.windowed:
        return None
    return split(shape, (block_m, block_n), ITEMSIZE[record.dtype], gpus.get(record.gpu).sm_count)


def csv_columns(case: CaseTraffic, sram_bytes: int | None) -> dict[str, object]:
    """What theory says of a case, as columns; empty ones where it says nothing."""
    theory = case_theory(case, sram_bytes)
    return {name: None if theory is None else getattr(theory, name) for name in CSV_FIELDS}


def theory_document(case: CaseTraffic, sram_bytes: int | None) -> dict[str, object] | None:
    """The ``theory`` of a case in the JSON document; its fields are described in docs/cli.md."""
    theory = case_theory(case, sram_bytes)
    if theory is None:
        return None
    forward = case.record.direction == "fwd"
    masked = sparse(record_shape(case.record), theory) if forward else None
    divided = _split(case.record)
    return {
        **asdict(theory),
        "density": None if masked is None else masked.density,
        "proposition4_elements": None if masked is None else masked.proposition4_elements,
        "algorithm5_elements": None if masked is None else masked.algorithm5_elements,
        "flash2_sparse_elements": None if masked is None else masked.flash2_elements,
        "split_kv_splits": None if divided is None else divided.splits,
        "split_kv_elements": None if divided is None else divided.elements,
        "split_kv_bytes": None if divided is None else divided.nbytes,
    }


def theory_table(shape_title: str, cases: Sequence[CaseTraffic], sram_bytes: int | None) -> Table | None:
    """What the papers say of one shape, beside what its kernels move; None where nothing is said."""
    record = cases[0].record
    theory = case_theory(cases[0], sram_bytes)
    if theory is None:
        return None
    names = _NAMES[record.direction]
    shape, itemsize = record_shape(record), ITEMSIZE[record.dtype]
    masked = sparse(shape, theory) if record.direction == "fwd" else None

    def row(name: str, elements: float, nbytes: float) -> tuple[str, ...]:
        times = distance(round(nbytes), theory.bound_bytes)
        ratio = UNKNOWN if times is None else format_ratio(times)
        return name, format_count(round(elements)), format_bytes(round(nbytes)), ratio

    rows = [row("bound of Saha and Ye", theory.bound_elements, theory.bound_bytes)]
    if record.compulsory_read_bytes is not None and record.compulsory_write_bytes is not None:
        compulsory = record.compulsory_read_bytes + record.compulsory_write_bytes
        rows.append(row("inputs and outputs once", compulsory / itemsize, compulsory))
    rows.append(row(names.theorem, theory.theorem_elements, theory.theorem_bytes))
    if masked is not None:
        elements = masked.proposition4_elements
        rows.append(row(f"Proposition 4, s = {format_number(masked.density)}", elements, elements * itemsize))
    for name, elements in zip(names.algorithms, _algorithms(shape, record.direction, theory), strict=True):
        rows.append(row(name, elements, elements * itemsize))
    if masked is not None:
        for name, elements in (
            ("FlashAttention, Alg. 5", masked.algorithm5_elements),
            ("FlashAttention-2, blocks skipped", masked.flash2_elements),
        ):
            rows.append(row(name, elements, elements * itemsize))
    for case in cases:
        impl = record_name(case.record).impl
        if (divided := _split(case.record)) is not None:
            rows.append(row(f"{impl}, K/V in {divided.splits} splits", divided.elements, divided.nbytes))
        read, written = case.counted("read"), case.counted("write")
        counted = None if read is None or written is None else read + written
        # Where both are equal, one row says it.
        if case.total_bytes is not None and case.total_bytes != counted:
            rows.append(row(f"{impl}, predicted", case.total_bytes / itemsize, case.total_bytes))
        if counted is not None:
            rows.append(row(f"{impl}, {case.source}", counted / itemsize, counted))
    columns = (Column(""), Column("elements", "right"), Column("bytes", "right"), Column("of bound", "right"))
    title = f"Theory, M = {format_bytes(theory.sram_bytes)}, {shape_title}"
    return Table(title, columns, tuple(rows), _note(record, shape, theory, stated=sram_bytes is not None))


@dataclass(frozen=True, slots=True)
class _Names:
    """How the papers call what they say of a direction."""

    theorem: str
    algorithms: tuple[str, str, str]


_NAMES: Final = {
    "fwd": _Names("Theorem 2", ("standard, Alg. 0", "FlashAttention, Alg. 1", "FlashAttention-2, Alg. 1")),
    "bwd": _Names("Theorem 5", ("standard, Alg. 3", "FlashAttention, Alg. 4", "FlashAttention-2, Alg. 2")),
    "fwd+bwd": _Names(
        "Theorems 2 and 5",
        ("standard, Alg. 0 and 3", "FlashAttention, Alg. 1 and 4", "FlashAttention-2, Alg. 1 and 2"),
    ),
}


def _algorithms(shape: AttentionShape, direction: str, theory: CaseTheory) -> tuple[int, int, int]:
    """Elements of all slices of standard attention, FlashAttention and FlashAttention-2 at the paper's block sizes."""
    size, dim_v = (shape.seq_q, shape.seq_kv, shape.head_dim), shape.dim_v
    standard = flash2 = 0
    if direction != "bwd":
        standard += bounds.standard(*size, dim_v).total
        flash2 += bounds.flash2(*size, theory.block_m, dim_v).total
    if direction != "fwd":
        standard += bounds.standard_backward(*size, dim_v).total
        flash2 += bounds.flash2_backward(*size, theory.block_n, dim_v).total
    return shape.slices * standard, theory.algorithm_elements, shape.slices * flash2


def _note(record: Record, shape: AttentionShape, theory: CaseTheory, *, stated: bool) -> str:
    whose = sram_in_words(record.gpu, stated=stated)
    square = format_count(bound_dim(shape, record.direction) ** 2)
    if theory.regime == bounds.LARGE:
        formula = f"N²d²/M (large cache: M >= d² = {square})"
    else:
        formula = f"N²d/√M (small cache: M < d² = {square})"
    lines = [
        f"M: {whose}, {format_count(theory.m_elements)} elements. The papers' algorithms in tiles of "
        f"{theory.block_m} x {theory.block_n}: Bc = ⌈M/4d⌉ keys, Br = min(Bc, d) queries.",
        f"bound: {formula}; it and the theorems with the constant 1.",
    ]
    compulsory = (record.compulsory_read_bytes or 0) + (record.compulsory_write_bytes or 0)
    if theory.bound_bytes < compulsory:
        lines.append("Inputs and outputs are more than the bound: here they bind.")
    if shape.causal or shape.windowed:
        lines.append("Theorems 2 and 5 and Algorithms 0 to 4 see no mask; the bound has the visible pairs for N².")
    misread = theorem2(record, theory.sram_bytes)
    if misread is not None:
        lines.append(f"Theorem 2 as it is often misread, with M in bytes: {format_bytes(misread.bytes_m_in_bytes)}.")
    return "\n".join(lines)
