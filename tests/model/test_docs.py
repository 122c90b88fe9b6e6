"""Every example in docs/model.md and in the docstrings of the models and units is executed."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

MODEL_MD = Path(__file__).parents[2] / "docs" / "model.md"


def test_the_examples_of_the_documentation() -> None:
    text = MODEL_MD.read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", text)
    assert len(blocks) == text.count("```python") >= 8
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, MODEL_MD.name, str(MODEL_MD), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    result = runner.run(examples, out=report.append)
    assert not result.failed, "".join(report)
    assert result.attempted >= 40


@pytest.mark.parametrize(
    "module",
    [
        "fa_bench.units",
        "fa_bench.sizes",
        "fa_bench.algorithms.reach",
        "fa_bench.algorithms.sectors",
        "fa_bench.model.bounds.backward",
        "fa_bench.model.bounds.elements",
        "fa_bench.model.bounds.forward",
        "fa_bench.model.bounds.lower",
        "fa_bench.model.bounds.mask",
        "fa_bench.model.bounds.orders",
        "fa_bench.model.bounds.columns",
        "fa_bench.model.dram",
        "fa_bench.model.flops",
        "fa_bench.model.occupancy",
        "fa_bench.model.roofline",
    ],
)
def test_the_examples_of_a_module(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed
