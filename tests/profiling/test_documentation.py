"""docs/profile.md: its commands run, in its order, and end as it says; its tables are complete."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import fields
from pathlib import Path

import made_profiles as made
import numpy as np
import pytest

from fa_bench.cli.app import run
from fa_bench.profiling.args import FILLS, STORAGE, parse
from fa_bench.profiling.diff import METRICS
from fa_bench.profiling.launchfile import read
from fa_bench.profiling.result import Cached, Line, StaticCount, Traffic
from fa_bench.profiling.saved import document

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    return [
        command
        for block in re.findall(r"(?ms)^```console\n(.*?)^```$", text)
        for command in re.findall(r"(?m)^\$ fa-bench (.*)$", block)
    ]


def section(heading: str) -> str:
    return TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the document's examples in it: one for all tests, so that each kernel is compiled once."""
    made_folder = tmp_path_factory.mktemp("documentation")
    shutil.copytree(ROOT / "examples", made_folder / "examples")
    return made_folder


@pytest.fixture
def copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it the current folder."""
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("nvrtc", "copy")
def test_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    steps = commands(section("A CI without a GPU"))
    assert [step.split()[0] for step in steps] == ["profile", "profile", "diff", "profile", "diff"]
    codes = [run(shlex.split(step)) for step in steps]
    # Without a change all is well; without the padding a rule is broken, as the text says.
    assert codes == [0, 0, 0, 0, 1]
    (quoted,) = re.findall(r"(?m)^attention: conflicts grew .*$", TEXT)
    assert capsys.readouterr().err.splitlines()[-1] == quoted
    # 8 CTAs, 8 tiles of 32 keys, scores written and read once each, 31 wavefronts too many.
    assert f"{8 * 8 * 32 * 2 * 31:,}" in quoted


def test_the_steps_of_the_workflow_are_those_of_the_recipe() -> None:
    (workflow,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", TEXT)
    steps = [step for step in re.findall(r"- run: (.*)", workflow) if step.startswith("fa-bench")]
    assert [step.removeprefix("fa-bench ") for step in steps] == commands(section("A CI without a GPU"))[1:3]


@pytest.mark.usefixtures("nvrtc", "copy")
@pytest.mark.parametrize("heading", ["A first look", "Arguments"])
def test_other_commands(heading: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(section(heading)):
        assert run(shlex.split(command)) == 0
        assert capsys.readouterr().out


@pytest.mark.usefixtures("nvrtc", "copy")
@pytest.mark.parametrize("name", ["profile", "diff"])
def test_commands_of_the_command_lines_documentation(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = CLI.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    if name == "diff":
        for base in ("before", "after"):
            assert run(shlex.split(f"{commands(TEXT)[0]} --save {base}")) == 0
    assert commands(text)
    for command in commands(text):
        assert run(shlex.split(command)) == 0
        assert capsys.readouterr().out


@pytest.mark.usefixtures("nvrtc", "copy")
def test_the_example_is_attention(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = {name: np.random.default_rng(seed).standard_normal((256, 64)) for seed, name in enumerate("QKV")}
    for name, values in drawn.items():
        np.save(f"{name}.npy", values.astype(np.float32))
    replaced = [word for name in drawn for word in ("--arg", f"{name}={name}.npy")]
    command = ["profile", "examples/attention.cu", "--args", "examples/attention.toml"]
    assert run([*command, *replaced, "--save-output", "out", "--format", "json", "-q"]) == 0
    scores = drawn["Q"] @ drawn["K"].T * 0.125
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = weights / weights.sum(axis=1, keepdims=True) @ drawn["V"]
    assert np.abs(np.load("out/O.npy") - exact).max() < 1e-5
    launch = json.loads(capsys.readouterr().out)["launches"][0]
    moved = {(one["tensor"], one["op"]): one["bytes"] for one in launch["traffic"]}
    # 8 CTAs of one warp, 8 tiles each. Q: 64 elements for every tile, a sector for each of 32 rows. K and V: 32 · 64
    # floats for every tile. O: a sector for each element of each row. (Q is read for every tile, not for every key,
    # because the loop over keys has nothing in it that may change it.)
    assert moved == {
        ("Q", "read"): 8 * 8 * 64 * 32 * 32,
        ("K", "read"): 8 * 8 * 32 * 64 * 4,
        ("V", "read"): 8 * 8 * 32 * 64 * 4,
        ("O", "write"): 8 * 64 * 32 * 32,
    }


def test_the_file_of_arguments_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"(?ms)^```toml\n(.*?)^```$", TEXT)
    (tmp_path / "args.toml").write_text(example)
    assert [launch.kernel for launch in read(tmp_path / "args.toml").launches] == ["scores", "softmax"]


def test_every_specification_type_fill_and_metric_is_documented() -> None:
    arguments = section("Arguments")
    for fill in FILLS:
        assert fill == "normal" or f"`{fill}:" in arguments
    for kind in STORAGE:
        assert f"`{kind}`" in arguments or kind in ("i16", "i32", "u16", "u32")
    for metric in METRICS:
        assert f"`{metric}`" in section("A CI without a GPU")
    cells = "".join(re.findall(r"^\| (`.*?) \|", arguments, flags=re.MULTILINE))
    specifications = [one for one in re.findall(r"`(.+?)`", cells) if not one.endswith((".npy", "…"))]
    assert len(specifications) >= 8
    for specification in specifications:
        assert parse("x", specification).text


def test_every_field_of_the_document_is_documented() -> None:
    table = section("The document")
    made_document = document(made.profile())
    (launch,) = made_document["launches"]
    known = [*made_document, *launch, *launch["resources"], *launch["occupancy"]]
    known += [item.name for kind in (Line, Traffic, StaticCount, Cached) for item in fields(kind)]
    assert [name for name in known if f"`{name}`" not in table] == []
