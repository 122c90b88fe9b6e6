"""``fa-bench compare`` and ``fa-bench baseline`` on files, and on two real sweeps of different tiles."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.cli.app import run
from fa_bench.cli.devices import missing_emulator
from fa_bench.comparison.rules import METRICS
from fa_bench.sweep.journal import read_run

sys.path.insert(0, str(Path(__file__).parents[1] / "comparison"))

from sample_runs import BIMODAL, CONSTANT, NOISE, failed, record, timed, write, write_timed

SLOWER = tuple(1.1 * t for t in CONSTANT)


@pytest.fixture
def runs(tmp_path: Path) -> None:
    """Runs in the working folder, each named after what it is."""
    write_timed(tmp_path / "base", CONSTANT)
    write_timed(tmp_path / "slower", SLOWER)
    write_timed(tmp_path / "same", CONSTANT)
    write_timed(tmp_path / "unsure", BIMODAL)
    write_timed(tmp_path / "other-device", CONSTANT, device="another GPU")
    write(tmp_path / "broken", [failed()])


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("base same", 0),
        # Without a rule nothing fails.
        ("base slower", 0),
        ("base slower --fail-on slower:2%", 1),
        ("base slower --fail-on slower:10.1%", 0),
        ("base slower --fail-on bytes:0 --fail-on slower:2%", 1),
        ("base same --fail-on slower:0%,registers:0,missing:0,status:0", 0),
        ("base unsure --fail-on slower:2%", 0),
        ("base unsure --fail-on slower:2%,ambiguous:0", 1),
        ("base other-device", 0),
        ("base other-device --fail-on slower:2%", 1),
        ("base broken", 0),
        ("base broken --fail-on status:0", 1),
        ("base/records.csv same/records.csv --fail-on slower:2%", 0),
        ("base/records.csv slower --fail-on slower:2%", 1),
        ("base nowhere", 2),
        ("base", 2),
        ("base same --fail-on fast:0", 2),
        ("base same --fail-on slower:1", 2),
        ("base same --margin 2", 2),
        ("base same --by tile", 2),
        ("base same --junit out.xml", 2),
        ("base same --fail-on registers:0 --junit no/such/folder.xml", 2),
    ],
)
@pytest.mark.usefixtures("runs")
def test_exit_codes(cli: Callable, args: str, code: int) -> None:
    ran = cli("compare", *args.split())
    assert ran.code == code, ran.err
    assert (ran.out == "") == (code == 2)
    assert ("Error: " in ran.err) == (code == 2)


@pytest.mark.usefixtures("runs")
def test_what_is_said_on_stderr(cli: Callable) -> None:
    assert cli("compare", "base", "same").err == ""
    ran = cli("compare", "base", "slower", "--fail-on", "slower:2%")
    assert ran.err == "flash2 128x64/1, 4k: 10.0 % slower, between +10.0 % and +10.0 %.\n"
    ran = cli("compare", "base", "other-device", "--quiet")
    assert ran.err == "Not the same: device a GPU, now another GPU (1 pair). Times are not compared.\n"
    ran = cli("compare", "base", "unsure", "--fail-on", "slower:2%")
    assert "slower:2% is not decided in 1 pair" in ran.err


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("other", ["slower", "unsure", "other-device", "broken"])
def test_tables_fit_80_columns(cli: Callable, other: str) -> None:
    assert max(map(len, cli("compare", "base", other).out.splitlines())) <= 80


@pytest.mark.usefixtures("runs")
def test_formats(cli: Callable) -> None:
    found = json.loads(cli("compare", "base", "slower", "--format", "json").out)
    assert (found["schema"], found["verdicts"]) == (1, {"slower": 1})
    (row,) = csv.DictReader(io.StringIO(cli("compare", "base", "slower", "--format", "csv").out))
    assert (row["figure"], row["verdict"], row["block_m_after"]) == ("time_ms", "slower", "128")
    assert float(row["ratio_low"]) == pytest.approx(1.1)
    assert cli("compare", "base", "slower", "--format", "md").out.startswith(
        "**base, now slower**\n\n| field | value |"
    )


@pytest.mark.usefixtures("runs")
def test_junit(cli: Callable) -> None:
    rules = ["--fail-on", "slower:2%,registers:0", "--fail-on", "dram:0,missing:0", "--junit", "out.xml"]
    assert cli("compare", "base", "slower", *rules).code == 1
    (suite,) = ET.parse("out.xml").getroot()
    assert suite.get("name") == "fa-bench compare base slower"
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("slower:2%", ["failure"]),
        ("registers:0", []),
        ("dram:0", ["skipped"]),  # of the one pair
        ("dram:0", ["failure"]),  # since that was all
        ("missing:0", []),
    ]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "1")


def test_accepting_makes_the_comparison_pass(cli: Callable, tmp_path: Path) -> None:
    write_timed(tmp_path / "base", CONSTANT)
    write_timed(tmp_path / "new", SLOWER)
    rule = ("--fail-on", "slower:2%")
    assert cli("compare", "base", "new", *rule).code == 1
    ran = cli("baseline", "accept", "base", "--from", "new")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "base, accepted from new"
    assert cli("compare", "base", "new", *rule).code == 0
    assert [note["run_id"] for note in read_run(tmp_path / "base").manifest.accepted] == ["new"]


def test_a_baseline_takes_rows_that_are_ok_unless_it_must_take_others(cli: Callable, tmp_path: Path) -> None:
    write(tmp_path / "new", [record(), failed("oom", case_id="d")])
    ran = cli("baseline", "accept", "base", "--from", "new")
    assert ran.code == 2
    assert ran.err == ("Error: new has rows that are not ok: 1 oom.\n       --force accepts them as they are.\n")
    ran = cli("baseline", "accept", "base", "--from", "new", "--force", "--format", "json")
    assert json.loads(ran.out) == {"schema": 1, "rows": 2, "replaced": 0, "kept": 0}


@pytest.mark.parametrize("args", ["", "accept", "accept base", "refuse base --from new", "accept base --from nowhere"])
def test_baseline_usage(cli: Callable, args: str) -> None:
    assert cli("baseline", *args.split()).code == 2


def test_a_torn_file_is_said_and_the_row_is_missing(cli: Callable, tmp_path: Path) -> None:
    rows = [record(case_id=case_id) for case_id in "xy"]
    write(tmp_path / "base", rows)
    write(tmp_path / "torn", rows)
    path = tmp_path / "torn" / "records.csv"
    path.write_text(path.read_text()[:-20])
    ran = cli("compare", "base", "torn")
    assert (ran.code, ran.err) == (0, "torn/records.csv: the last row is cut off and left out.\n")
    ran = cli("compare", "base", "torn", "--fail-on", "missing:0")
    assert ran.code == 1
    assert "missing:0: 1 row of base missing in torn." in ran.err


def test_a_baseline_refuses_a_torn_run(cli: Callable, tmp_path: Path) -> None:
    path = write(tmp_path / "torn", [record(case_id=case_id) for case_id in "xy"]) / "records.csv"
    path.write_text(path.read_text()[:-20])
    ran = cli("baseline", "accept", "base", "--from", "torn")
    assert (ran.code, ran.err) == (
        2,
        "Error: torn can't be read in full. torn/records.csv: the last row is cut off and left out.\n"
        "       --force accepts what is left.\n",
    )
    assert cli("baseline", "accept", "base", "--from", "torn", "--force").code == 0


def model_bytes(block_m: int) -> dict[tuple[str, str], int]:
    shape = AttentionShape(batch=1, heads_q=1, heads_kv=1, seq_q=128, seq_kv=128, head_dim=64)
    case = Case("flash2", shape, tile=Tile(block_m, 64, stages=1, num_warps=4))
    found: dict[tuple[str, str], int] = {}
    for moved in algorithms.get("flash2").traffic(case):
        found[moved.tensor, moved.op] = found.get((moved.tensor, moved.op), 0) + moved.bytes
    return found


#: The commands of the page in their order, and what it shows of them.
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)^\$ fa-bench (.*)$", PAGE)
IN_CI = re.findall(r"(?m)^- run: fa-bench (compare .*)$", PAGE)
SHOWN = re.findall(r"(?ms)^```text\n(.*?)^```$", PAGE)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's two sweeps of one case on the emulator, in tiles of 128 and of 64 rows of Q."""
    if (missing := missing_emulator()) is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in COMMANDS[:2]:
            assert run([*shlex.split(command), "--quiet"]) == 0
    return folder


def in_ci(now: str) -> list[str]:
    """What the page's CI runs, with another run for ``now``."""
    (command,) = IN_CI
    return shlex.split(command.replace(" now ", f" {now} "))


def test_the_page_shows_what_the_commands_say(swept: Path, cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(swept)
    by_shape, sweeping, keeping, failing, accepting = COMMANDS[2:]
    table, sentence = SHOWN
    # What the compiler makes of the kernels depends on its version.
    compiled = ("registers", "spills")
    ran = cli(*shlex.split(by_shape))
    assert (ran.code, ran.err) == (0, "")
    lines = [line.rstrip() for line in ran.out.splitlines()]
    assert [line for line in table.splitlines() if not line.startswith(compiled)] == [
        line for line in lines if not line.startswith(compiled)
    ]
    ran = cli(*shlex.split(failing))
    assert (ran.code, ran.err) == (1, sentence)
    # The runs of the quick configuration have more cases than a test needs; m128 stands for them.
    assert sweeping == "sweep --config quick --out first"
    assert cli(*shlex.split(keeping.replace("first", "m128"))).code == 0
    assert cli(*in_ci("m128")).code == 0
    assert cli(*in_ci("m64")).code == 1
    assert cli(*shlex.split(accepting.replace("now", "m128"))).code == 0
    assert cli(*in_ci("m128")).code == 0


def test_the_page_names_every_rule_and_field(swept: Path, cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = PAGE.partition("| rule |")[2].partition("\n\n")[0]
    assert {name.partition(":")[0] for name in re.findall(r"`([a-z0-9]+[:%0-9]*)`", rules)} - {"ok"} == set(METRICS)
    monkeypatch.chdir(swept)
    found = json.loads(cli("compare", "m128", "m64", "--format", "json", "--fail-on", "missing:0").out)
    text = PAGE.partition("## JSON")[2]
    (pair,) = json.loads(cli("compare", "m128", "m64", "--by", "shape", "--format", "json").out)["pairs"]
    fields = {*found, *found["rules"][0], *pair, *pair["before"], *pair["time"], *pair["figures"][0]}
    assert {field for field in fields if f"`{field}`" not in text} == set()


def test_the_difference_of_two_sweeps_in_bytes_is_named_and_is_the_models(
    swept: Path, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With 64 rows of Q per tile K and V (128 · 64 halves, 16,384 bytes) are read twice instead of once.
    monkeypatch.chdir(swept)
    ran = cli("compare", "m128", "m64", "--by", "shape", "--fail-on", "bytes:0", "--format", "json")
    assert ran.code == 1
    assert "global K read 16,384 -> 32,768 (+16,384, block_m 128 -> 64)" in ran.err
    (pair,) = json.loads(ran.out)["pairs"]
    named = {f["figure"]: f for f in pair["figures"] if f["figure"].startswith("global ")}
    old, new = model_bytes(128), model_bytes(64)
    differ = {
        f"global {tensor} {op}": (old[tensor, op], size)
        for (tensor, op), size in new.items()
        if old[tensor, op] != size
    }
    assert {name: (f["before"], f["after"]) for name, f in named.items()} == differ
    assert set(differ) == {"global K read", "global V read"}
    # Counted by executing the kernels as well as predicted.
    assert all(f["sources"] == ["model", "emulated"] for f in named.values())
    # The other way round bytes shrink, which breaks nothing.
    assert cli("compare", "m64", "m128", "--by", "shape", "--fail-on", "bytes:0").code == 0


def test_sweeps_of_different_tiles_have_no_case_in_common(
    swept: Path, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(swept)
    ran = cli("compare", "m128", "m64", "--fail-on", "missing:0")
    assert ran.code == 1
    assert ran.err == (
        "1 row without a partner has one of the same shape: --by shape pairs them.\n"
        "missing:0: 1 row of m128 missing in m64.\n"
    )
    # An emulator has no time, and a rule on it no pair to hold.
    ran = cli("compare", "m128", "m64", "--by", "shape", "--fail-on", "slower:2%")
    assert (ran.code, ran.err) == (1, "slower:2%: no pair has such a figure.\n")


def test_a_small_change_is_none_and_noise_is_no_change(cli: Callable, tmp_path: Path) -> None:
    rows = [timed(NOISE, case_id="a"), timed([1.005 * t for t in NOISE], case_id="a")]
    for name, row in zip(("one", "two"), rows, strict=True):
        write(tmp_path / name, [row], [(row, NOISE if name == "one" else [1.005 * t for t in NOISE])])
    assert json.loads(cli("compare", "one", "two", "--format", "json").out)["verdicts"] == {"same": 1}
    ran = cli("compare", "one", "two", "--format", "json", "--margin", "0.5%")
    assert json.loads(ran.out)["verdicts"] == {"ambiguous": 1}
