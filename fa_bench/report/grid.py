"""A grid of predicted cases as CSV: a row for each case, block by block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

from fa_bench.grid.block import Block
from fa_bench.records import Record
from fa_bench.report.case_traffic import PREDICTED_ONLY
from fa_bench.report.export import csv_lines, csv_text
from fa_bench.report.papers import paper_bytes

#: Columns of ``records.csv`` in their order; `paper_bytes` is that of the JSON document.
COLUMNS: Final = (
    *("impl", "gpu", "dtype", "direction", "layout", "head_dim", "causal", "window_left", "window_right", "dropout_p"),
    *("head_dim_v", "softcap", "bias", "alibi", "sinks", "block_m", "block_n", "stages", "num_warps", "status"),
    *("status_reason", "seqlens", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "flops_nominal"),
    *("flops_executed", "exp_count", "global_read_bytes_model", "global_write_bytes_model"),
    *("compulsory_read_bytes", "compulsory_write_bytes", "paper_bytes"),
)


def header() -> str:
    """The first line, with its end."""
    return csv_text([], COLUMNS)


def lines(block: Block) -> str:
    """The rows of a block, each with its end.

    As in a sweep's records, what could run and was only predicted is ``skipped``.
    """
    runs = block.status == "run"
    known: dict[str, Any] = {
        **dict.fromkeys(COLUMNS),
        **block.columns,
        "status": "skipped" if runs else block.status,
        "status_reason": PREDICTED_ONLY if runs else block.reason,
    }
    # Columns are named as a record's fields, and the papers' formulas take arrays for sizes.
    known["paper_bytes"] = paper_bytes(cast(Record, SimpleNamespace(**known)))
    return csv_lines([known[column] for column in COLUMNS], block.count)
