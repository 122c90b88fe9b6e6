// Split-K, for comparison: each warp has all queries of the CTA and a quarter of a tile's keys. That is how the first
// FlashAttention divided its work among warps; rung 08_swizzle of the ladder, which differs in nothing else, gives each
// warp a quarter of the queries and all keys (split-Q). A row's maximum and O are then spread over the warps, and go
// through shared memory at every tile: `fa-bench claims q` counts what that costs.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM] | V [BLOCK_N, DIM] | maxima, then sums | parts of O
//   registers       S [BLOCK_M, 16] of a warp; O [16, DIM] of the rows that it adds up
//
// The first FlashAttention kept fragments of K and V in registers, K and V being its outer loop: it read less of the
// tiles than this kernel, and passed on as much.
#include "../common/softmax.cuh"

constexpr int DIM = 64;                       // head_dim
constexpr int BLOCK_M = 64;                   // queries per CTA, all of them in each warp
constexpr int BLOCK_N = 64;                   // keys per tile, 16 per warp
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;  // 16-byte chunks of a row

constexpr int WARPS = BLOCK_N / 16;
constexpr int THREADS = WARPS * WARP_SIZE;
constexpr int M_TILES = BLOCK_M / 16;  // mma tiles of a warp: rows,
constexpr int D_TILES = DIM / 8;       // columns of O,
constexpr int K_STEPS = DIM / 16;      // steps along head_dim
static_assert(M_TILES == WARPS, "each warp adds up one tile of rows");

using Tile = element[BLOCK_N][DIM];  // BLOCK_M = BLOCK_N

__device__ __forceinline__ u32 address(const Tile& tile, int row, int chunk) {
    return shared_address(&tile[row][(chunk ^ row % 8) * CHUNK_ELEMENTS]);
}

// Starts copying a tile. Rows from `rows` on are zeros and not read: 0 · NaN would be NaN.
__device__ __forceinline__ void copy_tile(const Tile& tile, const element* global, int rows) {
#pragma unroll
    for (int first = 0; first < BLOCK_N * CHUNKS; first += THREADS) {
        const int i = first + threadIdx.x, row = i / CHUNKS, chunk = i % CHUNKS;
        cp_async_cg_16(address(tile, row, chunk), global + i * CHUNK_ELEMENTS, row < rows ? CHUNK_BYTES : 0);
    }
}

// A, 16x16, from rows `row` … of a tile: matrices (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
__device__ __forceinline__ void load_a(u32 (&a)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(a, address(tile, row + lane % 16, chunk + lane / 16));
}

// B of two neighbouring 16x8 tiles from a matrix stored n x k (K in Q·Kᵀ).
__device__ __forceinline__ void load_b(u32 (&b)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(b, address(tile, row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
}

// The same from a matrix stored k x n (V in P·V), transposed on the way.
__device__ __forceinline__ void load_b_trans(u32 (&b)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4_trans(b, address(tile, row + lane % 16, chunk + lane / 16));
}

extern "C" __global__ void __launch_bounds__(THREADS)
ladder_fwd(const element* __restrict__ Q,  // [slices, seq_q, DIM]
           const element* __restrict__ K,  // [slices, seq_kv, DIM]
           const element* __restrict__ V,  // [slices, seq_kv, DIM]
           element* __restrict__ O,        // [slices, seq_q, DIM]
           float* __restrict__ LSE,        // [slices, seq_q]
           int seq_q, int seq_kv, float scale) {
    __shared__ __align__(128) Tile q_tile, k_tile, v_tile;
    __shared__ float rows[WARPS][BLOCK_M];  // each warp's maxima, at last its sums
    // Each warp's part of 16 columns of O, lane by lane, so that no two lanes meet in a bank.
    __shared__ __align__(128) float2 parts[WARPS][M_TILES][2][2][WARP_SIZE];

    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const i64 slice = blockIdx.x / q_blocks;
    const int m0 = blockIdx.x % q_blocks * BLOCK_M;
    const int q_rows = seq_q - m0;

    Q += (slice * seq_q + m0) * DIM;
    K += slice * seq_kv * DIM;
    V += slice * seq_kv * DIM;
    O += (slice * seq_q + m0) * DIM;
    LSE += slice * seq_q + m0;

    const int warp = threadIdx.x / WARP_SIZE;
    const int warp_key = warp * 16;  // first key of this warp in the K and V tiles
    const int warp_row = warp * 16;  // first of the rows whose O it adds up
    const int lane = threadIdx.x % WARP_SIZE;

    // Of all rows of the CTA: lane / 4 and lane / 4 + 8 of each tile of 16.
    float max[M_TILES][2], sum[M_TILES][2];
#pragma unroll
    for (int t = 0; t < M_TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) max[t][half] = -infinity(), sum[t][half] = 0.f;
    // Of the rows that this warp adds up.
    float o[D_TILES][4] = {};
    float own_max[2] = {-infinity(), -infinity()};

    copy_tile(q_tile, Q, q_rows);
    for (int n0 = 0; n0 < seq_kv; n0 += BLOCK_N) {
        // Global to shared memory, once all warps are done with the tile before.
        __syncthreads();
        copy_tile(k_tile, K + static_cast<i64>(n0) * DIM, seq_kv - n0);
        copy_tile(v_tile, V + static_cast<i64>(n0) * DIM, seq_kv - n0);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();

        // S = scale · Q·Kᵀ of 16 keys
        float s[M_TILES][2][4] = {};
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
            u32 b[4];
            load_b(b, k_tile, warp_key, k * 2);
#pragma unroll
            for (int t = 0; t < M_TILES; t++) {
                u32 q[4];
                load_a(q, q_tile, t * 16, k * 2);
                mma(s[t][0], q, b[0], b[1]);
                mma(s[t][1], q, b[2], b[3]);
            }
        }

        // Scale; mask what lies beyond the end of K; the maximum of these keys, for the other warps.
        const int end = seq_kv - n0 - warp_key - lane % 4 * 2;
#pragma unroll
        for (int t = 0; t < M_TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float tile_max = -infinity();
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++) {
                        s[t][n][i] = n * 8 + i % 2 < end ? s[t][n][i] * scale : -infinity();
                        tile_max = fmaxf(tile_max, s[t][n][i]);
                    }
                tile_max = row_max(tile_max);
                if (lane % 4 == 0) rows[warp][t * 16 + half * 8 + lane / 4] = tile_max;
            }
        __syncthreads();

        // Online softmax over the keys of all warps; S becomes P.
#pragma unroll
        for (int t = 0; t < M_TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float new_max = max[t][half];
#pragma unroll
                for (int w = 0; w < WARPS; w++) new_max = fmaxf(new_max, rows[w][t * 16 + half * 8 + lane / 4]);
                sum[t][half] *= expf(max[t][half] - new_max);
                max[t][half] = new_max;
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++) {
                        s[t][n][i] = expf(s[t][n][i] - new_max);
                        sum[t][half] += s[t][n][i];
                    }
            }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float new_max = own_max[half];
#pragma unroll
            for (int w = 0; w < WARPS; w++) new_max = fmaxf(new_max, rows[w][warp_row + half * 8 + lane / 4]);
            const float factor = expf(own_max[half] - new_max);
            own_max[half] = new_max;
#pragma unroll
            for (int d = 0; d < D_TILES; d++) {
                o[d][2 * half] *= factor;
                o[d][2 * half + 1] *= factor;
            }
        }

        // O += P·V, 16 columns at a time: each warp's part by way of shared memory, added up by rows.
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            u32 b[4];
            load_b_trans(b, v_tile, warp_key, d);
            if (d) __syncthreads();
#pragma unroll
            for (int t = 0; t < M_TILES; t++) {
                const u32 p[4] = {pack(s[t][0][0], s[t][0][1]), pack(s[t][0][2], s[t][0][3]),
                                  pack(s[t][1][0], s[t][1][1]), pack(s[t][1][2], s[t][1][3])};
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    float part[4] = {};
                    mma(part, p, b[2 * n], b[2 * n + 1]);
                    parts[warp][t][n][0][lane] = {part[0], part[1]};
                    parts[warp][t][n][1][lane] = {part[2], part[3]};
                }
            }
            __syncthreads();
#pragma unroll
            for (int w = 0; w < WARPS; w++)
#pragma unroll
                for (int n = 0; n < 2; n++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float2 part = parts[w][warp][n][half][lane];
                        o[d + n][2 * half] += part.x;
                        o[d + n][2 * half + 1] += part.y;
                    }
        }
    }

    // O = O / sum, once the sums of all warps are there.
    __syncthreads();
#pragma unroll
    for (int t = 0; t < M_TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[t][half] = row_sum(sum[t][half]);
            if (lane % 4 == 0) rows[warp][t * 16 + half * 8 + lane / 4] = sum[t][half];
        }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp_row + half * 8 + lane / 4;
        if (row >= q_rows) continue;
        float total = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += rows[w][row];
        const float inverse = 1.f / total;
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
            const u32 value = pack(o[d][2 * half] * inverse, o[d][2 * half + 1] * inverse);
            *reinterpret_cast<u32*>(&O[row * DIM + d * 8 + lane % 4 * 2]) = value;
        }
        if (lane % 4 == 0) LSE[row] = own_max[half] + logf(total);
    }
}
