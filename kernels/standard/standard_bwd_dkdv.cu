// Standard attention, backward, 1 and 5 of 5: C = factor · Aᵀ·B, fp16 and bf16 on tensor cores. As ENTRY =
// standard_bwd_dv it makes dV = Pᵀ·dO, as standard_bwd_dk dK = scale · dSᵀ·Q. One CTA per BLOCK_N rows of C, so that A
// is read once; it goes over the queries of all query heads that share its K/V head, and adds up what they contribute.
//
//   shared memory   A [STAGES][BLOCK_M, BLOCK_N] | B [STAGES][BLOCK_M, DIM], swizzled (tile.cuh); C at the end
//   warps           split along the columns of A, which are the rows of C
//
// A lies in memory with the queries, over which the product sums, as rows: ldmatrix transposes its fragments.
//
// Compile-time: ENTRY, BLOCK_M, BLOCK_N, DIM (head_dim rounded up to 32, 64, 96, 128, 192 or 256), STAGES, NUM_WARPS.
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int A_CHUNKS = (BLOCK_N / CHUNK_ELEMENTS + 3) / 4 * 4;  // the swizzle wants rows of 64 bytes
constexpr int A_BYTES = BLOCK_M * A_CHUNKS * CHUNK_BYTES;
constexpr int B_BYTES = BLOCK_M * DIM * sizeof(element);

constexpr int ROWS = BLOCK_N / NUM_WARPS;  // rows of C per warp
constexpr int N_TILES = ROWS / 16;
constexpr int D_TILES = DIM / 8;
constexpr int K_STEPS = BLOCK_M / 16;
static_assert(BLOCK_N % (16 * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of C");

// Strides are in elements; head_dim is contiguous. The 1 tells ptxas not to spill for the sake of more CTAs per SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
ENTRY(const element* __restrict__ A,  // P or dS: [batch, heads_q, seq_q, pitch], contiguous
      const element* __restrict__ B,  // dO or Q: [batch, heads_q, seq_q, head_dim]
      element* __restrict__ C,        // dV or dK: [batch, heads_kv, seq_kv, head_dim]
      i64 b_batch_stride, i64 b_head_stride, i64 b_row_stride,  //
      i64 c_batch_stride, i64 c_head_stride, i64 c_row_stride,  //
      int heads_q, int heads_kv, int seq_q, int seq_kv, int head_dim, int pitch, float factor) {
    extern __shared__ __align__(128) unsigned char shared[];
    const u32 a_tiles = shared_address(shared);
    const u32 b_tiles = a_tiles + STAGES * A_BYTES;
    const u32 c_tile = a_tiles;

    const int n_blocks = (seq_kv + BLOCK_N - 1) / BLOCK_N;
    const int slice = blockIdx.x / n_blocks;
    const int n0 = blockIdx.x % n_blocks * BLOCK_N;
    const int keys = min(BLOCK_N, seq_kv - n0);
    const int batch = slice / heads_kv;
    const int head_kv = slice % heads_kv;
    const int group = heads_q / heads_kv;
    const int m_blocks = (seq_q + BLOCK_M - 1) / BLOCK_M;

    A += static_cast<i64>(slice) * group * seq_q * pitch + n0;
    B += batch * b_batch_stride + head_kv * group * b_head_stride;
    C += batch * c_batch_stride + head_kv * c_head_stride + n0 * c_row_stride;

    // Loads the next tile, of the next query head where one has ended. A row of A ends in a whole chunk, whose padding
    // is 0; rows beyond seq_q read as 0.
    int head = 0, m0 = 0;  // not loaded yet
    const auto load = [&](int stage) {
        if (head < group) {
            copy_tile_async<BLOCK_M, A_CHUNKS, THREADS>(a_tiles + stage * A_BYTES,
                                                        A + (static_cast<i64>(head) * seq_q + m0) * pitch, pitch,
                                                        seq_q - m0, keys);
            copy_tile_async<BLOCK_M, CHUNKS, THREADS>(b_tiles + stage * B_BYTES,
                                                      B + head * b_head_stride + m0 * b_row_stride, b_row_stride,
                                                      seq_q - m0, head_dim);
        }
        cp_async_commit_group();
        m0 += BLOCK_M;
        if (m0 >= seq_q) {
            m0 = 0;
            head++;
        }
    };

    const int warp_row = threadIdx.x / WARP_SIZE * ROWS;
    float c[N_TILES][D_TILES][4];
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) c[n][d][0] = c[n][d][1] = c[n][d][2] = c[n][d][3] = 0.f;

    load(0);
    for (int block = 0; block < group * m_blocks; block++) {
        // The tile has arrived. With two stages the barrier also says that all warps are done with the tile before,
        // whose buffer takes the next one during this tile's work; with one stage the load waits for a barrier below.
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        const u32 a_tile = a_tiles + block % STAGES * A_BYTES;
        const u32 b_tile = b_tiles + block % STAGES * B_BYTES;
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) {
            u32 a[N_TILES][4];
#pragma unroll
            for (int n = 0; n < N_TILES; n++)
                load_a_trans<A_CHUNKS>(a[n], a_tile, k * 16, warp_row / CHUNK_ELEMENTS + n * 2);
#pragma unroll
            for (int d = 0; d < D_TILES; d += 2) {
                u32 b[4];
                load_b_trans<CHUNKS>(b, b_tile, k * 16, d);
#pragma unroll
                for (int n = 0; n < N_TILES; n++) {
                    mma(c[n][d], a[n], b[0], b[1]);
                    mma(c[n][d + 1], a[n], b[2], b[3]);
                }
            }
        }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // C, staged where A and B were.
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int d = 0; d < D_TILES; d++) {
#pragma unroll
            for (int i = 0; i < 4; i++) c[n][d][i] *= factor;
            store_accumulator<CHUNKS>(c_tile, warp_row + n * 16, d, c[n][d]);
        }
    __syncwarp();
    store_rows<ROWS, CHUNKS>(C + warp_row * c_row_stride, c_row_stride, c_tile, warp_row, keys - warp_row, head_dim);
}
