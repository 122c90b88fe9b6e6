; @atomic_${NAME}(addresses, mask, flush, b, c, old): lane after lane, atomic against other threads. ``flush`` are the lanes
; whose subnormals become zero. Words in dollar braces are made by runtime_atomic.py.
define internal void @atomic_${NAME}(<32 x i64> %a, i32 %mask, i32 %flush, ptr %b, ptr %c, ptr %out) #1 {
  %slots = alloca <32 x i64>, align 64
  store <32 x i64> %a, ptr %slots, align 64
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.next, %stored ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %sp = getelementptr i64, ptr %slots, i64 %l64
  %p = load ptr, ptr %sp, align 8
  %bp = getelementptr ${INT}, ptr %b, i64 %l64
  %bv = load ${INT}, ptr %bp, align ${BYTES}
  %cp = getelementptr ${INT}, ptr %c, i64 %l64
  %cv = load ${INT}, ptr %cp, align ${BYTES}
  %fl.bit = lshr i32 %flush, %l
  %fl = trunc i32 %fl.bit to i1
  %first = load atomic ${INT}, ptr %p monotonic, align ${BYTES}
  br label %try
try:
  %old = phi ${INT} [ %first, %lane ], [ %seen, %try ]
${BODY}
  %swapped = cmpxchg ptr %p, ${INT} %old, ${INT} %new seq_cst seq_cst
  %seen = extractvalue { ${INT}, i1 } %swapped, 0
  %won = extractvalue { ${INT}, i1 } %swapped, 1
  br i1 %won, label %stored, label %try
stored:
  %op = getelementptr ${INT}, ptr %out, i64 %l64
  store ${INT} %old, ptr %op, align ${BYTES}
  %lm = sub i32 %left, 1
  %left.next = and i32 %left, %lm
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %lane, label %done
done:
  ret void
}
