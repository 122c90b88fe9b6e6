; What shadow_*.ll look at, for code that is not checked: nothing happens. See there.

define internal void @observe_start(ptr %ctx) #3 {
  ret void
}

define internal void @observe_turn(ptr %ctx, i32 %warp) #3 {
  ret void
}

define internal void @observe_lanes(ptr %ctx) #3 {
  ret void
}

define internal void @observe_exit(ptr %ctx) #3 {
  ret void
}

define internal i32 @observe_end(ptr %ctx) #3 {
  ret i32 1
}

define internal i32 @observe_arrive(ptr %ctx, i32 %bar, i32 %want) #3 {
  ret i32 1
}

define internal void @observe_open(ptr %ctx, i32 %bar, i32 %want) #3 {
  ret void
}

define internal i32 @observe_copy(ptr %ctx, ptr %sites, <32 x i64> %src, <32 x i32> %bytes, i32 %mask) #3 {
  ret i32 1
}

define internal void @observe_wait(ptr %ctx, ptr %ws, ptr %queue, i32 %upto) #3 {
  ret void
}

define internal void @observe_copied(ptr %ctx, ptr %e) #3 {
  ret void
}

define internal i32 @observe_mbarrier(ptr %ctx, ptr %at, i32 %mask, i32 %bits, i32 %instruction) #3 {
  ret i32 1
}

define internal void @observe_passed(ptr %ctx, ptr %at, i32 %mask) #3 {
  ret void
}

define internal void @observe_fence(ptr %ctx) #3 {
  ret void
}

define internal i32 @observe_stored(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %flags, i32 %size, ptr %buf) #3 {
  ret i32 1
}

define internal i32 @observe_local(ptr %ctx, <32 x i64> %a, i32 %mask, i32 %size, i64 %dir) #3 {
  ret i32 1
}
