"""What a run is made with: versions, machine, driver, source revision. Imports none of the packages it reports."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import fa_bench

#: Distributions whose version can change a figure; CuPy and NVRTC go by one name per CUDA major.
PACKAGES: Final = (
    "numpy",
    "llvmlite",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-ml-py",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "torch",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Machine and software of a run; None is not known. ``packages`` holds those of `PACKAGES` that are installed."""

    python: str
    platform: str
    cpu: str | None
    cpu_count: int | None
    driver: str | None
    git_commit: str | None
    packages: dict[str, str]


def environment(driver: str | None = None) -> Environment:
    """Look at this machine. ``driver`` is the NVIDIA driver's version if the caller found one."""
    return Environment(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        cpu=cpu_name(),
        cpu_count=usable_cpus(),
        driver=driver,
        git_commit=git_commit(Path(fa_bench.__file__).resolve().parents[1]),
        packages=package_versions(PACKAGES),
    )


def package_versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def usable_cpus() -> int:
    """Logical CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's model name as its vendor writes it, or its architecture; None if neither is known."""
    fallback = platform.processor() or platform.machine() or None
    if sys.platform == "darwin":
        return _output(["sysctl", "-n", "machdep.cpu.brand_string"]) or fallback
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return fallback
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or fallback


def git_commit(root: Path) -> str | None:
    """Commit of the checkout at ``root``, with ``-dirty`` where tracked files differ; None if it is none.

    An installed package lies in site-packages, which may itself lie inside somebody else's checkout: only a
    ``.git`` directly at ``root`` counts.
    """
    if not (root / ".git").exists():
        return None
    return _output(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def _output(command: Sequence[str]) -> str | None:
    """What a command prints, or None if it isn't there, fails, takes long or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
