; mbarrier objects: a 64-bit word in shared memory with the pending arrivals (bits 0 to 19), those that the next phase
; expects (20 to 39) and the number of the phase. Words in dollar braces are constants of layout.py and of the kernel.

; @mbarrier_places(ctx, offsets, mask, out) -> 0 if a fault was recorded: host addresses go to ``out``.
define internal i32 @mbarrier_places(ptr %ctx, <32 x i64> %a, i32 %mask, ptr %out) #1 {
  %p.l = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %size = load i32, ptr %p.l, align 4
  %limit = zext i32 %size to i64
  %l1 = insertelement <32 x i64> poison, i64 %limit, i64 0
  %l = shufflevector <32 x i64> %l1, <32 x i64> poison, <32 x i32> zeroinitializer
  %end = add <32 x i64> %a, splat (i64 8)
  %far = icmp ugt <32 x i64> %a, %l
  %long = icmp ugt <32 x i64> %end, %l
  %outside = or <32 x i1> %far, %long
  %low = and <32 x i64> %a, splat (i64 7)
  %odd = icmp ne <32 x i64> %low, zeroinitializer
  %bad.v = or <32 x i1> %outside, %odd
  %bad.b = bitcast <32 x i1> %bad.v to i32
  %bad = and i32 %bad.b, %mask
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %base = load i64, ptr %p.sh, align 8
  %b1 = insertelement <32 x i64> poison, i64 %base, i64 0
  %b = shufflevector <32 x i64> %b1, <32 x i64> poison, <32 x i32> zeroinitializer
  %there = add <32 x i64> %b, %a
  store <32 x i64> %there, ptr %out, align 64
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %good, label %fault
good:
  ret i32 1
fault:
  %lane = call i32 @llvm.cttz.i32(i32 %bad, i1 true)
  %is.out = extractelement <32 x i1> %outside, i32 %lane
  %kind = select i1 %is.out, i32 3, i32 2
  %offset = extractelement <32 x i64> %a, i32 %lane
  call void @mbarrier_fault(ptr %ctx, i32 %kind, i32 %lane, i64 %offset)
  ret i32 0
}

define internal void @mbarrier_fault(ptr %ctx, i32 %kind, i32 %lane, i64 %offset) #1 {
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 %kind, ptr %f.kind, align 4
  %f.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %lane, ptr %f.lane, align 4
  %f.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %offset, ptr %f.addr, align 8
  %f.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 8, ptr %f.size, align 4
  ret void
}

; @mbarrier_init(ctx, places, mask, counts) -> 0 if a fault was recorded.
define internal i32 @mbarrier_init(ptr %ctx, ptr %at, i32 %mask, ptr %counts) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.next, %store ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %pp = getelementptr ptr, ptr %at, i32 %l
  %p = load ptr, ptr %pp, align 8
  %cp = getelementptr i32, ptr %counts, i32 %l
  %n32 = load i32, ptr %cp, align 4
  %less = sub i32 %n32, 1
  %fine = icmp ult i32 %less, 1048575
  br i1 %fine, label %store, label %bad
store:
  %n = zext i32 %n32 to i64
  %up = shl i64 %n, 20
  %word = or i64 %up, %n
  store i64 %word, ptr %p, align 8
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %lane, label %done
done:
  ret i32 1
bad:
  call void @mbarrier_fault(ptr %ctx, i32 12, i32 %l, i64 0)
  ret i32 0
}

; @mbarrier_arrive(ctx, places, mask, counts, least, drop, states) -> 0 if a fault was recorded: lane after lane. ``least``
; arrivals must stay pending (1 where the phase must not complete); ``drop`` ones are expected no more.
define internal i32 @mbarrier_arrive(ptr %ctx, ptr %at, i32 %mask, ptr %counts, i32 %least, i1 %drop, ptr %out) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.next, %arrive ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %pp = getelementptr ptr, ptr %at, i32 %l
  %p = load ptr, ptr %pp, align 8
  %cp = getelementptr i32, ptr %counts, i32 %l
  %n32 = load i32, ptr %cp, align 4
  %n = zext i32 %n32 to i64
  %word = load i64, ptr %p, align 8
  %pending = and i64 %word, 1048575
  %kept = zext i32 %least to i64
  %need = add i64 %n, %kept
  %fine = icmp ule i64 %need, %pending
  br i1 %fine, label %arrive, label %bad
arrive:
  %op = getelementptr i64, ptr %out, i32 %l
  store i64 %word, ptr %op, align 8
  %fewer = shl i64 %n, 20
  %gone = select i1 %drop, i64 %fewer, i64 0
  %word1 = sub i64 %word, %gone
  call void @mbarrier_take(ptr %p, i64 %word1, i64 %n)
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %lane, label %done
done:
  ret i32 1
bad:
  call void @mbarrier_fault(ptr %ctx, i32 12, i32 %l, i64 0)
  ret i32 0
}

; @mbarrier_take(place, word, n): ``n`` of the word's arrivals are no longer pending; the last one starts a phase.
define internal void @mbarrier_take(ptr %p, i64 %word, i64 %n) #0 {
  %rest = sub i64 %word, %n
  %pending = and i64 %rest, 1048575
  %full = icmp eq i64 %pending, 0
  %up = lshr i64 %rest, 20
  %again = and i64 %up, 1048575
  %next0 = add i64 %rest, 1099511627776
  %next = or i64 %next0, %again
  %new = select i1 %full, i64 %next, i64 %rest
  store i64 %new, ptr %p, align 8
  ret void
}

; @mbarrier_expect(places, mask): each lane adds one pending arrival.
define internal void @mbarrier_expect(ptr %at, i32 %mask) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.next, %lane ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %pp = getelementptr ptr, ptr %at, i32 %l
  %p = load ptr, ptr %pp, align 8
  %word = load i64, ptr %p, align 8
  %word1 = add i64 %word, 1
  store i64 %word1, ptr %p, align 8
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %lane, label %done
done:
  ret void
}

; @queue_arrive(entry): the copies before this entry of a copy queue are done; its lanes arrive. An mbarrier without
; pending arrivals stays as it is.
define internal void @queue_arrive(ptr %e) #1 {
  %e.mask = getelementptr i8, ptr %e, i64 ${Queue.MASK}
  %mask = load i32, ptr %e.mask, align 4
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.next, %next ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %pp = getelementptr ptr, ptr %e, i32 %l
  %p = load ptr, ptr %pp, align 8
  %word = load i64, ptr %p, align 8
  %pending = and i64 %word, 1048575
  %some = icmp ne i64 %pending, 0
  br i1 %some, label %take, label %next
take:
  call void @mbarrier_take(ptr %p, i64 %word, i64 1)
  br label %next
next:
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %lane, label %done
done:
  ret void
}

; @queue_push_arrive(ctx, ws, queue, places, mask): an arrival behind the warp's copies.
define internal void @queue_push_arrive(ptr %ctx, ptr %ws, ptr %queue, <32 x i64> %at, i32 %mask) #1 {
  %e = call ptr @queue_slot(ptr %ctx, ptr %ws, ptr %queue)
  store <32 x i64> %at, ptr %e, align 64
  %e.mask = getelementptr i8, ptr %e, i64 ${Queue.MASK}
  store i32 %mask, ptr %e.mask, align 4
  %e.copy = getelementptr i8, ptr %e, i64 ${Queue.COPY}
  store i32 0, ptr %e.copy, align 4
  ret void
}

; @mbarrier_settle(ctx): somebody looks at an mbarrier. In every warp the copies that an arrival follows are done.
define internal void @mbarrier_settle(ptr %ctx) #1 {
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %p.ws = getelementptr i8, ptr %ctx, i64 ${Context.WARPS}
  %ws0 = load ptr, ptr %p.ws, align 8
  br label %warp
warp:
  %k = phi i32 [ 0, %0 ], [ %k.n, %next ]
  %ws = phi ptr [ %ws0, %0 ], [ %ws.n, %next ]
  %queue = getelementptr i8, ptr %ws, i64 ${QUEUE_OFFSET}
  %p.head = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_HEAD}
  %head = load i32, ptr %p.head, align 4
  %p.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  %tail = load i32, ptr %p.tail, align 4
  br label %look
; The youngest arrival that waits.
look:
  %i = phi i32 [ %head, %warp ], [ %before, %entry ]
  %any = icmp ne i32 %i, %tail
  br i1 %any, label %entry, label %next
entry:
  %before = sub i32 %i, 1
  %slot = urem i32 %before, ${Queue.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, ${Queue.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
  %e.copy = getelementptr i8, ptr %e, i64 ${Queue.COPY}
  %copy = load i32, ptr %e.copy, align 4
  %arrives = icmp eq i32 %copy, 0
  br i1 %arrives, label %complete, label %look
complete:
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %i)
  br label %next
next:
  %k.n = add i32 %k, 1
  %ws.n = getelementptr i8, ptr %ws, i64 ${WARP_BYTES}
  %more = icmp slt i32 %k.n, %nw
  br i1 %more, label %warp, label %done
done:
  ret void
}
