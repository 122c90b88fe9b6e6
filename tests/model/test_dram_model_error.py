"""The script behind the table of docs/model.md: what it draws, and how it counts."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case
from fa_bench.model import gpus

PATH = Path(__file__).parents[2] / "scripts" / "dram_model_error.py"


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("dram_model_error", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


SCRIPT = load()


def test_cases_are_legal_and_the_same_for_a_seed() -> None:
    first, second = (list(itertools.islice(SCRIPT.draw(random.Random(3)), 20)) for _ in range(2))
    assert first == second
    assert first != list(itertools.islice(SCRIPT.draw(random.Random(4)), 20))
    for case, gpu in first:
        assert algorithms.get(case.impl).unsupported(case, gpu) is None
        assert gpu.l2_bytes // gpu.sm_count >> 10 in SCRIPT.L2_KIB_PER_SM[gpu.l2_partitions]


def compared(read: int, write: int) -> object:
    # Q, K, V and O of 256 rows with D = 64 are 32 KiB each: 98,304 bytes in, 32,768 out.
    case = Case("flash2", AttentionShape(1, 1, 1, 256, 256, 64))
    emulated = Counter({"read": read, "write": write})
    model = Counter({"read": 110_000, "write": 0})
    return SCRIPT.Compared(case, gpus.get("a30"), emulated, model, Counter({"read": 90_000}))


def test_cases_that_only_read_their_inputs_are_told_apart() -> None:
    assert not compared(98_304, 0).more_than_inputs  # type: ignore[attr-defined]
    assert not compared(98_304, 655).more_than_inputs  # type: ignore[attr-defined]
    assert compared(98_304, 656).more_than_inputs  # type: ignore[attr-defined]
    assert compared(100_271, 0).more_than_inputs  # type: ignore[attr-defined]


def test_errors_are_of_all_bytes() -> None:
    case = compared(90_000, 10_000)
    assert round(case.error(), 6) == 0.1  # type: ignore[attr-defined]
    assert round(case.error(registers=False), 6) == -0.1  # type: ignore[attr-defined]


def test_a_row_of_the_table() -> None:
    assert SCRIPT.row("x", [0.0, 0.04, -0.06, 0.2]) == "| x | 4 | 50 % | 75 % | +20.0 % |"
