// FlashAttention-2 with what models put between Q·Kᵀ and P·V, fused: softcap, bias, ALiBi, windows, sinks, dropout,
// and a head dimension of V of its own. None of it costs a pass over memory; only the bias is read, once.
//
// With VARLEN a batch's sequences differ in length and follow each other without padding: total_q rows of Q, O and LSE,
// total_kv of K and V, each sequence's first one in cu_seqlens. The grid is that of the longest; CTAs beyond the end of
// their own leave. All else counts from the sequence's first row: masks, bias, ALiBi and dropout.
//
// The order is scale, softcap, bias, ALiBi, mask, softmax (with the sink in its normaliser), dropout. Each is compiled
// in by its define. It is best read as a difference to flash2_fwd.cu, but for one thing which that does and this does
// not: leave O alone where a tile raises no maximum.
//
//   shared memory   Q [BLOCK_M, DIM] | K [STAGES][BLOCK_N, DIM] | V [STAGES][BLOCK_N, DIM_V] | bias [STAGES][BLOCK_M,
//                   BLOCK_N to the next 32], swizzled (tile.cuh); O is staged in the place of Q
//   warps           split along the rows of Q: softmax and O stay inside a warp, only K and V are shared
//   registers       S [ROWS, BLOCK_N] and O [ROWS, DIM_V] of a warp as mma accumulators; P replaces S in place
//
// Compile-time: BLOCK_M, BLOCK_N, DIM and DIM_V (rounded up to 32, 64, 96, 128, 192 or 256), STAGES, NUM_WARPS, CAUSAL,
// WINDOW_LEFT, WINDOW_RIGHT, SOFTCAP, BIAS, ALIBI, SINKS, DROPOUT, VARLEN.
#include "../common/philox.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int V_CHUNKS = DIM_V / CHUNK_ELEMENTS;
constexpr int BIAS_CHUNKS = (BLOCK_N + 31) / 32 * 4;  // a row is a multiple of 64 bytes
constexpr int Q_BYTES = BLOCK_M * (DIM > DIM_V ? DIM : DIM_V) * sizeof(element);
constexpr int K_BYTES = BLOCK_N * DIM * sizeof(element);
constexpr int V_BYTES = BLOCK_N * DIM_V * sizeof(element);
constexpr int BIAS_BYTES = BLOCK_M * BIAS_CHUNKS * CHUNK_BYTES;

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of Q per warp
constexpr int M_TILES = ROWS / 16;         // mma tiles of a warp: rows,
constexpr int N_TILES = BLOCK_N / 8;       // columns of S,
constexpr int D_TILES = DIM_V / 8;         // columns of O
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of Q");

// Q fragments stay in registers where they fit beside the accumulators; else each tile of K reads them again.
constexpr int ACCUMULATORS = M_TILES * (N_TILES + D_TILES) * 4;
constexpr bool Q_IN_REGISTERS = ACCUMULATORS + M_TILES * D_TILES * 2 <= 144;
constexpr int K_STEPS = DIM / 16;

constexpr bool RIGHT = CAUSAL || WINDOW_RIGHT;
// Scores that are more than scaled are kept in units of log2, so that nothing is left to scale in the exponent.
constexpr bool TRANSFORMED = SOFTCAP || BIAS || ALIBI;

// softcap · tanh(x / softcap) times log2(e), from a raw score: tanh(y) = 1 - 2 / (e^2y + 1) needs no case at the ends.
__device__ __forceinline__ float softcapped(float score, float scale, float softcap) {
    const float twice = score * (scale / softcap * 2.f * LOG2_E);
    return fmaf(-2.f, rcp_approx(ex2_approx(twice) + 1.f), 1.f) * (softcap * LOG2_E);
}

// Strides are in elements; head_dim is contiguous. With VARLEN the tensors' batch is 1 and their seq the total.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
flash2_fused(const element* __restrict__ Q,          // [batch, heads_q, seq_q, head_dim]
             const element* __restrict__ K,          // [batch, heads_kv, seq_kv, head_dim]
             const element* __restrict__ V,          // [batch, heads_kv, seq_kv, head_dim_v]
             element* __restrict__ O,                // [batch, heads_q, seq_q, head_dim_v]
             float* __restrict__ LSE,                // [batch, heads_q, seq_q], contiguous
             const element* __restrict__ bias,       // [heads_q, max_seq_q, max_seq_kv to the next 8], with BIAS
             const float* __restrict__ slopes,       // [heads_q], with ALIBI
             const float* __restrict__ sinks,        // [heads_q], with SINKS
             const int* __restrict__ cu_seqlens_q,   // [batch + 1], with VARLEN; the last is total_q
             const int* __restrict__ cu_seqlens_kv,  // [batch + 1], with VARLEN; the last is total_kv
             i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,  //
             i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,  //
             i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,  //
             i64 o_batch_stride, i64 o_head_stride, i64 o_row_stride,  //
             i64 lse_head_stride, i64 bias_head_stride, i64 bias_row_stride,
             int heads_q, int heads_kv, int max_seq_q, int max_seq_kv, int head_dim, int head_dim_v, float scale,
             int window_left, int window_right, float softcap, u64 seed, u32 drop_threshold, float keep_scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 q_tile = shared_address(shared);
    const u32 k_tiles = q_tile + Q_BYTES;
    const u32 v_tiles = k_tiles + STAGES * K_BYTES;
    const u32 bias_tiles = v_tiles + STAGES * V_BYTES;

    // One grid axis, slice by slice: batch · heads may exceed 65,535. Under a causal mask the last Q tile has most
    // to do, so it starts first.
    const int q_blocks = (max_seq_q + BLOCK_M - 1) / BLOCK_M;
    const int slice = blockIdx.x / q_blocks;
    const int q_block = CAUSAL ? q_blocks - 1 - blockIdx.x % q_blocks : blockIdx.x % q_blocks;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);

    // This sequence: where it begins in the tensors, and its lengths; without keys its rows see nothing.
    const int m0 = q_block * BLOCK_M;
    const int q_start = VARLEN ? cu_seqlens_q[batch] : 0;
    const int seq_q = VARLEN ? cu_seqlens_q[batch + 1] - q_start : max_seq_q;
    if (VARLEN && m0 >= seq_q) return;
    const int kv_start = VARLEN ? cu_seqlens_kv[batch] : 0;
    const int seq_kv = VARLEN ? cu_seqlens_kv[batch + 1] - kv_start : max_seq_kv;
    const int tensor = VARLEN ? 0 : batch;  // of one batch, if they are packed

    const int q_rows = min(BLOCK_M, seq_q - m0);
    const int diagonal = seq_kv - seq_q;  // query i sees keys i + diagonal - left <= j <= i + diagonal + right
    const int right = CAUSAL ? 0 : window_right;
    const int visible = RIGHT ? min(seq_kv, max(0, m0 + q_rows + diagonal + right)) : seq_kv;  // keys, to the last row
    const int kv_blocks = (visible + BLOCK_N - 1) / BLOCK_N;
    const int first_block = WINDOW_LEFT ? max(0, m0 + diagonal - window_left) / BLOCK_N : 0;  // for the first row

    Q += tensor * q_batch_stride + head * q_head_stride + (q_start + m0) * q_row_stride;
    K += tensor * k_batch_stride + head_kv * k_head_stride + kv_start * k_row_stride;
    V += tensor * v_batch_stride + head_kv * v_head_stride + kv_start * v_row_stride;
    O += tensor * o_batch_stride + head * o_head_stride + (q_start + m0) * o_row_stride;
    LSE += (VARLEN ? head : slice) * lse_head_stride + q_start + m0;
    if (BIAS) bias += head * bias_head_stride + m0 * bias_row_stride;

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp in the Q tile
    const int lane = threadIdx.x % WARP_SIZE;
    const float scale_log2 = TRANSFORMED ? 1.f : scale * LOG2_E;
    const float slope = ALIBI ? slopes[head] * LOG2_E : 0.f;

    // A sink is a key without a value, seen first: each row begins with its logit, in one lane of the four.
    const RowState start = SINKS ? RowState{sinks[head] * LOG2_E / scale_log2, lane % 4 == 0 ? 1.f : 0.f} : empty_row();
    float o[M_TILES][D_TILES][4];
    RowState rows[M_TILES][2];  // a lane's accumulators belong to rows lane / 4 and lane / 4 + 8 of each mma tile
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
        rows[m][0] = rows[m][1] = start;
#pragma unroll
        for (int d = 0; d < D_TILES; d++) o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0.f;
    }

    // Each load is a commit group of its own. Groups complete in order, so that waiting for all but the newest
    // STAGES - 1 is enough in both schedules (empty groups keep the count where nothing is left to load):
    //   STAGES = 1: V of a tile is in flight during Q·Kᵀ, K of the next during softmax and P·V
    //   STAGES = 2: each load is issued half a tile earlier, into the buffer that the tile before has left
    const auto load_k = [&](int block) {
        if (block < kv_blocks) {
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tiles + block % STAGES * K_BYTES,
                                                      K + static_cast<i64>(block) * BLOCK_N * k_row_stride,
                                                      k_row_stride, seq_kv - block * BLOCK_N, head_dim);
        }
        cp_async_commit_group();
    };
    // The bias of a tile is wanted when S is done, as V is: it joins V's group.
    const auto load_v = [&](int block) {
        if (block < kv_blocks) {
            const int keys = seq_kv - block * BLOCK_N;
            copy_tile_async<BLOCK_N, V_CHUNKS, THREADS>(v_tiles + block % STAGES * V_BYTES,
                                                        V + static_cast<i64>(block) * BLOCK_N * v_row_stride,
                                                        v_row_stride, keys, head_dim_v);
            if (BIAS)
                copy_tile_async<BLOCK_M, BIAS_CHUNKS, THREADS>(bias_tiles + block % STAGES * BIAS_BYTES,
                                                               bias + block * BLOCK_N, bias_row_stride, q_rows,
                                                               min(BLOCK_N, keys));
        }
        cp_async_commit_group();
    };

    copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q, q_row_stride, q_rows, head_dim);
    load_k(first_block);  // Q's copies join K's group
    if (STAGES == 2) load_v(first_block);

    u32 q[M_TILES][Q_IN_REGISTERS ? K_STEPS : 1][4];

    for (int block = first_block; block < kv_blocks; block++) {
        const int n0 = block * BLOCK_N;
        const u32 k_tile = k_tiles + block % STAGES * K_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * V_BYTES;

        // K of this tile has arrived, and all warps are done with the tile before.
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        if (STAGES == 1) load_v(block);
        if (STAGES == 2) load_k(block + 1);

        // S = Q·Kᵀ
        if (Q_IN_REGISTERS && block == first_block) {
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

        // Softcap, bias and ALiBi: S in units of log2.
        if (TRANSFORMED) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = warp_row + m * 16 + half * 8;
                    const int apart = m0 + row + lane / 4 + diagonal - n0 - lane % 4 * 2;  // from this lane's first key
#pragma unroll
                    for (int n = 0; n < N_TILES; n++) {
                        float2 added = {0.f, 0.f};
                        if (BIAS) added = load_pair<BIAS_CHUNKS>(bias_tiles + block % STAGES * BIAS_BYTES, row, n);
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            float& score = s[m][n][2 * half + i];
                            score = SOFTCAP ? softcapped(score, scale, softcap) : score * (scale * LOG2_E);
                            if (BIAS) score = fmaf(i == 0 ? added.x : added.y, LOG2_E, score);
                            if (ALIBI) score = fmaf(-slope, static_cast<float>(abs(apart - n * 8 - i)), score);
                        }
                    }
                }
        }

        // Mask, only where the tile crosses the end of K or an edge of this warp's window.
        if (n0 + BLOCK_N > seq_kv || (RIGHT && n0 + BLOCK_N > m0 + warp_row + diagonal + right + 1) ||
            (WINDOW_LEFT && n0 < m0 + warp_row + ROWS - 1 + diagonal - window_left)) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = m0 + warp_row + m * 16 + half * 8 + lane / 4;
                    const int first = n0 + lane % 4 * 2;  // this lane's first column
                    const int end = RIGHT ? min(seq_kv, row + diagonal + right + 1) : seq_kv;  // first key not visible
                    const int begin = WINDOW_LEFT ? row + diagonal - window_left : 0;          // first key visible
#pragma unroll
                    for (int n = 0; n < N_TILES; n++)
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (n * 8 + i >= end - first || (WINDOW_LEFT && n * 8 + i < begin - first))
                                s[m][n][2 * half + i] = -infinity();
                }
        }

        // Online softmax: raise the maxima, shrink O, S becomes P.
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                RowState& row = rows[m][half];
                float tile_max = s[m][0][2 * half];
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
                    tile_max = fmaxf(tile_max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
                const float factor = raise_max(row, row_max(tile_max), scale_log2);
                const float shifted = shift(row.max, scale_log2);
#pragma unroll
                for (int d = 0; d < D_TILES; d++) {
                    o[m][d][2 * half] *= factor;
                    o[m][d][2 * half + 1] *= factor;
                }
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; i++)
                        s[m][n][i] = exponential(s[m][n][i], scale_log2, shifted);
#pragma unroll
                for (int n = 0; n < N_TILES; n++) row.sum += s[m][n][2 * half] + s[m][n][2 * half + 1];
                // The normaliser is that of all probabilities; what is dropped is missing in P·V alone.
                if (DROPOUT) {
#pragma unroll
                    for (int n = 0; n < N_TILES; n += 2)
                        drop(s[m][n][2 * half], s[m][n][2 * half + 1], s[m][n + 1][2 * half], s[m][n + 1][2 * half + 1],
                             n0 + n * 8, m0 + warp_row + m * 16 + half * 8 + lane / 4, head, batch, seed,
                             drop_threshold);
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
                load_b_trans<V_CHUNKS>(b, v_tile, n * 8, d);
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
            const float inverse = inverse_sum(row.sum) * (DROPOUT ? keep_scale : 1.f);
#pragma unroll
            for (int d = 0; d < D_TILES; d++) {
                o[m][d][2 * half] *= inverse;
                o[m][d][2 * half + 1] *= inverse;
            }
        }
#pragma unroll
        for (int d = 0; d < D_TILES; d++) store_accumulator<V_CHUNKS>(q_tile, warp_row + m * 16, d, o[m][d]);
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
    store_rows<ROWS, V_CHUNKS>(O + warp_row * o_row_stride, o_row_stride, q_tile, warp_row, q_rows - warp_row,
                               head_dim_v);
}
