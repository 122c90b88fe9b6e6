"""The looks that ``fa-bench doctor`` takes at a machine. Each is caught: a probe ends in a finding, always."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Final, Literal

from fa_bench import __version__

if TYPE_CHECKING:
    from fa_bench.measure.nvml import Nvml

State = Literal["ok", "missing", "broken"]

#: What the NVRTC probe compiles for: the oldest architecture with the tensor-core path.
_PROBE_SM: Final = "sm_80"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``advice`` is empty where there is nothing to do."""

    subject: str
    state: State
    detail: str
    advice: str = ""


def examine() -> list[Finding]:
    """Take every look, in the order of the report."""
    findings = []
    for subject, probe in PROBES:
        try:
            findings.append(probe())
        except Exception as error:
            reason = " ".join(str(error).split())
            findings.append(Finding(subject, "broken", f"{type(error).__name__}: {reason}", "Reinstall or report it."))
    return findings


def python() -> Finding:
    """Interpreter, system and the version of fa-bench."""
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}; fa-bench {__version__}"
    return Finding("Python", "ok", detail)


def machine() -> Finding:
    """Cores and memory that a sweep may use."""
    from fa_bench.measure.environment import cpu_name, usable_cpus
    from fa_bench.measure.memory import available_bytes
    from fa_bench.units import format_bytes

    free = available_bytes()
    memory = "free memory not known" if free is None else f"{format_bytes(free)} free"
    return Finding("CPU", "ok", f"{cpu_name() or 'not known'}, {usable_cpus()} cores, {memory}")


def emulator() -> Finding:
    """llvmlite, which turns PTX into machine code."""
    if _version("llvmlite") is None:
        return Finding("emulator", "missing", "llvmlite is not installed", "pip install llvmlite")
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    return Finding("emulator", "ok", f"llvmlite {_version('llvmlite')} for {llvm.get_host_cpu_name()}")


def nvrtc() -> Finding:
    """The CUDA compiler and its headers, by compiling a kernel of ours."""
    from fa_bench import algorithms, compiler
    from fa_bench import nvrtc as library
    from fa_bench.cases import AttentionShape, Case
    from fa_bench.errors import DeviceUnavailable
    from fa_bench.model import gpus

    try:
        library.load()
    except DeviceUnavailable as error:
        return Finding("NVRTC", "missing", error.message, error.hint or "Only shipped PTX runs here.")
    flash2 = algorithms.get("flash2")
    case = Case("flash2", AttentionShape(1, 1, 1, 64, 64, 64))
    gpu = next(gpu for gpu in gpus.all_gpus() if gpu.sm == _PROBE_SM)
    tiled = Case("flash2", case.shape, tile=flash2.auto_tile(case, gpu))
    kernel = compiler.compile_kernel(flash2.program(tiled).launches[0].kernel, _PROBE_SM)
    return Finding("NVRTC", "ok", f"{kernel.nvrtc_version}, compiles {kernel.entry} for {_PROBE_SM}")


def shipped() -> Finding:
    """Kernels that come compiled, for machines without NVRTC."""
    from fa_bench import shipped as archive

    index = archive.index()
    if index is None:
        return Finding("shipped PTX", "missing", "none in this installation", "Only needed without NVRTC.")
    detail = f"{len(index.contents)} kernels for {', '.join(index.architectures)}, by NVRTC {index.nvrtc_version}"
    return Finding("shipped PTX", "ok", detail)


def driver() -> Finding:
    """The NVIDIA driver, as NVML sees it, and whether there is a compiler whose kernels it loads."""
    from fa_bench import nvrtc as library
    from fa_bench.measure.nvml import Nvml

    with closing(Nvml()) as nvml:
        absent = nvml.unavailable()
        if absent is not None:
            # A driver that is here and does not work stops GPU programs too, whoever wrote them.
            broken = nvml.broken()
            advice = "Mend or update the driver." if broken else "Only needed to time on a GPU."
            return Finding("driver", "broken" if broken else "missing", absent, advice)
        detail = f"{nvml.driver_version() or 'version not known'}, CUDA {_cuda_major(nvml) or 'not known'}"
        major = _cuda_major(nvml)
    # A cubin loads on a driver of its own CUDA major or a later one.
    majors = [known for known in library.MAJORS if major is None or known <= major]
    if library.unavailable() is None and all(library.unavailable(known) is not None for known in majors):
        return Finding("driver", "ok", detail, f"NVRTC is newer than the driver: {_install_cuda(major)}")
    return Finding("driver", "ok", detail)


def cupy() -> Finding:
    """CuPy, which launches the kernels on a GPU."""
    from fa_bench.measure.nvml import Nvml

    for package in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        if _version(package) is not None:
            return Finding("CuPy", "ok", f"{package} {_version(package)}")
    with closing(Nvml()) as nvml:
        advice = "Only needed to time on a GPU." if nvml.unavailable() else _install_cuda(_cuda_major(nvml))
    return Finding("CuPy", "missing", "not installed", advice)


def gpu() -> Finding:
    """The GPUs that CuPy can use, and what the registry knows of them."""
    from fa_bench import backends
    from fa_bench.model import gpus

    absent = backends.why_not("cuda")
    if absent is not None:
        return Finding("GPU", "missing", absent, "Kernels run on the CPU instead.")
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    names = [cupy.cuda.runtime.getDeviceProperties(device)["name"].decode() for device in range(count)]
    unknown = [name for name in names if gpus.find(name) is None]
    advice = f"Predictions don't know {unknown[0]!r}: add a TOML file, or give --gpu." if unknown else ""
    return Finding("GPU", "ok", ", ".join(names), advice)


def board() -> Finding:
    """What NVML says of the GPUs that CuPy uses: which of its figures a row will have."""
    from fa_bench import backends
    from fa_bench.measure.nvml import Nvml

    absent = backends.why_not("cuda")
    if absent is not None:
        return Finding("NVML", "missing", "no GPU to ask", "Only needed for clocks, power and energy.")
    import cupy

    from fa_bench.backends.cuda_device import CudaDevice

    with closing(Nvml()) as nvml:
        found, advice = [], []
        for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
            cuda_device = CudaDevice(cupy, ordinal)
            device = nvml.device(cuda_device.uuid, cuda_device.pci_bus_id)
            if device is None:
                found.append(f"{cuda_device.name}: {nvml.unavailable() or 'not found by UUID or PCI bus id'}")
                continue
            device.read()
            device.energy_mj()
            missing = "; ".join(f"{figure}: {why}" for figure, why in device.missing().items())
            found.append(f"{cuda_device.name}: memory by {device.memory_source or 'none'}")
            if missing:
                advice.append(f"Empty columns: {missing}.")
    return Finding("NVML", "ok", ", ".join(found), " ".join(dict.fromkeys(advice)))


def peaks() -> Finding:
    """Peaks that were measured, and whether they can be."""
    from fa_bench.cli.peaks import summary
    from fa_bench.model import gpus
    from fa_bench.model.peaks import inconsistencies
    from fa_bench.stored_peaks import stored

    known = stored()
    if not known:
        return Finding("peaks", "missing", "none measured", "Optional, on a GPU: fa-bench doctor --peaks.")
    doubts = [
        f"Inconsistent: {sentence}"
        for found in known
        if (entry := gpus.find(found.device)) is not None
        for sentence in inconsistencies(found, entry)
    ]
    return Finding("peaks", "ok", "; ".join(map(summary, known)), " ".join(doubts))


def ncu() -> Finding:
    """Nsight Compute, which reads hardware counters, and whether the driver lets it."""
    from fa_bench.measure.ncu import ADVICE, probe

    found = probe()
    if found.path is None:
        return Finding("ncu", "missing", "not found", "Only needed to measure bytes on a GPU.")
    return Finding("ncu", "ok", found.sentence, ADVICE["no_permission"] if found.refused else "")


def torch() -> Finding:
    """PyTorch, which brings baselines."""
    version = _version("torch")
    if version is None:
        return Finding("torch", "missing", "not installed", "For PyTorch's baselines: pip install 'fa-bench[torch]'")
    return Finding("torch", "ok", version)


def libraries() -> Finding:
    """The other libraries that bring baselines."""
    from fa_bench.backends import baselines

    others = [library for library in baselines.libraries() if library is not baselines.TORCH]
    here = [library.version() for library in others if library.is_here()]
    if not here:
        return Finding("libraries", "missing", "none of those with baselines", "fa-bench kernels lists them.")
    return Finding("libraries", "ok", ", ".join(here))


def terminal() -> Finding:
    """Width and encoding of the terminal."""
    size = shutil.get_terminal_size()
    encoding = sys.stdout.encoding or "not known"
    advice = "" if size.columns >= 80 else "Tables are made for 80 columns."
    return Finding("terminal", "ok", f"{size.columns} columns, {encoding}", advice)


def cache() -> Finding:
    """The folders of compiled kernels, and whether anything can be kept there."""
    from fa_bench.filecache import CACHES, cache_dir
    from fa_bench.units import format_bytes

    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir()):
            pass
    except OSError as error:
        detail = f"{cache_dir()} can't be written: {error.strerror}"
        return Finding("cache", "missing", detail, "Kernels are compiled anew each time; set FA_BENCH_CACHE.")
    states = [cache.info() for cache in CACHES]
    entries, nbytes = sum(state.entries for state in states), sum(state.nbytes for state in states)
    return Finding("cache", "ok", f"{cache_dir()}: {entries} entries, {format_bytes(nbytes)}")


def _cuda_major(nvml: Nvml) -> int | None:
    """CUDA major that the driver supports."""
    version = nvml.ask("nvmlSystemGetCudaDriverVersion_v2")
    return None if version is None else int(version) // 1000


def _install_cuda(major: int | None) -> str:
    return f"pip install 'fa-bench[cuda{12 if major == 12 else 13}]'"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


PROBES: Final[tuple[tuple[str, Callable[[], Finding]], ...]] = (
    ("Python", python),
    ("CPU", machine),
    ("emulator", emulator),
    ("NVRTC", nvrtc),
    ("shipped PTX", shipped),
    ("driver", driver),
    ("CuPy", cupy),
    ("GPU", gpu),
    ("NVML", board),
    ("peaks", peaks),
    ("ncu", ncu),
    ("torch", torch),
    ("libraries", libraries),
    ("terminal", terminal),
    ("cache", cache),
)
