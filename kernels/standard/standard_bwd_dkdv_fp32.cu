// Standard attention, backward, 1 and 5 of 5, fp32 with plain FMA: the schedule of standard_bwd_dkdv.cu, the product as
// register micro-tiles.
//
//   shared memory   A [STAGES][BLOCK_M, BLOCK_N] | B [STAGES][BLOCK_M, DIM], swizzled (tile.cuh)
//   warps           split along the columns of A, which are the rows of C
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 16i + 4y … 16i + 4y + 3 of its warp, a chunk of a row
//                   of A, and the 16-byte chunks 8c + x of C. A 128-bit shared load is, per phase of eight lanes, one
//                   chunk of A (a broadcast) or eight neighbouring chunks of B
//
// Compile-time parameters as in standard_bwd_dkdv.cu.
#include "../common/chunk.cuh"
#include "../common/fma.cuh"
#include "../common/predicated.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int A_CHUNKS = BLOCK_N / CHUNK_ELEMENTS;
constexpr int A_BYTES = BLOCK_M * BLOCK_N * sizeof(element);
constexpr int B_BYTES = BLOCK_M * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_N / NUM_WARPS;                    // rows of C per warp
constexpr int ROW_CHUNKS = ROWS / LANES_Y / CHUNK_ELEMENTS;  // micro-tile of a lane: chunks of a row of A,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;                 // chunks of C
constexpr int UNROLL = 8;                                    // queries; the swizzle repeats after as many
static_assert(BLOCK_N % (LANES_Y * CHUNK_ELEMENTS * NUM_WARPS) == 0, "each warp owns a multiple of 16 rows of C");

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

    // Loads the next tile; see standard_bwd_dkdv.cu.
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

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X * CHUNK_ELEMENTS;  // the next chunk's: + 16

    float4 c[ROW_CHUNKS][CHUNK_ELEMENTS][CHUNK_TILE];
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
#pragma unroll
        for (int r = 0; r < CHUNK_ELEMENTS; r++)
#pragma unroll
            for (int d = 0; d < CHUNK_TILE; d++) c[i][r][d] = make_float4(0.f, 0.f, 0.f, 0.f);

    load(0);
    for (int block = 0; block < group * m_blocks; block++) {
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        // C += Aᵀ·B, query by query
        const u32 a_tile = a_tiles + block % STAGES * A_BYTES;
        const u32 b_tile = b_tiles + block % STAGES * B_BYTES;
#pragma unroll 1
        for (int query = 0; query < BLOCK_M; query += UNROLL)
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                float a[ROW_CHUNKS][CHUNK_ELEMENTS];
#pragma unroll
                for (int i = 0; i < ROW_CHUNKS; i++)
                    unpack_chunk(a[i], ld_shared_v4_b32(a_tile + chunk_offset<A_CHUNKS>(
                                                                     query + k, first_row / CHUNK_ELEMENTS + i * LANES_Y)));
#pragma unroll
                for (int d = 0; d < CHUNK_TILE; d++) {
                    const float4 b = ld_shared_v4_f32(b_tile + chunk_offset<CHUNKS>(query + k, d * LANES_X + x));
#pragma unroll
                    for (int i = 0; i < ROW_CHUNKS; i++)
#pragma unroll
                        for (int r = 0; r < CHUNK_ELEMENTS; r++) add_multiple(c[i][r][d], a[i][r], b);
                }
            }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // C. A lane's chunk is 16 bytes and eight lanes are neighbours: whole sectors without staging.
#pragma unroll
    for (int i = 0; i < ROW_CHUNKS; i++)
#pragma unroll
        for (int r = 0; r < CHUNK_ELEMENTS; r++) {
            const int row = first_row + i * LANES_Y * CHUNK_ELEMENTS + r;
#pragma unroll
            for (int d = 0; d < CHUNK_TILE; d++) {
                const int column = (d * LANES_X + x) * CHUNK_ELEMENTS;
                const float4 v = c[i][r][d];
                st_global_cg_v4_f32(C + row * c_row_stride + column,
                                    make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor),
                                    row < keys && column < head_dim);
            }
        }
}
