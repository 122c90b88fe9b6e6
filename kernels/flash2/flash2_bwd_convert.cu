// FlashAttention-2, backward with atomics, last: dQ = scale · dQ_acc, rounded to elements once. Any element type.
//
//   warps   32 rows each; a lane turns 16 bytes of dQ_acc into four elements. COLUMNS neighbouring lanes take
//           neighbouring columns of one row, so that both sides are asked for in whole sectors.
//
// Compile-time: NUM_WARPS, DIM (head_dim rounded up).
#include "../common/predicated.cuh"
#include "../common/types.cuh"

constexpr int QUADS = DIM / 4;
constexpr int POWER = QUADS & -QUADS;
constexpr int COLUMNS = POWER < WARP_SIZE ? POWER : WARP_SIZE;
constexpr int ROWS_PER_PASS = WARP_SIZE / COLUMNS;
constexpr int ROWS = WARP_SIZE;

extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE)
flash2_bwd_convert(const float* __restrict__ dQ_acc,  // [batch, heads_q, seq_q, head_dim], contiguous
                   element* __restrict__ dQ,          // [batch, heads_q, seq_q, head_dim]
                   i64 dq_batch_stride, i64 dq_head_stride, i64 dq_row_stride,  //
                   int heads_q, int seq_q, int head_dim, float scale) {
    const int blocks = (seq_q + NUM_WARPS * ROWS - 1) / (NUM_WARPS * ROWS);
    const int slice = blockIdx.x / blocks;
    const int lane = threadIdx.x % WARP_SIZE;
    const int m0 = (blockIdx.x % blocks * NUM_WARPS + threadIdx.x / WARP_SIZE) * ROWS + lane / COLUMNS;
    const int column0 = lane % COLUMNS * 4;

    dQ_acc += (static_cast<i64>(slice) * seq_q + m0) * head_dim + column0;
    dQ += slice / heads_q * dq_batch_stride + slice % heads_q * dq_head_stride + m0 * dq_row_stride + column0;

#pragma unroll 4
    for (int row = m0; row < m0 + ROWS; row += ROWS_PER_PASS) {
#pragma unroll
        for (int column = 0; column < DIM; column += COLUMNS * 4) {
            const bool inside = row < seq_q && column + column0 < head_dim;
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            ld_global_cg_v4_f32(v, dQ_acc + column, inside);
#if defined(ELEMENT_FP32)
            st_global_cg_v4_f32(dQ + column, make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale), inside);
#else
            st_global_v2_b32(dQ + column, {pack(v.x * scale, v.y * scale), pack(v.z * scale, v.w * scale)}, inside);
#endif
        }
        dQ_acc += ROWS_PER_PASS * head_dim;
        dQ += ROWS_PER_PASS * dq_row_stride;
    }
}
