"""What must not be imported, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("cupy", "torch", "pandas", "numba", "llvmlite", "cuda", "pynvml")
PROGRAM = """
import json, sys
from fa_bench.cli.app import run
sys.stdout = sys.stderr
code = run(sys.argv[1:])
sys.__stdout__.write(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def modules(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, timeout=60, check=True
    )
    code, loaded = json.loads(done.stdout)
    assert code == 0, done.stderr
    return set(loaded)


@pytest.mark.parametrize(
    "args", [("--help",), ("--version",), ("sweep", "--help"), ("kernels", "--help"), ("profile", "--help")]
)
def test_help_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    assert not modules(*args) & {*HEAVY, "numpy"}


@pytest.mark.parametrize(
    "args",
    [
        ("io-model", "--no-measure", "--seq", "512"),
        ("io-model", "--explain", "--seq", "512"),
        ("predict", "--seq", "512", "--impl", "all"),
        ("gpus",),
        ("cache",),
    ],
)
def test_what_only_predicts_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    assert not modules(*args) & set(HEAVY)


def test_the_package_alone_imports_nothing_heavy() -> None:
    program = "import json, sys, fa_bench; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not set(json.loads(done.stdout)) & {*HEAVY, "numpy", "typer", "rich"}
