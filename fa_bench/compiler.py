"""CUDA source to PTX (for the emulator) and cubin (for the GPU), with the resources it uses, cached by content.

Both products come from one compilation for a real architecture (``sm_80``): the PTX is what the emulator executes,
the cubin is what ptxas makes of that same PTX. Registers, static shared memory and spills are ptxas' own report.

A cubin loads on any driver of its CUDA major or a later one, never on an older one. Where a kernel is launched on a
GPU, the caller passes the driver's major as ``major``; the emulator takes any.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fa_bench import nvrtc, shipped
from fa_bench.algorithms.base import KernelSpec
from fa_bench.errors import CompileError, DeviceUnavailable
from fa_bench.filecache import KERNELS

_INCLUDE: Final = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One kernel, compiled.

    Parameters
    ----------
    entry : str
        Name of the kernel in PTX and cubin.
    ptx : str
    cubin : bytes
        Empty where only PTX is there: the driver compiles it.
    registers : int or None
        Per thread; None if nothing said so.
    static_smem_bytes : int or None
        Statically allocated shared memory per CTA, in bytes.
    spill_bytes : int or None
        Spill stores plus spill loads per thread, in bytes.
    nvrtc_version : str
        Empty for PTX that somebody else compiled.
    compile_ms : float or None
        What the compilation took when it was done, also where the result came from the cache; None if nothing was
        compiled here.
    """

    entry: str
    ptx: str
    cubin: bytes
    registers: int | None
    static_smem_bytes: int | None
    spill_bytes: int | None
    nvrtc_version: str
    compile_ms: float | None


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA source that is not this project's own.

    Parameters
    ----------
    name : str
        What messages and line information call it: a path, or any name for text without a file.
    text : str
    folders : tuple of Path
        Where ``#include`` looks, before CUDA's own headers.
    defines : tuple of (str, str)
        Preprocessor definitions.
    options : tuple of str
        Further options, as NVRTC spells them (``--use_fast_math``).
    """

    name: str
    text: str
    folders: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """A whole source, compiled.

    Parameters
    ----------
    ptx : str
    cubin : bytes
    log : str
        ptxas' verbose report.
    names : mapping of str to str
        Entry of each C++ name that was asked for.
    compiler : str
        What made it, with its version.
    """

    ptx: str
    cubin: bytes
    log: str
    names: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""

    def resources(self, entry: str) -> tuple[int, int, int]:
        """Registers per thread, static shared bytes per CTA and spill bytes per thread of a kernel.

        Raises
        ------
        CompileError
            If there is no such kernel.
        """
        return _resources(self.log, entry)


def nvrtc_available(major: int | None = None) -> str | None:
    """None if kernels can be compiled here, otherwise a sentence that says what is missing.

    Parameters
    ----------
    major : int, optional
        CUDA major that is needed (the driver's, to launch on a GPU); any by default.
    """
    return nvrtc.unavailable(major)


def ptx_available() -> str | None:
    """None if there is PTX for the emulator here, compiled or shipped, otherwise a sentence on what is missing."""
    return None if shipped.index() is not None else nvrtc_available()


def kernels_dir() -> Path:
    """Folder of the CUDA sources: inside the installed package, or the checkout's ``kernels/``."""
    packaged = importlib.resources.files("fa_bench") / "_kernels"
    if packaged.is_dir():
        return Path(str(packaged))
    return Path(__file__).resolve().parents[1] / "kernels"


def compile_kernel(
    spec: KernelSpec, sm: str, *, major: int | None = None, folder: Path | None = None, lineinfo: bool = False
) -> CompiledKernel:
    """Compile ``spec`` for the real architecture ``sm``, or take it from the cache.

    Without NVRTC a kernel of ours that is shipped as PTX is taken as it is; a source that is PTX always is.

    Parameters
    ----------
    spec : KernelSpec
    sm : str
        Architecture as NVRTC spells it, e.g. ``sm_80``.
    major : int, optional
        CUDA major of the compiler; the newest installed by default. With it a cubin is wanted, which is not shipped.
    folder : Path, optional
        Root of the sources, :func:`kernels_dir` by default.
    lineinfo : bool
        Keep source lines in the PTX (``.loc``) and the cubin, for profilers.

    Raises
    ------
    CompileError
        If the source is refused; the message is the compiler's first error line.
    DeviceUnavailable
        If there is no NVRTC here, and the kernel is not shipped.
    """
    root = kernels_dir() if folder is None else folder
    path = root / spec.source
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError(f"The kernel source {spec.source} can't be read: {error.strerror}.") from error
    if path.suffix == ".ptx":
        return CompiledKernel(spec.entry, source, b"", None, None, None, "", None)
    try:
        compiler = nvrtc.load(major)
    except DeviceUnavailable as error:
        if major is not None or lineinfo:
            raise
        return _shipped(spec, sm, root, error)
    options = [
        f"--gpu-architecture={sm}",
        "--std=c++17",
        "--ptxas-options=-v",
        *(["--generate-line-info"] if lineinfo else []),
        *(f"--define-macro={name}={value}" for name, value in spec.defines),
    ]
    key = _key(compiler, path, [spec.source, spec.entry, *options])
    if (cached := _read_cache(key)) is not None:
        return cached

    start = time.perf_counter()
    # Quoted includes are relative to the including file, which NVRTC knows by name only.
    places = [f"--include-path={path.parent}", f"--include-path={compiler.include}"]
    product = compiler.compile(source, spec.source, [*options, *places])
    compile_ms = (time.perf_counter() - start) * 1e3
    registers, static_smem_bytes, spill_bytes = _resources(product.log, spec.entry)
    kernel = CompiledKernel(
        entry=spec.entry,
        ptx=product.ptx,
        cubin=product.cubin,
        registers=registers,
        static_smem_bytes=static_smem_bytes,
        spill_bytes=spill_bytes,
        nvrtc_version=compiler.version,
        compile_ms=compile_ms,
    )
    _write_cache(key, kernel)
    return kernel


def _shipped(spec: KernelSpec, sm: str, root: Path, reason: DeviceUnavailable) -> CompiledKernel:
    """The kernel as it comes with fa-bench.

    Raises
    ------
    DeviceUnavailable
        If it doesn't; the next step is ``reason``'s.
    """
    found = shipped.find(spec, sm, root)
    if found is None:
        raise DeviceUnavailable(shipped.missing(spec, sm), reason.hint) from reason
    return CompiledKernel(
        entry=spec.entry,
        ptx=found.ptx,
        cubin=b"",
        registers=found.registers,
        static_smem_bytes=found.static_smem_bytes,
        spill_bytes=found.spill_bytes,
        nvrtc_version=found.nvrtc_version,
        compile_ms=None,
    )


def compile_source(
    source: Source,
    sm: str,
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    expressions: Sequence[str] = (),
) -> CompiledSource:
    """Compile somebody's source for the real architecture ``sm``, with line information, or take it from the cache.

    Parameters
    ----------
    source : Source
    sm : str
        Architecture as NVRTC spells it, e.g. ``sm_80``.
    headers : mapping of str to str
        Name -> text of headers that are found before those on disk.
    expressions : sequence of str
        C++ names of kernels, e.g. ``scale<float, 4>``: templates are instantiated, and ``names`` has their entries.

    Raises
    ------
    CompileError
        If the source is refused; the message is the compiler's first error line.
    DeviceUnavailable
        If there is no NVRTC here.
    """
    compiler = nvrtc.load()
    folders = (*source.folders, compiler.include)
    options = [
        f"--gpu-architecture={sm}",
        "--std=c++17",
        "--ptxas-options=-v",
        "--generate-line-info",
        *(f"--define-macro={name}={value}" for name, value in source.defines),
        *source.options,
        *(f"--include-path={folder}" for folder in folders),
    ]
    # Line information holds the source's path, so it is part of the product.
    identity = [source.name, *options, *(f"{name}\0{text}" for name, text in headers.items())]
    contents = _closure(_included(source.text, folders), compiler.include, folders)
    key = _content_key(compiler, [*identity, *expressions], [source.text.encode(), *contents])
    if (content := KERNELS.read(key)) is not None:
        try:
            fields = json.loads(content)
            return CompiledSource(**{**fields, "cubin": base64.b64decode(fields["cubin"])})
        except (ValueError, TypeError, KeyError):
            pass  # not ours to read: compile again
    product = compiler.compile(source.text, source.name, options, headers, expressions)
    compiled = CompiledSource(product.ptx, product.cubin, product.log, dict(product.names), f"NVRTC {compiler.version}")
    text = json.dumps({**asdict(compiled), "cubin": base64.b64encode(compiled.cubin).decode()})
    KERNELS.write(key, text.encode())
    return compiled


def _resources(log: str, entry: str) -> tuple[int, int, int]:
    """Registers, static shared bytes and spill bytes of ``entry`` from ptxas' verbose log.

    Raises
    ------
    CompileError
        If the log doesn't mention ``entry``: the source defines no such kernel.
    """
    # ... Compiling entry function 'NAME' for 'sm_80'
    # ... Function properties for NAME
    # ...     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    # ... Used 240 registers, used 1 barriers, 4096 bytes smem, 512 bytes cmem[0]
    _, found, section = log.partition(f"Compiling entry function '{entry}'")
    section = section.partition("Compiling entry function")[0]
    registers = re.search(r"Used (\d+) registers", section)
    if not found or registers is None:
        raise CompileError(f"The source defines no kernel called {entry}.")
    smem = re.search(r"(\d+) bytes smem", section)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", section)
    return (
        int(registers.group(1)),
        int(smem.group(1)) if smem else 0,
        int(spills.group(1)) + int(spills.group(2)) if spills else 0,
    )


# --- cache ---------------------------------------------------------------------------------------------------------


def _key(compiler: nvrtc.Nvrtc, path: Path, options: list[str]) -> str:
    """Cache key, from all that decides the product: options, compiler, the source and every header it reaches."""
    return _content_key(compiler, options, _closure([path.resolve()], compiler.include, (compiler.include,)))


def _content_key(compiler: nvrtc.Nvrtc, options: list[str], contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256(json.dumps([compiler.version, *options]).encode())
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return f"{digest.hexdigest()[:32]}.json"


def _included(text: str, folders: Sequence[Path]) -> list[Path]:
    """Where the files that ``text`` includes may be."""
    return [(folder / name).resolve() for _, name in _INCLUDE.findall(text) for folder in folders]


def _closure(paths: list[Path], include: Path, folders: Sequence[Path]) -> Iterator[bytes]:
    """Contents of those of ``paths`` that exist and of all files that they include, in a fixed order."""
    pending, seen = paths, set()
    while pending:
        current = pending.pop()
        if current in seen or not current.is_file():
            continue
        seen.add(current)
        content, includes = (_system_header if include in current.parents else _scan)(current)
        yield content
        for quoted, name in includes:
            pending.extend((folder / name).resolve() for folder in folders)
            if quoted:
                pending.append((current.parent / name).resolve())


def _scan(path: Path) -> tuple[bytes, tuple[tuple[bool, str], ...]]:
    content = path.read_bytes()
    found = _INCLUDE.findall(content.decode(errors="replace"))
    return content, tuple((quote == '"', name) for quote, name in found)


#: CUDA's own headers are large and do not change while a process runs.
_system_header = functools.cache(_scan)


def _read_cache(key: str) -> CompiledKernel | None:
    content = KERNELS.read(key)
    if content is None:
        return None
    try:
        fields = json.loads(content)
        return CompiledKernel(**{**fields, "cubin": base64.b64decode(fields["cubin"])})
    except (ValueError, TypeError, KeyError):
        return None  # not ours to read: compile again


def _write_cache(key: str, kernel: CompiledKernel) -> None:
    text = json.dumps({**asdict(kernel), "cubin": base64.b64encode(kernel.cubin).decode()})
    KERNELS.write(key, text.encode())
