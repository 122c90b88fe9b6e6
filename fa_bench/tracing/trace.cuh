// Where a traced kernel leaves what it holds in registers: a buffer beside the tensors, left out of the byte counters.
//
//   m, l    [seq_q, blocks]            a row's maximum of scaled scores and sum of exponentials, after a tile of K/V
//   factor  [seq_q, blocks]            what O and l of the row were multiplied by, before they took in the tile
//   S, P    [seq_q, blocks · BLOCK_N]  scaled, masked scores, and their exponentials as they were summed
//   O       [seq_q, blocks, head_dim]  the row's accumulator after a tile
//
// A trace has one slice, so rows count from the first of the tensors. Rows beyond seq_q are not written.
// Compile-time: BLOCK_N.
#pragma once
#include "types.cuh"

struct Trace {
    float* m;
    float* l;
    float* factor;
    float* S;
    float* P;
    float* O;
    int rows;
    int blocks;
    int keys;

    __device__ __forceinline__ Trace(float* buffer, int seq_q, int seq_kv)
        : rows(seq_q), blocks((seq_kv + BLOCK_N - 1) / BLOCK_N), keys(blocks * BLOCK_N) {
        m = buffer;
        l = m + rows * blocks;
        factor = l + rows * blocks;
        S = factor + rows * blocks;
        P = S + rows * keys;
        O = P + rows * keys;
    }

    __device__ __forceinline__ void state(int row, int block, float max, float sum) const {
        if (row >= rows) return;
        m[row * blocks + block] = max;
        l[row * blocks + block] = sum;
    }

    __device__ __forceinline__ void rescale(int row, int block, float value) const {
        if (row < rows) factor[row * blocks + block] = value;
    }

    // For 16x8 mma accumulators whose top left corner is at (row, key) or (row, column).
    __device__ __forceinline__ void scores(int row, int key, const float (&s)[4], float scale = 1.f) const {
        accumulator(S, keys, keys, row, key, s, scale);
    }

    __device__ __forceinline__ void weights(int row, int key, const float (&p)[4]) const {
        accumulator(P, keys, keys, row, key, p, 1.f);
    }

    __device__ __forceinline__ void output(int row, int block, int column, const float (&o)[4], int head_dim) const {
        accumulator(O + block * head_dim, blocks * head_dim, head_dim, row, column, o, 1.f);
    }

    __device__ __forceinline__ void accumulator(float* matrix, int pitch, int columns, int row, int column,
                                                const float (&d)[4], float scale) const {
        const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = row + lane / 4 + i / 2 * 8;
            const int c = column + lane % 4 * 2 + i % 2;
            if (r < rows && c < columns) matrix[r * pitch + c] = d[i] * scale;
        }
    }
};
