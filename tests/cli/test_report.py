"""``fa-bench report``: where pages, pictures and plots go, what is refused, and that nothing heavy is imported."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fa_bench.cli.devices import missing_emulator

sys.path.insert(0, str(Path(__file__).parents[1] / "comparison"))

from sample_runs import CONSTANT, failed, record, timed, write

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
BYTES = {"global_read_bytes_model": 4096, "global_write_bytes_model": 0}


@pytest.fixture
def runs(tmp_path: Path) -> None:
    """Runs in the working folder, each named after what it is."""
    write(tmp_path / "timed", [timed(CONSTANT, seq_q=n, seq_kv=n, case_id=str(n), **BYTES) for n in (512, 1024)])
    write(tmp_path / "counted", [record(backend="emulator", **BYTES)])
    write(tmp_path / "failed", [failed()])
    write(tmp_path / "empty", [])
    torn = write(tmp_path / "torn", [record(**BYTES)])
    with (torn / "records.csv").open("a", encoding="utf-8") as file:
        file.write("half a row")
    (write(tmp_path / "broken", [record()]) / "run.json").write_text("{", encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "code", "written"),
    [
        ("timed", 0, ["timed/report.html"]),
        ("timed counted", 0, ["timed/report.html"]),
        ("timed/records.csv", 0, ["timed/report.html"]),
        ("timed --html page.html", 0, ["page.html"]),
        ("timed --plot", 0, []),
        ("timed --plot --html page.html", 0, ["page.html"]),
        ("timed --plot --svg pictures", 0, []),
        # A report of failed rows is a report.
        ("failed", 0, ["failed/report.html"]),
        ("torn", 0, ["torn/report.html"]),
        ("empty", 2, []),
        ("timed empty", 2, []),
        ("broken", 2, []),
        ("nowhere", 2, []),
        ("", 2, []),
        ("timed --html no/such/folder.html", 2, []),
        ("timed --html counted", 2, []),
        ("timed --svg timed/records.csv", 2, []),
        ("timed --pdf pictures", 2, []),
    ],
)
@pytest.mark.usefixtures("runs")
def test_exit_codes_and_what_is_written(
    cli: Callable, tmp_path: Path, args: str, code: int, written: list[str]
) -> None:
    ran = cli("report", *args.split())
    assert ran.code == code, ran.err
    assert ("Error: " in ran.err) == (code == 2)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html")) == written
    assert (ran.out != "") == ("--plot" in args and code == 0)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.usefixtures("runs")
def test_what_is_said(cli: Callable) -> None:
    assert cli("report", "timed").err == "The page is timed/report.html.\n"
    assert cli("report", "timed", "-q").err == ""
    assert "empty has no rows." in cli("report", "empty").err
    torn = cli("report", "torn", "--quiet")
    assert torn.err == "torn/records.csv: the last row is cut off and left out.\n"
    with Path("counted/traffic.csv").open("a", encoding="utf-8") as file:
        file.write("half a row")
    ran = cli("report", "counted", "--quiet")
    assert ran.err == "counted/traffic.csv: the last row is cut off and left out.\n"
    assert ran.err.strip() in Path("counted/report.html").read_text(encoding="utf-8")
    assert "run.json" in cli("report", "broken").err


@pytest.mark.usefixtures("runs")
def test_the_plot_is_of_times_where_there_are_some(cli: Callable) -> None:
    ran = cli("report", "timed", "--plot")
    assert ran.out.startswith("Time: fp16, D=64")
    assert "measured" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert cli("report", "counted", "--plot").out.startswith("Global memory, bytes: fp16")
    nothing = cli("report", "failed", "--plot")
    assert (nothing.code, nothing.out.strip()) == (0, "")
    assert "Time and FLOP/s: no row has a time" in nothing.err


@pytest.mark.usefixtures("runs")
def test_pictures(cli: Callable, tmp_path: Path) -> None:
    ran = cli("report", "timed", "--svg", "new/pictures")
    files = sorted(path.name for path in (tmp_path / "new" / "pictures").iterdir())
    assert {"global-bytes.svg", "time.svg"} <= set(files)
    assert ran.err == f"{len(files)} charts are in new/pictures.\n"
    for name in files:
        ET.parse(tmp_path / "new" / "pictures" / name)


@pytest.mark.usefixtures("runs")
def test_without_a_rasteriser_nothing_is_written(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = cli("report", "timed", "--png", "pictures", "--html", "page.html")
    assert ran.code == 2
    assert "--png takes rsvg-convert, which isn't here." in ran.err
    assert not (tmp_path / "pictures").exists()
    assert not (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("runs")
def test_a_rasteriser_that_fails_is_quoted(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "rsvg-convert"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho out of ink >&2\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    ran = cli("report", "timed", "--png", "pictures")
    assert ran.code == 1
    assert "out of ink" in ran.err


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
@pytest.mark.usefixtures("runs")
def test_pictures_as_png(cli: Callable, tmp_path: Path) -> None:
    assert cli("report", "timed", "--png", "pictures").code == 0
    image = (tmp_path / "pictures" / "time.png").read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    # Width and height are the first of the header's fields: three pixels for each of 400 x 290 units.
    assert struct.unpack(">II", image[16:24]) == (1200, 870)


@pytest.mark.usefixtures("runs")
def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    program = (
        "import json, sys\nfrom fa_bench.cli.app import run\n"
        "code = run(['report', 'timed', '-q'])\n"
        "print(json.dumps([code, sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    code, loaded = json.loads(done.stdout)
    assert code == 0
    assert not {"cupy", "torch", "pandas", "numba", "llvmlite", "pynvml", "matplotlib"} & set(loaded)


@pytest.mark.skipif(missing_emulator() is not None, reason=missing_emulator() or "")
def test_the_example_of_the_document(cli: Callable) -> None:
    (block,) = re.findall(r"(?ms)^```console\n(.*?)^```$", DOCUMENT)
    (printed,) = re.findall(r"(?ms)^```text\n(.*?)^```$", DOCUMENT)
    commands = re.findall(r"(?m)^\$ fa-bench (.*)$", block)
    assert [command.split()[0] for command in commands] == ["sweep", "report", "report"]
    *before, last = [cli(*command.split()) for command in commands]
    assert [ran.code for ran in before] == [0, 0]
    assert last.out == printed


@pytest.mark.parametrize("option", ["--html", "--svg", "--png"])
def test_a_place_has_a_name(cli: Callable, option: str) -> None:
    """An empty one would be the current folder."""
    ran = cli("report", "base", option, "")
    assert (ran.code, ran.out) == (2, "")
    assert "has a name." in ran.err
