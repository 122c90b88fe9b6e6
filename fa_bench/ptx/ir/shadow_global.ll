; The shadow of global memory: for each byte whether it holds data, which CTA wrote it last in this launch, and which one has
; read it. CTAs run one after the other; what one has done is ordered before another's access only if it released it
; and the other has looked at what may have been released. Words in dollar braces are constants of layout.py.

; @shadow_global(ctx, addresses, sizes, mask, origin, access) -> 0 if there is a finding: every address is known to be good.
define internal i32 @shadow_global(ptr %ctx, <32 x i64> %a, <32 x i32> %sizes, i32 %mask, i32 %origin, i32 %bits) #1 {
  %slots = alloca <32 x i64>, align 64
  %lengths = alloca <32 x i32>, align 64
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p.nb = getelementptr i8, ptr %ctx, i64 ${Context.NBUFFERS}
  %nb = load i32, ptr %p.nb, align 4
  %nb64 = zext i32 %nb to i64
  %p.bufs = getelementptr i8, ptr %ctx, i64 ${Context.BUFFERS}
  %bufs = load ptr, ptr %p.bufs, align 8
  %p.sh = getelementptr i8, ptr %ck, i64 ${Checker.BUFFERS}
  %shadows = load ptr, ptr %p.sh, align 8
  %f.r = and i32 %bits, ${Access.READS}
  %does.read = icmp ne i32 %f.r, 0
  %f.w = and i32 %bits, ${Access.WRITES}
  %does.write = icmp ne i32 %f.w, 0
  %f.s = and i32 %bits, ${Access.STRONG}
  %strong = icmp ne i32 %f.s, 0
  %f.a = and i32 %bits, ${Access.ACQUIRES}
  %acquires = icmp ne i32 %f.a, 0
  br i1 %acquires, label %acquire, label %start
acquire:
  %p.acq = getelementptr i8, ptr %ck, i64 ${Checker.ACQUIRED}
  store i32 1, ptr %p.acq, align 4
  br label %start
start:
  store <32 x i64> %a, ptr %slots, align 64
  store <32 x i32> %sizes, ptr %lengths, align 64
  %warp = load i32, ptr %ck, align 4
  %p.cta = getelementptr i8, ptr %ck, i64 ${Checker.CTA}
  %cta = load i32, ptr %p.cta, align 4
  %p.rel = getelementptr i8, ptr %ck, i64 ${Checker.RELEASED}
  %releases = load i32, ptr %p.rel, align 4
  %few = call i32 @llvm.umin.i32(i32 %releases, i32 ${Checker.RELEASE_MASK})
  %few.up = shl i32 %few, 1
  %cta.up = shl i32 %cta, ${Checker.CTA_SHIFT}
  %strong32 = zext i1 %strong to i32
  %word0 = or i32 %cta.up, %few.up
  %word = or i32 %word0, %strong32
  %word1 = insertelement <16 x i32> poison, i32 %word, i64 0
  %words = shufflevector <16 x i32> %word1, <16 x i32> poison, <16 x i32> zeroinitializer
  %instruction = lshr i32 %origin, ${Origin.SHIFT}
  %i.up = shl i32 %instruction, ${Checker.WHO_INSTRUCTION}
  %w.up = shl i32 %warp, ${Checker.WHO_WARP}
  %who0 = or i32 %i.up, %w.up
  br label %lane
lane:
  %left = phi i32 [ %mask, %start ], [ %left.n, %lane.end ]
  %k0 = phi i64 [ 0, %start ], [ %k, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %sp = getelementptr i64, ptr %slots, i32 %l
  %address = load i64, ptr %sp, align 8
  %np = getelementptr i32, ptr %lengths, i32 %l
  %size = load i32, ptr %np, align 4
  %who = or i32 %who0, %l
  %who1 = insertelement <16 x i32> poison, i32 %who, i64 0
  %whos = shufflevector <16 x i32> %who1, <16 x i32> poison, <16 x i32> zeroinitializer
  br label %search
; The buffer of the lane before is the likeliest.
search:
  %k = phi i64 [ %k0, %lane ], [ %k.n, %miss ]
  %off = mul i64 %k, ${Buffers.SIZE}
  %rec = getelementptr i8, ptr %bufs, i64 %off
  %low = load i64, ptr %rec, align 8
  %p.high = getelementptr i8, ptr %rec, i64 ${Buffers.HIGH}
  %high = load i64, ptr %p.high, align 8
  %above = icmp uge i64 %address, %low
  %below = icmp ult i64 %address, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %found, label %miss
miss:
  %k.up = add i64 %k, 1
  %wrap = icmp eq i64 %k.up, %nb64
  %k.n = select i1 %wrap, i64 0, i64 %k.up
  br label %search
found:
  %s.off = mul i64 %k, ${Shadow.SIZE}
  %shadow = getelementptr i8, ptr %shadows, i64 %s.off
  %p.flags = getelementptr i8, ptr %shadow, i64 ${Shadow.FLAGS}
  %flags = load i32, ptr %p.flags, align 4
  %f.in = and i32 %flags, ${Shadow.INPUT}
  %input = icmp ne i32 %f.in, 0
  %denied = and i1 %input, %does.write
  br i1 %denied, label %to.input, label %allowed
allowed:
  %f.k = and i32 %flags, ${Shadow.WHOLE}
  %whole = icmp ne i32 %f.k, 0
; Nobody writes an input: if it is whole there is nothing to look at.
  %quiet = and i1 %input, %whole
  br i1 %quiet, label %lane.end, label %look
look:
  %rel = sub i64 %address, %low
  %states = load ptr, ptr %shadow, align 8
  %p.w = getelementptr i8, ptr %shadow, i64 ${Shadow.WRITES}
  %writes = load ptr, ptr %p.w, align 8
  %p.wr = getelementptr i8, ptr %shadow, i64 ${Shadow.WRITERS}
  %writers = load ptr, ptr %p.wr, align 8
  %p.r = getelementptr i8, ptr %shadow, i64 ${Shadow.READS}
  %reads = load ptr, ptr %p.r, align 8
  %p.rr = getelementptr i8, ptr %shadow, i64 ${Shadow.READERS}
  %readers = load ptr, ptr %p.rr, align 8
  br label %piece
; Sixteen bytes at a time.
piece:
  %from = phi i32 [ 0, %look ], [ %from.n, %piece.end ]
  %n = sub i32 %size, %from
  %n.c = call i32 @llvm.umin.i32(i32 %n, i32 16)
  %rest = sub i32 %n.c, 1
  %n1 = insertelement <16 x i32> poison, i32 %n, i64 0
  %ns = shufflevector <16 x i32> %n1, <16 x i32> poison, <16 x i32> zeroinitializer
  %used = icmp ult <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %ns
  %from64 = zext i32 %from to i64
  %place = add i64 %rel, %from64
  %o = shl i64 %place, 2
  %ps = getelementptr i8, ptr %states, i64 %place
  %pw = getelementptr i8, ptr %writes, i64 %o
  %pwr = getelementptr i8, ptr %writers, i64 %o
  %pr = getelementptr i8, ptr %reads, i64 %o
  %prr = getelementptr i8, ptr %readers, i64 %o
  br i1 %does.read, label %holds, label %order
holds:
  %state = load <16 x i8>, ptr %ps, align 1
  %state.h = and <16 x i8> %state, splat (i8 ${Shadow.HOLDS})
  %empty = icmp eq <16 x i8> %state.h, zeroinitializer
  %empty.u = and <16 x i1> %empty, %used
  %empty.b = bitcast <16 x i1> %empty.u to i16
  %full = icmp eq i16 %empty.b, 0
  br i1 %full, label %order, label %unwritten
order:
  %last.w = call i32 @last_of(ptr %pw, <16 x i1> %used, i32 %rest)
  br label %byte.w
byte.w:
  %jw = phi i32 [ 0, %order ], [ %jw.n, %byte.w.ok ]
  %pjw = getelementptr i32, ptr %pw, i32 %jw
  %w = load i32, ptr %pjw, align 4
  %race.w = call i1 @unordered(ptr %ck, i32 %w, i1 %strong)
  br i1 %race.w, label %after.write, label %byte.w.ok
byte.w.ok:
  %jw.n = add i32 %jw, 1
  %jw.more = icmp ule i32 %jw.n, %last.w
  br i1 %jw.more, label %byte.w, label %reads.start
reads.start:
  %last.r = call i32 @last_of(ptr %pr, <16 x i1> %used, i32 %rest)
  br label %byte.r
byte.r:
  %jr = phi i32 [ 0, %reads.start ], [ %jr.n, %byte.r.ok ]
  %pjr = getelementptr i32, ptr %pr, i32 %jr
  %r = load i32, ptr %pjr, align 4
  br i1 %does.write, label %byte.r.write, label %byte.r.read
byte.r.write:
  %race.r = call i1 @unordered(ptr %ck, i32 %r, i1 %strong)
  br i1 %race.r, label %after.read, label %byte.r.ok
; The first reader of a launch stays, for CTAs run one after the other: whoever writes later than another's read finds it.
; One that has released its reads, or whose read was strong, makes room.
byte.r.read:
  %keeps = call i1 @keeps_reader(ptr %ck, i32 %r, i1 %strong)
  br i1 %keeps, label %byte.r.ok, label %byte.r.note
byte.r.note:
  %all.one = icmp eq i32 %last.r, 0
  %j16 = trunc i32 %jr to i16
  %bit = shl i16 1, %j16
  %one.v = bitcast i16 %bit to <16 x i1>
  %which = select i1 %all.one, <16 x i1> %used, <16 x i1> %one.v
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %words, ptr %pr, i32 4, <16 x i1> %which)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %whos, ptr %prr, i32 4, <16 x i1> %which)
  br label %byte.r.ok
byte.r.ok:
  %jr.n = add i32 %jr, 1
  %jr.more = icmp ule i32 %jr.n, %last.r
  br i1 %jr.more, label %byte.r, label %noted
noted:
  br i1 %does.write, label %note.write, label %piece.end
note.write:
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %words, ptr %pw, i32 4, <16 x i1> %used)
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %whos, ptr %pwr, i32 4, <16 x i1> %used)
  %n64 = zext i32 %n.c to i64
  call void @llvm.memset.p0.i64(ptr %ps, i8 ${Shadow.HOLDS | Shadow.WRITTEN}, i64 %n64, i1 false)
  br label %piece.end
piece.end:
  %from.n = add i32 %from, 16
  %p.more = icmp ult i32 %from.n, %size
  br i1 %p.more, label %piece, label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %end
end:
  %f.rel = and i32 %bits, ${Access.RELEASES}
  %does.release = icmp ne i32 %f.rel, 0
  br i1 %does.release, label %release, label %done
release:
  call void @global_release(ptr %ck, i32 %origin)
  br label %done
done:
  ret i32 1
to.input:
  br label %report
unwritten:
  %e16 = call i16 @llvm.cttz.i16(i16 %empty.b, i1 true)
  %e32 = zext i16 %e16 to i32
  %e = add i32 %e32, %from
  br label %report
after.write:
  %po.w = getelementptr i32, ptr %pwr, i32 %jw
  %other.w = load i32, ptr %po.w, align 4
  %cta.w = lshr i32 %w, ${Checker.CTA_SHIFT}
  %b.w = add i32 %jw, %from
  br label %report
after.read:
  %po.r = getelementptr i32, ptr %prr, i32 %jr
  %other.r = load i32, ptr %po.r, align 4
  %cta.r = lshr i32 %r, ${Checker.CTA_SHIFT}
  %b.r = add i32 %jr, %from
  br label %report
report:
  %kind = phi i32 [ ${TO_INPUT}, %to.input ], [ ${UNWRITTEN}, %unwritten ], [ ${CTA_RACE_WRITE}, %after.write ], [ ${CTA_RACE_READ}, %after.read ]
  %at = phi i32 [ 0, %to.input ], [ %e, %unwritten ], [ %b.w, %after.write ], [ %b.r, %after.read ]
  %party = phi i32 [ 0, %to.input ], [ 0, %unwritten ], [ %other.w, %after.write ], [ %other.r, %after.read ]
  %their = phi i32 [ 0, %to.input ], [ 0, %unwritten ], [ %cta.w, %after.write ], [ %cta.r, %after.read ]
  call void @finding(ptr %ctx, i32 %kind, i32 %l, i64 %address, i32 %size, i32 %at, i32 %party, i32 %their)
  ret i32 0
}

; @last_of(words, used, rest) -> 0 if the used words are equal, so that the first stands for all, else ``rest``.
define internal i32 @last_of(ptr %p, <16 x i1> %used, i32 %rest) #3 {
  %x = load <16 x i32>, ptr %p, align 4
  %x0 = extractelement <16 x i32> %x, i64 0
  %x1 = insertelement <16 x i32> poison, i32 %x0, i64 0
  %xs = shufflevector <16 x i32> %x1, <16 x i32> poison, <16 x i32> zeroinitializer
  %ne = icmp ne <16 x i32> %x, %xs
  %ne.u = and <16 x i1> %ne, %used
  %ne.b = bitcast <16 x i1> %ne.u to i16
  %same = icmp eq i16 %ne.b, 0
  %last = select i1 %same, i32 0, i32 %rest
  ret i32 %last
}

; @unordered(checker, word, strong) -> 1 if the access of ``word`` races with one of the CTA that runs: it is another's, of
; this launch, not released and looked at, and not both are strong.
define internal i1 @unordered(ptr %ck, i32 %word, i1 %strong) #1 {
  %owner = lshr i32 %word, ${Checker.CTA_SHIFT}
  %p.first = getelementptr i8, ptr %ck, i64 ${Checker.FIRST_CTA}
  %first = load i32, ptr %p.first, align 4
  %p.cta = getelementptr i8, ptr %ck, i64 ${Checker.CTA}
  %cta = load i32, ptr %p.cta, align 4
  %old = icmp ult i32 %owner, %first
  %own = icmp eq i32 %owner, %cta
  %calm = or i1 %old, %own
  br i1 %calm, label %no, label %other
other:
  %w.s = and i32 %word, 1
  %w.strong = icmp ne i32 %w.s, 0
  %both = and i1 %w.strong, %strong
  br i1 %both, label %no, label %order
order:
  %p.a = getelementptr i8, ptr %ck, i64 ${Checker.ACQUIRED}
  %a = load i32, ptr %p.a, align 4
  %acquired = icmp ne i32 %a, 0
  %r = call i1 @released(ptr %ck, i32 %word)
; A strong access is itself what others look at.
  %visible = or i1 %r, %w.strong
  %ordered = and i1 %visible, %acquired
  %race = xor i1 %ordered, true
  ret i1 %race
no:
  ret i1 false
}

; @released(checker, word) -> whether its CTA, one of this launch, has released the access.
define internal i1 @released(ptr %ck, i32 %word) #3 {
  %owner = lshr i32 %word, ${Checker.CTA_SHIFT}
  %p.first = getelementptr i8, ptr %ck, i64 ${Checker.FIRST_CTA}
  %first = load i32, ptr %p.first, align 4
  %index = sub i32 %owner, %first
  %p.all = getelementptr i8, ptr %ck, i64 ${Checker.RELEASES}
  %all = load ptr, ptr %p.all, align 8
  %p = getelementptr i32, ptr %all, i32 %index
  %upto = load i32, ptr %p, align 4
  %before.up = lshr i32 %word, 1
  %before = and i32 %before.up, ${Checker.RELEASE_MASK}
  %r = icmp ult i32 %before, %upto
  ret i1 %r
}

; @keeps_reader(checker, word, strong) -> whether the reader on record tells more than the one at hand.
define internal i1 @keeps_reader(ptr %ck, i32 %word, i1 %strong) #1 {
  %owner = lshr i32 %word, ${Checker.CTA_SHIFT}
  %p.first = getelementptr i8, ptr %ck, i64 ${Checker.FIRST_CTA}
  %first = load i32, ptr %p.first, align 4
  %p.cta = getelementptr i8, ptr %ck, i64 ${Checker.CTA}
  %cta = load i32, ptr %p.cta, align 4
  %old = icmp ult i32 %owner, %first
  %own = icmp eq i32 %owner, %cta
  %calm = or i1 %old, %own
  br i1 %calm, label %no, label %other
other:
  %w.s = and i32 %word, 1
  %w.weak = icmp eq i32 %w.s, 0
  %as.weak = or i1 %w.weak, %strong
  %r = call i1 @released(ptr %ck, i32 %word)
  %open = xor i1 %r, true
  %keeps = and i1 %as.weak, %open
  ret i1 %keeps
no:
  ret i1 false
}

; @global_release(checker, origin): a strong write. With .release it releases all that was done before it, else what was
; done before the last fence.
define internal void @global_release(ptr %ck, i32 %origin) #1 {
  %p.r = getelementptr i8, ptr %ck, i64 ${Checker.RELEASED}
  %r = load i32, ptr %p.r, align 4
  %p.f = getelementptr i8, ptr %ck, i64 ${Checker.FENCED}
  %fenced = load i32, ptr %p.f, align 4
  %f.r = and i32 %origin, ${Origin.RELEASE}
  %full = icmp ne i32 %f.r, 0
  %up = zext i1 %full to i32
  %r.n = add i32 %r, %up
  store i32 %r.n, ptr %p.r, align 4
  %upto = select i1 %full, i32 %r.n, i32 %fenced
  %p.cta = getelementptr i8, ptr %ck, i64 ${Checker.CTA}
  %cta = load i32, ptr %p.cta, align 4
  %p.first = getelementptr i8, ptr %ck, i64 ${Checker.FIRST_CTA}
  %first = load i32, ptr %p.first, align 4
  %index = sub i32 %cta, %first
  %p.all = getelementptr i8, ptr %ck, i64 ${Checker.RELEASES}
  %all = load ptr, ptr %p.all, align 8
  %p = getelementptr i32, ptr %all, i32 %index
; What was released stays released.
  %old = load i32, ptr %p, align 4
  %most = call i32 @llvm.umax.i32(i32 %old, i32 %upto)
  store i32 %most, ptr %p, align 4
  ret void
}

; @observe_fence(ctx): what the CTA has done is released by its next strong write.
define internal void @observe_fence(ptr %ctx) #1 {
  %p.ck = getelementptr i8, ptr %ctx, i64 ${Context.CHECKER}
  %ck = load ptr, ptr %p.ck, align 8
  %p.r = getelementptr i8, ptr %ck, i64 ${Checker.RELEASED}
  %r = load i32, ptr %p.r, align 4
  %r.n = add i32 %r, 1
  store i32 %r.n, ptr %p.r, align 4
  %p.f = getelementptr i8, ptr %ck, i64 ${Checker.FENCED}
  store i32 %r.n, ptr %p.f, align 4
  ret void
}
