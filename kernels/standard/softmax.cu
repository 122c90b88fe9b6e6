// Standard attention, 2 of 3: P = softmax(S), row by row, for any element type.
//
//   lanes       a row belongs to WARPS_PER_ROW warps; 16-byte chunks of it go round these lanes, CHUNKS to each
//   registers   SEGMENT = 32 · WARPS_PER_ROW · CHUNKS chunks of the row, as exponentials in fp32
//   reads       a row of one segment: each element of S once. A longer row: all segments but the last once more,
//               since only the last is still in registers when maximum and sum are known
//
// Every lane runs an online softmax of its own and needs no other lane until its last chunk, so that there is one
// reduction per row. S is scaled and masked already; its padding up to a whole chunk is -inf and gives P = 0 there.
//
// Compile-time: NUM_WARPS, WARPS_PER_ROW, CHUNKS, ELEMENT_*.
#include "../common/chunk.cuh"
#include "../common/predicated.cuh"
#include "../common/softmax.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int ROWS = NUM_WARPS / WARPS_PER_ROW;  // rows per CTA
constexpr int ROW_LANES = WARPS_PER_ROW * WARP_SIZE;
constexpr int SEGMENT = ROW_LANES * CHUNKS * CHUNK_ELEMENTS;
static_assert(NUM_WARPS % WARPS_PER_ROW == 0, "a CTA works on whole rows");

extern "C" __global__ void __launch_bounds__(THREADS)
standard_softmax(const element* __restrict__ S,  // [batch, heads_q, seq_q, pitch]
                 element* __restrict__ P,        // [batch, heads_q, seq_q, pitch]
                 float* __restrict__ LSE,        // [batch, heads_q, seq_q]
                 int seq_q, int seq_kv, int pitch) {
    __shared__ RowState partial[NUM_WARPS];

    const int row_blocks = (seq_q + ROWS - 1) / ROWS;
    const int slice = blockIdx.x / row_blocks;
    const int query = blockIdx.x % row_blocks * ROWS + threadIdx.x / ROW_LANES;
    const i64 row = static_cast<i64>(slice) * seq_q + query;
    const int keys = query < seq_q ? seq_kv : 0;  // lanes beyond the last row only meet the barrier
    const int column = threadIdx.x % ROW_LANES * CHUNK_ELEMENTS;
    S += row * pitch + column;
    P += row * pitch + column;

    float s[CHUNKS][CHUNK_ELEMENTS];
    const auto load = [&](int segment) {
        uint4 chunks[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            chunks[c] = masked_chunk();
            ld_global_cg_v4_b32(chunks[c], S + offset, column + offset < keys);
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) unpack_chunk(s[c], chunks[c]);
    };
    const auto store = [&](int segment, float factor) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            st_global_v4_b32(P + offset, pack_chunk(s[c], factor), column + offset < keys);
        }
    };
    const auto exponentiate = [&](float max) {
        const float shifted = shift(max, LOG2_E);
        float sum = 0.f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) {
                s[c][i] = exponential(s[c][i], LOG2_E, shifted);
                sum += s[c][i];
            }
        return sum;
    };

    // This lane's maximum, and its sum relative to that maximum.
    RowState lane = empty_row();
    int segment = 0;
    for (;; segment += SEGMENT) {
        load(segment);
        float max = s[0][0];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) max = fmaxf(max, s[c][i]);
        raise_max(lane, max, LOG2_E);
        lane.sum += exponentiate(lane.max);
        if (segment + SEGMENT >= seq_kv) break;
    }

    // The row's: over the lanes of a warp by shuffles, over the warps of the row through shared memory.
    RowState all = lane;
    raise_max(all, row_max<WARP_SIZE>(lane.max), LOG2_E);
    all.sum = row_sum<WARP_SIZE>(all.sum);
    if (WARPS_PER_ROW > 1) {
        const int warp = threadIdx.x / WARP_SIZE;
        if (threadIdx.x % WARP_SIZE == 0) partial[warp] = all;
        __syncthreads();
        const int first = warp / WARPS_PER_ROW * WARPS_PER_ROW;
#pragma unroll
        for (int w = 0; w < WARPS_PER_ROW; w++) all.max = fmaxf(all.max, partial[first + w].max);
        all.sum = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS_PER_ROW; w++)
            all.sum += partial[first + w].sum * exponential(partial[first + w].max, LOG2_E, shift(all.max, LOG2_E));
    }
    const float inverse = inverse_sum(all.sum);

    store(segment, inverse * exponential(lane.max, LOG2_E, shift(all.max, LOG2_E)));
    while (segment > 0) {
        segment -= SEGMENT;
        load(segment);
        exponentiate(all.max);
        store(segment, inverse);
    }
    if (threadIdx.x % ROW_LANES == 0 && keys > 0) LSE[row] = log_sum_exp(all.max, all.sum, LOG2_E);
}
