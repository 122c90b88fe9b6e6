// One warp per query row: the lanes share the head dimension, dot products are reduced with shuffles.
// A template, as in libraries: the head dimension decides how many elements a lane holds.
#include <cuda_fp16.h>
#include <cstdint>

namespace tutorial {

constexpr unsigned kFullMask = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(kFullMask, value, offset);
    return value;
}

template <int HEAD_DIM>
__global__ void __launch_bounds__(128) warp_attention(const half* __restrict__ q, const half* __restrict__ k,
                                                      const half* __restrict__ v, half* __restrict__ out,
                                                      uint32_t queries, uint32_t keys, float scale)
{
    constexpr int kPairs = HEAD_DIM / 64;  // half2 per lane
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (query >= queries) return;

    float2 q_frag[kPairs], acc[kPairs];
    for (int i = 0; i < kPairs; ++i) {
        q_frag[i] = __half22float2(reinterpret_cast<const half2*>(q + query * HEAD_DIM)[lane + 32 * i]);
        acc[i] = make_float2(0.f, 0.f);
    }

    float running_max = -1e30f, running_sum = 0.f;
    for (uint32_t key = 0; key < keys; ++key) {
        float partial = 0.f;
        for (int i = 0; i < kPairs; ++i) {
            const float2 pair = __half22float2(reinterpret_cast<const half2*>(k + key * HEAD_DIM)[lane + 32 * i]);
            partial += q_frag[i].x * pair.x + q_frag[i].y * pair.y;
        }
        const float score = warp_sum(partial) * scale;

        const float new_max = fmaxf(running_max, score);
        const float correction = __expf(running_max - new_max);
        const float weight = __expf(score - new_max);
        running_sum = running_sum * correction + weight;
        for (int i = 0; i < kPairs; ++i) {
            const float2 pair = __half22float2(reinterpret_cast<const half2*>(v + key * HEAD_DIM)[lane + 32 * i]);
            acc[i].x = acc[i].x * correction + weight * pair.x;
            acc[i].y = acc[i].y * correction + weight * pair.y;
        }
        running_max = new_max;
    }

    for (int i = 0; i < kPairs; ++i)
        reinterpret_cast<half2*>(out + query * HEAD_DIM)[lane + 32 * i] =
            __floats2half2_rn(acc[i].x / running_sum, acc[i].y / running_sum);
}

}  // namespace tutorial
