// FlashAttention-2, backward in one kernel, fp32 with plain FMA: flash2_bwd_dkdv_fp32.cu, and dQ by atomics, as in
// flash2_bwd_atomic.cu.
//
//   shared memory   … | dSᵀ [BLOCK_N, DS_PITCH]: rows are 8 banks apart, so that the four rows of a store take all 32
//   warps           for dQ += dS·K, units of 16 rows and UNIT columns of dQ go round the warps; lane (y, x) owns rows
//                   4i + y and, here, single columns 8c + x: eight lanes add to one whole sector
//
// Compile-time parameters as in flash2_bwd_dkdv_fp32.cu.
#include "../common/fma.cuh"
#include "../common/rows.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int VECTOR_BYTES = BLOCK_M * sizeof(float);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_N / NUM_WARPS;     // rows of K per warp
constexpr int ROW_TILE = ROWS / LANES_Y;      // micro-tile of a lane: rows,
constexpr int M_TILE = STRIP / LANES_X;       // columns of Sᵀ,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;  // chunks of dK and dV
constexpr int DS_PITCH = BLOCK_M + 8;
constexpr int UNIT = DIM % 64 == 0 ? 64 : 32;
constexpr int UNIT_ROWS = 16 / LANES_Y;
constexpr int UNIT_COLUMNS = UNIT / LANES_X;
static_assert(BLOCK_N % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of K");
static_assert(BLOCK_M % STRIP == 0 && STRIP % LANES_X == 0, "a tile of Q is whole strips");

// Strides are in elements; head_dim is contiguous. The bound of one CTA keeps ptxas from spilling for more of them.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
flash2_bwd_atomic(const element* __restrict__ Q,    // [batch, heads_q, seq_q, head_dim]
                  const element* __restrict__ K,    // [batch, heads_kv, seq_kv, head_dim]
                  const element* __restrict__ V,    // [batch, heads_kv, seq_kv, head_dim]
                  const element* __restrict__ dO,   // [batch, heads_q, seq_q, head_dim]
                  const float* __restrict__ LSE,    // [batch, heads_q, seq_q], contiguous
                  const float* __restrict__ delta,  // [batch, heads_q, seq_q], contiguous
                  element* __restrict__ dK,         // [batch, heads_kv, seq_kv, head_dim]
                  element* __restrict__ dV,         // [batch, heads_kv, seq_kv, head_dim]
                  float* __restrict__ dQ_acc,       // [batch, heads_q, seq_q, head_dim], contiguous, 0 at first
                  i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,     //
                  i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,     //
                  i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,     //
                  i64 do_batch_stride, i64 do_head_stride, i64 do_row_stride,  //
                  i64 dk_batch_stride, i64 dk_head_stride, i64 dk_row_stride,  //
                  i64 dv_batch_stride, i64 dv_head_stride, i64 dv_row_stride,  //
                  int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 k_tile = shared_address(shared);
    const u32 v_tile = k_tile + KV_BYTES;
    const u32 q_tiles = v_tile + KV_BYTES;
    const u32 do_tiles = q_tiles + STAGES * Q_BYTES;
    const u32 lse_rows = do_tiles + STAGES * Q_BYTES;
    const u32 delta_rows = lse_rows + STAGES * VECTOR_BYTES;
    const u32 ds_tile = delta_rows + STAGES * VECTOR_BYTES;

    // Under a causal mask the first K tile is seen by most queries: it starts first.
    const int kv_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;
    const int slice = blockIdx.x / kv_blocks;
    const int n0 = blockIdx.x % kv_blocks * BLOCK_N;
    const int kv_rows = min(BLOCK_N, seq_kv - n0);
    const int batch = slice / heads_kv;
    const int head_kv = slice % heads_kv;
    const int group = heads_q / heads_kv;

    // Query i sees keys j <= i + diagonal: the last one sees every key, so that no K tile is without queries.
    const int diagonal = seq_kv - seq_q;
    const int first_m0 = CAUSAL ? max(0, n0 - diagonal) / BLOCK_M * BLOCK_M : 0;

    Q += batch * q_batch_stride + head_kv * group * q_head_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride + n0 * k_row_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride + n0 * v_row_stride;
    dO += batch * do_batch_stride + head_kv * group * do_head_stride;

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // in the K tile
    const int first_row = warp_row + lane / LANES_X;      // of this lane; the next is 4 further
    const float scale_log2 = scale * LOG2_E;

    float4 dk[ROW_TILE][CHUNK_TILE];
    float4 dv[ROW_TILE][CHUNK_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) dk[i][c] = dv[i][c] = make_float4(0.f, 0.f, 0.f, 0.f);

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

    fetch_rows(0, first_m0);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tile, K, k_row_stride, kv_rows, head_dim);
    copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tile, V, v_row_stride, kv_rows, head_dim);
    load(0, first_m0, 0);  // K's and V's copies join its group

    int head = 0, m0 = first_m0, stage = 0;
    while (head < group) {
        const bool last_block = m0 + BLOCK_M >= seq_q;
        const int next_head = last_block ? head + 1 : head;
        const int next_m0 = last_block ? first_m0 : m0 + BLOCK_M;
        const u32 q_tile = q_tiles + stage * Q_BYTES;
        const u32 do_tile = do_tiles + stage * Q_BYTES;
        const u32 lse_row = lse_rows + stage * VECTOR_BYTES + x * sizeof(float);
        const u32 delta_row = delta_rows + stage * VECTOR_BYTES + x * sizeof(float);

        // Q and dO of this step have arrived, and all warps are done with the step before.
        rows.put(lse_rows + stage * VECTOR_BYTES, delta_rows + stage * VECTOR_BYTES);
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load(next_head, next_m0, stage ^ 1);
        fetch_rows(next_head, next_m0);

#pragma unroll 1
        for (int strip = 0; strip < BLOCK_M; strip += STRIP) {
            // Sᵀ = K·Qᵀ and dPᵀ - delta = V·dOᵀ - delta, four columns of head_dim at a time
            float s[ROW_TILE][M_TILE];
            float dp[ROW_TILE][M_TILE];
#pragma unroll
            for (int j = 0; j < M_TILE; j++) {
                const float minus_delta = ld_shared_f32(delta_row + (strip + j * LANES_X) * sizeof(float));
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++) {
                    s[i][j] = 0.f;
                    dp[i][j] = minus_delta;
                }
            }
#pragma unroll 1
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                float4 a[ROW_TILE];
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++)
                    a[i] = ld_shared_v4_f32(k_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
                for (int j = 0; j < M_TILE; j++) {
                    const float4 b = ld_shared_v4_f32(q_tile + chunk_offset<CHUNKS>(strip + j * LANES_X + x, chunk));
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) s[i][j] = dot(a[i], b, s[i][j]);
                }
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++)
                    a[i] = ld_shared_v4_f32(v_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
                for (int j = 0; j < M_TILE; j++) {
                    const float4 b = ld_shared_v4_f32(do_tile + chunk_offset<CHUNKS>(strip + j * LANES_X + x, chunk));
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) dp[i][j] = dot(a[i], b, dp[i][j]);
                }
            }

            // Mask, only where the strip crosses the end of K or the diagonal of this warp's last row.
            const int last = n0 + warp_row + ROWS - 1;
            if (last >= seq_kv || (CAUSAL && last > m0 + strip + diagonal)) {
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++) {
                    const int key = n0 + first_row + i * LANES_Y;
                    // First column that sees the key, counted from this lane's.
                    const int first = key < seq_kv ? (CAUSAL ? key - diagonal - m0 - strip - x : 0) : STRIP;
#pragma unroll
                    for (int j = 0; j < M_TILE; j++)
                        if (j * LANES_X < first) s[i][j] = -infinity();
                }
            }

            // P = exp(S - LSE), dS = P ∘ (dP - delta)
#pragma unroll
            for (int j = 0; j < M_TILE; j++) {
                const float lse = ld_shared_f32(lse_row + (strip + j * LANES_X) * sizeof(float));
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++) {
                    s[i][j] = exponential(s[i][j], scale_log2, lse);
                    dp[i][j] *= s[i][j];
                    const int element = (first_row + i * LANES_Y) * DS_PITCH + strip + j * LANES_X + x;
                    st_shared_f32(ds_tile + element * sizeof(float), dp[i][j]);
                }
            }

            // dV += Pᵀ·dO and dK += dSᵀ·Q. Query 8j + source lies in lane `source` of the eight, in register j.
#pragma unroll 1
            for (int source = 0; source < LANES_X; source++) {
#pragma unroll
                for (int j = 0; j < M_TILE; j++) {
                    float p[ROW_TILE], ds[ROW_TILE];
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) {
                        p[i] = shfl_sync_idx(s[i][j], source, LANES_X);
                        ds[i] = shfl_sync_idx(dp[i][j], source, LANES_X);
                    }
#pragma unroll
                    for (int c = 0; c < CHUNK_TILE; c++) {
                        const u32 offset = chunk_offset<CHUNKS>(strip + j * LANES_X + source, c * LANES_X + x);
                        const float4 o = ld_shared_v4_f32(do_tile + offset);
                        const float4 q = ld_shared_v4_f32(q_tile + offset);
#pragma unroll
                        for (int i = 0; i < ROW_TILE; i++) {
                            add_multiple(dv[i][c], p[i], o);
                            add_multiple(dk[i][c], ds[i], q);
                        }
                    }
                }
            }
        }

        // dSᵀ is complete, and all warps are done with Q and dO.
        __syncthreads();
        if (STAGES == 1) load(next_head, next_m0, 0);

        // dQ += dS·K
        const i64 row0 = (static_cast<i64>(batch) * heads_q + head_kv * group + head) * seq_q + m0;
        float* const dq_rows = dQ_acc + row0 * head_dim;
        for (int unit = threadIdx.x / WARP_SIZE; unit < BLOCK_M / 16 * (DIM / UNIT); unit += NUM_WARPS) {
            const int row = unit % (BLOCK_M / 16) * 16 + lane / LANES_X;
            const int column = unit / (BLOCK_M / 16) * UNIT + x;
            float dq[UNIT_ROWS][UNIT_COLUMNS];
#pragma unroll
            for (int i = 0; i < UNIT_ROWS; i++)
#pragma unroll
                for (int c = 0; c < UNIT_COLUMNS; c++) dq[i][c] = 0.f;
#pragma unroll 2
            for (int n = 0; n < BLOCK_N; n++) {
                float ds[UNIT_ROWS];
#pragma unroll
                for (int i = 0; i < UNIT_ROWS; i++)
                    ds[i] = ld_shared_f32(ds_tile + (n * DS_PITCH + row + i * LANES_Y) * sizeof(float));
#pragma unroll
                for (int c = 0; c < UNIT_COLUMNS; c++) {
                    const int d = column + c * LANES_X;
                    const u32 offset = chunk_offset<CHUNKS>(n, d / CHUNK_ELEMENTS) + d % CHUNK_ELEMENTS * sizeof(float);
                    const float k = ld_shared_f32(k_tile + offset);
#pragma unroll
                    for (int i = 0; i < UNIT_ROWS; i++) dq[i][c] = fmaf(ds[i], k, dq[i][c]);
                }
            }
#pragma unroll
            for (int i = 0; i < UNIT_ROWS; i++)
#pragma unroll
                for (int c = 0; c < UNIT_COLUMNS; c++)
                    red_global_add_f32(dq_rows + (row + i * LANES_Y) * head_dim + column + c * LANES_X, dq[i][c],
                                       row + i * LANES_Y < seq_q - m0 && column + c * LANES_X < head_dim);
        }
        head = next_head;
        m0 = next_m0;
        stage = STAGES == 2 ? stage ^ 1 : 0;
    }

    // dK = scale · dSᵀ·Q and dV. A lane's chunk is 16 bytes, eight lanes are neighbours: whole sectors without staging.
    dK += batch * dk_batch_stride + head_kv * dk_head_stride + n0 * dk_row_stride;
    dV += batch * dv_batch_stride + head_kv * dv_head_stride + n0 * dv_row_stride;
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = first_row + i * LANES_Y;
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) {
            const int column = (c * LANES_X + x) * CHUNK_ELEMENTS;
            const bool inside = row < kv_rows && column < head_dim;
            const float4 k = dk[i][c];
            st_global_cg_v4_f32(dK + row * dk_row_stride + column,
                                make_float4(k.x * scale, k.y * scale, k.z * scale, k.w * scale), inside);
            st_global_cg_v4_f32(dV + row * dv_row_stride + column, dv[i][c], inside);
        }
    }
}
