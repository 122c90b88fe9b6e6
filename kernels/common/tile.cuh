// A tile in shared memory: rows of CHUNKS 16-byte chunks, XOR-swizzled so that neither cp.async nor ldmatrix nor
// 128-bit accesses meet a bank conflict.
//
// Shared memory has 32 banks of 4 bytes, i.e. eight 16-byte bank groups; 128-bit accesses and ldmatrix work in
// phases of eight lanes. A phase is conflict-free when its eight chunks lie in different bank groups. There are two
// kinds of phase: eight neighbouring chunks of one row (copies), and one chunk column of eight consecutive rows
// (ldmatrix, and the stores that stage O). The physical chunk of (row, chunk) is
//
//     CHUNKS % 8 == 0 (row of 128·n bytes):  chunk ^ (row % 8)           bank group = chunk ^ (row % 8)  (mod 8)
//     otherwise       (row of 64 (2n+1)):    chunk ^ (row / 2 % 4)       bank group = that + 4 (row % 2) (mod 8)
//
// In both, eight rows r … r+7 (r % 8 == 0) at one chunk take eight different bank groups: without the swizzle they
// would take one (eight-way conflict) or two (four-way). SWIZZLE=0 turns it off, for the tests to see just that.
#pragma once
#include "predicated.cuh"
#include "types.cuh"

#ifndef SWIZZLE
#define SWIZZLE 1
#endif

// Byte offset of a chunk in a tile. The tile's base is aligned to 128 bytes.
template <int CHUNKS>
__device__ __forceinline__ u32 chunk_offset(u32 row, u32 chunk) {
    static_assert(CHUNKS % 4 == 0, "a row is a multiple of 64 bytes");
#if SWIZZLE
    chunk ^= CHUNKS % 8 == 0 ? row % 8 : row / 2 % 4;
#endif
    return (row * CHUNKS + chunk) * CHUNK_BYTES;
}

// How lanes map to chunks when a tile is copied between global and shared memory: COLUMNS neighbouring lanes take
// neighbouring chunks of one row, the next lanes the next rows. One warp instruction so covers 32 / COLUMNS
// consecutive rows of COLUMNS · 16 bytes: where rows start on a sector, no sector is asked for twice. The swizzle only
// permutes chunks within COLUMNS, so that it concerns a lane's first chunk alone.
template <int CHUNKS>
struct CopyMap {
    // Largest power of two that divides CHUNKS, at most a warp.
    static constexpr int POWER = CHUNKS & -CHUNKS;
    static constexpr int COLUMNS = POWER < WARP_SIZE ? POWER : WARP_SIZE;
};

// Starts copying ROWS rows of CHUNKS chunks from global to shared memory with THREADS threads. Rows from `rows` on
// and columns from `columns` (elements, a multiple of CHUNK_ELEMENTS) on are filled with zeros and not read.
template <int ROWS, int CHUNKS, int THREADS>
__device__ __forceinline__ void copy_tile_async(u32 tile, const element* global, i64 row_stride, int rows,
                                                int columns) {
    constexpr int COLUMNS = CopyMap<CHUNKS>::COLUMNS;
    constexpr int ROWS_PER_PASS = THREADS / COLUMNS;
    const int first_row = threadIdx.x / COLUMNS;
    const int first_chunk = threadIdx.x % COLUMNS;

    const element* source = global + first_row * row_stride + first_chunk * CHUNK_ELEMENTS;
#pragma unroll
    for (int pass = 0; pass < ROWS; pass += ROWS_PER_PASS) {
        const int row = pass + first_row;
        if (pass + ROWS_PER_PASS <= ROWS || row < ROWS) {
#pragma unroll
            for (int group = 0; group < CHUNKS; group += COLUMNS) {
                const int chunk = group + first_chunk;
                const bool inside = row < rows && chunk * CHUNK_ELEMENTS < columns;
                const u32 offset = chunk_offset<CHUNKS>(row, first_chunk) + group * CHUNK_BYTES;
                cp_async_cg_16(tile + offset, source + group * CHUNK_ELEMENTS, inside ? CHUNK_BYTES : 0);
            }
        }
        source += ROWS_PER_PASS * row_stride;
    }
}

// Stores ROWS rows of a tile that one warp owns (rows `tile_row` … of the tile) to global memory, in whole chunks.
// `rows` and `columns` limit what is written, as above.
template <int ROWS, int CHUNKS>
__device__ __forceinline__ void store_rows(element* global, i64 row_stride, u32 tile, int tile_row, int rows,
                                           int columns) {
    constexpr int COLUMNS = CopyMap<CHUNKS>::COLUMNS;
    constexpr int ROWS_PER_PASS = WARP_SIZE / COLUMNS;
    const int lane = threadIdx.x % WARP_SIZE;
    const int first_row = lane / COLUMNS;
    const int first_chunk = lane % COLUMNS;

    element* target = global + first_row * row_stride + first_chunk * CHUNK_ELEMENTS;
#pragma unroll
    for (int pass = 0; pass < ROWS; pass += ROWS_PER_PASS) {
        const int row = pass + first_row;
#pragma unroll
        for (int group = 0; group < CHUNKS; group += COLUMNS) {
            const int chunk = group + first_chunk;
            const bool inside = row < rows && chunk * CHUNK_ELEMENTS < columns;
            const u32 offset = chunk_offset<CHUNKS>(tile_row + row, first_chunk) + group * CHUNK_BYTES;
            st_global_v4_b32(target + group * CHUNK_ELEMENTS, ld_shared_v4_b32(tile + offset), inside);
        }
        target += ROWS_PER_PASS * row_stride;
    }
}

#if !defined(ELEMENT_FP32)

// mma fragments of 16-bit tiles. `row` (a multiple of 8) and `chunk` are the tile coordinates of the fragment's top
// left corner; a chunk is 8 elements, so k advances by two chunks per mma.

// chunk_offset(row + lane_row, chunk + lane_chunk) for chunks that share no bit with lane_chunk, split so that what
// depends on the lane is computed once: the row's swizzle is the lane row's, and `chunk` (known at compile time)
// enters as one XOR with a constant and one constant offset.
template <int CHUNKS>
__device__ __forceinline__ u32 fragment_offset(int row, int chunk, int lane_row, int lane_chunk) {
    constexpr int PERIOD = CHUNKS % 8 == 0 ? 8 : 4;
    const u32 lane_offset = chunk_offset<CHUNKS>(lane_row, lane_chunk);
    return (lane_offset ^ (chunk % PERIOD * CHUNK_BYTES)) + (row * CHUNKS + chunk / PERIOD * PERIOD) * CHUNK_BYTES;
}

// A, 16x16 row-major: matrices (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
template <int CHUNKS>
__device__ __forceinline__ void load_a(u32 (&a)[4], u32 tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(a, tile + fragment_offset<CHUNKS>(row, chunk, lane % 16, lane / 16));
}

// The same from a matrix stored k x m (dSᵀ in dS·K), transposed on the way; `row` counts k.
template <int CHUNKS>
__device__ __forceinline__ void load_a_trans(u32 (&a)[4], u32 tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4_trans(a, tile + fragment_offset<CHUNKS>(row, chunk, lane % 8 + lane / 16 * 8, lane / 8 % 2));
}

// B of two neighbouring 16x8 tiles from a matrix stored n x k (K in Q·Kᵀ): b[0], b[1] belong to columns n 0-7 and
// b[2], b[3] to 8-15.
template <int CHUNKS>
__device__ __forceinline__ void load_b(u32 (&b)[4], u32 tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4(b, tile + fragment_offset<CHUNKS>(row, chunk, lane % 8 + lane / 16 * 8, lane / 8 % 2));
}

// The same from a matrix stored k x n (V in P·V), transposed on the way. `warp_chunk` is known at run time only; it
// shares no bit with `chunk` and is even.
template <int CHUNKS>
__device__ __forceinline__ void load_b_trans(u32 (&b)[4], u32 tile, int row, int chunk, int warp_chunk = 0) {
    const int lane = threadIdx.x % WARP_SIZE;
    ldmatrix_x4_trans(b, tile + fragment_offset<CHUNKS>(row, chunk, lane % 16, lane / 16 + warp_chunk));
}

// Two neighbouring 16x8 accumulators, rounded to elements, as the A fragment of a 16x16 tile.
__device__ __forceinline__ void pack_a(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = pack(left[0], left[1]);
    a[1] = pack(left[2], left[3]);
    a[2] = pack(right[0], right[1]);
    a[3] = pack(right[2], right[3]);
}

// The two elements of a staged tile that belong to a lane's accumulators in row `row` + lane / 4 (`row` a multiple of
// 8) of mma tile `chunk`.
template <int CHUNKS>
__device__ __forceinline__ float2 load_pair(u32 tile, int row, int chunk) {
    const int lane = threadIdx.x % WARP_SIZE;
    const u32 pair = ld_shared_b32(tile + fragment_offset<CHUNKS>(row, chunk, lane / 4, 0) + lane % 4 * 4);
    return {unpack_low(pair), unpack_high(pair)};
}

// Stages a 16x8 accumulator as elements: lane l holds (l / 4, 2(l % 4) + {0, 1}) and the same eight rows below.
template <int CHUNKS>
__device__ __forceinline__ void store_accumulator(u32 tile, int row, int chunk, const float (&d)[4],
                                                  int warp_chunk = 0) {
    const int lane = threadIdx.x % WARP_SIZE;
    const u32 upper = fragment_offset<CHUNKS>(row, chunk, lane / 4, warp_chunk) + lane % 4 * 4;
    st_shared_b32(tile + upper, pack(d[0], d[1]));
    st_shared_b32(tile + upper + 8 * CHUNKS * CHUNK_BYTES, pack(d[2], d[3]));
}

// Stages a 16x16 A fragment: its matrices are those of two neighbouring accumulators.
template <int CHUNKS>
__device__ __forceinline__ void store_a(u32 tile, int row, int chunk, const u32 (&a)[4], int warp_chunk = 0) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 upper = fragment_offset<CHUNKS>(row, chunk + i / 2, lane / 4, warp_chunk) + lane % 4 * 4;
        st_shared_b32(tile + upper, a[i]);
        st_shared_b32(tile + upper + 8 * CHUNKS * CHUNK_BYTES, a[i + 1]);
    }
}

#endif  // !ELEMENT_FP32
