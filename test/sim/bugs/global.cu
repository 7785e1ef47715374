// test/sim/bugs/global.cu: mistakes with global memory.
#include "gpu/cuda/simt.h"

#include "test/sim/bugs/bugs.h"

// All threads of a block add to one number.
template <bool BUG> static __global__ void add_threads(float *out, const float *in) {
    if (BUG) out[0] += in[threadIdx.x];  // <threads_add>
    else atomicAdd(&out[0], in[threadIdx.x]);
}

bool threads_add(bool bug) {
    float sum, *in = device_floats(64, 1, 0), *out = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(add_threads<true>, 1, 64, 0, nullptr, out, in);
    else K_LAUNCH(add_threads<false>, 1, 64, 0, nullptr, out, in);
    read_floats(&sum, out, 1);
    release(in), release(out);
    return sum == 64;
}

// All blocks add to one number.
template <bool BUG> static __global__ void add_blocks(float *out, const float *in) {
    if (threadIdx.x) return;
    if (BUG) out[0] += in[blockIdx.x];  // <blocks_add>
    else atomicAdd(&out[0], in[blockIdx.x]);
}

bool blocks_add(bool bug) {
    float sum, *in = device_floats(8, 1, 0), *out = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(add_blocks<true>, 8, 32, 0, nullptr, out, in);
    else K_LAUNCH(add_blocks<false>, 8, 32, 0, nullptr, out, in);
    read_floats(&sum, out, 1);
    release(in), release(out);
    return sum == 8;
}

// The last block to come adds what all have stored: a fence must stand before the ticket.
template <bool BUG> static __global__ void last_adds(float *out, float *part, unsigned *ticket, const float *in) {
    K_SMEM(int, last, [1]);
    int blocks = gridDim.x;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = 2 * in[blockIdx.x];  // <missing_fence>
        if (!BUG) __threadfence();
        last[0] = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last[0] || threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < blocks; i++) sum += part[i];  // <missing_fence>
    out[0] = sum;
}

bool missing_fence(bool bug) {
    float sum, *in = device_floats(8, 1, 0), *out = device_floats(1, 0, 0), *part = device_floats(8, 0, 0),
               *ticket = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(last_adds<true>, 8, 32, 0, nullptr, out, part, (unsigned *)ticket, in);
    else K_LAUNCH(last_adds<false>, 8, 32, 0, nullptr, out, part, (unsigned *)ticket, in);
    read_floats(&sum, out, 1);
    release(in), release(out), release(part), release(ticket);
    return sum == 16;
}

// A grid larger than the array.
template <bool BUG> static __global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (BUG ? i <= n : i < n) x[i] *= 2;  // <global_past_end>
}

bool global_past_end(bool bug) {
    enum { N = 1000 };
    float got[N], *x = device_floats(N, 0, 1);
    if (bug) K_LAUNCH(scale<true>, 4, 256, 0, nullptr, x, N);
    else K_LAUNCH(scale<false>, 4, 256, 0, nullptr, x, N);
    read_floats(got, x, N);
    release(x);
    return got[0] == 0 && got[N - 1] == 2 * (N - 1);
}

// 16 bytes from an address that has 4.
static __global__ void wide(float4 *y, const float *x) {
    y[threadIdx.x] = *(const float4 *)(x + 4 * threadIdx.x);  // <misaligned>
}

bool misaligned(bool bug) {
    float got[128], *x = device_floats(132, 0, 1), *y = device_floats(128, 0, 0);
    K_LAUNCH(wide, 1, 32, 0, nullptr, (float4 *)y, x + bug);
    read_floats(got, y, 128);
    release(x), release(y);
    return got[127] == (float)(127 + bug);
}
