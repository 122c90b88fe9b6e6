"""What is predicted of published figures does not get worse: mean errors beside those of the last time.

``expected.csv`` is written by ``scripts/validation_tables.py``, together with the tables of docs/validation.md.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Final

import pytest

from fa_bench.prediction import predict_time
from fa_bench.report.validation import tables
from fa_bench.validation.result import Score, Validation
from fa_bench.validation.run import Runner
from fa_bench.validation.sources import SOURCES, Tools

#: A mean error may grow by half a percentage point.
MARGIN: Final = 0.005
EXPECTED: Final = Path(__file__).with_name("expected.csv")
DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "validation.md"
PREDICTED: Final = [name for name, source in SOURCES.items() if not source.runs]


def no_runner() -> Runner:
    raise AssertionError("a source that predicts was to run a kernel")


@pytest.fixture(scope="module")
def found() -> dict[str, Validation]:
    return {name: SOURCES[name].validate(Tools(predict_time, no_runner)) for name in PREDICTED}


def expected(source: str) -> list[Score]:
    with EXPECTED.open(encoding="utf-8") as file:
        return [
            Score(
                row["what"],
                row["gpu"],
                int(row["figures"]),
                float(row["mape"]) if row["mape"] else None,
                int(row["all_figures"]),
                float(row["all_mape"]) if row["all_mape"] else None,
            )
            for row in csv.DictReader(file)
            if row["source"] == source
        ]


@pytest.mark.parametrize("name", PREDICTED)
def test_no_mean_error_grows(name: str, found: dict[str, Validation]) -> None:
    worse = worsened(expected(name), list(found[name].scores))
    assert worse == [], "If that is meant, python scripts/validation_tables.py writes the new ones."


def worsened(before: list[Score], now: list[Score]) -> list[str]:
    """Figures that are no longer compared, and means that have grown by more than the margin."""
    keys = [[(score.what, score.gpu, score.figures, score.all_figures) for score in scores] for scores in (before, now)]
    complaints = [f"{key} was compared" for key in keys[0] if key not in keys[1]]
    complaints += [f"{key} is new" for key in keys[1] if key not in keys[0]]
    for old, new in zip(before, now, strict=False):
        for words, was, is_now in (("", old.mape, new.mape), (" of all", old.all_mape, new.all_mape)):
            if was is not None and is_now is not None and is_now > was + MARGIN:
                complaints.append(f"{new.what}, {new.gpu}: MAPE{words} was {was:.4f} and is {is_now:.4f}")
    return complaints


def test_a_worse_model_is_noticed() -> None:
    before = [Score("a", "a30", 4, 0.10, 6, 0.20), Score("b", "a30", 0, None, 1, 0.5)]
    assert worsened(before, before) == []
    assert worsened(before, [Score("a", "a30", 4, 0.104, 6, 0.1), before[1]]) == []
    assert worsened(before, [Score("a", "a30", 4, 0.106, 6, 0.2), before[1]]) == [
        "a, a30: MAPE was 0.1000 and is 0.1060"
    ]
    assert worsened(before, [Score("a", "a30", 4, 0.10, 6, 0.21), before[1]]) == [
        "a, a30: MAPE of all was 0.2000 and is 0.2100"
    ]
    # A figure less, left out or without a model.
    assert worsened(before, [Score("a", "a30", 3, 0.05, 6, 0.2), before[1]])[0] == "('a', 'a30', 4, 6) was compared"


@pytest.mark.parametrize("name", PREDICTED)
def test_the_document_is_what_the_command_prints(name: str, found: dict[str, Validation]) -> None:
    blocks = dict(
        re.findall(
            r"(?ms)^<!-- fa-bench validate ([\w-]+) -->\n(.*?)^<!-- end -->$", DOCUMENT.read_text(encoding="utf-8")
        )
    )
    assert "\n\n".join(table.markdown() for table in tables(found[name])) + "\n" == blocks[name]
