"""NVRTC, the CUDA runtime compiler, found in its PyPI wheels or a CUDA toolkit and called through ctypes.

Compiling needs neither a GPU nor a driver. A cubin loads on every driver of its CUDA major, and on no older one, so
the compiler's major must be choosable at run time: 13 and 12 may be installed side by side. A dozen C functions are
all that is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fa_bench.errors import CompileError, DeviceUnavailable

#: Majors that are looked for, in this order.
MAJORS: Final = (13, 12)
#: The header whose folder serves all kernels.
PROBE_HEADER: Final = "cuda_fp16.h"
#: Set this variable to see what works on a machine without NVRTC.
HIDE: Final = "FA_BENCH_HIDE_NVRTC"


@dataclass(frozen=True, slots=True)
class Compilation:
    """Products of one compilation for a real architecture; ``names`` holds the entry of each name expression."""

    ptx: str
    cubin: bytes
    log: str
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Nvrtc:
    """A loaded NVRTC and the headers that belong to it.

    Parameters
    ----------
    library : ctypes.CDLL
    version : str
        ``major.minor`` as the library reports it.
    include : Path
        Folder of ``cuda_fp16.h``.
    """

    library: ctypes.CDLL
    version: str
    include: Path

    def compile(
        self,
        source: str,
        name: str,
        options: Sequence[str],
        headers: Mapping[str, str] = MappingProxyType({}),
        expressions: Sequence[str] = (),
    ) -> Compilation:
        """Compile ``source`` for the real architecture that ``options`` name.

        Parameters
        ----------
        source, name : str
            The text, and what messages and line information call it.
        options : sequence of str
        headers : mapping of str to str
            Name -> text of headers that are found before those on disk.
        expressions : sequence of str
            C++ names of kernels whose entries are asked for, e.g. ``scale<float, 4>``: templates are instantiated.

        Raises
        ------
        CompileError
            With the compiler's first error line.
        """
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(header.encode() for header in headers))
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names
        )
        try:
            for expression in expressions:
                self._call("nvrtcAddNameExpression", program, expression.encode())
            encoded = [option.encode() for option in options]
            array = (ctypes.c_char_p * len(encoded))(*encoded)
            status = self.library.nvrtcCompileProgram(program, len(encoded), array)
            log = self._text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
            if status:
                errors = [line.strip() for line in log.splitlines() if "error" in line.lower()]
                raise CompileError(errors[0] if errors else self._status(status))
            return Compilation(
                ptx=self._text("nvrtcGetPTXSize", "nvrtcGetPTX", program),
                cubin=self._bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program),
                log=log,
                names={expression: self._entry(program, expression) for expression in expressions},
            )
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _status(self, status: int) -> str:
        describe = self.library.nvrtcGetErrorString
        describe.restype = ctypes.c_char_p
        return f"NVRTC failed: {describe(status).decode()}."

    def _entry(self, program: ctypes.c_void_p, expression: str) -> str:
        lowered = ctypes.c_char_p()
        self._call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(lowered))
        return (lowered.value or b"").decode()

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise CompileError(self._status(status))

    def _bytes(self, size_function: str, function: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(size_function, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(function, program, buffer)
        return buffer.raw

    def _text(self, size_function: str, function: str, program: ctypes.c_void_p) -> str:
        # The program log holds a NUL between the front end's part and ptxas' part.
        return self._bytes(size_function, function, program).replace(b"\0", b"").decode(errors="replace")


def unavailable(major: int | None = None) -> str | None:
    """Why NVRTC can't be used here, as one sentence; None if it can.

    Parameters
    ----------
    major : int, optional
        CUDA major that is needed; any by default.
    """
    try:
        load(major)
    except DeviceUnavailable as error:
        return f"{error.message} {error.hint}".strip()
    return None


@functools.cache
def load(major: int | None = None) -> Nvrtc:
    """The NVRTC of CUDA ``major`` (the newest of 13 and 12 by default).

    Raises
    ------
    DeviceUnavailable
        If the library or its headers are not installed; the message says which.
    """
    if os.environ.get(HIDE):
        raise DeviceUnavailable(f"The CUDA compiler NVRTC is hidden here, since the variable {HIDE} is set.")
    majors = MAJORS if major is None else (major,)
    for candidate in majors:
        library = _load_library(candidate)
        if library is None:
            continue
        numbers = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(numbers[0]), ctypes.byref(numbers[1]))
        for folder in _include_folders(candidate):
            if (folder / PROBE_HEADER).is_file():
                return Nvrtc(library, f"{numbers[0].value}.{numbers[1].value}", folder)
        raise DeviceUnavailable(
            f"NVRTC {candidate} is installed, but its headers ({PROBE_HEADER}) are not.",
            hint=f"Install them with: pip install {' '.join(_wheels(candidate)[1:])}",
        )
    if sys.platform == "darwin":
        raise DeviceUnavailable("NVIDIA has no CUDA compiler (NVRTC) for macOS, so kernels can't be compiled here.")
    names = " or ".join(str(candidate) for candidate in majors)
    raise DeviceUnavailable(
        f"The CUDA compiler NVRTC {names} is not installed.",
        hint=f"Install it with: pip install {' '.join(_wheels(majors[0]))}",
    )


def find_tool(name: str) -> Path | None:
    """One of CUDA's programs (``ptxas``, ``nvdisasm``), from its PyPI wheel, a toolkit or PATH; None if not here."""
    windows = sys.platform == "win32"
    file = f"{name}.exe" if windows else name
    folders = ("bin/x86_64", "bin/x64", "bin") if windows else ("bin",)
    packages = (*(f"cu{major}" for major in MAJORS), "cuda_nvcc", "cuda_nvdisasm")
    roots = (*(root / package for root in _wheel_roots() for package in packages), *_toolkit_roots())
    for path in (root / folder / file for root in roots for folder in folders):
        if path.is_file():
            return path
    found = shutil.which(name)
    return None if found is None else Path(found)


def _wheels(major: int) -> tuple[str, ...]:
    """PyPI packages of a CUDA major: the library first, then the headers."""
    if major < 13:
        return (f"nvidia-cuda-nvrtc-cu{major}", f"nvidia-cuda-runtime-cu{major}")
    return ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt")


def _wheel_roots() -> Iterator[Path]:
    """Folders that the nvidia-* wheels share (``site-packages/nvidia``)."""
    spec = importlib.util.find_spec("nvidia")
    if spec is not None:
        yield from (Path(place) for place in spec.submodule_search_locations or ())


def _toolkit_roots() -> Iterator[Path]:
    """Folders of an installed CUDA toolkit."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if place := os.environ.get(variable):
            yield Path(place)
    if conda := os.environ.get("CONDA_PREFIX"):
        yield Path(conda) / "targets" / "x86_64-linux"
        yield Path(conda) / "Library"
    yield Path("/usr/local/cuda")


def _library_candidates(major: int) -> Iterator[str]:
    """Paths and names under which the library may load, wheels first."""
    windows = sys.platform == "win32"
    name = f"nvrtc64_{major}0_0.dll" if windows else f"libnvrtc.so.{major}"
    folders = ("bin/x86_64", "bin/x64", "bin") if windows else ("lib", "lib64")
    for root in _wheel_roots():
        for package in (f"cu{major}", "cuda_nvrtc"):
            yield from (str(root / package / folder / name) for folder in folders)
    for root in _toolkit_roots():
        yield from (str(root / folder / name) for folder in folders)
    yield name


def _load_library(major: int) -> ctypes.CDLL | None:
    for candidate in _library_candidates(major):
        path = Path(candidate)
        if path.is_absolute() and not path.is_file():
            continue
        try:
            _load_builtins(path)
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def _load_builtins(library: Path) -> None:
    """Load the built-ins beside ``library``, which NVRTC opens by bare name when it compiles.

    The wheels of CUDA 13.0 have no search path for it; a library that is loaded already is found by its name.
    """
    pattern = "nvrtc-builtins64_*.dll" if sys.platform == "win32" else "libnvrtc-builtins.so.*"
    for path in sorted(library.parent.glob(pattern)) if library.is_absolute() else ():
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(path))


def _include_folders(major: int) -> Iterator[Path]:
    for root in _wheel_roots():
        for package in (f"cu{major}", "cuda_runtime"):
            yield root / package / "include"
    for root in _toolkit_roots():
        yield root / "include"
