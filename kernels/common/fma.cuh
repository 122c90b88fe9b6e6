// Products of fp32 kernels, on four columns at a time.
#pragma once
#include "types.cuh"

// sum + a·b
__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    return fmaf(a.w, b.w, sum);
}

// d += factor · v
__device__ __forceinline__ void add_multiple(float4& d, float factor, float4 v) {
    d.x = fmaf(factor, v.x, d.x);
    d.y = fmaf(factor, v.y, d.y);
    d.z = fmaf(factor, v.z, d.z);
    d.w = fmaf(factor, v.w, d.w);
}
