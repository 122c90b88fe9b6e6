; Local, constant and parameter memory, and generic addresses. Words in dollar braces are constants of layout.py and of
; the kernel. None of the three spaces counts as traffic.

; @range_check(ctx, offsets, mask, size, limit, window) -> flags, 0 if a fault was recorded: ``size`` bytes at each
; offset lie within ``limit`` bytes and at a multiple of the size.
define internal i32 @range_check(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %limit, i64 %window) #1 {
  %size64 = zext i32 %size to i64
  %s1 = insertelement <32 x i64> poison, i64 %size64, i64 0
  %s = shufflevector <32 x i64> %s1, <32 x i64> poison, <32 x i32> zeroinitializer
  %l1 = insertelement <32 x i64> poison, i64 %limit, i64 0
  %l = shufflevector <32 x i64> %l1, <32 x i64> poison, <32 x i32> zeroinitializer
  %end = add <32 x i64> %a, %s
  %far = icmp ugt <32 x i64> %a, %l
  %long = icmp ugt <32 x i64> %end, %l
  %out = or <32 x i1> %far, %long
  %outb = bitcast <32 x i1> %out to i32
  %outm = and i32 %outb, %mask
  %low = sub <32 x i64> %s, splat (i64 1)
  %rest = and <32 x i64> %a, %low
  %odd = icmp ne <32 x i64> %rest, zeroinitializer
  %oddb = bitcast <32 x i1> %odd to i32
  %oddm = and i32 %oddb, %mask
  %bad = or i32 %outm, %oddm
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %good, label %fault
good:
  ret i32 ${FLAG_OK}
fault:
  %outside = icmp ne i32 %outm, 0
  %kind = select i1 %outside, i32 8, i32 2
  %which = select i1 %outside, i32 %outm, i32 %oddm
  %lane = call i32 @llvm.cttz.i32(i32 %which, i1 true)
  %offset = extractelement <32 x i64> %a, i32 %lane
  %address = or i64 %offset, %window
  call void @space_fault(ptr %ctx, i32 %kind, i32 %lane, i64 %address, i32 %size)
  ret i32 0
}

define internal void @space_fault(ptr %ctx, i32 %kind, i32 %lane, i64 %address, i32 %size) #1 {
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 %kind, ptr %f.kind, align 4
  %f.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %lane, ptr %f.lane, align 4
  %f.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %address, ptr %f.addr, align 8
  %f.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 %size, ptr %f.size, align 4
  ret void
}

; @local_addresses(local, offsets): each lane has its own bytes, one lane behind the other.
define internal <32 x i64> @local_addresses(ptr %local, <32 x i64> %a) #0 {
  %base = ptrtoint ptr %local to i64
  %b1 = insertelement <32 x i64> poison, i64 %base, i64 0
  %b = shufflevector <32 x i64> %b1, <32 x i64> poison, <32 x i32> zeroinitializer
  %own = mul <32 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15, i64 16, i64 17, i64 18, i64 19, i64 20, i64 21, i64 22, i64 23, i64 24, i64 25, i64 26, i64 27, i64 28, i64 29, i64 30, i64 31>, splat (i64 ${LOCAL_STRIDE})
  %first = add <32 x i64> %b, %own
  %there = add <32 x i64> %first, %a
  ret <32 x i64> %there
}

; @bank_addresses(base, offsets): constant memory and parameters are the same for all lanes.
define internal <32 x i64> @bank_addresses(ptr %bank, <32 x i64> %a) #0 {
  %base = ptrtoint ptr %bank to i64
  %b1 = insertelement <32 x i64> poison, i64 %base, i64 0
  %b = shufflevector <32 x i64> %b1, <32 x i64> poison, <32 x i32> zeroinitializer
  %there = add <32 x i64> %b, %a
  ret <32 x i64> %there
}

; @local_check(ctx, local, sites, offsets, mask, size, direction, out) -> flags, 0 if a fault was recorded: host
; addresses go to ``out``. Its like for the other spaces; the sites are for those that count.
define internal i32 @local_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir, ptr %out) #1 {
  %ok = call i32 @range_check(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 ${LOCAL_BYTES}, i64 ${LOCAL_WINDOW})
  %there = call <32 x i64> @local_addresses(ptr %local, <32 x i64> %a)
  store <32 x i64> %there, ptr %out, align 64
  %fine = icmp ne i32 %ok, 0
  br i1 %fine, label %look, label %out.of.it
look:
  %seen = call i32 @observe_local(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir)
  %bad = icmp eq i32 %seen, 0
  %flags = select i1 %bad, i32 0, i32 %ok
  ret i32 %flags
out.of.it:
  ret i32 0
}

define internal i32 @const_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir, ptr %out) #1 {
  %p.l = getelementptr i8, ptr %ctx, i64 ${Context.CONSTANT_SIZE}
  %limit = load i64, ptr %p.l, align 8
  %ok = call i32 @range_check(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %limit, i64 ${CONST_WINDOW})
  %p.b = getelementptr i8, ptr %ctx, i64 ${Context.CONSTANT}
  %bank = load ptr, ptr %p.b, align 8
  %there = call <32 x i64> @bank_addresses(ptr %bank, <32 x i64> %a)
  store <32 x i64> %there, ptr %out, align 64
  ret i32 %ok
}

define internal i32 @param_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir, ptr %out) #1 {
  %p.l = getelementptr i8, ptr %ctx, i64 ${Context.PARAMS_SIZE}
  %limit = load i64, ptr %p.l, align 8
  %ok = call i32 @range_check(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %limit, i64 ${PARAM_WINDOW})
  %p.b = getelementptr i8, ptr %ctx, i64 ${Context.PARAMS}
  %bank = load ptr, ptr %p.b, align 8
  %there = call <32 x i64> @bank_addresses(ptr %bank, <32 x i64> %a)
  store <32 x i64> %there, ptr %out, align 64
  ret i32 %ok
}

; Lanes may lie in different spaces: each part is checked and counted as an access of its space.
define internal i32 @generic_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir, ptr %out) #1 {
  %part = alloca <32 x i64>, align 64
  %top = lshr <32 x i64> %a, splat (i64 ${WINDOW_SHIFT})
  %offset = and <32 x i64> %a, splat (i64 72057594037927935)
  %is.s = icmp eq <32 x i64> %top, splat (i64 1)
  %bs = bitcast <32 x i1> %is.s to i32
  %ms = and i32 %bs, %mask
  %is.l = icmp eq <32 x i64> %top, splat (i64 2)
  %bl = bitcast <32 x i1> %is.l to i32
  %ml = and i32 %bl, %mask
  %is.c = icmp eq <32 x i64> %top, splat (i64 3)
  %bc = bitcast <32 x i1> %is.c to i32
  %mc = and i32 %bc, %mask
  %is.p = icmp eq <32 x i64> %top, splat (i64 4)
  %bp = bitcast <32 x i1> %is.p to i32
  %mp = and i32 %bp, %mask
  %m1 = or i32 %ms, %ml
  %m2 = or i32 %mc, %mp
  %m3 = or i32 %m1, %m2
  %mg = xor i32 %m3, %mask
  store <32 x i64> %a, ptr %out, align 64
  %writes = icmp ne i64 %dir, ${Buffers.READ}
  %atomic = icmp eq i64 %dir, ${Buffers.ATOMIC}
  %m.lc = select i1 %atomic, i32 %ml, i32 0
  %m.ro = select i1 %writes, i32 %m2, i32 0
  %m.no = or i32 %m.lc, %m.ro
  %allowed = icmp eq i32 %m.no, 0
  br i1 %allowed, label %global, label %refused
refused:
  %lane = call i32 @llvm.cttz.i32(i32 %m.no, i1 true)
  %address = extractelement <32 x i64> %a, i32 %lane
  %is.ro = icmp ne i32 %m.ro, 0
  %kind = select i1 %is.ro, i32 9, i32 10
  call void @space_fault(ptr %ctx, i32 %kind, i32 %lane, i64 %address, i32 %size)
  ret i32 0
global:
  %g.some = icmp ne i32 %mg, 0
  br i1 %g.some, label %global.do, label %shared
global.do:
  %gf = call i32 @global_check(ptr %ctx, ptr %gs, <32 x i64> %a, i32 %mg, i32 %size, i64 %dir)
  %g.bad = icmp eq i32 %gf, 0
  br i1 %g.bad, label %bad, label %shared
shared:
  %flags.g = phi i32 [ ${FLAG_OK}, %global ], [ %gf, %global.do ]
  %s.some = icmp ne i32 %ms, 0
  br i1 %s.some, label %shared.do, label %local.test
shared.do:
; An offset beyond 31 bits is outside.
  %s.far = icmp ugt <32 x i64> %offset, splat (i64 2147483647)
  %s.low = trunc <32 x i64> %offset to <32 x i32>
  %s.off = select <32 x i1> %s.far, <32 x i32> splat (i32 -16), <32 x i32> %s.low
  %sf = call i32 @shared_check(ptr %ctx, ptr %ss, <32 x i32> %s.off, i32 %ms, i32 %size, i64 %dir)
  %s.there = call <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %s.low)
  %s.old = load <32 x i64>, ptr %out, align 64
  %s.new = select <32 x i1> %is.s, <32 x i64> %s.there, <32 x i64> %s.old
  store <32 x i64> %s.new, ptr %out, align 64
  %s.bad = icmp eq i32 %sf, 0
  br i1 %s.bad, label %bad, label %local.test
local.test:
  %flags.s = phi i32 [ %flags.g, %shared ], [ %sf, %shared.do ]
  %l.some = icmp ne i32 %ml, 0
  br i1 %l.some, label %local.do, label %const.test
local.do:
  %lf = call i32 @local_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %offset, i32 %ml, i32 %size, i64 %dir, ptr %part)
  call void @take(ptr %part, ptr %out, <32 x i1> %is.l)
  %l.bad = icmp eq i32 %lf, 0
  br i1 %l.bad, label %bad, label %const.test
const.test:
  %c.some = icmp ne i32 %mc, 0
  br i1 %c.some, label %const.do, label %param.test
const.do:
  %cf = call i32 @const_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %offset, i32 %mc, i32 %size, i64 %dir, ptr %part)
  call void @take(ptr %part, ptr %out, <32 x i1> %is.c)
  %c.bad = icmp eq i32 %cf, 0
  br i1 %c.bad, label %bad, label %param.test
param.test:
  %p.some = icmp ne i32 %mp, 0
  br i1 %p.some, label %param.do, label %done
param.do:
  %pf = call i32 @param_check(ptr %ctx, ptr %local, ptr %gs, ptr %ss, <32 x i64> %offset, i32 %mp, i32 %size, i64 %dir, ptr %part)
  call void @take(ptr %part, ptr %out, <32 x i1> %is.p)
  %p.bad = icmp eq i32 %pf, 0
  br i1 %p.bad, label %bad, label %done
done:
; What is known of how the lanes lie holds where one space has them all.
  %all.g = icmp eq i32 %mg, %mask
  %all.s = icmp eq i32 %ms, %mask
  %one = or i1 %all.g, %all.s
  %flags = select i1 %one, i32 %flags.s, i32 ${FLAG_OK}
  ret i32 %flags
bad:
  ret i32 0
}

; @take(from, to, lanes): the addresses of these lanes.
define internal void @take(ptr %from, ptr %to, <32 x i1> %which) #1 {
  %new = load <32 x i64>, ptr %from, align 64
  %old = load <32 x i64>, ptr %to, align 64
  %both = select <32 x i1> %which, <32 x i64> %new, <32 x i64> %old
  store <32 x i64> %both, ptr %to, align 64
  ret void
}

; @bank_place(ctx, base field, size field, window, offset, mask, size) -> host address, null if a fault was recorded: all
; lanes agree. With no active lane the address is that of the bank itself.
define internal ptr @bank_place(ptr %ctx, i64 %base, i64 %extent, i64 %window, i64 %a, i32 %mask, i32 %size) #1 {
  %p.b = getelementptr i8, ptr %ctx, i64 %base
  %bank = load ptr, ptr %p.b, align 8
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %idle, label %some
idle:
  ret ptr %ctx
some:
  %p.l = getelementptr i8, ptr %ctx, i64 %extent
  %limit = load i64, ptr %p.l, align 8
  %one = insertelement <32 x i64> poison, i64 %a, i64 0
  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %ok = call i32 @range_check(ptr %ctx, <32 x i64> %all, i32 %mask, i32 %size, i64 %limit, i64 %window)
  %bad = icmp eq i32 %ok, 0
  br i1 %bad, label %fault, label %good
good:
  %there = getelementptr i8, ptr %bank, i64 %a
  ret ptr %there
fault:
  ret ptr null
}
