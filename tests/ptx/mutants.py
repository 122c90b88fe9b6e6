"""Mutated PTX: each mutant must be refused in a sentence, fault in a sentence, or run. ``python mutants.py N SEED``.

Runs in a process of its own, so that a crash or a hang of the emulator is seen as one.
"""

from __future__ import annotations

import random
import re
import sys

import numpy as np

from fa_bench import ptx
from fa_bench.errors import KernelFault
from fa_bench.ptx.isa import ROWS, PtxError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

#: A sum over rows with a tail, a warp shuffle and shared memory.
REDUCE = (
    HEAD
    + """
.visible .entry k(.param .u64 p_in, .param .u64 p_out, .param .u32 p_n)
{
    .reg .pred %p<6>;
    .reg .b32 %r<24>;
    .reg .f32 %f<16>;
    .reg .b64 %rd<12>;
    .shared .align 16 .b8 buffer[512];

    ld.param.u64 %rd1, [p_in];
    ld.param.u64 %rd2, [p_out];
    ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r4, %r2;
$L_loop:
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 bra $L_done;
    mad.lo.s32 %r5, %r3, %r1, %r4;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f1, %f2, %f2, %f1;
    add.s32 %r4, %r4, 64;
    bra $L_loop;
$L_done:
    shfl.sync.bfly.b32 %r6|%p2, %r2, 1, 31, -1;
    mov.b32 %r7, %f1;
    shfl.sync.bfly.b32 %r8|%p3, %r7, 16, 31, -1;
    mov.b32 %f3, %r8;
    add.f32 %f4, %f1, %f3;
    ex2.approx.ftz.f32 %f5, %f4;
    shl.b32 %r9, %r2, 2;
    mov.u32 %r10, buffer;
    add.s32 %r11, %r10, %r9;
    st.shared.f32 [%r11], %f5;
    bar.sync 0;
    xor.b32 %r12, %r9, 128;
    add.s32 %r13, %r10, %r12;
    ld.shared.f32 %f6, [%r13];
    selp.f32 %f7, %f5, %f6, %p2;
    max.f32 %f8, %f7, %f6;
    cvt.rzi.s32.f32 %r14, %f8;
    cvt.rn.f32.s32 %f9, %r14;
    mad.lo.s32 %r15, %r3, 64, %r2;
    mul.wide.s32 %rd5, %r15, 4;
    add.s64 %rd6, %rd2, %rd5;
    setp.lt.u32 %p4, %r2, 64;
    @%p4 st.global.f32 [%rd6], %f9;
    ret;
}
"""
)

#: cp.async, ldmatrix, mma, packed conversions.
MATRIX = (
    HEAD
    + """
.visible .entry k(.param .u64 p_in, .param .u64 p_out, .param .u32 p_n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<32>;
    .reg .f32 %f<12>;
    .reg .b64 %rd<8>;
    .shared .align 16 .b8 tile[2048];

    ld.param.u64 %rd1, [p_in];
    ld.param.u64 %rd2, [p_out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r1, 4;
    mov.u32 %r4, tile;
    add.s32 %r5, %r4, %r3;
    cvt.u64.u32 %rd3, %r3;
    add.s64 %rd4, %rd1, %rd3;
    cp.async.cg.shared.global [%r5], [%rd4], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    shl.b32 %r6, %r2, 4;
    add.s32 %r7, %r4, %r6;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r8, %r9, %r10, %r11}, [%r7];
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r12, %r13}, [%r7+512];
    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f2, %f3, %f4, %f5}, {%r8, %r9, %r10, %r11}, {%r12, %r13}, {%f1, %f1, %f1, %f1};
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f6, %f7, %f8, %f9}, {%r8, %r9, %r10, %r11}, {%r12, %r13}, {%f2, %f3, %f4, %f5};
    cvt.rn.f16x2.f32 %r14, %f6, %f7;
    cvt.rn.f16x2.f32 %r15, %f8, %f9;
    prmt.b32 %r16, %r14, %r15, 0x5410;
    lop3.b32 %r17, %r14, %r15, %r16, 0x96;
    bfe.u32 %r18, %r17, 3, 9;
    vote.sync.ballot.b32 %r19, %p1, -1;
    add.s32 %r20, %r18, %r19;
    mul.wide.u32 %rd5, %r1, 8;
    add.s64 %rd6, %rd2, %rd5;
    st.global.v2.b32 [%rd6], {%r14, %r20};
    ret;
}
"""
)

_LINE = re.compile(r"^\s*(?:@!?%\w+\s+)?[a-z].*;$")
_WORDS = re.compile(r"%[a-z]+\d+|\b-?\d+\b|\.[a-z]\w*")


def mutate(text: str, rng: random.Random) -> str:
    """``text`` with one to three small changes inside the kernel's body."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        places = [k for k, line in enumerate(lines) if _LINE.match(line)]
        k = rng.choice(places)
        kind = rng.randrange(7)
        if kind == 0:
            del lines[k]
        elif kind == 1:
            lines.insert(rng.choice(places), lines[k])
        elif kind == 2:
            other = rng.choice(places)
            lines[k], lines[other] = lines[other], lines[k]
        elif kind == 3:
            lines[k] = "@" + rng.choice(["", "!"]) + f"%p{rng.randrange(4)} " + lines[k].strip()
        elif kind == 4:
            word, *rest = lines[k].strip().split(None, 1)
            lines[k] = " ".join([rng.choice(ROWS).op, *rest]) if rest else word
        else:
            words = list(_WORDS.finditer(lines[k]))
            if words:
                old = rng.choice(words)
                pool = [w.group() for w in _WORDS.finditer(text) if w.group()[0] == old.group()[0]]
                new = rng.choice(pool) if kind == 5 else str(rng.choice([-1, 0, 3, 7, 1 << 31, 123456789]))
                lines[k] = lines[k][: old.start()] + new + lines[k][old.end() :]
    return "\n".join(lines)


def outcome(text: str) -> str:
    """``refused``, ``fault`` or ``ran``; anything else is an exception of its own kind."""
    memory = ptx.Memory()
    data = memory.allocate("in", 4096)
    data[:] = np.arange(4096) % 60
    memory.allocate("out", 4096)
    args = [np.uint64(memory.address("in")), np.uint64(memory.address("out")), np.uint32(200)]
    try:
        kernel = ptx.load(text).kernel("k")
        ptx.launch(kernel, grid=(2, 1, 1), block=(64, 1, 1), args=args, memory=memory, budget=20000)
    except PtxError:
        return "refused"
    except KernelFault:
        return "fault"
    return "ran"


def main(count: int, seed: int) -> None:
    """Print how many mutants had which outcome; a mutant that breaks the rule is printed and raises."""
    rng = random.Random(seed)
    tally = {"refused": 0, "fault": 0, "ran": 0}
    for number in range(count):
        mutant = mutate((REDUCE, MATRIX)[number % 2], rng)
        try:
            tally[outcome(mutant)] += 1
        except Exception:
            sys.stdout.write(f"mutant {number} of seed {seed}:\n{mutant}\n")
            raise
    sys.stdout.write(" ".join(f"{name}={n}" for name, n in tally.items()) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
