"""Machines without a usable GPU, in processes of their own: no CuPy, CuPy without a driver, a driver without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: What ``import cupy`` does there, and what is said to who asks for the GPU.
MACHINES = {
    "no CuPy": (
        'raise ModuleNotFoundError("No module named \'cupy\'", name="cupy")',
        "Error: CuPy is not installed (extra cuda13 or cuda12).",
    ),
    "no driver": (
        'raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")',
        "Error: CuPy is installed but cannot be imported (libcuda.so.1: cannot open shared object file: "
        "No such file or directory).",
    ),
    "no GPU": (
        "class CUDARuntimeError(RuntimeError): ...\n"
        "class cuda:\n"
        "    class runtime:\n"
        "        CUDARuntimeError = CUDARuntimeError\n"
        "        getDeviceCount = staticmethod(lambda: 0)\n",
        "Error: The NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it).",
    ),
}
WORKS = (
    "--help",
    "io-model --no-measure --seq 512",
    "sweep --seq 512 --dry-run",
    "sweep --seq 16 --impl numpy-flash --out run",
    "compare run run",
    "report run",
    "gpus",
)
PROGRAM = """
import json, sys
from fa_bench.cli.app import run
codes = [run(line.split()) for line in json.loads(sys.argv[1])]
sys.stdout.write("\\n" + json.dumps(codes))
"""


def run_there(machine: str, tmp_path: Path, *lines: str) -> tuple[list[int], str]:
    """Exit codes of commands on such a machine, and what was said on stderr."""
    package = tmp_path / "packages" / "cupy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MACHINES[machine][0])
    paths = (str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    command = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("\n")[2]), done.stderr


@pytest.mark.parametrize("machine", MACHINES)
def test_what_needs_no_gpu_works_without_one(machine: str, tmp_path: Path) -> None:
    codes, said = run_there(machine, tmp_path, *WORKS)
    assert dict(zip(WORKS, codes, strict=True)) == dict.fromkeys(WORKS, 0), said


@pytest.mark.parametrize("machine", MACHINES)
def test_asking_for_the_gpu_exits_with_3_and_says_which_of_the_three_it_is(machine: str, tmp_path: Path) -> None:
    codes, said = run_there(machine, tmp_path, "sweep --seq 16 --device cuda")
    assert codes == [3]
    first, *hint = said.splitlines()
    assert first == MACHINES[machine][1]
    assert len(hint) == 1 and "--device emulator" in hint[0]
    assert not (tmp_path / "results").exists()
