"""A small attention kernel in PTX, of which it is known by hand what notices each mutant."""

from __future__ import annotations

#: With one key the softmax is 1, so that each row of O is the one row of V. A CTA per row and one too many; thread t
#: brings V[t], and writes what thread 63 - t, of the other warp, brought.
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry only_key(
    .param .u64 p_q, .param .u64 p_k, .param .u64 p_v, .param .u64 p_o, .param .u32 p_rows, .param .u32 p_keys)
{
    .reg .pred %p<5>;  .reg .b32 %r<12>;  .reg .b64 %rd<8>;  .reg .f32 %f<6>;
    .shared .align 16 .b8 row[256];
    ld.param.u64 %rd1, [p_v];
    ld.param.u64 %rd2, [p_o];
    ld.param.u32 %r1, [p_rows];
    ld.param.u32 %r2, [p_keys];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    shl.b32 %r5, %r3, 2;
    mov.u32 %r6, row;
    add.s32 %r7, %r6, %r5;
    st.shared.f32 [%r7], %f1;
    bar.sync 0;                          // NEEDED
    xor.b32 %r8, %r5, 252;
    add.s32 %r9, %r6, %r8;
    ld.shared.f32 %f2, [%r9];
    setp.gt.s32 %p1, %r2, 0;
    selp.f32 %f3, %f2, 0f00000000, %p1;  // MASK: no case has no key
    setp.lt.u32 %p2, %r3, 64;
    @%p2 bra $L_write;                   // SKIPS: work for threads that there are not
    add.s32 %r10, %r10, 1;
    add.s32 %r10, %r10, 1;
$L_write:
    mad.lo.s32 %r11, %r4, 256, %r8;
    cvt.u64.u32 %rd5, %r11;
    add.s64 %rd6, %rd2, %rd5;
    setp.lt.s32 %p3, %r4, %r1;
    @%p3 st.global.f32 [%rd6], %f3;      // GUARD: the last CTA has no row
    bar.sync 0;                          // LAST: nothing behind it
    ret;
}
"""

TOML = """
summary = "for one key"
source = "only_key.ptx"

[supports]
dtypes = ["fp32"]
head_dims = [64]
layouts = ["bhsd"]
causal = [false]
requires = ["seq_kv == 1"]

[[kernels]]
entry = "only_key"
grid = ["seq_q + 1"]
block = [64]
args = ["Q", "K", "V", "O", "i32 seq_q", "i32 seq_kv"]
"""


def line_of(text: str, word: str) -> int:
    """Line of the PTX on which a word stands."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if word in line)
