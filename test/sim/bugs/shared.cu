// test/sim/bugs/shared.cu: mistakes with shared memory.
#include "gpu/cuda/simt.h"

#include "test/sim/bugs/bugs.h"

enum { N = 256 };

// A sum by halving. Without the barrier a thread adds what its partner has not yet stored.
template <bool BUG> static __global__ void halving(float *out, const float *in) {
    K_SMEM(float, part, [N]);
    int t = threadIdx.x;
    part[t] = in[t];  // <missing_barrier>
    if (!BUG) __syncthreads();
    for (int half = N / 2; half; half /= 2) {
        if (t < half) part[t] += part[t + half];  // <missing_barrier>
        __syncthreads();
    }
    if (t == 0) out[0] = part[0];
}

bool missing_barrier(bool bug) {
    float sum, *in = device_floats(N, 1, 1), *out = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(halving<true>, 1, N, 0, nullptr, out, in);
    else K_LAUNCH(halving<false>, 1, N, 0, nullptr, out, in);
    read_floats(&sum, out, 1);
    release(in), release(out);
    return sum == N * (N + 1) / 2;
}

// Lanes read what other lanes of their warp stored.
template <bool BUG> static __global__ void reverse(float *out, const float *in) {
    K_SMEM(float, lane, [32]);
    int t = threadIdx.x;
    lane[t] = in[t];  // <missing_syncwarp>
    if (!BUG) __syncwarp();
    out[t] = lane[31 - t];  // <missing_syncwarp>
}

bool missing_syncwarp(bool bug) {
    bool right = true;
    float got[32], *in = device_floats(32, 0, 1), *out = device_floats(32, 0, 0);
    if (bug) K_LAUNCH(reverse<true>, 1, 32, 0, nullptr, out, in);
    else K_LAUNCH(reverse<false>, 1, 32, 0, nullptr, out, in);
    read_floats(got, out, 32);
    for (int i = 0; i < 32; i++) right = right && got[i] == (float)(31 - i);
    release(in), release(out);
    return right;
}

// A word that one thread writes whole and two others by halves: next to each other they do not meet, over what the
// first wrote they do.
typedef uint32_t __attribute__((may_alias)) whole;

template <bool BUG> static __global__ void halved(float *out, const float *in) {
    K_SMEM(uint16_t, half, [2 * N]);
    int t = threadIdx.x, next = (t + 32) % N;  // of another warp
    half[2 * t] = 1, half[2 * next + 1] = 2;
    __syncthreads();
    ((whole *)half)[t] = (whole)in[t] << 16 | (whole)in[t];  // <halves_of_words>
    if (!BUG) __syncthreads();
    uint16_t was = half[2 * next + 1];  // <halves_of_words>
    __syncthreads();
    half[2 * t] = was, half[2 * next + 1] = was;
    __syncthreads();
    whole both = ((whole *)half)[(t + 64) % N];
    out[t] = (float)(both >> 16) + (float)(both & 0xffff);
}

bool halves_of_words(bool bug) {
    bool right = true;
    float got[N], *in = device_floats(N, 0, 1), *out = device_floats(N, 0, 0);
    if (bug) K_LAUNCH(halved<true>, 1, N, 0, nullptr, out, in);
    else K_LAUNCH(halved<false>, 1, N, 0, nullptr, out, in);
    read_floats(got, out, N);
    for (int i = 0; i < N; i++) right = right && got[i] == (float)((i + 96) % N + (i + 64) % N);
    release(in), release(out);
    return right;
}

// A guard element that is not there.
template <bool BUG> static __global__ void guarded(float *out, const float *in) {
    K_SMEM(float, row, [64]);
    int t = threadIdx.x;
    row[t + BUG] = in[t];  // <shared_past_end>
    __syncthreads();
    out[t] = row[(t + 1) % 64];
}

bool shared_past_end(bool bug) {
    float got[64], *in = device_floats(64, 0, 1), *out = device_floats(64, 0, 0);
    if (bug) K_LAUNCH(guarded<true>, 1, 64, 0, nullptr, out, in);
    else K_LAUNCH(guarded<false>, 1, 64, 0, nullptr, out, in);
    read_floats(got, out, 64);
    release(in), release(out);
    return bug || (got[0] == 1 && got[63] == 0);
}

// A sum that nobody set to zero.
template <bool BUG> static __global__ void unset(float *out, const float *in) {
    K_SMEM(float, sum, [1]);
    if (!BUG && threadIdx.x == 0) sum[0] = 0;
    __syncthreads();
    atomicAdd(&sum[0], in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum[0];
}

bool uninitialised_shared(bool bug) {
    float sum, *in = device_floats(64, 1, 0), *out = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(unset<true>, 1, 64, 0, nullptr, out, in);
    else K_LAUNCH(unset<false>, 1, 64, 0, nullptr, out, in);
    read_floats(&sum, out, 1);
    release(in), release(out);
    return sum == 64;
}

// Two buffers take turns; without the barrier at the end a fast warp fills the buffer that a slow one still reads.
template <bool BUG> static __global__ void buffers(float *out, const float *in, int tiles) {
    K_SMEM(float, tile, [2][64]);
    int t = threadIdx.x;
    float sum = 0;
    tile[0][t] = in[t];
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) tile[(i + 1) % 2][t] = in[(i + 1) * 64 + t];  // <double_buffer>
        sum += (float)(i + 1) * tile[i % 2][63 - t];                     // <double_buffer>
        if (!BUG || i == 0) __syncthreads();
    }
    out[t] = sum;
}

bool double_buffer(bool bug) {
    enum { TILES = 5 };
    bool right = true;
    float got[64], *in = device_floats(64 * TILES, 0, 1), *out = device_floats(64, 0, 0);
    if (bug) K_LAUNCH(buffers<true>, 1, 64, 0, nullptr, out, in, TILES);
    else K_LAUNCH(buffers<false>, 1, 64, 0, nullptr, out, in, TILES);
    read_floats(got, out, 64);
    for (int t = 0; t < 64; t++) {
        float sum = 0;
        for (int i = 0; i < TILES; i++) sum += (float)(i + 1) * (float)(i * 64 + 63 - t);
        right = right && got[t] == sum;
    }
    release(in), release(out);
    return right;
}

// An asynchronous copy that is used before it has come.
template <bool BUG> static __global__ void copied(float *out, const float *in) {
    K_SMEM(float, tile, [2][128]);
    int t = threadIdx.x;
    dev_cp_async16(&tile[0][4 * t], &in[4 * t]);  // <missing_copy_wait>
    dev_cp_async_commit();
    dev_cp_async16(&tile[1][4 * t], &in[128 + 4 * t], t < 31 ? 16 : 4);  // <missing_copy_wait>
    dev_cp_async_commit();
    dev_cp_async_wait<BUG ? 1 : 0>();
    __syncthreads();
    for (int i = t; i < 128; i += 32) out[i] = tile[0][i] + tile[1][i];  // <missing_copy_wait>
    dev_cp_async_wait<0>();
}

bool missing_copy_wait(bool bug) {
    bool right = true;
    float got[128], *in = device_floats(256, 0, 1), *out = device_floats(128, 0, 0);
    if (bug) K_LAUNCH(copied<true>, 1, 32, 0, nullptr, out, in);
    else K_LAUNCH(copied<false>, 1, 32, 0, nullptr, out, in);
    read_floats(got, out, 128);
    for (int i = 0; i < 128; i++) right = right && got[i] == (float)(i + (i <= 124 ? 128 + i : 0));
    release(in), release(out);
    return right;
}
