; What orders accesses: barriers, mbarriers, the ends of warps and CTAs, by vector clocks. Words in dollar braces are
; constants of layout.py and of the kernel.

declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.vector.reduce.umax.v32i32(<32 x i32>)

; @clock_row(checker): what the warp that runs knows to be done.
define internal ptr @clock_row(ptr %ck) #3 {
  %warp = load i32, ptr %ck, align 4
  %warp64 = zext i32 %warp to i64
  %o = mul i64 %warp64, ${Checker.ROW}
  %p = getelementptr i8, ptr %ck, i64 ${Checker.CLOCKS}
  %rows = load ptr, ptr %p, align 8
  %row = getelementptr i8, ptr %rows, i64 %o
  ret ptr %row
}

; @clock_join(to, from): the later of both, warp by warp.
define internal void @clock_join(ptr %to, ptr %from) #3 {
  %x = load <32 x i32>, ptr %to, align 64
  %y = load <32 x i32>, ptr %from, align 64
  %z = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %x, <32 x i32> %y)
  store <32 x i32> %z, ptr %to, align 64
  ret void
}

; @clock_tick(checker): what the warp does from now on is later than what it has released.
define internal void @clock_tick(ptr %ck) #1 {
  %warp = load i32, ptr %ck, align 4
  %row = call ptr @clock_row(ptr %ck)
  %p = getelementptr i32, ptr %row, i32 %warp
  %old = load i32, ptr %p, align 4
  %up = add i32 %old, 1
  %new = call i32 @llvm.umin.i32(i32 %up, i32 ${Checker.CLOCK_MASK})
  store i32 %new, ptr %p, align 4
  ret void
}

; @observe_start(ctx): a CTA begins. All that was done before is known to it; its shared and local memory hold nothing.
define internal void @observe_start(ptr %ctx) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.size = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %size32 = load i32, ptr %p.size, align 4
  %size = zext i32 %size32 to i64
  %words = shl i64 %size, 2
  %p.w = getelementptr i8, ptr %ck, i64 ${Checker.WRITES}
  %writes = load ptr, ptr %p.w, align 8
  call void @llvm.memset.p0.i64(ptr %writes, i8 0, i64 %words, i1 false)
  %p.local = getelementptr i8, ptr %ck, i64 ${Checker.LOCAL}
  %local = load ptr, ptr %p.local, align 8
  %nw64 = zext i32 %nw to i64
  %local.n = mul i64 %nw64, ${LOCAL_BYTES}
  call void @llvm.memset.p0.i64(ptr %local, i8 0, i64 %local.n, i1 false)
  %p.cta = getelementptr i8, ptr %ck, i64 ${Checker.CTA}
  %cta = load i32, ptr %p.cta, align 4
  %cta.n = add i32 %cta, 1
  store i32 %cta.n, ptr %p.cta, align 4
  %p.released = getelementptr i8, ptr %ck, i64 ${Checker.RELEASED}
  call void @llvm.memset.p0.i64(ptr %p.released, i8 0, i64 12, i1 false)
  %p.pending = getelementptr i8, ptr %ck, i64 ${Checker.PENDING}
  store i32 0, ptr %p.pending, align 4
  %p.e = getelementptr i8, ptr %ck, i64 ${Checker.EXITED}
  %exited = load ptr, ptr %p.e, align 8
  %p.rows = getelementptr i8, ptr %ck, i64 ${Checker.CLOCKS}
  %rows = load ptr, ptr %p.rows, align 8
  br label %warp
; The rows' latest clocks, and one step further for each warp's own.
warp:
  %k = phi i32 [ 0, %0 ], [ %k.n, %warp ]
  %row = phi ptr [ %rows, %0 ], [ %row.n, %warp ]
  call void @clock_join(ptr %exited, ptr %row)
  %k.n = add i32 %k, 1
  %row.n = getelementptr i8, ptr %row, i64 ${Checker.ROW}
  %more = icmp ult i32 %k.n, %nw
  br i1 %more, label %warp, label %spread.start
spread.start:
  %sum = load <32 x i32>, ptr %exited, align 64
  %latest = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %sum)
  %high = icmp ugt i32 %latest, ${Checker.CLOCK_LIMIT}
  br i1 %high, label %reset, label %spread.all
; No access of an earlier CTA can race with one to come: the clocks may start anew.
reset:
  %p.pitch = getelementptr i8, ptr %ck, i64 ${Checker.PITCH}
  %pitch = load i64, ptr %p.pitch, align 8
  %reads.n = mul i64 %pitch, %nw64
  %p.reads = getelementptr i8, ptr %ck, i64 ${Checker.READS}
  %reads = load ptr, ptr %p.reads, align 8
  call void @llvm.memset.p0.i64(ptr %reads, i8 0, i64 %reads.n, i1 false)
  %places = lshr i64 %size, 2
  %places.n = add i64 %places, 1
  %sync.n = mul i64 %places.n, ${Checker.ROW}
  %p.sync = getelementptr i8, ptr %ck, i64 ${Checker.SYNC}
  %sync = load ptr, ptr %p.sync, align 8
  call void @llvm.memset.p0.i64(ptr %sync, i8 0, i64 %sync.n, i1 false)
  %p.arrivals = getelementptr i8, ptr %ck, i64 ${Checker.ARRIVALS}
  %arrivals = load ptr, ptr %p.arrivals, align 8
  call void @llvm.memset.p0.i64(ptr %arrivals, i8 0, i64 ${16 * Checker.ROW}, i1 false)
  store <32 x i32> zeroinitializer, ptr %exited, align 64
  br label %spread.all
spread.all:
  %all = phi <32 x i32> [ %sum, %spread.start ], [ zeroinitializer, %reset ]
  br label %spread
spread:
  %j = phi i32 [ 0, %spread.all ], [ %j.n, %spread ]
  store i32 %j, ptr %ck, align 4
  %there = call ptr @clock_row(ptr %ck)
  store <32 x i32> %all, ptr %there, align 64
  call void @clock_tick(ptr %ck)
  %j.n = add i32 %j, 1
  %j.more = icmp ult i32 %j.n, %nw
  br i1 %j.more, label %spread, label %done
done:
  ret void
}

define internal void @observe_turn(ptr %ctx, i32 %warp) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  store i32 %warp, ptr %ck, align 4
  ret void
}

; @observe_lanes(ctx): the lanes of the warp have waited for each other.
define internal void @observe_lanes(ptr %ctx) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  call void @clock_tick(ptr %ck)
  ret void
}

; @observe_exit(ctx): the warp has ended. Barriers that count only those that have not are passed later than this.
define internal void @observe_exit(ptr %ctx) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %row = call ptr @clock_row(ptr %ck)
  %p.e = getelementptr i8, ptr %ck, i64 ${Checker.EXITED}
  %exited = load ptr, ptr %p.e, align 8
  call void @clock_join(ptr %exited, ptr %row)
  ret void
}

; @observe_end(ctx) -> 0 if there is a finding: all warps have ended, and none has written what one read too early.
define internal i32 @observe_end(ptr %ctx) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p = getelementptr i8, ptr %ck, i64 ${Checker.PENDING}
  %pending = load i32, ptr %p, align 4
  %none = icmp eq i32 %pending, 0
  br i1 %none, label %clean, label %found
clean:
  ret i32 1
found:
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 ${UNWRITTEN}, ptr %f.kind, align 4
  ret i32 0
}

; @observe_arrive(ctx, barrier, threads) -> 0 if there is a finding: the warp that runs is about to arrive.
define internal i32 @observe_arrive(ptr %ctx, i32 %bar, i32 %want) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %threads = shl i32 %nw, 5
  %whole = icmp eq i32 %want, 0
  %n = select i1 %whole, i32 %threads, i32 %want
  %p.arrived = getelementptr i8, ptr %ctx, i64 ${Context.ARRIVED}
  %p.here = getelementptr i32, ptr %p.arrived, i32 %bar
  %here = load i32, ptr %p.here, align 4
  %p.expected = getelementptr i8, ptr %ck, i64 ${Checker.EXPECTED}
  %p.n = getelementptr i32, ptr %p.expected, i32 %bar
  %before = load i32, ptr %p.n, align 4
  %first = icmp eq i32 %here, 0
  %equal = icmp eq i32 %before, %n
  %ok = or i1 %first, %equal
  br i1 %ok, label %arrive, label %differ
differ:
  call void @finding(ptr %ctx, i32 ${COUNTS_DIFFER}, i32 %bar, i64 0, i32 %n, i32 %before, i32 0, i32 0)
  ret i32 0
arrive:
  store i32 %n, ptr %p.n, align 4
  %row = call ptr @clock_row(ptr %ck)
  %there = call ptr @arrival_row(ptr %ck, i32 %bar)
  call void @clock_join(ptr %there, ptr %row)
  call void @clock_tick(ptr %ck)
  ret i32 1
}

define internal ptr @arrival_row(ptr %ck, i32 %bar) #3 {
  %bar64 = zext i32 %bar to i64
  %o = mul i64 %bar64, ${Checker.ROW}
  %p = getelementptr i8, ptr %ck, i64 ${Checker.ARRIVALS}
  %rows = load ptr, ptr %p, align 8
  %row = getelementptr i8, ptr %rows, i64 %o
  ret ptr %row
}

; @observe_open(ctx, barrier, threads): the barrier is full; its warps, which still wait, know what was done before it.
define internal void @observe_open(ptr %ctx, i32 %bar, i32 %want) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.ws = getelementptr i8, ptr %ctx, i64 ${Context.WARPS}
  %ws0 = load ptr, ptr %p.ws, align 8
  %p.rows = getelementptr i8, ptr %ck, i64 ${Checker.CLOCKS}
  %rows = load ptr, ptr %p.rows, align 8
  %arrivals = call ptr @arrival_row(ptr %ck, i32 %bar)
  %whole = icmp eq i32 %want, 0
  br i1 %whole, label %ended, label %warp
ended:
  %p.e = getelementptr i8, ptr %ck, i64 ${Checker.EXITED}
  %exited = load ptr, ptr %p.e, align 8
  call void @clock_join(ptr %arrivals, ptr %exited)
  br label %warp
warp:
  %k = phi i32 [ 0, %0 ], [ 0, %ended ], [ %k.n, %next ]
  %ws = phi ptr [ %ws0, %0 ], [ %ws0, %ended ], [ %ws.n, %next ]
  %row = phi ptr [ %rows, %0 ], [ %rows, %ended ], [ %row.n, %next ]
  %p.state = getelementptr i8, ptr %ws, i64 ${Warp.STATE}
  %state = load i32, ptr %p.state, align 4
  %waits = icmp eq i32 %state, ${WAITING}
  %p.bar = getelementptr i8, ptr %ws, i64 ${Warp.BARRIER}
  %b = load i32, ptr %p.bar, align 4
  %here = icmp eq i32 %b, %bar
  %mine = and i1 %waits, %here
  br i1 %mine, label %pass, label %next
pass:
  call void @clock_join(ptr %row, ptr %arrivals)
  br label %next
next:
  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 ${WARP_BYTES}
  %row.n = getelementptr i8, ptr %row, i64 ${Checker.ROW}
  %more = icmp ult i32 %k.n, %nw
  br i1 %more, label %warp, label %done
done:
  store <32 x i32> zeroinitializer, ptr %arrivals, align 64
  ret void
}

; @observe_mbarrier(ctx, places, mask, access, instruction) -> 0 if there is a finding: an operation on mbarriers.
define internal i32 @observe_mbarrier(ptr %ctx, ptr %at, i32 %mask, i32 %bits, i32 %instruction) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %look
look:
  %offsets = call <32 x i32> @mbarrier_offsets(ptr %ctx, ptr %at)
  %ok = call i32 @shadow_shared(ptr %ctx, <32 x i32> %offsets, i32 %mask, i32 8, i32 %instruction, i32 %bits, i32 -1)
  ret i32 %ok
done:
  ret i32 1
}

; @observe_passed(ctx, places, mask): the phase that these lanes asked about is complete.
define internal void @observe_passed(ptr %ctx, ptr %at, i32 %mask) #1 {
  %slots = alloca <32 x i32>, align 64
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %look
look:
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %offsets = call <32 x i32> @mbarrier_offsets(ptr %ctx, ptr %at)
  store <32 x i32> %offsets, ptr %slots, align 64
  call void @sync_acquire(ptr %ck, ptr %slots, i32 %mask)
  br label %done
done:
  ret void
}

define internal <32 x i32> @mbarrier_offsets(ptr %ctx, ptr %at) #1 {
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %base = load i64, ptr %p.sh, align 8
  %b1 = insertelement <32 x i64> poison, i64 %base, i64 0
  %b = shufflevector <32 x i64> %b1, <32 x i64> poison, <32 x i32> zeroinitializer
  %there = load <32 x i64>, ptr %at, align 64
  %far = sub <32 x i64> %there, %b
  %offsets = trunc <32 x i64> %far to <32 x i32>
  ret <32 x i32> %offsets
}
