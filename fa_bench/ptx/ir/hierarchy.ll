; L1 per SM, L2 and what lies behind it, made of the caches in caches.ll and fed with the events that trace.ll logs. Words
; in dollar braces are constants of layout.py.

; @l2_access(level, clock, line, sectors, kind, tensor, sm): one request of an SM to one L2.
define internal void @l2_access(ptr %l2, i64 %clock, i64 %line, i64 %sectors, i64 %kind, i64 %tensor, i64 %sm) #1 {
  %p.counters = getelementptr i8, ptr %l2, i64 ${Level.COUNTERS}
  %counters = load ptr, ptr %p.counters, align 8
  %row = mul i64 %tensor, ${L2Counts.FIELDS}
  %mine = getelementptr i64, ptr %counters, i64 %row
  %p.caches = getelementptr i8, ptr %l2, i64 ${Level.CACHES}
  %caches = load ptr, ptr %p.caches, align 8
  %p.parts = getelementptr i8, ptr %l2, i64 ${Level.PARTITIONS}
  %parts = load i64, ptr %p.parts, align 8
  %last = sub i64 %parts, 1
  %p.limit = getelementptr i8, ptr %l2, i64 ${Level.DIRTY_WAYS}
  %limit = load i64, ptr %p.limit, align 8
; Two partitions: an SM is wired to one of them; a line is at home in one, by the parity of the bits of its 4 KiB
; granule's number.
  %granule = lshr i64 %line, 5
  %ones = call i64 @llvm.ctpop.i64(i64 %granule)
  %home.i = and i64 %ones, %last
  %near.i = and i64 %sm, %last
  %home.o = mul i64 %home.i, ${Cache.SIZE}
  %home = getelementptr i8, ptr %caches, i64 %home.o
  %near.o = mul i64 %near.i, ${Cache.SIZE}
  %near = getelementptr i8, ptr %caches, i64 %near.o
  %far = icmp ne i64 %home.i, %near.i
  %n = call i64 @sectors(i64 %sectors)
  %is.write = icmp eq i64 %kind, ${Event.WRITE}
  br i1 %is.write, label %write, label %read
write:
  call void @add(ptr %mine, i64 ${L2Counts.WRITE_REQUESTS}, i64 1)
  call void @add(ptr %mine, i64 ${L2Counts.WRITE_SECTORS}, i64 %n)
  call void @put(ptr %home, i64 %clock, i64 %line, i64 %sectors, i64 %sectors, i64 %tensor, ptr %counters)
  call void @clean(ptr %home, i64 %line, i64 %limit, ptr %counters)
  br label %stale
; A copy in the other partition is not the latest any more.
stale:
  %two = icmp ne i64 %last, 0
  br i1 %two, label %drop, label %out
drop:
  %other.i = xor i64 %home.i, 1
  %other.o = mul i64 %other.i, ${Cache.SIZE}
  %other = getelementptr i8, ptr %caches, i64 %other.o
  call void @drop(ptr %other, i64 %line, i64 %sectors)
  br label %out
read:
  %is.atomic = icmp eq i64 %kind, ${Event.ATOMIC}
  %i.req = select i1 %is.atomic, i64 ${L2Counts.ATOMIC_REQUESTS}, i64 ${L2Counts.READ_REQUESTS}
  %i.sec = add i64 %i.req, 1
  %i.hit = add i64 %i.req, 2
  call void @add(ptr %mine, i64 %i.req, i64 1)
  call void @add(ptr %mine, i64 %i.sec, i64 %n)
; Atomic operations are done at home, where the latest data are.
  %plain = xor i1 %is.atomic, true
  %copy = and i1 %far, %plain
  br i1 %copy, label %nearby, label %at.home
nearby:
  %missing.near = call i64 @l2_look(ptr %near, i64 %clock, i64 %line, i64 %sectors)
  %satisfied = icmp eq i64 %missing.near, 0
  br i1 %satisfied, label %hit, label %at.home
hit:
  call void @add(ptr %mine, i64 %i.hit, i64 %n)
  br label %out
at.home:
  %wanted = phi i64 [ %sectors, %read ], [ %missing.near, %nearby ]
  %missing = call i64 @l2_look(ptr %home, i64 %clock, i64 %line, i64 %wanted)
  %lacks = call i64 @sectors(i64 %missing)
  %hits = sub i64 %n, %lacks
  call void @add(ptr %mine, i64 %i.hit, i64 %hits)
  %none = icmp eq i64 %missing, 0
  br i1 %none, label %have, label %fetch
; DRAM gives whole atoms: one sector, or the pair that it is in.
fetch:
  %p.pairs = getelementptr i8, ptr %l2, i64 ${Level.PAIRS}
  %pairs = load i64, ptr %p.pairs, align 8
  %low = and i64 %missing, 5
  %high = and i64 %missing, 10
  %low.up = shl i64 %low, 1
  %high.down = lshr i64 %high, 1
  %both1 = or i64 %low.up, %high.down
  %both = and i64 %both1, %pairs
  %atoms = or i64 %missing, %both
  %known = call i64 @valid(ptr %home, i64 %line)
  %unknown = xor i64 %known, -1
  %fetched = and i64 %atoms, %unknown
  %f = call i64 @sectors(i64 %fetched)
  call void @add(ptr %mine, i64 ${L2Counts.DRAM_READ}, i64 %f)
  call void @put(ptr %home, i64 %clock, i64 %line, i64 %fetched, i64 0, i64 %tensor, ptr %counters)
  br label %have
have:
  br i1 %copy, label %copied, label %changed
copied:
  call void @put(ptr %near, i64 %clock, i64 %line, i64 %wanted, i64 0, i64 %tensor, ptr %counters)
  br label %out
changed:
  br i1 %is.atomic, label %dirty, label %out
dirty:
  call void @put(ptr %home, i64 %clock, i64 %line, i64 %sectors, i64 %sectors, i64 %tensor, ptr %counters)
  call void @clean(ptr %home, i64 %line, i64 %limit, ptr %counters)
  br label %stale
out:
  ret void
}

; @consume(system, events, count, sm): what one CTA asked for in one turn, in order.
define void @consume(ptr %system, ptr %events, i64 %count, i64 %sm) #1 {
  %p.clock = getelementptr i8, ptr %system, i64 ${System.CLOCK}
  %clock0 = load i64, ptr %p.clock, align 8
  %p.l1 = getelementptr i8, ptr %system, i64 ${System.L1}
  %l1s = load ptr, ptr %p.l1, align 8
  %l1.o = mul i64 %sm, ${Cache.SIZE}
  %l1 = getelementptr i8, ptr %l1s, i64 %l1.o
  %p.l1c = getelementptr i8, ptr %system, i64 ${System.L1_COUNTERS}
  %l1.counters = load ptr, ptr %p.l1c, align 8
  %p.levels = getelementptr i8, ptr %system, i64 ${System.LEVELS}
  %levels = load ptr, ptr %p.levels, align 8
  %p.nl = getelementptr i8, ptr %system, i64 ${System.LEVEL_COUNT}
  %nl = load i64, ptr %p.nl, align 8
  %p.tensors = getelementptr i8, ptr %system, i64 ${System.TENSORS}
  %tensors = load ptr, ptr %p.tensors, align 8
  br label %test
test:
  %k = phi i64 [ 0, %0 ], [ %k.n, %next ]
  %clock = phi i64 [ %clock0, %0 ], [ %clock.n, %next ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %event, label %out
out:
  store i64 %clock, ptr %p.clock, align 8
  ret void
event:
  %clock.n = add i64 %clock, 1
  %p.e = getelementptr i64, ptr %events, i64 %k
  %e = load i64, ptr %p.e, align 8
  %line = and i64 %e, ${LINE_MASK}
  %s0 = lshr i64 %e, ${Event.SECTORS}
  %sectors = and i64 %s0, 15
  %k0 = lshr i64 %e, ${Event.KIND}
  %kind = and i64 %k0, 7
  %t0 = lshr i64 %e, ${Event.TENSOR}
  %buffer = and i64 %t0, 65535
  %first = lshr i64 %e, ${Event.FIRST}
  %p.t = getelementptr i64, ptr %tensors, i64 %buffer
  %tensor = load i64, ptr %p.t, align 8
  %row = mul i64 %tensor, ${L1Counts.FIELDS}
  %mine = getelementptr i64, ptr %l1.counters, i64 %row
  %n = call i64 @sectors(i64 %sectors)
  switch i64 %kind, label %past [ i64 ${Event.CACHED}, label %cached
                                  i64 ${Event.BYPASS}, label %bypass
                                  i64 ${Event.WRITE}, label %write ]
cached:
  call void @add(ptr %mine, i64 ${L1Counts.READ_REQUESTS}, i64 %first)
  call void @add(ptr %mine, i64 ${L1Counts.READ_SECTORS}, i64 %n)
  %missing = call i64 @l1_read(ptr %l1, i64 %clock.n, i64 %line, i64 %sectors)
  %m = call i64 @sectors(i64 %missing)
  %hits = sub i64 %n, %m
  call void @add(ptr %mine, i64 ${L1Counts.READ_HITS}, i64 %hits)
  %answered = icmp eq i64 %missing, 0
  br i1 %answered, label %next, label %send
bypass:
  call void @add(ptr %mine, i64 ${L1Counts.READ_REQUESTS}, i64 %first)
  call void @add(ptr %mine, i64 ${L1Counts.READ_SECTORS}, i64 %n)
  br label %send
; Stores go through to L2. A line that is in L1 is brought up to date there, one that is not does not come in.
write:
  call void @add(ptr %mine, i64 ${L1Counts.WRITE_REQUESTS}, i64 %first)
  call void @add(ptr %mine, i64 ${L1Counts.WRITE_SECTORS}, i64 %n)
  br label %send
; Atomic operations are done in L2; what L1 holds of them is not valid any more.
past:
  call void @add(ptr %mine, i64 ${L1Counts.ATOMIC_REQUESTS}, i64 %first)
  call void @add(ptr %mine, i64 ${L1Counts.ATOMIC_SECTORS}, i64 %n)
  call void @drop(ptr %l1, i64 %line, i64 %sectors)
  br label %send
send:
  %ask = phi i64 [ %missing, %cached ], [ %sectors, %bypass ], [ %sectors, %write ], [ %sectors, %past ]
  br label %level
level:
  %j = phi i64 [ 0, %send ], [ %j.n, %level ]
  %lo = mul i64 %j, ${Level.SIZE}
  %l = getelementptr i8, ptr %levels, i64 %lo
  call void @l2_access(ptr %l, i64 %clock.n, i64 %line, i64 %ask, i64 %kind, i64 %tensor, i64 %sm)
  %j.n = add i64 %j, 1
  %j.more = icmp ult i64 %j.n, %nl
  br i1 %j.more, label %level, label %next
next:
  %k.n = add i64 %k, 1
  br label %test
}

; @consume_slots(system, slots, count, sms): what the CTAs of all slots asked for in their last turn, slot after slot. Slot
; k is on SM k modulo sms.
define void @consume_slots(ptr %system, ptr %slots, i64 %count, i64 %sms) #1 {
  br label %test
test:
  %k = phi i64 [ 0, %0 ], [ %k.n, %slot ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %slot, label %out
out:
  ret void
slot:
  %off = mul i64 %k, ${Slot.SIZE}
  %s = getelementptr i8, ptr %slots, i64 %off
  %ctx = load ptr, ptr %s, align 8
  %p.log = getelementptr i8, ptr %ctx, i64 ${Context.LOG}
  %log = load ptr, ptr %p.log, align 8
  %p.count = getelementptr i8, ptr %ctx, i64 ${Context.LOG_COUNT}
  %n = load i64, ptr %p.count, align 8
  %sm = urem i64 %k, %sms
  call void @consume(ptr %system, ptr %log, i64 %n, i64 %sm)
  %k.n = add i64 %k, 1
  br label %test
}
