// Masks and dropout of tiles of Sᵀ, whose rows are keys: what the kernels that own K/V tiles share. Of an mma tile a
// lane holds, with t = lane % 4, keys lane / 4 (elements 0, 1) and lane / 4 + 8 (2, 3) of queries 2t and 2t + 1.
#pragma once
#include "philox.cuh"
#include "tile.cuh"

// Hides what is outside of a window: query i sees keys i + oldest ... i + newest, where that side has a limit, and with
// END none from seq_kv on. The tile begins at key `key0` and query `m0 + strip` (apart, and with the lane, so that
// the kernel shares what it computes of them); only tiles that an edge crosses are looked through.
template <bool OLDEST, bool NEWEST, bool END, int N_TILES, int M_TILES>
__device__ __forceinline__ void mask_transposed(float (&s)[N_TILES][M_TILES][4], int key0, int m0, int strip,
                                                int lane, int oldest, int newest, int seq_kv) {
    constexpr int KEYS = N_TILES * 16, QUERIES = M_TILES * 8;
    if ((END && key0 + KEYS - 1 >= seq_kv) || (NEWEST && key0 + KEYS - 1 > m0 + strip + newest) ||
        (OLDEST && key0 < m0 + strip + QUERIES - 1 + oldest)) {
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                // First and last column that see the key, counted from this lane's.
                const int key = key0 + n * 16 + half * 8 + lane / 4;
                const int seen = NEWEST ? key - newest - m0 - strip - lane % 4 * 2 : 0;
                const int first = !END || key < seq_kv ? seen : QUERIES;
                const int last = OLDEST ? key - oldest - m0 - strip - lane % 4 * 2 : QUERIES;
#pragma unroll
                for (int m = 0; m < M_TILES; m++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        if (m * 8 + i < first || (OLDEST && m * 8 + i > last)) s[n][m][2 * half + i] = -infinity();
            }
    }
}

// Negates those probabilities that are dropped: they are not negative, so that their sign is free to say so. The tile
// begins at `key0` (a multiple of 16) and `query0`.
//
// Keys are the columns of philox.cuh: lane / 4 = 2g + b and lane / 4 + 8 are words b and b + 2 of group g. Lanes that
// differ in b alone share the group and both queries, so each makes the words of one query and hands over the half that
// the other needs: one call serves four pairs, as in the forward pass.
template <int N_TILES, int M_TILES>
__device__ __forceinline__ void mark_dropped(float (&p)[N_TILES][M_TILES][4], int key0, int query0, int head, int batch,
                                             u64 seed, u32 threshold) {
    const int lane = threadIdx.x % WARP_SIZE;
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
            u32 words[4] = {static_cast<u32>((key0 + n * 16) / 4 + lane / 8),
                            static_cast<u32>(query0 + m * 8 + lane % 4 * 2 + odd), static_cast<u32>(head),
                            static_cast<u32>(batch)};
            philox_4x32(words, seed);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 own = odd ? words[2 * half + 1] : words[2 * half];
                const u32 other = shfl_sync_bfly(odd ? words[2 * half] : words[2 * half + 1], 4);
                float& even_query = p[n][m][2 * half];
                float& odd_query = p[n][m][2 * half + 1];
                even_query = (odd ? other : own) < threshold ? -even_query : even_query;
                odd_query = (odd ? own : other) < threshold ? -odd_query : odd_query;
            }
        }
}

// `pack_a` of what is kept of two marked tiles.
__device__ __forceinline__ void pack_kept(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    float kept[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        kept[0][i] = fmaxf(left[i], 0.f);
        kept[1][i] = fmaxf(right[i], 0.f);
    }
    pack_a(a, kept[0], kept[1]);
}

// dP - delta from the products dO·V: dP is 0 where the mark on P says dropped, else scaled. The marks go. `delta_row`
// is the place in shared memory of -delta of a lane's first query.
template <int N_TILES, int M_TILES>
__device__ __forceinline__ void drop_gradient(float (&dp)[N_TILES][M_TILES][4], float (&p)[N_TILES][M_TILES][4],
                                              u32 delta_row, float keep_scale) {
#pragma unroll
    for (int m = 0; m < M_TILES; m++) {
        const float2 minus_delta = ld_shared_v2_f32(delta_row + m * 8 * sizeof(float));
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float kept = p[n][m][i] < 0.f ? 0.f : dp[n][m][i];
                dp[n][m][i] = fmaf(kept, keep_scale, i % 2 == 0 ? minus_delta.x : minus_delta.y);
                p[n][m][i] = fabsf(p[n][m][i]);
            }
    }
}
