// Standard attention, backward, 4 of 5: dQ = scale · dS·K, fp16 and bf16 on tensor cores. One CTA per BLOCK_M rows of
// dQ, so that dS is read once: pv.cu with a scale.
//
//   shared memory   dS [STAGES][BLOCK_M, BLOCK_N] | K [STAGES][BLOCK_N, DIM], swizzled (tile.cuh); dQ at the end
//   warps           split along the rows of dS
//
// Compile-time: BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), STAGES, NUM_WARPS.
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int DS_CHUNKS = (BLOCK_N / CHUNK_ELEMENTS + 3) / 4 * 4;  // the swizzle wants rows of 64 bytes
constexpr int DS_BYTES = BLOCK_M * DS_CHUNKS * CHUNK_BYTES;
constexpr int K_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of dS and dQ per warp
constexpr int M_TILES = ROWS / 16;
constexpr int D_TILES = DIM / 8;
constexpr int K_STEPS = BLOCK_N / 16;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of dS");

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
    const u32 dq_tile = ds_tiles;

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

    // Loads the next tile. A row of dS ends in a whole chunk, whose padding is 0; rows of K beyond seq_kv read as 0.
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

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;
    float dq[M_TILES][D_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) dq[m][d][0] = dq[m][d][1] = dq[m][d][2] = dq[m][d][3] = 0.f;

    load(0);
    for (int block = 0; block < n_blocks; block++) {
        // The tile has arrived. With two stages the barrier also says that all warps are done with the tile before,
        // whose buffer takes the next one during this tile's work; with one stage the load waits for a barrier below.
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        const u32 ds_tile = ds_tiles + block % STAGES * DS_BYTES;
        const u32 k_tile = k_tiles + block % STAGES * K_BYTES;
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
            u32 ds[M_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++) load_a<DS_CHUNKS>(ds[m], ds_tile, warp_row + m * 16, k * 2);
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                u32 b[4];
                load_b_trans<CHUNKS>(b, k_tile, k * 16, d);
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    mma(dq[m][d], ds[m], b[0], b[1]);
                    mma(dq[m][d + 1], ds[m], b[2], b[3]);
                }
            }
        }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // dQ, scaled, staged where dS and K were.
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) dq[m][d][i] *= scale;
            store_accumulator<CHUNKS>(dq_tile, warp_row + m * 16, d, dq[m][d]);
        }
    __syncwarp();
    store_rows<ROWS, CHUNKS>(dQ + warp_row * dq_row_stride, dq_row_stride, dq_tile, warp_row, seq_q - m0 - warp_row,
                             head_dim);
}
