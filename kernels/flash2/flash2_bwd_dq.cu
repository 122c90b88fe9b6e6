// FlashAttention-2, backward, dQ, fp16 and bf16 on tensor cores: one CTA keeps a tile of Q and dO and streams K and V
// past it, as the forward pass does.
//
//   shared memory   Q, dO [BLOCK_M, DIM] | K, V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of Q: only K and V are shared
//   registers       dQ [ROWS, DIM], and S, dP [ROWS, STRIP], of a warp as mma accumulators; dS replaces dP in place
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up), STAGES, NUM_WARPS, STRIP, CAUSAL, WINDOW_LEFT,
// WINDOW_RIGHT, DROPOUT.
#include "../common/philox.cuh"
#include "../common/rows.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of Q per warp
constexpr int M_TILES = ROWS / 16;         // mma tiles of a warp: rows,
constexpr int N_TILES = STRIP / 8;         // columns of S,
constexpr int D_TILES = DIM / 8;           // columns of dQ
constexpr int K_STEPS = DIM / 16;

constexpr bool RIGHT = CAUSAL || WINDOW_RIGHT;

// Fragments of Q and dO stay in registers where they fit beside the accumulators; else each strip reads them again.
constexpr int ACCUMULATORS = M_TILES * (D_TILES + 2 * N_TILES) * 4;
constexpr bool Q_IN_REGISTERS = ACCUMULATORS + M_TILES * K_STEPS * 8 <= 176;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of Q");
static_assert(BLOCK_N % STRIP == 0 && STRIP % 16 == 0, "a tile of K is whole strips of mma steps");

// Strides are in elements; head_dim is contiguous. The bound of one CTA keeps ptxas from spilling for more of them.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
flash2_bwd_dq(const element* __restrict__ Q,    // [batch, heads_q, seq_q, head_dim]
              const element* __restrict__ K,    // [batch, heads_kv, seq_kv, head_dim]
              const element* __restrict__ V,    // [batch, heads_kv, seq_kv, head_dim]
              const element* __restrict__ dO,   // [batch, heads_q, seq_q, head_dim]
              const float* __restrict__ LSE,    // [batch, heads_q, seq_q], contiguous
              const float* __restrict__ delta,  // [batch, heads_q, seq_q], contiguous
              element* __restrict__ dQ,         // [batch, heads_q, seq_q, head_dim]
              i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,     //
              i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,     //
              i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,     //
              i64 do_batch_stride, i64 do_head_stride, i64 do_row_stride,  //
              i64 dq_batch_stride, i64 dq_head_stride, i64 dq_row_stride,  //
              int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale,
              int window_left, int window_right, u64 seed, u32 drop_threshold, float keep_scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 q_tile = shared_address(shared);
    const u32 do_tile = q_tile + Q_BYTES;
    const u32 k_tiles = do_tile + Q_BYTES;
    const u32 v_tiles = k_tiles + STAGES * KV_BYTES;

    // One grid axis, slice by slice. Under a causal mask the last Q tile has most to do, so it starts first.
    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const int slice = blockIdx.x / q_blocks;
    const int q_block = CAUSAL ? q_blocks - 1 - blockIdx.x % q_blocks : blockIdx.x % q_blocks;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);

    const int m0 = q_block * BLOCK_M;
    const int q_rows = min(BLOCK_M, seq_q - m0);
    // Query i sees keys i + oldest ... i + newest.
    const int oldest = seq_kv - seq_q - window_left;
    const int newest = seq_kv - seq_q + (CAUSAL ? 0 : window_right);
    const int reached = max(0, m0 + q_rows + newest);  // keys, to the last row
    const int visible = WINDOW_RIGHT ? min(seq_kv, reached) : CAUSAL ? reached : seq_kv;
    const int kv_blocks = (visible + BLOCK_N - 1) / BLOCK_N;
    const int first_block = WINDOW_LEFT ? max(0, m0 + oldest) / BLOCK_N : 0;  // for the first row

    Q += batch * q_batch_stride + head * q_head_stride + m0 * q_row_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    dO += batch * do_batch_stride + head * do_head_stride + m0 * do_row_stride;
    dQ += batch * dq_batch_stride + head * dq_head_stride + m0 * dq_row_stride;
    LSE += static_cast<i64>(slice) * seq_q + m0;
    delta += static_cast<i64>(slice) * seq_q + m0;

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp in the Q tile
    const int lane = threadIdx.x % WARP_SIZE;
    const float scale_log2 = scale * LOG2_E;

    float dq[M_TILES][D_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) dq[m][d][0] = dq[m][d][1] = dq[m][d][2] = dq[m][d][3] = 0.f;

    const auto load = [&](int block) {
        const int n0 = block * BLOCK_N;
        const u32 stage = block % STAGES * KV_BYTES;
        if (block < kv_blocks) {
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tiles + stage, K + n0 * k_row_stride, k_row_stride,
                                                      seq_kv - n0, head_dim);
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tiles + stage, V + n0 * v_row_stride, v_row_stride,
                                                      seq_kv - n0, head_dim);
        }
        cp_async_commit_group();
    };

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, q_rows, head_dim);
    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(do_tile, dO, do_row_stride, q_rows, head_dim);
    load(first_block);  // Q's and dO's copies join its group

    // LSE and delta: lane l reads row l of every 32 of the warp, then each goes to the quad whose accumulators need it.
    float lse[M_TILES][2], minus_delta[M_TILES][2];
#pragma unroll
    for (int first = 0; first < ROWS; first += WARP_SIZE) {
        const int row = warp_row + first + lane;
        const bool inside = first + lane < ROWS && row < q_rows;
        float row_lse = -infinity(), row_delta = 0.f;
        ld_global_cg_f32(row_lse, LSE + row, inside);
        ld_global_cg_f32(row_delta, delta + row, inside);
        row_lse = lse_log2(row_lse);
#pragma unroll
        for (int half = first / 8; half < first / 8 + 4 && half < 2 * M_TILES; half++) {
            lse[half / 2][half % 2] = shfl_sync_idx(row_lse, half * 8 - first + lane / 4);
            minus_delta[half / 2][half % 2] = -shfl_sync_idx(row_delta, half * 8 - first + lane / 4);
        }
    }

    u32 q[M_TILES][Q_IN_REGISTERS ? K_STEPS : 1][4];
    u32 d_o[M_TILES][Q_IN_REGISTERS ? K_STEPS : 1][4];

    for (int block = first_block; block < kv_blocks; block++) {
        const int n0 = block * BLOCK_N;
        const u32 k_tile = k_tiles + block % STAGES * KV_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * KV_BYTES;

        // K and V of this tile have arrived, and all warps are done with the tile before.
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load(block + 1);

        if (Q_IN_REGISTERS && block == first_block) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int i = 0; i < K_STEPS; i++) {
                    load_a<CHUNKS>(q[m][i], q_tile, warp_row + m * 16, i * 2);
                    load_a<CHUNKS>(d_o[m][i], do_tile, warp_row + m * 16, i * 2);
                }
        }

#pragma unroll 1
        for (int strip = 0; strip < BLOCK_N; strip += STRIP) {
            const u32 k_strip = k_tile + strip * DIM * sizeof(element);
            const u32 v_strip = v_tile + strip * DIM * sizeof(element);

            // S = Q·Kᵀ
            float s[M_TILES][N_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int n = 0; n < N_TILES; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.f;
#pragma unroll
            for (int i = 0; i < K_STEPS; i++) {
                if (!Q_IN_REGISTERS) {
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) load_a<CHUNKS>(q[m][0], q_tile, warp_row + m * 16, i * 2);
                }
#pragma unroll
                for (int n = 0; n < N_TILES; n += 2) {
                    u32 b[4];
                    load_b<CHUNKS>(b, k_strip, n * 8, i * 2);
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) {
                        mma(s[m][n], q[m][Q_IN_REGISTERS ? i : 0], b[0], b[1]);
                        mma(s[m][n + 1], q[m][Q_IN_REGISTERS ? i : 0], b[2], b[3]);
                    }
                }
            }

            // Mask, only where the strip crosses the end of K or an edge of this warp's window.
            const int end = n0 + strip + STRIP;
            if (end > seq_kv || (RIGHT && end > m0 + warp_row + newest + 1) ||
                (WINDOW_LEFT && n0 + strip < m0 + warp_row + ROWS - 1 + oldest)) {
#pragma unroll
                for (int m = 0; m < M_TILES; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int row = m0 + warp_row + m * 16 + half * 8 + lane / 4;
                        const int hidden = RIGHT ? min(seq_kv, row + newest + 1) : seq_kv;  // first key not visible
                        const int first = n0 + strip + lane % 4 * 2;                        // this lane's first column
#pragma unroll
                        for (int n = 0; n < N_TILES; n++)
#pragma unroll
                            for (int i = 0; i < 2; i++)
                                if (n * 8 + i >= hidden - first || (WINDOW_LEFT && n * 8 + i < row + oldest - first))
                                    s[m][n][2 * half + i] = -infinity();
                    }
            }

            // dP - delta = dO·Vᵀ - delta, with dropout (D ∘ dO·Vᵀ) - delta, D being 0 or keep_scale
            float dp[M_TILES][N_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int n = 0; n < N_TILES; n++) {
                    dp[m][n][0] = dp[m][n][1] = DROPOUT ? 0.f : minus_delta[m][0];
                    dp[m][n][2] = dp[m][n][3] = DROPOUT ? 0.f : minus_delta[m][1];
                }
#pragma unroll
            for (int i = 0; i < K_STEPS; i++) {
                if (!Q_IN_REGISTERS) {
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) load_a<CHUNKS>(d_o[m][0], do_tile, warp_row + m * 16, i * 2);
                }
#pragma unroll
                for (int n = 0; n < N_TILES; n += 2) {
                    u32 b[4];
                    load_b<CHUNKS>(b, v_strip, n * 8, i * 2);
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) {
                        mma(dp[m][n], d_o[m][Q_IN_REGISTERS ? i : 0], b[0], b[1]);
                        mma(dp[m][n + 1], d_o[m][Q_IN_REGISTERS ? i : 0], b[2], b[3]);
                    }
                }
            }

            if (DROPOUT) {
#pragma unroll
                for (int m = 0; m < M_TILES; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
#pragma unroll
                        for (int n = 0; n < N_TILES; n += 2)
                            drop(dp[m][n][2 * half], dp[m][n][2 * half + 1], dp[m][n + 1][2 * half],
                                 dp[m][n + 1][2 * half + 1], n0 + strip + n * 8,
                                 m0 + warp_row + m * 16 + half * 8 + lane / 4, head, batch, seed, drop_threshold);
#pragma unroll
                for (int m = 0; m < M_TILES; m++)
#pragma unroll
                    for (int n = 0; n < N_TILES; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            dp[m][n][i] = fmaf(dp[m][n][i], keep_scale, minus_delta[m][i / 2]);
            }

            // P = exp(S - LSE), dS = P ∘ (dP - delta)
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) dp[m][n][i] *= exponential(s[m][n][i], scale_log2, lse[m][i / 2]);

            // dQ += dS·K: two neighbouring accumulators are, packed, the A fragment of 16 keys.
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                u32 ds[M_TILES][4];
#pragma unroll
                for (int m = 0; m < M_TILES; m++) pack_a(ds[m], dp[m][n], dp[m][n + 1]);
#pragma unroll
                for (int d = 0; d < D_TILES; d += 2) {
                    u32 b[4];
                    load_b_trans<CHUNKS>(b, k_strip, n * 8, d);
#pragma unroll
                    for (int m = 0; m < M_TILES; m++) {
                        mma(dq[m][d], ds[m], b[0], b[1]);
                        mma(dq[m][d + 1], ds[m], b[2], b[3]);
                    }
                }
            }
        }

        if (STAGES == 1) {
            __syncthreads();  // all warps are done with K and V
            load(block + 1);
        }
    }

    // Without this, a CTA that saw no tile would still have Q in flight.
    cp_async_wait_group<0>();
    __syncthreads();

    // dQ = scale · dS·K, staged in this warp's own rows of the Q tile, which no other warp reads.
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) dq[m][d][i] *= scale;
            store_accumulator<CHUNKS>(q_tile, warp_row + m * 16, d, dq[m][d]);
        }
    __syncwarp();
    store_rows<ROWS, CHUNKS>(dQ + warp_row * dq_row_stride, dq_row_stride, q_tile, warp_row, q_rows - warp_row,
                             head_dim);
}
