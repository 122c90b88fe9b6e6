// Standard attention, 2 of 3, with what models put between Q·Kᵀ and P·V: softcap, bias, ALiBi, windows, sinks, dropout.
// It is best read as a difference to softmax.cu, whose lanes, registers and reads it has.
//
// The order is softcap, bias, ALiBi, mask, softmax (with the sink in its normaliser), dropout. Each is compiled in by its
// define and is done to the elements of S as they are loaded, again where a long row is read again. S is that of
// scores.cu, scaled, every tile of it: what a window hides is read all the same, and is -inf from here on. With DROPOUT
// there are two results, P for the backward pass and P_drop, with zeros and scaled, for P·V.
//
// Compile-time: NUM_WARPS, WARPS_PER_ROW, CHUNKS, ELEMENT_*, CAUSAL, WINDOW_LEFT, WINDOW_RIGHT, SOFTCAP, BIAS, ALIBI,
// SINKS, DROPOUT.
#include "../common/chunk.cuh"
#include "../common/chunk_dropout.cuh"
#include "../common/predicated.cuh"
#include "../common/softmax.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int ROWS = NUM_WARPS / WARPS_PER_ROW;  // rows per CTA
constexpr int ROW_LANES = WARPS_PER_ROW * WARP_SIZE;
constexpr int SEGMENT = ROW_LANES * CHUNKS * CHUNK_ELEMENTS;
static_assert(NUM_WARPS % WARPS_PER_ROW == 0, "a CTA works on whole rows");

constexpr bool RIGHT = CAUSAL || WINDOW_RIGHT;

// softcap · tanh(score / softcap): tanh(y) = 1 - 2 / (e^2y + 1) needs no case at the ends.
__device__ __forceinline__ float softcapped(float score, float softcap) {
    const float exp_twice = ex2_approx(score * (2.f * LOG2_E / softcap));
    return fmaf(-2.f, rcp_approx(exp_twice + 1.f), 1.f) * softcap;
}

// The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
standard_softmax(const element* __restrict__ S,     // [batch, heads_q, seq_q, pitch]
                 element* __restrict__ P,           // [batch, heads_q, seq_q, pitch]
                 element* __restrict__ P_drop,      // [batch, heads_q, seq_q, pitch], with DROPOUT
                 float* __restrict__ LSE,           // [batch, heads_q, seq_q]
                 const element* __restrict__ bias,  // [heads_q, seq_q, seq_kv to the next 8], with BIAS
                 const float* __restrict__ slopes,  // [heads_q], with ALIBI
                 const float* __restrict__ sinks,   // [heads_q], with SINKS
                 i64 bias_head_stride, i64 bias_row_stride,
                 int heads_q, int seq_q, int seq_kv, int pitch, int window_left, int window_right, float softcap,
                 u64 seed, u32 drop_threshold, float keep_scale) {
    __shared__ RowState partial[NUM_WARPS];

    const int row_blocks = (seq_q + ROWS - 1) / ROWS;
    const int slice = blockIdx.x / row_blocks;
    const int query = blockIdx.x % row_blocks * ROWS + threadIdx.x / ROW_LANES;
    const i64 row = static_cast<i64>(slice) * seq_q + query;
    const int keys = query < seq_q ? seq_kv : 0;  // lanes beyond the last row only meet the barrier
    const int column = threadIdx.x % ROW_LANES * CHUNK_ELEMENTS;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    S += row * pitch + column;
    P += row * pitch + column;
    if (DROPOUT) P_drop += row * pitch + column;
    if (BIAS) bias += head * bias_head_stride + query * bias_row_stride + column;

    const int diagonal = query + seq_kv - seq_q;  // the query sees keys from diagonal - left to diagonal + right
    const int right = CAUSAL ? 0 : window_right;
    const int end = RIGHT ? min(keys, diagonal + right + 1) : keys;  // first key not visible
    const int begin = WINDOW_LEFT ? diagonal - window_left : 0;      // first key visible
    const float slope = ALIBI ? slopes[head] : 0.f;

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

        // Softcap, bias, ALiBi and the mask, which hides the padding of the last chunk too.
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            float added[CHUNK_ELEMENTS];
            if (BIAS) {
                uint4 chunk = {0, 0, 0, 0};
                ld_global_cg_v4_b32(chunk, bias + offset, column + offset < keys);
                unpack_chunk(added, chunk);
            }
#pragma unroll
            for (int i = 0; i < CHUNK_ELEMENTS; i++) {
                const int key = column + offset + i;
                float score = SOFTCAP ? softcapped(s[c][i], softcap) : s[c][i];
                if (BIAS) score += added[i];
                if (ALIBI) score = fmaf(-slope, static_cast<float>(abs(diagonal - key)), score);
                s[c][i] = key < end && (!WINDOW_LEFT || key >= begin) ? score : -infinity();
            }
        }
    };
    const auto store = [&](int segment, float factor) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int offset = segment + c * ROW_LANES * CHUNK_ELEMENTS;
            st_global_v4_b32(P + offset, pack_chunk(s[c], factor), column + offset < keys);
            if (DROPOUT) {
                uint4 chunk = pack_chunk(s[c], factor * keep_scale);
                drop_of_chunk(chunk, column + offset, query, head, batch, seed, drop_threshold);
                st_global_v4_b32(P_drop + offset, chunk, column + offset < keys);
            }
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

    // This lane's maximum, and its sum relative to that maximum. A sink is a key without a value, seen first: each lane
    // begins with its logit, and the row's first with its weight.
    RowState lane = SINKS ? RowState{sinks[head], column == 0 ? 1.f : 0.f} : empty_row();
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
