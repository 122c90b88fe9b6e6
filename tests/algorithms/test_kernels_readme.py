"""The byte tables of ``kernels/README.md`` say what the models say; other tests hold the models against the count.

The instructions of the backward kernels are counted here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import algorithms
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus

README = Path(__file__).resolve().parents[2] / "kernels" / "README.md"
#: | kernel | [formula |] tile | read KiB | written KiB |
ROW = re.compile(r"^\| (\w+) \|(?: (?P<formula>[^|]*) \|)? (\d+)x(\d+) \| (\d+) \| (\d+) \|$", re.M)

#: | kernel | d | figures per mma |
COUNTED = re.compile(r"^\| (\w+) \| (64|128) \| (\d+\.\d\d(?: \| \d+\.\d\d){7}) \|$", re.M)
CLASSES = ("fma", "sfu", "load_store", "integer", "convert", "move")

N, D, E = 1024, 64, 2
SHAPE = AttentionShape(1, 1, 1, N, N, D)


def case_of(kernel: str) -> Case:
    """The case that ``kernel`` is part of, without its tile."""
    impl, _, step = kernel.partition("_")
    atomic = step in ("bwd_atomic", "bwd_convert")
    return Case(f"{impl}-atomic" if atomic else impl, SHAPE, direction="bwd" if step.startswith("bwd_") else "fwd")


def kernel_bytes(bare: Case, tile: Tile) -> dict[str, list[int]]:
    """Bytes read and written by each kernel of a case in ``tile``."""
    algorithm = algorithms.get(bare.impl)
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for part in algorithm.traffic(replace(bare, tile=algorithm.resolve(bare, tile))):
        totals[part.kernel][part.op == "write"] += part.bytes
    return totals


def evaluate(formula: str, tile: Tile) -> float:
    """The formula's value; its signs are Python's after these replacements."""
    expression = formula.replace("N²", "N*N").replace("·", "*")
    names = {"N": N, "d": D, "e": E, "Br": tile.block_m, "Bc": tile.block_n, "T": N // tile.block_n}
    return float(eval(expression, {"__builtins__": {}}, names))


def test_every_figure_and_formula_is_the_models() -> None:
    rows = list(ROW.finditer(README.read_text(encoding="utf-8")))
    assert len(rows) == 22
    for row in rows:
        kernel, _, block_m, block_n, read, written = row.groups()
        tile = Tile(int(block_m), int(block_n))
        nbytes = kernel_bytes(case_of(kernel), tile)[kernel]
        assert nbytes == [int(read) * 1024, int(written) * 1024], kernel
        if row["formula"]:
            assert evaluate(row["formula"], tile) == sum(nbytes), kernel


def test_the_second_and_the_backward_table_have_the_tiles_that_auto_takes() -> None:
    gpu = gpus.get("a100-sxm-80")
    auto = README.read_text(encoding="utf-8").partition("`--block auto`")[2]
    named = {(case_of(row[1]), f"{row[3]}x{row[4]}") for row in ROW.finditer(auto)}
    assert {case.impl for case, _ in named} == set(algorithms.names())
    assert named == {(case, str(algorithms.get(case.impl).auto_tile(case, gpu))) for case, _ in named}


@pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))
@pytest.mark.parametrize("impl", ["flash2", "flash2-atomic"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_instructions_of_the_backward_kernels_are_the_counted_ones(impl: str, head_dim: int) -> None:
    gpu = gpus.get("a100-sxm-80")
    case = Case(impl, AttentionShape(1, 1, 1, 512, 512, head_dim), direction="bwd")
    case = replace(case, tile=algorithms.get(impl).auto_tile(case, gpu))
    counts = EmulatorBackend(jobs=1).run(case, gpu).counts
    assert counts is not None
    rows = {(row[1], int(row[2])): row[3] for row in COUNTED.finditer(README.read_text(encoding="utf-8"))}
    for kernel, extra in counts.extra.items():
        mma = extra.get("instructions_tensor")
        if not mma:
            continue
        everything = sum(count for name, count in extra.items() if name.startswith("instructions_"))
        parts = [extra[f"instructions_{name}"] for name in CLASSES]
        figures = [count / mma for count in (everything, *parts, extra["shared_wavefronts"])]
        # Another compiler spells addresses otherwise.
        written = [float(figure) for figure in rows[kernel, head_dim].split(" | ")]
        assert written == pytest.approx(figures, rel=0.1, abs=0.006)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []
