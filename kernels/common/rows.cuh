// LSE and delta of a tile of queries on their way from global to shared memory. They may start at any float, so
// threads take them one by one; and by way of registers, where LSE becomes what is subtracted in base 2. There +inf,
// for rows that saw nothing and rows that don't exist, makes 2^(s - inf) = 0.
#pragma once
#include "predicated.cuh"
#include "types.cuh"

// LSE in base 2.
__device__ __forceinline__ float lse_log2(float lse) { return lse == -infinity() ? infinity() : lse * LOG2_E; }

template <int ROWS, int THREADS>
struct TileRows {
    static constexpr int PASSES = (ROWS + THREADS - 1) / THREADS;
    float lse[PASSES];
    float delta[PASSES];

    // Starts reading `rows` rows, at most ROWS; those beyond are as if they had seen nothing.
    __device__ __forceinline__ void fetch(const float* global_lse, const float* global_delta, int rows) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int row = pass * THREADS + threadIdx.x;
            const bool inside = row < min(ROWS, rows);
            lse[pass] = -infinity();
            delta[pass] = 0.f;
            ld_global_cg_f32(lse[pass], global_lse + row, inside);
            ld_global_cg_f32(delta[pass], global_delta + row, inside);
        }
    }

    // Stores LSE in base 2, and -delta: where the sum dP - delta starts.
    __device__ __forceinline__ void put(u32 shared_lse, u32 shared_delta) const {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int row = pass * THREADS + threadIdx.x;
            if (row < ROWS) {
                st_shared_f32(shared_lse + row * sizeof(float), lse_log2(lse[pass]));
                st_shared_f32(shared_delta + row * sizeof(float), -delta[pass]);
            }
        }
    }
};
