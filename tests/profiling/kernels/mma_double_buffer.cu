// C = A * B^T with mma.sync: A is [M, K] and B is [N, K], both row-major halves; 64 x 64 tiles of C, four warps of
// 16 x 64, K in steps of 32 through two buffers that cp.async fills while the other one is used.
#include <cuda_fp16.h>

#define BLOCK 64
#define STEP 32
#define PITCH (STEP + 8)  // halves: rows 80 bytes apart, so that ldmatrix meets every bank once

__device__ __forceinline__ unsigned smem_address(const void* p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void copy16(void* to, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(smem_address(to)), "l"(from));
}

__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], const void* p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(p)));
}

__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(128) gemm(const half* A, const half* B, float* C, int M, int N, int K)
{
    __shared__ __align__(16) half a_tile[2][BLOCK][PITCH];
    __shared__ __align__(16) half b_tile[2][BLOCK][PITCH];

    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const half* a_from = A + blockIdx.y * BLOCK * K;
    const half* b_from = B + blockIdx.x * BLOCK * K;

    auto fetch = [&](int buffer, int k0) {
        // 64 rows of four 16-byte pieces, two pieces per thread and matrix.
        for (int piece = tid; piece < BLOCK * STEP / 8; piece += 128) {
            const int row = piece / (STEP / 8), col = piece % (STEP / 8) * 8;
            copy16(&a_tile[buffer][row][col], a_from + row * K + k0 + col);
            copy16(&b_tile[buffer][row][col], b_from + row * K + k0 + col);
        }
        asm volatile("cp.async.commit_group;\n");
    };

    float acc[8][4] = {};
    fetch(0, 0);
    int buffer = 0;
    for (int k0 = 0; k0 < K; k0 += STEP, buffer ^= 1) {
        if (k0 + STEP < K) {
            fetch(buffer ^ 1, k0 + STEP);
            asm volatile("cp.async.wait_group 1;\n");
        } else {
            asm volatile("cp.async.wait_group 0;\n");
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < STEP; kk += 16) {
            unsigned a[4];
            load_matrix_x4(a, &a_tile[buffer][warp * 16 + lane % 16][kk + lane / 16 * 8]);
#pragma unroll
            for (int n = 0; n < BLOCK; n += 16) {
                unsigned b[4];
                load_matrix_x4(b, &b_tile[buffer][n + lane % 16][kk + lane / 16 * 8]);
                mma_16x8x16(acc[n / 8], a, b[0], b[2]);
                mma_16x8x16(acc[n / 8 + 1], a, b[1], b[3]);
            }
        }
        __syncthreads();
    }

    float* c_to = C + (blockIdx.y * BLOCK + warp * 16 + lane / 4) * N + blockIdx.x * BLOCK + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        *reinterpret_cast<float2*>(c_to + n * 8) = make_float2(acc[n][0], acc[n][1]);
        *reinterpret_cast<float2*>(c_to + 8 * N + n * 8) = make_float2(acc[n][2], acc[n][3]);
    }
}
