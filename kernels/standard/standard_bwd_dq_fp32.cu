// Standard attention, backward, 4 of 5, fp32 with plain FMA: the schedule of standard_bwd_dq.cu, the product as
// register micro-tiles.
//
//   shared memory   dS [STAGES][BLOCK_M, BLOCK_N] | K [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of dS
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp and the 16-byte chunks 8c + x of
//                   dQ, as in pv_fp32.cu
//
// Compile-time parameters as in standard_bwd_dq.cu.
#include "../common/chunk.cuh"
#include "../common/fma.cuh"
#include "../common/predicated.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int DS_CHUNKS = BLOCK_N / CHUNK_ELEMENTS;
constexpr int DS_BYTES = BLOCK_M * BLOCK_N * sizeof(element);
constexpr int K_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;     // rows of dS and dQ per warp
constexpr int ROW_TILE = ROWS / LANES_Y;      // micro-tile of a lane: rows,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;  // chunks of dQ
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of dS");

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
standard_bwd_dq(const element* __restrict__ dS,  // [batch, heads_q, seq_q, pitch], contiguous
                const element* __restrict__ K,   // [batch, heads_kv, seq_kv, head_dim]
                element* __restrict__ dQ,        // [batch, heads_q, seq_q, head_dim]
                i64 k_batch_stride, i64 k_head_stride, i64 k_row_stride,     //
                i64 dq_batch_stride, i64 dq_head_stride, i64 dq_row_stride,  //
                int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, int pitch, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 ds_tiles = shared_address(shared);
    const u32 k_tiles = ds_tiles + STAGES * DS_BYTES;

    const int m_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const int slice = blockIdx.x / m_blocks;
    const int m0 = blockIdx.x % m_blocks * BLOCK_M;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);
    const int n_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;

    dS += (static_cast<i64>(slice) * seq_q + m0) * pitch;
    K += batch * k_batch_stride + head_kv * k_head_stride;
    dQ += batch * dq_batch_stride + head * dq_head_stride + m0 * dq_row_stride;

    // Loads the next tile; see standard_bwd_dq.cu.
    int keys = seq_kv;  // not loaded yet
    const auto load = [&](int stage) {
        if (keys > 0) {
            copy_tile_async<BLOCK_M, DS_CHUNKS, THREADS>(ds_tiles + stage * DS_BYTES, dS, pitch, seq_q - m0,
                                                         min(BLOCK_N, keys));
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(k_tiles + stage * K_BYTES, K, k_row_stride, keys, head_dim);
        }
        cp_async_commit_group();
        keys -= BLOCK_N;
        dS += BLOCK_N;
        K += BLOCK_N * k_row_stride;
    };

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the dS tile; the next is 4 further

    float4 dq[ROW_TILE][CHUNK_TILE];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) dq[i][c] = make_float4(0.f, 0.f, 0.f, 0.f);

    load(0);
    for (int block = 0; block < n_blocks; block++) {
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        // dQ += dS·K, four keys at a time
        const u32 ds_tile = ds_tiles + block % STAGES * DS_BYTES;
        const u32 k_tile = k_tiles + block % STAGES * K_BYTES;
#pragma unroll 1
        for (int chunk = 0; chunk < DS_CHUNKS; chunk++) {
            float ds[ROW_TILE][CHUNK_ELEMENTS];
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++)
                unpack_chunk(ds[i],
                             ld_shared_v4_b32(ds_tile + chunk_offset<DS_CHUNKS>(first_row + i * LANES_Y, chunk)));
#pragma unroll
            for (int k = 0; k < CHUNK_ELEMENTS; k++)
#pragma unroll
                for (int c = 0; c < CHUNK_TILE; c++) {
                    const u32 offset = chunk_offset<CHUNKS>(chunk * CHUNK_ELEMENTS + k, c * LANES_X + x);
                    const float4 v = ld_shared_v4_f32(k_tile + offset);
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) add_multiple(dq[i][c], ds[i][k], v);
                }
        }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // dQ, scaled. A lane's chunk is 16 bytes and eight lanes are neighbours: whole sectors without staging.
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = first_row + i * LANES_Y;
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) {
            const int column = (c * LANES_X + x) * CHUNK_ELEMENTS;
            const float4 d = dq[i][c];
            st_global_cg_v4_f32(dQ + row * dq_row_stride + column,
                                make_float4(d.x * scale, d.y * scale, d.z * scale, d.w * scale),
                                m0 + row < seq_q && column < head_dim);
        }
    }
}
