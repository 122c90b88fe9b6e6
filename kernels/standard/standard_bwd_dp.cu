// Standard attention, backward, 2 of 5: dP = dO·Vᵀ, fp16 and bf16 on tensor cores. One CTA per tile of dP: scores.cu
// without a scale and without a mask. What P is 0 for, dS will be 0 for.
//
//   shared memory   dO [BLOCK_M, DIM] | V [BLOCK_N, DIM], swizzled (tile.cuh); dP [BLOCK_M, BLOCK_N] at the end
//   warps           split along the rows of dO
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), NUM_WARPS.
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int DO_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int DP_CHUNKS = (BLOCK_N / CHUNK_ELEMENTS + 3) / 4 * 4;  // the swizzle wants rows of 64 bytes

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of dO per warp
constexpr int M_TILES = ROWS / 16;
constexpr int N_TILES = BLOCK_N / 8;
constexpr int K_STEPS = DIM / 16;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of dO");

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
standard_bwd_dp(const element* __restrict__ dO,  // [batch, heads_q, seq_q, head_dim]
                const element* __restrict__ V,   // [batch, heads_kv, seq_kv, head_dim]
                element* __restrict__ dP,        // [batch, heads_q, seq_q, pitch], contiguous
                i64 do_batch_stride, i64 do_head_stride, i64 do_row_stride,  //
                i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,     //
                int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, int pitch) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 do_tile = shared_address(shared);
    const u32 v_tile = do_tile + DO_BYTES;
    const u32 dp_tile = do_tile;

    const int n_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;
    const int tiles = (seq_q + BLOCK_M - 1) / BLOCK_M * n_blocks;
    const int slice = blockIdx.x / tiles;
    const int m0 = blockIdx.x % tiles / n_blocks * BLOCK_M;
    const int n0 = blockIdx.x % tiles % n_blocks * BLOCK_N;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);

    dO += batch * do_batch_stride + head * do_head_stride + m0 * do_row_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride + n0 * v_row_stride;
    dP += (static_cast<i64>(slice) * seq_q + m0) * pitch + n0;

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(do_tile, dO, do_row_stride, seq_q - m0, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tile, V, v_row_stride, seq_kv - n0, head_dim);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;

    // dP = dO·Vᵀ. Rows of V beyond seq_kv read as 0, so that the padding of a row of dP is 0.
    float dp[M_TILES][N_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) dp[m][n][0] = dp[m][n][1] = dp[m][n][2] = dp[m][n][3] = 0.f;
#pragma unroll
    for (int k = 0; k < K_STEPS; k++) {
        u32 a[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; m++) load_a<CHUNKS>(a[m], do_tile, warp_row + m * 16, k * 2);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            u32 b[4];
            load_b<CHUNKS>(b, v_tile, n * 8, k * 2);
#pragma unroll
            for (int m = 0; m < M_TILES; m++) {
                mma(dp[m][n], a[m], b[0], b[1]);
                mma(dp[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }

    // Store, staged where dO and V were, so that whole sectors leave.
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) store_accumulator<DP_CHUNKS>(dp_tile, warp_row + m * 16, n, dp[m][n]);
    __syncwarp();
    store_rows<ROWS, DP_CHUNKS>(dP + static_cast<i64>(warp_row) * pitch, pitch, dp_tile, warp_row,
                                seq_q - m0 - warp_row, min(BLOCK_N, seq_kv - n0));
}
