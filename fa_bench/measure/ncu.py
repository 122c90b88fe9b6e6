"""NVIDIA Nsight Compute run on one program: the command line, the process, and what its output says.

The program marks its range with cudaProfilerStart and cudaProfilerStop (``--profile-from-start off``). An NVTX range
would need ``--nvtx``, its library in the process and a filter whose syntax depends on how the range was made; the two
calls are the driver's own. What is in the range is the program's business; here every kernel of it is a row.

Kernels are replayed once per pass, with caches flushed before each (``--cache-control all``) and clocks left alone
(``--clock-control none``), so bytes are those of a *cold* kernel: what the kernel before it left in L2 is gone. That is
kept with every figure (`MODE`). Time, power and memory of such a run mean nothing and are not read.

What can go wrong, and how it reads, from public reports: ERR_NVGPUCTRPERM (github.com/HazyResearch/ThunderKittens/
issues/73), "Cuda driver is not compatible with Nsight Compute" with exit code 11 of the program (meta-pytorch/
tritonbench/issues/632), a wrapper without its directory (NixOS/nixpkgs/issues/288059), "Unknown Error on device 0"
(SzymonOzog/FastSoftmax/issues/1), "Failed to find metric regex:^NAME", "Profiling is not supported on device 0", "No
kernels were profiled" with exit code 0, counters held by DCGM, and runs that never end.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fa_bench.measure.ncu_csv import kernel_rows
from fa_bench.measure.ncu_metrics import Metric, Quantity, metrics_of, quantities
from fa_bench.measure.ncu_process import Output, Process, execute, find, version
from fa_bench.processes import end_group

Status = Literal["ok", "absent", "no_permission", "incompatible", "unknown_metric", "no_kernels", "failed", "timeout"]

MODE: Final = "kernel replay, caches flushed, clocks free"
#: Of one program, with its start-up, compilation and all passes.
TIMEOUT_S: Final = 300.0
#: Characters of ncu's own words that a reason keeps.
_TAIL: Final = 300

_OPTIONS: Final = (
    *("--profile-from-start", "off", "--target-processes", "all"),
    *("--replay-mode", "kernel", "--cache-control", "all", "--clock-control", "none"),
    *("--csv", "--page", "raw", "--print-units", "base"),
)
#: Words of ncu -> what they mean, the cause before its consequences.
_SYMPTOMS: Final[tuple[tuple[str, Status], ...]] = (
    ("ERR_NVGPUCTRPERM", "no_permission"),
    ("does not have permission to access NVIDIA GPU Performance Counters", "no_permission"),
    ("not compatible with Nsight Compute", "incompatible"),
    ("Profiling is not supported on", "incompatible"),
    ("nsight-compute directory is not found", "absent"),
)
#: What no other program will change: not tried again.
FINAL: Final[frozenset[Status]] = frozenset({"absent", "no_permission", "incompatible", "unknown_metric"})

ADVICE: Final[Mapping[str, str]] = {
    "absent": "Install NVIDIA Nsight Compute (it comes with the CUDA toolkit) and have ncu on PATH.",
    "no_permission": "The host's driver keeps counters to administrators: load its module with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root (a container also needs --cap-add SYS_ADMIN). "
    "Another image does not help.",
    "incompatible": "Install the Nsight Compute that is of the driver's CUDA version and knows this GPU.",
    "unknown_metric": "This Nsight Compute does not know this GPU's metrics; a newer one may.",
    "no_kernels": "Try the case under ncu by hand; --target-processes all and --profile-from-start off are needed.",
    "failed": "counter_reason in records.csv has what ncu said. Another profiler (DCGM) may hold the counters.",
    "timeout": "Profile smaller cases: every kernel is run once per pass.",
}


@dataclass(frozen=True, slots=True)
class KernelBytes:
    """One launch: the kernel's name in full, and bytes by quantity; None where there is no figure."""

    name: str
    bytes: Mapping[Quantity, int | None]


@dataclass(frozen=True, slots=True)
class Profile:
    """What ncu said of one program. ``reason`` is empty only if nothing is missing."""

    status: Status
    reason: str = ""
    kernels: tuple[KernelBytes, ...] = ()


class Ncu:
    """Nsight Compute on this machine; remembers what it refused.

    Parameters
    ----------
    executable : str, optional
        Found by `find` if not given.
    environment : mapping, optional
        Of the programs that are profiled; this process's by default.
    timeout_s : float
        After which a run and all that it started are killed.
    """

    def __init__(
        self,
        executable: str | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._executable = executable or find()
        self._environment = environment
        self._timeout_s = timeout_s
        self._unknown: set[str] = set()
        self._final: Profile | None = None
        self._version: str | None = None
        self._running: Process | None = None

    @property
    def mode(self) -> str:
        """The version, and how kernels are profiled."""
        if self._executable is None:
            return MODE
        if self._version is None:
            self._version = version(self._executable) or ""
        return f"ncu {self._version}, {MODE}" if self._version else MODE

    def profile(self, program: Sequence[str], sm: int) -> Profile:
        """Run ``program`` under ncu and read the kernels of its range.

        A metric that this chip does not have is left out and the run repeated; its figures are missing then. What no
        other program would change (no ncu, no permission) is answered at once from then on.

        Parameters
        ----------
        program : sequence of str
            Its command line.
        sm : int
            Compute capability of its GPU, as in 80.
        """
        if self._executable is None:
            self._final = Profile("absent", "ncu is not on this machine.")
        if self._final is not None:
            return self._final
        wanted = metrics_of(sm)
        while names := [name for metric in wanted if (name := metric.name(self._unknown)) is not None]:
            output = self._execute(self.command(program, names))
            refused = _refused(output.text, names)
            if not refused:
                return self._read(output, wanted, names)
            self._unknown |= refused
        self._final = Profile("unknown_metric", "This Nsight Compute has none of the metrics on this GPU.")
        return self._final

    def close(self) -> None:
        """End what runs. May be called from another thread than the one that profiles."""
        if (running := self._running) is not None:
            end_group(running)

    def _execute(self, command: Sequence[str]) -> Output:
        def started(process: Process) -> None:
            self._running = process

        # Profilers with one TMPDIR wait for each other, on whatever GPU (its file nsight-compute-lock), and the wait
        # would be in the time limit. Different GPUs need not wait.
        with tempfile.TemporaryDirectory(prefix="fa-bench-", ignore_cleanup_errors=True) as folder:
            try:
                return execute(command, self._timeout_s, {**self._environment, "TMPDIR": folder}, started)
            finally:
                self._running = None  # its number may be another process's soon

    def command(self, program: Sequence[str], names: Sequence[str]) -> list[str]:
        """The whole command line, for metrics called ``names``."""
        assert self._executable is not None
        return [self._executable, *_OPTIONS, "--metrics", ",".join(names), *program]

    def _read(self, output: Output, wanted: Sequence[Metric], names: Sequence[str]) -> Profile:
        if output.returncode is None:
            return Profile("timeout", _sentence(f"ncu was ended after {self._timeout_s:g} s.", output.text))
        for words, status in _SYMPTOMS:
            if words in output.text:
                found = Profile(status, _sentence(_MEANING[status], output.text))
                self._final = found if status in FINAL else None
                return found
        rows = kernel_rows(output.text, names)
        kernels = tuple(KernelBytes(row.name, quantities(wanted, row.counts, self._unknown)) for row in rows)
        if output.returncode != 0:
            return Profile("failed", _sentence(f"ncu ended with exit code {output.returncode}.", output.text))
        if not kernels:
            return Profile("no_kernels", _sentence("ncu saw no kernel in the range.", output.text))
        missing = dict.fromkeys(
            quantity for kernel in kernels for quantity, nbytes in kernel.bytes.items() if nbytes is None
        )
        if not missing:
            return Profile("ok", kernels=kernels)
        if len(missing) == len(kernels[0].bytes):
            return Profile("unknown_metric", "ncu gave no figure of any metric.")
        return Profile("ok", f"ncu has no figure here of: {', '.join(missing)}.", kernels)


_MEANING: Final[Mapping[Status, str]] = {
    "no_permission": "ncu may not read the GPU's performance counters (ERR_NVGPUCTRPERM).",
    "incompatible": "ncu does not work with this driver or GPU.",
    "absent": "ncu is a wrapper here whose Nsight Compute is not installed.",
}


def _refused(text: str, names: Sequence[str]) -> set[str]:
    """Those of ``names`` that ncu says it does not find."""
    stems = set(re.findall(r"Failed to find metric (?:regex:)?\^?(\w+)", text))
    return {name for name in names if name.partition(".")[0] in stems}


def _sentence(what: str, text: str) -> str:
    """``what``, and the end of ncu's own words: its errors if there are any, else its last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("==ERROR==", "ERROR"))]
    said = " ".join(errors or lines[-3:])
    return f"{what} It said: {said[-_TAIL:]}" if said else what


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known without profiling anything.

    ``admin_only`` is the driver's setting (NVreg_RestrictProfilingToAdminUsers), ``privileged`` whether this process
    is an administrator in its eyes; None where the system does not say.
    """

    path: str | None
    version: str | None = None
    admin_only: bool | None = None
    privileged: bool | None = None

    @property
    def refused(self) -> bool:
        """Whether counters are known to be out of this process's reach."""
        return bool(self.admin_only) and self.privileged is False

    @property
    def sentence(self) -> str:
        """One line for a person."""
        if self.path is None:
            return "not found"
        name = f"{self.version or 'version unknown'} ({self.path})"
        if self.admin_only is None:
            return f"{name}; whether counters may be read is not known"
        if not self.admin_only:
            return f"{name}; the driver lets every user read counters"
        may = "this process is none" if self.refused else "this process may be one"
        return f"{name}; the driver keeps counters to administrators, and {may}"


def probe(root: Path = Path("/")) -> Probe:
    """Whether ncu is here and may read counters, without running a kernel.

    Parameters
    ----------
    root : Path
        Of the file system with ``proc``.
    """
    path = find()
    if path is None:
        return Probe(None)
    return Probe(
        path,
        version(path),
        _admin_only(_text(root / "proc/driver/nvidia/params")),
        _privileged(_text(root / "proc/self/status")),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _admin_only(params: str) -> bool | None:
    match = re.search(r"^RmProfilingAdminOnly: *(\d)", params, re.MULTILINE)
    return None if match is None else match[1] != "0"


def _privileged(status: str) -> bool | None:
    """Whether the effective capabilities hold CAP_SYS_ADMIN (bit 21), which the driver asks for."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status, re.MULTILINE)
    return None if match is None else bool(int(match[1], 16) >> 21 & 1)
