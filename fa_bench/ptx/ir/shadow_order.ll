; What orders accesses: barriers, copies and their waits, mbarriers, the ends of warps and CTAs, by vector clocks. And what
; needs no order: local memory, and lanes that store to the same place. Words in dollar braces are constants of
; layout.py and of the kernel.

declare <16 x i8> @llvm.masked.load.v16i8.p0(ptr, i32, <16 x i1>, <16 x i8>)
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.ctlz.i32(i32, i1)

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
  %all = load <32 x i32>, ptr %exited, align 64
  br label %spread
spread:
  %j = phi i32 [ 0, %spread.start ], [ %j.n, %spread ]
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

; @observe_wait(ctx, ws, queue, upto): the warp has waited for its copies before number ``upto``: from now on they are
; writes of its own, made at this moment.
define internal void @observe_wait(ptr %ctx, ptr %ws, ptr %queue, i32 %upto) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %warp = load i32, ptr %ck, align 4
  %row = call ptr @clock_row(ptr %ck)
  %p.own = getelementptr i32, ptr %row, i32 %warp
  %own = load i32, ptr %p.own, align 4
  %warp.up = shl i32 %warp, ${Checker.WARP_SHIFT}
  %word = or i32 %warp.up, %own
  %p.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  %tail0 = load i32, ptr %p.tail, align 4
  br label %entry
entry:
  %tail = phi i32 [ %tail0, %0 ], [ %tail.n, %copy ]
  %behind = sub i32 %upto, %tail
  %todo = icmp sgt i32 %behind, 0
  br i1 %todo, label %copy, label %out
copy:
  %slot = urem i32 %tail, ${Queue.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, ${Queue.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
  call void @mark_copy(ptr %ck, ptr %e, i32 0, i32 %word)
  %tail.n = add i32 %tail, 1
  br label %entry
out:
  ret void
}

; @observe_copied(ctx, entry): the data of a copy have arrived.
define internal void @observe_copied(ptr %ctx, ptr %e) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %keep = xor i32 ${Checker.IN_FLIGHT}, -1
  call void @mark_copy(ptr %ck, ptr %e, i32 %keep, i32 0)
  ret void
}

; @mark_copy(checker, entry, keep, set): the words of a copy's bytes keep some bits and get others.
define internal void @mark_copy(ptr %ck, ptr %e, i32 %keep, i32 %set) #1 {
  %p.w = getelementptr i8, ptr %ck, i64 ${Checker.WRITES}
  %writes = load ptr, ptr %p.w, align 8
  %e.dst = getelementptr i8, ptr %e, i64 ${Queue.DST}
  %e.mask = getelementptr i8, ptr %e, i64 ${Queue.MASK}
  %mask = load i32, ptr %e.mask, align 4
  %e.copy = getelementptr i8, ptr %e, i64 ${Queue.COPY}
  %size = load i32, ptr %e.copy, align 4
  %keep1 = insertelement <16 x i32> poison, i32 %keep, i64 0
  %keeps = shufflevector <16 x i32> %keep1, <16 x i32> poison, <16 x i32> zeroinitializer
  %set1 = insertelement <16 x i32> poison, i32 %set, i64 0
  %sets = shufflevector <16 x i32> %set1, <16 x i32> poison, <16 x i32> zeroinitializer
  %size1 = insertelement <16 x i32> poison, i32 %size, i64 0
  %sizes = shufflevector <16 x i32> %size1, <16 x i32> poison, <16 x i32> zeroinitializer
  %used = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %sizes
  %none = icmp eq i32 %mask, 0
  %arrival = icmp eq i32 %size, 0
  %nothing = or i1 %none, %arrival
  br i1 %nothing, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.n, %lane ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %pd = getelementptr i32, ptr %e.dst, i32 %l
  %d = load i32, ptr %pd, align 4
  %d64 = zext i32 %d to i64
  %o = shl i64 %d64, 2
  %p = getelementptr i8, ptr %writes, i64 %o
  %x = load <16 x i32>, ptr %p, align 4
  %kept = and <16 x i32> %x, %keeps
  %new = or <16 x i32> %kept, %sets
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %new, ptr %p, i32 4, <16 x i1> %used)
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %done
done:
  ret void
}

; @observe_mbarrier(ctx, places, mask, access, instruction) -> 0 if there is a finding: an operation on mbarriers.
define internal i32 @observe_mbarrier(ptr %ctx, ptr %at, i32 %mask, i32 %bits, i32 %instruction) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %look
look:
  %offsets = call <32 x i32> @mbarrier_offsets(ptr %ctx, ptr %at)
  %ok = call i32 @shadow_shared(ptr %ctx, <32 x i32> %offsets, i32 %mask, i32 8, i32 %instruction, i32 %bits)
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

; @observe_stored(ctx, host addresses, mask, flags, size, buffer) -> 0 if there is a finding: a store has been done; do
; all lanes find there what they have stored?
define internal i32 @observe_stored(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %flags, i32 %size, ptr %buf) #1 {
  %slots = alloca <32 x i64>, align 64
  %f.c = and i32 %flags, ${FLAG_CONTIGUOUS}
  %contiguous = icmp ne i32 %f.c, 0
  %none = icmp eq i32 %mask, 0
  %apart = or i1 %contiguous, %none
  br i1 %apart, label %done, label %some
some:
  store <32 x i64> %a, ptr %slots, align 64
  %size64 = zext i32 %size to i64
  br label %lane
lane:
  %left = phi i32 [ %mask, %some ], [ %left.n, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i64, ptr %slots, i64 %l64
  %there = load ptr, ptr %sp, align 8
  %h.o = mul i64 %l64, %size64
  %here = getelementptr i8, ptr %buf, i64 %h.o
  br label %piece
piece:
  %from = phi i32 [ 0, %lane ], [ %from.n, %equal ]
  %n = sub i32 %size, %from
  %n1 = insertelement <16 x i32> poison, i32 %n, i64 0
  %ns = shufflevector <16 x i32> %n1, <16 x i32> poison, <16 x i32> zeroinitializer
  %used = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %ns
  %p.there = getelementptr i8, ptr %there, i32 %from
  %p.here = getelementptr i8, ptr %here, i32 %from
  %x = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %p.there, i32 1, <16 x i1> %used, <16 x i8> zeroinitializer)
  %y = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %p.here, i32 1, <16 x i1> %used, <16 x i8> zeroinitializer)
  %ne = icmp ne <16 x i8> %x, %y
  %ne.b = bitcast <16 x i1> %ne to i16
  %same = icmp eq i16 %ne.b, 0
  br i1 %same, label %equal, label %conflict
equal:
  %from.n = add i32 %from, 16
  %p.more = icmp ult i32 %from.n, %size
  br i1 %p.more, label %piece, label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %done
done:
  ret i32 1
; The highest lane that covers the byte has won.
conflict:
  %byte16 = call i16 @llvm.cttz.i16(i16 %ne.b, i1 true)
  %byte0 = zext i16 %byte16 to i32
  %byte = add i32 %byte0, %from
  %byte64 = zext i32 %byte to i64
  %address = ptrtoint ptr %there to i64
  %at = add i64 %address, %byte64
  %at1 = insertelement <32 x i64> poison, i64 %at, i64 0
  %ats = shufflevector <32 x i64> %at1, <32 x i64> poison, <32 x i32> zeroinitializer
  %into = sub <32 x i64> %ats, %a
  %size1 = insertelement <32 x i64> poison, i64 %size64, i64 0
  %sizes = shufflevector <32 x i64> %size1, <32 x i64> poison, <32 x i32> zeroinitializer
  %covers = icmp ult <32 x i64> %into, %sizes
  %covers.b = bitcast <32 x i1> %covers to i32
  %candidates = and i32 %covers.b, %mask
  %zeros = call i32 @llvm.ctlz.i32(i32 %candidates, i1 true)
  %winner = sub i32 31, %zeros
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %sh = load i64, ptr %p.sh, align 8
  %p.size = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %sh.size32 = load i32, ptr %p.size, align 4
  %sh.size = zext i32 %sh.size32 to i64
  %offset = sub i64 %address, %sh
  %inside = icmp ult i64 %offset, %sh.size
  %window = or i64 %offset, ${SHARED_WINDOW}
  %where = select i1 %inside, i64 %window, i64 %address
  call void @finding(ptr %ctx, i32 ${CONFLICT}, i32 %l, i64 %where, i32 %size, i32 %byte, i32 %winner, i32 0)
  ret i32 0
}

; @observe_local(ctx, offsets, mask, size, direction) -> 0 if there is a finding: an access to local memory.
define internal i32 @observe_local(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %slots = alloca <32 x i64>, align 64
  store <32 x i64> %a, ptr %slots, align 64
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %warp = load i32, ptr %ck, align 4
  %warp64 = zext i32 %warp to i64
  %w.o = mul i64 %warp64, ${LOCAL_BYTES}
  %p.local = getelementptr i8, ptr %ck, i64 ${Checker.LOCAL}
  %all = load ptr, ptr %p.local, align 8
  %local = getelementptr i8, ptr %all, i64 %w.o
  %size64 = zext i32 %size to i64
  %writes = icmp ne i64 %dir, ${Buffers.READ}
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.n, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i64, ptr %slots, i64 %l64
  %offset = load i64, ptr %sp, align 8
  %l.o = mul i64 %l64, ${LOCAL_STRIDE}
  %own = getelementptr i8, ptr %local, i64 %l.o
  %p = getelementptr i8, ptr %own, i64 %offset
  br i1 %writes, label %mark, label %byte
mark:
  call void @llvm.memset.p0.i64(ptr %p, i8 1, i64 %size64, i1 false)
  br label %lane.end
byte:
  %j = phi i32 [ 0, %lane ], [ %j.n, %byte.ok ]
  %pj = getelementptr i8, ptr %p, i32 %j
  %state = load i8, ptr %pj, align 1
  %holds = icmp ne i8 %state, 0
  br i1 %holds, label %byte.ok, label %unwritten
byte.ok:
  %j.n = add i32 %j, 1
  %j.more = icmp ult i32 %j.n, %size
  br i1 %j.more, label %byte, label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %done
done:
  ret i32 1
unwritten:
  %address = or i64 %offset, ${LOCAL_WINDOW}
  call void @finding(ptr %ctx, i32 ${UNWRITTEN}, i32 %l, i64 %address, i32 %size, i32 %j, i32 0, i32 0)
  ret i32 0
}
