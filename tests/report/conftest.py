"""Records to make tables of; profiles and runs are made in ``tests/profiling`` and ``tests/comparison``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fa_bench.records import Record

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("profiling", "comparison")]


@pytest.fixture
def record() -> Callable[..., Record]:
    """Make a record: an emulated, verified flash2 row whose counts are the model's, but for what is given."""

    def make(**fields: Any) -> Record:
        defaults: dict[str, Any] = {
            "run_id": "r", "case_id": "c", "timestamp": "2026-01-01T00:00:00+00:00", "impl": "flash2",
            "backend": "emulator", "device": "a CPU", "gpu": "a100-sxm-80", "dtype": "fp16", "direction": "fwd",
            "layout": "bhsd", "batch": 1, "heads_q": 1, "heads_kv": 1, "seq_q": 1024, "seq_kv": 1024, "head_dim": 64,
            "causal": False, "block_m": 64, "block_n": 64, "stages": 1, "num_warps": 4, "seed": 0, "status": "ok",
            "max_abs_err": 1e-4, "err_reference": "fp64",
            "global_read_bytes_model": 3 * 2**20, "global_write_bytes_model": 2**20,
            "global_read_bytes_emulated": 3 * 2**20, "global_write_bytes_emulated": 2**20,
            "compulsory_read_bytes": 393216, "compulsory_write_bytes": 131072,
        }  # fmt: skip
        return Record(**(defaults | fields))

    return make
