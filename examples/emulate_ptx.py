"""The emulator alone: load PTX, give it memory, launch a kernel, read its counters."""

import numpy as np

from fa_bench import ptx

TEXT = """
.version 7.0
.target sm_80
.address_size 64

// y[i] = x[stride * i]
.visible .entry gather(.param .u64 px, .param .u64 py, .param .u32 pstride)
{
    .reg .b32 %r<5>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [px];
    ld.param.u64 %rd2, [py];
    ld.param.u32 %r1, [pstride];
    mov.u32 %r2, %tid.x;
    mul.lo.u32 %r3, %r1, %r2;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.wide.u32 %rd5, %r2, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.f32 [%rd6], %f1;
    ret;
}
"""

kernel = ptx.load(TEXT).kernel("gather")
for stride in (1, 2, 8):
    memory = ptx.Memory()
    x = memory.allocate("x", 4 * 32 * stride).view(np.float32)
    y = memory.allocate("y", 4 * 32).view(np.float32)
    x[:] = np.arange(x.size)
    counters = ptx.launch(
        kernel,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        args=[np.uint64(memory.address("x")), np.uint64(memory.address("y")), np.uint32(stride)],
        memory=memory,
    )
    assert (y == stride * np.arange(32)).all()
    moved = counters.tensors["x"]
    print(f"stride {stride}: {moved.read_sectors:2} sectors, {counters.warp_instructions} instructions")
