"""Control flow of a kernel as one IR function, around the blocks that the lowerings fill.

It runs one warp until it ends, meets a barrier or has used its slice of jumps. Lanes at the smallest block index
run; where all live lanes are known to be together, a branch is a plain jump.
"""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.cfg import ENDS, Block
from fa_bench.ptx.emitter import Emitter, Value
from fa_bench.ptx.isa import UnsupportedInstruction
from fa_bench.ptx.layout import BARRIER, DONE, FAULT, LANES, PARKED, RESCHEDULE, STOPPED, YIELD, Context, Warp
from fa_bench.ptx.lower_barrier import barrier_operands
from fa_bench.ptx.lowerings import lower
from fa_bench.ptx.program import Instruction, Reg, Vec

#: A warp that goes on with the result of a barrier's votes resumes at its block's number plus this.
_WITH_VOTES: Final = 1 << 20
#: Jumps that one counts for where lanes may wait for a lock: the holder should not wait long for its turn.
_LOCK_COST: Final = 64


class WarpFunction:
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
        counter = e.field("%counts", 16 * k)
        old = e.let(f"load i64, ptr {counter}, align 8")
        e.emit(f"store i64 {e.let(f'add i64 {old}, 1')}, ptr {counter}, align 8")
        lanes = e.let(f"zext i32 {e.let(f'call i32 @llvm.ctpop.i32(i32 {e.mask()})')} to i64")
        counter = e.field("%counts", 16 * k + 8)
        old = e.let(f"load i64, ptr {counter}, align 8")
        e.emit(f"store i64 {e.let(f'add i64 {old}, {lanes}')}, ptr {counter}, align 8")
        instructions = self.flow.instructions(block)
        terminator: Instruction | None = None
        for index, instruction in enumerate(instructions, block.start):
            e.instruction_index = index
            if instruction.row.name in ENDS:
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
            lower(self.e, instruction)
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
        target = self.flow.target(instruction.operands[0])
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
        targets = [self.flow.target(label) for label in table.items]
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
        left = e.let(f"load i64, ptr {budget}, align 8")
        halted = e.let(f"icmp ne i32 {e.let('load volatile i32, ptr %stop, align 4')}, 0")
        e.emit(f"br i1 {halted}, label %stopped, label %yield.on")
        e.label("yield.on")
        e.emit(f"br i1 {e.let(f'icmp sle i64 {left}, {slice_start}')}, label %yield.spent, label %yield.out")
        e.label("yield.spent")
        e.emit(f"store i32 6, ptr {e.field('%ctx', Context.FAULT_KIND)}, align 4")
        e.emit("br label %fault")
        e.label("yield.out")
        self._leave(str(RESCHEDULE), YIELD)
        for name, code in (("done", DONE), ("stopped", STOPPED), ("fault", FAULT)):
            e.label(name)
            e.emit(f"ret i32 {code}")
