// Sums over CTAs: accumulators of a warp added to fp32 global memory.
#pragma once
#include "predicated.cuh"

// Adds 16 rows of TILES 16x8 accumulators, the first `rows` rows and `columns` columns (a multiple of 8) of them. A
// lane holds two neighbouring columns of a row; of eight rows, the lanes of the upper and of the lower four exchange
// one element each, so that an instruction covers four whole sectors instead of halves of eight.
template <int TILES>
__device__ __forceinline__ void add_accumulators(float* global, int row_stride, const float (&d)[TILES][4], int rows,
                                                 int columns) {
    const int lane = threadIdx.x % 32;
    const bool upper = lane < 16;
    const int first_row = lane / 4 % 4;
    float* target = global + first_row * row_stride + lane % 4 * 2 + (upper ? 0 : 1);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const bool first_inside = half * 8 + first_row < rows;
        const bool second_inside = half * 8 + 4 + first_row < rows;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const float left = d[i][2 * half], right = d[i][2 * half + 1];
            const float other = shfl_sync_bfly(upper ? right : left, 16);
            const bool inside = i * 8 < columns;
            red_global_add_f32(target + i * 8, upper ? left : other, first_inside && inside);
            red_global_add_f32(target + 4 * row_stride + i * 8, upper ? other : right, second_inside && inside);
        }
        target += 8 * row_stride;
    }
}
