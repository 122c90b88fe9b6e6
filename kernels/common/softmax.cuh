// Online softmax of rows that WIDTH neighbouring lanes share, in base 2: with `scale_log2` = scale · log2(e),
// exp(scale · s - max) is 2^(scale_log2 · s - scale_log2 · max), one FMA and one ex2.
//
// A masked score is a true -inf. As long as a row has seen nothing its maximum is -inf, and -inf - (-inf) would be
// NaN: `shift` then subtracts 0 instead, and 2^-inf = 0 does the rest, also when a later tile is visible.
#pragma once
#include "types.cuh"

// Maximum and sum over the WIDTH lanes (a power of two) that share a row; 4 for mma accumulators.
template <int WIDTH = 4>
__device__ __forceinline__ float row_max(float value) {
#pragma unroll
    for (int mask = WIDTH / 2; mask > 0; mask /= 2) value = fmaxf(value, shfl_sync_bfly(value, mask));
    return value;
}

template <int WIDTH = 4>
__device__ __forceinline__ float row_sum(float value) {
#pragma unroll
    for (int mask = WIDTH / 2; mask > 0; mask /= 2) value += shfl_sync_bfly(value, mask);
    return value;
}

// State of one row: the largest raw score so far, and this lane's share of the sum of exponentials.
struct RowState {
    float max;
    float sum;
};

__device__ __forceinline__ RowState empty_row() { return {-infinity(), 0.f}; }

// What is subtracted in the exponent, for a row whose maximum is `max`.
__device__ __forceinline__ float shift(float max, float scale_log2) {
    return max == -infinity() ? 0.f : max * scale_log2;
}

// Exponential of a score relative to `shift`.
__device__ __forceinline__ float exponential(float score, float scale_log2, float shifted) {
    return ex2_approx(fmaf(score, scale_log2, -shifted));
}

// Raises the row's maximum to `tile_max` (already reduced over the row) and returns the factor by which what was
// accumulated so far shrinks; the sum is rescaled here.
__device__ __forceinline__ float raise_max(RowState& row, float tile_max, float scale_log2) {
    const float old_max = row.max;
    row.max = fmaxf(old_max, tile_max);
    const float factor = exponential(old_max, scale_log2, shift(row.max, scale_log2));
    row.sum *= factor;
    return factor;
}

// 1 / sum, and 0 for a row that saw nothing. `sum` is reduced over the row.
__device__ __forceinline__ float inverse_sum(float sum) { return sum == 0.f ? 0.f : rcp_approx(sum); }

// Natural logarithm of the sum of exponentials of the scaled scores; -inf for a row that saw nothing.
__device__ __forceinline__ float log_sum_exp(float max, float sum, float scale_log2) {
    return (shift(max, scale_log2) + lg2_approx(sum)) * LN_2;
}
