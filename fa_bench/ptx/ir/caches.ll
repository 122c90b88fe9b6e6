; What one cache does: places, sets, replacement, write-back. Words in dollar braces are constants of layout.py. A line has
; 128 bytes in four sectors; a place of a cache holds one line:
;
;   tag    line number + 1, 0 if there is none
;   state  valid sectors (bits 0 to 3), dirty sectors (4 to 7), tensor that brought it in (from 8)
;   stamp  when it was last used
;
; The tags of a set lie together, then its states, then its stamps; a place is the index of its tag.

declare i64 @llvm.ctpop.i64(i64)
declare i16 @llvm.cttz.i16(i16, i1)
declare i64 @llvm.vector.reduce.umin.v16i64(<16 x i64>)

; @set(cache, line): index of the first place of the line's set. Lines that follow each other lie in different sets, and
; each round of all sets begins 97 sets further on, so that strides of a power of two don't meet in one.
define internal i64 @set(ptr %cache, i64 %line) #0 {
  %p = getelementptr i8, ptr %cache, i64 ${Cache.SETS}
  %sets = load i64, ptr %p, align 8
  %round = udiv i64 %line, %sets
  %turn = mul i64 %round, 97
  %at = add i64 %line, %turn
  %s = urem i64 %at, %sets
  %place = mul i64 %s, ${Cache.SET_WORDS}
  ret i64 %place
}

; @find(cache, line): the line's place, -1 if it is not there.
define internal i64 @find(ptr %cache, i64 %line) #0 {
  %set = call i64 @set(ptr %cache, i64 %line)
  %here = call ptr @field(ptr %cache, i64 ${Cache.TAGS}, i64 %set)
  %v = load <${Cache.WAYS} x i64>, ptr %here, align 64
  %tag = add i64 %line, 1
  %one = insertelement <${Cache.WAYS} x i64> poison, i64 %tag, i64 0
  %all = shufflevector <${Cache.WAYS} x i64> %one, <${Cache.WAYS} x i64> poison, <${Cache.WAYS} x i32> zeroinitializer
  %eq = icmp eq <${Cache.WAYS} x i64> %v, %all
  %b = bitcast <${Cache.WAYS} x i1> %eq to i${Cache.WAYS}
  %none = icmp eq i${Cache.WAYS} %b, 0
  %w = call i${Cache.WAYS} @llvm.cttz.i${Cache.WAYS}(i${Cache.WAYS} %b, i1 false)
  %w64 = zext i${Cache.WAYS} %w to i64
  %place = add i64 %set, %w64
  %r = select i1 %none, i64 -1, i64 %place
  ret i64 %r
}

; @oldest(cache, line): the place of the line's set that was not used for the longest time; an empty one's stamp is 0.
define internal i64 @oldest(ptr %cache, i64 %line) #0 {
  %set = call i64 @set(ptr %cache, i64 %line)
  %here = call ptr @field(ptr %cache, i64 ${Cache.STAMPS}, i64 %set)
  %v = load <${Cache.WAYS} x i64>, ptr %here, align 64
  %least = call i64 @llvm.vector.reduce.umin.v${Cache.WAYS}i64(<${Cache.WAYS} x i64> %v)
  %one = insertelement <${Cache.WAYS} x i64> poison, i64 %least, i64 0
  %all = shufflevector <${Cache.WAYS} x i64> %one, <${Cache.WAYS} x i64> poison, <${Cache.WAYS} x i32> zeroinitializer
  %eq = icmp eq <${Cache.WAYS} x i64> %v, %all
  %b = bitcast <${Cache.WAYS} x i1> %eq to i${Cache.WAYS}
  %w = call i${Cache.WAYS} @llvm.cttz.i${Cache.WAYS}(i${Cache.WAYS} %b, i1 true)
  %w64 = zext i${Cache.WAYS} %w to i64
  %place = add i64 %set, %w64
  ret i64 %place
}

; @field(cache, kind, place): pointer to a place's tag, state or stamp.
define internal ptr @field(ptr %cache, i64 %kind, i64 %place) #0 {
  %p = getelementptr i8, ptr %cache, i64 ${Cache.PLACES}
  %places = load ptr, ptr %p, align 8
  %index = add i64 %place, %kind
  %f = getelementptr i64, ptr %places, i64 %index
  ret ptr %f
}

; @sectors(mask): their number.
define internal i64 @sectors(i64 %mask) #0 {
  %n = call i64 @llvm.ctpop.i64(i64 %mask)
  ret i64 %n
}

; @add(counters, index, n).
define internal void @add(ptr %counters, i64 %index, i64 %n) #0 {
  %p = getelementptr i64, ptr %counters, i64 %index
  %v = load i64, ptr %p, align 8
  %v.n = add i64 %v, %n
  store i64 %v.n, ptr %p, align 8
  ret void
}

; @enter(cache, line, tensor, counters): the place of a line that was not there. What it displaces is written back.
define internal i64 @enter(ptr %cache, i64 %line, i64 %tensor, ptr %counters) #1 {
  %place = call i64 @oldest(ptr %cache, i64 %line)
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %dirty = and i64 %state, 240
  %clean = icmp eq i64 %dirty, 0
  br i1 %clean, label %take, label %back
back:
  call void @write_page(ptr %cache, i64 %place, ptr %counters)
  br label %take
take:
  %p.tag = call ptr @field(ptr %cache, i64 ${Cache.TAGS}, i64 %place)
  %tag = add i64 %line, 1
  store i64 %tag, ptr %p.tag, align 8
  %fresh = shl i64 %tensor, 8
  store i64 %fresh, ptr %p.state, align 8
  ret i64 %place
}

; @l1_read(cache, clock, line, sectors) -> the sectors that are missing; they are there afterwards.
define internal i64 @l1_read(ptr %cache, i64 %clock, i64 %line, i64 %sectors) #1 {
  %found = call i64 @find(ptr %cache, i64 %line)
  %absent = icmp slt i64 %found, 0
  br i1 %absent, label %new, label %old
new:
  %fresh = call i64 @enter(ptr %cache, i64 %line, i64 0, ptr null)
  br label %old
old:
  %place = phi i64 [ %found, %0 ], [ %fresh, %new ]
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %not = xor i64 %state, -1
  %missing = and i64 %sectors, %not
  %state.n = or i64 %state, %sectors
  store i64 %state.n, ptr %p.state, align 8
  %p.stamp = call ptr @field(ptr %cache, i64 ${Cache.STAMPS}, i64 %place)
  store i64 %clock, ptr %p.stamp, align 8
  ret i64 %missing
}

; @drop(cache, line, sectors): they are not valid there any more.
define internal void @drop(ptr %cache, i64 %line, i64 %sectors) #1 {
  %place = call i64 @find(ptr %cache, i64 %line)
  %absent = icmp slt i64 %place, 0
  br i1 %absent, label %out, label %there
there:
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %keep = xor i64 %sectors, -1
  %state.n = and i64 %state, %keep
  store i64 %state.n, ptr %p.state, align 8
  br label %out
out:
  ret void
}

; @l2_look(cache, clock, line, sectors) -> the sectors that are missing; the line counts as used.
define internal i64 @l2_look(ptr %cache, i64 %clock, i64 %line, i64 %sectors) #1 {
  %place = call i64 @find(ptr %cache, i64 %line)
  %absent = icmp slt i64 %place, 0
  br i1 %absent, label %all, label %some
all:
  ret i64 %sectors
some:
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %not = xor i64 %state, -1
  %missing = and i64 %sectors, %not
  %p.stamp = call ptr @field(ptr %cache, i64 ${Cache.STAMPS}, i64 %place)
  store i64 %clock, ptr %p.stamp, align 8
  ret i64 %missing
}

; @put(cache, clock, line, valid, dirty, tensor, counters): these sectors are there from now on.
define internal void @put(ptr %cache, i64 %clock, i64 %line, i64 %valid, i64 %dirty, i64 %tensor, ptr %counters) #1 {
  %found = call i64 @find(ptr %cache, i64 %line)
  %absent = icmp slt i64 %found, 0
  br i1 %absent, label %new, label %old
new:
  %fresh = call i64 @enter(ptr %cache, i64 %line, i64 %tensor, ptr %counters)
  br label %old
old:
  %place = phi i64 [ %found, %0 ], [ %fresh, %new ]
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %up = shl i64 %dirty, 4
  %new.bits = or i64 %valid, %up
  %state.n = or i64 %state, %new.bits
  store i64 %state.n, ptr %p.state, align 8
  %p.stamp = call ptr @field(ptr %cache, i64 ${Cache.STAMPS}, i64 %place)
  store i64 %clock, ptr %p.stamp, align 8
  ret void
}

; @clean(cache, line, limit, counters): if more than ``limit`` lines of the line's set are dirty, the one that was not used
; for the longest time is written back; it stays, clean.
define internal void @clean(ptr %cache, i64 %line, i64 %limit, ptr %counters) #1 {
  %set = call i64 @set(ptr %cache, i64 %line)
  %p.states = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %set)
  %states = load <${Cache.WAYS} x i64>, ptr %p.states, align 64
  %dirty.v = and <${Cache.WAYS} x i64> %states, splat (i64 240)
  %is = icmp ne <${Cache.WAYS} x i64> %dirty.v, zeroinitializer
  %b = bitcast <${Cache.WAYS} x i1> %is to i${Cache.WAYS}
  %wide = zext i${Cache.WAYS} %b to i64
  %n = call i64 @llvm.ctpop.i64(i64 %wide)
  %many = icmp ugt i64 %n, %limit
  br i1 %many, label %one, label %out
one:
  %p.stamps = call ptr @field(ptr %cache, i64 ${Cache.STAMPS}, i64 %set)
  %stamps = load <${Cache.WAYS} x i64>, ptr %p.stamps, align 64
  %of = select <${Cache.WAYS} x i1> %is, <${Cache.WAYS} x i64> %stamps, <${Cache.WAYS} x i64> splat (i64 -1)
  %least = call i64 @llvm.vector.reduce.umin.v${Cache.WAYS}i64(<${Cache.WAYS} x i64> %of)
  %least.i = insertelement <${Cache.WAYS} x i64> poison, i64 %least, i64 0
  %least.v = shufflevector <${Cache.WAYS} x i64> %least.i, <${Cache.WAYS} x i64> poison, <${Cache.WAYS} x i32> zeroinitializer
  %eq = icmp eq <${Cache.WAYS} x i64> %of, %least.v
  %eq.b = bitcast <${Cache.WAYS} x i1> %eq to i${Cache.WAYS}
  %w = call i${Cache.WAYS} @llvm.cttz.i${Cache.WAYS}(i${Cache.WAYS} %eq.b, i1 true)
  %w64 = zext i${Cache.WAYS} %w to i64
  %place = add i64 %set, %w64
  call void @write_page(ptr %cache, i64 %place, ptr %counters)
  br label %out
out:
  ret void
}

; @write_page(cache, place, counters): a dirty line goes to DRAM, and with it those that are dirty in the same DRAM page.
define internal void @write_page(ptr %cache, i64 %place, ptr %counters) #1 {
  %p.tag = call ptr @field(ptr %cache, i64 ${Cache.TAGS}, i64 %place)
  %tag = load i64, ptr %p.tag, align 8
  %line = sub i64 %tag, 1
  %p.page = getelementptr i8, ptr %cache, i64 ${Cache.PAGE_LINES}
  %page = load i64, ptr %p.page, align 8
  %within = sub i64 %page, 1
  %not = xor i64 %within, -1
  %start = and i64 %line, %not
  br label %test
test:
  %k = phi i64 [ 0, %0 ], [ %k.n, %next ]
  %more = icmp ult i64 %k, %page
  br i1 %more, label %look, label %out
out:
  ret void
look:
  %other = add i64 %start, %k
  %found = call i64 @find(ptr %cache, i64 %other)
  %absent = icmp slt i64 %found, 0
  br i1 %absent, label %next, label %write
write:
  call void @write_back(ptr %cache, i64 %found, ptr %counters)
  br label %next
next:
  %k.n = add i64 %k, 1
  br label %test
}

; @write_back(cache, place, counters): the dirty sectors of a place go to DRAM, if there are any; its tensor is charged.
; ``counters`` is that of tensor 0.
define internal void @write_back(ptr %cache, i64 %place, ptr %counters) #0 {
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %dirty0 = lshr i64 %state, 4
  %dirty = and i64 %dirty0, 15
  %owner = lshr i64 %state, 8
  %n = call i64 @sectors(i64 %dirty)
  %row = mul i64 %owner, ${L2Counts.FIELDS}
  %index = add i64 %row, ${L2Counts.DRAM_WRITE}
  call void @add(ptr %counters, i64 %index, i64 %n)
  %state.n = and i64 %state, -241
  store i64 %state.n, ptr %p.state, align 8
  ret void
}

; @valid(cache, line): its valid sectors.
define internal i64 @valid(ptr %cache, i64 %line) #1 {
  %place = call i64 @find(ptr %cache, i64 %line)
  %absent = icmp slt i64 %place, 0
  br i1 %absent, label %none, label %there
none:
  ret i64 0
there:
  %p.state = call ptr @field(ptr %cache, i64 ${Cache.STATES}, i64 %place)
  %state = load i64, ptr %p.state, align 8
  %v = and i64 %state, 15
  ret i64 %v
}
