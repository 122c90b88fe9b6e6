"""The tables of main loops, default tiles and conflicts in ``kernels/README.md`` are of the kernels as they are."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fa_bench import nvrtc
from fa_bench.backends import why_not
from fa_bench.compiler import nvrtc_available
from fa_bench.model import gpus

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "kernels" / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.skipif(
    bool(why_not("emulator") or nvrtc_available()), reason=str(why_not("emulator") or nvrtc_available())
)


def script() -> ModuleType:
    """scripts/kernel_tables.py as a module."""
    spec = importlib.util.spec_from_file_location("kernel_tables", ROOT / "scripts" / "kernel_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


SCRIPT = script()


@pytest.fixture
def same_compiler() -> None:
    """Skip where another compiler makes other instructions."""
    version = nvrtc.load().version
    if f"Compiled by NVRTC {version} for sm_80" not in TEXT:
        pytest.skip(f"The tables are of another compiler than NVRTC {version}.")


def rows(name: str) -> list[list[str]]:
    """Cells of a block's rows, without its head."""
    block = re.search(SCRIPT.BLOCK.format(name), TEXT)
    assert block is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block[0].splitlines()[2:]]


@pytest.mark.usefixtures("same_compiler")
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_default_loops_execute_what_the_table_says(head_dim: int) -> None:
    tile = SCRIPT.default_tile(gpus.get("a100-sxm-80"), head_dim)
    row = next(row for row in rows("loops") if row[0] == str(head_dim))
    assert row[1:3] == [f"{tile}/{tile.stages}", str(tile.num_warps)]
    assert row[3:-1] == SCRIPT.loop_cells(head_dim, tile)
    # The two that the kernel was made for.
    assert row[-2:] == ["0.00", "0"]


def test_every_instruction_has_the_family_of_its_opcode() -> None:
    loop = SCRIPT.main_loop(64, SCRIPT.default_tile(gpus.get("a100-sxm-80"), 64), -1).per_mma
    # A warp has 32 rows by 64 keys, 64 scores per lane, in 128 mma: an ex2 for each score, a conversion for each pair.
    assert (loop["mma"], loop["ex2"], loop["pack"]) == (1, 0.5, 0.25)
    # Four lanes share a row: 2 shuffles for each of a lane's 4 rows. K and V are 16 KiB, 8 chunks of 16 bytes for each
    # of 128 threads. A fragment of K or V is 16 by 16 of its 64 by 64 elements.
    assert (loop["shuffle"], loop["cp.async"], loop["ldmatrix"]) == (8 / 128, 8 / 128, 32 / 128)


def test_default_tiles_are_those_of_the_table() -> None:
    found = rows("defaults")
    assert [row[0] for row in found] == [str(head_dim) for head_dim in SCRIPT.HEAD_DIMS]
    for head_dim, *cells, _ in found:
        tiles = [SCRIPT.default_tile(gpus.get(slug), int(head_dim)) for slug in SCRIPT.SHOWN.values()]
        named = [re.fullmatch(r"(\S+), \d x (\d)", cell) for cell in cells]
        assert [one and one.groups() for one in named] == [(f"{t}/{t.stages}", str(t.num_warps)) for t in tiles]


@pytest.mark.usefixtures("same_compiler")
def test_reasons_are_those_of_the_figures() -> None:
    assert {row[0]: row[-1] for row in rows("defaults")}["128"] == SCRIPT.reasons(128)


@pytest.mark.slow
@pytest.mark.usefixtures("same_compiler")
@pytest.mark.parametrize("name", ["loops", "defaults", "conflicts"])
def test_a_table_is_what_the_script_makes(name: str) -> None:
    block = re.search(SCRIPT.BLOCK.format(name), TEXT)
    assert block is not None and block[0] == SCRIPT.BLOCKS[name]()


def test_no_kernel_has_conflicts() -> None:
    found = rows("conflicts")
    assert {row[0] for row in found} >= {"standard_scores", "standard_pv", "flash1_fwd", "flash2_fwd", "flash2_fused"}
    assert all(row[2] == row[4] == "0" for row in found)
