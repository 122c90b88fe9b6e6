"""The documents say what is: their examples run, their links lead somewhere, the files that they name exist."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fa_bench import algorithms
from fa_bench.cases import AttentionShape, Case
from fa_bench.cli.app import app, run
from fa_bench.compiler import nvrtc_available
from fa_bench.errors import FaBenchError
from fa_bench.model import gpus
from fa_bench.units import format_bytes, format_ratio, parse_int

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fa_bench"
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs", "kernels", "results")
    for path in (ROOT / folder).glob("*.md")
)


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def examples(document: str) -> Iterator[tuple[str, str]]:
    """(command, output) of every line with a prompt in the document's console blocks; the output may be empty."""
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", text_of(document)):
        first, *parts = re.split(r"(?m)^\$ ", block)
        assert first == "", f"{document}: a console block begins with {first!r}"
        for part in parts:
            command, _, output = part.partition("\n")
            yield command, output


EXAMPLES = [(document, *example) for document in DOCUMENTS for example in examples(document)]
COMMANDS = [(d, command) for d, command, output in EXAMPLES if not output and "<" not in command]
OUTPUTS = [(d, command, output) for d, command, output in EXAMPLES if output]


def test_there_are_examples() -> None:
    assert DOCUMENTS[:3] == ["CHANGELOG.md", "CONTRIBUTING.md", "README.md"]
    assert {"README.md", "CONTRIBUTING.md", "docs/cli.md"} <= {document for document, _ in COMMANDS}
    assert "README.md" in {document for document, *_ in OUTPUTS}


@pytest.mark.parametrize(("document", "command", "output"), OUTPUTS)
def test_an_example_prints_what_the_document_says(
    document: str, command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--no-measure" not in command and (missing := nvrtc_available()):
        pytest.skip(missing)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    program, *args = shlex.split(command)
    assert program == "fa-bench"
    assert run(args) == 0
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == output.rstrip().splitlines()


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_a_command_is_understood(document: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *args = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{args[0]}:", text_of("Makefile"), flags=re.MULTILINE)
        return
    assert program == "fa-bench"
    name, *rest = args
    group: Any = get_command(app)
    group.commands[name].make_context(name, rest)
    # The axes are read later, by the command. Without running a kernel:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    if name == "sweep":
        # A device that is not here is no mistake of the document's.
        assert run([*_without(_without(args, "--device", "--resume"), "--devices", "--resume"), "--dry-run"]) == 0
    elif name == "io-model":
        assert run([*_without(args, "--counters", "--interval"), "--no-measure"]) == 0
    elif name == "gpus":
        assert run(args) == 0


def _without(args: list[str], option: str, flag: str) -> list[str]:
    """``args`` without an option and its value, and without a flag."""
    if option in args:
        at = args.index(option)
        args = args[:at] + args[at + 2 :]
    return [arg for arg in args if arg != flag]


def test_the_table_of_the_readme_is_what_the_kernels_move() -> None:
    """The table is of emulated bytes; the emulator's equality with the model is tested elsewhere, per shape."""
    size, ratio = r"([\d.]+ \w+)", r"\((.*?)\)"
    row = rf"(?m)^(\d+k?) +{size} +{size} {ratio} +{size} {ratio}$"
    rows = re.findall(row, text_of("README.md"))
    assert [seq for seq, *_ in rows] == ["512", "1k", "2k", "4k", "8k", "16k"]
    for seq, *cells in rows:
        totals = [_total_bytes(impl, parse_int(seq)) for impl in ("standard", "flash1", "flash2")]
        standard, flash1, flash2 = totals
        assert cells == [
            format_bytes(standard),
            *(format_bytes(flash1), format_ratio(standard / flash1)),
            *(format_bytes(flash2), format_ratio(standard / flash2)),
        ]


def _total_bytes(impl: str, seq: int) -> int:
    algorithm = algorithms.get(impl)
    case = Case(impl, AttentionShape(1, 1, 1, seq, seq, 64))
    tile = algorithm.auto_tile(case, gpus.get("a100-sxm-80"))
    return sum(moved.bytes for moved in algorithm.traffic(Case(impl, case.shape, tile=algorithm.resolve(case, tile))))


# --- Python ----------------------------------------------------------------------------------------------------------

PROMPT = ">>> "
WITH_EXAMPLES = [document for document in DOCUMENTS if PROMPT in text_of(document)]
#: Those of profiling/ need a compiler, and are run in its own tests.
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if PROMPT in path.read_text(encoding="utf-8") and "profiling" not in path.parts
]


@pytest.mark.parametrize("document", WITH_EXAMPLES)
def test_the_examples_of_a_document_run(document: str) -> None:
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", text_of(document))
    parsed = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, document, document, 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(parsed, out=report.append)
    assert not result.failed, "".join(report)
    assert result.attempted == text_of(document).count(PROMPT)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert not result.failed


def test_documents_and_modules_with_examples_are_found() -> None:
    assert {"docs/architecture.md", "docs/model.md", "docs/prediction.md"} <= set(WITH_EXAMPLES)
    assert {"fa_bench.units", "fa_bench.model.bounds.forward", "fa_bench.prediction.schedule"} <= set(MODULES)


# --- links and names -------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Fragments that GitHub makes of a document's headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, fragment = target.partition("#")
        path = ((ROOT / document).parent / name).resolve() if name else ROOT / document
        assert path.exists(), f"{document} links to {target}"
        assert not fragment or fragment in anchors(path), f"{document} links to {target}"


#: Where a path in backticks may begin: at the root, in the package, in its emulator.
BASES = (ROOT, PACKAGE, PACKAGE / "ptx")
ONLY_IN_THE_WHEEL = {"fa_bench/_kernels", "fa_bench/_configs"}


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "results/README.md"])
def test_files_that_are_named_exist(document: str) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", text_of(document))
    named = {
        name
        for name in re.findall(r"`([\w.*/-]+)`", text)
        if "/" in name.strip("/") or name.endswith(("/", ".py", ".ll", ".cu", ".cuh", ".toml", ".md"))
    }
    # What `make` installs is in no checkout.
    named = {name for name in named - ONLY_IN_THE_WHEEL if not name.startswith(".venv/")}
    missing = {name for name in named if not any(_exists(base, name) for base in BASES)}
    assert missing == set()


def _exists(base: Path, name: str) -> bool:
    return any(base.glob(name)) if "*" in name else (base / name).exists()


def test_extras_that_are_named_exist() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    texts = [text_of(document) for document in DOCUMENTS]
    texts += [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"(?:'\.|fa-bench)\[(\w+)\]", text)}
    assert {"cuda12", "cuda13", "dev"} <= named <= set(extras)


def test_the_recipes_name_files() -> None:
    recipes = text_of("CONTRIBUTING.md").partition("## Recipes")[2]
    for heading, must_name in {
        "A kernel": ("kernels/", "fa_bench/algorithms/__init__.py", "fa_bench/algorithms/base.py"),
        "A GPU": ("fa_bench/model/gpus/",),
        "An instruction": ("fa_bench/ptx/isa.py", "fa_bench/ptx/interpreter/", "fa_bench/ptx/lower_arith.py"),
    }.items():
        recipe = recipes.partition(f"### {heading}\n")[2].partition("\n### ")[0]
        for name in must_name:
            assert f"`{name}`" in recipe
            assert (ROOT / name).exists()


def test_the_architecture_names_every_file_of_the_emulator_and_every_room() -> None:
    text = text_of("docs/architecture.md")
    emulator = [path.name for pattern in ("*.py", "ir/*.ll") for path in (PACKAGE / "ptx").glob(pattern)]
    rooms = [f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")]
    top = [path.name for path in PACKAGE.glob("*.py")]
    assert len(emulator) > 15
    assert [name for name in (*emulator, *rooms, *top) if name != "__init__.py" and name not in text] == []


def test_the_exit_codes_of_the_readme_are_those_of_the_errors() -> None:
    codes = {int(code) for code in re.findall(r"(?m)^\| (\d+) \| ", text_of("README.md"))}
    errors = {error.exit_code for error in (FaBenchError, *FaBenchError.__subclasses__())}
    assert codes == {0, 130} | errors
