// Standard attention, 1 of 3, and backward, 2 of 5, fp32 with plain FMA: the tile of scores.cu as register micro-tiles.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of Q
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp and columns 8j + x of S. A
//                   128-bit shared load is, per phase of eight lanes, one row of Q (a broadcast) or eight rows of K
//                   at one chunk; a store is four rows of one whole sector each
//
// Compile-time parameters as in scores.cu.
#include "../common/predicated.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of Q per warp
constexpr int ROW_TILE = ROWS / LANES_Y;   // micro-tile of a lane: rows,
constexpr int N_TILE = BLOCK_N / LANES_X;  // columns of S
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of Q");

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
ENTRY(const element* __restrict__ Q,  // or dO: [batch, heads_q, seq_q, head_dim]
      const element* __restrict__ K,  // or V: [batch, heads_kv, seq_kv, head_dim]
      element* __restrict__ S,        // or dP: [batch, heads_q, seq_q, pitch], contiguous
      i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,  //
      i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,  //
      int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, int pitch, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 q_tile = shared_address(shared);
    const u32 k_tile = q_tile + Q_BYTES;

    const int n_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;
    const int tiles = (seq_q + BLOCK_M - 1) / BLOCK_M * n_blocks;
    const int slice = blockIdx.x / tiles;
    const int m0 = blockIdx.x % tiles / n_blocks * BLOCK_M;
    const int n0 = blockIdx.x % tiles % n_blocks * BLOCK_N;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);

    Q += batch * q_batch_stride + head * q_head_stride + m0 * q_row_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride + n0 * k_row_stride;

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, seq_q - m0, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tile, K, k_row_stride, seq_kv - n0, head_dim);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the Q tile; the next is 4 further

    // S = Q·Kᵀ, four columns of head_dim at a time
    float s[ROW_TILE][N_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int j = 0; j < N_TILE; j++) s[i][j] = 0.f;
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        float4 q[ROW_TILE];
#pragma unroll
        for (int i = 0; i < ROW_TILE; i++)
            q[i] = ld_shared_v4_f32(q_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
        for (int j = 0; j < N_TILE; j++) {
            const float4 k = ld_shared_v4_f32(k_tile + chunk_offset<CHUNKS>(j * LANES_X + x, chunk));
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++) {
                s[i][j] = fmaf(q[i].x, k.x, s[i][j]);
                s[i][j] = fmaf(q[i].y, k.y, s[i][j]);
                s[i][j] = fmaf(q[i].z, k.z, s[i][j]);
                s[i][j] = fmaf(q[i].w, k.w, s[i][j]);
            }
        }
    }

    // Scale, mask, store, in whole 16-byte chunks: keys up to the end of the last one are written, as -inf.
    const int columns = (seq_kv + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS * CHUNK_ELEMENTS;
    const int diagonal = seq_kv - seq_q;  // query i sees keys j <= i + diagonal
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = m0 + first_row + i * LANES_Y;
        const int end = CAUSAL ? min(seq_kv, row + diagonal + 1) : seq_kv;  // first key not visible
        element* target = S + (static_cast<i64>(slice) * seq_q + row) * pitch + n0 + x;
#pragma unroll
        for (int j = 0; j < N_TILE; j++) {
            const int key = n0 + j * LANES_X + x;
            const float score = key < end ? s[i][j] * scale : -infinity();
            st_global_cg_f32(target + j * LANES_X, SCORES ? score : s[i][j], row < seq_q && key < columns);
        }
    }
}
