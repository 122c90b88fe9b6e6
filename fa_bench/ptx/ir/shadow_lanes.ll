; Copies and their waits; stores of lanes to the same place; local memory. Words in dollar braces are constants of
; layout.py and of the kernel.

declare <16 x i8> @llvm.masked.load.v16i8.p0(ptr, i32, <16 x i1>, <16 x i8>)

; @observe_copy(ctx, sites, addresses, bytes, mask) -> 0 if there is a finding: what a cp.async reads.
define internal i32 @observe_copy(ptr %ctx, ptr %sites, <32 x i64> %src, <32 x i32> %bytes, i32 %mask) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %look
look:
  %p.origin = getelementptr i8, ptr %sites, i64 ${GlobalSite.ORIGIN}
  %origin = load i32, ptr %p.origin, align 4
  %ok = call i32 @shadow_global(ptr %ctx, <32 x i64> %src, <32 x i32> %bytes, i32 %mask, i32 %origin, i32 ${Access.READS})
  ret i32 %ok
done:
  ret i32 1
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
