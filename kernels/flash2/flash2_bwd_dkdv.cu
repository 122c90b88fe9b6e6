// FlashAttention-2, backward, dK and dV, fp16 and bf16 on tensor cores: one CTA keeps a tile of K and V and streams Q
// and dO past it, those of all query heads that share its K/V head.
//
//   shared memory   K, V [BLOCK_N, DIM] | Q, dO [STAGES][BLOCK_M, DIM], swizzled | LSE, delta [STAGES][BLOCK_M]
//   warps           NUM_WARPS along the rows of K, and COLUMN_WARPS that share these rows and split the columns of dK
//                   and dV (where a thread's registers don't hold all of them)
//   registers       dK, dV [ROWS, DIM / COLUMN_WARPS], and Sᵀ, dPᵀ [ROWS, STRIP], as mma accumulators
//
// With the keys as rows of the accumulators, Pᵀ and dSᵀ are, packed, the A fragments of dV += Pᵀ·dO and dK += dSᵀ·Q:
// nothing goes through shared memory, and warps meet only where a tile is replaced. The tile of S is made in strips of
// STRIP queries, because dK and dV leave no registers for all of it.
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up), STAGES, NUM_WARPS, COLUMN_WARPS, STRIP, CAUSAL,
// WINDOW_LEFT, WINDOW_RIGHT, DROPOUT.
#include "../common/rows.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"
#include "../common/transposed.cuh"

constexpr int THREADS = NUM_WARPS * COLUMN_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int VECTOR_BYTES = BLOCK_M * sizeof(float);

constexpr int ROWS = BLOCK_N / NUM_WARPS;        // rows of K per warp
constexpr int N_TILES = ROWS / 16;               // mma tiles of a warp: rows,
constexpr int M_TILES = STRIP / 8;               // columns of Sᵀ,
constexpr int D_TILES = DIM / 8 / COLUMN_WARPS;  // columns of dK and dV
constexpr int K_STEPS = DIM / 16;
static_assert(BLOCK_N % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of K");
static_assert(BLOCK_M % STRIP == 0 && STRIP % 16 == 0, "a tile of Q is whole strips of mma steps");
constexpr bool RIGHT = CAUSAL || WINDOW_RIGHT;
static_assert(COLUMN_WARPS == 1 || (COLUMN_WARPS == 2 && D_TILES % 4 == 0), "groups of four column tiles");

// Fragments of K and V stay in registers where they fit beside the accumulators; else each strip reads them again.
constexpr int ACCUMULATORS = N_TILES * (D_TILES + M_TILES) * 8;
constexpr bool KV_IN_REGISTERS = ACCUMULATORS + N_TILES * K_STEPS * 8 <= 176;

// Warps that share rows take turns at groups of four column tiles: what tells them apart is one bit of the chunk, which
// the swizzle leaves in its place.
__device__ constexpr int column(int tile) { return COLUMN_WARPS == 1 ? tile : tile / 4 * 8 + tile % 4; }

// Strides are in elements; head_dim is contiguous.
extern "C" __global__ void __launch_bounds__(THREADS)
flash2_bwd_dkdv(const element* __restrict__ Q,    // [batch, heads_q, seq_q, head_dim]
                const element* __restrict__ K,    // [batch, heads_kv, seq_kv, head_dim]
                const element* __restrict__ V,    // [batch, heads_kv, seq_kv, head_dim]
                const element* __restrict__ dO,   // [batch, heads_q, seq_q, head_dim]
                const float* __restrict__ LSE,    // [batch, heads_q, seq_q], contiguous
                const float* __restrict__ delta,  // [batch, heads_q, seq_q], contiguous
                element* __restrict__ dK,         // [batch, heads_kv, seq_kv, head_dim]
                element* __restrict__ dV,         // [batch, heads_kv, seq_kv, head_dim]
                i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,     //
                i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,     //
                i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,     //
                i64 do_batch_stride, i64 do_head_stride, i64 do_row_stride,  //
                i64 dk_batch_stride, i64 dk_head_stride, i64 dk_row_stride,  //
                i64 dv_batch_stride, i64 dv_head_stride, i64 dv_row_stride,  //
                int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale,
                int window_left, int window_right, u64 seed, u32 drop_threshold, float keep_scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 k_tile = shared_address(shared);
    const u32 v_tile = k_tile + KV_BYTES;
    const u32 q_tiles = v_tile + KV_BYTES;
    const u32 do_tiles = q_tiles + STAGES * Q_BYTES;
    const u32 lse_rows = do_tiles + STAGES * Q_BYTES;
    const u32 delta_rows = lse_rows + STAGES * VECTOR_BYTES;

    // Under a causal mask the first K tile is seen by most queries: it starts first.
    const int kv_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;
    const int slice = blockIdx.x / kv_blocks;
    const int n0 = blockIdx.x % kv_blocks * BLOCK_N;
    const int kv_rows = min(BLOCK_N, seq_kv - n0);
    const int batch = slice / heads_kv;
    const int head_kv = slice % heads_kv;
    const int group = heads_q / heads_kv;

    // Query i sees keys i + oldest ... i + newest. The last one sees the last key, so that only a window to the left
    // leaves K tiles without queries.
    const int oldest = seq_kv - seq_q - window_left;
    const int newest = seq_kv - seq_q + (CAUSAL ? 0 : window_right);
    const int first_m0 = RIGHT ? max(0, n0 - newest) / BLOCK_M * BLOCK_M : 0;
    const int end_m = WINDOW_LEFT ? min(seq_q, n0 + kv_rows - oldest) : seq_q;

    Q += batch * q_batch_stride + head_kv * group * q_head_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride + n0 * k_row_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride + n0 * v_row_stride;
    dO += batch * do_batch_stride + head_kv * group * do_head_stride;

    const int warp = threadIdx.x / WARP_SIZE;
    const int warp_row = warp % NUM_WARPS * ROWS;  // in the K tile
    const int warp_chunk = warp / NUM_WARPS * 4;   // of this warp's columns of dK and dV
    const int lane = threadIdx.x % WARP_SIZE;
    const float scale_log2 = scale * LOG2_E;

    float dk[N_TILES][D_TILES][4];
    float dv[N_TILES][D_TILES][4];
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
            dk[n][d][0] = dk[n][d][1] = dk[n][d][2] = dk[n][d][3] = 0.f;
            dv[n][d][0] = dv[n][d][1] = dv[n][d][2] = dv[n][d][3] = 0.f;
        }

    // A step is one tile of Q and dO of one query head; STAGES of them alternate.
    const auto load = [&](int head, int m0, int stage) {
        if (head < group) {
            copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tiles + stage * Q_BYTES,
                                                      Q + head * q_head_stride + m0 * q_row_stride, q_row_stride,
                                                      seq_q - m0, head_dim);
            copy_tile_async<BLOCK_M, CHUNKS, THREADS>(do_tiles + stage * Q_BYTES,
                                                      dO + head * do_head_stride + m0 * do_row_stride, do_row_stride,
                                                      seq_q - m0, head_dim);
        }
        cp_async_commit_group();
    };

    TileRows<BLOCK_M, THREADS> rows;  // of the next step
    const auto fetch_rows = [&](int head, int m0) {
        const i64 row0 = (static_cast<i64>(batch) * heads_q + head_kv * group + head) * seq_q + m0;
        rows.fetch(LSE + row0, delta + row0, head < group ? seq_q - m0 : 0);
    };

    int head = WINDOW_LEFT && end_m <= 0 ? group : 0, m0 = first_m0, stage = 0;
    fetch_rows(head, first_m0);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tile, K, k_row_stride, kv_rows, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tile, V, v_row_stride, kv_rows, head_dim);
    load(head, first_m0, 0);  // K's and V's copies join its group

    u32 k[N_TILES][KV_IN_REGISTERS ? K_STEPS : 1][4];
    u32 v[N_TILES][KV_IN_REGISTERS ? K_STEPS : 1][4];

    while (head < group) {
        const bool last_block = m0 + BLOCK_M >= end_m;
        const int next_head = last_block ? head + 1 : head;
        const int next_m0 = last_block ? first_m0 : m0 + BLOCK_M;
        const u32 q_tile = q_tiles + stage * Q_BYTES;
        const u32 do_tile = do_tiles + stage * Q_BYTES;
        const u32 lse_row = lse_rows + stage * VECTOR_BYTES + lane % 4 * 8;  // a lane's two columns of eight
        const u32 delta_row = delta_rows + stage * VECTOR_BYTES + lane % 4 * 8;

        // Q and dO of this step have arrived, and all warps are done with the step before.
        rows.put(lse_rows + stage * VECTOR_BYTES, delta_rows + stage * VECTOR_BYTES);
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load(next_head, next_m0, stage ^ 1);
        fetch_rows(next_head, next_m0);

        if (KV_IN_REGISTERS && head == 0 && m0 == first_m0) {
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int i = 0; i < K_STEPS; i++) {
                    load_a<CHUNKS>(k[n][i], k_tile, warp_row + n * 16, i * 2);
                    load_a<CHUNKS>(v[n][i], v_tile, warp_row + n * 16, i * 2);
                }
        }

#pragma unroll 1
        for (int strip = 0; strip < BLOCK_M; strip += STRIP) {
            const u32 q_strip = q_tile + strip * DIM * sizeof(element);
            const u32 do_strip = do_tile + strip * DIM * sizeof(element);

            // Sᵀ = K·Qᵀ
            float s[N_TILES][M_TILES][4];
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
#pragma unroll
                for (int m = 0; m < M_TILES; m++) s[n][m][0] = s[n][m][1] = s[n][m][2] = s[n][m][3] = 0.f;
#pragma unroll
            for (int i = 0; i < K_STEPS; i++) {
                if (!KV_IN_REGISTERS) {
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) load_a<CHUNKS>(k[n][0], k_tile, warp_row + n * 16, i * 2);
                }
#pragma unroll
                for (int m = 0; m < M_TILES; m += 2) {
                    u32 b[4];
                    load_b<CHUNKS>(b, q_strip, m * 8, i * 2);
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) {
                        mma(s[n][m], k[n][KV_IN_REGISTERS ? i : 0], b[0], b[1]);
                        mma(s[n][m + 1], k[n][KV_IN_REGISTERS ? i : 0], b[2], b[3]);
                    }
                }
            }

            // Rows beyond the last key need no mask: what they collect is not stored.
            mask_transposed<WINDOW_LEFT, RIGHT, false>(s, n0 + warp_row, m0, strip, lane, oldest, newest, seq_kv);

            // P = exp(S - LSE)
#pragma unroll
            for (int m = 0; m < M_TILES; m++) {
                const float2 lse = ld_shared_v2_f32(lse_row + (strip + m * 8) * sizeof(float));
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s[n][m][i] = exponential(s[n][m][i], scale_log2, i % 2 == 0 ? lse.x : lse.y);
            }

            if (DROPOUT)
                mark_dropped(s, n0 + warp_row, m0 + strip, head_kv * group + head, batch, seed, drop_threshold);

            // dV += Pᵀ·dO: two neighbouring accumulators are, packed, the A fragment of 16 queries.
#pragma unroll
            for (int m = 0; m < M_TILES; m += 2) {
                u32 p[N_TILES][4];
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
                    DROPOUT ? pack_kept(p[n], s[n][m], s[n][m + 1]) : pack_a(p[n], s[n][m], s[n][m + 1]);
#pragma unroll
                for (int d = 0; d < D_TILES; d += 2) {
                    u32 b[4];
                    load_b_trans<CHUNKS>(b, do_strip, m * 8, column(d), warp_chunk);
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) {
                        mma(dv[n][d], p[n], b[0], b[1]);
                        mma(dv[n][d + 1], p[n], b[2], b[3]);
                    }
                }
            }

            // dPᵀ - delta = V·dOᵀ - delta, with dropout (D ∘ V·dOᵀ) - delta, D being 0 or keep_scale
            float dp[N_TILES][M_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++) {
                float2 minus_delta = {0.f, 0.f};
                if (!DROPOUT) minus_delta = ld_shared_v2_f32(delta_row + (strip + m * 8) * sizeof(float));
#pragma unroll
                for (int n = 0; n < N_TILES; n++) {
                    dp[n][m][0] = dp[n][m][2] = minus_delta.x;
                    dp[n][m][1] = dp[n][m][3] = minus_delta.y;
                }
            }
#pragma unroll
            for (int i = 0; i < K_STEPS; i++) {
                if (!KV_IN_REGISTERS) {
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) load_a<CHUNKS>(v[n][0], v_tile, warp_row + n * 16, i * 2);
                }
#pragma unroll
                for (int m = 0; m < M_TILES; m += 2) {
                    u32 b[4];
                    load_b<CHUNKS>(b, do_strip, m * 8, i * 2);
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) {
                        mma(dp[n][m], v[n][KV_IN_REGISTERS ? i : 0], b[0], b[1]);
                        mma(dp[n][m + 1], v[n][KV_IN_REGISTERS ? i : 0], b[2], b[3]);
                    }
                }
            }

            if (DROPOUT) drop_gradient(dp, s, delta_row + strip * sizeof(float), keep_scale);

            // dS = P ∘ (dP - delta), dK += dSᵀ·Q
#pragma unroll
            for (int m = 0; m < M_TILES; m += 2) {
                u32 ds[N_TILES][4];
#pragma unroll
                for (int n = 0; n < N_TILES; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        dp[n][m][i] *= s[n][m][i];
                        dp[n][m + 1][i] *= s[n][m + 1][i];
                    }
                    pack_a(ds[n], dp[n][m], dp[n][m + 1]);
                }
#pragma unroll
                for (int d = 0; d < D_TILES; d += 2) {
                    u32 b[4];
                    load_b_trans<CHUNKS>(b, q_strip, m * 8, column(d), warp_chunk);
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) {
                        mma(dk[n][d], ds[n], b[0], b[1]);
                        mma(dk[n][d + 1], ds[n], b[2], b[3]);
                    }
                }
            }
        }

        if (STAGES == 1) {
            __syncthreads();  // all warps are done with Q and dO
            load(next_head, next_m0, 0);
        }
        head = next_head;
        m0 = next_m0;
        stage = STAGES == 2 ? stage ^ 1 : 0;
    }

    // dK = scale · dSᵀ·Q and dV, staged in the tiles of K and V. Only the warps of the same rows read and write these.
    // With one stage they have met after the last step; without a step K and V are still in flight.
    if (WINDOW_LEFT) cp_async_wait_group<0>();
    if (WINDOW_LEFT || (COLUMN_WARPS > 1 && STAGES == 2)) __syncthreads();
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                dk[n][d][i] *= scale;
                if (DROPOUT) dv[n][d][i] *= keep_scale;
            }
            store_accumulator<CHUNKS>(k_tile, warp_row + n * 16, column(d), dk[n][d], warp_chunk);
            store_accumulator<CHUNKS>(v_tile, warp_row + n * 16, column(d), dv[n][d], warp_chunk);
        }
    if (COLUMN_WARPS > 1)
        __syncthreads();
    else
        __syncwarp();
    dK += batch * dk_batch_stride + head_kv * dk_head_stride + n0 * dk_row_stride;
    dV += batch * dv_batch_stride + head_kv * dv_head_stride + n0 * dv_row_stride;
    constexpr int STORE_ROWS = ROWS / COLUMN_WARPS;
    const int row = warp_row + warp / NUM_WARPS * STORE_ROWS;
    store_rows<STORE_ROWS, CHUNKS>(dK + row * dk_row_stride, dk_row_stride, k_tile, row, kv_rows - row, head_dim);
    store_rows<STORE_ROWS, CHUNKS>(dV + row * dv_row_stride, dv_row_stride, v_tile, row, kv_rows - row, head_dim);
}
