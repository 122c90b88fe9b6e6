// Online softmax: one pass over the keys. Whenever the maximum rises, what was summed so far shrinks by
// exp(old maximum - new maximum).
//
//   registers   of a thread: its row of Q and its row of O in fp32
#include "../common/types.cuh"

constexpr int DIM = 64;      // head_dim
constexpr int BLOCK_M = 64;  // queries per CTA

extern "C" __global__ void __launch_bounds__(BLOCK_M)
ladder_fwd(const element* __restrict__ Q,  // [slices, seq_q, DIM]
           const element* __restrict__ K,  // [slices, seq_kv, DIM]
           const element* __restrict__ V,  // [slices, seq_kv, DIM]
           element* __restrict__ O,        // [slices, seq_q, DIM]
           float* __restrict__ LSE,        // [slices, seq_q]
           int seq_q, int seq_kv, float scale) {
    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const i64 slice = blockIdx.x / q_blocks;
    const int row = blockIdx.x % q_blocks * BLOCK_M + threadIdx.x;
    if (row >= seq_q) return;

    Q += (slice * seq_q + row) * DIM;
    K += slice * seq_kv * DIM;
    V += slice * seq_kv * DIM;
    O += (slice * seq_q + row) * DIM;
    LSE += slice * seq_q + row;

    float q[DIM];
#pragma unroll
    for (int d = 0; d < DIM; d++) q[d] = __half2float(Q[d]);

    float o[DIM] = {};
    float max = -infinity();
    float sum = 0.f;
    for (int key = 0; key < seq_kv; key++) {
        // s = scale · q·k
        float s = 0.f;
#pragma unroll
        for (int d = 0; d < DIM; d++) s = fmaf(q[d], __half2float(K[static_cast<i64>(key) * DIM + d]), s);
        s *= scale;

        // Online softmax: raise the maximum, shrink the sums.
        const float new_max = fmaxf(max, s);
        const float factor = expf(max - new_max);
        const float p = expf(s - new_max);
        max = new_max;
        sum = fmaf(sum, factor, p);

        // o += p · v
#pragma unroll
        for (int d = 0; d < DIM; d++) o[d] = fmaf(p, __half2float(V[static_cast<i64>(key) * DIM + d]), o[d] * factor);
    }

    const float inverse = 1.f / sum;
#pragma unroll
    for (int d = 0; d < DIM; d++) O[d] = __float2half(o[d] * inverse);
    *LSE = max + logf(sum);
}
