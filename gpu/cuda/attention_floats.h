// gpu/cuda/attention_floats.h: products of tiles by plain FMA, for attention in FP32: a warp owns R rows, shared by all
// of its lanes. Where scores are made, each lane has one of the 32 rows of the moving tile; where rows are summed, each
// lane has columns. Scores reach the other lanes through shared memory, (32,R) for each warp. Rows of the moving tile
// are padded by 4 floats: the 16 bytes that eight lanes read from as many rows are then in different banks.
#ifndef GPU_CUDA_ATTENTION_FLOATS_H
#define GPU_CUDA_ATTENTION_FLOATS_H

#include "gpu/cuda/attention.h"

enum { PASS = WARP };  // rows of a moving tile

// tile (ROWS,LD) = rows of `head` elements at `stride`, `left` of them; zeros after them, up to W columns.
template <int W, int LD, int ROWS, class T>
__device__ __forceinline__ void floats_load(float *tile, const T *from, int64_t stride, int left, int head, bool wide) {
    for (int i = threadIdx.x; i < ROWS * (W / 4); i += ATT_THREADS) {
        int row = i / (W / 4), col = i % (W / 4) * 4;
        const T *at = from + row * stride + col;
        float4 x = {0, 0, 0, 0};
        if (row < left && wide && col < head) load_floats<4>(&x.x, at);
        if (row < left && !wide) {
            if (col < head) x.x = to_float(at[0]);
            if (col + 1 < head) x.y = to_float(at[1]);
            if (col + 2 < head) x.z = to_float(at[2]);
            if (col + 3 < head) x.w = to_float(at[3]);
        }
        *reinterpret_cast<float4 *>(tile + row * LD + col) = x;
    }
}

// s[r] = row r of own (R,W) times the lane's row of pass (32,W+4), one chain of FMA along W.
template <int W, int R>
__device__ __forceinline__ void floats_scores(float (&s)[R], const float *own, const float *pass) {
    const float *mine = pass + threadIdx.x % WARP * (W + 4);
#pragma unroll
    for (int r = 0; r < R; r++) s[r] = 0;
#pragma unroll 4
    for (int d = 0; d < W; d += 4) {
        float4 b = *reinterpret_cast<const float4 *>(mine + d);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float4 a = *reinterpret_cast<const float4 *>(own + r * W + d);
            s[r] = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, s[r]))));
        }
    }
}

// sum[r][c], column lane + 32 c of row r, += s (R rows, 32 lanes) times pass (32,W+4); mid (32,R) is the warp's own
// shared memory.
template <int W, int R>
__device__ __forceinline__ void floats_add(float (&sum)[R][W / WARP], const float (&s)[R], float *mid,
                                           const float *pass) {
    int lane = threadIdx.x % WARP;
    __syncwarp();
#pragma unroll
    for (int r = 0; r < R; r++) mid[lane * R + r] = s[r];
    __syncwarp();
#pragma unroll 2
    for (int j = 0; j < PASS; j++)
#pragma unroll
        for (int c = 0; c < W / WARP; c++) {
            float x = pass[j * (W + 4) + lane + c * WARP];
#pragma unroll
            for (int r = 0; r < R; r++) sum[r][c] = fmaf(mid[j * R + r], x, sum[r][c]);
        }
}

template <int W, int R, class T>
__device__ __forceinline__ void floats_store(T *to, int64_t stride, int left, const float (&sum)[R][W / WARP],
                                             float factor, int row, int head) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < W / WARP; c++) {
            int col = threadIdx.x % WARP + c * WARP;
            if (row + r < left && col < head) round_to(&to[(row + r) * stride + col], sum[r][c] * factor);
        }
}

#endif
