"""The ladder: every rung is right and moves what its formula says, and each is better in the figure of its idea."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fa_bench import ladder, nvrtc, reference
from fa_bench.algorithms.ladder import RUNGS, Rung, ladder_case
from fa_bench.backends.emulator import Compile
from fa_bench.compiler import compile_kernel, kernels_dir, nvrtc_available
from fa_bench.errors import KernelFault, UsageError
from fa_bench.ladder import Counted, Step
from fa_bench.model import gpus

ROOT = Path(__file__).resolve().parents[1]
A100 = gpus.get("a100-sxm-80")
BY_NAME = {rung.name: rung for rung in RUNGS}
NAMES = tuple(BY_NAME)

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))


def count(name: str, seq_q: int, seq_kv: int, batch: int = 1, heads: int = 1, *, checks: bool = False) -> Counted:
    """Run one rung."""
    case = ladder_case(seq_q, seq_kv, batch, heads)
    (step,) = (step for step in ladder.steps(case, A100) if step.name == name)
    return ladder.run(step, case, A100, checks=checks)


@pytest.fixture(scope="module")
def table() -> Iterator[list[Counted]]:
    """What the command shows."""
    if reason := nvrtc_available():
        pytest.skip(reason)
    case = ladder_case(1024, 1024)
    return [ladder.run(step, case, A100, jobs=2) for step in ladder.steps(case, A100)]


# --- right, and counted ----------------------------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "checks"),
    [
        ((1, 1, 1, 1), False),
        ((70, 100, 1, 1), False),
        ((33, 65, 2, 3), True),  # six slices whose LSE starts anywhere in a sector
    ],
    ids=str,
)
def test_any_length_is_right_and_moves_what_the_formula_says(
    name: str, shape: tuple[int, int, int, int], checks: bool
) -> None:
    counted = count(name, *shape, checks=checks)
    assert counted.verification.passed, counted.verification
    assert counted.traffic == {(moved.tensor, moved.op): moved.bytes for moved in counted.step.traffic}
    assert counted.equal


def bytes_of(rung: Rung) -> dict[str, int]:
    return {moved.tensor: moved.bytes for moved in rung.traffic(ladder_case(70, 100))}


def test_bytes_worked_out_by_hand() -> None:
    # 70 queries are 3 warps (32, 32 and 6 rows) in 2 CTAs. LSE: 4 + 4 sectors, and 6 floats in one more.
    # An element is a sector of 32 bytes: 70 · 64 · 32 for Q and for O; a warp reads 100 rows of 64 · 32, K three times.
    assert bytes_of(BY_NAME["01_naive"]) == {
        "Q": 143_360, "K": 3 * 3 * 204_800, "V": 3 * 204_800, "O": 143_360, "LSE": 288,
    }  # fmt: skip
    assert bytes_of(BY_NAME["02_online"]) == {
        "Q": 143_360, "K": 3 * 204_800, "V": 3 * 204_800, "O": 143_360, "LSE": 288,
    }  # fmt: skip
    # 8 chunks instead of 64 elements.
    assert bytes_of(BY_NAME["03_vectors"]) == {"Q": 17_920, "K": 76_800, "V": 76_800, "O": 17_920, "LSE": 288}
    # Two CTAs read 100 rows of 128 bytes.
    assert bytes_of(BY_NAME["04_tiles"]) == {"Q": 17_920, "K": 25_600, "V": 25_600, "O": 17_920, "LSE": 288}
    # Q in whole rows. An accumulator store covers 16 of 32 bytes: O in twice 70 · 128. LSE: 8 groups of 8 rows, and 6.
    assert bytes_of(BY_NAME["05_mma"]) == {"Q": 8_960, "K": 25_600, "V": 25_600, "O": 17_920, "LSE": 288}
    assert bytes_of(BY_NAME["12_staged_o"]) == {"Q": 8_960, "K": 25_600, "V": 25_600, "O": 8_960, "LSE": 288}


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "requests", "wavefronts", "conflicts"),
    [
        # 64 queries, 128 keys: one CTA, two tiles. Two warps: per key 8 + 8 chunks that all lanes read, in four phases;
        # per tile 2 · 512 chunks stored by 64 threads.
        ("04_tiles", 2 * (128 * 16 + 2 * 16), 4 * 2 * (128 * 16 + 2 * 16), 0),
        # Four warps, with per tile 4 steps · 4 loads of Q, 16 · 4 of K, 16 · 8 of V; 8 copies, and once 4 of Q.
        # 8 rows in the same four banks, 7 wavefronts too many; V: 4 pairs of rows, 3 too many.
        ("05_mma", 4 * (2 * (16 + 64 + 128 + 8) + 4), 4 * (2 * (80 * 8 + 128 * 4 + 8 * 4) + 16),
         4 * 2 * (80 * 7 + 128 * 3)),
        # ldmatrix: 4 of Q, 16 of K, 16 of V per tile, each four matrices of 8 rows in the same four banks.
        ("07_async_copy", 4 * (2 * (36 + 8) + 4), 4 * (2 * (36 * 32 + 8 * 4) + 16), 4 * 2 * 36 * 4 * 7),
        ("08_swizzle", 4 * (2 * (36 + 8) + 4), 4 * 4 * (2 * (36 + 8) + 4), 0),
        # Q once.
        ("11_q_registers", 4 * (2 * (32 + 8) + 8), 4 * 4 * (2 * (32 + 8) + 8), 0),
        # O: 16 stores of a wavefront, 4 loads of four.
        ("12_staged_o", 4 * (2 * (32 + 8) + 8 + 20), 4 * (4 * (2 * (32 + 8) + 8) + 16 + 16), 0),
    ],
)  # fmt: skip
def test_shared_memory_worked_out_by_hand(name: str, requests: int, wavefronts: int, conflicts: int) -> None:
    counted = count(name, 64, 128)
    assert (counted.shared_requests, counted.shared_wavefronts) == (requests, wavefronts)
    assert counted.shared_conflicts == conflicts


# --- what each idea buys ---------------------------------------------------------------------------------------------


def test_each_rung_is_better_in_the_figure_of_its_idea(table: list[Counted]) -> None:
    assert [counted.step.name for counted in table] == [*NAMES, "flash2 64x64", "flash2 128x64"]
    compared = 0
    for before, after in itertools.pairwise(table):
        if (figure := after.step.figure) is not None:
            assert after.figure(figure) < before.figure(figure), after.step.name
            compared += 1
        else:
            assert after.step.gain
    assert compared == 12


def test_all_of_them_are_right_and_the_top_is_as_good_as_flash2(table: list[Counted]) -> None:
    for counted in table:
        assert counted.verification.passed and counted.equal, counted.step.name
        assert counted.spill_bytes == 0 or counted.step.name not in NAMES, counted.step.name
    rungs = {counted.step.name: counted for counted in table}
    top, flash2 = rungs[NAMES[-1]], rungs["flash2 64x64"]
    assert top.traffic == flash2.traffic
    assert (top.shared_requests, top.shared_wavefronts) == (flash2.shared_requests, flash2.shared_wavefronts)
    # 2 · 1024² · 64 multiply-adds are 65,536 mma, and none is wasted where tiles fit.
    assert {counted.instructions.get("tensor", 0) for counted in table} == {0, 65_536}
    assert top.work == 65_536
    # Conflicts are gone for good from the swizzle on.
    assert {counted.shared_conflicts for counted in table[NAMES.index("08_swizzle") :]} == {0}


@needs_nvrtc
def test_copies_are_in_flight_during_half_of_the_products() -> None:
    """mma from each commit of copies to the next wait, in the order of the PTX, whose loop body is straight."""

    def between(name: str) -> list[int]:
        ptx = compile_kernel(BY_NAME[name].program(ladder_case(64, 64)).launches[0].kernel, A100.sm).ptx
        events = re.findall(r"^\s*(mma|cp\.async\.(?:commit|wait))", ptx, re.MULTILINE)
        found: list[int] = []
        flying = False
        for event in events:
            if event == "mma":
                if flying:
                    found[-1] += 1
            else:
                flying = event.endswith("commit")
                found += [0] * flying
        return found

    assert between("12_staged_o") == [0, 0]
    assert between("13_overlap") == [0, 32, 32]


@needs_nvrtc
@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_every_access_names_its_state_space(rung: Rung) -> None:
    ptx = compile_kernel(rung.program(ladder_case(64, 64)).launches[0].kernel, A100.sm).ptx
    assert set(re.findall(r"\b(?:ld|st)\.(\w+)", ptx)) <= {"param", "global", "shared"}


@needs_nvrtc
@pytest.mark.parametrize("name", ["02_online", "13_overlap"])
def test_maxima_that_rise_far_at_every_tile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Scores grow from about ±3 to ±100 along the keys: every tile has new maxima.
    inputs = reference.make_inputs(ladder_case(64, 256))
    inputs["K"] = (inputs["K"] * np.linspace(1, 32, 256)[:, None]).astype(np.float16)
    monkeypatch.setattr(reference, "make_inputs", lambda case: inputs)
    counted = count(name, 64, 256)
    assert counted.verification.passed, counted.verification


# --- the tests can fail ----------------------------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "old", "new", "noticed"),
    [
        ("02_online", "o[d] * factor", "o[d]", "result"),
        ("04_tiles", "        __syncthreads();\n\n        for (int key", "        for (int key", "fault"),
        ("08_swizzle", "chunk ^ row % 8", "chunk", "conflicts"),
        ("12_staged_o", "    __syncwarp();\n", "", "fault"),
        ("13_overlap", "cp_async_wait_group<0>();\n        __syncthreads();\n        if (n0", "if (n0", "fault"),
    ],
)
def test_a_fault_is_noticed(
    name: str, old: str, new: str, noticed: str, mutant: Callable[..., Compile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "compile_kernel", mutant(BY_NAME[name].source, (old, new)))
    if noticed == "fault":
        with pytest.raises(KernelFault):
            count(name, 64, 200, checks=True)
        return
    counted = count(name, 64, 200)
    assert counted.verification.passed is (noticed != "result")
    assert (counted.shared_conflicts > 0) is (noticed == "conflicts")


def test_a_length_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="not 0"):
        ladder_case(64, 0)


# --- the document ----------------------------------------------------------------------------------------------------


def test_every_kernel_of_the_folder_is_a_rung() -> None:
    assert [path.stem for path in sorted((kernels_dir() / "ladder").glob("*.cu"))] == list(NAMES)
    for rung in RUNGS:
        lines = (kernels_dir() / rung.source).read_text(encoding="utf-8").splitlines()
        assert len(lines) < 250 and max(map(len, lines)) <= 120, rung.name


def test_lines_of_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.cu": "// one\n// two\nx\ny\nz\n", "b.cu": "// three\nx\ny1\ny2\nz\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(ladder, "kernels_dir", lambda: tmp_path)
    monkeypatch.setattr(Step, "source", property(lambda step: step.name))
    program = RUNGS[0].program(ladder_case(1, 1))
    before, after = (Step(name, "", None, "", program, ()) for name in texts)
    assert ladder.changed_lines(before, after) == (2, 1)


def test_the_readme_has_what_the_command_prints(table: list[Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("ladder_table", ROOT / "scripts" / "ladder_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (block,) = re.findall(script.BLOCK, script.DOCUMENT.read_text(encoding="utf-8"))
    if f"NVRTC {nvrtc.load().version} " not in block:
        pytest.skip(f"The table is of another compiler than NVRTC {nvrtc.load().version}.")
    by_name = {counted.step.name: counted for counted in table}
    monkeypatch.setattr(ladder, "run", lambda step, case, gpu, jobs: by_name[step.name])
    assert block == script.printed(), "run: python scripts/ladder_table.py"
