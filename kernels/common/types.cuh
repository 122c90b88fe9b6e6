// The element type of Q, K, V and O, chosen at compile time by ELEMENT_FP16, ELEMENT_BF16 or ELEMENT_FP32.
#pragma once

#include "ptx.cuh"

#if defined(ELEMENT_FP16)
#include <cuda_fp16.h>
using element = __half;
#elif defined(ELEMENT_BF16)
#include <cuda_bf16.h>
using element = __nv_bfloat16;
#elif defined(ELEMENT_FP32)
using element = float;
#else
#error "Define ELEMENT_FP16, ELEMENT_BF16 or ELEMENT_FP32."
#endif

// Elements in the 16-byte chunk that cp.async, ldmatrix and vector accesses move.
constexpr int CHUNK_BYTES = 16;
constexpr int CHUNK_ELEMENTS = CHUNK_BYTES / sizeof(element);

constexpr int WARP_SIZE = 32;

// NVRTC has no INFINITY.
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

#if !defined(ELEMENT_FP32)

// Two floats rounded to nearest into one 32-bit register, `low` in the low half: the order in which mma fragments
// and memory hold neighbouring columns.
__device__ __forceinline__ u32 pack(float low, float high) {
#if defined(ELEMENT_FP16)
    return cvt_rn_f16x2_f32(high, low);
#else
    return cvt_rn_bf16x2_f32(high, low);
#endif
}

// The two elements of a 32-bit register as floats (exact).
__device__ __forceinline__ float unpack_low(u32 pair) {
#if defined(ELEMENT_FP16)
    return cvt_f32_f16(static_cast<u16>(pair));
#else
    return __uint_as_float(pair << 16);  // bf16 is the upper half of an fp32
#endif
}

__device__ __forceinline__ float unpack_high(u32 pair) {
#if defined(ELEMENT_FP16)
    return cvt_f32_f16(static_cast<u16>(pair >> 16));
#else
    return __uint_as_float(pair & 0xffff0000u);
#endif
}

// d += a·b for one 16x8x16 tile: a is 16x16 row-major, b is 16x8 column-major, d is 16x8 in fp32.
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if defined(ELEMENT_FP16)
    mma_m16n8k16_f16(d, a, b0, b1);
#else
    mma_m16n8k16_bf16(d, a, b0, b1);
#endif
}

#endif  // !ELEMENT_FP32
