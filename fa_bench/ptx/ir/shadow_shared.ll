; The shadow of shared memory: for each byte who wrote it last, and when each warp read it last. Two accesses of different
; warps race if one is a write and the later one's warp does not know the earlier one to be done, whichever the
; emulator ran first (vector clocks, see layout.py); of different lanes of a warp, if its clock did not move between
; them. Words in dollar braces are constants of layout.py.

declare <32 x i32> @llvm.umax.v32i32(<32 x i32>, <32 x i32>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, i32, <16 x i1>)
declare i16 @llvm.cttz.i16(i16, i1)

; @shadow_shared(ctx, offsets, mask, size, instruction, access, reader) -> 0 if there is a finding: at most 16 bytes per
; lane, all of them inside. Where one lane stands for all that read, ``reader`` is the last of these, else -1.
define internal i32 @shadow_shared(ptr %ctx, <32 x i32> %a, i32 %mask, i32 %size, i32 %instruction, i32 %bits, i32 %reader) #1 {
  %slots = alloca <32 x i32>, align 64
  store <32 x i32> %a, ptr %slots, align 64
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %f.a = and i32 %bits, ${Access.ACQUIRES}
  %acquires = icmp ne i32 %f.a, 0
  br i1 %acquires, label %acquire, label %start
acquire:
  call void @sync_acquire(ptr %ck, ptr %slots, i32 %mask)
  br label %start
start:
  %p.nw = getelementptr i8, ptr %ctx, i64 ${Context.NWARPS}
  %nw = load i32, ptr %p.nw, align 4
  %warp = load i32, ptr %ck, align 4
  %row = call ptr @clock_row(ptr %ck)
  %p.own = getelementptr i32, ptr %row, i32 %warp
  %own = load i32, ptr %p.own, align 4
  %p.w = getelementptr i8, ptr %ck, i64 ${Checker.WRITES}
  %writes = load ptr, ptr %p.w, align 8
  %p.wr = getelementptr i8, ptr %ck, i64 ${Checker.WRITERS}
  %writers = load ptr, ptr %p.wr, align 8
  %p.r = getelementptr i8, ptr %ck, i64 ${Checker.READS}
  %reads = load ptr, ptr %p.r, align 8
  %p.rr = getelementptr i8, ptr %ck, i64 ${Checker.READERS}
  %readers = load ptr, ptr %p.rr, align 8
  %p.p = getelementptr i8, ptr %ck, i64 ${Checker.PITCH}
  %pitch = load i64, ptr %p.p, align 8
  %f.r = and i32 %bits, ${Access.READS}
  %does.read = icmp ne i32 %f.r, 0
  %f.w = and i32 %bits, ${Access.WRITES}
  %does.write = icmp ne i32 %f.w, 0
  %f.c = and i32 %bits, ${Access.COPIES}
  %copies = icmp ne i32 %f.c, 0
  %f.s = and i32 %bits, ${Access.STRONG}
  %strong = icmp ne i32 %f.s, 0
  %weak = xor i1 %strong, true
  %strong.word = select i1 %strong, i32 ${Checker.STRONG}, i32 0
  %flight.word = select i1 %copies, i32 ${Checker.IN_FLIGHT}, i32 0
  %r.word = or i32 %own, %strong.word
  %warp.up = shl i32 %warp, ${Checker.WARP_SHIFT}
  %w.word0 = or i32 %warp.up, %r.word
  %w.word = or i32 %w.word0, %flight.word
  %i.up = shl i32 %instruction, ${Checker.WHO_INSTRUCTION}
  %w.up = shl i32 %warp, ${Checker.WHO_WARP}
  %who0 = or i32 %i.up, %w.up
  %size1 = insertelement <16 x i32> poison, i32 %size, i64 0
  %sizes = shufflevector <16 x i32> %size1, <16 x i32> poison, <16 x i32> zeroinitializer
  %used = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %sizes
  %r.one = insertelement <16 x i32> poison, i32 %r.word, i64 0
  %r.words = shufflevector <16 x i32> %r.one, <16 x i32> poison, <16 x i32> zeroinitializer
  %w.one = insertelement <16 x i32> poison, i32 %w.word, i64 0
  %w.words = shufflevector <16 x i32> %w.one, <16 x i32> poison, <16 x i32> zeroinitializer
  %weak.word = or i32 %warp.up, %own
  %weak.word1 = insertelement <16 x i32> poison, i32 %weak.word, i64 0
  %weak.words = shufflevector <16 x i32> %weak.word1, <16 x i32> poison, <16 x i32> zeroinitializer
; A clock that is full stands still: it tells lanes nothing any more.
  %full = icmp eq i32 %own, ${Checker.CLOCK_MASK}
  %lane.word = select i1 %full, i32 0, i32 %weak.word
  %lane.clock = select i1 %full, i32 -1, i32 %own
  %own1 = insertelement <16 x i32> poison, i32 %lane.clock, i64 0
  %owns = shufflevector <16 x i32> %own1, <16 x i32> poison, <16 x i32> zeroinitializer
  %weak.one = insertelement <16 x i1> poison, i1 %weak, i64 0
  %weak.v = shufflevector <16 x i1> %weak.one, <16 x i1> poison, <16 x i32> zeroinitializer
  %rest = sub i32 %size, 1
  %warp64 = zext i32 %warp to i64
  %own.o = mul i64 %warp64, %pitch
  %own.reads = getelementptr i8, ptr %reads, i64 %own.o
  %own.readers = getelementptr i8, ptr %readers, i64 %own.o
  br label %lane
lane:
  %left = phi i32 [ %mask, %start ], [ %left.n, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %sp = getelementptr i32, ptr %slots, i32 %l
  %offset = load i32, ptr %sp, align 4
  %offset64 = zext i32 %offset to i64
  %o = shl i64 %offset64, 2
  %who = or i32 %who0, %l
  %all.read = icmp sge i32 %reader, 0
  %r.lane = select i1 %all.read, i32 %reader, i32 %l
  %r.who = or i32 %who0, %r.lane
  %r.who.one = insertelement <16 x i32> poison, i32 %r.who, i64 0
  %r.whos = shufflevector <16 x i32> %r.who.one, <16 x i32> poison, <16 x i32> zeroinitializer
  %who.one = insertelement <16 x i32> poison, i32 %who, i64 0
  %whos = shufflevector <16 x i32> %who.one, <16 x i32> poison, <16 x i32> zeroinitializer
; Bytes that were written together need one look.
  %pw = getelementptr i8, ptr %writes, i64 %o
  %x = load <16 x i32>, ptr %pw, align 4
  %x0 = extractelement <16 x i32> %x, i64 0
  %x0.one = insertelement <16 x i32> poison, i32 %x0, i64 0
  %x0.v = shufflevector <16 x i32> %x0.one, <16 x i32> poison, <16 x i32> zeroinitializer
  %ne = icmp ne <16 x i32> %x, %x0.v
  %ne.u = and <16 x i1> %ne, %used
  %ne.b = bitcast <16 x i1> %ne.u to i16
  %same = icmp eq i16 %ne.b, 0
; What lanes of this warp wrote since its last barrier may have different writers.
  %x0.ws = and i32 %x0, ${Checker.NOT_STRONG}
  %fresh = icmp eq i32 %x0.ws, %lane.word
  %old = xor i1 %fresh, true
  %short = and i1 %same, %old
  %last = select i1 %short, i32 0, i32 %rest
  br label %byte
byte:
  %j = phi i32 [ 0, %lane ], [ %j.n, %byte.ok ]
  %pj = getelementptr i32, ptr %pw, i32 %j
  %w = load i32, ptr %pj, align 4
  %none = icmp eq i32 %w, 0
  br i1 %none, label %never, label %written
never:
  br i1 %does.read, label %unwritten, label %byte.ok
unwritten:
  call void @pend(ptr %ck, i32 %instruction, i32 %warp, i32 %l, i32 %offset, i32 %size, i32 %j)
  br label %byte.ok
written:
  %w.u = lshr i32 %w, ${Checker.WARP_SHIFT}
  %p.known = getelementptr i32, ptr %row, i32 %w.u
  %known = load i32, ptr %p.known, align 4
  %w.c = and i32 %w, ${Checker.CLOCK_MASK}
  %late = icmp ugt i32 %w.c, %known
  %w.s = and i32 %w, ${Checker.STRONG}
  %w.weak = icmp eq i32 %w.s, 0
  %one.weak = or i1 %w.weak, %weak
  %race.w = and i1 %late, %one.weak
  br i1 %race.w, label %after.write, label %ordered
; A copy that is known to be issued, but not to be done.
ordered:
  %w.f = and i32 %w, ${Checker.IN_FLIGHT}
  %flies = icmp ne i32 %w.f, 0
  br i1 %flies, label %flight, label %landed
landed:
  %w.ws = and i32 %w, ${Checker.NOT_STRONG}
  %w.fresh = icmp eq i32 %w.ws, %lane.word
  %w.lanes = and i1 %w.fresh, %one.weak
  br i1 %w.lanes, label %lanes, label %byte.ok
; Another lane's write, by another instruction: lanes of one instruction are @observe_stored's.
lanes:
  %j.o4 = zext i32 %j to i64
  %j.b = shl i64 %j.o4, 2
  %ow = add i64 %o, %j.b
  %p.ow = getelementptr i8, ptr %writers, i64 %ow
  %w.who = load i32, ptr %p.ow, align 4
  %apart.w = call i1 @apart(i32 %w.who, i32 %who)
  br i1 %apart.w, label %after.write, label %byte.ok
byte.ok:
  %j.n = add i32 %j, 1
  %j.more = icmp ule i32 %j.n, %last
  br i1 %j.more, label %byte, label %seen
seen:
  br i1 %does.write, label %others, label %note.read
note.read:
  %p.nr = getelementptr i8, ptr %own.reads, i64 %o
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %r.words, ptr %p.nr, i32 4, <16 x i1> %used)
  %p.nrr = getelementptr i8, ptr %own.readers, i64 %o
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %r.whos, ptr %p.nrr, i32 4, <16 x i1> %used)
  br label %lane.end
; Has another warp read what is written here, and is not known to be done?
others:
  %u = phi i32 [ 0, %seen ], [ %u.n, %other.ok ]
  %mine = icmp eq i32 %u, %warp
  br i1 %mine, label %own.reads.look, label %other
; Has another lane of this warp read it since the warp's last barrier?
own.reads.look:
  %ro.o = add i64 %own.o, %o
  %p.or = getelementptr i8, ptr %reads, i64 %ro.o
  %or = load <16 x i32>, ptr %p.or, align 4
  %or.c = and <16 x i32> %or, splat (i32 ${Checker.CLOCK_MASK})
  %or.fresh = icmp eq <16 x i32> %or.c, %owns
  %or.s = and <16 x i32> %or, splat (i32 ${Checker.STRONG})
  %or.weak = icmp eq <16 x i32> %or.s, zeroinitializer
  %or.one = or <16 x i1> %or.weak, %weak.v
  %p.orr = getelementptr i8, ptr %readers, i64 %ro.o
  %or.who = load <16 x i32>, ptr %p.orr, align 4
  %or.lane = and <16 x i32> %or.who, splat (i32 31)
  %or.mine = and <16 x i32> %whos, splat (i32 31)
  %or.other = icmp ne <16 x i32> %or.lane, %or.mine
  %or.1 = and <16 x i1> %or.fresh, %or.one
  %or.2 = and <16 x i1> %or.other, %used
  %or.race = and <16 x i1> %or.1, %or.2
  %or.b = bitcast <16 x i1> %or.race to i16
  %or.clean = icmp eq i16 %or.b, 0
  br i1 %or.clean, label %other.ok, label %after.read
other:
  %u64 = zext i32 %u to i64
  %u.row = mul i64 %u64, %pitch
  %u.o = add i64 %u.row, %o
  %p.ur = getelementptr i8, ptr %reads, i64 %u.o
  %r = load <16 x i32>, ptr %p.ur, align 4
  %r.c = and <16 x i32> %r, splat (i32 ${Checker.CLOCK_MASK})
  %p.ku = getelementptr i32, ptr %row, i32 %u
  %known.u = load i32, ptr %p.ku, align 4
  %known.one = insertelement <16 x i32> poison, i32 %known.u, i64 0
  %known.v = shufflevector <16 x i32> %known.one, <16 x i32> poison, <16 x i32> zeroinitializer
  %r.late = icmp ugt <16 x i32> %r.c, %known.v
  %r.s = and <16 x i32> %r, splat (i32 ${Checker.STRONG})
  %r.weak = icmp eq <16 x i32> %r.s, zeroinitializer
  %r.one.weak = or <16 x i1> %r.weak, %weak.v
  %r.race0 = and <16 x i1> %r.late, %r.one.weak
  %r.race = and <16 x i1> %r.race0, %used
  %r.b = bitcast <16 x i1> %r.race to i16
  %clean = icmp eq i16 %r.b, 0
  br i1 %clean, label %other.ok, label %after.read
other.ok:
  %u.n = add i32 %u, 1
  %u.more = icmp ult i32 %u.n, %nw
  br i1 %u.more, label %others, label %note.write
; A weak write that the warp has not released since stays on record behind a strong one: it is the one that may race.
note.write:
  %w.own = icmp eq <16 x i32> %x, %weak.words
  %w.kept = select i1 %strong, <16 x i1> %w.own, <16 x i1> zeroinitializer
  %w.new = xor <16 x i1> %w.kept, splat (i1 true)
  %w.mask = and <16 x i1> %used, %w.new
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %w.words, ptr %pw, i32 4, <16 x i1> %w.mask)
  %p.nw.w = getelementptr i8, ptr %writers, i64 %o
; Lanes of one instruction that write one byte write the same: each of them may read it.
  %before = load <16 x i32>, ptr %p.nw.w, align 4
  %x.ws = and <16 x i32> %x, splat (i32 ${Checker.NOT_STRONG})
  %x.fresh = icmp eq <16 x i32> %x.ws, %weak.words
  %differ = xor <16 x i32> %before, %whos
  %differ.i = and <16 x i32> %differ, splat (i32 ${Checker.WHO_INSTRUCTIONS})
  %same.i = icmp eq <16 x i32> %differ.i, zeroinitializer
  %differ.l = and <16 x i32> %differ, splat (i32 31)
  %other.l = icmp ne <16 x i32> %differ.l, zeroinitializer
  %several0 = and <16 x i1> %x.fresh, %same.i
  %several = and <16 x i1> %several0, %other.l
  %flag = select <16 x i1> %several, <16 x i32> splat (i32 ${Checker.WHO_SEVERAL}), <16 x i32> zeroinitializer
  %whos.n = or <16 x i32> %whos, %flag
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %whos.n, ptr %p.nw.w, i32 4, <16 x i1> %w.mask)
  br label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %end
end:
  %f.rel = and i32 %bits, ${Access.RELEASES}
  %releases = icmp ne i32 %f.rel, 0
  br i1 %releases, label %release, label %done
release:
  call void @sync_release(ptr %ck, ptr %slots, i32 %mask)
  br label %done
done:
  ret i32 1
flight:
  br label %report.w
after.write:
  br label %report.w
report.w:
  %kind.w = phi i32 [ ${IN_FLIGHT}, %flight ], [ ${RACE_WRITE}, %after.write ]
  %j64 = zext i32 %j to i64
  %j.o = shl i64 %j64, 2
  %wo = add i64 %o, %j.o
  %p.other.w = getelementptr i8, ptr %writers, i64 %wo
  %other.w = load i32, ptr %p.other.w, align 4
  br label %report
after.read:
  %late.b = phi i16 [ %r.b, %other ], [ %or.b, %own.reads.look ]
  %late.o = phi i64 [ %u.o, %other ], [ %ro.o, %own.reads.look ]
  %byte16 = call i16 @llvm.cttz.i16(i16 %late.b, i1 true)
  %byte.r = zext i16 %byte16 to i32
  %byte64 = zext i16 %byte16 to i64
  %byte.o = shl i64 %byte64, 2
  %ro = add i64 %late.o, %byte.o
  %p.other.r = getelementptr i8, ptr %readers, i64 %ro
  %other.r = load i32, ptr %p.other.r, align 4
  br label %report
report:
  %kind = phi i32 [ %kind.w, %report.w ], [ ${RACE_READ}, %after.read ]
  %where = phi i32 [ %j, %report.w ], [ %byte.r, %after.read ]
  %party = phi i32 [ %other.w, %report.w ], [ %other.r, %after.read ]
  %address = or i64 %offset64, ${SHARED_WINDOW}
  call void @finding(ptr %ctx, i32 %kind, i32 %l, i64 %address, i32 %size, i32 %where, i32 %party, i32 0)
  ret i32 0
}

; @apart(writer, who) -> whether two accesses of a warp are of different lanes and different instructions.
define internal i1 @apart(i32 %x, i32 %y) #3 {
  %ne = xor i32 %x, %y
  %lane = and i32 %ne, 31
  %lanes = icmp ne i32 %lane, 0
  %instruction = and i32 %ne, ${Checker.WHO_INSTRUCTIONS}
  %instructions = icmp ne i32 %instruction, 0
  %both = and i1 %lanes, %instructions
  %one = icmp sge i32 %x, 0
  %apart = and i1 %both, %one
  ret i1 %apart
}

; @pend(checker, instruction, warp, lane, offset, size, byte): the first read of a CTA that comes before any write.
define internal void @pend(ptr %ck, i32 %instruction, i32 %warp, i32 %lane, i32 %offset, i32 %size, i32 %byte) #1 {
  %p = getelementptr i8, ptr %ck, i64 ${Checker.PENDING}
  %pending = load i32, ptr %p, align 4
  %none = icmp eq i32 %pending, 0
  br i1 %none, label %first, label %done
first:
  store i32 1, ptr %p, align 4
  %p.i = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_SITE}
  store i32 %instruction, ptr %p.i, align 4
  %p.w = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_WARP}
  store i32 %warp, ptr %p.w, align 4
  %p.l = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_LANE}
  store i32 %lane, ptr %p.l, align 4
  %p.s = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_SIZE}
  store i32 %size, ptr %p.s, align 4
  %offset64 = zext i32 %offset to i64
  %address = or i64 %offset64, ${SHARED_WINDOW}
  %p.a = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_ADDRESS}
  store i64 %address, ptr %p.a, align 8
  %p.b = getelementptr i8, ptr %ck, i64 ${Checker.PENDING_BYTE}
  store i32 %byte, ptr %p.b, align 4
  br label %done
done:
  ret void
}

; @sync_acquire(checker, offsets, mask): the warp knows what was released at these places, which are eight bytes each: a flag
; may be written together with the data beside it.
define internal void @sync_acquire(ptr %ck, ptr %slots, i32 %mask) #1 {
  %row = call ptr @clock_row(ptr %ck)
  %p.sync = getelementptr i8, ptr %ck, i64 ${Checker.SYNC}
  %sync = load ptr, ptr %p.sync, align 8
  br label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.n, %lane ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %sp = getelementptr i32, ptr %slots, i32 %l
  %offset = load i32, ptr %sp, align 4
  %word = lshr i32 %offset, 3
  %word64 = zext i32 %word to i64
  %o = mul i64 %word64, ${Checker.ROW}
  %there = getelementptr i8, ptr %sync, i64 %o
  call void @clock_join(ptr %row, ptr %there)
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %done
done:
  ret void
}

; @sync_release(checker, offsets, mask): what the warp has done is released at these places.
define internal void @sync_release(ptr %ck, ptr %slots, i32 %mask) #1 {
  %row = call ptr @clock_row(ptr %ck)
  %p.sync = getelementptr i8, ptr %ck, i64 ${Checker.SYNC}
  %sync = load ptr, ptr %p.sync, align 8
  br label %lane
lane:
  %left = phi i32 [ %mask, %0 ], [ %left.n, %lane ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %sp = getelementptr i32, ptr %slots, i32 %l
  %offset = load i32, ptr %sp, align 4
  %word = lshr i32 %offset, 3
  %word64 = zext i32 %word to i64
  %o = mul i64 %word64, ${Checker.ROW}
  %there = getelementptr i8, ptr %sync, i64 %o
  call void @clock_join(ptr %there, ptr %row)
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %tick
tick:
  call void @clock_tick(ptr %ck)
  ret void
}
