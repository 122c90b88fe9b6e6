// One wrapper per PTX instruction, named after it. Shared-memory addresses are 32-bit (`shared_address`), global
// pointers are converted explicitly, so that no access goes through the generic address space.
//
// `volatile` keeps instructions with side effects in order; "memory" says that they touch memory the compiler sees.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// --- cp.async: global -> shared without registers (sm_80+) ----------------------------------------------------

// Copies 16 bytes past L1 (`.cg`). Arrives by the matching cp_async_wait_group, visible to others after a barrier.
__device__ __forceinline__ void cp_async_cg_16(u32 shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(__cvta_generic_to_global(global))
                 : "memory");
}

// The same with a source size: bytes beyond `source_bytes` (0 or 16) are written as zeros and not read.
__device__ __forceinline__ void cp_async_cg_16(u32 shared, const void* global, int source_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(__cvta_generic_to_global(global)), "r"(source_bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's newest groups are still in flight.
template <int N>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// --- ldmatrix: four 8x8 matrices of 16-bit elements ------------------------------------------------------------

// Lane 8i + r gives the address of row r (16 bytes) of matrix i; lane l receives elements (l / 4, 2(l % 4) + {0, 1}).
__device__ __forceinline__ void ldmatrix_x4(u32 (&d)[4], u32 shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared)
                 : "memory");
}

// The same, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&d)[4], u32 shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared)
                 : "memory");
}

// --- mma.sync: d += a·b, 16x8x16, fp32 accumulators (sm_80+) ---------------------------------------------------

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- conversions and special functions -------------------------------------------------------------------------

// cvt.rn.*x2 puts its first operand into the upper half.
__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float high, float low) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float high, float low) {
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

__device__ __forceinline__ float cvt_f32_f16(u16 a) {
    float d;
    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(a));
    return d;
}

// 2^x; 2^-inf = +0.
__device__ __forceinline__ float ex2_approx(float x) {
    float d;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}

// log2(x); log2(0) = -inf.
__device__ __forceinline__ float lg2_approx(float x) {
    float d;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}

// 1 / x, to one unit in the last place.
__device__ __forceinline__ float rcp_approx(float x) {
    float d;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}

// --- global memory ---------------------------------------------------------------------------------------------

// `.cg` caches in L2 only: what one CTA writes, its later reads find there.
__device__ __forceinline__ float ld_global_cg_f32(const float* global) {
    float d;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(d) : "l"(__cvta_generic_to_global(global)) : "memory");
    return d;
}

__device__ __forceinline__ float4 ld_global_cg_v4_f32(const float* global) {
    float4 d;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
    return d;
}

__device__ __forceinline__ void st_global_cg_f32(float* global, float value) {
    asm volatile("st.global.cg.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(global)), "f"(value) : "memory");
}

__device__ __forceinline__ void st_global_cg_v4_f32(float* global, float4 value) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)), "f"(value.x),
                 "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

__device__ __forceinline__ uint4 ld_global_cg_v4_b32(const void* global) {
    uint4 d;
    asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
                 : "l"(__cvta_generic_to_global(global))
                 : "memory");
    return d;
}

__device__ __forceinline__ void st_global_v4_b32(void* global, uint4 value) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)), "r"(value.x),
                 "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

// --- shared memory ---------------------------------------------------------------------------------------------

__device__ __forceinline__ uint4 ld_shared_v4_b32(u32 shared) {
    uint4 d;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
                 : "r"(shared)
                 : "memory");
    return d;
}

__device__ __forceinline__ float4 ld_shared_v4_f32(u32 shared) {
    float4 d;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
                 : "r"(shared)
                 : "memory");
    return d;
}

__device__ __forceinline__ float2 ld_shared_v2_f32(u32 shared) {
    float2 d;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d.x), "=f"(d.y) : "r"(shared) : "memory");
    return d;
}

__device__ __forceinline__ float ld_shared_f32(u32 shared) {
    float d;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d) : "r"(shared) : "memory");
    return d;
}

__device__ __forceinline__ u32 ld_shared_b32(u32 shared) {
    u32 d;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(d) : "r"(shared) : "memory");
    return d;
}

__device__ __forceinline__ void st_shared_b32(u32 shared, u32 value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(value) : "memory");
}

__device__ __forceinline__ void st_shared_f32(u32 shared, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(value) : "memory");
}

// --- shuffles: all 32 lanes take part --------------------------------------------------------------------------

__device__ __forceinline__ float shfl_sync_bfly(float value, int lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

__device__ __forceinline__ u32 shfl_sync_bfly(u32 value, int lane_mask) {
    return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// The value of lane `source` within each group of `width` lanes.
__device__ __forceinline__ float shfl_sync_idx(float value, int source, int width = 32) {
    return __shfl_sync(0xffffffffu, value, source, width);
}

// --- votes: all 32 lanes take part -----------------------------------------------------------------------------

__device__ __forceinline__ bool vote_sync_any(bool value) { return __any_sync(0xffffffffu, value); }
