// FlashAttention-2, forward, fp16 and bf16 on tensor cores: one CTA keeps a tile of Q and streams K and V past it.
//
//   shared memory   Q [BLOCK_M, DIM] | K [STAGES][BLOCK_N, DIM] | V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of Q: softmax and O stay inside a warp, only K and V are shared
//   registers       S [ROWS, BLOCK_N] and O [ROWS, DIM] of a warp as mma accumulators; P replaces S in place
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), STAGES, NUM_WARPS, CAUSAL.
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int Q_BYTES = BLOCK_M * DIM * sizeof(element);
constexpr int KV_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of Q per warp
constexpr int M_TILES = ROWS / 16;         // mma tiles of a warp: rows,
constexpr int N_TILES = BLOCK_N / 8;       // columns of S,
constexpr int D_TILES = DIM / 8;           // columns of O
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of Q");

// Q fragments stay in registers where they fit beside the accumulators; else each tile of K reads them again.
constexpr int ACCUMULATORS = M_TILES * (N_TILES + D_TILES) * 4;
constexpr bool Q_IN_REGISTERS = ACCUMULATORS + M_TILES * D_TILES * 2 <= 160;
constexpr int K_STEPS = DIM / 16;

// Strides are in elements; head_dim is contiguous.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
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
    const int visible = CAUSAL ? max(0, m0 + q_rows + diagonal) : seq_kv;  // keys, to the last row
    const int kv_blocks = (visible + BLOCK_N - 1) / BLOCK_N;

    Q += batch * q_batch_stride + head * q_head_stride + m0 * q_row_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    O += batch * o_batch_stride + head * o_head_stride + m0 * o_row_stride;
    LSE += static_cast<i64>(slice) * seq_q + m0;

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp in the Q tile
    const int lane = threadIdx.x % WARP_SIZE;
    const float scale_log2 = scale * LOG2_E;

    float o[M_TILES][D_TILES][4];
    RowState rows[M_TILES][2];  // a lane's accumulators belong to rows lane / 4 and lane / 4 + 8 of each mma tile
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
        rows[m][0] = rows[m][1] = empty_row();
#pragma unroll
        for (int d = 0; d < D_TILES; d++) o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0.f;
    }

    // Each load is a commit group of its own. Groups complete in order, so that waiting for all but the newest
    // STAGES - 1 is enough in both schedules (empty groups keep the count where nothing is left to load):
    //   STAGES = 1: V of a tile is in flight during Q·Kᵀ, K of the next during softmax and P·V
    //   STAGES = 2: each load is issued half a tile earlier, into the buffer that the tile before has left
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

    u32 q[M_TILES][Q_IN_REGISTERS ? K_STEPS : 1][4];

    for (int block = 0; block < kv_blocks; block++) {
        const int n0 = block * BLOCK_N;
        const u32 k_tile = k_tiles + block % STAGES * KV_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * KV_BYTES;

        // K of this tile has arrived, and all warps are done with the tile before.
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        if (STAGES == 1) load_v(block);
        if (STAGES == 2) load_k(block + 1);

        // S = Q·Kᵀ
        if (Q_IN_REGISTERS && block == 0) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int k = 0; k < K_STEPS; k++) load_a<CHUNKS>(q[m][k], q_tile, warp_row + m * 16, k * 2);
        }
        float s[M_TILES][N_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int n = 0; n < N_TILES; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.f;
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
            if (!Q_IN_REGISTERS) {
#pragma unroll
                for (int m = 0; m < M_TILES; m++) load_a<CHUNKS>(q[m][0], q_tile, warp_row + m * 16, k * 2);
            }
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                u32 b[4];
                load_b<CHUNKS>(b, k_tile, n * 8, k * 2);
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    mma(s[m][n], q[m][Q_IN_REGISTERS ? k : 0], b[0], b[1]);
                    mma(s[m][n + 1], q[m][Q_IN_REGISTERS ? k : 0], b[2], b[3]);
                }
            }
        }

        // V of this tile has arrived, and all warps are done with K.
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        if (STAGES == 1) load_k(block + 1);
        if (STAGES == 2) load_v(block + 1);

        // Mask, only where the tile crosses the end of K or the diagonal of this warp's first row.
        if (n0 + BLOCK_N > seq_kv || (CAUSAL && n0 + BLOCK_N > m0 + warp_row + diagonal + 1)) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = m0 + warp_row + m * 16 + half * 8 + lane / 4;
                    const int end = CAUSAL ? min(seq_kv, row + diagonal + 1) : seq_kv;  // first key not visible
                    const int first = n0 + lane % 4 * 2;                                // this lane's first column
#pragma unroll
                    for (int n = 0; n < N_TILES; n++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (n * 8 + i >= end - first) s[m][n][2 * half + i] = -infinity();
                }
        }

        // Online softmax: raise the maxima, shrink O, S becomes P. The further on, the rarer a tile raises a maximum of
        // these 16 rows: where none rises, nothing shrinks.
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
            float old_max[2];
            bool rises = false;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float tile_max = s[m][0][2 * half];
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
                    tile_max = fmaxf(tile_max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
                old_max[half] = rows[m][half].max;
                rows[m][half].max = fmaxf(old_max[half], row_max(tile_max));
                rises |= rows[m][half].max > old_max[half];
            }
            if (vote_sync_any(rises)) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    RowState& row = rows[m][half];
                    // Exactly 1 for a row whose own maximum stays.
                    const float new_max = row.max == -infinity() ? 0.f : row.max;
                    const float factor = ex2_approx((old_max[half] - new_max) * scale_log2);
                    row.sum *= factor;
#pragma unroll
                    for (int d = 0; d < D_TILES; d++) {
                        o[m][d][2 * half] *= factor;
                        o[m][d][2 * half + 1] *= factor;
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                RowState& row = rows[m][half];
                const float shifted = shift(row.max, scale_log2);
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++)
                        s[m][n][i] = exponential(s[m][n][i], scale_log2, shifted);
#pragma unroll
                for (int n = 0; n < N_TILES; n++) row.sum += s[m][n][2 * half] + s[m][n][2 * half + 1];
            }
        }

        // O += P·V: two neighbouring accumulators of S are, packed, the A fragment of 16 columns of P.
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            u32 p[M_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++) {
                p[m][0] = pack(s[m][n][0], s[m][n][1]);
                p[m][1] = pack(s[m][n][2], s[m][n][3]);
                p[m][2] = pack(s[m][n + 1][0], s[m][n + 1][1]);
                p[m][3] = pack(s[m][n + 1][2], s[m][n + 1][3]);
            }
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                u32 b[4];
                load_b_trans<CHUNKS>(b, v_tile, n * 8, d);
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    mma(o[m][d], p[m], b[0], b[1]);
                    mma(o[m][d + 1], p[m], b[2], b[3]);
                }
            }
        }
    }

    // Without this, a CTA that saw no tile would still have Q in flight.
    cp_async_wait_group<0>();
    __syncthreads();

    // O = O / sum, staged in this warp's own rows of the Q tile, which no other warp reads.
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            RowState& row = rows[m][half];
            row.sum = row_sum(row.sum);
            const float inverse = inverse_sum(row.sum);
#pragma unroll
            for (int d = 0; d < D_TILES; d++) {
                o[m][d][2 * half] *= inverse;
                o[m][d][2 * half + 1] *= inverse;
            }
        }
#pragma unroll
        for (int d = 0; d < D_TILES; d++) store_accumulator<CHUNKS>(q_tile, warp_row + m * 16, d, o[m][d]);
    }

    // LSE: all four lanes of a quad know it; lane i % 4 writes every fourth group of eight rows, so that one
    // instruction covers up to 32 consecutive rows.
#pragma unroll
    for (int first = 0; first < 2 * M_TILES; first += 4) {
        float lse = 0.f;
#pragma unroll
        for (int half = first; half < first + 4 && half < 2 * M_TILES; half++) {
            const RowState row = rows[half / 2][half % 2];
            lse = lane % 4 == half - first ? log_sum_exp(row.max, row.sum, scale_log2) : lse;
        }
        const int row = warp_row + (first + lane % 4) * 8 + lane / 4;
        if (first + lane % 4 < 2 * M_TILES && row < q_rows) LSE[row] = lse;
    }

    __syncwarp();
    store_rows<ROWS, CHUNKS>(O + warp_row * o_row_stride, o_row_stride, q_tile, warp_row, q_rows - warp_row, head_dim);
}
