// Standard attention, 1 of 3: S = scale · Q·Kᵀ, masked, fp16 and bf16 on tensor cores. One CTA per tile of S.
// Backward, 2 of 5, as ENTRY = standard_bwd_dp and without SCORES: dP = dO·Vᵀ, with dO for Q, V for K and dP for S. It
// has no scale and no mask: what P is 0 for, dS will be 0 for, and rows of V beyond seq_kv read as 0.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM], swizzled (tile.cuh); then, in their place, the tile of S
//   warps           split along the rows of Q
//
// All of S is written, also what a causal mask hides (as -inf): the baseline knows no shortcut. Rows of S are written
// in whole 16-byte chunks; the padding in a row's last chunk is masked like a key beyond the end. In fp16 a score
// beyond 65,504 becomes infinite, as in any baseline that stores S in the element type.
//
// Compile-time: ENTRY, SCORES, BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), NUM_WARPS,
// CAUSAL.
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int S_CHUNKS = (BLOCK_N / CHUNK_ELEMENTS + 3) / 4 * 4;  // the swizzle wants rows of 64 bytes

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of Q per warp
constexpr int M_TILES = ROWS / 16;
constexpr int N_TILES = BLOCK_N / 8;
constexpr int K_STEPS = DIM / 16;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of Q");

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
    const u32 s_tile = q_tile;

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
    S += (static_cast<i64>(slice) * seq_q + m0) * pitch + n0;

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, seq_q - m0, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tile, K, k_row_stride, seq_kv - n0, head_dim);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;
    const int lane = threadIdx.x % WARP_SIZE;

    // S = Q·Kᵀ
    float s[M_TILES][N_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.f;
#pragma unroll
    for (int k = 0; k < K_STEPS; k++) {
        u32 q[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; m++) load_a<CHUNKS>(q[m], q_tile, warp_row + m * 16, k * 2);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            u32 b[4];
            load_b<CHUNKS>(b, k_tile, n * 8, k * 2);
#pragma unroll
            for (int m = 0; m < M_TILES; m++) {
                mma(s[m][n], q[m], b[0], b[1]);
                mma(s[m][n + 1], q[m], b[2], b[3]);
            }
        }
    }

    // Scale.
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] *= SCORES ? scale : 1.f;

    // Mask, only where the tile crosses the end of K or the diagonal of this warp's first row.
    const int diagonal = seq_kv - seq_q;  // query i sees keys j <= i + diagonal
    if (SCORES && (n0 + BLOCK_N > seq_kv || (CAUSAL && n0 + BLOCK_N > m0 + warp_row + diagonal + 1))) {
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int row = m0 + warp_row + m * 16 + lane / 4 + i / 2 * 8;
                    const int key = n0 + n * 8 + lane % 4 * 2 + i % 2;
                    if (key >= seq_kv || (CAUSAL && key > row + diagonal)) s[m][n][i] = -infinity();
                }
    }

    // Store, staged where Q and K were, so that whole sectors leave.
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) store_accumulator<S_CHUNKS>(s_tile, warp_row + m * 16, n, s[m][n]);
    __syncwarp();
    store_rows<ROWS, S_CHUNKS>(S + static_cast<i64>(warp_row) * pitch, pitch, s_tile, warp_row, seq_q - m0 - warp_row,
                               min(BLOCK_N, seq_kv - n0));
}
