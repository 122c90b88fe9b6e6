// The arithmetic peak of a GPU: nothing but independent chains of one instruction, long enough to hide its latency.
//
// What a launch executes is exactly known: `steps` times CHAINS instructions per warp (mma) or twice that (FMA). The
// results are written, so that no compiler may leave anything out. Operands are never zeros or powers of two: a
// multiplier that has little to do draws less power, and a GPU at its power limit would then be faster than it is.
#include "ptx.cuh"

#if !defined(CHAINS) || !defined(THREADS) || !defined(CTAS_PER_SM)
#error "Define CHAINS (independent instructions per warp), THREADS (of a CTA) and CTAS_PER_SM (that fit at once)."
#endif

// A 32-bit pattern that differs from thread to thread and from chain to chain (the finaliser of MurmurHash3).
__device__ __forceinline__ u32 scrambled(u32 x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ (x >> 16);
}

__device__ __forceinline__ u32 thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

#if defined(ELEMENT_FP16) || defined(ELEMENT_BF16)

// Two elements with scrambled signs and mantissas and magnitudes from 1 to 2.
__device__ __forceinline__ u32 pair_of_elements(u32 seed) {
#if defined(ELEMENT_FP16)
    return (scrambled(seed) & 0x83ff83ffu) | 0x3c003c00u;
#else
    return (scrambled(seed) & 0x807f807fu) | 0x3f803f80u;
#endif
}

// Tensor cores, fp32 accumulators: each chain adds the same product a·b again and again.
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    peak_mma(float* sums /* [threads] */, int steps) {
    u32 a[CHAINS][4], b[CHAINS][2];
    float d[CHAINS][4];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
        const u32 seed = (thread_index() * CHAINS + c) * 6;
#pragma unroll
        for (int i = 0; i < 4; ++i) a[c][i] = pair_of_elements(seed + i);
#pragma unroll
        for (int i = 0; i < 2; ++i) b[c][i] = pair_of_elements(seed + 4 + i);
#pragma unroll
        for (int i = 0; i < 4; ++i) d[c][i] = 0.0f;
    }
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) {
#if defined(ELEMENT_FP16)
            mma_m16n8k16_f16(d[c], a[c], b[c][0], b[c][1]);
#else
            mma_m16n8k16_bf16(d[c], a[c], b[c][0], b[c][1]);
#endif
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) sum += (d[c][0] + d[c][1]) + (d[c][2] + d[c][3]);
    sums[thread_index()] = sum;
}

#else

// fp32 FMA: each chain turns a point (x, y) along an ellipse (Minsky's circle: x += e·y; y -= e·x), which neither grows
// nor shrinks nor repeats, so that every step has new mantissas.
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    peak_fma(float* sums /* [threads] */, int steps, float e) {
    float x[CHAINS], y[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
        const u32 seed = thread_index() * CHAINS + c;
        x[c] = __uint_as_float((scrambled(seed) & 0x007fffffu) | 0x3f800000u);  // from 1 to 2
        y[c] = -x[c];
    }
    // A compiler's own choice is 4 steps, whose 64 FMAs share the issue slots with 3 instructions of the loop.
#pragma unroll 16
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) x[c] = __fmaf_rn(e, y[c], x[c]);
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) y[c] = __fmaf_rn(-e, x[c], y[c]);
    }
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) sum += x[c] + y[c];
    sums[thread_index()] = sum;
}

#endif
