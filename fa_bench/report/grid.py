"""A grid of predicted cases as CSV: a row for each case, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from fa_bench.cases import Case
from fa_bench.grid.block import Block
from fa_bench.model import bounds
from fa_bench.records import Record
from fa_bench.report.case_traffic import PREDICTED_ONLY
from fa_bench.report.export import csv_lines, csv_text
from fa_bench.report.papers import paper_bytes
from fa_bench.report.theory import of_all_slices, pass_theories
from fa_bench.sizes import rounded

#: Columns of ``records.csv`` in their order, and of the CSV that has a row per tensor what theory says.
COLUMNS: Final = (
    *("impl", "gpu", "dtype", "direction", "layout", "head_dim", "causal", "window_left", "window_right", "dropout_p"),
    *("head_dim_v", "softcap", "bias", "alibi", "sinks", "block_m", "block_n", "stages", "num_warps", "status"),
    *("status_reason", "seqlens", "sram_bytes", "m_elements", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv"),
    *("flops_nominal", "flops_executed", "exp_count", "global_read_bytes_model", "global_write_bytes_model"),
    *("dram_read_bytes_model", "dram_write_bytes_model", "compulsory_read_bytes", "compulsory_write_bytes"),
    *("roofline_ms", "roofline_limiter", "roofline_source", "arithmetic_intensity", "paper_bytes"),
    *("theorem_elements", "algorithm_elements", "bound_elements", "predicted_distance"),
)


def header() -> str:
    """The first line, with its end."""
    return csv_text([], COLUMNS)


def lines(block: Block, sram_bytes: int) -> str:
    """The rows of a block, each with its end.

    As in a sweep's records, what could run and was only predicted is ``skipped``.

    Parameters
    ----------
    block : Block
    sram_bytes : int
        M of the theory's figures.
    """
    runs = block.status == "run"
    known: dict[str, Any] = {
        **dict.fromkeys(COLUMNS),
        **block.columns,
        "status": "skipped" if runs else block.status,
        "status_reason": PREDICTED_ONLY if runs else block.reason,
    }
    if block.case.shape.seqlens is None:
        known |= _theory(block.case, known, sram_bytes)
    return csv_lines([known[column] for column in COLUMNS], block.count)


def _theory(case: Case, known: Mapping[str, Any], sram_bytes: int) -> dict[str, Any]:
    """As `fa_bench.report.theory.case_theory` has it."""
    m_elements = bounds.sram_elements(sram_bytes, case.itemsize)
    theorem, algorithm, bound = of_all_slices(case.shape, pass_theories(case.shape, case.direction, m_elements))
    read, written = known["global_read_bytes_model"], known["global_write_bytes_model"]
    return {
        "sram_bytes": sram_bytes,
        "m_elements": m_elements,
        # Columns are named as a record's fields, and the papers' formulas take arrays for sizes.
        "paper_bytes": paper_bytes(cast(Record, SimpleNamespace(**known))),
        "theorem_elements": rounded(theorem),
        "algorithm_elements": algorithm,
        "bound_elements": rounded(bound),
        # A query sees a key in any mask: the bound is above 0.
        "predicted_distance": None if read is None else (read + written) / (bound * case.itemsize),
    }
