// A 16-byte chunk of elements (the unit of vector accesses) and its values as floats.
#pragma once
#include "types.cuh"

#if defined(ELEMENT_FP16)
constexpr u32 MASKED_BITS = 0xfc00fc00u;  // -inf, -inf
#elif defined(ELEMENT_BF16)
constexpr u32 MASKED_BITS = 0xff80ff80u;
#else
constexpr u32 MASKED_BITS = 0xff800000u;
#endif

// A chunk of scores that are all masked, i.e. -inf.
__device__ __forceinline__ uint4 masked_chunk() { return {MASKED_BITS, MASKED_BITS, MASKED_BITS, MASKED_BITS}; }

__device__ __forceinline__ void unpack_chunk(float (&d)[CHUNK_ELEMENTS], uint4 chunk) {
#if defined(ELEMENT_FP32)
    d[0] = __uint_as_float(chunk.x);
    d[1] = __uint_as_float(chunk.y);
    d[2] = __uint_as_float(chunk.z);
    d[3] = __uint_as_float(chunk.w);
#else
    d[0] = unpack_low(chunk.x);
    d[1] = unpack_high(chunk.x);
    d[2] = unpack_low(chunk.y);
    d[3] = unpack_high(chunk.y);
    d[4] = unpack_low(chunk.z);
    d[5] = unpack_high(chunk.z);
    d[6] = unpack_low(chunk.w);
    d[7] = unpack_high(chunk.w);
#endif
}

// The values times `factor`, rounded to elements.
__device__ __forceinline__ uint4 pack_chunk(const float (&v)[CHUNK_ELEMENTS], float factor) {
#if defined(ELEMENT_FP32)
    return {__float_as_uint(v[0] * factor), __float_as_uint(v[1] * factor), __float_as_uint(v[2] * factor),
            __float_as_uint(v[3] * factor)};
#else
    return {pack(v[0] * factor, v[1] * factor), pack(v[2] * factor, v[3] * factor),
            pack(v[4] * factor, v[5] * factor), pack(v[6] * factor, v[7] * factor)};
#endif
}
