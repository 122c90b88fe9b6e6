; What check.ll offers, without counting and without bounds: only how the lanes lie, for the data to move fast. It is
; the yardstick for what counting costs. Words in dollar braces are constants of layout.py.

declare i32 @llvm.cttz.i32(i32, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i32 @lane_flags(<32 x i64> %a, i32 %mask, i32 %size) #0 {
  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  %lane = and i32 %first, 31
  %base = extractelement <32 x i64> %a, i32 %lane
  %base.one = insertelement <32 x i64> poison, i64 %base, i64 0
  %base.v = shufflevector <32 x i64> %base.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %d0 = sub <32 x i64> %a, %base.v
  %on = bitcast i32 %mask to <32 x i1>
  %delta = select <32 x i1> %on, <32 x i64> %d0, <32 x i64> zeroinitializer
  %size64 = zext i32 %size to i64
  %size.one = insertelement <32 x i64> poison, i64 %size64, i64 0
  %size.v = shufflevector <32 x i64> %size.one, <32 x i64> poison, <32 x i32> zeroinitializer
  %iota = mul <32 x i64> %size.v, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12, i64 13, i64 14, i64 15, i64 16, i64 17, i64 18, i64 19, i64 20, i64 21, i64 22, i64 23, i64 24, i64 25, i64 26, i64 27, i64 28, i64 29, i64 30, i64 31>
  %ne.c = icmp ne <32 x i64> %delta, %iota
  %ne.cb = bitcast <32 x i1> %ne.c to i32
  %same.c = icmp eq i32 %ne.cb, 0
  %full = icmp eq i32 %mask, -1
  %contiguous = and i1 %full, %same.c
  %ne.u = icmp ne <32 x i64> %delta, zeroinitializer
  %ne.ub = bitcast <32 x i1> %ne.u to i32
  %uniform = icmp eq i32 %ne.ub, 0
  %fl.c = select i1 %contiguous, i32 ${FLAG_OK | FLAG_CONTIGUOUS}, i32 ${FLAG_OK}
  %flags = select i1 %uniform, i32 ${FLAG_OK | FLAG_UNIFORM}, i32 %fl.c
  ret i32 %flags
}

define internal i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %write) #1 {
  %flags = call i32 @lane_flags(<32 x i64> %a, i32 %mask, i32 %size)
  ret i32 %flags
}

define internal i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #1 {
  %wide = zext <32 x i32> %a to <32 x i64>
  %flags = call i32 @lane_flags(<32 x i64> %wide, i32 %mask, i32 %size)
  ret i32 %flags
}

define internal i32 @global_count(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 %size, i64 %write) #3 {
  ret i32 ${FLAG_OK}
}

define internal i32 @shared_count(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 %size, i64 %dir) #3 {
  ret i32 ${FLAG_OK}
}

define internal <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %a) #0 {
  %p = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %base = load i64, ptr %p, align 8
  %one = insertelement <32 x i64> poison, i64 %base, i64 0
  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer
  %wide = zext <32 x i32> %a to <32 x i64>
  %there = add <32 x i64> %wide, %all
  ret <32 x i64> %there
}

define internal ptr @shared_uniform(ptr %ctx, ptr %sites, i32 %a, i32 %mask, i32 %size) #1 {
  %p.sh = getelementptr i8, ptr %ctx, i64 ${Context.SHARED}
  %sh = load ptr, ptr %p.sh, align 8
  %a64 = zext i32 %a to i64
  %there = getelementptr i8, ptr %sh, i64 %a64
  %none = icmp eq i32 %mask, 0
  %p = select i1 %none, ptr %sh, ptr %there
  ret ptr %p
}

define internal ptr @global_uniform(ptr %ctx, ptr %sites, i64 %a, i32 %mask, i32 %size) #1 {
  %there = inttoptr i64 %a to ptr
  %none = icmp eq i32 %mask, 0
  %p = select i1 %none, ptr %sites, ptr %there
  ret ptr %p
}
