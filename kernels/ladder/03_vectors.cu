// 16-byte loads and stores: eight elements per instruction, half a sector. An element by itself asks for a whole one.
//
//   registers   of a thread: its row of Q and its row of O in fp32
#include "../common/chunk.cuh"

constexpr int DIM = 64;                       // head_dim
constexpr int BLOCK_M = 64;                   // queries per CTA
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;  // 16-byte chunks of a row

extern "C" __global__ void __launch_bounds__(BLOCK_M)
ladder_fwd(const uint4* __restrict__ Q,  // [slices, seq_q, CHUNKS]
           const uint4* __restrict__ K,  // [slices, seq_kv, CHUNKS]
           const uint4* __restrict__ V,  // [slices, seq_kv, CHUNKS]
           uint4* __restrict__ O,        // [slices, seq_q, CHUNKS]
           float* __restrict__ LSE,      // [slices, seq_q]
           int seq_q, int seq_kv, float scale) {
    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const i64 slice = blockIdx.x / q_blocks;
    const int row = blockIdx.x % q_blocks * BLOCK_M + threadIdx.x;
    if (row >= seq_q) return;

    Q += (slice * seq_q + row) * CHUNKS;
    K += slice * seq_kv * CHUNKS;
    V += slice * seq_kv * CHUNKS;
    O += (slice * seq_q + row) * CHUNKS;
    LSE += slice * seq_q + row;

    float q[CHUNKS][CHUNK_ELEMENTS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack_chunk(q[c], Q[c]);

    float o[CHUNKS][CHUNK_ELEMENTS] = {};
    float max = -infinity();
    float sum = 0.f;
    for (int key = 0; key < seq_kv; key++) {
        // s = scale · q·k
        float s = 0.f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float k[CHUNK_ELEMENTS];
            unpack_chunk(k, K[static_cast<i64>(key) * CHUNKS + c]);
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) s = fmaf(q[c][i], k[i], s);
        }
        s *= scale;

        // Online softmax: raise the maximum, shrink the sums.
        const float new_max = fmaxf(max, s);
        const float factor = expf(max - new_max);
        const float p = expf(s - new_max);
        max = new_max;
        sum = fmaf(sum, factor, p);

        // o += p · v
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float v[CHUNK_ELEMENTS];
            unpack_chunk(v, V[static_cast<i64>(key) * CHUNKS + c]);
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) o[c][i] = fmaf(p, v[i], o[c][i] * factor);
        }
    }

    const float inverse = 1.f / sum;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) O[c] = pack_chunk(o[c], inverse);
    *LSE = max + logf(sum);
}
