; Deferred cp.async. A copy is queued when it is issued and done when a wait covers its group: data that is read too
; early is not there. Words in dollar braces are constants of layout.py.

; @cp_async(ctx, ws, queue, global site, shared site, to, from, bytes, mask, size) -> flags, 0 if a fault was
; recorded. Lanes with 0 bytes touch no global memory and fill shared memory with zeros.
define internal i32 @cp_async(ptr %ctx, ptr %ws, ptr %queue, ptr %gsite, ptr %ssite, <32 x i32> %dst, <32 x i64> %src, <32 x i32> %bytes, i32 %mask, i32 %size) #1 {
  %some = icmp ne <32 x i32> %bytes, zeroinitializer
  %someb = bitcast <32 x i1> %some to i32
  %gmask = and i32 %someb, %mask
; A lane that reads fewer bytes than it writes may end where its buffer does. All its bytes are in one sector, that of the
; last one; at its alignment nothing is left to check but where that one lies.
  %size.one = insertelement <32 x i32> poison, i32 %size, i64 0
  %size.v = shufflevector <32 x i32> %size.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %less = icmp ult <32 x i32> %bytes, %size.v
  %less.b = bitcast <32 x i1> %less to i32
  %short = and i32 %less.b, %gmask
  %size64 = zext i32 %size to i64
  %low.1 = sub i64 %size64, 1
  %low.one = insertelement <32 x i64> poison, i64 %low.1, i64 0
  %low.v = shufflevector <32 x i64> %low.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %off = and <32 x i64> %src, %low.v
  %odd = icmp ne <32 x i64> %off, zeroinitializer
  %odd.b = bitcast <32 x i1> %odd to i32
  %astray = and i32 %odd.b, %gmask
  %some.short = icmp ne i32 %short, 0
  %all.even = icmp eq i32 %astray, 0
  %tail = and i1 %some.short, %all.even
  %bytes64 = zext <32 x i32> %bytes to <32 x i64>
  %ends = add <32 x i64> %src, %bytes64
  %last = sub <32 x i64> %ends, splat (i64 1)
  %where = select i1 %tail, <32 x i64> %last, <32 x i64> %src
  %each = select i1 %tail, i32 1, i32 %size
  %g = call i32 @global_count(ptr %ctx, ptr %gsite, <32 x i64> %where, i32 %gmask, i32 %each, i64 ${Buffers.READ})
  %s = call i32 @shared_count(ptr %ctx, ptr %ssite, <32 x i32> %dst, i32 %mask, i32 %size, i64 ${Buffers.COPY})
  %gz = icmp eq i32 %g, 0
  %sz = icmp eq i32 %s, 0
  %bad = or i1 %gz, %sz
  br i1 %bad, label %fault, label %go
fault:
  ret i32 0
go:
  %seen = call i32 @observe_copy(ptr %ctx, ptr %gsite, <32 x i64> %src, <32 x i32> %bytes, i32 %gmask)
  %finding = icmp eq i32 %seen, 0
  br i1 %finding, label %fault, label %queue.it
queue.it:
  %e = call ptr @queue_slot(ptr %ctx, ptr %ws, ptr %queue)
  store <32 x i64> %src, ptr %e, align 64
  %e.dst = getelementptr i8, ptr %e, i64 ${Queue.DST}
  store <32 x i32> %dst, ptr %e.dst, align 64
  %e.bytes = getelementptr i8, ptr %e, i64 ${Queue.BYTES}
  store <32 x i32> %bytes, ptr %e.bytes, align 64
  %e.mask = getelementptr i8, ptr %e, i64 ${Queue.MASK}
  store i32 %mask, ptr %e.mask, align 4
  %e.copy = getelementptr i8, ptr %e, i64 ${Queue.COPY}
  store i32 %size, ptr %e.copy, align 4
  ret i32 1
}

; @queue_slot(ctx, ws, queue): a new entry at the head of the queue.
define internal ptr @queue_slot(ptr %ctx, ptr %ws, ptr %queue) #3 {
  %p.head = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_HEAD}
  %head = load i32, ptr %p.head, align 4
  %p.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  %tail = load i32, ptr %p.tail, align 4
  %used = sub i32 %head, %tail
  %full = icmp uge i32 %used, ${Queue.ENTRIES}
  br i1 %full, label %drain, label %push
; A full queue completes its oldest copy, which hardware may do at any time.
drain:
  %one = add i32 %tail, 1
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %one)
  br label %push
push:
  %slot = urem i32 %head, ${Queue.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, ${Queue.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
  %head.n = add i32 %head, 1
  store i32 %head.n, ptr %p.head, align 4
  ret ptr %e
}

; @cp_complete(ctx, ws, queue, upto): do the queued copies before number ``upto``.
define internal void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %upto) #1 {
  %p.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  %tail0 = load i32, ptr %p.tail, align 4
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %sh = load ptr, ptr %p.sh, align 8
  br label %entry
entry:
  %tail = phi i32 [ %tail0, %0 ], [ %tail.n, %next ]
  %behind = sub i32 %upto, %tail
  %todo = icmp sgt i32 %behind, 0
  br i1 %todo, label %copy, label %out
out:
  store i32 %tail, ptr %p.tail, align 4
  ret void
copy:
  %slot = urem i32 %tail, ${Queue.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, ${Queue.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
  %e.dst = getelementptr i8, ptr %e, i64 ${Queue.DST}
  %e.bytes = getelementptr i8, ptr %e, i64 ${Queue.BYTES}
  %e.mask = getelementptr i8, ptr %e, i64 ${Queue.MASK}
  %e.copy = getelementptr i8, ptr %e, i64 ${Queue.COPY}
  %mask = load i32, ptr %e.mask, align 4
  %size = load i32, ptr %e.copy, align 4
  %size64 = zext i32 %size to i64
  %is16 = icmp eq i32 %size, 16
  %none = icmp eq i32 %mask, 0
  call void @observe_copied(ptr %ctx, ptr %e)
  br i1 %none, label %next, label %kind
; An entry without bytes to write is an arrival at mbarriers.
kind:
  %arrives = icmp eq i32 %size, 0
  br i1 %arrives, label %arrive, label %lane
arrive:
  call void @queue_arrive(ptr %e)
  br label %next
lane:
  %left = phi i32 [ %mask, %kind ], [ %left.n, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %ps = getelementptr i64, ptr %e, i64 %l64
  %src = load ptr, ptr %ps, align 8
  %pd = getelementptr i32, ptr %e.dst, i64 %l64
  %d32 = load i32, ptr %pd, align 4
  %d64 = zext i32 %d32 to i64
  %dst = getelementptr i8, ptr %sh, i64 %d64
  %pb = getelementptr i32, ptr %e.bytes, i64 %l64
  %b = load i32, ptr %pb, align 4
  %whole = icmp eq i32 %b, 16
  %quick = and i1 %whole, %is16
  br i1 %quick, label %wide, label %part
wide:
  %v = load <2 x i64>, ptr %src, align 16
  store <2 x i64> %v, ptr %dst, align 16
  br label %lane.end
part:
  %b64 = zext i32 %b to i64
  call void @llvm.memset.p0.i64(ptr %dst, i8 0, i64 %size64, i1 false)
  %has = icmp ne i32 %b, 0
  br i1 %has, label %bytes.copy, label %lane.end
bytes.copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %b64, i1 false)
  br label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %next
next:
  %tail.n = add i32 %tail, 1
  br label %entry
}

; @cp_commit(ctx, ws, queue): what was queued since the last commit becomes a group.
define internal void @cp_commit(ptr %ctx, ptr %ws, ptr %queue) #1 {
  %p.groups = getelementptr i8, ptr %ws, i64 ${Warp.GROUPS}
  %n = load i32, ptr %p.groups, align 4
  %p.head = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_HEAD}
  %head = load i32, ptr %p.head, align 4
  %slot = urem i32 %n, ${Queue.GROUPS}
  %slot64 = zext i32 %slot to i64
  %wrapped = icmp uge i32 %n, ${Queue.GROUPS}
  %ends = getelementptr i8, ptr %ws, i64 ${Warp.GROUP_END}
  %p = getelementptr i32, ptr %ends, i64 %slot64
  br i1 %wrapped, label %oldest, label %store
; The list of group ends is full: its oldest group completes.
oldest:
  %end = load i32, ptr %p, align 4
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %end)
  br label %store
store:
  store i32 %head, ptr %p, align 4
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %p.groups, align 4
  ret void
}

; @cp_wait(ctx, ws, queue, pending): complete all but the ``pending`` youngest groups.
define internal void @cp_wait(ptr %ctx, ptr %ws, ptr %queue, i32 %pending) #1 {
  %p.groups = getelementptr i8, ptr %ws, i64 ${Warp.GROUPS}
  %n = load i32, ptr %p.groups, align 4
  %older = icmp ugt i32 %n, %pending
  br i1 %older, label %wait, label %out
wait:
  %n1 = sub i32 %n, 1
  %last = sub i32 %n1, %pending
  %kept = icmp ult i32 %pending, ${Queue.GROUPS}
  br i1 %kept, label %find, label %out
find:
  %slot = urem i32 %last, ${Queue.GROUPS}
  %slot64 = zext i32 %slot to i64
  %ends = getelementptr i8, ptr %ws, i64 ${Warp.GROUP_END}
  %p = getelementptr i32, ptr %ends, i64 %slot64
  %end = load i32, ptr %p, align 4
  call void @observe_wait(ptr %ctx, ptr %ws, ptr %queue, i32 %end)
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %end)
  br label %out
out:
  %p.head = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_HEAD}
  %head = load i32, ptr %p.head, align 4
  %p.tail = getelementptr i8, ptr %ws, i64 ${Warp.QUEUE_TAIL}
  %tail = load i32, ptr %p.tail, align 4
  %empty = icmp eq i32 %head, %tail
  br i1 %empty, label %rewind, label %done
; An empty queue starts anew: only the entries that are in use at a time take room in the host's caches.
rewind:
  store i32 0, ptr %p.head, align 4
  store i32 0, ptr %p.tail, align 4
  store i32 0, ptr %p.groups, align 4
  br label %done
done:
  ret void
}
