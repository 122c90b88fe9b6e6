"""A comparison as one HTML page: nothing but this file is needed to look at it, on any machine, offline."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.report.names import case_name
from fa_bench.report.trace_words import TENSORS, dedented, doing, title
from fa_bench.tracing.result import Comparison, Trace
from fa_bench.units import format_count, format_error, format_ratio

_FOLDER: Final = Path(__file__).parent / "web"
#: One script: each file uses what stands in those before it.
_SCRIPTS: Final = ("run.js", "panel.js", "charts.js", "main.js")
#: Bits of a step's products in the page's data.
_BITS: Final = {"S": 1, "state": 2, "P": 4, "O": 8}

_INTRO: Final = (
    "fa-bench's own kernels ran in its emulator, one thread block (CTA) after the other and barrier by barrier. "
    "Queries (rows of Q, S and O) run downwards, keys (rows of K and V) to the right. Standard attention has all of S "
    "and P in HBM; flash attention has one tile of them at a time, on chip. On the axis by bytes each algorithm has "
    "moved equally much: on a GPU that waits for its memory, that is time."
)
_FOOTNOTE: Final = (
    "Bytes are 32-byte sectors that the kernels' instructions ask of global memory, before any cache. The kernels were "
    "executed as PTX on a CPU, with a few lines added that write down m, l, the rescale factor, S, P and O; what these "
    "lines write isn't counted."
)


def page(comparison: Comparison) -> str:
    """The page, with its data inside."""
    text = json.dumps(_document(comparison), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "<" could end the script element that holds the data.
    parts = {
        "__STYLE__": _read("base.css") + _read("trace.css"),
        "__SCRIPT__": "\n".join(map(_read, _SCRIPTS)),
        "__DATA__": text.replace("<", "\\u003c"),
    }
    html = _read("trace.html")
    for place, part in parts.items():
        html = html.replace(place, part)
    return html


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _document(comparison: Comparison) -> dict[str, Any]:
    first = comparison.right[0]
    shape, tile = first.case.shape, first.case.tile
    assert tile is not None
    return {
        "case": title(comparison),
        "intro": _INTRO,
        "footnote": _FOOTNOTE,
        "rows": shape.seq_q,
        "keys": shape.seq_kv,
        "tiles": first.values.m.shape[1],
        "dim": shape.head_dim,
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "causal": shape.causal,
        "row": comparison.row,
        "exact": _encoded(first.exact, np.float16),
        "right": [_run(trace) for trace in comparison.right],
        "wrong": [
            _run(wrong) if (wrong := comparison.wrong.get(trace.case.impl)) else None for trace in comparison.right
        ],
        "bug": _bug(comparison),
        "checks": [_check(trace) for trace in comparison.right],
    }


def _run(trace: Trace) -> dict[str, Any]:
    """One algorithm: its steps, and the arrays as little-endian bytes in base64."""
    touched = {buffer.name for buffer in trace.tensors}
    tensors = [name for name in TENSORS if name in touched]
    values = trace.values
    scores = values.S[:, : trace.case.shape.seq_kv]
    seen = scores[np.isfinite(scores)]
    limits = float(seen.min()), float(seen.max())
    return {
        "name": trace.case.impl,
        "passed": trace.verification.passed,
        "tensors": [{"name": name} for name in tensors],
        "steps": [
            {
                "kernel": step.kernel,
                "cta": step.cta,
                "text": doing(step),
                "computed": sum(_BITS[product] for product in step.computed),
                "rows": step.rows,
                "keys": step.keys,
                "touches": [
                    [
                        tensors.index(touch.tensor),
                        int(touch.op == "write"),
                        touch.nbytes,
                        *touch.rows,
                        *(touch.columns or (0, 1)),
                    ]
                    for touch in step.touches
                ],
            }
            for step in trace.steps
        ],
        **{name: _encoded(getattr(values, name), np.float32) for name in ("m", "l", "factor")},
        "error": _encoded(trace.running_errors, np.float32),
        "rowError": _encoded(trace.row_errors, np.float32),
        "O": _encoded(trace.running, np.float16),
        "scoreRange": limits,
        "S": _encoded(_levels(scores, limits), np.uint8),
        "stateStep": _encoded(values.state_step, np.int16),
        "outputStep": _encoded(values.output_step, np.int16),
    }


def _levels(scores: NDArray[np.float32], limits: tuple[float, float]) -> NDArray[np.float32]:
    """Scores as levels 1 to 255; 0 where a score is masked or was never computed."""
    low, high = limits
    with np.errstate(invalid="ignore"):
        levels = 1 + np.clip((scores - low) / (high - low or 1), 0, 1) * 254
    return np.where(np.isfinite(scores), np.rint(levels), 0).astype(np.float32)


def _encoded(values: NDArray[Any], dtype: type[np.generic]) -> str:
    with np.errstate(over="ignore"):
        little = np.ascontiguousarray(values).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def _check(trace: Trace) -> dict[str, Any]:
    verification = trace.verification
    predicted = sum(part.predicted_bytes for part in trace.traffic)
    return {
        "equal": trace.equal,
        "passed": verification.passed,
        "cells": [
            case_name(trace.case).impl,
            format_count(predicted),
            format_count(trace.total_bytes),
            format_error(verification.max_abs_err),
            format_error(verification.bound),
        ],
    }


def _bug(comparison: Comparison) -> dict[str, Any] | None:
    mistake = comparison.mistake
    if mistake is None:
        return None
    names = [trace.case.impl for trace in comparison.right]
    return {
        "name": mistake.name,
        "title": mistake.title,
        "lesson": mistake.lesson,
        "notes": [
            mistake.absent.get(name) or _note(right, comparison.wrong[name])
            for name, right in zip(names, comparison.right, strict=True)
        ],
        "diffs": [dedented(mistake.diffs.get(name, "")) for name in names],
    }


def _note(right: Trace, wrong: Trace) -> str:
    """What the mistake does to one algorithm, in a sentence."""
    before, after = float(right.row_errors.mean()), float(wrong.row_errors.mean())
    if not math.isfinite(after):
        return "O is not finite."
    verdict = "still inside" if wrong.verification.passed else "outside"
    times = format_ratio(after / before) if before else "much"
    return (
        f"On average a row's error is {times} the right run's; the largest is "
        f"{format_error(wrong.verification.max_abs_err)}, {verdict} what the number format explains."
    )
