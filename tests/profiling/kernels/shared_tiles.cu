// Tiles in shared memory and the online softmax: a CTA of TILE threads owns TILE rows, walks over K and V tile by tile,
// and keeps K, V and the scores of the tile in dynamic shared memory. One thread computes one row.
#include <cuda_runtime.h>
#include <float.h>

#define TILE 32
#define DIM 64

extern "C" __global__ void flash_tiles(const float* __restrict__ Q, const float* __restrict__ K,
                                       const float* __restrict__ V, float* __restrict__ O, int seq, float scale)
{
    extern __shared__ float sram[];
    float* k_tile = sram;                    // [TILE][DIM]
    float* v_tile = k_tile + TILE * DIM;     // [TILE][DIM]
    float* scores = v_tile + TILE * DIM;     // [TILE][TILE]

    const int tx = threadIdx.x;
    const int row = blockIdx.x * TILE + tx;
    float q[DIM], acc[DIM];
    float m = -FLT_MAX, l = 0.f;

#pragma unroll
    for (int d = 0; d < DIM; ++d) {
        q[d] = Q[row * DIM + d] * scale;
        acc[d] = 0.f;
    }

    for (int start = 0; start < seq; start += TILE) {
        for (int i = tx; i < TILE * DIM; i += TILE) {
            k_tile[i] = K[start * DIM + i];
            v_tile[i] = V[start * DIM + i];
        }
        __syncthreads();

        float m_new = m;
        for (int j = 0; j < TILE; ++j) {
            float dot = 0.f;
#pragma unroll
            for (int d = 0; d < DIM; ++d) dot += q[d] * k_tile[j * DIM + d];
            scores[tx * TILE + j] = dot;
            m_new = fmaxf(m_new, dot);
        }
        const float shrink = __expf(m - m_new);
        l *= shrink;
#pragma unroll
        for (int d = 0; d < DIM; ++d) acc[d] *= shrink;
        for (int j = 0; j < TILE; ++j) {
            const float p = __expf(scores[tx * TILE + j] - m_new);
            l += p;
#pragma unroll
            for (int d = 0; d < DIM; ++d) acc[d] += p * v_tile[j * DIM + d];
        }
        m = m_new;
        __syncthreads();
    }

#pragma unroll
    for (int d = 0; d < DIM; ++d) O[row * DIM + d] = acc[d] / l;
}
