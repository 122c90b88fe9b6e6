"""The table of our kernels in docs/mutation.md is of the kernels as they are."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from fa_bench import algorithms, nvrtc
from fa_bench.backends.checking import source_lines
from fa_bench.cli.app import run
from fa_bench.cli.mutate import cases_of
from fa_bench.compiler import compile_kernel, nvrtc_available
from fa_bench.mutation import operators
from fa_bench.mutation.result import KINDS

pytestmark = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "mutation.md").read_text(encoding="utf-8")


def table(title: str) -> list[list[str]]:
    """Rows of the table below a title, without its head."""
    rows = re.findall(r"(?m)^\| .* \|$", TEXT.split(f"**{title}**")[1].split("\n\n")[1])
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def numbers(cells: list[str]) -> list[int]:
    return [0 if cell == "-" else int(cell) for cell in cells]


def test_every_kernel_has_as_many_mutants_as_the_table_says() -> None:
    version = nvrtc.load().version
    if f"Compiled by NVRTC {version};" not in TEXT:
        pytest.skip(f"The table is of another compiler than NVRTC {version}.")
    counted: Counter[tuple[str, str]] = Counter()
    gpu, cases, _ = cases_of({})
    specs = {launch.kernel for case in cases for launch in algorithms.get(case.impl).program(case).launches}
    for spec in specs:
        text = compile_kernel(spec, gpu.sm, lineinfo=True).ptx
        every = operators.mutants(operators.without_comments(text), spec.entry, source_lines(text))
        for mutant in operators.one_of_each(every):
            counted[spec.entry, mutant.kind] += 1
    *rows, total = table("Mutants by what caught them")
    assert {(kernel, kind): int(count) for kernel, kind, count, *_ in rows} == counted
    assert numbers(total[2:]) == [sum(column) for column in zip(*(numbers(row[2:]) for row in rows), strict=True)]


def test_none_is_missed_and_every_survivor_is_listed_with_a_reason() -> None:
    *rows, total = table("Mutants by what caught them")
    assert {kind for _, kind, *_ in rows} == set(KINDS)
    mutants, *caught, missed, slower, none = numbers(total[2:])
    assert mutants == sum(caught) + missed + slower + none
    assert missed == 0
    survivors = table("Changed nothing that could be noticed, and why")
    assert sum(int(builds) for *_, builds in survivors) == slower + none
    assert all(why for *_, why, _ in survivors)


def test_a_sample_of_the_table_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it takes minutes: flash1's barriers and waits stand for it."""
    command = "mutate --impl flash1 --only barrier,wait --jobs 1 --format md --quiet"
    assert run(command.split()) == 0
    printed = capsys.readouterr().out
    for kind in ("barrier", "wait"):
        (row,) = re.findall(rf"(?m)^\| flash1_fwd \| {kind} \| .*$", printed)
        assert row in TEXT
