"""PTX kernel -> LLVM IR -> machine code, cached by content."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import llvmlite
import llvmlite.binding as llvm

from fa_bench.filecache import EMULATOR
from fa_bench.ptx import host, lower_space, runtime, runtime_math
from fa_bench.ptx.cfg import Flow
from fa_bench.ptx.emitter import Emitter
from fa_bench.ptx.layout import LANES, Queue, Warp
from fa_bench.ptx.program import Kernel
from fa_bench.ptx.warp_function import WarpFunction

#: ``counted`` counts and checks bounds; ``traced`` also logs which sectors are asked for, for the caches to see;
#: ``checked`` also keeps a shadow memory (``ir/shadow_*.ll``); ``uncounted`` does nothing of all this and is the
#: yardstick for what counting costs.
Mode = Literal["counted", "traced", "checked", "uncounted"]
#: Compiled kernels that the process keeps loaded, oldest first.
KERNELS_KEPT: Final = 64
_VECTORS: Final = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
_LOADED: Final[dict[str, CompiledKernel]] = {}


@dataclass(frozen=True)
class Plan:
    """What Python must know of a compiled kernel; stored beside its code."""

    warp_bytes: int
    queue_offset: int
    local_offset: int
    local_bytes: int
    #: Index of the instruction of each access site.
    global_sites: list[int]
    shared_sites: list[int]
    #: Of each global access site, whether its instruction passes L1 by.
    bypasses: list[bool]
    #: (first instruction, one past the last) of each basic block.
    blocks: list[tuple[int, int]]


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel. ``engine`` owns it."""

    kernel: Kernel
    plan: Plan
    engine: Any
    from_cache: bool

    @functools.cached_property
    def run_ctas(self) -> Any:
        """``run_ctas(context, counter, list, count) -> code``."""
        return self.function(
            "run_ctas", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
        )

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function of the module, to be called from Python."""
        return ctypes.CFUNCTYPE(result, *arguments)(self.engine.get_function_address(name))


def compile_kernel(kernel: Kernel, one_dimensional: bool, mode: Mode = "counted") -> CompiledKernel:
    """Compile ``kernel``, or load it from the cache.

    Parameters
    ----------
    kernel : Kernel
    one_dimensional : bool
        Whether blocks have extent 1 in y and z.
    mode : str
        What the code does beside the kernel's own work, see :data:`Mode`.

    Raises
    ------
    UnsupportedInstruction
        If an instruction has operands that the emulator does not execute.
    """
    key = _key(kernel, one_dimensional, mode)
    if key in _LOADED:
        # The same code, but lines and variables of the module at hand.
        return replace(_LOADED[key], kernel=kernel)
    cached = _from_bytes(EMULATOR.read(key))
    if cached is not None:
        plan, code = cached
    else:
        text, plan = lower(kernel, one_dimensional, mode)
        code = _machine_code(text)
        EMULATOR.write(key, json.dumps(asdict(plan)).encode() + b"\n" + code)
    engine = _engine(code)
    while len(_LOADED) >= KERNELS_KEPT:
        del _LOADED[next(iter(_LOADED))]
    _LOADED[key] = CompiledKernel(kernel, plan, engine, cached is not None)
    return _LOADED[key]


def _from_bytes(content: bytes | None) -> tuple[Plan, bytes] | None:
    if content is None:
        return None
    head, separator, code = content.partition(b"\n")
    try:
        return (Plan(**json.loads(head)), code) if separator and code else None
    except (ValueError, TypeError):
        return None  # not ours to read: compile again


def _key(kernel: Kernel, one_dimensional: bool, mode: Mode) -> str:
    digest = hashlib.sha256(_identity().encode())
    digest.update(repr((kernel.name, kernel.params, kernel.shared, one_dimensional, mode)).encode())
    digest.update("\n".join(i.text for i in kernel.instructions).encode())
    digest.update(repr((kernel.local, kernel.local_bytes, kernel.storage.layout)).encode())
    if kernel.inlined:
        # Copies of a function have the same text, but registers of their own.
        digest.update(repr([(i.row.name, i.operands, i.guard) for i in kernel.instructions]).encode())
    digest.update(repr((sorted(kernel.labels.items()), sorted(kernel.registers.items()))).encode())
    return digest.hexdigest()[:32]


@functools.cache
def _identity() -> str:
    """The code generator, LLVM and the CPU: what else decides the machine code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("ir/*.ll")]):
        digest.update(path.read_bytes())
    cpu, features = host.cpu()
    return f"{digest.hexdigest()} {llvmlite.__version__} {llvm.llvm_version_info} {cpu} {features}"


def _target_machine() -> Any:
    """A target machine for this CPU. An engine takes ownership of its own, so each use makes one."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = host.cpu()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


def _machine_code(text: str) -> bytes:
    machine = _target_machine()
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, tuning)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


def run_time_engine(text: str) -> Any:
    """Engine with the functions of an IR text that belongs to no kernel; its machine code is cached."""
    text += f"\nattributes #0 = {{ alwaysinline nounwind {_VECTORS} }}\nattributes #1 = {{ nounwind {_VECTORS} }}\n"
    key = hashlib.sha256(f"{_identity()}\n{text}".encode()).hexdigest()[:32]
    code = EMULATOR.read(key)
    if not code:
        code = _machine_code(text)
        EMULATOR.write(key, code)
    return _engine(code)


def _engine(code: bytes) -> Any:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def lower(kernel: Kernel, one_dimensional: bool, mode: Mode = "counted") -> tuple[str, Plan]:
    """IR text of ``kernel`` with its run-time functions, and its plan."""
    flow = Flow(kernel, one_dimensional)
    offsets: dict[str, int] = {}
    end = Warp.REGISTERS
    for name in sorted(flow.crossing):
        offsets[name] = end
        bits = kernel.registers[name]
        end += 64 if bits == 1 else LANES * bits // 8
    queue_offset = -(-end // 64) * 64
    emitter = Emitter(flow, offsets)
    body = WarpFunction(emitter).text()
    local_offset = queue_offset + (Queue.ENTRIES * Queue.SIZE if emitter.uses_queue else 0)
    local_bytes = -(-LANES * lower_space.local_stride(kernel.local_bytes) // 64) * 64
    # An odd number of lines between warps keeps their states out of the same cache sets.
    warp_bytes = local_offset + local_bytes + (64 if (local_offset + local_bytes) % 128 == 0 else 0)
    plan = Plan(
        warp_bytes,
        queue_offset,
        local_offset,
        local_bytes,
        emitter.global_sites,
        emitter.shared_sites,
        emitter.bypasses,
        [(b.start, b.stop) for b in flow.blocks],
    )
    body = body.replace("QUEUE_OFFSET", str(queue_offset)).replace("LOCAL_OFFSET", str(local_offset))
    return _module(body, emitter, plan, mode), plan


def _module(warp: str, e: Emitter, plan: Plan, mode: Mode) -> str:
    functions = [
        warp,
        *e.library.values(),
        runtime.template(
            "driver",
            WARP_BYTES=plan.warp_bytes,
            QUEUE_OFFSET=plan.queue_offset,
            LOCAL_OFFSET=plan.local_offset,
            LOCAL_BYTES=plan.local_bytes,
        ),
        runtime.template("barrier", WARP_BYTES=plan.warp_bytes),
        *_observers(mode, e, plan),
        runtime.template("queue"),
        runtime.template("mbarrier", WARP_BYTES=plan.warp_bytes, QUEUE_OFFSET=plan.queue_offset),
        runtime_math.ex2(),
        runtime_math.lg2(),
    ]
    text = "\n".join(functions)
    return (
        text + "\n" + "\n".join(_intrinsics(text)) + f"\nattributes #0 = {{ nounwind {_VECTORS} }}\n"
        f"attributes #1 = {{ nounwind noinline {_VECTORS} }}\n"
        f"attributes #3 = {{ nounwind alwaysinline {_VECTORS} }}\n"
    )


def _observers(mode: Mode, e: Emitter, plan: Plan) -> list[str]:
    """What looks at each access, and at what orders them."""
    if mode == "checked":
        own = {
            "WARP_BYTES": plan.warp_bytes,
            "LOCAL_BYTES": plan.local_bytes,
            "LOCAL_STRIDE": lower_space.local_stride(e.kernel.local_bytes),
        }
        parts = ("access", "shared", "global", "order", "lanes")
        return [
            runtime.template("check", PREFIX="counted_"),
            *(runtime.template(f"shadow_{part}", **own) for part in parts),
        ]
    unobserved = runtime.template("unobserved")
    if mode == "uncounted":
        return [runtime.template("uncounted"), unobserved]
    if mode == "counted":
        return [runtime.template("check", PREFIX=""), unobserved]
    return [runtime.template("check", PREFIX="counted_"), runtime.template("trace"), unobserved]


def _intrinsics(text: str) -> list[str]:
    """Declarations of the overloaded intrinsics that ``text`` calls."""
    found: dict[str, str] = {}
    for result, name, arguments in re.findall(r"call (\S+|<[^>]+>) @(llvm\.[\w.]+)\((.*)\)$", text, re.M):
        # Constant vectors hold types as well.
        arguments = re.sub(r"<(?!\d+ x )[^>]*>", "", arguments)
        types = ", ".join(re.findall(r"(?:^|, )(<\d+ x \w+>|float|double|half|i\d+)(?= )", arguments))
        found[name] = f"declare {result} @{name}({types})"
    declared = "\n".join(line for line in text.splitlines() if line.startswith("declare"))
    return [line for name, line in sorted(found.items()) if f" @{name}(" not in declared]
