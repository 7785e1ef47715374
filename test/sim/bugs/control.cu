// test/sim/bugs/control.cu: mistakes with who comes where.
#include "gpu/cuda/simt.h"

#include "test/sim/bugs/bugs.h"

// A lane that has nothing to do leaves, and the others ask it for its value.
template <bool BUG> static __global__ void early(float *out, const float *in, int n) {
    int t = threadIdx.x;
    if (BUG && t >= n) return;
    float v = t < n ? in[t] : 0;
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);  // <lane_leaves>
    if (t == 0) out[0] = v;
}

bool lane_leaves(bool bug) {
    float sum, *in = device_floats(32, 1, 0), *out = device_floats(1, 0, 0);
    if (bug) K_LAUNCH(early<true>, 1, 32, 0, nullptr, out, in, 29);
    else K_LAUNCH(early<false>, 1, 32, 0, nullptr, out, in, 29);
    read_floats(&sum, out, 1);
    release(in), release(out);
    return sum == 29;
}

// Half of the block meets at a barrier that the other half never sees.
template <bool BUG> static __global__ void halves(float *out, const float *in) {
    K_SMEM(float, row, [64]);
    int t = threadIdx.x;
    row[t] = in[t];
    if (!BUG || t < 32) __syncthreads();  // <divergent_barrier>
    out[t] = row[t] + (BUG ? 0 : row[63 - t]);
    __syncthreads();  // <divergent_barrier>
}

bool divergent_barrier(bool bug) {
    float got[64], *in = device_floats(64, 0, 1), *out = device_floats(64, 0, 0);
    if (bug) K_LAUNCH(halves<true>, 1, 64, 0, nullptr, out, in);
    else K_LAUNCH(halves<false>, 1, 64, 0, nullptr, out, in);
    read_floats(got, out, 64);
    release(in), release(out);
    return bug || got[5] == 63;
}

// Some lanes wait at the block's barrier, the others wait for them in a shuffle.
template <bool BUG> static __global__ void crossed(float *out, const float *in) {
    int t = threadIdx.x;
    float v = in[t];
    if (!BUG || t % 32 < 16) __syncthreads();  // <stuck>
    v += __shfl_xor_sync(0xffffffffu, v, 16);  // <stuck>
    if (BUG && t % 32 >= 16) __syncthreads();
    out[t] = v;
}

bool stuck(bool bug) {
    float got[64], *in = device_floats(64, 1, 0), *out = device_floats(64, 0, 0);
    if (bug) K_LAUNCH(crossed<true>, 1, 64, 0, nullptr, out, in);
    else K_LAUNCH(crossed<false>, 1, 64, 0, nullptr, out, in);
    read_floats(got, out, 64);
    release(in), release(out);
    return got[0] == 2 && got[63] == 2;
}

// More than 48 KB of dynamic shared memory have to be asked for.
static __global__ void large(float *out, int n) {
    K_DYN_SMEM(float, room);
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = (float)i;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = room[n - 1];
}

bool too_much_shared(bool bug) {
    enum { FLOATS = 25000 };
    float got, *out = device_floats(1, 0, 0);
    if (!bug) (void)cudaFuncSetAttribute((const void *)large, cudaFuncAttributeMaxDynamicSharedMemorySize, FLOATS * 4);
    K_LAUNCH(large, 1, 64, FLOATS * 4, nullptr, out, FLOATS);
    read_floats(&got, out, 1);
    release(out);
    return got == FLOATS - 1;
}
