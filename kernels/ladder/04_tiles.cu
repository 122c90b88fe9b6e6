// Tiles in shared memory: the CTA copies 64 rows of K and V together, neighbouring lanes neighbouring chunks, and all
// of its queries read them there.
//
//   shared memory   K [BLOCK_N, CHUNKS] | V [BLOCK_N, CHUNKS]
//   registers       of a thread: its row of Q and its row of O in fp32
#include "../common/chunk.cuh"

constexpr int DIM = 64;                       // head_dim
constexpr int BLOCK_M = 64;                   // queries per CTA, one per thread
constexpr int BLOCK_N = 64;                   // keys per tile
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;  // 16-byte chunks of a row

// Copies the first `rows` rows of a tile, at most BLOCK_N.
__device__ __forceinline__ void copy_tile(uint4* tile, const uint4* global, int rows) {
    for (int i = threadIdx.x; i < min(BLOCK_N, rows) * CHUNKS; i += BLOCK_M) tile[i] = global[i];
}

extern "C" __global__ void __launch_bounds__(BLOCK_M)
ladder_fwd(const uint4* __restrict__ Q,  // [slices, seq_q, CHUNKS]
           const uint4* __restrict__ K,  // [slices, seq_kv, CHUNKS]
           const uint4* __restrict__ V,  // [slices, seq_kv, CHUNKS]
           uint4* __restrict__ O,        // [slices, seq_q, CHUNKS]
           float* __restrict__ LSE,      // [slices, seq_q]
           int seq_q, int seq_kv, float scale) {
    __shared__ uint4 k_tile[BLOCK_N * CHUNKS];
    __shared__ uint4 v_tile[BLOCK_N * CHUNKS];

    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const i64 slice = blockIdx.x / q_blocks;
    const int row = blockIdx.x % q_blocks * BLOCK_M + threadIdx.x;
    const bool inside = row < seq_q;  // a thread without a query helps to copy

    Q += (slice * seq_q + row) * CHUNKS;
    K += slice * seq_kv * CHUNKS;
    V += slice * seq_kv * CHUNKS;
    O += (slice * seq_q + row) * CHUNKS;
    LSE += slice * seq_q + row;

    float q[CHUNKS][CHUNK_ELEMENTS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack_chunk(q[c], inside ? Q[c] : uint4{});

    float o[CHUNKS][CHUNK_ELEMENTS] = {};
    float max = -infinity();
    float sum = 0.f;
    for (int n0 = 0; n0 < seq_kv; n0 += BLOCK_N) {
        // Global to shared memory, once all threads are done with the tile before.
        __syncthreads();
        copy_tile(k_tile, K + static_cast<i64>(n0) * CHUNKS, seq_kv - n0);
        copy_tile(v_tile, V + static_cast<i64>(n0) * CHUNKS, seq_kv - n0);
        __syncthreads();

        for (int key = 0; key < min(BLOCK_N, seq_kv - n0); key++) {
            // s = scale · q·k
            float s = 0.f;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                float k[CHUNK_ELEMENTS];
                unpack_chunk(k, k_tile[key * CHUNKS + c]);
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
                unpack_chunk(v, v_tile[key * CHUNKS + c]);
#pragma unroll
                for (int i = 0; i < CHUNK_ELEMENTS; i++) o[c][i] = fmaf(p, v[i], o[c][i] * factor);
            }
        }
    }

    if (!inside) return;
    const float inverse = 1.f / sum;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) O[c] = pack_chunk(o[c], inverse);
    *LSE = max + logf(sum);
}
