"""Run the launches of a source in the emulator, one after the other on the same arrays, and profile each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench import __version__, ptx
from fa_bench.errors import CompileError, KernelFault, UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.model.l1 import l1_data_bytes
from fa_bench.model.occupancy import occupancy
from fa_bench.profiling import sass
from fa_bench.profiling.args import FLOATS, POISON, STORAGE, Argument, Scalar, Tensor, scalar_bytes
from fa_bench.profiling.build import BuiltFile, KernelFile, build
from fa_bench.profiling.collect import behind, source_lines, traffic
from fa_bench.profiling.origin import origins
from fa_bench.profiling.result import SECTOR_BYTES, Fit, KernelProfile, Profile, Resources, StaticCount
from fa_bench.profiling.signature import Parameter, bind, demangled
from fa_bench.ptx.machine import MAX_SHARED_BYTES, MAX_THREADS

Dim = tuple[int, int, int]

#: Where neither the user nor the kernel says how many threads a CTA has.
DEFAULT_BLOCK: Final[Dim] = (128, 1, 1)
#: Most CTAs of a grid in x, y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
MAX_GRID: Final[Dim] = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Launch:
    """One launch.

    Parameters
    ----------
    kernel : str, optional
        C++ name, instance of a template or entry; may be missing where the file has one kernel.
    grid : tuple of int
    block : tuple of int, optional
        What the kernel declares (``__launch_bounds__``) by default, else `DEFAULT_BLOCK`.
    smem_bytes : int
        Dynamic shared memory of a CTA.
    arguments : tuple of Argument
        Arrays of the same name are the same array in all launches.
    positional : bool
        Whether they are in the order of the parameters whatever their names. The name ``#2`` stands for that of
        parameter 2.
    surplus : bool
        Whether there may be arguments that this kernel does not have.
    """

    kernel: str | None
    grid: Dim
    block: Dim | None
    smem_bytes: int
    arguments: tuple[Argument, ...]
    positional: bool = False
    surplus: bool = False


@dataclass(frozen=True)
class _Ready:
    """A launch whose kernel is parsed and whose arguments are bound."""

    launch: Launch
    name: str
    kernel: ptx.Kernel
    block: Dim
    parameters: tuple[Parameter, ...]
    arguments: tuple[Argument, ...]


def run(
    file: KernelFile,
    launches: Sequence[Launch],
    gpu: Gpu,
    *,
    seed: int = 0,
    jobs: int = 1,
    check: bool = False,
    caches: bool = False,
) -> Profile:
    """Compile, launch and profile.

    Parameters
    ----------
    file : KernelFile
    launches : sequence of Launch
    gpu : Gpu
        Target of the compilation and of the occupancy.
    seed : int
        Of the arrays' contents.
    jobs : int
        Threads of the emulator.
    check : bool
        Look for races, reads of what was never written, and more (docs/emulator.md). An array behind a pointer to const
        must not be written, an ``out`` array must be written whole.
    caches : bool
        Run CTAs side by side and say what L1, L2 and DRAM of ``gpu`` see, launch after launch.

    Raises
    ------
    UsageError
        If a kernel does not exist or its arguments or launch do not fit.
    CompileError
        If the source is refused.
    PtxError
        If the emulator does not know an instruction.
    KernelFault
        If a kernel does something illegal, or with ``check`` what the checks forbid. Both name the source line where it
        is known.
    """
    if check and caches:
        raise UsageError("The checks and the caches need a run each.", "Give --check or --counters full.")
    if seed < 0:
        raise UsageError(f"The seed must be at least 0, not {seed}.")
    built = build(file, [launch.kernel for launch in launches], gpu)
    ready = [_prepared(built, launch) for launch in launches]
    arrays = _arrays(ready)
    memory = ptx.Memory()
    for name, tensor in arrays.items():
        contents = tensor.contents(seed)
        memory.allocate(name, tensor.nbytes)[:] = contents.reshape(-1).view(np.uint8)
    checks = _sanitizer(ready, arrays) if check else None
    system = ptx.MemorySystem(gpu.sm_count, [ptx.L2(gpu.l2_bytes, gpu.l2_partitions)]) if caches else None
    kernels = tuple(_profiled(built, one, arrays, memory, gpu, jobs, checks, system) for one in ready)
    if checks is not None:
        checks.require_outputs()
    return Profile(file.name, __version__, gpu.slug, seed, kernels)


def _sanitizer(ready: Sequence[_Ready], arrays: Mapping[str, Tensor]) -> ptx.Sanitizer:
    """The shadow memory of the launches: what holds data, what must not be written, what must."""

    def elements(tensor: Tensor) -> ptx.Elements:
        itemsize = np.dtype(STORAGE[tensor.type]).itemsize
        strides = [itemsize * math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
        return ptx.Elements(itemsize, tensor.shape, tuple(strides))

    pairs = [pair for one in ready for pair in zip(one.arguments, one.parameters, strict=True)]
    written = {argument.name for argument, parameter in pairs if not parameter.points_to_const}
    outputs = {name: elements(tensor) for name, tensor in arrays.items() if tensor.fill == "out"}
    inputs = {name: elements(tensor) for name, tensor in arrays.items() if name not in written | outputs.keys()}
    return ptx.Sanitizer(ptx.Checks(inputs, outputs, frozenset(arrays) - inputs.keys() - outputs.keys()))


def _prepared(built: BuiltFile, launch: Launch) -> _Ready:
    entry = built.entry(launch.kernel)
    name = launch.kernel if launch.kernel in built.compiled.names else demangled(entry)
    assert name is not None
    try:
        kernel = built.load(entry)
    except ptx.PtxError as error:
        raise ptx.PtxError(f"{error.message}{_source_of(built, error.message)}", error.hint) from error
    parameters = built.parameters(kernel)
    arguments = launch.arguments
    if launch.positional:
        if len(arguments) != len(parameters):
            expected = f"{name} takes {', '.join(map(str, parameters)) or 'no arguments'}."
            raise UsageError(f"Kernel {name} takes {len(parameters)} arguments, not {len(arguments)}.", expected)
        # Checked under the parameters' names; what the caller calls an array says which one it is.
        pairs = list(zip(arguments, parameters, strict=True))
        bound = bind(name, parameters, tuple(replace(a, name=p.name) for a, p in pairs))
        bound = tuple(replace(b, name=_identity(a.name, parameters)) for b, a in zip(bound, arguments, strict=True))
    else:
        if launch.surplus:
            names = {parameter.name for parameter in parameters}
            arguments = tuple(a for a in arguments if a.name in names) or arguments
        bound = bind(name, parameters, arguments)
    block = launch.block or built.launch_bounds(entry) or DEFAULT_BLOCK
    if min(*launch.grid, *block) < 1 or block[0] * block[1] * block[2] > MAX_THREADS:
        raise UsageError(
            f"A launch needs extents of at least 1 and at most {MAX_THREADS} threads per CTA, not {block}."
        )
    if any(extent > most for extent, most in zip(launch.grid, MAX_GRID, strict=True)):
        sizes = [",".join(map(str, extents)) for extents in (MAX_GRID, launch.grid)]
        raise UsageError(f"A grid has at most {sizes[0]} CTAs in x, y and z, not {sizes[1]}.")
    if (smem_bytes := kernel.static_smem_bytes + launch.smem_bytes) > MAX_SHARED_BYTES:
        raise UsageError(
            f"{name} asks for {smem_bytes} bytes of shared memory; no GPU has more than {MAX_SHARED_BYTES}."
        )
    return _Ready(launch, name, kernel, block, parameters, bound)


def _identity(name: str, parameters: Sequence[Parameter]) -> str:
    return parameters[int(name[1:])].name if name.startswith("#") else name


def _arrays(ready: Sequence[_Ready]) -> dict[str, Tensor]:
    """Every array of the launches; the first launch that has one says what is in it."""
    arrays: dict[str, Tensor] = {}
    for one in ready:
        for argument in one.arguments:
            if isinstance(argument, Tensor):
                arrays.setdefault(argument.name, argument)
    return arrays


def _profiled(
    built: BuiltFile,
    one: _Ready,
    arrays: Mapping[str, Tensor],
    memory: ptx.Memory,
    gpu: Gpu,
    jobs: int,
    checks: ptx.Sanitizer | None,
    system: ptx.MemorySystem | None,
) -> KernelProfile:
    kernel = one.kernel
    notes = list(built.notes)
    resources, codes, why = _compiler_says(built, one)
    notes += why
    before = {} if system is None else system.counters()
    if system is None:
        counters = _launched(built, one, memory, jobs, checks)
    else:
        counters = _through_caches(built, one, memory, jobs, system, gpu, resources)
    own = {a.name: arrays[a.name] for a in one.arguments if isinstance(a, Tensor)}
    tensors = {name: (tensor.text, tensor.nbytes) for name, tensor in own.items()}
    sizes = {buffer.name: buffer.nbytes for buffer in memory.buffers()}
    for name, counted in counters.tensors.items():
        # Variables of the module, and arrays of other launches that this one finds through a pointer in memory.
        if name not in tensors and counted != type(counted)():
            tensors[name] = ("", sizes.get(name, 0))
    variables = frozenset(counters.tensors) - frozenset(sizes)
    offsets = {p.offset: a.name for p, a in zip(kernel.params, one.arguments, strict=True) if isinstance(a, Tensor)}
    accesses = origins(kernel, offsets, variables)
    moved = traffic(kernel, counters, accesses, tensors)
    outputs = {
        row.tensor: _contents(own[row.tensor], memory) for row in moved if row.op != "read" and row.tensor in own
    }
    unwritten = {name: _unwritten(tensor, memory) for name, tensor in own.items() if tensor.fill == "out"}
    return KernelProfile(
        kernel=one.name,
        entry=kernel.name,
        grid=one.launch.grid,
        block=one.block,
        arguments=_texts(one),
        compiler=built.compiled.compiler,
        resources=resources,
        occupancy=_fit(gpu, one, resources),
        traffic=moved,
        instructions=dict(counters.instructions),
        lanes=sum(counts.lanes for counts in counters.by_instruction),
        shared_requests=counters.shared.requests,
        wavefronts=counters.shared.wavefronts,
        conflicts=counters.shared.conflicts,
        lines=source_lines(kernel, counters, accesses, built.lines, one.block[1] == one.block[2] == 1),
        sass=codes,
        unwritten={name: count for name, count in unwritten.items() if count},
        caches=() if system is None else behind(before, system.counters()),
        l2_dirty_bytes=None if system is None else sum(system.dirty_sectors().values()) * SECTOR_BYTES,
        notes=tuple(notes),
        outputs=outputs,
    )


def _texts(one: _Ready) -> dict[str, str]:
    """What was passed, by the arguments' names; an array that is passed twice has its parameter's name then."""
    texts: dict[str, str] = {}
    for argument, parameter in zip(one.arguments, one.parameters, strict=True):
        texts[parameter.name if argument.name in texts else argument.name] = argument.text
    return texts


def _launched(
    built: BuiltFile, one: _Ready, memory: ptx.Memory, jobs: int, checks: ptx.Sanitizer | None
) -> ptx.LaunchCounters:
    try:
        return ptx.launch(
            one.kernel,
            grid=one.launch.grid,
            block=one.block,
            args=[_passed(argument, memory) for argument in one.arguments],
            smem_bytes=one.launch.smem_bytes,
            memory=memory,
            jobs=jobs,
            per_instruction=True,
            checks=checks,
            where=built.lines.chain if checks is not None else None,
        )
    except (KernelFault, ptx.PtxError) as fault:
        raise _with_source(built, fault) from fault


def _through_caches(
    built: BuiltFile,
    one: _Ready,
    memory: ptx.Memory,
    jobs: int,
    system: ptx.MemorySystem,
    gpu: Gpu,
    resources: Resources,
) -> ptx.LaunchCounters:
    blocks = max(1, _fit(gpu, one, resources).blocks_per_sm)
    try:
        waves = ptx.Waves(
            one.kernel,
            grid=one.launch.grid,
            block=one.block,
            args=[_passed(argument, memory) for argument in one.arguments],
            smem_bytes=one.launch.smem_bytes,
            memory=memory,
            slots=blocks * gpu.sm_count,
            jobs=jobs,
        )
        ptx.launch_waves(waves, system, l1_data_bytes(gpu, blocks, resources.smem_bytes))
        return waves.counters(per_instruction=True)
    except (KernelFault, ptx.PtxError) as fault:
        raise _with_source(built, fault) from fault


def _with_source(built: BuiltFile, fault: KernelFault | ptx.PtxError) -> KernelFault | ptx.PtxError:
    """The same fault, naming the source line."""
    kind = KernelFault if isinstance(fault, KernelFault) else ptx.PtxError
    return kind(f"{fault.message}{_source_of(built, fault.message)}", fault.hint)


def _passed(argument: Argument, memory: ptx.Memory) -> np.generic[Any]:
    if isinstance(argument, Scalar):
        assert argument.type is not None
        return scalar_bytes(argument, argument.type)
    return np.uint64(memory.address(argument.name) if isinstance(argument, Tensor) else 0)


def _source_of(built: BuiltFile, message: str) -> str:
    """Where in the source a line of the PTX is, as a sentence with a blank before it; empty if that is not known."""
    found = re.search(r"PTX line (\d+)", message)
    place = built.lines.place(int(found[1])) if found else None
    if place is None:
        return ""
    text = built.lines.text(place)
    return f" It is {place.file}:{place.line}: {text}" if text else f" It is {place.file}:{place.line}."


def _compiler_says(built: BuiltFile, one: _Ready) -> tuple[Resources, tuple[StaticCount, ...], list[str]]:
    """Registers and spills, static counts of the SASS, and what is not known of them."""
    kernel, smem = one.kernel, one.launch.smem_bytes
    if not built.compiled.log:
        return Resources(None, None, kernel.static_smem_bytes, smem), (), []
    try:
        registers, static, spills = built.compiled.resources(kernel.name)
    except CompileError:
        unknown = Resources(None, None, kernel.static_smem_bytes, smem)
        return unknown, (), [f"The compiler's report does not mention {kernel.name}: its registers are not known."]
    resources = Resources(registers, spills, static, smem)
    text = sass.disassemble(built.compiled.cubin)
    if text is None:
        return resources, (), [sass.MISSING]
    return resources, sass.compare(kernel, sass.opcodes(text, kernel.name)), []


def _fit(gpu: Gpu, one: _Ready, resources: Resources) -> Fit:
    threads = one.block[0] * one.block[1] * one.block[2]
    found = occupancy(gpu, threads=threads, smem_bytes=resources.smem_bytes, registers=resources.registers or 0)
    return Fit(gpu.slug, found.blocks_per_sm, found.warps_per_sm, found.fraction, found.limits)


def _contents(tensor: Tensor, memory: ptx.Memory) -> NDArray[Any]:
    return memory.array(tensor.name).view(STORAGE[tensor.type]).reshape(tensor.shape).copy()


def _unwritten(tensor: Tensor, memory: ptx.Memory) -> int:
    """Elements that still hold the poison, which is a NaN that no arithmetic makes; not known for integers."""
    if tensor.type not in FLOATS:
        return 0
    itemsize = np.dtype(STORAGE[tensor.type]).itemsize
    return int((memory.array(tensor.name).reshape(-1, itemsize) == POISON).all(axis=1).sum())
