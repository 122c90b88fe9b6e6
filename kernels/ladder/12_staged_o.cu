// Staged O: four lanes hold 16 bytes of a row, half a sector. By way of shared memory, in the place of Q, eight lanes
// store a whole row.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM] | V [BLOCK_N, DIM]
//   registers       Q [16, DIM], S [16, BLOCK_N] and O [16, DIM] of a warp
#include "../common/softmax.cuh"

constexpr int DIM = 64;                       // head_dim
constexpr int BLOCK_M = 64;                   // queries per CTA, 16 per warp
constexpr int BLOCK_N = 64;                   // keys per tile
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;  // 16-byte chunks of a row

constexpr int THREADS = BLOCK_M / 16 * WARP_SIZE;
constexpr int N_TILES = BLOCK_N / 8;  // mma tiles of a warp: columns of S,
constexpr int D_TILES = DIM / 8;      // columns of O,
constexpr int K_STEPS = DIM / 16;     // steps along head_dim

using Tile = element[BLOCK_N][DIM];  // BLOCK_M = BLOCK_N

// Address of row + lane_row, chunk + lane_chunk. `row` is a multiple of 8, and `chunk` shares no bit with lane_chunk.
__device__ __forceinline__ u32 address(const Tile& tile, int row, int chunk, int lane_row, int lane_chunk) {
    const u32 lane_offset = (lane_row * CHUNKS + (lane_chunk ^ lane_row % 8)) * CHUNK_BYTES;
    return shared_address(&tile) + (lane_offset ^ chunk * CHUNK_BYTES) + row * CHUNKS * CHUNK_BYTES;
}

// Starts copying a tile. Rows from `rows` on are zeros and not read: 0 · NaN would be NaN.
__device__ __forceinline__ void copy_tile(const Tile& tile, const element* global, int rows) {
    const int lane_row = threadIdx.x / CHUNKS, lane_chunk = threadIdx.x % CHUNKS;
    global += threadIdx.x * CHUNK_ELEMENTS;
#pragma unroll
    for (int row = 0; row < BLOCK_N; row += THREADS / CHUNKS) {
        const int source_bytes = row + lane_row < rows ? CHUNK_BYTES : 0;
        cp_async_cg_16(address(tile, row, 0, lane_row, lane_chunk), global + row * DIM, source_bytes);
    }
}

// A, 16x16, from rows `row` … of a tile: matrices (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
__device__ __forceinline__ void load_a(u32 (&a)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(a, address(tile, row, chunk, lane % 16, lane / 16));
}

// B of two neighbouring 16x8 tiles from a matrix stored n x k (K in Q·Kᵀ).
__device__ __forceinline__ void load_b(u32 (&b)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(b, address(tile, row, chunk, lane % 8 + lane / 16 * 8, lane / 8 % 2));
}

// The same from a matrix stored k x n (V in P·V), transposed on the way.
__device__ __forceinline__ void load_b_trans(u32 (&b)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4_trans(b, address(tile, row, chunk, lane % 16, lane / 16));
}

extern "C" __global__ void __launch_bounds__(THREADS)
ladder_fwd(const element* __restrict__ Q,  // [slices, seq_q, DIM]
           const element* __restrict__ K,  // [slices, seq_kv, DIM]
           const element* __restrict__ V,  // [slices, seq_kv, DIM]
           element* __restrict__ O,        // [slices, seq_q, DIM]
           float* __restrict__ LSE,        // [slices, seq_q]
           int seq_q, int seq_kv, float scale) {
    __shared__ __align__(128) Tile q_tile, k_tile, v_tile;

    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const i64 slice = blockIdx.x / q_blocks;
    const int m0 = blockIdx.x % q_blocks * BLOCK_M;
    const int q_rows = seq_q - m0;

    Q += (slice * seq_q + m0) * DIM;
    K += slice * seq_kv * DIM;
    V += slice * seq_kv * DIM;
    O += (slice * seq_q + m0) * DIM;
    LSE += slice * seq_q + m0;

    const int warp_row = threadIdx.x / WARP_SIZE * 16;  // first row of this warp in the Q tile
    const int lane = threadIdx.x % WARP_SIZE;
    const float scale_log2 = scale * LOG2_E;

    // A lane's accumulators belong to rows lane / 4 and lane / 4 + 8 of the warp.
    float o[D_TILES][4] = {};
    float max[2] = {-infinity(), -infinity()};
    float sum[2] = {};

    copy_tile(q_tile, Q, q_rows);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
    u32 q[K_STEPS][4];
#pragma unroll
    for (int k = 0; k < K_STEPS; k++) load_a(q[k], q_tile, warp_row, k * 2);

    for (int n0 = 0; n0 < seq_kv; n0 += BLOCK_N) {
        // Global to shared memory, once all warps are done with the tile before.
        __syncthreads();
        copy_tile(k_tile, K + static_cast<i64>(n0) * DIM, seq_kv - n0);
        copy_tile(v_tile, V + static_cast<i64>(n0) * DIM, seq_kv - n0);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();

        // S = Q·Kᵀ
        float s[N_TILES][4] = {};
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                u32 b[4];
                load_b(b, k_tile, n * 8, k * 2);
                mma(s[n], q[k], b[0], b[1]);
                mma(s[n + 1], q[k], b[2], b[3]);
            }
        }

        // Mask, only where the tile crosses the end of K.
        if (n0 + BLOCK_N > seq_kv) {
            const int end = seq_kv - n0 - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (n * 8 + i % 2 >= end) s[n][i] = -infinity();
        }

        // Online softmax: raise the maxima, shrink O, S becomes P.
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float new_max = max[half];
#pragma unroll
            for (int n = 0; n < N_TILES; n++) new_max = fmaxf(new_max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
            new_max = row_max(new_max);
            const float shifted = new_max * scale_log2;
            const float factor = ex2_approx(fmaf(max[half], scale_log2, -shifted));
            max[half] = new_max;
            sum[half] *= factor;
#pragma unroll
            for (int d = 0; d < D_TILES; d++) {
                o[d][2 * half] *= factor;
                o[d][2 * half + 1] *= factor;
            }
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[n][i] = ex2_approx(fmaf(s[n][i], scale_log2, -shifted));
                    sum[half] += s[n][i];
                }
        }

        // O += P·V: two neighbouring accumulators of S are, packed, the A fragment of 16 columns of P.
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            const u32 p[4] = {pack(s[n][0], s[n][1]), pack(s[n][2], s[n][3]), pack(s[n + 1][0], s[n + 1][1]),
                              pack(s[n + 1][2], s[n + 1][3])};
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                u32 b[4];
                load_b_trans(b, v_tile, n * 8, d);
                mma(o[d], p, b[0], b[1]);
                mma(o[d + 1], p, b[2], b[3]);
            }
        }
    }

    // O = O / sum, staged in this warp's own rows of the Q tile, which no other warp reads.
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp_row + half * 8 + lane / 4;
        sum[half] = row_sum(sum[half]);
        const float inverse = 1.f / sum[half];
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
            const u32 value = pack(o[d][2 * half] * inverse, o[d][2 * half + 1] * inverse);
            st_shared_b32(address(q_tile, warp_row + half * 8, d, lane / 4, 0) + lane % 4 * 4, value);
        }
        if (lane % 4 == 0 && row < q_rows)
            LSE[row] = fmaf(max[half], scale_log2, lg2_approx(sum[half])) * LN_2;
    }
    __syncwarp();

    // Shared to global memory: eight lanes per row.
#pragma unroll
    for (int i = 0; i < 16; i += WARP_SIZE / CHUNKS) {
        const int row = warp_row + i + lane / CHUNKS;
        const uint4 value = ld_shared_v4_b32(address(q_tile, 0, 0, row, lane % CHUNKS));
        if (row < q_rows) st_global_v4_b32(&O[row * DIM + lane % CHUNKS * CHUNK_ELEMENTS], value);
    }
}
