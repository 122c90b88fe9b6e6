// FlashAttention-2, forward, fp32 with plain FMA: the schedule of flash2_fwd.cu, the products as register micro-tiles.
//
//   shared memory   Q [BLOCK_M, DIM] | K [STAGES][BLOCK_N, DIM] | V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of Q
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp, columns 8j + x of S and the
//                   16-byte chunks 8c + x of O. Each 128-bit shared load is then, per phase of eight lanes, one row
//                   of Q (a broadcast), eight rows of K at one chunk, or eight neighbouring chunks of V.
//
// P never leaves registers: the eight lanes of a row hand it round with shuffles. Compile-time parameters as there.
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;      // rows of Q per warp
constexpr int ROW_TILE = ROWS / LANES_Y;       // micro-tile of a lane: rows,
constexpr int N_TILE = BLOCK_N / LANES_X;      // columns of S,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;   // chunks of O
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of Q");

// Strides are in elements; head_dim is contiguous.
extern "C" __global__ void __launch_bounds__(THREADS)
flash2_fwd(const element* __restrict__ Q,  // [batch, heads_q, seq_q, head_dim]
           const element* __restrict__ K,  // [batch, heads_kv, seq_kv, head_dim]
           const element* __restrict__ V,  // [batch, heads_kv, seq_kv, head_dim]
           element* __restrict__ O,        // [batch, heads_q, seq_q, head_dim]
           float* __restrict__ LSE,        // [batch, heads_q, seq_q], contiguous
           i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,  //
           i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,  //
           i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,  //
           i64 o_batch_stride, i64 o_head_stride, i64 o_row_stride,  //
           int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 q_tile = shared_address(shared);
    const u32 k_tiles = q_tile + Q_BYTES;
    const u32 v_tiles = k_tiles + STAGES * KV_BYTES;

    // One grid axis, slice by slice: batch · heads may exceed 65,535. Under a causal mask the last Q tile has most
    // to do, so it starts first.
    const int q_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const int slice = blockIdx.x / q_blocks;
    const int q_block = CAUSAL ? q_blocks - 1 - blockIdx.x % q_blocks : blockIdx.x % q_blocks;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);

    const int m0 = q_block * BLOCK_M;
    const int q_rows = min(BLOCK_M, seq_q - m0);
    const int diagonal = seq_kv - seq_q;  // query i sees keys j <= i + diagonal
    const int visible = CAUSAL ? max(0, min(seq_kv, m0 + q_rows + diagonal)) : seq_kv;
    const int kv_blocks = (visible + BLOCK_N - 1) / BLOCK_N;

    Q += batch * q_batch_stride + head * q_head_stride + m0 * q_row_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    O += batch * o_batch_stride + head * o_head_stride + m0 * o_row_stride;
    LSE += static_cast<i64>(slice) * seq_q + m0;

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the Q tile; the next is 4 further
    const float scale_log2 = scale * LOG2_E;

    float4 o[ROW_TILE][CHUNK_TILE];
    RowState rows[ROW_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        rows[i] = empty_row();
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) o[i][c] = make_float4(0.f, 0.f, 0.f, 0.f);
    }

    // Each load is a commit group of its own; see flash2_fwd.cu.
    const auto load_k = [&](int block) {
        if (block < kv_blocks) {
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tiles + block % STAGES * KV_BYTES,
                                                      K + static_cast<i64>(block) * BLOCK_N * k_row_stride,
                                                      k_row_stride, seq_kv - block * BLOCK_N, head_dim);
        }
        cp_async_commit_group();
    };
    const auto load_v = [&](int block) {
        if (block < kv_blocks) {
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tiles + block % STAGES * KV_BYTES,
                                                      V + static_cast<i64>(block) * BLOCK_N * v_row_stride,
                                                      v_row_stride, seq_kv - block * BLOCK_N, head_dim);
        }
        cp_async_commit_group();
    };

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, q_rows, head_dim);
    load_k(0);  // Q's copies join K's group
    if (STAGES == 2) load_v(0);

    for (int block = 0; block < kv_blocks; block++) {
        const int n0 = block * BLOCK_N;
        const u32 k_tile = k_tiles + block % STAGES * KV_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * KV_BYTES;

        // K of this tile has arrived, and all warps are done with the tile before.
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        if (STAGES == 1) load_v(block);
        if (STAGES == 2) load_k(block + 1);

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

        // V of this tile has arrived, and all warps are done with K.
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        if (STAGES == 1) load_k(block + 1);
        if (STAGES == 2) load_v(block + 1);

        // Mask, only where the tile crosses the end of K or the diagonal of this warp's first row.
        const int warp_row = first_row - lane / LANES_X;
        if (n0 + BLOCK_N > seq_kv || (CAUSAL && n0 + BLOCK_N > m0 + warp_row + diagonal + 1)) {
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++) {
                const int row = m0 + first_row + i * LANES_Y;
                const int end = CAUSAL ? min(seq_kv, row + diagonal + 1) : seq_kv;  // first key not visible
#pragma unroll
                for (int j = 0; j < N_TILE; j++)
                    if (j * LANES_X >= end - n0 - x) s[i][j] = -infinity();
            }
        }

        // Online softmax: raise the maxima, shrink O, S becomes P.
#pragma unroll
        for (int i = 0; i < ROW_TILE; i++) {
            float tile_max = s[i][0];
#pragma unroll
            for (int j = 1; j < N_TILE; j++) tile_max = fmaxf(tile_max, s[i][j]);
            const float factor = raise_max(rows[i], row_max<LANES_X>(tile_max), scale_log2);
            const float shifted = shift(rows[i].max, scale_log2);
#pragma unroll
            for (int c = 0; c < CHUNK_TILE; c++) {
                o[i][c].x *= factor;
                o[i][c].y *= factor;
                o[i][c].z *= factor;
                o[i][c].w *= factor;
            }
#pragma unroll
            for (int j = 0; j < N_TILE; j++) {
                s[i][j] = exponential(s[i][j], scale_log2, shifted);
                rows[i].sum += s[i][j];
            }
        }

        // O += P·V. Key 8j + source lies in lane `source` of the eight, in register j.
#pragma unroll 1
        for (int source = 0; source < LANES_X; source++) {
#pragma unroll
            for (int j = 0; j < N_TILE; j++) {
                float p[ROW_TILE];
#pragma unroll
                for (int i = 0; i < ROW_TILE; i++) p[i] = shfl_sync_idx(s[i][j], source, LANES_X);
#pragma unroll
                for (int c = 0; c < CHUNK_TILE; c++) {
                    const u32 offset = chunk_offset<CHUNKS>(j * LANES_X + source, c * LANES_X + x);
                    const float4 v = ld_shared_v4_f32(v_tile + offset);
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) {
                        o[i][c].x = fmaf(p[i], v.x, o[i][c].x);
                        o[i][c].y = fmaf(p[i], v.y, o[i][c].y);
                        o[i][c].z = fmaf(p[i], v.z, o[i][c].z);
                        o[i][c].w = fmaf(p[i], v.w, o[i][c].w);
                    }
                }
            }
        }
    }

    // O = O / sum. A lane's chunk is 16 bytes and eight lanes are neighbours: whole sectors without staging.
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        rows[i].sum = row_sum<LANES_X>(rows[i].sum);
        const float inverse = inverse_sum(rows[i].sum);
        const int row = first_row + i * LANES_Y;
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) {
            const int column = (c * LANES_X + x) * CHUNK_ELEMENTS;
            const uint4 value = {__float_as_uint(o[i][c].x * inverse), __float_as_uint(o[i][c].y * inverse),
                                 __float_as_uint(o[i][c].z * inverse), __float_as_uint(o[i][c].w * inverse)};
            st_global_v4_b32(O + row * o_row_stride + column, value, row < q_rows && column < head_dim);
        }
    }

    // LSE: all eight lanes of a row know it; lane x writes every eighth group of four rows, so that one instruction
    // covers up to 32 consecutive rows.
#pragma unroll
    for (int first = 0; first < ROW_TILE; first += LANES_X) {
        float lse = 0.f;
#pragma unroll
        for (int i = first; i < first + LANES_X && i < ROW_TILE; i++)
            lse = x == i - first ? log_sum_exp(rows[i].max, rows[i].sum, scale_log2) : lse;
        const int row = first_row + (first + x) * LANES_Y;
        if (first + x < ROW_TILE && row < q_rows) LSE[row] = lse;
    }
}
