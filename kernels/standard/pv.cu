// Standard attention, 3 of 3: O = P·V, fp16 and bf16 on tensor cores. One CTA per BLOCK_M rows of O, so that P is
// read once. Backward, 4 of 5, as ENTRY = standard_bwd_dq and SCALED: dQ = scale · dS·K, with dS for P, K for V and dQ
// for O.
//
//   shared memory   P [STAGES][BLOCK_M, BLOCK_N] | V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh); O at the end
//   warps           split along the rows of P
//
// Compile-time: ENTRY, SCALED, BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), STAGES,
// NUM_WARPS.
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int P_CHUNKS = (BLOCK_N / CHUNK_ELEMENTS + 3) / 4 * 4;  // the swizzle wants rows of 64 bytes
constexpr int P_BYTES = BLOCK_M * P_CHUNKS * CHUNK_BYTES;
constexpr int V_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int ROWS = BLOCK_M / NUM_WARPS;  // rows of P and O per warp
constexpr int M_TILES = ROWS / 16;
constexpr int D_TILES = DIM / 8;
constexpr int K_STEPS = BLOCK_N / 16;
static_assert(BLOCK_M % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of P");

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
ENTRY(const element* __restrict__ P,  // or dS: [batch, heads_q, seq_q, pitch], contiguous
      const element* __restrict__ V,  // or K: [batch, heads_kv, seq_kv, head_dim]
      element* __restrict__ O,        // or dQ: [batch, heads_q, seq_q, head_dim]
      i64 v_batch_stride, i64 v_head_stride, i64 v_row_stride,  //
      i64 o_batch_stride, i64 o_head_stride, i64 o_row_stride,  //
      int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, int pitch, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 p_tiles = shared_address(shared);
    const u32 v_tiles = p_tiles + STAGES * P_BYTES;
    const u32 o_tile = p_tiles;

    const int m_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;
    const int slice = blockIdx.x / m_blocks;
    const int m0 = blockIdx.x % m_blocks * BLOCK_M;
    const int batch = slice / heads_q;
    const int head = slice % heads_q;
    const int head_kv = head / (heads_q / heads_kv);
    const int n_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;

    P += (static_cast<i64>(slice) * seq_q + m0) * pitch;
    V += batch * v_batch_stride + head_kv * v_head_stride;
    O += batch * o_batch_stride + head * o_head_stride + m0 * o_row_stride;

    // Loads the next tile. A row of P ends in a whole chunk, whose padding is 0, as the softmax has it; rows of V beyond
    // seq_kv read as 0.
    int keys = seq_kv;  // not loaded yet
    const auto load = [&](int stage) {
        if (keys > 0) {
            copy_tile_async<BLOCK_M, P_CHUNKS, THREADS>(p_tiles + stage * P_BYTES, P, pitch, seq_q - m0,
                                                        min(BLOCK_N, keys));
            copy_tile_async<BLOCK_N, CHUNKS, THREADS>(v_tiles + stage * V_BYTES, V, v_row_stride, keys, head_dim);
        }
        cp_async_commit_group();
        keys -= BLOCK_N;
        P += BLOCK_N;
        V += BLOCK_N * v_row_stride;
    };

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;
    float o[M_TILES][D_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0.f;

    load(0);
    for (int block = 0; block < n_blocks; block++) {
        // The tile has arrived. With two stages the barrier also says that all warps are done with the tile before,
        // whose buffer takes the next one during this tile's work; with one stage the load waits for a barrier below.
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        const u32 p_tile = p_tiles + block % STAGES * P_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * V_BYTES;
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
            u32 p[M_TILES][4];
#pragma unroll
            for (int m = 0; m < M_TILES; m++) load_a<P_CHUNKS>(p[m], p_tile, warp_row + m * 16, k * 2);
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                u32 b[4];
                load_b_trans<CHUNKS>(b, v_tile, k * 16, d);
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    mma(o[m][d], p[m], b[0], b[1]);
                    mma(o[m][d + 1], p[m], b[2], b[3]);
                }
            }
        }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // O, staged where P and V were.
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) o[m][d][i] *= SCALED ? scale : 1.f;
            store_accumulator<CHUNKS>(o_tile, warp_row + m * 16, d, o[m][d]);
        }
    __syncwarp();
    store_rows<ROWS, CHUNKS>(O + warp_row * o_row_stride, o_row_stride, o_tile, warp_row, seq_q - m0 - warp_row,
                             head_dim);
}
