// The kernel of docs/profile.md: attention with tiles in shared memory. A warp computes ROWS rows of the output, one lane
// each; K, V and the scores of a tile are in shared memory.
#include <math.h>

#define ROWS 32
#define KEYS 32
#define DIM 64

#ifndef SCORE_PITCH
#define SCORE_PITCH (KEYS + 1)  // floats: with 33 the lanes of a column meet 32 different banks
#endif

extern "C" __global__ void __launch_bounds__(ROWS) attention(const float* Q,  // [seq, DIM]
                                                             const float* K,  // [seq, DIM]
                                                             const float* V,  // [seq, DIM]
                                                             float* O,        // [seq, DIM]
                                                             int seq, float scale)
{
    __shared__ float k_tile[KEYS][DIM];
    __shared__ float v_tile[KEYS][DIM];
    __shared__ float scores[ROWS][SCORE_PITCH];

    const int lane = threadIdx.x;
    const float* q = Q + (blockIdx.x * ROWS + lane) * DIM;
    float out[DIM] = {};
    float largest = -INFINITY, sum = 0.0f;

    for (int start = 0; start < seq; start += KEYS) {
        for (int i = lane; i < KEYS * DIM; i += ROWS) {
            k_tile[i / DIM][i % DIM] = K[start * DIM + i];
            v_tile[i / DIM][i % DIM] = V[start * DIM + i];
        }
        __syncwarp();

        float tile_max = largest;
        for (int key = 0; key < KEYS; ++key) {
            float dot = 0.0f;
#pragma unroll
            for (int d = 0; d < DIM; ++d) dot += q[d] * k_tile[key][d];
            scores[lane][key] = dot * scale;
            tile_max = fmaxf(tile_max, dot * scale);
        }

        const float shrink = __expf(largest - tile_max);
        sum *= shrink;
#pragma unroll
        for (int d = 0; d < DIM; ++d) out[d] *= shrink;
        for (int key = 0; key < KEYS; ++key) {
            const float weight = __expf(scores[lane][key] - tile_max);
            sum += weight;
#pragma unroll
            for (int d = 0; d < DIM; ++d) out[d] += weight * v_tile[key][d];
        }
        largest = tile_max;
        __syncwarp();
    }

    float* o = O + (blockIdx.x * ROWS + lane) * DIM;
#pragma unroll
    for (int d = 0; d < DIM; ++d) o[d] = out[d] / sum;
}
