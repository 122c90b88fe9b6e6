// The bandwidth of a GPU's memory: every thread strides over a buffer in chunks of 16 bytes, UNROLL of them in flight.
//
// A step of all threads covers a contiguous piece of the buffer, neighbours in a warp move neighbouring chunks, and the
// buffer is a whole number of steps: a launch moves exactly `passes` times its size. It has to be much larger than L2,
// so that no pass finds what the one before left there; that is the caller's business.
#include "ptx.cuh"

#if !defined(UNROLL) || !defined(THREADS) || !defined(CTAS_PER_SM)
#error "Define UNROLL (chunks that a thread moves per step), THREADS (of a CTA) and CTAS_PER_SM (that fit at once)."
#endif

__device__ __forceinline__ i64 thread_index() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ __forceinline__ i64 threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// The chunk that this thread moves as its `i`-th of a step.
__device__ __forceinline__ i64 chunk_index(int step, int i) {
    return (static_cast<i64>(step) * UNROLL + i) * threads() + thread_index();
}

// Reads everything. The exclusive or of all that a thread read is written, so that no load may be left out.
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    peak_read(const uint4* source /* [steps, UNROLL, threads] */, u32* sums /* [threads] */, int steps, int passes) {
    u32 sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
        for (int step = 0; step < steps; ++step) {
            uint4 chunk[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) chunk[i] = ld_global_cg_v4_b32(source + chunk_index(step, i));
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) sum ^= chunk[i].x ^ chunk[i].y ^ chunk[i].z ^ chunk[i].w;
        }
    }
    sums[thread_index()] = sum;
}

// Writes everything, each chunk with its own bits.
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    peak_write(uint4* target /* [steps, UNROLL, threads] */, int steps, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        for (int step = 0; step < steps; ++step) {
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                const i64 chunk = chunk_index(step, i);
                const u32 bits = static_cast<u32>(chunk) * 0x9e3779b9u;
                st_global_v4_b32(target + chunk, {bits, ~bits, bits ^ 0x5bd1e995u, static_cast<u32>(chunk)});
            }
        }
    }
}

// Copies everything: as many bytes read as written.
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
    peak_copy(const uint4* source /* [steps, UNROLL, threads] */, uint4* target /* [steps, UNROLL, threads] */,
              int steps, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        for (int step = 0; step < steps; ++step) {
            uint4 chunk[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) chunk[i] = ld_global_cg_v4_b32(source + chunk_index(step, i));
#pragma unroll
            for (int i = 0; i < UNROLL; ++i) st_global_v4_b32(target + chunk_index(step, i), chunk[i]);
        }
    }
}
