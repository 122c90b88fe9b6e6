// FlashAttention-2, backward, dQ, fp32 with plain FMA: the schedule of flash2_bwd_dq.cu, the products as register
// micro-tiles.
//
//   shared memory   Q, dO [BLOCK_M, DIM] | K, V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of Q
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp, columns 8j + x of S and the
//                   16-byte chunks 8c + x of dQ, as in flash2_fwd_fp32.cu
//
// dS never leaves registers: the eight lanes of a row hand it round with shuffles. Compile-time parameters as there.
#include "../common/fma.cuh"
#include "../common/rows.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;     // rows of Q per warp
constexpr int ROW_TILE = ROWS / LANES_Y;      // micro-tile of a lane: rows,
constexpr int N_TILE = STRIP / LANES_X;       // columns of S,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;  // chunks of dQ
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of Q");
static_assert(BLOCK_N % STRIP == 0 && STRIP % LANES_X == 0, "a tile of K is whole strips");

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
              int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale) {
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
    const int diagonal = seq_kv - seq_q;  // query i sees keys j <= i + diagonal
    const int visible = CAUSAL ? max(0, m0 + q_rows + diagonal) : seq_kv;  // keys, to the last row
    const int kv_blocks = (visible + BLOCK_N - 1) / BLOCK_N;

    Q += batch * q_batch_stride + head * q_head_stride + m0 * q_row_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    dO += batch * do_batch_stride + head * do_head_stride + m0 * do_row_stride;
    dQ += batch * dq_batch_stride + head * dq_head_stride + m0 * dq_row_stride;
    LSE += static_cast<i64>(slice) * seq_q + m0;
    delta += static_cast<i64>(slice) * seq_q + m0;

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp in the Q tile
    const int first_row = warp_row + lane / LANES_X;      // of this lane; the next is 4 further
    const float scale_log2 = scale * LOG2_E;

    float4 dq[ROW_TILE][CHUNK_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) dq[i][c] = make_float4(0.f, 0.f, 0.f, 0.f);

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
    load(0);  // Q's and dO's copies join its group

    // LSE and delta: lane l reads row l of every 32 of the warp, then each goes to the eight lanes that share the row.
    float lse[ROW_TILE], minus_delta[ROW_TILE];
#pragma unroll
    for (int first = 0; first < ROWS; first += WARP_SIZE) {
        const int row = warp_row + first + lane;
        const bool inside = first + lane < ROWS && row < q_rows;
        float row_lse = -infinity(), row_delta = 0.f;
        ld_global_cg_f32(row_lse, LSE + row, inside);
        ld_global_cg_f32(row_delta, delta + row, inside);
        row_lse = lse_log2(row_lse);
#pragma unroll
        for (int i = first / LANES_Y; i < (first + WARP_SIZE) / LANES_Y && i < ROW_TILE; i++) {
            lse[i] = shfl_sync_idx(row_lse, i * LANES_Y - first + lane / LANES_X);
            minus_delta[i] = -shfl_sync_idx(row_delta, i * LANES_Y - first + lane / LANES_X);
        }
    }

    for (int block = 0; block < kv_blocks; block++) {
        const int n0 = block * BLOCK_N;
        const u32 k_tile = k_tiles + block % STAGES * KV_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * KV_BYTES;

        // K and V of this tile have arrived, and all warps are done with the tile before.
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load(block + 1);

#pragma unroll 1
        for (int strip = 0; strip < BLOCK_N; strip += STRIP) {
            // S = Q·Kᵀ and dP - delta = dO·Vᵀ - delta, four columns of head_dim at a time
            float s[ROW_TILE][N_TILE];
            float dp[ROW_TILE][N_TILE];
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    s[i][j] = 0.f;
                    dp[i][j] = minus_delta[i];
                }
#pragma unroll 1
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                float4 a[ROW_TILE];
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++)
                    a[i] = ld_shared_v4_f32(q_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    const float4 b = ld_shared_v4_f32(k_tile + chunk_offset<CHUNKS>(strip + j * LANES_X + x, chunk));
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) s[i][j] = dot(a[i], b, s[i][j]);
                }
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++)
                    a[i] = ld_shared_v4_f32(do_tile + chunk_offset<CHUNKS>(first_row + i * LANES_Y, chunk));
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    const float4 b = ld_shared_v4_f32(v_tile + chunk_offset<CHUNKS>(strip + j * LANES_X + x, chunk));
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) dp[i][j] = dot(a[i], b, dp[i][j]);
                }
            }

            // Mask, only where the strip crosses the end of K or the diagonal of this warp's first row.
            const int end = n0 + strip + STRIP;
            if (end > seq_kv || (CAUSAL && end > m0 + warp_row + diagonal + 1)) {
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++) {
                    const int row = m0 + first_row + i * LANES_Y;
                    const int hidden = CAUSAL ? min(seq_kv, row + diagonal + 1) : seq_kv;  // first key not visible
#pragma unroll
                    for (int j = 0; j < N_TILE; j++)
                        if (j * LANES_X >= hidden - n0 - strip - x) s[i][j] = -infinity();
                }
            }

            // P = exp(S - LSE), dS = P ∘ (dP - delta)
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
                for (int j = 0; j < N_TILE; j++) dp[i][j] *= exponential(s[i][j], scale_log2, lse[i]);

            // dQ += dS·K. Key 8j + source lies in lane `source` of the eight, in register j.
#pragma unroll 1
            for (int source = 0; source < LANES_X; source++) {
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    float ds[ROW_TILE];
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) ds[i] = shfl_sync_idx(dp[i][j], source, LANES_X);
#pragma unroll
                    for (int c = 0; c < CHUNK_TILE; c++) {
                        const u32 offset = chunk_offset<CHUNKS>(strip + j * LANES_X + source, c * LANES_X + x);
                        const float4 k = ld_shared_v4_f32(k_tile + offset);
#pragma unroll
                        for (int i = 0; i < ROW_TILE; i++) add_multiple(dq[i][c], ds[i], k);
                    }
                }
            }
        }

        if (STAGES == 1) {
            __syncthreads();  // all warps are done with K and V
            load(block + 1);
        }
    }

    // dQ = scale · dS·K. A lane's chunk is 16 bytes and eight lanes are neighbours: whole sectors without staging.
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = first_row + i * LANES_Y;
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) {
            const int column = (c * LANES_X + x) * CHUNK_ELEMENTS;
            const float4 q = dq[i][c];
            st_global_cg_v4_f32(dQ + row * dq_row_stride + column,
                                make_float4(q.x * scale, q.y * scale, q.z * scale, q.w * scale),
                                row < q_rows && column < head_dim);
        }
    }
}
