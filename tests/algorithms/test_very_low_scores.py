"""Rows whose scores all lie far below what a finite stand-in for -inf would be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fa_bench import algorithms, reference
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


@pytest.mark.parametrize("impl", algorithms.names("fwd"))
def test_a_row_of_very_low_scores_is_not_taken_for_an_empty_one(impl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every score is -60000 · 3 / sqrt(8) = -63,640, near the end of fp16. A running maximum that begins at, say, -5e4
    # stays there, all exponentials are 0, and the row ends as one that saw no key: O = 0, LSE = -inf.
    q, k = (np.zeros((1, 1, rows, 8), np.float16) for rows in (18, 40))
    q[..., 0], k[..., 0] = -60000, 3
    v = np.ones((1, 1, 40, 8), np.float16)
    monkeypatch.setattr(reference, "make_inputs", lambda case: {"Q": q, "K": k, "V": v})
    case = Case(impl, AttentionShape(1, 1, 1, 18, 40, 8))
    case = replace(case, tile=algorithms.get(impl).resolve(case, Tile(16, 16)))
    result = EmulatorBackend(jobs=1, all_slices=True).run(case, gpus.get("a100-sxm-80"))
    assert result.verification is not None and result.verification.passed, result.verification
