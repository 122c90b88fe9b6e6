; Runs CTAs: warps in turn between barriers. Words in dollar braces are constants of layout.py and of the kernel.

; @prepare(ctx, cta): coordinates, poisoned shared memory, fresh warps.
define internal void @prepare(ptr %ctx, i64 %cta) #1 {
  %p.nx = getelementptr i8, ptr %ctx, i64 ${Context.NCTAID}
  %nx32 = load i32, ptr %p.nx, align 4
  %nx = zext i32 %nx32 to i64
  %p.ny = getelementptr i8, ptr %ctx, i64 ${Context.NCTAID + 4}
  %ny32 = load i32, ptr %p.ny, align 4
  %ny = zext i32 %ny32 to i64
  %x = urem i64 %cta, %nx
  %yz = udiv i64 %cta, %nx
  %y = urem i64 %yz, %ny
  %z = udiv i64 %yz, %ny
  %p.cx = getelementptr i8, ptr %ctx, i64 ${Context.CTAID + 0}
  %x32 = trunc i64 %x to i32
  store i32 %x32, ptr %p.cx, align 4
  %p.cy = getelementptr i8, ptr %ctx, i64 ${Context.CTAID + 4}
  %y32 = trunc i64 %y to i32
  store i32 %y32, ptr %p.cy, align 4
  %p.cz = getelementptr i8, ptr %ctx, i64 ${Context.CTAID + 8}
  %z32 = trunc i64 %z to i32
  store i32 %z32, ptr %p.cz, align 4
  %p.arr = getelementptr i8, ptr %ctx, i64 ${Context.ARRIVED}
  call void @llvm.memset.p0.i64(ptr %p.arr, i8 0, i64 64, i1 false)
  %p.votes = getelementptr i8, ptr %ctx, i64 ${Context.VOTES}
  call void @llvm.memset.p0.i64(ptr %p.votes, i8 0, i64 128, i1 false)
  %p.bs = getelementptr i8, ptr %ctx, i64 ${Context.BUDGET_START}
  %bs = load i64, ptr %p.bs, align 8
  %p.b = getelementptr i8, ptr %ctx, i64 ${Context.BUDGET}
  store i64 %bs, ptr %p.b, align 8
  %p.ss = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %ss32 = load i32, ptr %p.ss, align 4
  %ss = zext i32 %ss32 to i64
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
; 0xFF everywhere is NaN in every float format: data that never arrived shows.
  %sh = load ptr, ptr %p.sh, align 8
  call void @llvm.memset.p0.i64(ptr %sh, i8 -1, i64 %ss, i1 false)
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.nt = getelementptr i8, ptr %ctx, i64 ${Context.NTHREADS}
  %nt = load i32, ptr %p.nt, align 4
  %p.ws = getelementptr i8, ptr %ctx, i64 ${Context.WARPS}
  %ws0 = load ptr, ptr %p.ws, align 8
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
  %q.regs = getelementptr i8, ptr %ws, i64 ${Warp.REGISTERS}
  call void @llvm.memset.p0.i64(ptr %q.regs, i8 0, i64 ${QUEUE_OFFSET - Warp.REGISTERS}, i1 false)
  %q.local = getelementptr i8, ptr %ws, i64 ${LOCAL_OFFSET}
  call void @llvm.memset.p0.i64(ptr %q.local, i8 -1, i64 ${LOCAL_BYTES}, i1 false)
  store i32 %live, ptr %ws, align 4
  %q.resume = getelementptr i8, ptr %ws, i64 ${Warp.RESUME}
  store i32 0, ptr %q.resume, align 4
  %q.state = getelementptr i8, ptr %ws, i64 ${Warp.STATE}
  store i32 0, ptr %q.state, align 4
  %q.head = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_HEAD}
  store i32 0, ptr %q.head, align 4
  %q.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  store i32 0, ptr %q.tail, align 4
  %q.groups = getelementptr i8, ptr %ws, i64 ${Warp.GROUPS}
  store i32 0, ptr %q.groups, align 4
  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 ${WARP_BYTES}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %warp, label %out
out:
  call void @observe_start(ptr %ctx)
  ret void
}
; @turn(ctx) -> code: each warp of the CTA that can go on does so, up to its next barrier or the end of its slice.
; ${YIELD}: there is more to do.
define internal i32 @turn(ptr %ctx) #1 {
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.ws = getelementptr i8, ptr %ctx, i64 ${Context.WARPS}
  %ws0 = load ptr, ptr %p.ws, align 8
  %p.stop = getelementptr i8, ptr %ctx, i64 ${Context.STOP}
  %stop = load ptr, ptr %p.stop, align 8
  %slice = getelementptr i8, ptr %ctx, i64 ${Context.SLICE}
  %p.slice = getelementptr i8, ptr %ctx, i64 ${Context.SLICE_START}
  %slice.start = load i64, ptr %p.slice, align 8
  %halt = load volatile i32, ptr %stop, align 4
  %halted = icmp ne i32 %halt, 0
  br i1 %halted, label %stopped, label %pass
stopped:
  ret i32 ${STOPPED}
pass:
  %k = phi i32 [ 0, %0 ], [ %k.n, %next ]
  %ws = phi ptr [ %ws0, %0 ], [ %ws.n, %next ]
  %ran = phi i32 [ 0, %0 ], [ %ran.n, %next ]
  %done = phi i32 [ 0, %0 ], [ %done.n, %next ]
  %p.state = getelementptr i8, ptr %ws, i64 ${Warp.STATE}
  %state = load i32, ptr %p.state, align 4
  %ready = icmp eq i32 %state, ${READY}
  br i1 %ready, label %go, label %skip
skip:
  %over = icmp eq i32 %state, ${FINISHED}
  %over32 = zext i1 %over to i32
  br label %next
go:
  ; No more jumps than the CTA has left: a loop around a barrier must end too.
  %p.budget = getelementptr i8, ptr %ctx, i64 ${Context.BUDGET}
  %budget = load i64, ptr %p.budget, align 8
  %few = icmp slt i64 %budget, %slice.start
  %granted = select i1 %few, i64 %budget, i64 %slice.start
  store i64 %granted, ptr %slice, align 8
  call void @observe_turn(ptr %ctx, i32 %k)
  %code = call i32 @warp(ptr %ctx, ptr %ws)
  %unused = load i64, ptr %slice, align 8
  %used = sub i64 %granted, %unused
  %budget.n = sub i64 %budget, %used
  store i64 %budget.n, ptr %p.budget, align 8
  switch i32 %code, label %failed [ i32 ${DONE}, label %ended
                                    i32 ${BARRIER}, label %waits
                                    i32 ${YIELD}, label %next ]
failed:
  %failure = phi i32 [ %code, %go ], [ ${FAULT}, %mismatched ]
  %p.fw = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_WARP}
  store i32 %k, ptr %p.fw, align 4
  ret i32 %failure
ended:
  call void @observe_exit(ptr %ctx)
  store i32 ${FINISHED}, ptr %p.state, align 4
  br label %next
waits:
  store i32 ${WAITING}, ptr %p.state, align 4
  %p.bar = getelementptr i8, ptr %ws, i64 ${Warp.BARRIER}
  %bar = load i32, ptr %p.bar, align 4
  %p.want = getelementptr i8, ptr %ws, i64 ${Warp.BARRIER_THREADS}
  %want = load i32, ptr %p.want, align 4
  %allowed = call i32 @observe_arrive(ptr %ctx, i32 %bar, i32 %want)
  %refused = icmp eq i32 %allowed, 0
  br i1 %refused, label %mismatched, label %arrives
; No instruction is at hand: minus the number of the block at which the warp would go on. A higher bit says that it
; would first take votes.
mismatched:
  %p.resume = getelementptr i8, ptr %ws, i64 ${Warp.RESUME}
  %resume = load i32, ptr %p.resume, align 4
  %behind = and i32 %resume, 1048575
  %site = sub i32 0, %behind
  %p.site = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SITE}
  store i32 %site, ptr %p.site, align 4
  br label %failed
arrives:
  call void @barrier_arrive(ptr %ctx, i32 %bar, i32 %want)
  br label %next
next:
  %ran.x = phi i32 [ 0, %skip ], [ 1, %ended ], [ 1, %arrives ], [ 1, %go ]
  %done.x = phi i32 [ %over32, %skip ], [ 1, %ended ], [ 0, %arrives ], [ 0, %go ]
  %ran.n = or i32 %ran, %ran.x
  %done.n = add i32 %done, %done.x
  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 ${WARP_BYTES}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %pass, label %check
check:
  %all = icmp eq i32 %done.n, %nw
  br i1 %all, label %finished, label %open
finished:
  %clean = call i32 @observe_end(ptr %ctx)
  %found = icmp eq i32 %clean, 0
  %outcome = select i1 %found, i32 ${FAULT}, i32 ${DONE}
  ret i32 %outcome
; Warps that ended count as arrived where a barrier is for all threads: it may have become full by that.
open:
  br label %waiter
waiter:
  %j = phi i32 [ 0, %open ], [ %j.n, %judged ]
  %wj = phi ptr [ %ws0, %open ], [ %wj.n, %judged ]
  %woke = phi i32 [ 0, %open ], [ %woke.n, %judged ]
  %j.state = getelementptr i8, ptr %wj, i64 ${Warp.STATE}
  %js = load i32, ptr %j.state, align 4
  %isw = icmp eq i32 %js, ${WAITING}
  br i1 %isw, label %judge, label %judged
judge:
  %j.bar = getelementptr i8, ptr %wj, i64 ${Warp.BARRIER}
  %jb = load i32, ptr %j.bar, align 4
  %j.want = getelementptr i8, ptr %wj, i64 ${Warp.BARRIER_THREADS}
  %want.j = load i32, ptr %j.want, align 4
  %opened = call i32 @barrier_open_if_full(ptr %ctx, i32 %jb, i32 %want.j)
  br label %judged
judged:
  %woke.x = phi i32 [ 0, %waiter ], [ %opened, %judge ]
  %woke.n = or i32 %woke, %woke.x
  %j.n = add i32 %j, 1
  %wj.n = getelementptr i8, ptr %wj, i64 ${WARP_BYTES}
  %j.more = icmp slt i32 %j.n, %nw
  br i1 %j.more, label %waiter, label %stuck
; Nobody ran and no barrier opened: a deadlock.
stuck:
  %moved = or i32 %woke.n, %ran.n
  %dead = icmp eq i32 %moved, 0
  br i1 %dead, label %deadlock, label %again
again:
  ret i32 ${YIELD}
deadlock:
  ret i32 ${DEADLOCK}
}

; @run_cta(ctx) -> code: one CTA to its end.
define internal i32 @run_cta(ptr %ctx) #1 {
  br label %round
round:
  %code = call i32 @turn(ptr %ctx)
  %more = icmp eq i32 %code, ${YIELD}
  br i1 %more, label %round, label %out
out:
  ret i32 %code
}

; @run_ctas(ctx, next, list, count) -> code: CTAs until the shared counter ``next`` reaches ``count``; their numbers
; come from ``list`` or, if that is null, are the counter itself.
define i32 @run_ctas(ptr %ctx, ptr %next, ptr %list, i64 %count) #1 {
  %p.done = getelementptr i8, ptr %ctx, i64 ${Context.CTAS_DONE}
  br label %take
take:
  %i = atomicrmw add ptr %next, i64 1 monotonic
  %over = icmp uge i64 %i, %count
  br i1 %over, label %out, label %which
out:
  ret i32 ${DONE}
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
  %fine = icmp eq i32 %code, ${DONE}
  br i1 %fine, label %counted, label %failed
counted:
  %d = load i64, ptr %p.done, align 8
  %d1 = add i64 %d, 1
  store i64 %d1, ptr %p.done, align 8
  br label %take
failed:
  ret i32 %code
}
