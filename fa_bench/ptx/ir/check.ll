; Checks of global and shared accesses: find the buffer, refuse what is outside or misaligned, count sectors or
; wavefronts, and say how the lanes lie (flags). Words in dollar braces are constants of layout.py.
;
; What an instruction did last is remembered at its site, so that the same lane pattern at another base address
; costs one compare. A sector has 32 bytes; an access of at most 16 bytes at its natural alignment lies in one.
;
; Where something else looks at each access too, the functions below have a prefix, and wrappers have their names.

declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.vector.reduce.smin.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.smax.v32i64(<32 x i64>)
declare i32 @llvm.vector.reduce.smin.v32i32(<32 x i32>)
declare i32 @llvm.vector.reduce.smax.v32i32(<32 x i32>)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; @global_check(ctx, sites, addresses, mask, size, write) -> flags, 0 if a fault was recorded.
define internal i32 @${PREFIX}global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %write) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %idle, label %some
idle:
  ret i32 ${FLAG_OK}
some:
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %base = extractelement <32 x i64> %a, i32 %first
; The record of this alignment.
  %way0 = lshr i64 %base, ${GlobalSite.WAY_SHIFT}
  %way = and i64 %way0, ${GlobalSite.WAYS - 1}
  %way.o = mul i64 %way, ${GlobalSite.SIZE}
  %site = getelementptr i8, ptr %sites, i64 %way.o
  %base.v.one = insertelement <32 x i64> poison, i64 %base, i64 0
  %base.v = shufflevector <32 x i64> %base.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
; Addresses relative to the first active lane, 0 for lanes that are off: equal to the remembered ones?
  %d0 = sub <32 x i64> %a, %base.v
  %on = bitcast i32 %mask to <32 x i1>
  %delta = select <32 x i1> %on, <32 x i64> %d0, <32 x i64> zeroinitializer
  %old = load <32 x i64>, ptr %site, align 64
  %ne = icmp ne <32 x i64> %delta, %old
  %neb = bitcast <32 x i1> %ne to i32
; Same lanes, same offset within a sector?
  %p.mask = getelementptr i8, ptr %site, i64 ${GlobalSite.MASK}
  %o.mask = load i32, ptr %p.mask, align 4
  %x.mask = xor i32 %o.mask, %mask
  %p.align = getelementptr i8, ptr %site, i64 ${GlobalSite.ALIGN}
  %o.align = load i32, ptr %p.align, align 4
  %base32 = trunc i64 %base to i32
  %low5 = and i32 %base32, 31
  %x.align = xor i32 %low5, %o.align
  %x1 = or i32 %neb, %x.mask
  %x2 = or i32 %x1, %x.align
  %hit = icmp eq i32 %x2, 0
; Whole range inside the remembered buffer?
  %p.min = getelementptr i8, ptr %site, i64 ${GlobalSite.MIN}
  %o.min = load i64, ptr %p.min, align 8
  %p.max = getelementptr i8, ptr %site, i64 ${GlobalSite.MAX}
  %o.max = load i64, ptr %p.max, align 8
  %p.low = getelementptr i8, ptr %site, i64 ${GlobalSite.LOW}
  %o.low = load i64, ptr %p.low, align 8
  %p.high = getelementptr i8, ptr %site, i64 ${GlobalSite.HIGH}
  %o.high = load i64, ptr %p.high, align 8
  %lo = add i64 %base, %o.min
  %hi = add i64 %base, %o.max
  %in.l = icmp sge i64 %lo, %o.low
  %in.h = icmp sle i64 %hi, %o.high
  %in = and i1 %in.l, %in.h
  %fast = and i1 %hit, %in
  br i1 %fast, label %quick, label %slow
; Count one request and the remembered sectors for that buffer.
quick:
  %p.cnt = getelementptr i8, ptr %site, i64 ${GlobalSite.COUNTS}
  %cnt = load ptr, ptr %p.cnt, align 8
  %p.sec = getelementptr i8, ptr %site, i64 ${GlobalSite.SECTORS}
  %sec = load i64, ptr %p.sec, align 8
  %q.o = shl i64 %write, 3
  %q.r = getelementptr i8, ptr %cnt, i64 %q.o
  %q.rv = load i64, ptr %q.r, align 8
  %q.rn = add i64 %q.rv, 1
  store i64 %q.rn, ptr %q.r, align 8
  %q.s = getelementptr i8, ptr %q.r, i64 16
  %q.sv = load i64, ptr %q.s, align 8
  %q.sn = add i64 %q.sv, %sec
  store i64 %q.sn, ptr %q.s, align 8
  call void @site_count(ptr %sites, i64 %sec)
  %p.flags = getelementptr i8, ptr %site, i64 ${GlobalSite.FLAGS}
  %fl = load i32, ptr %p.flags, align 4
  ret i32 %fl
slow:
  %r = call i32 @global_slow(ptr %ctx, ptr %site, ptr %sites, <32 x i64> %a, <32 x i64> %delta, i32 %mask, i32 %size, i64 %write)
  ret i32 %r
}

; The same access worked out in full, buffer by buffer, and remembered if it lies in one buffer.
define internal i32 @global_slow(ptr %ctx, ptr %site, ptr %sites, <32 x i64> %a, <32 x i64> %delta, i32 %mask, i32 %size, i64 %write) #1 {
  %p.nb = getelementptr i8, ptr %ctx, i64 ${Context.NBUFFERS}
  %nb = load i32, ptr %p.nb, align 4
  %p.bufs = getelementptr i8, ptr %ctx, i64 ${Context.BUFFERS}
  %bufs = load ptr, ptr %p.bufs, align 8
  %size.w = zext i32 %size to i64
  %smask = sub i64 %size.w, 1
  %sect = lshr <32 x i64> %a, splat (i64 5)
  %smask.v.one = insertelement <32 x i64> poison, i64 %smask, i64 0
  %smask.v = shufflevector <32 x i64> %smask.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %low = and <32 x i64> %a, %smask.v
  %aligned = icmp eq <32 x i64> %low, zeroinitializer
  br label %group
; Lanes that are not yet counted: take the first, find its buffer.
group:
  %rem = phi i32 [ %mask, %0 ], [ %rem.next, %counted ]
  %first = call i32 @llvm.cttz.i32(i32 %rem, i1 true)
  %addr = extractelement <32 x i64> %a, i32 %first
  %end = add i64 %addr, %size.w
  %mis = extractelement <32 x i1> %aligned, i32 %first
  br i1 %mis, label %search, label %misaligned
search:
  %k = phi i32 [ 0, %group ], [ %k.next, %miss ]
  %over = icmp uge i32 %k, %nb
  br i1 %over, label %outside, label %probe
probe:
  %k64 = zext i32 %k to i64
  %off = mul i64 %k64, ${Buffers.SIZE}
  %rec = getelementptr i8, ptr %bufs, i64 %off
  %b.lo = load i64, ptr %rec, align 8
  %rec.h = getelementptr i8, ptr %rec, i64 ${Buffers.HIGH}
  %b.hi = load i64, ptr %rec.h, align 8
  %ge = icmp uge i64 %addr, %b.lo
  %le = icmp ule i64 %end, %b.hi
  %here = and i1 %ge, %le
  br i1 %here, label %found, label %miss
miss:
  %k.next = add i32 %k, 1
  br label %search
; All lanes in the same buffer.
found:
  %lo.v.one = insertelement <32 x i64> poison, i64 %b.lo, i64 0
  %lo.v = shufflevector <32 x i64> %lo.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %hi.v.one = insertelement <32 x i64> poison, i64 %b.hi, i64 0
  %hi.v = shufflevector <32 x i64> %hi.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %sz.v.one = insertelement <32 x i64> poison, i64 %size.w, i64 0
  %sz.v = shufflevector <32 x i64> %sz.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %ends = add <32 x i64> %a, %sz.v
  %c1 = icmp uge <32 x i64> %a, %lo.v
  %c2 = icmp ule <32 x i64> %ends, %hi.v
  %c3 = and <32 x i1> %c1, %c2
  %c4 = and <32 x i1> %c3, %aligned
  %cb = bitcast <32 x i1> %c4 to i32
  %members = and i32 %cb, %rem
  br label %unique
; One round for each different sector.
unique:
  %left = phi i32 [ %members, %found ], [ %left.next, %unique ]
  %n = phi i64 [ 0, %found ], [ %n.next, %unique ]
  %u = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %s = extractelement <32 x i64> %sect, i32 %u
  %s.v.one = insertelement <32 x i64> poison, i64 %s, i64 0
  %s.v = shufflevector <32 x i64> %s.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %eq = icmp eq <32 x i64> %sect, %s.v
  %eqb = bitcast <32 x i1> %eq to i32
  %keep = xor i32 %eqb, -1
  %left.next = and i32 %left, %keep
  %n.next = add i64 %n, 1
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %unique, label %count
count:
  %cnt = getelementptr i8, ptr %rec, i64 ${Buffers.COUNTS}
  %c.o = shl i64 %write, 3
  %c.r = getelementptr i8, ptr %cnt, i64 %c.o
  %c.rv = load i64, ptr %c.r, align 8
  %c.rn = add i64 %c.rv, 1
  store i64 %c.rn, ptr %c.r, align 8
  %c.s = getelementptr i8, ptr %c.r, i64 16
  %c.sv = load i64, ptr %c.s, align 8
  %c.sn = add i64 %c.sv, %n.next
  store i64 %c.sn, ptr %c.s, align 8
  call void @site_count(ptr %sites, i64 %n.next)
  %all = icmp eq i32 %members, %mask
  br i1 %all, label %remember, label %counted
counted:
  %gone = xor i32 %members, -1
  %rem.next = and i32 %rem, %gone
  %again = icmp ne i32 %rem.next, 0
  br i1 %again, label %group, label %mixed
; Several buffers in one access: counted, but not remembered.
mixed:
  ret i32 ${FLAG_OK}
remember:
  %size.v.one = insertelement <32 x i64> poison, i64 %size.w, i64 0
  %size.v = shufflevector <32 x i64> %size.v.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %mult = mul <32 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15, i64 16, i64 17, i64 18, i64 19, i64 20, i64 21, i64 22, i64 23, i64 24, i64 25, i64 26, i64 27, i64 28, i64 29, i64 30, i64 31>, %size.v
  %ne.c = icmp ne <32 x i64> %delta, %mult
  %ne.cb = bitcast <32 x i1> %ne.c to i32
  %full = icmp eq i32 %mask, -1
  %same.c = icmp eq i32 %ne.cb, 0
  %contig = and i1 %full, %same.c
  %ne.u = icmp ne <32 x i64> %delta, zeroinitializer
  %ne.ub = bitcast <32 x i1> %ne.u to i32
  %uni = icmp eq i32 %ne.ub, 0
  %fl.c = select i1 %contig, i32 ${FLAG_OK | FLAG_CONTIGUOUS}, i32 ${FLAG_OK}
  %flags = select i1 %uni, i32 ${FLAG_OK | FLAG_UNIFORM}, i32 %fl.c
  store <32 x i64> %delta, ptr %site, align 64
  %dmin = call i64 @llvm.vector.reduce.smin.v32i64(<32 x i64> %delta)
  %dmax0 = call i64 @llvm.vector.reduce.smax.v32i64(<32 x i64> %delta)
  %dmax = add i64 %dmax0, %size.w
  %first.m = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %base = extractelement <32 x i64> %a, i32 %first.m
  %b32 = trunc i64 %base to i32
  %al = and i32 %b32, 31
  %w.mask = getelementptr i8, ptr %site, i64 ${GlobalSite.MASK}
  store i32 %mask, ptr %w.mask, align 4
  %w.align = getelementptr i8, ptr %site, i64 ${GlobalSite.ALIGN}
  store i32 %al, ptr %w.align, align 4
  %w.min = getelementptr i8, ptr %site, i64 ${GlobalSite.MIN}
  store i64 %dmin, ptr %w.min, align 8
  %w.max = getelementptr i8, ptr %site, i64 ${GlobalSite.MAX}
  store i64 %dmax, ptr %w.max, align 8
  %w.low = getelementptr i8, ptr %site, i64 ${GlobalSite.LOW}
  store i64 %b.lo, ptr %w.low, align 8
  %w.high = getelementptr i8, ptr %site, i64 ${GlobalSite.HIGH}
  store i64 %b.hi, ptr %w.high, align 8
  %w.cnt = getelementptr i8, ptr %site, i64 ${GlobalSite.COUNTS}
  store ptr %cnt, ptr %w.cnt, align 8
  %w.sec = getelementptr i8, ptr %site, i64 ${GlobalSite.SECTORS}
  store i64 %n.next, ptr %w.sec, align 8
  %w.flags = getelementptr i8, ptr %site, i64 ${GlobalSite.FLAGS}
  store i32 %flags, ptr %w.flags, align 4
  ret i32 %flags
; Faults: kind, lane, address and size for the report.
misaligned:
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 2, ptr %f.kind, align 4
  %f.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %first, ptr %f.lane, align 4
  %f.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %addr, ptr %f.addr, align 8
  %f.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 %size, ptr %f.size, align 4
  ret i32 0
outside:
  %h.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 1, ptr %h.kind, align 4
  %h.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %first, ptr %h.lane, align 4
  %h.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %addr, ptr %h.addr, align 8
  %h.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 %size, ptr %h.size, align 4
  ret i32 0
}

; @shared_check(ctx, sites, offsets, mask, size, direction) -> flags, 0 if a fault was recorded.
define internal i32 @${PREFIX}shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %idle, label %some
idle:
  ret i32 ${FLAG_OK}
some:
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %base = extractelement <32 x i32> %a, i32 %first
; The record of this alignment.
  %way0 = lshr i32 %base, ${SharedSite.WAY_SHIFT}
  %way = and i32 %way0, ${SharedSite.WAYS - 1}
  %way.o = mul i32 %way, ${SharedSite.SIZE}
  %site = getelementptr i8, ptr %sites, i32 %way.o
  %base.v.one = insertelement <32 x i32> poison, i32 %base, i64 0
  %base.v = shufflevector <32 x i32> %base.v.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %d0 = sub <32 x i32> %a, %base.v
  %on = bitcast i32 %mask to <32 x i1>
  %delta = select <32 x i1> %on, <32 x i32> %d0, <32 x i32> zeroinitializer
  %old = load <32 x i32>, ptr %site, align 64
  %ne = icmp ne <32 x i32> %delta, %old
  %neb = bitcast <32 x i1> %ne to i32
  %p.mask = getelementptr i8, ptr %site, i64 ${SharedSite.MASK}
  %o.mask = load i32, ptr %p.mask, align 4
  %x.mask = xor i32 %o.mask, %mask
  %p.align = getelementptr i8, ptr %site, i64 ${SharedSite.ALIGN}
  %o.align = load i32, ptr %p.align, align 4
  %low7 = and i32 %base, 127
  %x.align = xor i32 %low7, %o.align
  %x1 = or i32 %neb, %x.mask
  %x2 = or i32 %x1, %x.align
  %hit = icmp eq i32 %x2, 0
; Whole range inside shared memory?
  %p.min = getelementptr i8, ptr %site, i64 ${SharedSite.MIN}
  %o.min = load i32, ptr %p.min, align 4
  %p.max = getelementptr i8, ptr %site, i64 ${SharedSite.MAX}
  %o.max = load i32, ptr %p.max, align 4
  %p.size = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %limit = load i32, ptr %p.size, align 4
  %lo = add i32 %base, %o.min
  %hi = add i32 %base, %o.max
  %in.l = icmp sge i32 %lo, 0
  %in.h = icmp sle i32 %hi, %limit
  %in.b = icmp sge i32 %base, 0
  %in0 = and i1 %in.l, %in.h
  %in = and i1 %in0, %in.b
  %fast = and i1 %hit, %in
  br i1 %fast, label %quick, label %slow
quick:
  %p.waves = getelementptr i8, ptr %site, i64 ${SharedSite.WAVES}
  %waves = load i64, ptr %p.waves, align 8
  %p.phases = getelementptr i8, ptr %site, i64 ${SharedSite.PHASES}
  %phases = load i64, ptr %p.phases, align 8
  %q.r = getelementptr i8, ptr %site, i64 ${SharedSite.REQUESTS}
  %q.rv = load i64, ptr %q.r, align 8
  %q.rn = add i64 %q.rv, 1
  store i64 %q.rn, ptr %q.r, align 8
  %q.w = getelementptr i8, ptr %site, i64 ${SharedSite.WAVEFRONTS}
  %q.wv = load i64, ptr %q.w, align 8
  %q.wn = add i64 %q.wv, %waves
  store i64 %q.wn, ptr %q.w, align 8
  %q.i = getelementptr i8, ptr %site, i64 ${SharedSite.IDEAL}
  %q.iv = load i64, ptr %q.i, align 8
  %q.in = add i64 %q.iv, %phases
  store i64 %q.in, ptr %q.i, align 8
  %p.flags = getelementptr i8, ptr %site, i64 ${SharedSite.FLAGS}
  %fl = load i32, ptr %p.flags, align 4
  ret i32 %fl
slow:
  %r = call i32 @shared_slow(ptr %ctx, ptr %site, <32 x i32> %a, <32 x i32> %delta, i32 %mask, i32 %size, i32 %limit)
  ret i32 %r
}

; The same access worked out in full. A phase is 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16 bytes; it takes as
; many wavefronts as its busiest bank has different 4-byte words.
define internal i32 @shared_slow(ptr %ctx, ptr %site, <32 x i32> %a, <32 x i32> %delta, i32 %mask, i32 %size, i32 %limit) #1 {
  %banks = alloca [32 x i32], align 64
  %size.w = add i32 %size, 0
  %smask = sub i32 %size, 1
  %last = sub i32 %limit, %size
  %smask.v.one = insertelement <32 x i32> poison, i32 %smask, i64 0
  %smask.v = shufflevector <32 x i32> %smask.v.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %last.v.one = insertelement <32 x i32> poison, i32 %last, i64 0
  %last.v = shufflevector <32 x i32> %last.v.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %low = and <32 x i32> %a, %smask.v
  %bad.al = icmp ne <32 x i32> %low, zeroinitializer
  %bad.hi = icmp sgt <32 x i32> %a, %last.v
  %bad.lo = icmp slt <32 x i32> %a, zeroinitializer
  %bad.o = or <32 x i1> %bad.hi, %bad.lo
  %bad.ob = bitcast <32 x i1> %bad.o to i32
  %bad.oa = and i32 %bad.ob, %mask
  %bad.ab = bitcast <32 x i1> %bad.al to i32
  %bad.aa = and i32 %bad.ab, %mask
  %any.o = icmp ne i32 %bad.oa, 0
  br i1 %any.o, label %outside, label %check.al
outside:
  %first.o = call i32 @llvm.cttz.i32(i32 %bad.oa, i1 true)
  br label %report
misaligned:
  %first.a = call i32 @llvm.cttz.i32(i32 %bad.aa, i1 true)
  br label %report
report:
  %first = phi i32 [ %first.o, %outside ], [ %first.a, %misaligned ]
  %why = phi i32 [ 3, %outside ], [ 2, %misaligned ]
  %addr32 = extractelement <32 x i32> %a, i32 %first
  %addr = zext i32 %addr32 to i64
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 %why, ptr %f.kind, align 4
  %f.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %first, ptr %f.lane, align 4
  %f.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %addr, ptr %f.addr, align 8
  %f.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 %size, ptr %f.size, align 4
  ret i32 0
check.al:
  %any.a = icmp ne i32 %bad.aa, 0
  br i1 %any.a, label %misaligned, label %go
go:
; Lanes per phase and words per lane; lanes with the same key read the same words.
  %is16 = icmp eq i32 %size, 16
  %is8 = icmp eq i32 %size, 8
  %lanes0 = select i1 %is8, i32 16, i32 32
  %lanes = select i1 %is16, i32 8, i32 %lanes0
  %words0 = lshr i32 %size, 2
  %words = call i32 @llvm.umax.i32(i32 %words0, i32 1)
  %key = and <32 x i32> %a, splat (i32 -4)
  %ones0 = shl i32 -1, %lanes
  %ones1 = xor i32 %ones0, -1
  %is32 = icmp eq i32 %lanes, 32
  %ones = select i1 %is32, i32 -1, i32 %ones1
  br label %phase
; Phase by phase: wavefronts (tw) and phases with an active lane (tp).
phase:
  %start = phi i32 [ 0, %go ], [ %start.next, %phase.end ]
  %tw = phi i64 [ 0, %go ], [ %tw.next, %phase.end ]
  %tp = phi i64 [ 0, %go ], [ %tp.next, %phase.end ]
  %window = shl i32 %ones, %start
  %members = and i32 %mask, %window
  %empty = icmp eq i32 %members, 0
  call void @llvm.memset.p0.i64(ptr %banks, i8 0, i64 128, i1 false)
  br i1 %empty, label %phase.end, label %lane
; One round for each different address of the phase.
lane:
  %left = phi i32 [ %members, %phase ], [ %left.next, %lane.end ]
  %best = phi i32 [ 0, %phase ], [ %best.out, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %kv = extractelement <32 x i32> %key, i32 %l
  %kv.v.one = insertelement <32 x i32> poison, i32 %kv, i64 0
  %kv.v = shufflevector <32 x i32> %kv.v.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %eq = icmp eq <32 x i32> %key, %kv.v
  %eqb = bitcast <32 x i1> %eq to i32
  %keep = xor i32 %eqb, -1
  %left.next = and i32 %left, %keep
  %word0 = lshr i32 %kv, 2
  br label %word
; Each of its words loads a bank.
word:
  %j = phi i32 [ 0, %lane ], [ %j.next, %word ]
  %best.j = phi i32 [ %best, %lane ], [ %best.out, %word ]
  %w = add i32 %word0, %j
  %bank = and i32 %w, 31
  %bank64 = zext i32 %bank to i64
  %bp = getelementptr i32, ptr %banks, i64 %bank64
  %bv = load i32, ptr %bp, align 4
  %bn = add i32 %bv, 1
  store i32 %bn, ptr %bp, align 4
  %best.out = call i32 @llvm.umax.i32(i32 %best.j, i32 %bn)
  %j.next = add i32 %j, 1
  %j.more = icmp ult i32 %j.next, %words
  br i1 %j.more, label %word, label %lane.end
lane.end:
  %l.more = icmp ne i32 %left.next, 0
  br i1 %l.more, label %lane, label %phase.end
phase.end:
  %pw = phi i32 [ 0, %phase ], [ %best.out, %lane.end ]
  %pp = phi i64 [ 0, %phase ], [ 1, %lane.end ]
  %pw64 = zext i32 %pw to i64
  %tw.next = add i64 %tw, %pw64
  %tp.next = add i64 %tp, %pp
  %start.next = add i32 %start, %lanes
  %p.more = icmp ult i32 %start.next, 32
  br i1 %p.more, label %phase, label %done
; Count, and remember.
done:
  %c.r = getelementptr i8, ptr %site, i64 ${SharedSite.REQUESTS}
  %c.rv = load i64, ptr %c.r, align 8
  %c.rn = add i64 %c.rv, 1
  store i64 %c.rn, ptr %c.r, align 8
  %c.w = getelementptr i8, ptr %site, i64 ${SharedSite.WAVEFRONTS}
  %c.wv = load i64, ptr %c.w, align 8
  %c.wn = add i64 %c.wv, %tw.next
  store i64 %c.wn, ptr %c.w, align 8
  %c.i = getelementptr i8, ptr %site, i64 ${SharedSite.IDEAL}
  %c.iv = load i64, ptr %c.i, align 8
  %c.in = add i64 %c.iv, %tp.next
  store i64 %c.in, ptr %c.i, align 8
  %size.v.one = insertelement <32 x i32> poison, i32 %size.w, i64 0
  %size.v = shufflevector <32 x i32> %size.v.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %mult = mul <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>, %size.v
  %ne.c = icmp ne <32 x i32> %delta, %mult
  %ne.cb = bitcast <32 x i1> %ne.c to i32
  %full = icmp eq i32 %mask, -1
  %same.c = icmp eq i32 %ne.cb, 0
  %contig = and i1 %full, %same.c
  %ne.u = icmp ne <32 x i32> %delta, zeroinitializer
  %ne.ub = bitcast <32 x i1> %ne.u to i32
  %uni = icmp eq i32 %ne.ub, 0
  %fl.c = select i1 %contig, i32 ${FLAG_OK | FLAG_CONTIGUOUS}, i32 ${FLAG_OK}
  %flags = select i1 %uni, i32 ${FLAG_OK | FLAG_UNIFORM}, i32 %fl.c
  store <32 x i32> %delta, ptr %site, align 64
  %dmin = call i32 @llvm.vector.reduce.smin.v32i32(<32 x i32> %delta)
  %dmax0 = call i32 @llvm.vector.reduce.smax.v32i32(<32 x i32> %delta)
  %dmax = add i32 %dmax0, %size
  %first.m = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %base = extractelement <32 x i32> %a, i32 %first.m
  %al = and i32 %base, 127
  %v.mask = getelementptr i8, ptr %site, i64 ${SharedSite.MASK}
  store i32 %mask, ptr %v.mask, align 4
  %v.align = getelementptr i8, ptr %site, i64 ${SharedSite.ALIGN}
  store i32 %al, ptr %v.align, align 4
  %v.min = getelementptr i8, ptr %site, i64 ${SharedSite.MIN}
  store i32 %dmin, ptr %v.min, align 4
  %v.max = getelementptr i8, ptr %site, i64 ${SharedSite.MAX}
  store i32 %dmax, ptr %v.max, align 4
  %v.waves = getelementptr i8, ptr %site, i64 ${SharedSite.WAVES}
  store i64 %tw.next, ptr %v.waves, align 8
  %v.phases = getelementptr i8, ptr %site, i64 ${SharedSite.PHASES}
  store i64 %tp.next, ptr %v.phases, align 8
  %v.flags = getelementptr i8, ptr %site, i64 ${SharedSite.FLAGS}
  store i32 %flags, ptr %v.flags, align 4
  ret i32 %flags
}

; @shared_addresses(ctx, offsets): host addresses of offsets in the CTA's shared memory.
define internal <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %a) #0 {
  %p = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %base = load i64, ptr %p, align 8
  %one = insertelement <32 x i64> poison, i64 %base, i64 0
  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %wide = zext <32 x i32> %a to <32 x i64>
  %there = add <32 x i64> %wide, %all
  ret <32 x i64> %there
}

; @shared_uniform(ctx, sites, offset, mask, size) -> host address, null if a fault was recorded: all lanes agree. With no
; active lane the address is that of shared memory itself, and nothing counts.
define internal ptr @${PREFIX}shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size) #1 {
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %sh = load ptr, ptr %p.sh, align 8
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %idle, label %some
idle:
  ret ptr %sh
some:
  %way0 = lshr i32 %a, ${SharedSite.WAY_SHIFT}
  %way = and i32 %way0, ${SharedSite.WAYS - 1}
  %way.o = mul i32 %way, ${SharedSite.SIZE}
  %site = getelementptr i8, ptr %sites, i32 %way.o
  %p.mask = getelementptr i8, ptr %site, i64 ${SharedSite.MASK}
  %o.mask = load i32, ptr %p.mask, align 4
  %same.m = icmp eq i32 %o.mask, %mask
  %p.flags = getelementptr i8, ptr %site, i64 ${SharedSite.FLAGS}
  %flags = load i32, ptr %p.flags, align 4
  %f.u = and i32 %flags, ${FLAG_UNIFORM}
  %same.u = icmp ne i32 %f.u, 0
  %smask = sub i32 %size, 1
  %low = and i32 %a, %smask
  %aligned = icmp eq i32 %low, 0
  %p.limit = getelementptr i8, ptr %ctx, i64 ${Context.SHARED_SIZE}
  %limit = load i32, ptr %p.limit, align 4
  %end = add i32 %a, %size
  %in.h = icmp ule i32 %end, %limit
  %in.l = icmp sge i32 %a, 0
  %c1 = and i1 %same.m, %same.u
  %c2 = and i1 %aligned, %in.h
  %c3 = and i1 %c1, %c2
  %fast = and i1 %c3, %in.l
  br i1 %fast, label %quick, label %slow
quick:
  %p.waves = getelementptr i8, ptr %site, i64 ${SharedSite.WAVES}
  %waves = load i64, ptr %p.waves, align 8
  %p.r = getelementptr i8, ptr %site, i64 ${SharedSite.REQUESTS}
  %r = load i64, ptr %p.r, align 8
  %r.n = add i64 %r, 1
  store i64 %r.n, ptr %p.r, align 8
  %p.w = getelementptr i8, ptr %site, i64 ${SharedSite.WAVEFRONTS}
  %w = load i64, ptr %p.w, align 8
  %w.n = add i64 %w, %waves
  store i64 %w.n, ptr %p.w, align 8
  %p.i = getelementptr i8, ptr %site, i64 ${SharedSite.IDEAL}
  %i = load i64, ptr %p.i, align 8
  %i.n = add i64 %i, %waves
  store i64 %i.n, ptr %p.i, align 8
  br label %good
slow:
  %one = insertelement <32 x i32> poison, i32 %a, i64 0
  %all = shufflevector <32 x i32> %one, <32 x i32> poison, <32 x i32> zeroinitializer
  %s = call i32 @shared_slow(ptr %ctx, ptr %site, <32 x i32> %all, <32 x i32> zeroinitializer, i32 %mask, i32 %size, i32 %limit)
  %ok = icmp ne i32 %s, 0
  br i1 %ok, label %good, label %bad
good:
  %a64 = zext i32 %a to i64
  %there = getelementptr i8, ptr %sh, i64 %a64
  ret ptr %there
bad:
  ret ptr null
}

; @global_uniform(ctx, sites, address, mask, size) -> the address, null if a fault was recorded: all lanes agree, so the
; access asks for one sector. With no active lane the result is any readable address, and nothing counts.
define internal ptr @${PREFIX}global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size) #1 {
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %idle, label %some
idle:
  ret ptr %sites
some:
  %p.low = getelementptr i8, ptr %sites, i64 ${GlobalSite.LOW}
  %low = load i64, ptr %p.low, align 8
  %p.high = getelementptr i8, ptr %sites, i64 ${GlobalSite.HIGH}
  %high = load i64, ptr %p.high, align 8
  %size64 = zext i32 %size to i64
  %end = add i64 %a, %size64
  %in.l = icmp sge i64 %a, %low
  %in.h = icmp sle i64 %end, %high
  %smask = sub i64 %size64, 1
  %odd = and i64 %a, %smask
  %aligned = icmp eq i64 %odd, 0
  %c1 = and i1 %in.l, %in.h
  %fast = and i1 %c1, %aligned
  %there = inttoptr i64 %a to ptr
  br i1 %fast, label %quick, label %slow
quick:
  %p.cnt = getelementptr i8, ptr %sites, i64 ${GlobalSite.COUNTS}
  %cnt = load ptr, ptr %p.cnt, align 8
  %r = load i64, ptr %cnt, align 8
  %r.n = add i64 %r, 1
  store i64 %r.n, ptr %cnt, align 8
  %p.s = getelementptr i8, ptr %cnt, i64 16
  %s = load i64, ptr %p.s, align 8
  %s.n = add i64 %s, 1
  store i64 %s.n, ptr %p.s, align 8
  call void @site_count(ptr %sites, i64 1)
  ret ptr %there
slow:
  %one = insertelement <32 x i64> poison, i64 %a, i64 0
  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %f = call i32 @global_slow(ptr %ctx, ptr %sites, ptr %sites, <32 x i64> %all, <32 x i64> zeroinitializer, i32 %mask, i32 %size, i64 0)
  %ok = icmp ne i32 %f, 0
  br i1 %ok, label %good, label %bad
good:
  ret ptr %there
bad:
  ret ptr null
}

; The same where only the count matters and the data move otherwise.
define internal i32 @global_count(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %write) #3 {
  %flags = call i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %write)
  ret i32 %flags
}

define internal i32 @shared_count(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #3 {
  %flags = call i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir)
  ret i32 %flags
}

; @site_count(sites, sectors): the instruction's own count.
define internal void @site_count(ptr %sites, i64 %n) #3 {
  %p.r = getelementptr i8, ptr %sites, i64 ${GlobalSite.REQUESTS}
  %r = load i64, ptr %p.r, align 8
  %r.n = add i64 %r, 1
  store i64 %r.n, ptr %p.r, align 8
  %p.s = getelementptr i8, ptr %sites, i64 ${GlobalSite.TOTAL}
  %s = load i64, ptr %p.s, align 8
  %s.n = add i64 %s, %n
  store i64 %s.n, ptr %p.s, align 8
  ret void
}
