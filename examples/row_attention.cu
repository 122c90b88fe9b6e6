// Attention with one thread per query row and an online softmax: FlashAttention's idea, and nothing to make it fast.
//
// A CTA takes BLOCK_M rows of Q. It copies BLOCK_N rows of K and V at a time into shared memory, and each thread goes
// through them with its own row of Q and of O in registers. Scores are never stored.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if FP16
using element = __half;
__device__ float to_float(element x) { return __half2float(x); }
__device__ element from_float(float x) { return __float2half_rn(x); }
#elif BF16
using element = __nv_bfloat16;
__device__ float to_float(element x) { return __bfloat162float(x); }
__device__ element from_float(float x) { return __float2bfloat16_rn(x); }
#else
using element = float;
__device__ float to_float(element x) { return x; }
__device__ element from_float(float x) { return x; }
#endif

using i64 = long long;

// Strides are in elements; the elements of a row are neighbours.
extern "C" __global__ void __launch_bounds__(BLOCK_M)
row_attention(const element* __restrict__ Q,  // [batch, heads_q, seq_q, DIM]
              const element* __restrict__ K,  // [batch, heads_kv, seq_kv, DIM]
              const element* __restrict__ V,  // [batch, heads_kv, seq_kv, DIM]
              element* __restrict__ O,        // [batch, heads_q, seq_q, DIM]
              float* __restrict__ LSE,        // [batch, heads_q, seq_q]
              i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride,  //
              i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,  //
              int heads_q, int heads_kv, int seq_q, int seq_kv, float scale) {
    __shared__ element k_tile[BLOCK_N][DIM];
    __shared__ element v_tile[BLOCK_N][DIM];

    const int batch = blockIdx.y / heads_q;
    const int head = blockIdx.y % heads_q;
    const int head_kv = head / (heads_q / heads_kv);
    Q += batch * q_batch_stride + head * q_head_stride;
    O += batch * q_batch_stride + head * q_head_stride;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    V += batch * k_batch_stride + head_kv * k_head_stride;

    const int row = blockIdx.x * BLOCK_M + threadIdx.x;
    const bool inside = row < seq_q;
    // Query i sees the keys j <= i + seq_kv - seq_q; a thread without a row sees none.
    const int visible = !inside ? 0 : CAUSAL ? max(0, min(seq_kv, row + 1 + seq_kv - seq_q)) : seq_kv;

    float q[DIM], o[DIM];
#pragma unroll
    for (int d = 0; d < DIM; d++) {
        q[d] = inside ? to_float(Q[row * q_row_stride + d]) * scale : 0.f;
        o[d] = 0.f;
    }
    float highest = -__int_as_float(0x7f800000);  // -infinity
    float sum = 0.f;

    for (int n0 = 0; n0 < seq_kv; n0 += BLOCK_N) {
        __syncthreads();
        const int keys = min(BLOCK_N, seq_kv - n0);
        for (int i = threadIdx.x; i < keys * DIM; i += BLOCK_M) {
            k_tile[i / DIM][i % DIM] = K[(n0 + i / DIM) * k_row_stride + i % DIM];
            v_tile[i / DIM][i % DIM] = V[(n0 + i / DIM) * k_row_stride + i % DIM];
        }
        __syncthreads();
        for (int n = 0; n < min(keys, visible - n0); n++) {
            float score = 0.f;
#pragma unroll
            for (int d = 0; d < DIM; d++) score += q[d] * to_float(k_tile[n][d]);
            // A new maximum shrinks what was added so far.
            const float raised = fmaxf(highest, score);
            const float shrink = __expf(highest - raised);
            const float p = __expf(score - raised);
            highest = raised;
            sum = sum * shrink + p;
#pragma unroll
            for (int d = 0; d < DIM; d++) o[d] = o[d] * shrink + p * to_float(v_tile[n][d]);
        }
    }

    if (!inside) return;
    // A row that sees nothing is 0, and its log-sum-exp -infinity.
    const float inverse = sum > 0.f ? 1.f / sum : 0.f;
#pragma unroll
    for (int d = 0; d < DIM; d++) O[row * q_row_stride + d] = from_float(o[d] * inverse);
    LSE[(i64)blockIdx.y * seq_q + row] = sum > 0.f ? highest + logf(sum) : highest;
}
