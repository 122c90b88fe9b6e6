// Standard attention, 3 of 3, and backward, 4 of 5, fp32 with plain FMA: the schedule of pv.cu, the product as register
// micro-tiles.
//
//   shared memory   P [STAGES][BLOCK_M, BLOCK_N] | V [STAGES][BLOCK_N, DIM], swizzled (tile.cuh)
//   warps           split along the rows of P
//   lanes           4 (rows) x 8 (columns): lane (y, x) owns rows 4i + y of its warp and the 16-byte chunks 8c + x
//                   of O. A 128-bit shared load is, per phase of eight lanes, one row of P (a broadcast) or eight
//                   neighbouring chunks of V
//
// Compile-time parameters as in pv.cu.
#include "../common/chunk.cuh"
#include "../common/predicated.cuh"
#include "../common/tile.cuh"

constexpr int THREADS = NUM_WARPS * WARP_SIZE;
constexpr int CHUNKS = DIM / CHUNK_ELEMENTS;
constexpr int P_CHUNKS = BLOCK_N / CHUNK_ELEMENTS;
constexpr int P_BYTES = BLOCK_M * BLOCK_N * sizeof(element);
constexpr int V_BYTES = BLOCK_N * DIM * sizeof(element);

constexpr int LANES_Y = 4;
constexpr int LANES_X = 8;
constexpr int ROWS = BLOCK_M / NUM_WARPS;     // rows of P and O per warp
constexpr int ROW_TILE = ROWS / LANES_Y;      // micro-tile of a lane: rows,
constexpr int CHUNK_TILE = CHUNKS / LANES_X;  // chunks of O
static_assert(BLOCK_M % (LANES_Y * NUM_WARPS) == 0, "each warp owns a multiple of 4 rows of P");

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

    // Loads the next tile; see pv.cu.
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

    const int lane = threadIdx.x % WARP_SIZE;
    const int x = lane % LANES_X;
    const int first_row = threadIdx.x / WARP_SIZE * ROWS + lane / LANES_X;  // in the P tile; the next is 4 further

    float o[ROW_TILE][CHUNK_TILE][CHUNK_ELEMENTS];
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++)
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) o[i][c][0] = o[i][c][1] = o[i][c][2] = o[i][c][3] = 0.f;

    load(0);
    for (int block = 0; block < n_blocks; block++) {
        cp_async_wait_group<0>();
        __syncthreads();
        if (STAGES == 2) load((block + 1) % STAGES);

        // O += P·V, four keys at a time
        const u32 p_tile = p_tiles + block % STAGES * P_BYTES;
        const u32 v_tile = v_tiles + block % STAGES * V_BYTES;
#pragma unroll 1
        for (int chunk = 0; chunk < P_CHUNKS; chunk++) {
            float p[ROW_TILE][CHUNK_ELEMENTS];
#pragma unroll
            for (int i = 0; i < ROW_TILE; i++)
                unpack_chunk(p[i],
                             ld_shared_v4_b32(p_tile + chunk_offset<P_CHUNKS>(first_row + i * LANES_Y, chunk)));
#pragma unroll
            for (int k = 0; k < CHUNK_ELEMENTS; k++)
#pragma unroll
                for (int c = 0; c < CHUNK_TILE; c++) {
                    const u32 offset = chunk_offset<CHUNKS>(chunk * CHUNK_ELEMENTS + k, c * LANES_X + x);
                    const float4 v = ld_shared_v4_f32(v_tile + offset);
#pragma unroll
                    for (int i = 0; i < ROW_TILE; i++) {
                        o[i][c][0] = fmaf(p[i][k], v.x, o[i][c][0]);
                        o[i][c][1] = fmaf(p[i][k], v.y, o[i][c][1]);
                        o[i][c][2] = fmaf(p[i][k], v.z, o[i][c][2]);
                        o[i][c][3] = fmaf(p[i][k], v.w, o[i][c][3]);
                    }
                }
        }
        if (STAGES == 1) {
            __syncthreads();
            load((block + 1) % STAGES);
        }
    }

    // O. A lane's chunk is 16 bytes and eight lanes are neighbours: whole sectors without staging.
#pragma unroll
    for (int i = 0; i < ROW_TILE; i++) {
        const int row = first_row + i * LANES_Y;
#pragma unroll
        for (int c = 0; c < CHUNK_TILE; c++) {
            const int column = (c * LANES_X + x) * CHUNK_ELEMENTS;
            st_global_v4_b32(O + row * o_row_stride + column, pack_chunk(o[i][c], SCALED ? scale : 1.f),
                             m0 + row < seq_q && column < head_dim);
        }
    }
}
