"""Run-time part of memory instructions, as LLVM IR text.

Every access goes through a check function that finds the buffer, refuses what is outside or misaligned, counts
sectors (global) or wavefronts (shared) and says how the lanes lie. What an instruction did last is kept at its
site: the same lane pattern at another base address costs one compare.

A sector is 32 bytes; an access of at most 16 bytes at its natural alignment lies in one. A shared-memory request
takes, for each phase (32 lanes of up to 4 bytes, 16 of 8, 8 of 16), as many wavefronts as the busiest of the 32
banks has distinct 4-byte words.
"""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.layout import (
    FLAG_CONTIGUOUS,
    FLAG_OK,
    FLAG_UNIFORM,
    Buffers,
    Context,
    GlobalSite,
    Queue,
    SharedSite,
    Warp,
)

V64: Final = "<32 x i64>"
V32: Final = "<32 x i32>"

DECLARATIONS: Final = """
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.vector.reduce.smin.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.smax.v32i64(<32 x i64>)
declare i32 @llvm.vector.reduce.smin.v32i32(<32 x i32>)
declare i32 @llvm.vector.reduce.smax.v32i32(<32 x i32>)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def _gep(name: str, base: str, offset: int | str) -> str:
    return f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}\n"


def _splat(name: str, value: str, bits: int) -> str:
    return (
        f"  %{name}.one = insertelement <32 x i{bits}> poison, i{bits} %{value}, i64 0\n"
        f"  %{name} = shufflevector <32 x i{bits}> %{name}.one, <32 x i{bits}> poison, <32 x i32> zeroinitializer\n"
    )


def _lane_multiples(bits: int, size: str) -> str:
    """``%mult``: lane index times the access size."""
    iota = "<" + ", ".join(f"i{bits} {k}" for k in range(32)) + ">"
    return _splat("size.v", size, bits) + f"  %mult = mul <32 x i{bits}> {iota}, %size.v\n"


def _fault(kind: int, address: str) -> str:
    return (
        _gep("f.kind", "ctx", Context.FAULT_KIND)
        + f"  store i32 {kind}, ptr %f.kind, align 4\n"
        + _gep("f.lane", "ctx", Context.FAULT_LANE)
        + "  store i32 %first, ptr %f.lane, align 4\n"
        + _gep("f.addr", "ctx", Context.FAULT_ADDRESS)
        + f"  store i64 %{address}, ptr %f.addr, align 8\n"
        + _gep("f.size", "ctx", Context.FAULT_SIZE)
        + "  store i32 %size, ptr %f.size, align 4\n  ret i32 0\n"
    )


def _flags(bits: int, delta: str) -> str:
    """``%flags``: contiguous if lane l is at l·size with all lanes active; uniform if all lanes agree."""
    return (
        _lane_multiples(bits, "size.w")
        + f"""  %ne.c = icmp ne <32 x i{bits}> %{delta}, %mult
  %ne.cb = bitcast <32 x i1> %ne.c to i32
  %full = icmp eq i32 %mask, -1
  %same.c = icmp eq i32 %ne.cb, 0
  %contig = and i1 %full, %same.c
  %ne.u = icmp ne <32 x i{bits}> %{delta}, zeroinitializer
  %ne.ub = bitcast <32 x i1> %ne.u to i32
  %uni = icmp eq i32 %ne.ub, 0
  %fl.c = select i1 %contig, i32 {FLAG_OK | FLAG_CONTIGUOUS}, i32 {FLAG_OK}
  %flags = select i1 %uni, i32 {FLAG_OK | FLAG_UNIFORM}, i32 %fl.c
"""
    )


def global_check() -> str:
    """``@global_check(ctx, site, addresses, mask, size, write) -> flags`` (0 = fault recorded)."""
    g = GlobalSite
    return (
        f"define internal i32 @global_check(ptr %ctx, ptr %sites, {V64} %a, i32 %mask, i32 %size, i64 %write) #1 {{\n"
        f"  %none = icmp eq i32 %mask, 0\n  br i1 %none, label %idle, label %some\n"
        f"idle:\n  ret i32 {FLAG_OK}\nsome:\n"
        "  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n"
        f"  %base = extractelement {V64} %a, i32 %first\n"
        f"  %way0 = lshr i64 %base, {g.WAY_SHIFT}\n  %way = and i64 %way0, {g.WAYS - 1}\n"
        f"  %way.o = mul i64 %way, {g.SIZE}\n  %site = getelementptr i8, ptr %sites, i64 %way.o\n"
        + _splat("base.v", "base", 64)
        + f"""  %d0 = sub {V64} %a, %base.v
  %on = bitcast i32 %mask to <32 x i1>
  %delta = select <32 x i1> %on, {V64} %d0, {V64} zeroinitializer
  %old = load {V64}, ptr %site, align 64
  %ne = icmp ne {V64} %delta, %old
  %neb = bitcast <32 x i1> %ne to i32
"""
        + _gep("p.mask", "site", g.MASK)
        + "  %o.mask = load i32, ptr %p.mask, align 4\n  %x.mask = xor i32 %o.mask, %mask\n"
        + _gep("p.align", "site", g.ALIGN)
        + "  %o.align = load i32, ptr %p.align, align 4\n  %base32 = trunc i64 %base to i32\n"
        "  %low5 = and i32 %base32, 31\n  %x.align = xor i32 %low5, %o.align\n"
        "  %x1 = or i32 %neb, %x.mask\n  %x2 = or i32 %x1, %x.align\n  %hit = icmp eq i32 %x2, 0\n"
        + _gep("p.min", "site", g.MIN)
        + "  %o.min = load i64, ptr %p.min, align 8\n"
        + _gep("p.max", "site", g.MAX)
        + "  %o.max = load i64, ptr %p.max, align 8\n"
        + _gep("p.low", "site", g.LOW)
        + "  %o.low = load i64, ptr %p.low, align 8\n"
        + _gep("p.high", "site", g.HIGH)
        + """  %o.high = load i64, ptr %p.high, align 8
  %lo = add i64 %base, %o.min
  %hi = add i64 %base, %o.max
  %in.l = icmp sge i64 %lo, %o.low
  %in.h = icmp sle i64 %hi, %o.high
  %in = and i1 %in.l, %in.h
  %fast = and i1 %hit, %in
  br i1 %fast, label %quick, label %slow
quick:
"""
        + _gep("p.cnt", "site", g.COUNTS)
        + "  %cnt = load ptr, ptr %p.cnt, align 8\n"
        + _gep("p.sec", "site", g.SECTORS)
        + "  %sec = load i64, ptr %p.sec, align 8\n"
        + _count("cnt", "sec", "q")
        + _gep("p.flags", "site", g.FLAGS)
        + "  %fl = load i32, ptr %p.flags, align 4\n  ret i32 %fl\nslow:\n"
        + f"  %r = call i32 @global_slow(ptr %ctx, ptr %site, {V64} %a, {V64} %delta, i32 %mask, i32 %size, i64 %write)\n"
        "  ret i32 %r\n}\n" + _global_slow()
    )


def _count(pointer: str, sectors: str, prefix: str) -> str:
    """Add one request and ``sectors`` to a buffer's counters."""
    p = prefix
    return (
        f"  %{p}.o = shl i64 %write, 3\n"
        f"  %{p}.r = getelementptr i8, ptr %{pointer}, i64 %{p}.o\n"
        f"  %{p}.rv = load i64, ptr %{p}.r, align 8\n  %{p}.rn = add i64 %{p}.rv, 1\n"
        f"  store i64 %{p}.rn, ptr %{p}.r, align 8\n"
        f"  %{p}.s = getelementptr i8, ptr %{p}.r, i64 16\n"
        f"  %{p}.sv = load i64, ptr %{p}.s, align 8\n  %{p}.sn = add i64 %{p}.sv, %{sectors}\n"
        f"  store i64 %{p}.sn, ptr %{p}.s, align 8\n"
    )


def _global_slow() -> str:
    g = GlobalSite
    return (
        f"define internal i32 @global_slow(ptr %ctx, ptr %site, {V64} %a, {V64} %delta, i32 %mask, i32 %size, "
        "i64 %write) #1 {\n"
        + _gep("p.nb", "ctx", Context.NBUFFERS)
        + "  %nb = load i32, ptr %p.nb, align 4\n"
        + _gep("p.bufs", "ctx", Context.BUFFERS)
        + f"""  %bufs = load ptr, ptr %p.bufs, align 8
  %size.w = zext i32 %size to i64
  %smask = sub i64 %size.w, 1
  %sect = lshr {V64} %a, splat (i64 5)
"""
        + _splat("smask.v", "smask", 64)
        + f"""  %low = and {V64} %a, %smask.v
  %aligned = icmp eq {V64} %low, zeroinitializer
  br label %group
group:
  %rem = phi i32 [ %mask, %0 ], [ %rem.next, %counted ]
  %first = call i32 @llvm.cttz.i32(i32 %rem, i1 true)
  %addr = extractelement {V64} %a, i32 %first
  %end = add i64 %addr, %size.w
  %mis = extractelement <32 x i1> %aligned, i32 %first
  br i1 %mis, label %search, label %misaligned
search:
  %k = phi i32 [ 0, %group ], [ %k.next, %miss ]
  %over = icmp uge i32 %k, %nb
  br i1 %over, label %outside, label %probe
probe:
  %k64 = zext i32 %k to i64
  %off = mul i64 %k64, {Buffers.SIZE}
  %rec = getelementptr i8, ptr %bufs, i64 %off
  %b.lo = load i64, ptr %rec, align 8
"""
        + _gep("rec.h", "rec", Buffers.HIGH)
        + """  %b.hi = load i64, ptr %rec.h, align 8
  %ge = icmp uge i64 %addr, %b.lo
  %le = icmp ule i64 %end, %b.hi
  %here = and i1 %ge, %le
  br i1 %here, label %found, label %miss
miss:
  %k.next = add i32 %k, 1
  br label %search
found:
"""
        + _splat("lo.v", "b.lo", 64)
        + _splat("hi.v", "b.hi", 64)
        + _splat("sz.v", "size.w", 64)
        + f"""  %ends = add {V64} %a, %sz.v
  %c1 = icmp uge {V64} %a, %lo.v
  %c2 = icmp ule {V64} %ends, %hi.v
  %c3 = and <32 x i1> %c1, %c2
  %c4 = and <32 x i1> %c3, %aligned
  %cb = bitcast <32 x i1> %c4 to i32
  %members = and i32 %cb, %rem
  br label %unique
unique:
  %left = phi i32 [ %members, %found ], [ %left.next, %unique ]
  %n = phi i64 [ 0, %found ], [ %n.next, %unique ]
  %u = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %s = extractelement {V64} %sect, i32 %u
"""
        + _splat("s.v", "s", 64)
        + f"""  %eq = icmp eq {V64} %sect, %s.v
  %eqb = bitcast <32 x i1> %eq to i32
  %keep = xor i32 %eqb, -1
  %left.next = and i32 %left, %keep
  %n.next = add i64 %n, 1
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %unique, label %count
count:
"""
        + _gep("cnt", "rec", Buffers.COUNTS)
        + _count("cnt", "n.next", "c")
        + """  %all = icmp eq i32 %members, %mask
  br i1 %all, label %remember, label %counted
counted:
  %gone = xor i32 %members, -1
  %rem.next = and i32 %rem, %gone
  %again = icmp ne i32 %rem.next, 0
  br i1 %again, label %group, label %mixed
mixed:
"""
        + f"  ret i32 {FLAG_OK}\nremember:\n"
        + _flags(64, "delta")
        + f"  store {V64} %delta, ptr %site, align 64\n"
        f"  %dmin = call i64 @llvm.vector.reduce.smin.v32i64({V64} %delta)\n"
        f"  %dmax0 = call i64 @llvm.vector.reduce.smax.v32i64({V64} %delta)\n  %dmax = add i64 %dmax0, %size.w\n"
        f"  %first.m = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n  %base = extractelement {V64} %a, i32 %first.m\n"
        "  %b32 = trunc i64 %base to i32\n  %al = and i32 %b32, 31\n"
        + "".join(
            _gep(f"w.{name}", "site", offset) + f"  store {typ} %{value}, ptr %w.{name}, align {align}\n"
            for name, offset, typ, value, align in (
                ("mask", g.MASK, "i32", "mask", 4),
                ("align", g.ALIGN, "i32", "al", 4),
                ("min", g.MIN, "i64", "dmin", 8),
                ("max", g.MAX, "i64", "dmax", 8),
                ("low", g.LOW, "i64", "b.lo", 8),
                ("high", g.HIGH, "i64", "b.hi", 8),
                ("cnt", g.COUNTS, "ptr", "cnt", 8),
                ("sec", g.SECTORS, "i64", "n.next", 8),
                ("flags", g.FLAGS, "i32", "flags", 4),
            )
        )
        + "  ret i32 %flags\nmisaligned:\n"
        + _fault(2, "addr")
        + "outside:\n"
        + _fault(1, "addr").replace("%f.", "%h.")
        + "}\n"
    )


def shared_check() -> str:
    """``@shared_check(ctx, site, offsets, mask, size) -> flags`` (0 = fault recorded)."""
    s = SharedSite
    return (
        f"define internal i32 @shared_check(ptr %ctx, ptr %sites, {V32} %a, i32 %mask, i32 %size) #1 {{\n"
        f"  %none = icmp eq i32 %mask, 0\n  br i1 %none, label %idle, label %some\n"
        f"idle:\n  ret i32 {FLAG_OK}\nsome:\n"
        "  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n"
        f"  %base = extractelement {V32} %a, i32 %first\n"
        f"  %way0 = lshr i32 %base, {s.WAY_SHIFT}\n  %way = and i32 %way0, {s.WAYS - 1}\n"
        f"  %way.o = mul i32 %way, {s.SIZE}\n  %site = getelementptr i8, ptr %sites, i32 %way.o\n"
        + _splat("base.v", "base", 32)
        + f"""  %d0 = sub {V32} %a, %base.v
  %on = bitcast i32 %mask to <32 x i1>
  %delta = select <32 x i1> %on, {V32} %d0, {V32} zeroinitializer
  %old = load {V32}, ptr %site, align 64
  %ne = icmp ne {V32} %delta, %old
  %neb = bitcast <32 x i1> %ne to i32
"""
        + _gep("p.mask", "site", s.MASK)
        + "  %o.mask = load i32, ptr %p.mask, align 4\n  %x.mask = xor i32 %o.mask, %mask\n"
        + _gep("p.align", "site", s.ALIGN)
        + "  %o.align = load i32, ptr %p.align, align 4\n"
        "  %low7 = and i32 %base, 127\n  %x.align = xor i32 %low7, %o.align\n"
        "  %x1 = or i32 %neb, %x.mask\n  %x2 = or i32 %x1, %x.align\n  %hit = icmp eq i32 %x2, 0\n"
        + _gep("p.min", "site", s.MIN)
        + "  %o.min = load i32, ptr %p.min, align 4\n"
        + _gep("p.max", "site", s.MAX)
        + "  %o.max = load i32, ptr %p.max, align 4\n"
        + _gep("p.size", "ctx", Context.SHARED_SIZE)
        + """  %limit = load i32, ptr %p.size, align 4
  %lo = add i32 %base, %o.min
  %hi = add i32 %base, %o.max
  %in.l = icmp sge i32 %lo, 0
  %in.h = icmp sle i32 %hi, %limit
  %in.b = icmp sge i32 %base, 0
  %in0 = and i1 %in.l, %in.h
  %in = and i1 %in0, %in.b
  %fast = and i1 %hit, %in
  br i1 %fast, label %quick, label %slow
quick:
"""
        + _gep("p.waves", "site", s.WAVES)
        + "  %waves = load i64, ptr %p.waves, align 8\n"
        + _gep("p.phases", "site", s.PHASES)
        + "  %phases = load i64, ptr %p.phases, align 8\n"
        + _shared_count("waves", "phases", "q")
        + _gep("p.flags", "site", s.FLAGS)
        + "  %fl = load i32, ptr %p.flags, align 4\n  ret i32 %fl\nslow:\n"
        f"  %r = call i32 @shared_slow(ptr %ctx, ptr %site, {V32} %a, {V32} %delta, i32 %mask, i32 %size, i32 %limit)\n"
        "  ret i32 %r\n}\n" + _shared_slow()
    )


def _shared_count(waves: str, phases: str, p: str) -> str:
    text = ""
    for name, offset, value in (
        ("r", SharedSite.REQUESTS, "1"),
        ("w", SharedSite.WAVEFRONTS, f"%{waves}"),
        ("i", SharedSite.IDEAL, f"%{phases}"),
    ):
        text += _gep(f"{p}.{name}", "site", offset) + (
            f"  %{p}.{name}v = load i64, ptr %{p}.{name}, align 8\n"
            f"  %{p}.{name}n = add i64 %{p}.{name}v, {value}\n"
            f"  store i64 %{p}.{name}n, ptr %{p}.{name}, align 8\n"
        )
    return text


def _shared_slow() -> str:
    s = SharedSite
    return (
        f"define internal i32 @shared_slow(ptr %ctx, ptr %site, {V32} %a, {V32} %delta, i32 %mask, i32 %size, "
        "i32 %limit) #1 {\n"
        "  %banks = alloca [32 x i32], align 64\n  %size.w = add i32 %size, 0\n"
        "  %smask = sub i32 %size, 1\n  %last = sub i32 %limit, %size\n"
        + _splat("smask.v", "smask", 32)
        + _splat("last.v", "last", 32)
        + f"""  %low = and {V32} %a, %smask.v
  %bad.al = icmp ne {V32} %low, zeroinitializer
  %bad.hi = icmp sgt {V32} %a, %last.v
  %bad.lo = icmp slt {V32} %a, zeroinitializer
  %bad.o = or <32 x i1> %bad.hi, %bad.lo
  %bad.ob = bitcast <32 x i1> %bad.o to i32
  %bad.oa = and i32 %bad.ob, %mask
  %bad.ab = bitcast <32 x i1> %bad.al to i32
  %bad.aa = and i32 %bad.ab, %mask
  %any.o = icmp ne i32 %bad.oa, 0
  br i1 %any.o, label %outside, label %check.al
outside:
  %first.o = call i32 @llvm.cttz.i32(i32 %bad.oa, i1 true)
  br label %report
misaligned:
  %first.a = call i32 @llvm.cttz.i32(i32 %bad.aa, i1 true)
  br label %report
report:
  %first = phi i32 [ %first.o, %outside ], [ %first.a, %misaligned ]
  %why = phi i32 [ 3, %outside ], [ 2, %misaligned ]
  %addr32 = extractelement {V32} %a, i32 %first
  %addr = zext i32 %addr32 to i64
"""
        + _fault(0, "addr").replace("store i32 0,", "store i32 %why,")
        + f"""check.al:
  %any.a = icmp ne i32 %bad.aa, 0
  br i1 %any.a, label %misaligned, label %go
go:
  %is16 = icmp eq i32 %size, 16
  %is8 = icmp eq i32 %size, 8
  %lanes0 = select i1 %is8, i32 16, i32 32
  %lanes = select i1 %is16, i32 8, i32 %lanes0
  %words0 = lshr i32 %size, 2
  %words = call i32 @llvm.umax.i32(i32 %words0, i32 1)
  %key = and {V32} %a, splat (i32 -4)
  %ones0 = shl i32 -1, %lanes
  %ones1 = xor i32 %ones0, -1
  %is32 = icmp eq i32 %lanes, 32
  %ones = select i1 %is32, i32 -1, i32 %ones1
  br label %phase
phase:
  %start = phi i32 [ 0, %go ], [ %start.next, %phase.end ]
  %tw = phi i64 [ 0, %go ], [ %tw.next, %phase.end ]
  %tp = phi i64 [ 0, %go ], [ %tp.next, %phase.end ]
  %window = shl i32 %ones, %start
  %members = and i32 %mask, %window
  %empty = icmp eq i32 %members, 0
  call void @llvm.memset.p0.i64(ptr %banks, i8 0, i64 128, i1 false)
  br i1 %empty, label %phase.end, label %lane
lane:
  %left = phi i32 [ %members, %phase ], [ %left.next, %lane.end ]
  %best = phi i32 [ 0, %phase ], [ %best.out, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %kv = extractelement {V32} %key, i32 %l
"""
        + _splat("kv.v", "kv", 32)
        + f"""  %eq = icmp eq {V32} %key, %kv.v
  %eqb = bitcast <32 x i1> %eq to i32
  %keep = xor i32 %eqb, -1
  %left.next = and i32 %left, %keep
  %word0 = lshr i32 %kv, 2
  br label %word
word:
  %j = phi i32 [ 0, %lane ], [ %j.next, %word ]
  %best.j = phi i32 [ %best, %lane ], [ %best.out, %word ]
  %w = add i32 %word0, %j
  %bank = and i32 %w, 31
  %bank64 = zext i32 %bank to i64
  %bp = getelementptr i32, ptr %banks, i64 %bank64
  %bv = load i32, ptr %bp, align 4
  %bn = add i32 %bv, 1
  store i32 %bn, ptr %bp, align 4
  %best.out = call i32 @llvm.umax.i32(i32 %best.j, i32 %bn)
  %j.next = add i32 %j, 1
  %j.more = icmp ult i32 %j.next, %words
  br i1 %j.more, label %word, label %lane.end
lane.end:
  %l.more = icmp ne i32 %left.next, 0
  br i1 %l.more, label %lane, label %phase.end
phase.end:
  %pw = phi i32 [ 0, %phase ], [ %best.out, %lane.end ]
  %pp = phi i64 [ 0, %phase ], [ 1, %lane.end ]
  %pw64 = zext i32 %pw to i64
  %tw.next = add i64 %tw, %pw64
  %tp.next = add i64 %tp, %pp
  %start.next = add i32 %start, %lanes
  %p.more = icmp ult i32 %start.next, 32
  br i1 %p.more, label %phase, label %done
done:
"""
        + _shared_count("tw.next", "tp.next", "c")
        + _flags(32, "delta")
        + f"  store {V32} %delta, ptr %site, align 64\n"
        f"  %dmin = call i32 @llvm.vector.reduce.smin.v32i32({V32} %delta)\n"
        f"  %dmax0 = call i32 @llvm.vector.reduce.smax.v32i32({V32} %delta)\n  %dmax = add i32 %dmax0, %size\n"
        f"  %first.m = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n  %base = extractelement {V32} %a, i32 %first.m\n"
        "  %al = and i32 %base, 127\n"
        + "".join(
            _gep(f"v.{name}", "site", offset) + f"  store {typ} %{value}, ptr %v.{name}, align {align}\n"
            for name, offset, typ, value, align in (
                ("mask", s.MASK, "i32", "mask", 4),
                ("align", s.ALIGN, "i32", "al", 4),
                ("min", s.MIN, "i32", "dmin", 4),
                ("max", s.MAX, "i32", "dmax", 4),
                ("waves", s.WAVES, "i64", "tw.next", 8),
                ("phases", s.PHASES, "i64", "tp.next", 8),
                ("flags", s.FLAGS, "i32", "flags", 4),
            )
        )
        + "  ret i32 %flags\n}\n"
    )


def move(size: int, write: bool) -> str:
    """``@gather_SIZE`` / ``@scatter_SIZE``(addresses, mask, flags, buffer): 32 lanes of ``size`` bytes."""
    unit = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<2 x i64>"}[size]
    name = "scatter" if write else "gather"
    there, here = ("%there", "%here") if not write else ("%here", "%there")
    blanket = f"  call void @llvm.memcpy.p0.p0.i64(ptr {'%p0, ptr %buf' if write else '%buf, ptr %p0'}, i64 {32 * size}, i1 false)\n"
    broadcast = ""
    if not write:
        stores = "".join(
            f"  %b{k} = getelementptr i8, ptr %buf, i64 {k * size}\n  store {unit} %one, ptr %b{k}, align {size}\n"
            for k in range(32)
        )
        broadcast = (
            f"spread.q:\n  %uf = and i32 %flags, {FLAG_UNIFORM}\n  %isu = icmp ne i32 %uf, 0\n"
            f"  br i1 %isu, label %spread, label %each\nspread:\n"
            f"  %one = load {unit}, ptr %pf, align {size}\n{stores}  ret void\n"
        )
    return (
        f"define internal void @{name}_{size}({V64} %a, i32 %mask, i32 %flags, ptr %buf) #1 {{\n"
        f"  %slots = alloca {V64}, align 64\n"
        f"  %none = icmp eq i32 %mask, 0\n  br i1 %none, label %out, label %some\nsome:\n"
        f"  %a0 = extractelement {V64} %a, i64 0\n  %p0 = inttoptr i64 %a0 to ptr\n"
        f"  %f = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n  %af = extractelement {V64} %a, i32 %f\n"
        f"  %pf = inttoptr i64 %af to ptr\n"
        f"  %cf = and i32 %flags, {FLAG_CONTIGUOUS}\n  %isc = icmp ne i32 %cf, 0\n"
        f"  br i1 %isc, label %block, label %{'each' if write else 'spread.q'}\nblock:\n{blanket}  ret void\n"
        f"{broadcast}each:\n  store {V64} %a, ptr %slots, align 64\n  br label %loop\nloop:\n"
        f"  %left = phi i32 [ %mask, %each ], [ %left.next, %loop ]\n"
        f"  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)\n  %l64 = zext i32 %l to i64\n"
        f"  %sp = getelementptr i64, ptr %slots, i64 %l64\n  %addr = load i64, ptr %sp, align 8\n"
        f"  %there = inttoptr i64 %addr to ptr\n  %ho = mul i64 %l64, {size}\n"
        f"  %here = getelementptr i8, ptr %buf, i64 %ho\n"
        f"  %v = load {unit}, ptr {there}, align {size}\n  store {unit} %v, ptr {here}, align {size}\n"
        f"  %lm = sub i32 %left, 1\n  %left.next = and i32 %left, %lm\n"
        f"  %more = icmp ne i32 %left.next, 0\n  br i1 %more, label %loop, label %out\nout:\n  ret void\n}}\n"
    )


def access(space: str, size: int, write: bool) -> str:
    """``@ld_global_4(ctx, site, addresses, mask, buffer) -> flags`` and its like: check, count, move."""
    word, mover = ("st", "scatter") if write else ("ld", "gather")
    vector = V64 if space == "global" else V32
    if space == "global":
        check = f"@global_check(ptr %ctx, ptr %site, {V64} %a, i32 %mask, i32 {size}, i64 {int(write)})"
        absolute = f"  %abs = add {V64} %a, zeroinitializer\n"
    else:
        check = f"@shared_check(ptr %ctx, ptr %site, {V32} %a, i32 %mask, i32 {size})"
        absolute = (
            _gep("p.sh", "ctx", Context.SHARED)
            + "  %sh = load i64, ptr %p.sh, align 8\n"
            + _splat("sh.v", "sh", 64)
            + f"  %wide = zext {V32} %a to {V64}\n  %abs = add {V64} %wide, %sh.v\n"
        )
    return (
        f"define internal i32 @{word}_{space}_{size}(ptr %ctx, ptr %site, {vector} %a, i32 %mask, ptr %buf) #1 {{\n"
        f"  %flags = call i32 {check}\n  %ok = icmp ne i32 %flags, 0\n  br i1 %ok, label %go, label %bad\ngo:\n"
        f"{absolute}  call void @{mover}_{size}({V64} %abs, i32 %mask, i32 %flags, ptr %buf)\n"
        "  ret i32 %flags\nbad:\n  ret i32 0\n}\n"
    )


def copy_queue() -> str:
    """Deferred ``cp.async``: push, commit, complete. Data moves only when a wait covers its group."""
    q, w = Queue, Warp
    return (
        f"define internal i32 @cp_async(ptr %ctx, ptr %ws, ptr %queue, ptr %gsite, ptr %ssite, {V32} %dst, {V64} %src, "
        f"{V32} %bytes, i32 %mask, i32 %size) #1 {{\n"
        f"""  %some = icmp ne {V32} %bytes, zeroinitializer
  %someb = bitcast <32 x i1> %some to i32
  %gmask = and i32 %someb, %mask
  %g = call i32 @global_check(ptr %ctx, ptr %gsite, {V64} %src, i32 %gmask, i32 %size, i64 0)
  %s = call i32 @shared_check(ptr %ctx, ptr %ssite, {V32} %dst, i32 %mask, i32 %size)
  %gz = icmp eq i32 %g, 0
  %sz = icmp eq i32 %s, 0
  %bad = or i1 %gz, %sz
  br i1 %bad, label %fault, label %go
fault:
  ret i32 0
go:
"""
        + _gep("p.head", "ws", w.QUEUE_HEAD)
        + "  %head = load i32, ptr %p.head, align 4\n"
        + _gep("p.tail", "ws", w.QUEUE_TAIL)
        + f"""  %tail = load i32, ptr %p.tail, align 4
  %used = sub i32 %head, %tail
  %full = icmp uge i32 %used, {q.ENTRIES}
  br i1 %full, label %drain, label %push
drain:
  %one = add i32 %tail, 1
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %one)
  br label %push
push:
  %slot = urem i32 %head, {q.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, {q.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
  store {V64} %src, ptr %e, align 64
"""
        + _gep("e.dst", "e", q.DST)
        + f"  store {V32} %dst, ptr %e.dst, align 64\n"
        + _gep("e.bytes", "e", q.BYTES)
        + f"  store {V32} %bytes, ptr %e.bytes, align 64\n"
        + _gep("e.mask", "e", q.MASK)
        + "  store i32 %mask, ptr %e.mask, align 4\n"
        + _gep("e.copy", "e", q.COPY)
        + "  store i32 %size, ptr %e.copy, align 4\n  %head.n = add i32 %head, 1\n"
        "  store i32 %head.n, ptr %p.head, align 4\n  ret i32 1\n}\n"
        "define internal void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %upto) #1 {\n"
        + _gep("p.tail", "ws", w.QUEUE_TAIL)
        + "  %tail0 = load i32, ptr %p.tail, align 4\n"
        + _gep("p.sh", "ctx", Context.SHARED)
        + f"""  %sh = load ptr, ptr %p.sh, align 8
  br label %entry
entry:
  %tail = phi i32 [ %tail0, %0 ], [ %tail.n, %next ]
  %behind = sub i32 %upto, %tail
  %todo = icmp sgt i32 %behind, 0
  br i1 %todo, label %copy, label %out
out:
  store i32 %tail, ptr %p.tail, align 4
  ret void
copy:
  %slot = urem i32 %tail, {q.ENTRIES}
  %slot64 = zext i32 %slot to i64
  %off = mul i64 %slot64, {q.SIZE}
  %e = getelementptr i8, ptr %queue, i64 %off
"""
        + _gep("e.dst", "e", q.DST)
        + _gep("e.bytes", "e", q.BYTES)
        + _gep("e.mask", "e", q.MASK)
        + _gep("e.copy", "e", q.COPY)
        + """  %mask = load i32, ptr %e.mask, align 4
  %size = load i32, ptr %e.copy, align 4
  %size64 = zext i32 %size to i64
  %is16 = icmp eq i32 %size, 16
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %next, label %lane
lane:
  %left = phi i32 [ %mask, %copy ], [ %left.n, %lane.end ]
  %l = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %l64 = zext i32 %l to i64
  %ps = getelementptr i64, ptr %e, i64 %l64
  %src = load ptr, ptr %ps, align 8
  %pd = getelementptr i32, ptr %e.dst, i64 %l64
  %d32 = load i32, ptr %pd, align 4
  %d64 = zext i32 %d32 to i64
  %dst = getelementptr i8, ptr %sh, i64 %d64
  %pb = getelementptr i32, ptr %e.bytes, i64 %l64
  %b = load i32, ptr %pb, align 4
  %whole = icmp eq i32 %b, 16
  %quick = and i1 %whole, %is16
  br i1 %quick, label %wide, label %part
wide:
  %v = load <2 x i64>, ptr %src, align 16
  store <2 x i64> %v, ptr %dst, align 16
  br label %lane.end
part:
  %b64 = zext i32 %b to i64
  call void @llvm.memset.p0.i64(ptr %dst, i8 0, i64 %size64, i1 false)
  %has = icmp ne i32 %b, 0
  br i1 %has, label %bytes.copy, label %lane.end
bytes.copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %dst, ptr %src, i64 %b64, i1 false)
  br label %lane.end
lane.end:
  %lm = sub i32 %left, 1
  %left.n = and i32 %left, %lm
  %more = icmp ne i32 %left.n, 0
  br i1 %more, label %lane, label %next
next:
  %tail.n = add i32 %tail, 1
  br label %entry
}
define internal void @cp_commit(ptr %ctx, ptr %ws, ptr %queue) #1 {
"""
        + _gep("p.groups", "ws", w.GROUPS)
        + "  %n = load i32, ptr %p.groups, align 4\n"
        + _gep("p.head", "ws", w.QUEUE_HEAD)
        + f"""  %head = load i32, ptr %p.head, align 4
  %slot = urem i32 %n, {q.GROUPS}
  %slot64 = zext i32 %slot to i64
  %wrapped = icmp uge i32 %n, {q.GROUPS}
"""
        + _gep("ends", "ws", w.GROUP_END)
        + """  %p = getelementptr i32, ptr %ends, i64 %slot64
  br i1 %wrapped, label %oldest, label %store
oldest:
  %end = load i32, ptr %p, align 4
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %end)
  br label %store
store:
  store i32 %head, ptr %p, align 4
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %p.groups, align 4
  ret void
}
define internal void @cp_wait(ptr %ctx, ptr %ws, ptr %queue, i32 %pending) #1 {
"""
        + _gep("p.groups", "ws", w.GROUPS)
        + f"""  %n = load i32, ptr %p.groups, align 4
  %older = icmp ugt i32 %n, %pending
  br i1 %older, label %wait, label %out
wait:
  %n1 = sub i32 %n, 1
  %last = sub i32 %n1, %pending
  %kept = icmp ult i32 %pending, {q.GROUPS}
  br i1 %kept, label %find, label %out
find:
  %slot = urem i32 %last, {q.GROUPS}
  %slot64 = zext i32 %slot to i64
"""
        + _gep("ends", "ws", w.GROUP_END)
        + """  %p = getelementptr i32, ptr %ends, i64 %slot64
  %end = load i32, ptr %p, align 4
  call void @cp_complete(ptr %ctx, ptr %ws, ptr %queue, i32 %end)
  br label %out
out:
  ret void
}
"""
    )
