; CTA barriers: a barrier opens at the very arrival that makes it full, so that a later one belongs to its next phase.
; Words in dollar braces are constants of layout.py and of the kernel.

; @barrier_arrive(ctx, barrier, threads): 32 threads arrive; ``threads`` are expected, 0 stands for all of the CTA.
define internal void @barrier_arrive(ptr %ctx, i32 %bar, i32 %want) #1 {
  %arrived = getelementptr i8, ptr %ctx, i64 ${Context.ARRIVED}
  %bar64 = zext i32 %bar to i64
  %p = getelementptr i32, ptr %arrived, i64 %bar64
  %v = load i32, ptr %p, align 4
  %n = add i32 %v, 32
  store i32 %n, ptr %p, align 4
  %o = call i32 @barrier_open_if_full(ptr %ctx, i32 %bar, i32 %want)
  ret void
}

; @barrier_open_if_full(ctx, barrier, threads) -> 1 if it opened: its warps go on, each with the votes of the phase.
define internal i32 @barrier_open_if_full(ptr %ctx, i32 %bar, i32 %want0) #1 {
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.ws = getelementptr i8, ptr %ctx, i64 ${Context.WARPS}
  %ws0 = load ptr, ptr %p.ws, align 8
  %bar64 = zext i32 %bar to i64
  %arrived = getelementptr i8, ptr %ctx, i64 ${Context.ARRIVED}
  %p.here = getelementptr i32, ptr %arrived, i64 %bar64
  %here = load i32, ptr %p.here, align 4
  %whole = icmp eq i32 %want0, 0
  br i1 %whole, label %count, label %compare
; All threads of the warps that have not ended.
count:
  %k = phi i32 [ 0, %0 ], [ %k.n, %count ]
  %ws = phi ptr [ %ws0, %0 ], [ %ws.n, %count ]
  %alive = phi i32 [ 0, %0 ], [ %alive.n, %count ]
  %p.state = getelementptr i8, ptr %ws, i64 ${Warp.STATE}
  %state = load i32, ptr %p.state, align 4
  %over = icmp eq i32 %state, ${FINISHED}
  %threads = select i1 %over, i32 0, i32 32
  %alive.n = add i32 %alive, %threads
  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 ${WARP_BYTES}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %count, label %compare
compare:
  %want = phi i32 [ %want0, %0 ], [ %alive.n, %count ]
  %full = icmp sge i32 %here, %want
  br i1 %full, label %open, label %shut
shut:
  ret i32 0
open:
  call void @observe_open(ptr %ctx, i32 %bar, i32 %want0)
  %p.votes = getelementptr i8, ptr %ctx, i64 ${Context.VOTES}
  %p.vote = getelementptr i32, ptr %p.votes, i64 %bar64
  %votes = load i32, ptr %p.vote, align 4
  %p.voters = getelementptr i8, ptr %ctx, i64 ${Context.VOTERS}
  %p.voter = getelementptr i32, ptr %p.voters, i64 %bar64
  %voters = load i32, ptr %p.voter, align 4
  store i32 0, ptr %p.vote, align 4
  store i32 0, ptr %p.voter, align 4
  store i32 0, ptr %p.here, align 4
  br label %warp
warp:
  %j = phi i32 [ 0, %open ], [ %j.n, %next ]
  %wj = phi ptr [ %ws0, %open ], [ %wj.n, %next ]
  %j.state = getelementptr i8, ptr %wj, i64 ${Warp.STATE}
  %js = load i32, ptr %j.state, align 4
  %waits = icmp eq i32 %js, ${WAITING}
  %j.bar = getelementptr i8, ptr %wj, i64 ${Warp.BARRIER}
  %jb = load i32, ptr %j.bar, align 4
  %same = icmp eq i32 %jb, %bar
  %mine = and i1 %waits, %same
  br i1 %mine, label %wake, label %next
wake:
  store i32 ${READY}, ptr %j.state, align 4
  %j.votes = getelementptr i8, ptr %wj, i64 ${Warp.VOTES}
  store i32 %votes, ptr %j.votes, align 4
  %j.voters = getelementptr i8, ptr %wj, i64 ${Warp.VOTERS}
  store i32 %voters, ptr %j.voters, align 4
  br label %next
next:
  %j.n = add i32 %j, 1
  %wj.n = getelementptr i8, ptr %wj, i64 ${WARP_BYTES}
  %j.more = icmp slt i32 %j.n, %nw
  br i1 %j.more, label %warp, label %done
done:
  ret i32 1
}
