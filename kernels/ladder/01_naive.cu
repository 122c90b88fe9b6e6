// Naive: one thread per query, three passes over the keys, as the formula says: maximum, sum, weighted average.
//
//   registers   of a thread: its row of Q and its row of O in fp32
//
// Every thread computes every score three times, and reads K and V element by element from global memory.
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

    const auto score = [&](int key) {
        float s = 0.f;
#pragma unroll
        for (int d = 0; d < DIM; d++) s = fmaf(q[d], __half2float(K[static_cast<i64>(key) * DIM + d]), s);
        return s * scale;
    };

    float max = -infinity();
    for (int key = 0; key < seq_kv; key++) max = fmaxf(max, score(key));

    float sum = 0.f;
    for (int key = 0; key < seq_kv; key++) sum += expf(score(key) - max);

    float o[DIM] = {};
    for (int key = 0; key < seq_kv; key++) {
        const float p = expf(score(key) - max);
#pragma unroll
        for (int d = 0; d < DIM; d++) o[d] = fmaf(p, __half2float(V[static_cast<i64>(key) * DIM + d]), o[d]);
    }

    const float inverse = 1.f / sum;
#pragma unroll
    for (int d = 0; d < DIM; d++) O[d] = __float2half(o[d] * inverse);
    *LSE = max + logf(sum);
}
