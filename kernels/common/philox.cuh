// Philox-4x32-10 (J. Salmon et al., SC 2011): four random words of a counter, without state. What dropout does to a
// pair follows from where the pair stands, so that every tile shape and every pass drops the same.
#pragma once
#include "ptx.cuh"

using u64 = unsigned long long;

// The words of counter (c[0], c[1], c[2], c[3]) under a 64-bit key.
__device__ __forceinline__ void philox_4x32(u32 (&c)[4], u64 key) {
    u32 low = static_cast<u32>(key), high = static_cast<u32>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 first = static_cast<u64>(c[0]) * 0xd2511f53u;
        const u64 second = static_cast<u64>(c[2]) * 0xcd9e8d57u;
        c[0] = static_cast<u32>(second >> 32) ^ c[1] ^ low;
        c[1] = static_cast<u32>(second);
        c[2] = static_cast<u32>(first >> 32) ^ c[3] ^ high;
        c[3] = static_cast<u32>(first);
        low += 0x9e3779b9u;
        high += 0xbb67ae85u;
    }
}

// Zeroes those of a lane's four probabilities of one row that are dropped: columns 2t, 2t + 1, 2t + 8 and 2t + 9 of
// the 16 columns from `column` on (a multiple of 16), t = lane % 4, as two mma accumulators hold them.
__device__ __forceinline__ void drop(float& p0, float& p1, float& p8, float& p9, int column, int row, int head,
                                     int batch, u64 seed, u32 threshold) {
    u32 words[4] = {static_cast<u32>(column / 4 + threadIdx.x % 4), static_cast<u32>(row), static_cast<u32>(head),
                    static_cast<u32>(batch)};
    philox_4x32(words, seed);
    p0 = words[0] < threshold ? 0.f : p0;
    p1 = words[1] < threshold ? 0.f : p1;
    p8 = words[2] < threshold ? 0.f : p8;
    p9 = words[3] < threshold ? 0.f : p9;
}
