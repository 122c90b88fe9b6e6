// Global accesses under a predicate: a lane whose `inside` is false reads nothing (and keeps `d`) or writes nothing.
// A guarded instruction, unlike an `if`, does not split the basic block, so that a row of loads stays one stream.
#pragma once
#include "ptx.cuh"

__device__ __forceinline__ void ld_global_cg_v4_b32(uint4& d, const void* global, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %5, 0;\n\t"
                 "@inside ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(d.x), "+r"(d.y), "+r"(d.z), "+r"(d.w)
                 : "l"(__cvta_generic_to_global(global)), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void st_global_v4_b32(void* global, uint4 value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %5, 0;\n\t"
                 "@inside st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(__cvta_generic_to_global(global)),
                 "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void st_global_v2_b32(void* global, uint2 value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %3, 0;\n\t"
                 "@inside st.global.v2.b32 [%0], {%1, %2}; }" ::"l"(__cvta_generic_to_global(global)),
                 "r"(value.x), "r"(value.y), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void ld_global_cg_v4_f32(float4& d, const float* global, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %5, 0;\n\t"
                 "@inside ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4]; }"
                 : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w)
                 : "l"(__cvta_generic_to_global(global)), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void st_global_cg_v4_f32(float* global, float4 value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %5, 0;\n\t"
                 "@inside st.global.cg.v4.f32 [%0], {%1, %2, %3, %4}; }" ::"l"(__cvta_generic_to_global(global)),
                 "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void ld_global_cg_v2_f32(float2& d, const float* global, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %3, 0;\n\t"
                 "@inside ld.global.cg.v2.f32 {%0, %1}, [%2]; }"
                 : "+f"(d.x), "+f"(d.y)
                 : "l"(__cvta_generic_to_global(global)), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void st_global_cg_v2_f32(float* global, float2 value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %3, 0;\n\t"
                 "@inside st.global.cg.v2.f32 [%0], {%1, %2}; }" ::"l"(__cvta_generic_to_global(global)),
                 "f"(value.x), "f"(value.y), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void ld_global_cg_f32(float& d, const float* global, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %2, 0;\n\t"
                 "@inside ld.global.cg.f32 %0, [%1]; }"
                 : "+f"(d)
                 : "l"(__cvta_generic_to_global(global)), "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void st_global_cg_f32(float* global, float value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %2, 0;\n\t"
                 "@inside st.global.cg.f32 [%0], %1; }" ::"l"(__cvta_generic_to_global(global)), "f"(value),
                 "r"(static_cast<int>(inside))
                 : "memory");
}

__device__ __forceinline__ void red_global_add_f32(float* global, float value, bool inside) {
    asm volatile("{ .reg .pred inside; setp.ne.b32 inside, %2, 0;\n\t"
                 "@inside red.global.add.f32 [%0], %1; }" ::"l"(__cvta_generic_to_global(global)), "f"(value),
                 "r"(static_cast<int>(inside))
                 : "memory");
}
