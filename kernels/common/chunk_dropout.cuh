// Dropout of rows whose 16-byte chunks lie in neighbouring lanes: the same bits of the same pairs as `drop` of
// philox.cuh, which is for mma accumulators.
#pragma once
#include "philox.cuh"
#include "types.cuh"

// Zeroes those elements of this lane's chunk that are dropped. The chunk begins at `column`, and the 32 lanes of a warp
// hold chunks side by side, the first at a multiple of 16 columns.
//
// A call of Philox has the bits of columns 2t, 2t + 1, 2t + 8 and 2t + 9 of 16. A chunk lies in one half of the 16; the
// lane whose chunk lies at the same place of the other half wants the other words of the same calls. Each makes half of
// the calls and they swap: one call per four pairs, as in the forward pass of flash2.
__device__ __forceinline__ void drop_of_chunk(uint4& chunk, int column, int row, int head, int batch, u64 seed,
                                              u32 threshold) {
    constexpr int CALLS = CHUNK_ELEMENTS / 4;
    const int half = column / 8 % 2;
    const int first = column / 16 * 4 + column % 8 / 2;  // of the groups of columns that the chunk touches
    bool kept[CHUNK_ELEMENTS];
#pragma unroll
    for (int call = 0; call < CALLS; call++) {
        u32 words[4] = {static_cast<u32>(first + half * CALLS + call), static_cast<u32>(row), static_cast<u32>(head),
                        static_cast<u32>(batch)};
        philox_4x32(words, seed);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool own = (half ? words[2 + i] : words[i]) >= threshold;
            const bool other = shfl_sync_bfly(half ? words[i] : words[2 + i], 8 / CHUNK_ELEMENTS) >= threshold;
            kept[2 * call + i] = half ? other : own;
            kept[2 * (CALLS + call) + i] = half ? own : other;
        }
    }
#if defined(ELEMENT_FP32)
    chunk = {kept[0] ? chunk.x : 0, kept[1] ? chunk.y : 0, kept[2] ? chunk.z : 0, kept[3] ? chunk.w : 0};
#else
    const auto pair = [](bool low, bool high) { return (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u); };
    chunk = {chunk.x & pair(kept[0], kept[1]), chunk.y & pair(kept[2], kept[3]), chunk.z & pair(kept[4], kept[5]),
             chunk.w & pair(kept[6], kept[7])};
#endif
}
