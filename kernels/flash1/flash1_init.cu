// FlashAttention-1, line 2 of Algorithm 1: O = 0, l = 0, m = -inf in HBM. Each thread clears 16 bytes of O_acc; the
// first seq_q threads of a slice set one row of l and m each.
//
// Compile-time: NUM_WARPS.
#include "../common/ptx.cuh"

constexpr int THREADS = NUM_WARPS * 32;

extern "C" __global__ void __launch_bounds__(THREADS)
flash1_init(float* __restrict__ O_acc,  // [batch, heads_q, seq_q, head_dim], contiguous
            float* __restrict__ l,      // [batch, heads_q, seq_q]
            float* __restrict__ m,      // [batch, heads_q, seq_q]
            int seq_q, int head_dim) {
    const i64 chunks = static_cast<i64>(seq_q) * head_dim / 4;  // of one slice; at least two per row
    const int blocks = static_cast<int>((chunks + THREADS - 1) / THREADS);
    const i64 slice = blockIdx.x / blocks;
    const i64 i = static_cast<i64>(blockIdx.x % blocks) * THREADS + threadIdx.x;

    if (i < chunks) st_global_cg_v4_f32(O_acc + (slice * chunks + i) * 4, make_float4(0.f, 0.f, 0.f, 0.f));
    if (i < seq_q) {
        st_global_cg_f32(l + slice * seq_q + i, 0.f);
        st_global_cg_f32(m + slice * seq_q + i, __int_as_float(0xff800000));  // -inf
    }
}
