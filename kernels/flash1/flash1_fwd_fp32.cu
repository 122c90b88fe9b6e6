// FlashAttention-1, forward, fp32 with plain FMA: the schedule of flash1_fwd.cu, products as register micro-tiles.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM] | V [BLOCK_N, DIM], swizzled (tile.cuh)
//   HBM             O_acc, l and m, as there
//   warps           split along the rows of Q
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp, columns 8j + x of S and the
//                   16-byte chunks 8c + x of O. A 128-bit shared load is, per phase of eight lanes, one row of Q (a
//                   broadcast), eight rows of K at one chunk, or eight neighbouring chunks of V
//
// P never leaves registers: the eight lanes of a row hand it round with shuffles. Compile-time parameters as there.
#include "../common/predicated.cuh"
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
constexpr int N_TILE = BLOCK_N / LANES_X;     // columns of S,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;  // chunks of O
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of Q");

// Eight lanes share a row; lane x of them owns l and m of rows 4(8i + x) + y in HBM, so that one instruction covers
// up to 32 consecutive rows.
constexpr int OWNED = (ROW_TILE + LANES_X - 1) / LANES_X;

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
flash1_fwd(const element* __restrict__ Q,  // [batch, heads_q, seq_q, head_dim]
           const element* __restrict__ K,  // [batch, heads_kv, seq_kv, head_dim]
           const element* __restrict__ V,  // [batch, heads_kv, seq_kv, head_dim]
           element* __restrict__ O,        // [batch, heads_q, seq_q, head_dim]
           float* __restrict__ LSE,        // [batch, heads_q, seq_q], contiguous, as O_acc, l and m
           float* __restrict__ O_acc,      // [batch, heads_q, seq_q, head_dim]
           float* __restrict__ l,          // [batch, heads_q, seq_q]
           float* __restrict__ m,          // [batch, heads_q, seq_q]
           i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,  //
           i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,  //
           i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,  //
           i64 o_batch_stride, i64 o_head_stride, i64 o_row_stride,  //
           int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 q_tile = shared_address(shared);
    const u32 k_tile = q_tile + Q_BYTES;
    const u32 v_tile = k_tile + KV_BYTES;

    const int slice = blockIdx.x;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);
    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the Q tile; the next is 4 further
    const int diagonal = seq_kv - seq_q;                                    // query i sees keys j <= i + diagonal

    Q += batch * q_batch_stride + head * q_head_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    O += batch * o_batch_stride + head * o_head_stride + x * CHUNK_ELEMENTS;
    const i64 state = static_cast<i64>(slice) * seq_q;
    O_acc += state * head_dim + x * CHUNK_ELEMENTS;
    LSE += state;
    l += state;
    m += state;

    for (int n0 = 0; n0 < seq_kv; n0 += BLOCK_N) {  // 5
        const bool last = n0 + BLOCK_N >= seq_kv;

        // 6: K and V from HBM; they arrive with the first tile of Q.
        copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tile, K + n0 * k_row_stride, k_row_stride, seq_kv - n0, head_dim);
        copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tile, V + n0 * v_row_stride, v_row_stride, seq_kv - n0, head_dim);

        for (int m0 = 0; m0 < seq_q; m0 += BLOCK_M) {  // 7
            // 8: Q, l and m from HBM.
            copy_tile_async<BLOCK_M, CHUNKS, THREADS>(q_tile, Q + m0 * q_row_stride, q_row_stride, seq_q - m0,
                                                      head_dim);
            cp_async_commit_group();
            const auto owned_row = [&](int i) { return m0 + first_row + (i * LANES_X + x) * LANES_Y; };
            const auto is_owned = [&](int i) { return i * LANES_X + x < ROW_TILE && owned_row(i) < seq_q; };
            RowState owned[OWNED];
#pragma unroll
            for (int i = 0; i < OWNED; i++) {
                owned[i] = empty_row();
                ld_global_cg_f32(owned[i].max, m + owned_row(i), is_owned(i));
                ld_global_cg_f32(owned[i].sum, l + owned_row(i), is_owned(i));
            }
            cp_async_wait_group<0>();
            __syncthreads();

            // 9: S = scale · Q·Kᵀ, four columns of head_dim at a time
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

            // 10, 11: mask; new m and l; S becomes P. `carried` is l · exp(m - m_new), the weight of the old O.
            RowState rows[ROW_TILE];
            float carried[ROW_TILE];
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++) {
                const int row = m0 + first_row + i * LANES_Y;
                const int end = CAUSAL ? min(seq_kv, row + diagonal + 1) : seq_kv;  // first key not visible
                float tile_max = -infinity();
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    s[i][j] = n0 + j * LANES_X + x < end ? s[i][j] * scale : -infinity();
                    tile_max = fmaxf(tile_max, s[i][j]);
                }
                rows[i].max = shfl_sync_idx(owned[i / LANES_X].max, i % LANES_X, LANES_X);
                rows[i].sum = shfl_sync_idx(owned[i / LANES_X].sum, i % LANES_X, LANES_X);
                raise_max(rows[i], row_max<LANES_X>(tile_max), LOG2_E);
                carried[i] = rows[i].sum;
                const float shifted = shift(rows[i].max, LOG2_E);
                float sum = 0.f;
#pragma unroll
                for (int j = 0; j < N_TILE; j++) {
                    s[i][j] = exponential(s[i][j], LOG2_E, shifted);
                    sum += s[i][j];
                }
                rows[i].sum += row_sum<LANES_X>(sum);
            }

            // 8, 12: O from HBM, scaled by its weight, plus P·V. Key 8j + source lies in lane `source` of the eight,
            // in register j.
            float4 o[ROW_TILE][CHUNK_TILE];
            const auto inside = [&](int i, int c) {
                return m0 + first_row + i * LANES_Y < seq_q && (c * LANES_X + x) * CHUNK_ELEMENTS < head_dim;
            };
            const auto o_acc = [&](int i, int c) {
                const i64 row = m0 + first_row + i * LANES_Y;
                return O_acc + row * head_dim + c * LANES_X * CHUNK_ELEMENTS;
            };
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
                for (int c = 0; c < CHUNK_TILE; c++) {
                    float4 old = make_float4(0.f, 0.f, 0.f, 0.f);
                    ld_global_cg_v4_f32(old, o_acc(i, c), inside(i, c));
                    o[i][c] = make_float4(old.x * carried[i], old.y * carried[i], old.z * carried[i],
                                          old.w * carried[i]);
                }
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

            // 12: divided by the new l. 12, 13, 16: O_acc, l and m to HBM; at the last tile O and LSE instead.
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++) {
                const float inverse = inverse_sum(rows[i].sum);
                element* o_row = O + (m0 + first_row + i * LANES_Y) * o_row_stride;
#pragma unroll
                for (int c = 0; c < CHUNK_TILE; c++) {
                    const float4 value = make_float4(o[i][c].x * inverse, o[i][c].y * inverse, o[i][c].z * inverse,
                                                     o[i][c].w * inverse);
                    float* target = last ? o_row + c * LANES_X * CHUNK_ELEMENTS : o_acc(i, c);
                    st_global_cg_v4_f32(target, value, inside(i, c));
                }
                if (x == i % LANES_X) owned[i / LANES_X] = rows[i];
            }
#pragma unroll
            for (int i = 0; i < OWNED; i++) {
                if (last) {
                    const float lse = log_sum_exp(owned[i].max, owned[i].sum, LOG2_E);
                    st_global_cg_f32(LSE + owned_row(i), lse, is_owned(i));
                } else {
                    st_global_cg_f32(m + owned_row(i), owned[i].max, is_owned(i));
                    st_global_cg_f32(l + owned_row(i), owned[i].sum, is_owned(i));
                }
            }
            __syncthreads();  // all warps are done with Q, after the last tile also with K and V
        }
    }
}
