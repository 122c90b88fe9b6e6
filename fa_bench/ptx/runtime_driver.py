"""Run-time part that runs CTAs: warps in turn between barriers, CTAs until the work list is empty. LLVM IR text."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.layout import BARRIER, DEADLOCK, DONE, STOPPED, Context, Warp

READY: Final = 0
WAITING: Final = 1
FINISHED: Final = 2


def _field(name: str, base: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}\n"


def driver(warp_bytes: int, queue_offset: int) -> str:
    """``@run_ctas(ctx, next, list, count) -> code``.

    ``next`` is a counter shared by all workers; CTA numbers come from ``list`` (u64) or, if that is null, are the
    counter itself. ``@run_cta`` runs the warps of one CTA in turn, each up to its next barrier. A barrier opens
    when the expected number of threads arrived; warps that ended count as arrived. If no warp can go on, that is
    a deadlock.
    """
    c, w = Context, Warp
    prepare = (
        "define internal void @prepare(ptr %ctx, i64 %cta) #1 {\n"
        + _field("p.nx", "ctx", c.NCTAID)
        + "  %nx32 = load i32, ptr %p.nx, align 4\n  %nx = zext i32 %nx32 to i64\n"
        + _field("p.ny", "ctx", c.NCTAID + 4)
        + "  %ny32 = load i32, ptr %p.ny, align 4\n  %ny = zext i32 %ny32 to i64\n"
        "  %x = urem i64 %cta, %nx\n  %yz = udiv i64 %cta, %nx\n  %y = urem i64 %yz, %ny\n  %z = udiv i64 %yz, %ny\n"
        + "".join(
            _field(f"p.c{a}", "ctx", c.CTAID + 4 * k)
            + f"  %{a}32 = trunc i64 %{a} to i32\n  store i32 %{a}32, ptr %p.c{a}, align 4\n"
            for k, a in enumerate("xyz")
        )
        + _field("p.arr", "ctx", c.ARRIVED)
        + "  call void @llvm.memset.p0.i64(ptr %p.arr, i8 0, i64 64, i1 false)\n"
        + _field("p.bs", "ctx", c.BUDGET_START)
        + "  %bs = load i64, ptr %p.bs, align 8\n"
        + _field("p.b", "ctx", c.BUDGET)
        + "  store i64 %bs, ptr %p.b, align 8\n"
        + _field("p.ss", "ctx", c.SHARED_SIZE)
        + "  %ss32 = load i32, ptr %p.ss, align 4\n  %ss = zext i32 %ss32 to i64\n"
        + _field("p.sh", "ctx", c.SHARED)
        # 0xFF everywhere is NaN in every float format: data that never arrived shows.
        + "  %sh = load ptr, ptr %p.sh, align 8\n  call void @llvm.memset.p0.i64(ptr %sh, i8 -1, i64 %ss, i1 false)\n"
        + _field("p.nw", "ctx", c.NWARPS)
        + "  %nw = load i32, ptr %p.nw, align 4\n"
        + _field("p.nt", "ctx", c.NTHREADS)
        + "  %nt = load i32, ptr %p.nt, align 4\n"
        + _field("p.ws", "ctx", c.WARPS)
        + f"""  %ws0 = load ptr, ptr %p.ws, align 8
  br label %warp
warp:
  %k = phi i32 [ 0, %0 ], [ %k.n, %warp ]
  %ws = phi ptr [ %ws0, %0 ], [ %ws.n, %warp ]
  %before = shl i32 %k, 5
  %left = sub i32 %nt, %before
  %whole = icmp sge i32 %left, 32
  %short = select i1 %whole, i32 0, i32 %left
  %bit = shl i32 1, %short
  %part = sub i32 %bit, 1
  %live = select i1 %whole, i32 -1, i32 %part
"""
        + _field("q.regs", "ws", w.REGISTERS)
        + f"  call void @llvm.memset.p0.i64(ptr %q.regs, i8 0, i64 {queue_offset - w.REGISTERS}, i1 false)\n"
        + "  store i32 %live, ptr %ws, align 4\n"
        + "".join(
            _field(f"q.{name}", "ws", offset) + f"  store i32 0, ptr %q.{name}, align 4\n"
            for name, offset in (
                ("resume", w.RESUME),
                ("state", w.STATE),
                ("head", w.QUEUE_HEAD),
                ("tail", w.QUEUE_TAIL),
                ("groups", w.GROUPS),
            )
        )
        + f"""  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 {warp_bytes}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %warp, label %out
out:
  ret void
}}
"""
    )
    run_cta = (
        "define internal i32 @run_cta(ptr %ctx) #1 {\n"
        + _field("p.nw", "ctx", c.NWARPS)
        + "  %nw = load i32, ptr %p.nw, align 4\n"
        + _field("p.ws", "ctx", c.WARPS)
        + "  %ws0 = load ptr, ptr %p.ws, align 8\n"
        + _field("arrived", "ctx", c.ARRIVED)
        + _field("p.stop", "ctx", c.STOP)
        + "  %stop = load ptr, ptr %p.stop, align 8\n  br label %round\n"
        + f"""round:
  %halt = load volatile i32, ptr %stop, align 4
  %halted = icmp ne i32 %halt, 0
  br i1 %halted, label %stopped, label %pass
stopped:
  ret i32 {STOPPED}
pass:
  %k = phi i32 [ 0, %round ], [ %k.n, %next ]
  %ws = phi ptr [ %ws0, %round ], [ %ws.n, %next ]
  %ran = phi i32 [ 0, %round ], [ %ran.n, %next ]
  %done = phi i32 [ 0, %round ], [ %done.n, %next ]
"""
        + _field("p.state", "ws", w.STATE)
        + f"""  %state = load i32, ptr %p.state, align 4
  %ready = icmp eq i32 %state, {READY}
  br i1 %ready, label %go, label %skip
skip:
  %over = icmp eq i32 %state, {FINISHED}
  %over32 = zext i1 %over to i32
  br label %next
go:
  %code = call i32 @warp(ptr %ctx, ptr %ws)
  switch i32 %code, label %failed [ i32 {DONE}, label %ended
                                    i32 {BARRIER}, label %waits ]
failed:
"""
        + _field("p.fw", "ctx", c.FAULT_WARP)
        + f"""  store i32 %k, ptr %p.fw, align 4
  ret i32 %code
ended:
  store i32 {FINISHED}, ptr %p.state, align 4
  br label %next
waits:
  store i32 {WAITING}, ptr %p.state, align 4
"""
        + _field("p.bar", "ws", w.BARRIER)
        + """  %bar = load i32, ptr %p.bar, align 4
  %bar64 = zext i32 %bar to i64
  %ap = getelementptr i32, ptr %arrived, i64 %bar64
  %av = load i32, ptr %ap, align 4
  %an = add i32 %av, 32
  store i32 %an, ptr %ap, align 4
  br label %next
next:
  %ran.x = phi i32 [ 0, %skip ], [ 1, %ended ], [ 1, %waits ]
  %done.x = phi i32 [ %over32, %skip ], [ 1, %ended ], [ 0, %waits ]
  %ran.n = or i32 %ran, %ran.x
  %done.n = add i32 %done, %done.x
  %k.n = add i32 %k, 1
"""
        + f"""  %ws.n = getelementptr i8, ptr %ws, i64 {warp_bytes}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %pass, label %check
check:
  %all = icmp eq i32 %done.n, %nw
  br i1 %all, label %finished, label %open
finished:
  ret i32 {DONE}
open:
  %gone = shl i32 %done.n, 5
  %everyone = shl i32 %nw, 5
  br label %waiter
waiter:
  %j = phi i32 [ 0, %open ], [ %j.n, %judged ]
  %wj = phi ptr [ %ws0, %open ], [ %wj.n, %judged ]
  %woke = phi i32 [ 0, %open ], [ %woke.n, %judged ]
"""
        + _field("j.state", "wj", w.STATE)
        + f"""  %js = load i32, ptr %j.state, align 4
  %isw = icmp eq i32 %js, {WAITING}
  br i1 %isw, label %judge, label %judged
judge:
"""
        + _field("j.bar", "wj", w.BARRIER)
        + "  %jb = load i32, ptr %j.bar, align 4\n  %jb64 = zext i32 %jb to i64\n"
        + _field("j.want", "wj", w.BARRIER_THREADS)
        + f"""  %want0 = load i32, ptr %j.want, align 4
  %whole = icmp eq i32 %want0, 0
  %jp = getelementptr i32, ptr %arrived, i64 %jb64
  %here = load i32, ptr %jp, align 4
  %here.g = add i32 %here, %gone
  %want = select i1 %whole, i32 %everyone, i32 %want0
  %have = select i1 %whole, i32 %here.g, i32 %here
  %enough = icmp sge i32 %have, %want
  br i1 %enough, label %wake, label %judged
wake:
  store i32 {READY}, ptr %j.state, align 4
  br label %judged
judged:
  %woke.x = phi i32 [ 0, %waiter ], [ 0, %judge ], [ 1, %wake ]
  %bar.x = phi i64 [ 0, %waiter ], [ %jb64, %judge ], [ %jb64, %wake ]
  %woke.b = trunc i64 %bar.x to i32
  %woke.m = shl i32 %woke.x, %woke.b
  %woke.n = or i32 %woke, %woke.m
  %j.n = add i32 %j, 1
  %wj.n = getelementptr i8, ptr %wj, i64 {warp_bytes}
  %j.more = icmp slt i32 %j.n, %nw
  br i1 %j.more, label %waiter, label %reset
reset:
  %stuck0 = icmp eq i32 %woke.n, 0
  %idle = icmp eq i32 %ran.n, 0
  %stuck = and i1 %stuck0, %idle
  br i1 %stuck, label %dead, label %clear
dead:
  ret i32 {DEADLOCK}
clear:
  %m = phi i32 [ %woke.n, %reset ], [ %m.n, %zero ]
  %any = icmp ne i32 %m, 0
  br i1 %any, label %zero, label %round
zero:
  %id = call i32 @llvm.cttz.i32(i32 %m, i1 true)
  %id64 = zext i32 %id to i64
  %zp = getelementptr i32, ptr %arrived, i64 %id64
  store i32 0, ptr %zp, align 4
  %m1 = sub i32 %m, 1
  %m.n = and i32 %m, %m1
  br label %clear
}}
"""
    )
    run_ctas = (
        "define i32 @run_ctas(ptr %ctx, ptr %next, ptr %list, i64 %count) #1 {\n"
        + _field("p.done", "ctx", c.CTAS_DONE)
        + f"""  br label %take
take:
  %i = atomicrmw add ptr %next, i64 1 monotonic
  %over = icmp uge i64 %i, %count
  br i1 %over, label %out, label %which
out:
  ret i32 {DONE}
which:
  %plain = icmp eq ptr %list, null
  br i1 %plain, label %run, label %listed
listed:
  %lp = getelementptr i64, ptr %list, i64 %i
  %lv = load i64, ptr %lp, align 8
  br label %run
run:
  %cta = phi i64 [ %i, %which ], [ %lv, %listed ]
  call void @prepare(ptr %ctx, i64 %cta)
  %code = call i32 @run_cta(ptr %ctx)
  %fine = icmp eq i32 %code, {DONE}
  br i1 %fine, label %counted, label %failed
counted:
  %d = load i64, ptr %p.done, align 8
  %d1 = add i64 %d, 1
  store i64 %d1, ptr %p.done, align 8
  br label %take
failed:
  ret i32 %code
}}
"""
    )
    return prepare + run_cta + run_ctas
