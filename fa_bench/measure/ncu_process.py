"""Nsight Compute as a process: where it is, which version, and running it so that nothing of it outlives its time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fa_bench.processes import end_group

#: Where toolkits and the stand-alone package put it when it is not on PATH.
_PLACES: Final = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Output:
    """What a command wrote, to both streams, and its exit code; None if its time was over."""

    text: str
    returncode: int | None


def find() -> str | None:
    """Path of ncu: on PATH, in the toolkit that CUDA_HOME or CUDA_PATH names, or where its packages put it."""
    if found := shutil.which("ncu"):
        return found
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        root = os.environ.get(variable)
        if root and (found := shutil.which("ncu", path=str(Path(root) / "bin"))):
            return found
    for place in _PLACES:
        matches = sorted(Path("/").glob(place.lstrip("/")))
        if matches and os.access(matches[-1], os.X_OK):
            return str(matches[-1])
    return None


def version(executable: str) -> str | None:
    """Its version (``2024.3.2.0``), None if it does not say."""
    match = re.search(r"Version (\d[\d.]*\d)", execute([executable, "--version"], timeout_s=30.0).text)
    return match and match[1]


def execute(
    command: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] = os.environ,
    started: Callable[[Process], None] = lambda process: None,
) -> Output:
    """Run a command in a process group of its own, which is killed at the end, at the time-out and on Ctrl-C.

    ``started`` is told the process, so that another thread can end it with `end_group`. Output goes through a file: a
    pipe would stay open as long as anything that the command left behind. The locale is C, so that numbers have one
    form wherever ncu heeds it.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "LC_ALL": "C", "LANG": "C"},
                start_new_session=True,
            )
        except OSError as error:
            return Output(f"==ERROR== {error.strerror}: {command[0]}", 127)
        returncode: int | None = None
        started(process)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                returncode = process.wait(timeout_s)
        finally:
            end_group(process)
        output.seek(0)
        return Output(output.read().decode(errors="replace"), returncode)
