"""The byte tables of ``kernels/README.md`` say what the models say; other tests hold the models against the count."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus

README = Path(__file__).resolve().parents[2] / "kernels" / "README.md"
#: | kernel | [formula |] tile | read KiB | written KiB |
ROW = re.compile(r"^\| (\w+) \|(?: (?P<formula>[^|]*) \|)? (\d+)x(\d+) \| (\d+) \| (\d+) \|$", re.M)

N, D, E = 1024, 64, 2
SHAPE = AttentionShape(1, 1, 1, N, N, D)


def kernel_bytes(impl: str, tile: Tile) -> dict[str, list[int]]:
    """Bytes read and written by each kernel of ``impl``."""
    bare = Case(impl, SHAPE)
    algorithm = algorithms.get(impl)
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
    assert len(rows) == 12
    for row in rows:
        kernel, _, block_m, block_n, read, written = row.groups()
        tile = Tile(int(block_m), int(block_n))
        nbytes = kernel_bytes(kernel.partition("_")[0], tile)[kernel]
        assert nbytes == [int(read) * 1024, int(written) * 1024], kernel
        if row["formula"]:
            assert evaluate(row["formula"], tile) == sum(nbytes), kernel


def test_the_second_table_has_the_tiles_that_auto_takes() -> None:
    gpu = gpus.get("a100-sxm-80")
    auto = README.read_text(encoding="utf-8").partition("`--block auto`")[2]
    named = {(row[1].partition("_")[0], f"{row[3]}x{row[4]}") for row in ROW.finditer(auto)}
    assert named == {(name, str(algorithms.get(name).auto_tile(Case(name, SHAPE), gpu))) for name in algorithms.names()}


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []
