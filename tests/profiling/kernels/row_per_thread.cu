// Attention the way a first CUDA lesson writes it: one thread computes one row of the output, nothing is shared.
#include <math.h>

__global__ void attention_naive(const float* Q, const float* K, const float* V, float* O, int seq, int dim, float scale)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= seq) return;

    float largest = -INFINITY;
    for (int key = 0; key < seq; key++) {
        float dot = 0.0f;
        for (int d = 0; d < dim; d++)
            dot += Q[row * dim + d] * K[key * dim + d];
        largest = fmaxf(largest, dot * scale);
    }

    float sum = 0.0f;
    for (int d = 0; d < dim; d++)
        O[row * dim + d] = 0.0f;
    for (int key = 0; key < seq; key++) {
        float dot = 0.0f;
        for (int d = 0; d < dim; d++)
            dot += Q[row * dim + d] * K[key * dim + d];
        float weight = __expf(dot * scale - largest);
        sum += weight;
        for (int d = 0; d < dim; d++)
            O[row * dim + d] += weight * V[key * dim + d];
    }
    for (int d = 0; d < dim; d++)
        O[row * dim + d] /= sum;
}
