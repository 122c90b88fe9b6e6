"""Where a shape's figures come from, for ``io-model --explain``: each kernel's derivation, then the papers'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fa_bench.cases import Case
from fa_bench.model import bounds
from fa_bench.model.gpu import Gpu
from fa_bench.report.derivation import derivation, distance_line, split_lines
from fa_bench.report.names import case_name
from fa_bench.report.papers import sram_in_words, sram_of


@dataclass(frozen=True, slots=True)
class Explained:
    """A case with its derivations, as text.

    Attributes
    ----------
    kernel : str
        How the kernel's bytes come about.
    theory : str
        What the papers say of the shape.
    distance : str
        How far the kernel is from the bound, and what splitting K and V would cost it; empty without a model.
    """

    case: Case
    kernel: str
    theory: str
    distance: str

    @property
    def row(self) -> dict[str, object]:
        """For CSV and JSON."""
        return {
            "case_id": self.case.case_id,
            "name": f"{case_name(self.case).impl}, {case_name(self.case).shape()}",
            "explanation": self.kernel,
            "theory": self.theory,
            "distance": self.distance,
        }


def explained(case: Case, kernel: str, moved_bytes: int | None, gpu: Gpu, sram_bytes: int | None) -> Explained:
    """The derivations of a case.

    Parameters
    ----------
    kernel : str
        The derivation of its kernel's traffic.
    moved_bytes : int or None
        What that is in all; None without a model.
    gpu : Gpu
        The target.
    sram_bytes : int, optional
        M in bytes; by default the shared memory that a CTA may have on `gpu`.
    """
    whose, stated = sram_in_words(gpu.slug, stated=sram_bytes is not None), sram_of(gpu, sram_bytes)
    shape, direction, itemsize = case.shape, case.direction, case.itemsize
    theory = derivation(shape, itemsize, direction, stated, whose)
    if moved_bytes is None or shape.seqlens is not None:
        return Explained(case, kernel, theory, "")
    name, m_elements = case_name(case).impl, bounds.sram_elements(stated, itemsize)
    lines = [distance_line(name, moved_bytes, shape, itemsize, direction, m_elements)]
    if case.impl == "flash2" and direction == "fwd" and case.tile is not None:
        lines += split_lines(name, shape, (case.tile.block_m, case.tile.block_n), itemsize, gpu.sm_count)
    return Explained(case, kernel, theory, "\n".join(lines))


def titled_texts(cases: Sequence[Explained]) -> list[tuple[str, str]]:
    """Titles and texts: one per kernel, then one for all cases that differ in their implementation alone."""
    texts = [(str(one.row["name"]), one.kernel) for one in cases]
    shared: dict[tuple[str, str], list[str]] = {}
    for one in cases:
        title = f"Theory, {case_name(one.case).shape()} {one.case.direction}"
        shared.setdefault((title, one.theory), []).append(one.distance)
    texts += [(title, "\n".join([theory, *filter(None, distances)])) for (title, theory), distances in shared.items()]
    return texts
