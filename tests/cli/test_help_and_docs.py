"""Every command and option has help and is documented, and the documentation's examples run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fa_bench.cli.app import app
from fa_bench.config import AXES, preset_names

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ fa-bench (.*)$", DOCS, flags=re.MULTILINE)
#: They compile kernels, which takes NVRTC and a second or two each.
#: The examples of profile and diff run with those of docs/profile.md.
#: trace runs in test_trace.py, validate in test_validate.py, compare and baseline with docs/compare.md,
#: mutate in test_mutate.py, report in test_report.py, tune in test_tune.py, ladder in test_ladder.py,
#: claims in test_claims.py.
COMPILING = (
    *("kernels", "doctor", "profile", "diff", "trace", "validate", "compare", "baseline", "report", "mutate"),
    *("tune", "ladder", "claims"),
)

GROUP: Any = get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands


def section(command: str) -> str:
    """What the documentation says below the heading of a command."""
    return re.split(r"^## ", DOCS.split(f"\n## {command}\n")[1], flags=re.MULTILINE)[0]


def test_the_commands() -> None:
    assert set(COMMANDS) == {
        *("sweep", "io-model", "check", "profile", "diff", "trace", "validate", "gpus", "kernels", "doctor", "cache"),
        *("compare", "baseline", "report", "mutate", "tune", "ladder", "claims", "predict"),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_a_section(name: str, cli: Callable) -> None:
    ran = cli(name, "--help")
    assert ran.code == 0
    assert ran.err == ""
    assert COMMANDS[name].help.split(".")[0] in " ".join(ran.out.split())
    assert section(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_is_documented(name: str) -> None:
    common = "".join(re.split(r"^## ", DOCS, flags=re.MULTILINE)[:3])  # the title, common ground, the axes
    words = re.findall(r"--[a-z][a-z0-9-]*", section(name) + common)
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "argument":
            continue
        assert parameter.help, f"{name} {parameter.name} has no help"
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                assert option in words, f"{name} {option} is not in docs/cli.md"


def test_every_option_in_the_documentation_exists() -> None:
    known = {option for command in COMMANDS.values() for p in command.params for option in (*p.opts, *p.secondary_opts)}
    known |= {"--version", "--help", "--no-causal"}
    assert set(re.findall(r"--[a-z][a-z0-9-]*", DOCS)) <= known


def test_axes_and_presets_are_documented() -> None:
    axes = DOCS.split("## The axes")[1].split("\n## ")[0]
    for axis in AXES:
        assert f"| `{axis}` |" in axes
        assert f"`--{axis.replace('_', '-')}`" in axes
    for preset in preset_names():
        assert f"| `{preset}` |" in axes


def test_the_help_names_every_preset() -> None:
    (config,) = (parameter for parameter in COMMANDS["sweep"].params if parameter.name == "config")
    for preset in preset_names():
        assert preset in config.help


def test_without_a_command_there_is_help(cli: Callable) -> None:
    ran = cli()
    assert ran.code == 0
    assert "io-model" in ran.out


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str, cli: Callable) -> None:
    ran = cli(*command.split(), "--help")
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("example", [e for e in EXAMPLES if not e.startswith(COMPILING)])
def test_the_examples_run(
    example: str,
    cli: Callable,
    fakes: Callable,
    emulator: Callable,
    host: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "cache"))
    fakes(emulator(), host())
    if "--resume" in example:
        assert cli("sweep", "--seq", "512", "--out", "runs/first").code == 0
    ran = cli(*shlex.split(example))
    assert ran.code == 0, ran.err
    assert ran.out
    assert "Error" not in ran.err


def test_there_are_examples_of_every_command() -> None:
    assert {example.split()[0] for example in EXAMPLES} == set(COMMANDS)
