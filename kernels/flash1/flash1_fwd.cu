// FlashAttention-1, forward, fp16 and bf16 on tensor cores: Algorithm 1 of the paper as it stands. One CTA per slice
// keeps a tile of K and V and streams Q past it, so that the unfinished rows of O travel to HBM and back each time.
//
//   shared memory   Q [BLOCK_M, DIM] | K [BLOCK_N, DIM] | V [BLOCK_N, DIM], swizzled (tile.cuh)
//   HBM             O_acc (fp32, normalised so far), l and m, initialised by flash1_init, read and written per visit
//   warps           split along the rows of Q. A thread meets the same elements of O_acc, l and m at every visit, so
//                   that program order alone makes its earlier stores visible to its loads
//   last K/V tile   O and LSE are written instead of O_acc, l and m, which nobody reads again
//
// P is computed relative to the new maximum at once: exp(S - m_new) is the paper's exp(m~ - m_new) · P~. Nothing is
// skipped under a causal mask. Numbers in comments are lines of Algorithm 1.
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), NUM_WARPS, CAUSAL.
#include "../common/predicated.cuh"
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
constexpr int K_STEPS = DIM / 16;
// ptxas for sm_100 runs out of registers where it sees all steps at once (NVRTC 13.5); a loop costs integer instructions.
constexpr int K_UNROLL = __CUDA_ARCH__ == 1000 ? 2 : K_STEPS;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of Q");

// A lane's accumulators belong to row lane / 4 of each group of eight rows. The quad shares the row; its lane g % 4
// owns l and m of group g in HBM, so that one instruction covers up to 32 consecutive rows.
constexpr int GROUPS = 2 * M_TILES;
constexpr int OWNED = (GROUPS + 3) / 4;

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
    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp in the Q tile
    const int first_row = warp_row + lane / 4;            // this lane's row in group 0
    const int diagonal = seq_kv - seq_q;                  // query i sees keys j <= i + diagonal

    Q += batch * q_batch_stride + head * q_head_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    O += batch * o_batch_stride + head * o_head_stride;
    const i64 state = static_cast<i64>(slice) * seq_q;
    O_acc += (state + first_row) * head_dim + lane % 4 * 2;
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
            const auto owned_row = [&](int i) { return m0 + first_row + (4 * i + lane % 4) * 8; };
            const auto is_owned = [&](int i) { return 4 * i + lane % 4 < GROUPS && owned_row(i) < seq_q; };
            RowState owned[OWNED];
#pragma unroll
            for (int i = 0; i < OWNED; i++) {
                owned[i] = empty_row();
                ld_global_cg_f32(owned[i].max, m + owned_row(i), is_owned(i));
                ld_global_cg_f32(owned[i].sum, l + owned_row(i), is_owned(i));
            }
            cp_async_wait_group<0>();
            __syncthreads();

            // 9: S = scale · Q·Kᵀ
            float s[M_TILES][N_TILES][4];
#pragma unroll
            for (int t = 0; t < M_TILES; t++)
#pragma unroll
                for (int n = 0; n < N_TILES; n++) s[t][n][0] = s[t][n][1] = s[t][n][2] = s[t][n][3] = 0.f;
#pragma unroll K_UNROLL
            for (int k = 0; k < K_STEPS; k++) {
                u32 q[M_TILES][4];
#pragma unroll
                for (int t = 0; t < M_TILES; t++) load_a<CHUNKS>(q[t], q_tile, warp_row + t * 16, k * 2);
#pragma unroll
                for (int n = 0; n < N_TILES; n += 2) {
                    u32 b[4];
                    load_b<CHUNKS>(b, k_tile, n * 8, k * 2);
#pragma unroll
                    for (int t = 0; t < M_TILES; t++) {
                        mma(s[t][n], q[t], b[0], b[1]);
                        mma(s[t][n + 1], q[t], b[2], b[3]);
                    }
                }
            }
#pragma unroll
            for (int t = 0; t < M_TILES; t++)
#pragma unroll
                for (int n = 0; n < N_TILES; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) s[t][n][i] *= scale;

            // Mask, only where the tile crosses the end of K or the diagonal of this warp's first row.
            if (n0 + BLOCK_N > seq_kv || (CAUSAL && n0 + BLOCK_N > m0 + warp_row + diagonal + 1)) {
#pragma unroll
                for (int t = 0; t < M_TILES; t++)
#pragma unroll
                    for (int n = 0; n < N_TILES; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const int row = m0 + first_row + (2 * t + i / 2) * 8;
                            const int key = n0 + n * 8 + lane % 4 * 2 + i % 2;
                            if (key >= seq_kv || (CAUSAL && key > row + diagonal)) s[t][n][i] = -infinity();
                        }
            }

            // 10, 11: new m and l; S becomes P. `carried` is l · exp(m - m_new), the weight of the old O.
            RowState rows[GROUPS];
            float carried[GROUPS];
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                rows[g].max = shfl_sync_idx(owned[g / 4].max, g % 4, 4);
                rows[g].sum = shfl_sync_idx(owned[g / 4].sum, g % 4, 4);
                const auto score = [&](int column) -> float& { return s[g / 2][column / 2][g % 2 * 2 + column % 2]; };
                float tile_max = score(0);
#pragma unroll
                for (int c = 1; c < 2 * N_TILES; c++) tile_max = fmaxf(tile_max, score(c));
                raise_max(rows[g], row_max(tile_max), LOG2_E);
                carried[g] = rows[g].sum;
                const float shifted = shift(rows[g].max, LOG2_E);
                float sum = 0.f;
#pragma unroll
                for (int c = 0; c < 2 * N_TILES; c++) {
                    score(c) = exponential(score(c), LOG2_E, shifted);
                    sum += score(c);
                }
                rows[g].sum += row_sum(sum);
            }

            // 8, 12: O from HBM, scaled by its weight, plus P·V. Two neighbouring accumulators of S are, packed, the
            // A fragment of 16 columns of P.
            float o[M_TILES][D_TILES][4];
            const auto o_acc = [&](int g, int d) { return O_acc + static_cast<i64>(m0 + g * 8) * head_dim + d * 8; };
            const auto inside = [&](int g, int d) { return m0 + first_row + g * 8 < seq_q && d * 8 < head_dim; };
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
#pragma unroll
                for (int d = 0; d < D_TILES; d++) {
                    float2 pair = make_float2(0.f, 0.f);
                    ld_global_cg_v2_f32(pair, o_acc(g, d), inside(g, d));
                    o[g / 2][d][g % 2 * 2] = pair.x * carried[g];
                    o[g / 2][d][g % 2 * 2 + 1] = pair.y * carried[g];
                }
#pragma unroll
            for (int n = 0; n < N_TILES; n += 2) {
                u32 p[M_TILES][4];
#pragma unroll
                for (int t = 0; t < M_TILES; t++) {
                    p[t][0] = pack(s[t][n][0], s[t][n][1]);
                    p[t][1] = pack(s[t][n][2], s[t][n][3]);
                    p[t][2] = pack(s[t][n + 1][0], s[t][n + 1][1]);
                    p[t][3] = pack(s[t][n + 1][2], s[t][n + 1][3]);
                }
#pragma unroll
                for (int d = 0; d < D_TILES; d += 2) {
                    u32 b[4];
                    load_b_trans<CHUNKS>(b, v_tile, n * 8, d);
#pragma unroll
                    for (int t = 0; t < M_TILES; t++) {
                        mma(o[t][d], p[t], b[0], b[1]);
                        mma(o[t][d + 1], p[t], b[2], b[3]);
                    }
                }
            }

            // 12: divided by the new l.
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                const float inverse = inverse_sum(rows[g].sum);
#pragma unroll
                for (int d = 0; d < D_TILES; d++) {
                    o[g / 2][d][g % 2 * 2] *= inverse;
                    o[g / 2][d][g % 2 * 2 + 1] *= inverse;
                }
                // Read before the selection: else the compiler may index `rows` by lane, in local memory.
                const RowState row = rows[g];
#pragma unroll
                for (int i = 0; i < OWNED; i++) {
                    owned[i].max = 4 * i + lane % 4 == g ? row.max : owned[i].max;
                    owned[i].sum = 4 * i + lane % 4 == g ? row.sum : owned[i].sum;
                }
            }

            if (!last) {  // 12, 13: O, l and m to HBM
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
#pragma unroll
                    for (int d = 0; d < D_TILES; d++)
                        st_global_cg_v2_f32(o_acc(g, d),
                                            make_float2(o[g / 2][d][g % 2 * 2], o[g / 2][d][g % 2 * 2 + 1]),
                                            inside(g, d));
#pragma unroll
                for (int i = 0; i < OWNED; i++) {
                    st_global_cg_f32(m + owned_row(i), owned[i].max, is_owned(i));
                    st_global_cg_f32(l + owned_row(i), owned[i].sum, is_owned(i));
                }
            } else {  // 16: O, staged in this warp's own rows of Q, which no other warp reads, and LSE
#pragma unroll
                for (int t = 0; t < M_TILES; t++)
#pragma unroll
                    for (int d = 0; d < D_TILES; d++)
                        store_accumulator<CHUNKS>(q_tile, warp_row + t * 16, d, o[t][d]);
                __syncwarp();
                store_rows<ROWS, CHUNKS>(O + (m0 + warp_row) * o_row_stride, o_row_stride, q_tile, warp_row,
                                         seq_q - m0 - warp_row, head_dim);
#pragma unroll
                for (int i = 0; i < OWNED; i++) {
                    const float lse = log_sum_exp(owned[i].max, owned[i].sum, LOG2_E);
                    st_global_cg_f32(LSE + owned_row(i), lse, is_owned(i));
                }
            }
            __syncthreads();  // all warps are done with Q, after the last tile also with K and V
        }
    }
}
