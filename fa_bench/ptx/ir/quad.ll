; Loads of four 32-bit words per lane, deinterleaved: word k of all lanes at buffer + 128 k.

; @ld_global_quad(ctx, sites, addresses, mask, buffer) -> flags, 0 if a fault was recorded.
define internal i32 @ld_global_quad(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @global_check(ptr %ctx, ptr %sites, <32 x i64> %a, i32 %mask, i32 16, i64 ${Buffers.READ})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  %some = icmp ne i32 %mask, 0
  br i1 %some, label %move, label %done
move:
  call void @quads(<32 x i64> %a, i32 %mask, ptr %buf)
  br label %done
done:
  ret i32 %flags
bad:
  ret i32 0
}

define internal i32 @ld_shared_quad(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, ptr %buf) #1 {
  %flags = call i32 @shared_check(ptr %ctx, ptr %sites, <32 x i32> %a, i32 %mask, i32 16, i64 ${Buffers.READ})
  %ok = icmp ne i32 %flags, 0
  br i1 %ok, label %go, label %bad
go:
  %some = icmp ne i32 %mask, 0
  br i1 %some, label %move, label %done
move:
  %there = call <32 x i64> @shared_addresses(ptr %ctx, <32 x i32> %a)
  call void @quads(<32 x i64> %there, i32 %mask, ptr %buf)
  br label %done
done:
  ret i32 %flags
bad:
  ret i32 0
}
