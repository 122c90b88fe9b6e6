// Standard attention, backward, 3 of 5: dS = P ∘ (dP - rowsum(P ∘ dP)), row by row, for any element type.
//
//   lanes       a row belongs to WARPS_PER_ROW warps; 16-byte chunks of it go round these lanes, CHUNKS to each
//   registers   SEGMENT = 32 · WARPS_PER_ROW · CHUNKS chunks of the row of P and of dP, as they are in memory
//   reads       a row of one segment: each element of P and dP once. A longer row: all segments but the last once
//               more, since only the last is still in registers when the sum is known
//
// Where P is 0, behind the diagonal, outside a window, in rows that see nothing and in the padding up to a whole chunk,
// dS is 0.
//
// With DROPOUT what is in memory as dP is dO·Vᵀ, and dP is that times 1 / (1 - p) where a pair is kept and 0 elsewhere.
// Which are kept is made again from their places; P is that before dropout.
//
// Compile-time: NUM_WARPS, WARPS_PER_ROW, CHUNKS, ELEMENT_*, DROPOUT.
#include "../common/chunk.cuh"
#include "../common/chunk_dropout.cuh"
#include "../common/predicated.cuh"
#include "../common/softmax.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int ROWS = NUM_WARPS / WARPS_PER_ROW;  // rows per CTA
constexpr int ROW_LANES = WARPS_PER_ROW * WARP_SIZE;
constexpr int SEGMENT = ROW_LANES * CHUNKS * CHUNK_ELEMENTS;
static_assert(NUM_WARPS % WARPS_PER_ROW == 0, "a CTA works on whole rows");

extern "C" __global__ void __launch_bounds__(THREADS)
standard_bwd_ds(const element* __restrict__ P,   // [batch, heads_q, seq_q, pitch]
                const element* __restrict__ dP,  // [batch, heads_q, seq_q, pitch]
                element* __restrict__ dS,        // [batch, heads_q, seq_q, pitch]
                int heads_q, int seq_q, int seq_kv, int pitch, u64 seed, u32 drop_threshold, float keep_scale) {
    __shared__ float partial[NUM_WARPS];

    const int row_blocks = (seq_q + ROWS - 1) / ROWS;
    const int slice = blockIdx.x / row_blocks;
    const int query = blockIdx.x % row_blocks * ROWS + threadIdx.x / ROW_LANES;
    const int keys = query < seq_q ? seq_kv : 0;  // lanes beyond the last row only meet the barrier
    const int column = threadIdx.x % ROW_LANES * CHUNK_ELEMENTS;
    const i64 start = (static_cast<i64>(slice) * seq_q + query) * pitch + column;
    P += start;
    dP += start;
    dS += start;

    uint4 p_chunks[CHUNKS];
    uint4 dp_chunks[CHUNKS];
    const auto load = [&](int segment) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            p_chunks[c] = dp_chunks[c] = {0, 0, 0, 0};
            ld_global_cg_v4_b32(p_chunks[c], P + offset, column + offset < keys);
            ld_global_cg_v4_b32(dp_chunks[c], dP + offset, column + offset < keys);
        }
        if (DROPOUT) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
                drop_of_chunk(dp_chunks[c], column + offset, query, slice % heads_q, slice / heads_q, seed,
                              drop_threshold);
            }
        }
    };
    const auto unpack_dp = [&](float(&dp)[CHUNK_ELEMENTS], int c) {
        unpack_chunk(dp, dp_chunks[c]);
        if (DROPOUT) {
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) dp[i] *= keep_scale;
        }
    };
    const auto store = [&](int segment, float row_sum) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            float p[CHUNK_ELEMENTS], ds[CHUNK_ELEMENTS];
            unpack_chunk(p, p_chunks[c]);
            unpack_dp(ds, c);
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) ds[i] = p[i] * (ds[i] - row_sum);
            st_global_v4_b32(dS + offset, pack_chunk(ds, 1.f), column + offset < keys);
        }
    };

    // This lane's share of rowsum(P ∘ dP).
    float sum = 0.f;
    int segment = 0;
    for (;; segment += SEGMENT) {
        load(segment);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float p[CHUNK_ELEMENTS], dp[CHUNK_ELEMENTS];
            unpack_chunk(p, p_chunks[c]);
            unpack_dp(dp, c);
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) sum = fmaf(p[i], dp[i], sum);
        }
        if (segment + SEGMENT >= seq_kv) break;
    }

    // The row's: over the lanes of a warp by shuffles, over the warps of the row through shared memory.
    sum = row_sum<WARP_SIZE>(sum);
    if (WARPS_PER_ROW > 1) {
        const int warp = threadIdx.x / WARP_SIZE;
        if (threadIdx.x % WARP_SIZE == 0) partial[warp] = sum;
        __syncthreads();
        const int first = warp / WARPS_PER_ROW * WARPS_PER_ROW;
        sum = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS_PER_ROW; w++) sum += partial[first + w];
    }

    store(segment, sum);
    while (segment > 0) {
        segment -= SEGMENT;
        load(segment);
        store(segment, sum);
    }
}
