// FlashAttention-2, backward, first: delta = row sums of O ∘ dO, all that the backward pass needs of O. For any element
// type.
//
//   warps   32 rows each; lanes take 16-byte chunks as in a copy of a tile (CopyMap): COLUMNS lanes share a row, and
//           one instruction covers 32 / COLUMNS rows
//
// Σ_j P_ij dP_ij = Σ_j P_ij (dO_i · V_j) = dO_i · O_i: with delta, a tile of dS = P ∘ (dP - delta) needs no other tile
// of its row.
//
// Compile-time: NUM_WARPS, DIM (head_dim rounded up), ATOMIC (also dQ_acc = 0, for what will be added to it).
#include "../common/chunk.cuh"
#include "../common/softmax.cuh"
#include "../common/tile.cuh"

constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int COLUMNS = CopyMap<CHUNKS>::COLUMNS;
constexpr int ROWS_PER_PASS = WARP_SIZE / COLUMNS;
constexpr int ROWS = WARP_SIZE;  // of a warp: each lane ends up with one

extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE)
flash2_bwd_preprocess(const element* __restrict__ O,   // [batch, heads_q, seq_q, head_dim]
                      const element* __restrict__ dO,  // [batch, heads_q, seq_q, head_dim]
                      float* __restrict__ delta,       // [batch, heads_q, seq_q], contiguous
#if ATOMIC
                      float* __restrict__ dQ_acc,  // [batch, heads_q, seq_q, head_dim], contiguous
#endif
                      i64 o_batch_stride, i64 o_head_stride, i64 o_row_stride,     //
                      i64 do_batch_stride, i64 do_head_stride, i64 do_row_stride,  //
                      int heads_q, int seq_q, int head_dim) {
    const int blocks = (seq_q + NUM_WARPS * ROWS - 1) / (NUM_WARPS * ROWS);
    const int slice = blockIdx.x / blocks;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int lane = threadIdx.x % WARP_SIZE;
    const int m0 = blockIdx.x % blocks * NUM_WARPS * ROWS + threadIdx.x / WARP_SIZE * ROWS;  // first row of this warp
    const int rows = seq_q - m0;                                                            // may be none
    const i64 row0 = static_cast<i64>(slice) * seq_q + m0;

    const i64 chunk0 = lane % COLUMNS * CHUNK_ELEMENTS;
    O += batch * o_batch_stride + head * o_head_stride + (m0 + lane / COLUMNS) * o_row_stride + chunk0;
    dO += batch * do_batch_stride + head * do_head_stride + (m0 + lane / COLUMNS) * do_row_stride + chunk0;

    float dot = 0.f;  // of row `lane`
#pragma unroll 4
    for (int pass = 0; pass < COLUMNS; pass++) {
        const bool inside = pass * ROWS_PER_PASS + lane / COLUMNS < rows;
        float sum = 0.f;
#pragma unroll
        for (int group = 0; group < CHUNKS; group += COLUMNS) {
            const bool visible = inside && (group + lane % COLUMNS) * CHUNK_ELEMENTS < head_dim;
            uint4 o_chunk = {0, 0, 0, 0}, do_chunk = {0, 0, 0, 0};
            ld_global_cg_v4_b32(o_chunk, O + group * CHUNK_ELEMENTS, visible);
            ld_global_cg_v4_b32(do_chunk, dO + group * CHUNK_ELEMENTS, visible);
            float a[CHUNK_ELEMENTS], b[CHUNK_ELEMENTS];
            unpack_chunk(a, o_chunk);
            unpack_chunk(b, do_chunk);
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) sum = fmaf(a[i], b[i], sum);
        }
        // All lanes of a row get its sum; row `lane` is one of this pass in ROWS_PER_PASS lanes.
        sum = shfl_sync_idx(row_sum<COLUMNS>(sum), lane % ROWS_PER_PASS * COLUMNS);
        dot = lane / ROWS_PER_PASS == pass ? sum : dot;
        O += ROWS_PER_PASS * o_row_stride;
        dO += ROWS_PER_PASS * do_row_stride;
    }
    if (lane < rows) st_global_cg_f32(delta + row0 + lane, dot);

#if ATOMIC
    const int chunks = min(rows, ROWS) * head_dim / 4;
    for (int i = lane; i < chunks; i += WARP_SIZE)
        st_global_cg_v4_f32(dQ_acc + row0 * head_dim + i * 4, make_float4(0.f, 0.f, 0.f, 0.f));
#endif
}
