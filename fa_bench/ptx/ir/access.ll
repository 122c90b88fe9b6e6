; Loads and stores of ${SIZE} bytes per lane, element type ${UNIT}: the 32 lanes' data pass through a buffer, lane after
; lane. Words in dollar braces are constants of layout.py and of the access.

; @gather_${SIZE}(addresses, mask, flags, buffer)
define internal void @gather_${SIZE}(<32 x i64> %a, i32 %mask, i32 %flags, ptr %buf) #1 {
  %slots = alloca <32 x i64>, align 64
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %out, label %some
some:
  %f = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %af = extractelement <32 x i64> %a, i32 %f
  %pf = inttoptr i64 %af to ptr
  %cf = and i32 %flags, ${FLAG_CONTIGUOUS}
  %contiguous = icmp ne i32 %cf, 0
  br i1 %contiguous, label %block, label %other
block:
  call void @llvm.memcpy.p0.p0.i64(ptr %buf, ptr %pf, i64 ${SIZE * 32}, i1 false)
  ret void
other:
  %uf = and i32 %flags, ${FLAG_UNIFORM}
  %uniform = icmp ne i32 %uf, 0
  br i1 %uniform, label %one, label %each
one:
  %v1 = load ${UNIT}, ptr %pf, align ${SIZE}
  br label %spread
spread:
  %k = phi i64 [ 0, %one ], [ %k.next, %spread ]
  %ko = mul i64 %k, ${SIZE}
  %kp = getelementptr i8, ptr %buf, i64 %ko
  store ${UNIT} %v1, ptr %kp, align ${SIZE}
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, 32
  br i1 %k.more, label %spread, label %out
each:
  store <32 x i64> %a, ptr %slots, align 64
  br label %loop
loop:
  %left = phi i32 [ %mask, %each ], [ %left.next, %loop ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i64, ptr %slots, i64 %l64
  %there = load ptr, ptr %sp, align 8
  %ho = mul i64 %l64, ${SIZE}
  %here = getelementptr i8, ptr %buf, i64 %ho
  %v = load ${UNIT}, ptr %there, align ${SIZE}
  store ${UNIT} %v, ptr %here, align ${SIZE}
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %loop, label %out
out:
  ret void
}

; @scatter_${SIZE}(addresses, mask, flags, buffer): where lanes meet, the highest lane's data stay.
define internal void @scatter_${SIZE}(<32 x i64> %a, i32 %mask, i32 %flags, ptr %buf) #1 {
  %slots = alloca <32 x i64>, align 64
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %out, label %some
some:
  %a0 = extractelement <32 x i64> %a, i64 0
  %p0 = inttoptr i64 %a0 to ptr
  %cf = and i32 %flags, ${FLAG_CONTIGUOUS}
  %contiguous = icmp ne i32 %cf, 0
  br i1 %contiguous, label %block, label %each
block:
  call void @llvm.memcpy.p0.p0.i64(ptr %p0, ptr %buf, i64 ${SIZE * 32}, i1 false)
  ret void
each:
  store <32 x i64> %a, ptr %slots, align 64
  br label %loop
loop:
  %left = phi i32 [ %mask, %each ], [ %left.next, %loop ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i64, ptr %slots, i64 %l64
  %there = load ptr, ptr %sp, align 8
  %ho = mul i64 %l64, ${SIZE}
  %here = getelementptr i8, ptr %buf, i64 %ho
  %v = load ${UNIT}, ptr %here, align ${SIZE}
  store ${UNIT} %v, ptr %there, align ${SIZE}
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %loop, label %out
out:
  ret void
}

; @ld_global_${SIZE}(ctx, sites, addresses, mask, buffer) -> flags, 0 if a fault was recorded; and its like.
define internal i32 @ld_global_${SIZE}(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 ${SIZE}, i64 ${Buffers.READ})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  call void @gather_${SIZE}(<32 x i64> %a, i32 %mask, i32 %flags, ptr %buf)
  ret i32 %flags
bad:
  ret i32 0
}

define internal i32 @st_global_${SIZE}(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 ${SIZE}, i64 ${Buffers.WRITE})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  call void @scatter_${SIZE}(<32 x i64> %a, i32 %mask, i32 %flags, ptr %buf)
  %kept = call i32 @observe_stored(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %flags, i32 ${SIZE}, ptr %buf)
  %lost = icmp eq i32 %kept, 0
  %result = select i1 %lost, i32 0, i32 %flags
  ret i32 %result
bad:
  ret i32 0
}

define internal i32 @ld_shared_${SIZE}(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 ${SIZE}, i64 ${Buffers.READ})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  %there = call <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %a)
  call void @gather_${SIZE}(<32 x i64> %there, i32 %mask, i32 %flags, ptr %buf)
  ret i32 %flags
bad:
  ret i32 0
}

define internal i32 @st_shared_${SIZE}(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 ${SIZE}, i64 ${Buffers.WRITE})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  %there = call <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %a)
  call void @scatter_${SIZE}(<32 x i64> %there, i32 %mask, i32 %flags, ptr %buf)
  %kept = call i32 @observe_stored(ptr %ctx, <32 x i64> %there, i32 %mask, i32 %flags, i32 ${SIZE}, ptr %buf)
  %lost = icmp eq i32 %kept, 0
  %result = select i1 %lost, i32 0, i32 %flags
  ret i32 %result
bad:
  ret i32 0
}
