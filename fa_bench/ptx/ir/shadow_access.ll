; Accesses with checks: what check.ll offers, and behind it a look at the shadow of the memory. Words in dollar braces are
; constants of layout.py.

declare i32 @llvm.ctlz.i32(i32, i1)

define internal i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %flags = call i32 @counted_shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir)
  %fine = icmp ne i32 %flags, 0
  %some = icmp ne i32 %mask, 0
  %go = and i1 %fine, %some
  br i1 %go, label %look, label %out
look:
  %p.origin = getelementptr i8, ptr %sites, i64 ${SharedSite.ORIGIN}
  %origin = load i32, ptr %p.origin, align 4
  %bits = call i32 @access_bits(i64 %dir, i32 %origin)
  %instruction = lshr i32 %origin, ${Origin.SHIFT}
; Lanes that read the same bytes are one reader.
  %reads = icmp eq i64 %dir, ${Buffers.READ}
  %f.u = and i32 %flags, ${FLAG_UNIFORM}
  %uniform = icmp ne i32 %f.u, 0
  %one = and i1 %reads, %uniform
  %minus = sub i32 0, %mask
  %lowest = and i32 %mask, %minus
  %lanes = select i1 %one, i32 %lowest, i32 %mask
  %zeros = call i32 @llvm.ctlz.i32(i32 %mask, i1 true)
  %highest = sub i32 31, %zeros
  %reader = select i1 %one, i32 %highest, i32 -1
  %ok = call i32 @shadow_shared(ptr %ctx, <32 x i32> %a, i32 %lanes, i32 %size, i32 %instruction, i32 %bits, i32 %reader)
  %bad = icmp eq i32 %ok, 0
  %flags.n = select i1 %bad, i32 0, i32 %flags
  br label %out
out:
  %result = phi i32 [ %flags, %0 ], [ %flags.n, %look ]
  ret i32 %result
}

define internal ptr @shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size) #1 {
  %there = call ptr @counted_shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size)
  %fine = icmp ne ptr %there, null
  %some = icmp ne i32 %mask, 0
  %go = and i1 %fine, %some
  br i1 %go, label %look, label %out
look:
  %p.origin = getelementptr i8, ptr %sites, i64 ${SharedSite.ORIGIN}
  %origin = load i32, ptr %p.origin, align 4
  %bits = call i32 @access_bits(i64 ${Buffers.READ}, i32 %origin)
  %instruction = lshr i32 %origin, ${Origin.SHIFT}
  %minus = sub i32 0, %mask
  %lowest = and i32 %mask, %minus
  %one = insertelement <32 x i32> poison, i32 %a, i64 0
  %all = shufflevector <32 x i32> %one, <32 x i32> poison, <32 x i32> zeroinitializer
  %zeros = call i32 @llvm.ctlz.i32(i32 %mask, i1 true)
  %reader = sub i32 31, %zeros
  %ok = call i32 @shadow_shared(ptr %ctx, <32 x i32> %all, i32 %lowest, i32 %size, i32 %instruction, i32 %bits, i32 %reader)
  %bad = icmp eq i32 %ok, 0
  %there.n = select i1 %bad, ptr null, ptr %there
  br label %out
out:
  %result = phi ptr [ %there, %0 ], [ %there.n, %look ]
  ret ptr %result
}

define internal i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %flags = call i32 @counted_global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir)
  %fine = icmp ne i32 %flags, 0
  %some = icmp ne i32 %mask, 0
  %p.origin = getelementptr i8, ptr %sites, i64 ${GlobalSite.ORIGIN}
  %origin = load i32, ptr %p.origin, align 4
; How much a copy reads of what it may read is not known here: @observe_copy looks.
  %f.c = and i32 %origin, ${Origin.COPY}
  %other = icmp eq i32 %f.c, 0
  %go0 = and i1 %fine, %some
  %go = and i1 %go0, %other
  br i1 %go, label %look, label %out
look:
  %reads = icmp eq i64 %dir, ${Buffers.READ}
  %f.u = and i32 %flags, ${FLAG_UNIFORM}
  %uniform = icmp ne i32 %f.u, 0
  %one = and i1 %reads, %uniform
  %minus = sub i32 0, %mask
  %lowest = and i32 %mask, %minus
  %lanes = select i1 %one, i32 %lowest, i32 %mask
  %size1 = insertelement <32 x i32> poison, i32 %size, i64 0
  %sizes = shufflevector <32 x i32> %size1, <32 x i32> poison, <32 x i32> zeroinitializer
  %bits = call i32 @access_bits(i64 %dir, i32 %origin)
  %ok = call i32 @shadow_global(ptr %ctx, <32 x i64> %a, <32 x i32> %sizes, i32 %lanes, i32 %origin, i32 %bits)
  %bad = icmp eq i32 %ok, 0
  %flags.n = select i1 %bad, i32 0, i32 %flags
  br label %out
out:
  %result = phi i32 [ %flags, %0 ], [ %flags.n, %look ]
  ret i32 %result
}

define internal ptr @global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size) #1 {
  %there = call ptr @counted_global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size)
  %fine = icmp ne ptr %there, null
  %some = icmp ne i32 %mask, 0
  %go = and i1 %fine, %some
  br i1 %go, label %look, label %out
look:
  %p.origin = getelementptr i8, ptr %sites, i64 ${GlobalSite.ORIGIN}
  %origin = load i32, ptr %p.origin, align 4
  %minus = sub i32 0, %mask
  %lowest = and i32 %mask, %minus
  %one = insertelement <32 x i64> poison, i64 %a, i64 0
  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %size1 = insertelement <32 x i32> poison, i32 %size, i64 0
  %sizes = shufflevector <32 x i32> %size1, <32 x i32> poison, <32 x i32> zeroinitializer
  %bits = call i32 @access_bits(i64 ${Buffers.READ}, i32 %origin)
  %ok = call i32 @shadow_global(ptr %ctx, <32 x i64> %all, <32 x i32> %sizes, i32 %lowest, i32 %origin, i32 %bits)
  %bad = icmp eq i32 %ok, 0
  %there.n = select i1 %bad, ptr null, ptr %there
  br label %out
out:
  %result = phi ptr [ %there, %0 ], [ %there.n, %look ]
  ret ptr %result
}

; @access_bits(direction, origin) -> flags of Access.
define internal i32 @access_bits(i64 %dir, i32 %origin) #3 {
  %is.read = icmp eq i64 %dir, ${Buffers.READ}
  %is.copy = icmp eq i64 %dir, ${Buffers.COPY}
  %is.atomic = icmp eq i64 %dir, ${Buffers.ATOMIC}
  %reads = or i1 %is.read, %is.atomic
  %f.s = and i32 %origin, ${Origin.STRONG}
  %strong = icmp ne i32 %f.s, 0
  %acquires = and i1 %strong, %reads
  %not.read = xor i1 %is.read, true
  %releases = and i1 %strong, %not.read
  %b1 = select i1 %reads, i32 ${Access.READS}, i32 0
  %b2 = select i1 %is.read, i32 0, i32 ${Access.WRITES}
  %b3 = select i1 %is.copy, i32 ${Access.COPIES}, i32 0
  %b4 = select i1 %acquires, i32 ${Access.ACQUIRES}, i32 0
  %b5 = select i1 %releases, i32 ${Access.RELEASES}, i32 0
  %b6 = select i1 %strong, i32 ${Access.STRONG}, i32 0
  %b12 = or i32 %b1, %b2
  %b34 = or i32 %b3, %b4
  %b56 = or i32 %b5, %b6
  %b14 = or i32 %b12, %b34
  %bits = or i32 %b14, %b56
  ret i32 %bits
}

; @finding(ctx, kind, lane, address, size, byte, who, cta): what is wrong, and who made the other access.
define internal void @finding(ptr %ctx, i32 %kind, i32 %lane, i64 %address, i32 %size, i32 %byte, i32 %who, i32 %cta) #1 {
  %f.kind = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_KIND}
  store i32 %kind, ptr %f.kind, align 4
  %f.lane = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_LANE}
  store i32 %lane, ptr %f.lane, align 4
  %f.addr = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_ADDRESS}
  store i64 %address, ptr %f.addr, align 8
  %f.size = getelementptr i8, ptr %ctx, i64 ${Context.FAULT_SIZE}
  store i32 %size, ptr %f.size, align 4
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %f.byte = getelementptr i8, ptr %ck, i64 ${Checker.BYTE}
  store i32 %byte, ptr %f.byte, align 4
  %f.who = getelementptr i8, ptr %ck, i64 ${Checker.OTHER}
  store i32 %who, ptr %f.who, align 4
  %f.cta = getelementptr i8, ptr %ck, i64 ${Checker.OTHER_CTA}
  store i32 %cta, ptr %f.cta, align 4
  ret void
}
