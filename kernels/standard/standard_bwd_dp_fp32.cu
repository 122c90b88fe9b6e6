// Standard attention, backward, 2 of 5, fp32 with plain FMA: the tile of standard_bwd_dp.cu as register micro-tiles.
//
//   shared memory   dO [BLOCK_M, DIM] | V [BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of dO
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp and columns 8j + x of dP, as in
//                   scores_fp32.cu
//
// Compile-time parameters as in standard_bwd_dp.cu.
#include "../common/fma.cuh"
#include "../common/predicated.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int DO_BYTES = BLOCK_M * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of dO per warp
constexpr int ROW_TILE = ROWS / LANES_Y;   // micro-tile of a lane: rows,
constexpr int N_TILE = BLOCK_N / LANES_X;  // columns of dP
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of dO");

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

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(do_tile, dO, do_row_stride, seq_q - m0, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tile, V, v_row_stride, seq_kv - n0, head_dim);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the dO tile; the next is 4 further

    // dP = dO·Vᵀ, four columns of head_dim at a time
    float dp[ROW_TILE][N_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int j = 0; j < N_TILE; j++) dp[i][j] = 0.f;
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        float4 a[ROW_TILE];
#pragma unroll
        for (int i = 0; i < ROW_TILE; i++)
            a[i] = ld_shared_v4_f32(do_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
        for (int j = 0; j < N_TILE; j++) {
            const float4 b = ld_shared_v4_f32(v_tile + chunk_offset<CHUNKS>(j * LANES_X + x, chunk));
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++) dp[i][j] = dot(a[i], b, dp[i][j]);
        }
    }

    // Store in whole 16-byte chunks: rows of V beyond seq_kv read as 0, so that the padding is 0.
    const int columns = (seq_kv + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS * CHUNK_ELEMENTS;
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = m0 + first_row + i * LANES_Y;
        element* target = dP + (static_cast<i64>(slice) * seq_q + row) * pitch + n0 + x;
#pragma unroll
        for (int j = 0; j < N_TILE; j++)
            st_global_cg_f32(target + j * LANES_X, dp[i][j], row < seq_q && n0 + j * LANES_X + x < columns);
    }
}
