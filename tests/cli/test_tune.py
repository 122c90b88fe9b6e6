"""``fa-bench tune``: tables of 80 columns, CSV, JSON, files, exit codes, and errors in a sentence."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))

from made_tiles import CountingBackend, with_a_byte_more

from fa_bench.algorithms.base import TensorBytes
from fa_bench.backends.base import RunResult, Samples
from fa_bench.cases import Case
from fa_bench.errors import Unsupported

OPTIONS = ("--gpu", "a100", "--head-dim", "128", "--jobs", "1", "--stages", "1")


@pytest.fixture
def tune(cli: Callable, fakes: Callable) -> Callable:
    """Run the command on a backend that counts by a formula, or on those that are given first."""

    def call(*args: str, backends: tuple[CountingBackend, ...] = ()) -> object:
        fakes(*(backends or (CountingBackend(),)))
        return cli("tune", *OPTIONS, *args)

    return call


def test_the_recommendation_comes_first_and_tables_have_80_columns(tune: Callable) -> None:
    ran = tune()
    assert ran.code == 0
    assert ran.out.startswith("Recommended: ")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "flash2, 4k fp16 D=128 full B=4 H=16, a100-sxm-80: 10 of 25 tiles" in ran.out
    assert "Predicted time over the least" in ran.out
    assert "What rules say" in ran.out
    assert "0/25 tiles tried" in ran.err


def test_csv_has_a_row_per_tile(tune: Callable) -> None:
    ran = tune("--format", "csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert (ran.err, len(rows)) == ("", 27)
    assert list(rows[0])[:14] == [
        *("impl", "gpu", "dtype", "head_dim", "seq", "causal", "batch", "heads"),
        *("block_m", "block_n", "stages", "num_warps", "place", "recommended"),
    ]
    assert {row["time_ms"] for row in rows} == {""}
    assert [row["status"] for row in rows].count("ok") == 25
    assert {(row["block_m"], row["block_n"]): row["status"] for row in rows if row["status"] != "ok"} == {
        ("256", "128"): "no_registers",
        ("256", "256"): "no_smem",
    }


def test_json_has_the_reasons_and_the_rules(tune: Callable) -> None:
    document = json.loads(tune("--format", "json", "--causal", "--seq", "2k", "--batch", "2", "--heads", "32").out)
    assert [document[key] for key in ("schema", "basis", "interrupted")] == [1, "prediction", False]
    assert document["recommended"]["recommended"] is True
    assert [document["tiles"][0][key] for key in ("seq", "causal", "batch", "heads")] == [2048, True, 2, 32]
    rules = {rule["rule"]: rule for rule in document["rules"]}
    assert rules["square"]["m"] == 83456
    assert (rules["flash-attention-2"]["block_m"], rules["flash-attention-2"]["block_n"]) == (128, 64)


def test_files_are_written_where_they_were_asked_for(tune: Callable, tmp_path: Path) -> None:
    ran = tune("--out", "tuned", "--html", "page.html")
    assert ran.code == 0
    assert sorted(path.name for path in (tmp_path / "tuned").iterdir()) == [
        *("tiles.csv", "tune.html", "tune.json", "tune.svg"),
    ]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "fa-bench tune --gpu a100 --head-dim 128 --jobs 1" in page
    assert "tiles.csv, tune.json, tune.html, tune.svg are in tuned." in ran.err


def test_a_picture_without_a_rasteriser_is_refused_before_anything_runs(
    tune: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = CountingBackend()
    ran = tune("--png", "tiles.png", backends=(backend,))
    assert (ran.code, backend.ran) == (2, [])
    assert "--png takes rsvg-convert, which isn't here." in ran.err


def test_a_tile_that_moves_other_bytes_than_the_model_is_exit_code_1(tune: Callable) -> None:
    def change(case: Case, result: RunResult) -> RunResult:
        return with_a_byte_more(result) if case.tile is not None and case.tile.block_m == 64 else result

    ran = tune(backends=(CountingBackend(change=change),))
    assert ran.code == 1
    assert "64x64/1 with 4 warps is out: At 99 x 101 flash2_fwd moves" in " ".join(ran.out.split())


def test_where_no_tile_could_be_run_none_is_recommended(tune: Callable) -> None:
    def refuse(case: Case, result: RunResult) -> RunResult:
        raise Unsupported("There is no compiler here.")

    ran = tune(backends=(CountingBackend(change=refuse),))
    assert (ran.code, ran.out) == (3, "")
    assert "None of 25 tiles could be run. There is no compiler here." in ran.err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--html", "nowhere/page.html"), "--html: 'nowhere/page.html' can't be written: No such file or directory."),
        (("--png", "nowhere/maps.png"), "--png: 'nowhere/maps.png' can't be written: No such file or directory."),
        (("--html", "."), "--html: '.' can't be written: Is a directory."),
        (("--html", ""), "A file has a name."),
        (("--out", ""), "A folder has a name."),
        (("--out", "taken"), "--out: 'taken' can't be made: File exists."),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    tune: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setattr("shutil.which", lambda name: name)
    backend = CountingBackend()
    ran = tune(*args, backends=(backend,))
    assert (ran.code, ran.out, backend.ran) == (2, "", [])
    assert sentence in " ".join(ran.err.split())


def test_a_picture_is_what_the_rasteriser_gives(
    tune: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the test's, which gives back the first bytes of the SVG."""
    program = tmp_path / "rsvg-convert"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write(sys.stdin.read(4))\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(program))
    ran = tune("--png", "maps.png")
    assert ran.code == 0
    assert (tmp_path / "maps.png").read_text() == "<svg"


def test_where_a_tile_could_not_be_run_it_is_said(tune: Callable) -> None:
    def refuse(case: Case, result: RunResult) -> RunResult:
        if case.tile is not None and case.tile.block_m == 16:
            raise Unsupported("There is no compiler here.")
        return result

    ran = tune(backends=(CountingBackend(change=refuse),))
    assert ran.code == 0
    assert "5 of 25 tiles could not be run. There is no compiler here." in " ".join(ran.out.split())


def test_on_a_gpu_the_time_decides(tune: Callable) -> None:
    """A GPU of the test's: every tile takes 9 ms but 32 x 32, which takes 5."""

    def timed(case: Case, result: RunResult) -> RunResult:
        assert case.tile is not None
        fast = (case.tile.block_m, case.tile.block_n) == (32, 32)
        return replace(result, counts=None, samples=Samples(((5.0 if fast else 9.0),) * 3, "cuda-events", "cold"))

    ran = tune(backends=(CountingBackend("cuda", "a100", change=timed), CountingBackend()))
    assert ran.code == 0
    words = " ".join(ran.out.split())
    assert words.startswith("Recommended: 32x32/1 with 2 warps. It was measured at 5.00 ms, the least of 25 tiles.")
    assert "Measured time over the least" in ran.out


def test_full_counters_set_counted_dram_bytes_beside_the_model_s(tune: Callable) -> None:
    def change(case: Case, result: RunResult) -> RunResult:
        assert result.counts is not None
        moved = [TensorBytes("flash2_fwd", "Q", "read", 3 * 2**20), TensorBytes("flash2_fwd", "O", "write", 2**20)]
        return replace(result, counts=replace(result.counts, traffic={**result.counts.traffic, "dram": moved}))

    ran = tune("--counters", "full", backends=(CountingBackend(change=change),))
    assert ran.code == 0
    assert "In emulated caches 4 MiB cross between L2 and DRAM" in ran.out
    (square,) = (line for line in ran.out.splitlines() if line.startswith("√(M/4d) "))
    assert square.split()[-2:] == ["4", "MiB"]
    assert max(map(len, ran.out.splitlines())) <= 80


def test_an_interrupt_shows_what_was_tried(tune: Callable) -> None:
    seen: list[Case] = []

    def stop(case: Case, result: RunResult) -> RunResult:
        seen.append(case)
        if len(seen) == 9:  # four small cases per tile: during the third
            raise KeyboardInterrupt
        return result

    ran = tune(backends=(CountingBackend(change=stop),))
    assert ran.code == 130
    assert ran.out.startswith("Interrupted after 2 of 25 tiles: the best of those.\nRecommended: ")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--gpu", "b9000"), "There is no GPU 'b9000' in the registry."),
        (("--counters", "ful"), "--counters: there is no 'ful'."),
        (("--gpu", "t4"), "so compute capability 8.0; NVIDIA T4 has 7.5."),
        (("--head-dim", "60"), "head_dim must be a multiple of 8 up to 256, not 60."),
        (("--head-dim", "64,128"), "--head-dim: tune takes one value, not 2."),
        (("--batch", "1,2"), "--batch: tune takes one value, not 2."),
        (("--heads", "4,8"), "--heads: tune takes one value, not 2."),
        (("--causal", "both"), "--causal: tune takes one value, not 2."),
        (("--impl", "auto"), "--impl: 'auto' has no tile of ours to choose."),
        (("--impl", "standard"), "standard has kernels that are built for the length"),
        (("--impl", "flash9"), "There is no implementation 'flash9'."),
        (("--stages", "3"), "stages must be 1 or 2, not 3."),
        (("--dtype", "fp8"), "--dtype: 'fp8' is none of fp16, bf16, fp32."),
        (("--device", "host"), "--device: the host runs none of our kernels."),
    ],
)
def test_what_is_off_is_said_in_a_sentence(tune: Callable, args: tuple[str, ...], sentence: str) -> None:
    ran = tune(*args)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in " ".join(ran.err.split())
