; Logs which sectors each access asks for, line by line, beside what check.ll counts: what the caches see. And turns:
; CTAs that are on their SMs at the same time run in small pieces. Words in dollar braces are constants of layout.py.

declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)

define internal i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %flags = call i32 @counted_global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir)
  %fine = icmp ne i32 %flags, 0
  %some = icmp ne i32 %mask, 0
  %go = and i1 %fine, %some
  br i1 %go, label %log, label %out
log:
  %kind = call i64 @kind_of(ptr %sites, i64 %dir)
  call void @log_access(ptr %ctx, <32 x i64> %a, i32 %mask, i64 %kind)
  br label %out
out:
  ret i32 %flags
}

define internal ptr @global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size) #1 {
  %there = call ptr @counted_global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size)
  %fine = icmp ne ptr %there, null
  %some = icmp ne i32 %mask, 0
  %go = and i1 %fine, %some
  br i1 %go, label %log, label %out
log:
  %one = insertelement <32 x i64> zeroinitializer, i64 %a, i64 0
  %kind = call i64 @kind_of(ptr %sites, i64 ${Buffers.READ})
  call void @log_access(ptr %ctx, <32 x i64> %one, i32 1, i64 %kind)
  br label %out
out:
  ret ptr %there
}

define internal i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #3 {
  %flags = call i32 @counted_shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir)
  ret i32 %flags
}

define internal ptr @shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size) #3 {
  %there = call ptr @counted_shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size)
  ret ptr %there
}

; @kind_of(sites, direction): the kind of an event.
define internal i64 @kind_of(ptr %sites, i64 %dir) #3 {
  %p = getelementptr i8, ptr %sites, i64 ${GlobalSite.BYPASS}
  %bypass32 = load i32, ptr %p, align 4
  %bypass = zext i32 %bypass32 to i64
  %reads = icmp eq i64 %dir, ${Buffers.READ}
  %writes = icmp eq i64 %dir, ${Buffers.WRITE}
  %other = select i1 %writes, i64 ${Event.WRITE}, i64 ${Event.ATOMIC}
  %kind = select i1 %reads, i64 %bypass, i64 %other
  ret i64 %kind
}

; @log_access(ctx, addresses, mask, kind): one event for each different line. Every address is known to be good.
define internal void @log_access(ptr %ctx, <32 x i64> %a, i32 %mask, i64 %kind) #1 {
  %p.nb = getelementptr i8, ptr %ctx, i64 ${Context.NBUFFERS}
  %nb = load i32, ptr %p.nb, align 4
  %nb64 = zext i32 %nb to i64
  %p.bufs = getelementptr i8, ptr %ctx, i64 ${Context.BUFFERS}
  %bufs = load ptr, ptr %p.bufs, align 8
  %p.log = getelementptr i8, ptr %ctx, i64 ${Context.LOG}
  %log = load ptr, ptr %p.log, align 8
  %p.count = getelementptr i8, ptr %ctx, i64 ${Context.LOG_COUNT}
  %count0 = load i64, ptr %p.count, align 8
; An element of a vector by a variable index comes from memory: put it there once.
  %at = alloca <32 x i64>, align 64
  store <32 x i64> %a, ptr %at, align 64
  %lines = lshr <32 x i64> %a, splat (i64 ${Event.LINE_SHIFT})
  %sector64 = lshr <32 x i64> %a, splat (i64 5)
  %sector32 = trunc <32 x i64> %sector64 to <32 x i32>
  %sector = and <32 x i32> %sector32, splat (i32 3)
  %bits = shl <32 x i32> splat (i32 1), %sector
  br label %line
line:
  %left = phi i32 [ %mask, %0 ], [ %left.n, %found ]
  %count = phi i64 [ %count0, %0 ], [ %count.n, %found ]
  %k0 = phi i64 [ 0, %0 ], [ %k, %found ]
  %first = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %p.addr = getelementptr i64, ptr %at, i32 %first
  %addr = load i64, ptr %p.addr, align 8
  %line.one = lshr i64 %addr, ${Event.LINE_SHIFT}
  %line.i = insertelement <32 x i64> poison, i64 %line.one, i64 0
  %line.v = shufflevector <32 x i64> %line.i, <32 x i64> poison, <32 x i32> zeroinitializer
  %eq = icmp eq <32 x i64> %lines, %line.v
  %eq.b = bitcast <32 x i1> %eq to i32
  %here = and i32 %eq.b, %left
  %left.n = xor i32 %left, %here
  %here.v = bitcast i32 %here to <32 x i1>
  %mine = select <32 x i1> %here.v, <32 x i32> %bits, <32 x i32> zeroinitializer
  %sectors32 = call i32 @llvm.vector.reduce.or.v32i32(<32 x i32> %mine)
  %sectors = zext i32 %sectors32 to i64
  br label %search
; The buffer of the line before is the likeliest. Some buffer holds the address: the access was checked.
search:
  %k = phi i64 [ %k0, %line ], [ %k.n, %miss ]
  %off = mul i64 %k, ${Buffers.SIZE}
  %rec = getelementptr i8, ptr %bufs, i64 %off
  %low = load i64, ptr %rec, align 8
  %p.high = getelementptr i8, ptr %rec, i64 ${Buffers.HIGH}
  %high = load i64, ptr %p.high, align 8
  %above = icmp uge i64 %addr, %low
  %below = icmp ult i64 %addr, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %found, label %miss
miss:
  %k.up = add i64 %k, 1
  %wrap = icmp eq i64 %k.up, %nb64
  %k.n = select i1 %wrap, i64 0, i64 %k.up
  br label %search
found:
  %p.shift = getelementptr i8, ptr %rec, i64 ${Buffers.SHIFT}
  %shift = load i64, ptr %p.shift, align 8
  %device = add i64 %addr, %shift
  %number = lshr i64 %device, ${Event.LINE_SHIFT}
  %s.up = shl i64 %sectors, ${Event.SECTORS}
  %kind.up = shl i64 %kind, ${Event.KIND}
  %tensor.up = shl i64 %k, ${Event.TENSOR}
  %starts = icmp eq i64 %count, %count0
  %starts64 = zext i1 %starts to i64
  %first.up = shl i64 %starts64, ${Event.FIRST}
  %e1 = or i64 %number, %s.up
  %e2 = or i64 %e1, %kind.up
  %e3 = or i64 %e2, %tensor.up
  %e4 = or i64 %e3, %first.up
  %p.e = getelementptr i64, ptr %log, i64 %count
  store i64 %e4, ptr %p.e, align 8
  %count.n = add i64 %count, 1
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %line, label %done
done:
  store i64 %count.n, ptr %p.count, align 8
  %p.limit = getelementptr i8, ptr %ctx, i64 ${Context.LOG_LIMIT}
  %limit = load i64, ptr %p.limit, align 8
  %full = icmp uge i64 %count.n, %limit
  br i1 %full, label %stop, label %out
; The log has room for what the warps do before their next backward jumps, and no more.
stop:
  %p.slice = getelementptr i8, ptr %ctx, i64 ${Context.SLICE}
  store i64 0, ptr %p.slice, align 8
  br label %out
out:
  ret void
}

; @take_turns(slots, from, step, count): one turn for the CTA of every step-th slot; a new one starts.
define void @take_turns(ptr %slots, i64 %from, i64 %step, i64 %count) #1 {
  br label %test
test:
  %k = phi i64 [ %from, %0 ], [ %k.n, %next ]
  %some = icmp ult i64 %k, %count
  br i1 %some, label %slot, label %out
out:
  ret void
slot:
  %off = mul i64 %k, ${Slot.SIZE}
  %s = getelementptr i8, ptr %slots, i64 %off
  %ctx = load ptr, ptr %s, align 8
  %p.count = getelementptr i8, ptr %ctx, i64 ${Context.LOG_COUNT}
  store i64 0, ptr %p.count, align 8
  %p.code = getelementptr i8, ptr %s, i64 ${Slot.CODE}
  %code = load i64, ptr %p.code, align 8
  switch i64 %code, label %next [ i64 ${START}, label %start
                                  i64 ${YIELD}, label %run ]
start:
  %p.cta = getelementptr i8, ptr %s, i64 ${Slot.CTA}
  %cta = load i64, ptr %p.cta, align 8
  call void @prepare(ptr %ctx, i64 %cta)
  br label %run
run:
  %code32 = call i32 @turn(ptr %ctx)
  %code.n = zext i32 %code32 to i64
  store i64 %code.n, ptr %p.code, align 8
  %ended = icmp eq i64 %code.n, ${DONE}
  br i1 %ended, label %counted, label %next
counted:
  %p.done = getelementptr i8, ptr %ctx, i64 ${Context.CTAS_DONE}
  %d = load i64, ptr %p.done, align 8
  %d1 = add i64 %d, 1
  store i64 %d1, ptr %p.done, align 8
  br label %next
next:
  %k.n = add i64 %k, %step
  br label %test
}
