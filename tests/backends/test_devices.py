"""Which backends are usable, and the sentence when one is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fa_bench import backends
from fa_bench.backends import open_backend, resolve_device, why_not
from fa_bench.backends.base import BackendName
from fa_bench.errors import DeviceUnavailable, UsageError


class CUDARuntimeError(RuntimeError):
    pass


def cupy_with(devices: int | str) -> Any:
    """A CuPy that counts so many devices, or raises this message."""

    def count() -> int:
        if isinstance(devices, str):
            raise CUDARuntimeError(devices)
        return devices

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    return lambda name: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


def raising(error: BaseException) -> Any:
    def load(name: str) -> Any:
        raise error

    return load


WRAPPED = ImportError("\n====\nFailed to import CuPy.\n====")
WRAPPED.__cause__ = ImportError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (raising(ModuleNotFoundError("No module named 'cupy'")), "CuPy is not installed (extra cuda13 or cuda12)."),
        (
            raising(WRAPPED),
            "CuPy is installed but cannot be imported (libcuda.so.1: cannot open shared object file).",
        ),
        (
            cupy_with("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"),
            "No usable NVIDIA driver is on this machine (cudaErrorInsufficientDriver).",
        ),
        (
            cupy_with("cudaErrorNoDevice: no CUDA-capable device is detected"),
            "The NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it).",
        ),
        (cupy_with(0), "The NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)."),
        (cupy_with(2), None),
    ],
)
def test_cuda_says_which_of_the_three_is_missing(load: Any, reason: str | None) -> None:
    assert why_not("cuda", load) == reason


def only(*usable: BackendName) -> Any:
    return lambda name: None if name in usable else f"No {name} here."


@pytest.mark.parametrize(
    ("usable", "expected"),
    [
        (("cuda", "emulator", "host"), ("cuda",)),
        (("emulator", "host"), ("emulator", "host")),
        (("host",), ("host",)),
    ],
)
def test_auto_takes_the_gpu_or_what_there_is(usable: tuple[BackendName, ...], expected: tuple[str, ...]) -> None:
    assert resolve_device("auto", only(*usable)) == expected


def test_asking_for_what_is_not_here_exits_with_3() -> None:
    with pytest.raises(DeviceUnavailable, match="No cuda here") as info:
        resolve_device("cuda", only("emulator", "host"))
    assert info.value.exit_code == 3 and "--device emulator" in info.value.hint
    assert resolve_device("host", only("host")) == ("host",)


def test_an_unknown_device_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'gpu'"):
        resolve_device("gpu")


def test_opening_what_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_not", only("host"))
    with pytest.raises(DeviceUnavailable):
        open_backend("cuda")
    assert open_backend("host").name == "host"


def test_opening_the_emulator_passes_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "why_not", only("emulator"))
    backend = open_backend("emulator", jobs=5, all_slices=True)
    assert backend.name == "emulator"
    assert (backend._jobs, backend._all_slices) == (5, True)  # type: ignore[attr-defined]


def imported_by(code: str) -> set[str]:
    """Heavy modules that a fresh interpreter holds after running ``code``."""
    heavy = ("numpy", "cupy", "torch", "pandas", "numba", "llvmlite", "pynvml")
    script = f"{code}\nimport sys\nprint(*(m for m in {heavy} if m in sys.modules))"
    root = Path(backends.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    return set(done.stdout.split())


def test_imports_stay_light() -> None:
    assert imported_by("import fa_bench.backends, fa_bench.backends.base, fa_bench.measure.environment") == set()
    plan = (
        "from fa_bench.backends.emulator import EmulatorBackend\n"
        "from fa_bench.backends.host import HostBackend\n"
        "from fa_bench.backends.cuda import CudaBackend\n"
        "from fa_bench.cases import *\n"
        "case = Case('flash2', AttentionShape(1, 1, 1, 64, 64, 64), tile=Tile(64, 64, 1, 4))\n"
        "assert EmulatorBackend().required_bytes(case) > 0 and HostBackend().implementations()"
    )
    assert imported_by(plan) == {"numpy"}
