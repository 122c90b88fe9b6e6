"""PTX kernel -> LLVM IR -> machine code, cached by content.

One IR function runs one warp until it ends or meets a barrier. Lanes at the smallest block index run; where all
live lanes are known to be together, a branch is a plain jump.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm

from fa_bench.filecache import EMULATOR
from fa_bench.ptx import host, lower_space, runtime, runtime_math
from fa_bench.ptx.cfg import ENDS, Block, Flow
from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import BARRIER, DONE, FAULT, LANES, PARKED, RESCHEDULE, STOPPED, YIELD, Context, Queue, Warp
from fa_bench.ptx.lower_barrier import barrier_operands
from fa_bench.ptx.lowerings import LOWERINGS
from fa_bench.ptx.program import Instruction, Kernel, Reg, Vec

__all__ = ["CONTROL_ROWS", "LOWERINGS", "CompiledKernel", "compile_kernel"]

#: Rows that end a basic block; :class:`_Function` handles them.
CONTROL_ROWS: Final = ENDS
#: A warp that goes on with the result of a barrier's votes resumes at its block's number plus this.
_WITH_VOTES: Final = 1 << 20
#: Jumps that one counts for where lanes may wait for a lock: the holder should not wait long for its turn.
_LOCK_COST: Final = 64


#: Compiled kernels that the process keeps loaded, oldest first.
KERNELS_KEPT: Final = 64
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
    #: (first instruction, one past the last) of each basic block.
    blocks: list[tuple[int, int]]


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel. ``engine`` owns it."""

    kernel: Kernel
    plan: Plan
    run_ctas: Any
    engine: Any
    from_cache: bool


def compile_kernel(kernel: Kernel, one_dimensional: bool, counting: bool = True) -> CompiledKernel:
    """Compile ``kernel``, or load it from the cache.

    Parameters
    ----------
    kernel : Kernel
    one_dimensional : bool
        Whether blocks have extent 1 in y and z.
    counting : bool
        Without it nothing is counted and no access is checked: the yardstick for what counting costs.

    Raises
    ------
    UnsupportedInstruction
        If an instruction has operands that the emulator does not execute.
    """
    key = _key(kernel, one_dimensional, counting)
    if key in _LOADED:
        # The same code, but lines and variables of the module at hand.
        return replace(_LOADED[key], kernel=kernel)
    cached = _from_bytes(EMULATOR.read(key))
    if cached is not None:
        plan, code = cached
    else:
        text, plan = lower(kernel, one_dimensional, counting)
        code = _machine_code(text)
        EMULATOR.write(key, json.dumps(asdict(plan)).encode() + b"\n" + code)
    engine = _engine(code)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = prototype(engine.get_function_address("run_ctas"))
    while len(_LOADED) >= KERNELS_KEPT:
        del _LOADED[next(iter(_LOADED))]
    _LOADED[key] = CompiledKernel(kernel, plan, function, engine, cached is not None)
    return _LOADED[key]


def _from_bytes(content: bytes | None) -> tuple[Plan, bytes] | None:
    if content is None:
        return None
    head, separator, code = content.partition(b"\n")
    try:
        return (Plan(**json.loads(head)), code) if separator and code else None
    except (ValueError, TypeError):
        return None  # not ours to read: compile again


def _key(kernel: Kernel, one_dimensional: bool, counting: bool) -> str:
    digest = hashlib.sha256(_identity().encode())
    digest.update(repr((kernel.name, kernel.params, kernel.shared, one_dimensional, counting)).encode())
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


@functools.cache
def _target_machine() -> Any:
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


def _engine(code: bytes) -> Any:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine_for_engine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _target_machine_for_engine() -> Any:
    """An engine takes ownership of its target machine, so each gets its own."""
    _target_machine()
    cpu, features = host.cpu()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


def lower(kernel: Kernel, one_dimensional: bool, counting: bool = True) -> tuple[str, Plan]:
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
    body = _Function(emitter).text()
    uses_queue = "copy_queue" in emitter.runtime
    local_offset = queue_offset + (Queue.ENTRIES * Queue.SIZE if uses_queue else 0)
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
        [(b.start, b.stop) for b in flow.blocks],
    )
    body = body.replace("QUEUE_OFFSET", str(queue_offset)).replace("LOCAL_OFFSET", str(local_offset))
    return _module(body, emitter, plan, counting), plan


def _module(warp: str, e: Emitter, plan: Plan, counting: bool) -> str:
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
        runtime.template("check" if counting else "uncounted"),
        runtime.template("queue"),
        runtime.template("mbarrier", WARP_BYTES=plan.warp_bytes, QUEUE_OFFSET=plan.queue_offset),
        runtime_math.ex2(),
        runtime_math.lg2(),
        runtime_math.permute(host.has("avx512f")),
    ]
    sizes: set[int] = set()
    quad = False
    for name in sorted(e.runtime):
        word, _, rest = name.partition("_")
        if rest.endswith("_quad"):
            quad = True
        elif word in ("ld", "st"):
            sizes.add(int(rest.split("_")[1]))
        elif word == "ldmatrix":
            functions.append(runtime_math.ldmatrix(int(rest[1]), rest.endswith("trans")))
    functions += [runtime.access(size) for size in sorted(sizes)]
    if quad:
        functions += [runtime.quads(), runtime.template("quad")]
    text = "\n".join(functions)
    vectors = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
    return (
        text + "\n" + "\n".join(_intrinsics(text)) + f"\nattributes #0 = {{ nounwind {vectors} }}\n"
        f"attributes #1 = {{ nounwind noinline {vectors} }}\n"
        f"attributes #3 = {{ nounwind alwaysinline {vectors} }}\n"
    )


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


class _Function:
    """Control flow of the warp function around the lowered blocks."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        self.flow = emitter.flow
        self.labels = 0
        self.resume_points: dict[int, str] = {0: "b0"}

    def text(self) -> str:
        for block in self.flow.blocks:
            self._block(block)
        self._next()
        self._scheduler()
        body = self.e.lines
        head = [
            "define internal i32 @warp(ptr noalias %ctx, ptr noalias %ws) #0 {",
            "entry:",
            *self.e.allocas,
            "  %active = alloca i32, align 4",
            "  %live = alloca i32, align 4",
        ]
        for name, offset in (
            ("params", Context.PARAMS),
            ("gsites", Context.GSITES),
            ("ssites", Context.SSITES),
            ("counts", Context.BLOCK_COUNTS),
            ("stop", Context.STOP),
        ):
            head += [
                f"  %p.{name} = getelementptr i8, ptr %ctx, i64 {offset}",
                f"  %{name} = load ptr, ptr %p.{name}, align 8",
            ]
        head += [
            f"  %slice = getelementptr i8, ptr %ctx, i64 {Context.SLICE}",
            "  %queue = getelementptr i8, ptr %ws, i64 QUEUE_OFFSET",
            "  %local = getelementptr i8, ptr %ws, i64 LOCAL_OFFSET",
            "  %live.0 = load i32, ptr %ws, align 4",
            "  store i32 %live.0, ptr %live, align 4",
            "  store i32 %live.0, ptr %active, align 4",
            f"  %p.resume = getelementptr i8, ptr %ws, i64 {Warp.RESUME}",
            "  %resume = load i32, ptr %p.resume, align 4",
            "  switch i32 %resume, label %fault [ "
            + " ".join(f"i32 {k}, label %{name}" for k, name in sorted(self.resume_points.items()))
            + f" i32 {RESCHEDULE}, label %next ]",
        ]
        return "\n".join([*head, *body, "}", ""])

    def _block(self, block: Block) -> None:
        e, k = self.e, block.index
        e.begin(block)
        e.label(f"b{k}")
        counter = e.field("%counts", 8 * k)
        old = e.let(f"load i64, ptr {counter}, align 8")
        e.emit(f"store i64 {e.let(f'add i64 {old}, 1')}, ptr {counter}, align 8")
        instructions = self.flow.instructions(block)
        terminator: Instruction | None = None
        for index, instruction in enumerate(instructions, block.start):
            e.instruction_index = index
            if instruction.row.name in CONTROL_ROWS:
                terminator = instruction
                break
            self._lower(instruction)
        if terminator is None:
            e.flush()
            if block.stop == len(e.kernel.instructions) and block.start == block.stop:
                self._exit(None)
            else:
                self._goto(k, k + 1)
        elif terminator.row.name == "bra":
            self._branch(block, terminator)
        elif terminator.row.name == "brx.idx":
            self._branch_by_index(block, terminator)
        elif terminator.row.op in ("ret", "exit"):
            guard = e.guard_mask() if terminator.guard is not None else None
            e.flush()
            self._exit(guard)
            if guard is not None:
                self._goto(k, k + 1)
        elif terminator.row.op == "trap":
            sprung = e.let(f"icmp ne i32 {e.guard_mask()}, 0")
            e.flush()
            hit, on = self._new(), self._new()
            e.emit(f"br i1 {sprung}, label %{hit}, label %{on}")
            e.label(hit)
            self._fault(5)
            e.label(on)
            self._goto(k, k + 1)
        else:
            self._barrier(block, terminator)

    def _lower(self, instruction: Instruction) -> None:
        """Lower one instruction; one that is malformed in a way that no check foresaw is refused all the same."""
        try:
            LOWERINGS[instruction.row.name](self.e, instruction)
        except (AssertionError, LookupError, StopIteration, TypeError, ValueError) as error:
            raise UnsupportedInstruction(instruction.text, instruction.line) from error

    def _new(self) -> str:
        self.labels += 1
        return f"l{self.labels}"

    def _goto(self, source: int, target: int) -> None:
        """Jump from block ``source`` to ``target`` with the active lanes."""
        e = self.e
        if target <= source:
            left = e.let("load i64, ptr %slice, align 8")
            cost = _LOCK_COST if source in self.flow.diverged and self.flow.may_lock(source) else 1
            left = e.let(f"sub i64 {left}, {cost}")
            e.emit(f"store i64 {left}, ptr %slice, align 8")
            spent = e.let(f"icmp slt i64 {left}, 0")
            over, ahead = self._new(), self._new()
            e.emit(f"br i1 {spent}, label %{over}, label %{ahead}")
            e.label(over)
            # A slice of jumps is over: the other warps get their turn, and a CTA without end is noticed.
            self._store_pc(e.let("load i32, ptr %active, align 4"), target)
            e.emit(f"store i32 {target}, ptr {e.field('%ws', Warp.YIELDED)}, align 4")
            e.emit(f"store i32 {e.instruction_index}, ptr {e.field('%ctx', Context.FAULT_SITE)}, align 4")
            e.emit("br label %yield")
            e.label(ahead)
        if source not in self.flow.diverged and target not in self.flow.diverged:
            e.emit(f"br label %b{target}")
            return
        active = e.let("load i32, ptr %active, align 4")
        live = e.let("load i32, ptr %live, align 4")
        together = e.let(f"icmp eq i32 {active}, {live}")
        apart = self._new()
        e.emit(f"br i1 {together}, label %b{target}, label %{apart}")
        e.label(apart)
        self._store_pc(active, target)
        e.emit("br label %schedule")

    def _store_pc(self, lanes: str, target: int) -> None:
        e = self.e
        pointer = e.field("%ws", Warp.PC)
        old = e.let(f"load <{LANES} x i32>, ptr {pointer}, align 64")
        chosen = e.let(f"bitcast i32 {lanes} to <{LANES} x i1>")
        new = e.let(f"select <{LANES} x i1> {chosen}, <{LANES} x i32> splat (i32 {target}), <{LANES} x i32> {old}")
        e.emit(f"store <{LANES} x i32> {new}, ptr {pointer}, align 64")

    def _branch(self, block: Block, instruction: Instruction) -> None:
        e, k = self.e, block.index
        label = instruction.operands[0]
        target = self.flow.target(label)  # type: ignore[arg-type]  # the parser makes it a Label
        if instruction.guard is None:
            e.flush()
            self._goto(k, target)
            return
        condition = e.read(instruction.guard, "i1")
        active = e.mask()
        e.flush()
        ends = [self.flow.only_ends(side) for side in (target, k + 1)]
        if any(ends) and not condition.uniform:
            bits = e.let(f"and i32 {e.let(f'bitcast {condition.typed} to i32')}, {active}")
            self._exit(bits if ends[0] else e.let(f"xor i32 {bits}, {active}"))
            self._goto(k, k + 1 if ends[0] else target)
            return
        taken, fallen = self._new(), self._new()
        if condition.uniform:
            e.emit(f"br i1 {condition.name}, label %{taken}, label %{fallen}")
        else:
            bits = e.let(f"and i32 {e.let(f'bitcast {condition.typed} to i32')}, {active}")
            split, some = self._new(), self._new()
            all_taken = e.let(f"icmp eq i32 {bits}, {active}")
            e.emit(f"br i1 {all_taken}, label %{taken}, label %{some}")
            e.label(some)
            none = e.let(f"icmp eq i32 {bits}, 0")
            e.emit(f"br i1 {none}, label %{fallen}, label %{split}")
            e.label(split)
            rest = e.let(f"xor i32 {bits}, {active}")
            self._store_pc(rest, k + 1)
            self._store_pc(bits, target)
            e.emit("br label %schedule")
        e.label(taken)
        self._goto(k, target)
        e.label(fallen)
        self._goto(k, k + 1)

    def _exit(self, guard: str | None) -> None:
        """The lanes of ``guard`` (all active ones if None) end; falls through with the rest if there is a guard."""
        e = self.e
        active = e.let("load i32, ptr %active, align 4")
        live = e.let("load i32, ptr %live, align 4")
        gone = guard or active
        stay = e.let(f"and i32 {live}, {e.let(f'xor i32 {gone}, -1')}")
        e.emit(f"store i32 {stay}, ptr %live, align 4")
        finished = e.let(f"icmp eq i32 {stay}, 0")
        more = self._new()
        e.emit(f"br i1 {finished}, label %done, label %{more}")
        e.label(more)
        if guard is None:
            e.emit("br label %schedule")
            return
        rest = e.let(f"and i32 {active}, {e.let(f'xor i32 {gone}, -1')}")
        e.emit(f"store i32 {rest}, ptr %active, align 4")
        left = e.let(f"icmp eq i32 {rest}, 0")
        on = self._new()
        e.emit(f"br i1 {left}, label %schedule, label %{on}")
        e.label(on)

    def _branch_by_index(self, block: Block, instruction: Instruction) -> None:
        """``brx.idx``: each lane goes to the target that its index picks."""
        e, k = self.e, block.index
        table = instruction.operands[1]
        assert isinstance(table, Vec)
        targets = [self.flow.target(label) for label in table.items]  # type: ignore[arg-type]  # Labels, as in bra
        index = e.read(instruction.operands[0], "i32")
        inside = e.guard_mask()
        active = e.mask()
        e.flush()
        if index.uniform and instruction.guard is None:
            bad = self._new()
            labels = [self._new() for _ in targets]
            cases = " ".join(f"i32 {j}, label %{label}" for j, label in enumerate(labels))
            e.emit(f"switch i32 {index.name}, label %{bad} [ {cases} ]")
            for label, target in zip(labels, targets, strict=True):
                e.label(label)
                self._goto(k, target)
            e.label(bad)
            self._fault(11)
            return
        if instruction.guard is not None:
            self._store_pc(e.let(f"and i32 {active}, {e.let(f'xor i32 {inside}, -1')}"), k + 1)
        left = inside
        for j, target in enumerate(targets):
            mine = e.op("icmp eq {0}, {n1}", e.vector(index), e.literal(j, "i32"), elem="i1")
            bits = e.let(f"and i32 {e.let(f'bitcast {mine.typed} to i32')}, {inside}")
            self._store_pc(bits, target)
            left = e.let(f"and i32 {left}, {e.let(f'xor i32 {bits}, -1')}")
        bad = self._new()
        e.emit(f"br i1 {e.let(f'icmp eq i32 {left}, 0')}, label %schedule, label %{bad}")
        e.label(bad)
        self._fault(11)

    def _barrier(self, block: Block, instruction: Instruction) -> None:
        """``bar.sync`` and ``bar.red``: lanes that come early are parked, the last ones take the warp to the driver."""
        e = self.e
        red = ".red" in instruction.row.name
        operands = instruction.operands[1:-1] if red else instruction.operands
        number, count = barrier_operands(e, instruction, operands)
        if red:
            vote = e.vector(e.read(instruction.operands[-1], "i1"))
            votes = e.let(f"and i32 {e.let(f'bitcast {vote.typed} to i32')}, {e.mask()}")
            for field, bits in ((Context.VOTES, votes), (Context.VOTERS, e.mask())):
                place = e.let(f"getelementptr i32, ptr {e.field('%ctx', field)}, i32 {number}")
                old = e.let(f"load i32, ptr {place}, align 4")
                more = e.let(f"call i32 @llvm.ctpop.i32(i32 {bits})")
                e.emit(f"store i32 {e.let(f'add i32 {old}, {more}')}, ptr {place}, align 4")
        e.flush()
        resume = block.index + 1 + (_WITH_VOTES if red else 0)
        self.resume_points[resume] = f"v{block.index}" if red else f"b{block.index + 1}"
        for offset, value in ((Warp.BARRIER, number), (Warp.BARRIER_THREADS, count)):
            e.emit(f"store i32 {value}, ptr {e.field('%ws', offset)}, align 4")
        active = e.let("load i32, ptr %active, align 4")
        live = e.let("load i32, ptr %live, align 4")
        together = e.let(f"icmp eq i32 {active}, {live}")
        whole, part = self._new(), self._new()
        e.emit(f"br i1 {together}, label %{whole}, label %{part}")
        e.label(part)
        self._store_pc(active, PARKED + resume)
        e.emit("br label %schedule")
        e.label(whole)
        self._leave(str(resume), BARRIER)
        if red:
            e.label(f"v{block.index}")
            self._votes(instruction)
            e.emit(f"br label %b{block.index + 1}")

    def _votes(self, instruction: Instruction) -> None:
        """Write the result of ``bar.red`` where the next block finds it."""
        e = self.e
        target = instruction.operands[0]
        assert isinstance(target, Reg)
        if target.name not in e.offsets:
            return
        votes, voters = (
            e.let(f"load i32, ptr {e.field('%ws', offset)}, align 4") for offset in (Warp.VOTES, Warp.VOTERS)
        )
        if instruction.row.name.endswith("popc"):
            value = Value(votes, "i32", True)
        elif instruction.has("and"):
            value = Value(e.let(f"icmp eq i32 {votes}, {voters}"), "i1", True)
        else:
            value = Value(e.let(f"icmp ne i32 {votes}, 0"), "i1", True)
        if not e.is_uniform(target.name):
            value = e.vector(value)
        if value.elem == "i1" and not value.uniform:
            value = Value(e.let(f"bitcast {value.typed} to i32"), "i32", True)
        e.emit(f"store {value.typed}, ptr {e.slot(target.name)}, align {4 if value.uniform else 64}")

    def _leave(self, resume: str, code: int) -> None:
        """Return to the driver; the warp goes on at block ``resume``."""
        e = self.e
        live = e.let("load i32, ptr %live, align 4")
        e.emit(f"store i32 {live}, ptr {e.field('%ws', Warp.LIVE)}, align 4")
        e.emit(f"store i32 {resume}, ptr {e.field('%ws', Warp.RESUME)}, align 4")
        e.emit(f"ret i32 {code}")

    def _fault(self, kind: int, site: str = "") -> None:
        """Record a fault at the current instruction (or ``site``) and leave."""
        e = self.e
        site = site or str(e.instruction_index)
        e.emit(f"store i32 {kind}, ptr {e.field('%ctx', Context.FAULT_KIND)}, align 4")
        e.emit(f"store i32 {site}, ptr {e.field('%ctx', Context.FAULT_SITE)}, align 4")
        e.emit("br label %fault")

    def _next(self) -> None:
        """After a slice the lanes behind the ones that used it get a turn: they may hold what those wait for."""
        e = self.e
        e.label("next")
        pcs = e.let(f"load <{LANES} x i32>, ptr {e.field('%ws', Warp.PC)}, align 64")
        last = Value(e.let(f"load i32, ptr {e.field('%ws', Warp.YIELDED)}, align 4"), "i32", True)
        behind = e.let(f"icmp ugt <{LANES} x i32> {pcs}, {e.vector(last).name}")
        alive = e.let(f"bitcast i32 {e.let('load i32, ptr %live, align 4')} to <{LANES} x i1>")
        some = e.let(f"and <{LANES} x i1> {alive}, {behind}")
        wanted = e.let(f"select <{LANES} x i1> {some}, <{LANES} x i32> {pcs}, <{LANES} x i32> splat (i32 2147483647)")
        least = Value(e.let(f"call i32 @llvm.vector.reduce.umin.v32i32(<{LANES} x i32> {wanted})"), "i32", True)
        here = e.let(f"icmp eq <{LANES} x i32> {wanted}, {e.vector(least).name}")
        e.emit(f"store i32 {e.let(f'bitcast <{LANES} x i1> {here} to i32')}, ptr %active, align 4")
        cases = " ".join(f"i32 {k}, label %b{k}" for k in sorted(self.flow.diverged))
        e.emit(f"switch i32 {least.name}, label %schedule [ {cases} ]")

    def _scheduler(self) -> None:
        e = self.e
        e.label("schedule")
        pointer = e.field("%ws", Warp.PC)
        pcs = e.let(f"load <{LANES} x i32>, ptr {pointer}, align 64")
        live = e.let("load i32, ptr %live, align 4")
        alive = e.let(f"bitcast i32 {live} to <{LANES} x i1>")
        wanted = e.let(f"select <{LANES} x i1> {alive}, <{LANES} x i32> {pcs}, <{LANES} x i32> splat (i32 2147483647)")
        least = e.let(f"call i32 @llvm.vector.reduce.umin.v32i32(<{LANES} x i32> {wanted})")
        one = e.let(f"insertelement <{LANES} x i32> poison, i32 {least}, i64 0")
        wide = e.let(f"shufflevector <{LANES} x i32> {one}, <{LANES} x i32> poison, <{LANES} x i32> zeroinitializer")
        here = e.let(f"icmp eq <{LANES} x i32> {wanted}, {wide}")
        bits = e.let(f"bitcast <{LANES} x i1> {here} to i32")
        e.emit(f"store i32 {bits}, ptr %active, align 4")
        together = e.let(f"icmp eq i32 {bits}, {live}")
        cases = []
        for block in self.flow.blocks:
            k = block.index
            cases.append(f"i32 {k}, label %{'b' if k in self.flow.diverged else 's'}{k}")
        e.emit(f"switch i32 {least}, label %parked [ " + " ".join(cases) + " ]")
        e.label("parked")
        resume = e.let(f"sub i32 {least}, {PARKED}")
        e.emit(f"br i1 {together}, label %arrive, label %astray")
        e.label("arrive")
        self._leave(resume, BARRIER)
        e.label("astray")
        barrier = e.let(f"sub i32 {e.let(f'and i32 {resume}, {_WITH_VOTES - 1}')}, 1")
        self._fault(4, barrier)
        for block in self.flow.blocks:
            if block.index not in self.flow.diverged:
                e.label(f"s{block.index}")
                e.emit(f"br i1 {together}, label %b{block.index}, label %unproved")
        e.label("unproved")
        e.instruction_index = 0
        self._fault(7)
        e.label("yield")
        budget = e.field("%ctx", Context.BUDGET)
        slice_start = e.let(f"load i64, ptr {e.field('%ctx', Context.SLICE_START)}, align 8")
        left = e.let(f"sub i64 {e.let(f'load i64, ptr {budget}, align 8')}, {slice_start}")
        e.emit(f"store i64 {left}, ptr {budget}, align 8")
        halted = e.let(f"icmp ne i32 {e.let('load volatile i32, ptr %stop, align 4')}, 0")
        e.emit(f"br i1 {halted}, label %stopped, label %yield.on")
        e.label("yield.on")
        e.emit(f"br i1 {e.let(f'icmp slt i64 {left}, 0')}, label %yield.spent, label %yield.out")
        e.label("yield.spent")
        e.emit(f"store i32 6, ptr {e.field('%ctx', Context.FAULT_KIND)}, align 4")
        e.emit("br label %fault")
        e.label("yield.out")
        self._leave(str(RESCHEDULE), YIELD)
        for name, code in (("done", DONE), ("stopped", STOPPED), ("fault", FAULT)):
            e.label(name)
            e.emit(f"ret i32 {code}")
