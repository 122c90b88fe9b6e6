"""What holds for the repository as a whole: who may import whom, who prints, what travels in the wheel."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import fa_bench

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fa_bench"

Graph = dict[str, set[str]]


# --- imports ---------------------------------------------------------------------------------------------------------


def import_graph(package: Path) -> Graph:
    """Every module of a package -> what it imports of it, also inside functions and for type checkers only."""
    paths = {module_name(path, package.parent): path for path in package.rglob("*.py")}
    return {name: set(imported_modules(path, name, set(paths))) for name, path in paths.items()}


def module_name(path: Path, base: Path) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, name: str, modules: set[str]) -> Iterator[str]:
    """Those of ``modules`` that a file imports; ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from [module for module in (f"{base}.{alias.name}", base) if module in modules][:1]


def chains(graph: Graph, start: str) -> dict[str, str]:
    """Every module that importing ``start`` can lead to -> the chain of imports that leads there."""
    found = {start: start}
    pending = [start]
    while pending:
        current = pending.pop()
        for target in graph[current]:
            # A module's packages are imported before it.
            for module in itertools.accumulate(target.split("."), lambda a, b: f"{a}.{b}"):
                if module not in found:
                    found[module] = f"{found[current]} -> {module}"
                    pending.append(module)
    return found


def inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in rooms)


def ways(graph: Graph, rooms: tuple[str, ...], forbidden: tuple[str, ...]) -> list[str]:
    """Every chain of imports from a module of ``rooms`` to one of ``forbidden``."""
    return sorted(
        chain
        for start in graph
        if inside(start, rooms)
        for target, chain in chains(graph, start).items()
        if inside(target, forbidden)
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    found = import_graph(PACKAGE)
    assert {"fa_bench.cases", "fa_bench.ptx.machine", "fa_bench.cli.app"} <= set(found)
    # The package hands this on to who asks for it; importing the package alone imports nothing (test_lightness.py).
    assert found["fa_bench"] == {"fa_bench.profiling.api"}
    found["fa_bench"] = set()
    return found


FORMULAS = ("fa_bench.algorithms", "fa_bench.model")
EMULATOR = ("fa_bench.ptx",)
RUNNING = ("fa_bench.backends", "fa_bench.compiler", "fa_bench.nvrtc", "fa_bench.measure")


def test_the_count_cannot_be_made_from_the_formula(graph: Graph) -> None:
    assert ways(graph, EMULATOR, FORMULAS) == []
    assert ways(graph, FORMULAS, EMULATOR) == []


def test_formulas_and_cases_know_nothing_that_runs_a_kernel(graph: Graph) -> None:
    assert ways(graph, (*FORMULAS, "fa_bench.cases", "fa_bench.units"), RUNNING) == []


def test_the_emulator_knows_only_itself_its_errors_and_its_cache(graph: Graph) -> None:
    outside = ("fa_bench.errors", "fa_bench.filecache")
    reached = {module for start in graph if inside(start, EMULATOR) for module in chains(graph, start)}
    assert {module for module in reached if not inside(module, EMULATOR)} == {"fa_bench", *outside}


@pytest.mark.parametrize(
    ("room", "may_import"),
    [
        # Records, what the papers say of their shapes, and for --dry-run the plan. Nothing that runs or counts.
        (
            "fa_bench.report",
            (
                *("fa_bench.records", "fa_bench.sweep.plan", "fa_bench.cases", "fa_bench.units"),
                *("fa_bench.grid.block", "fa_bench.sizes"),
                *("fa_bench.model.bounds", "fa_bench.model.gpus"),
                *("fa_bench.profiling.result", "fa_bench.profiling.diff"),
                *("fa_bench.validation.result", "fa_bench.mutation.result"),
                *("fa_bench.claims.claim", "fa_bench.claims.result"),
                *("fa_bench.comparison.compare", "fa_bench.comparison.figures", "fa_bench.comparison.rules"),
                *("fa_bench.tracing.result", "fa_bench.algorithms.base"),
                *("fa_bench.comparison.runs", "fa_bench.sweep.manifest", "fa_bench.model.gpu"),
                *("fa_bench.tuning.result", "fa_bench.tuning.known", "fa_bench.tuning.rank"),
                *("fa_bench.tuning.rules", "fa_bench.tuning.predict", "fa_bench.tuning.tiles"),
                *("fa_bench.tuning.weighed", "fa_bench.prediction.result"),
            ),
        ),
        # Plans and predictions as a sweep has them, many at a time. No backend, no tables.
        (
            "fa_bench.grid",
            (
                *FORMULAS,
                *("fa_bench.sweep.plan", "fa_bench.sweep.build", "fa_bench.sweep.predict", "fa_bench.cases"),
            ),
        ),
        # Of a backend its protocol and what it gives back; never one of them by name.
        (
            "fa_bench.sweep",
            (
                *FORMULAS,
                *("fa_bench.backends.base", "fa_bench.cases", "fa_bench.errors", "fa_bench.records", "fa_bench.units"),
                *("fa_bench.lanes", "fa_bench.measure.environment", "fa_bench.measure.statistics"),
                # Which version of a library is installed.
                "fa_bench.backends.baselines",
            ),
        ),
        # What a sweep left on disk, and order statistics. Nothing that runs, counts or shows.
        (
            "fa_bench.comparison",
            (
                *("fa_bench.records", "fa_bench.sweep.journal", "fa_bench.measure.statistics"),
                *("fa_bench.limits", "fa_bench.errors", "fa_bench.units"),
            ),
        ),
        # How a program for any device is described.
        ("fa_bench.measure", ("fa_bench.algorithms.base", "fa_bench.processes")),
        # What a case is and how papers count its FLOPs. Nothing that predicts.
        (
            "fa_bench.published",
            (
                *("fa_bench.cases", "fa_bench.datafiles", "fa_bench.errors"),
                *("fa_bench.model.flops", "fa_bench.model.gpus"),
            ),
        ),
        # Formulas and constants. Not what they were fitted to, which scripts/fit_prediction.py hands over as constants.
        (
            "fa_bench.prediction",
            (*FORMULAS, "fa_bench.cases", "fa_bench.datafiles", "fa_bench.errors", "fa_bench.sizes", "fa_bench.units"),
        ),
        # A backend is handed to it; it knows cases, formulas and the GPUs.
        (
            "fa_bench.validation",
            (
                *FORMULAS,
                *("fa_bench.backends.base", "fa_bench.cases", "fa_bench.errors", "fa_bench.units"),
                *("fa_bench.datafiles", "fa_bench.published"),
            ),
        ),
        # The emulator and the formulas meet here once more; nothing of sweeps and records.
        (
            "fa_bench.tracing",
            (
                *(
                    "fa_bench.ptx",
                    "fa_bench.algorithms",
                    "fa_bench.model.gpu",
                    "fa_bench.cases",
                    "fa_bench.reference",
                    "fa_bench.storage",
                ),
                *("fa_bench.compiler", "fa_bench.errors", "fa_bench.backends.base", "fa_bench.backends.programs"),
            ),
        ),
        # It runs programs itself, with one kernel changed; nothing of sweeps, records and tables.
        (
            "fa_bench.mutation",
            (
                *(
                    "fa_bench.ptx",
                    "fa_bench.algorithms",
                    "fa_bench.model.gpu",
                    "fa_bench.cases",
                    "fa_bench.reference",
                    "fa_bench.storage",
                ),
                *("fa_bench.compiler", "fa_bench.errors", "fa_bench.units", "fa_bench.backends.base"),
                *("fa_bench.backends.programs", "fa_bench.backends.checking"),
            ),
        ),
        # Formulas, the emulator and what others published, side by side; no sweeps, records, tables.
        (
            "fa_bench.claims",
            (
                *(*FORMULAS, "fa_bench.ptx", "fa_bench.cases", "fa_bench.reference", "fa_bench.storage"),
                *("fa_bench.compiler", "fa_bench.errors", "fa_bench.units", "fa_bench.published.points"),
                *("fa_bench.prediction", "fa_bench.backends.programs", "fa_bench.backends.numpy_impls"),
                *("fa_bench.backends.torch_flash_blocked", "fa_bench.tuning.rules", "fa_bench.tuning.tiles"),
            ),
        ),
        # A backend is handed to it, or opened in a process; rows of a GPU come from outside. No sweeps, no tables.
        (
            "fa_bench.tuning",
            (
                *FORMULAS,
                *("fa_bench.backends", "fa_bench.cases", "fa_bench.errors", "fa_bench.lanes", "fa_bench.records"),
            ),
        ),
        # What a kernel and the emulator are; nothing of cases, algorithms, sweeps or tables.
        (
            "fa_bench.profiling",
            (
                *(
                    "fa_bench.ptx",
                    "fa_bench.compiler",
                    "fa_bench.nvrtc",
                    "fa_bench.model",
                    "fa_bench.reference",
                    "fa_bench.storage",
                ),
                *("fa_bench.errors", "fa_bench.limits", "fa_bench.units", "fa_bench.measure.environment"),
            ),
        ),
    ],
)
def test_a_room_imports_its_neighbours_only(graph: Graph, room: str, may_import: tuple[str, ...]) -> None:
    assert {
        f"{module} imports {target}"
        for module in graph
        if inside(module, (room,))
        for target in graph[module]
        if not inside(target, (room, *may_import)) and target != "fa_bench"
    } == set()


def test_the_architecture_says_what_each_room_must_not_know() -> None:
    (rules,) = test_a_room_imports_its_neighbours_only.pytestmark  # type: ignore[attr-defined]  # pytest's
    rooms = [room.removeprefix("fa_bench.") for room, _ in rules.args[1]]
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## What each room must not know\n")[2].partition("\n## ")[0]
    assert len(rooms) > 10
    assert [room for room in rooms if f"| `{room}/` |" not in table] == []


def test_nothing_imports_the_command_line(graph: Graph) -> None:
    others = tuple(module for module in graph if not inside(module, ("fa_bench.cli",)) and module != "fa_bench")
    assert ways(graph, others, ("fa_bench.cli",)) == []


def test_a_forbidden_import_is_found_wherever_it_hides(tmp_path: Path) -> None:
    files = {
        "house/__init__.py": "",
        "house/count/__init__.py": "",
        "house/count/direct.py": "if TYPE_CHECKING:\n    from house.formula import x\n",
        "house/count/far.py": "def f():\n    from ..middle import y\n",
        "house/count/clean.py": "import house.other, json\n",
        "house/middle.py": "import house.formula.deep as d\n",
        "house/other.py": "",
        "house/formula/__init__.py": "",
        "house/formula/deep.py": "",
        "house/formula_like.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = import_graph(tmp_path / "house")
    assert ways(graph, ("house.count",), ("house.formula",)) == [
        "house.count.direct -> house.formula",
        "house.count.far -> house.middle -> house.formula",
        "house.count.far -> house.middle -> house.formula.deep",
    ]
    assert ways(graph, ("house.formula",), ("house.count",)) == []


# --- printing --------------------------------------------------------------------------------------------------------


def prints(tree: ast.AST) -> bool:
    """Whether code calls ``print``, or uses ``sys.stdout`` or ``sys.stderr`` for anything but their properties."""
    return any(
        (isinstance(node, ast.Name) and node.id == "print")
        or (
            isinstance(node, ast.Attribute)
            and node.attr in ("write", "writelines", "buffer")
            and ast.unparse(node.value) in ("sys.stdout", "sys.stderr")
        )
        for node in ast.walk(tree)
    )


def test_only_one_module_prints() -> None:
    assert prints(ast.parse("def f(x):\n    import sys\n    sys.stdout.write(x)"))
    printing = [path for path in PACKAGE.rglob("*.py") if prints(ast.parse(path.read_text(encoding="utf-8")))]
    assert printing == [PACKAGE / "cli" / "output.py"]


# --- the wheel -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel that this checkout makes."""
    folder = tmp_path_factory.mktemp("dist")
    program = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("*.whl")
    assert path.name == f"fa_bench-{fa_bench.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize(
    ("folder", "pattern", "inside_wheel", "at_least"),
    [
        ("kernels", "*", "fa_bench/_kernels", 15),
        ("configs", "*.toml", "fa_bench/_configs", 5),
        ("fa_bench/model/gpus", "*.toml", "fa_bench/model/gpus", 15),
        ("fa_bench/ptx/ir", "*.ll", "fa_bench/ptx/ir", 4),
        ("fa_bench/data", "*.csv", "fa_bench/data", 1),
        ("fa_bench/claims", "*.toml", "fa_bench/claims", 1),
        ("fa_bench/_shipped", "*.zip", "fa_bench/_shipped", 1),
        ("fa_bench/tracing", "*.*", "fa_bench/tracing", 8),
        ("fa_bench/report/web", "*.*", "fa_bench/report/web", 7),
        ("fa_bench/report/page/web", "*.*", "fa_bench/report/page/web", 4),
        ("fa_bench", "*.py", "fa_bench", 80),
    ],
)
def test_every_file_travels_in_the_wheel(
    wheel: set[str], folder: str, pattern: str, inside_wheel: str, at_least: int
) -> None:
    here = [path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob(pattern) if path.is_file()]
    assert len(here) >= at_least
    assert {f"{inside_wheel}/{name}" for name in here} <= wheel


def test_nothing_else_travels_in_the_wheel(wheel: set[str]) -> None:
    info = f"fa_bench-{fa_bench.__version__}.dist-info"
    assert {name.split("/")[0] for name in wheel} == {"fa_bench", info}
    assert f"{info}/licenses/LICENSE" in wheel
    suffixes = {Path(name).suffix for name in wheel if name.startswith("fa_bench/")}
    assert suffixes <= {".py", ".cu", ".cuh", ".toml", ".ll", ".md", ".zip", ".csv", ".html", ".css", ".js"}


# --- dependencies ----------------------------------------------------------------------------------------------------


def test_the_oldest_typer_that_is_let_in_prints_help_with_any_click() -> None:
    """click 8.2 changed a method that typer before 0.16 calls: every ``--help`` ended in a TypeError."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (floor,) = (found for text in dependencies if (found := re.fullmatch(r"typer>=(\d+)\.(\d+)", text)))
    assert (int(floor[1]), int(floor[2])) >= (0, 16)


# --- the Makefile ----------------------------------------------------------------------------------------------------

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("driver", "expected"),
    [(13010, "13"), (14000, "13"), (12040, "12"), (11080, "none"), (None, "none")],
)
def test_the_cuda_extra_follows_the_driver(
    driver: int | None, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """cuDriverGetVersion answers 1000 x major + 10 x minor."""

    def load(name: str) -> SimpleNamespace:
        if driver is None or name != "libcuda.so.1":
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(cuDriverGetVersion=lambda pointer: setattr(pointer, "value", driver))

    (program,) = re.findall(r"(?ms)^define CUDA_MAJOR_OF_THE_DRIVER\n(.*?)^endef$", MAKEFILE)
    fake = SimpleNamespace(CDLL=load, c_int=lambda: SimpleNamespace(value=0), byref=lambda value: value)
    monkeypatch.setitem(sys.modules, "ctypes", fake)
    exec(compile(program, "Makefile", "exec"), {})
    assert capsys.readouterr().out == f"{expected}\n"


def test_every_target_is_in_the_help() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE)
    targets = set(phony.split()) - {"help"}
    assert targets == set(re.findall(r'^\t@echo "make (\w+)', MAKEFILE, flags=re.MULTILINE))
    assert all(re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE) for target in targets)
