"""A kernel's file made ready to run: CUDA compiled, PTX read, the cubin and its resources if there is a way to them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fa_bench import nvrtc, ptx
from fa_bench.compiler import CompiledSource, Source, compile_source
from fa_bench.errors import CompileError, FaBenchError, UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.profiling.hostcode import HEADERS, device_code
from fa_bench.profiling.lines import LineTable
from fa_bench.profiling.signature import Parameter, choose, declared, demangled

#: Instances of templates are asked for by name.
_TEMPLATE: Final = re.compile(r"template\s*<[^;{}]*?>\s*__global__[^;{}()]*(?:\([^()]*\))?[^;{}()]*?\b(\w+)\s*\(")
_ENTRY: Final = re.compile(r"\.entry\s+([\w$]+)")
_MAX_THREADS: Final = re.compile(r"\.(?:max|req)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_TARGET: Final = re.compile(r"^\s*\.target\s+(sm_(\d+)\w*)", re.MULTILINE)
#: Seconds that ptxas may take.
TIMEOUT_S: Final = 300
NO_PTXAS: Final = (
    "Registers, spills and SASS are not known: ptxas is not here; "
    "a CUDA toolkit or pip install nvidia-cuda-nvcc adds it."
)
_RTC_ONLY: Final = (
    "NVRTC compiles device code: put the kernel in a file of its own, or host code in #ifndef __CUDACC_RTC__."
)


@dataclass(frozen=True)
class KernelFile:
    """A source to profile.

    Parameters
    ----------
    name : str
        What reports call it.
    text : str
        CUDA C++ or PTX.
    root : Path, optional
        Its folder; None for text without a file.
    defines, includes, options
        For CUDA: definitions, further folders of headers, further options for NVRTC.
    """

    name: str
    text: str
    root: Path | None = None
    defines: tuple[tuple[str, str], ...] = ()
    includes: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def is_ptx(self) -> bool:
        """Whether it is PTX rather than CUDA C++."""
        return _TARGET.search(self.text) is not None and ".version" in self.text


@dataclass(frozen=True)
class BuiltFile:
    """A source that is ready to run.

    Parameters
    ----------
    compiled : CompiledSource
        PTX, and with an empty ``log`` nothing else.
    lines : LineTable
    signatures : mapping of str to tuple of (str, str)
        Names and C types of the parameters of each kernel that the source declares.
    notes : tuple of str
    """

    file: KernelFile
    compiled: CompiledSource
    lines: LineTable
    signatures: dict[str, tuple[tuple[str, str], ...]]
    notes: tuple[str, ...] = ()

    def entry(self, wanted: str | None) -> str:
        """The entry that a kernel's name means.

        Raises
        ------
        UsageError
            If there is none or more than one.
        """
        if wanted is not None and wanted in self.compiled.names:
            return self.compiled.names[wanted]
        entries = _ENTRY.findall(self.compiled.ptx)
        templates = _TEMPLATE.findall(self.file.text)
        if (wanted in templates or (wanted is None and not entries)) and not any(
            demangled(entry).rpartition("::")[2] == wanted for entry in entries
        ):
            name = wanted or (templates[0] if templates else None)
            if name is not None:
                raise UsageError(f"{name} is a template.", f"Name an instance of it, as in --kernel '{name}<64>'.")
        if not entries:
            raise UsageError(f"{self.file.name} has no kernel (no __global__ function).")
        return choose(entries, wanted)

    def load(self, entry: str) -> ptx.Kernel:
        """The kernel, parsed. What other kernels of the file do does not matter."""
        return ptx.load(_only(self.compiled.ptx, entry)).kernel(entry)

    def parameters(self, kernel: ptx.Kernel) -> tuple[Parameter, ...]:
        """The kernel's parameters, with what its source says of them where both agree on their number."""
        written = self.signatures.get(demangled(kernel.name).rpartition("::")[2], ())
        if len(written) != len(kernel.params):
            written = tuple((param.name, self._ptx_type(param.name)) for param in kernel.params)
        return tuple(
            Parameter(name, ctype, param.size) for (name, ctype), param in zip(written, kernel.params, strict=True)
        )

    def launch_bounds(self, entry: str) -> tuple[int, int, int] | None:
        """The block that the kernel declares (``__launch_bounds__``), if it does."""
        start = self.compiled.ptx.index(f".entry {entry}")
        head = self.compiled.ptx[start : self.compiled.ptx.index("{", start)]
        found = _MAX_THREADS.search(head)
        return None if found is None else (int(found[1]), int(found[2] or 1), int(found[3] or 1))

    def _ptx_type(self, param: str) -> str:
        found = re.search(rf"\.param\s+\.(f32|f64)\s+{re.escape(param)}\b", self.compiled.ptx)
        return {"f32": "float", "f64": "double"}[found[1]] if found else ""


def build(file: KernelFile, kernels: Sequence[str | None], gpu: Gpu) -> BuiltFile:
    """Compile or read a source for a GPU.

    Parameters
    ----------
    file : KernelFile
    kernels : sequence of str or None
        Kernels that will be asked for; instances of templates (``scale<64>``) are made.
    gpu : Gpu
        Target of the compilation.

    Raises
    ------
    CompileError
        If NVRTC refuses the source.
    DeviceUnavailable
        If the source is CUDA and there is no NVRTC here.
    """
    if file.is_ptx:
        compiled, notes = _assembled(file.text, gpu)
        return BuiltFile(file, compiled, LineTable(file.text, file.name, file.root), {}, notes)
    compiled, notes = _compiled(file, tuple(dict.fromkeys(k for k in kernels if k is not None and "<" in k)), gpu)
    texts = {} if file.root is not None else {file.name: file.text}
    table = LineTable(compiled.ptx, file.name, file.root, nvrtc.load().include, texts)
    return BuiltFile(file, compiled, table, declared(file.text), notes)


def _compiled(file: KernelFile, expressions: tuple[str, ...], gpu: Gpu) -> tuple[CompiledSource, tuple[str, ...]]:
    include = nvrtc.load().include
    own = () if file.root is None else (file.root,)
    # CCCL (cooperative groups, cuda/std, cub) has a folder of its own where it is installed.
    folders = (*own, *file.includes, *(folder for folder in (include / "cccl",) if folder.is_dir()))
    name = file.name if file.root is None else str(file.root / Path(file.name).name)
    source = Source(name, file.text, folders, file.defines, file.options)
    try:
        return compile_source(source, gpu.sm, headers=HEADERS, expressions=expressions), ()
    except CompileError as error:
        stripped = device_code(file.text)
        if stripped == file.text:
            raise _explained(error, name, file.name) from None
    # What host code is left, methods of structures say, compiles as device code or not at all.
    source = replace(source, text=stripped, options=(*file.options, "--device-as-default-execution-space"))
    try:
        compiled = compile_source(source, gpu.sm, headers=HEADERS, expressions=expressions)
    except CompileError as error:
        raise _explained(error, name, file.name) from None
    return compiled, ("The file's host code was left out.",)


def _explained(error: CompileError, path: str, name: str) -> FaBenchError:
    """The compiler's sentence with the file's short name, and what to do about it."""
    hint = error.hint
    if error.message.startswith("__nv_name_map"):
        # NVRTC looks names of kernels up in a file of its own making.
        reason = error.message.partition("error: ")[2]
        return UsageError(f"A kernel's name is not understood: {reason}.")
    if "execution space" in error.message:
        hint = _RTC_ONLY
    elif re.search(r'cannot open source file "(?:nv/|cuda/|cub/|thrust/|cooperative_groups)', error.message):
        hint = "It belongs to CCCL: pip install nvidia-cuda-cccl, or --include the folder that has it."
    elif "cannot open source file" in error.message:
        hint = "--include names a folder to look in."
    return CompileError(error.message.replace(path, name), hint)


def _assembled(text: str, gpu: Gpu) -> tuple[CompiledSource, tuple[str, ...]]:
    """PTX with its cubin, if ptxas is here and takes it."""
    tool = nvrtc.find_tool("ptxas")
    if tool is None:
        return CompiledSource(text, b"", ""), (NO_PTXAS,)
    target = _TARGET.search(text)
    assert target is not None
    own, number = target.groups()
    # PTX for an architecture with a letter (sm_90a) runs on that one only, other PTX on all later ones.
    sm = own if own[-1].isalpha() or int(number) > int(gpu.sm.removeprefix("sm_")) else gpu.sm
    notes = (
        () if sm == gpu.sm else (f"The PTX is for {own}, which {gpu.slug} ({gpu.sm}) can't run: resources of {sm}.",)
    )
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [tool, "-v", f"-arch={sm}", source, "-o", cubin],
                capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            version = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return CompiledSource(text, b"", ""), (*notes, f"Registers, spills and SASS are not known: {error}.")
        if done.returncode:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            # "ptxas kernel.ptx, line 9; fatal   : Unsupported .version 9.5; current version is '9.0'"
            reason = " ".join((lines or ["it failed"])[0].replace(str(source), "the file").split())
            return CompiledSource(text, b"", ""), (*notes, f"Registers, spills and SASS are not known: {reason}.")
        release = re.search(r"V([\d.]+)", version.stdout)
        compiler = f"ptxas {release[1]}" if release else "ptxas"
        return CompiledSource(text, cubin.read_bytes(), done.stderr + done.stdout, {}, compiler), notes


def _only(text: str, entry: str) -> str:
    """The PTX with every kernel but one blanked, each line where it was."""
    result, place = [], 0
    for found in re.finditer(r"(?:\.(?:visible|weak|extern)\s+)*\.entry\s+([\w$]+)[^{;]*\{", text):
        if found.start() < place or found[1] == entry:
            continue
        depth, end = 1, found.end()
        for brace in re.compile(r"[{}]").finditer(text, found.end()):
            depth += 1 if brace.group() == "{" else -1
            end = brace.end()
            if depth == 0:
                break
        result += [text[place : found.start()], re.sub(r"[^\n]", " ", text[found.start() : end])]
        place = end
    return "".join([*result, text[place:]])
