// gpu/cuda/sparse.cu: the largest elements of each chunk of what has gathered. A block takes a chunk. Digits of the
// elements' sizes are counted with integer atomics, whose order does not matter, and what is sent is put in order by
// counting what goes before it. All else is one IEEE operation after the other, so it gives the bits of the CPU.
#include "gpu/cuda/kernel.h"

enum { SPARSE_THREADS = 256, SPARSE_WARPS = SPARSE_THREADS / WARP, DIGIT_VALUES = 1 << 11 };

typedef struct sparse_in {
    float *velocity, *residual;
    const float *x;
    float momentum, by, back;  // the loss scale, and 1 / that, clipped
    bool nesterov;
} sparse_in;

typedef struct moved {
    float velocity, residual;
} moved;

// As gpu/cpu/kernel/sparse.c: move_on.
__device__ __forceinline__ moved move_on(const sparse_in &in, int64_t i) {
    float g = __fmul_rn(in.x[i], in.back);
    float u = __fadd_rn(__fmul_rn(in.momentum, in.velocity[i]), g);
    float d = in.nesterov ? __fadd_rn(g, __fmul_rn(in.momentum, u)) : u;
    moved m = {u, __fadd_rn(in.residual[i], d)};
    return m;
}

__device__ __forceinline__ uint32_t size_of_float(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// Which elements a chunk sends: those above `least`, and the first `ties` of those equal to it.
typedef struct chosen {
    uint32_t least;
    int ties;
    bool finite;  // all, and once they are scaled
} chosen;

// A digit of the k-th largest: its elements are counted by all threads, and one thread walks down from the highest.
__device__ __forceinline__ void choose_digit(const sparse_in &in, int64_t from, int64_t to, int shift, int bits,
                                             int *counts, uint32_t *most, chosen *which) {
    for (int v = threadIdx.x; v < DIGIT_VALUES; v += SPARSE_THREADS) counts[v] = 0;
    __syncthreads();
    uint32_t above = which->least >> (shift + bits), mask = (1u << bits) - 1;
    uint32_t largest = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += SPARSE_THREADS) {
        uint32_t size = size_of_float(move_on(in, i).residual);
        largest = size > largest ? size : largest;
        if (size >> (shift + bits) == above) atomicAdd(&counts[size >> shift & mask], 1);
    }
    atomicMax(most, largest);
    __syncthreads();
    if (threadIdx.x == 0) {
        which->finite = size_of_float(__fmul_rn(__uint_as_float(*most), in.by)) < 0x7f800000u;
        int at = (1 << bits) - 1;
        for (; counts[at] < which->ties; at--) which->ties -= counts[at];
        which->least |= (uint32_t)at << shift;
    }
    __syncthreads();
}

// How many of the block's elements up to here, this thread's not counted, are `is`, and how many there are in all.
__device__ __forceinline__ int before(bool is, int *room, int *all) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = 0;
    uint32_t votes = __ballot_sync(0xffffffffu, is);
    if (lane == 0) room[warp] = __popc(votes);
    __syncthreads();
    *all = 0;
    for (int w = 0; w < SPARSE_WARPS; w++) {
        if (w == warp) n = *all + __popc(votes & ((1u << lane) - 1));
        *all += room[w];
    }
    __syncthreads();
    return n;
}

// The chosen ones to the wire, in order; velocity and residual of all.
__device__ __forceinline__ void send_largest(const sparse_in &in, int64_t from, int64_t to, const chosen &which,
                                             int *room, float *value, uint16_t *index) {
    int larger = 0, equal = 0;  // so far
    for (int64_t row = from; row < to; row += SPARSE_THREADS) {
        int64_t i = row + threadIdx.x;
        moved m = {0.0f, 0.0f};
        if (i < to) m = move_on(in, i);
        uint32_t size = size_of_float(m.residual);
        bool above = i < to && size > which.least, level = i < to && size == which.least;
        int all_larger, all_equal;
        int a = larger + before(above, room, &all_larger), e = equal + before(level, room, &all_equal);
        bool goes = above || (level && e < which.ties);
        int at = a + (e < which.ties ? e : which.ties);
        if (goes) value[at] = __fmul_rn(m.residual, in.by), index[at] = (uint16_t)(i - from);
        if (i < to) in.velocity[i] = goes ? 0.0f : m.velocity, in.residual[i] = goes ? 0.0f : m.residual;
        larger += all_larger, equal += all_equal;
    }
}

// What a chunk sends of the `total` that all chunks do: the last one sends the rest.
__device__ __forceinline__ int of_chunk(int64_t total, int64_t kept) {
    int64_t rest = total - blockIdx.x * kept;
    return (int)(rest < kept ? rest : kept);
}

// What fills up values and indices.
__device__ __forceinline__ void write_ends(float *values, uint16_t *indices, int64_t count) {
    int64_t i = count + threadIdx.x;
    if (i < (count + 3) / 4 * 4) values[i] = 0.0f;
    if (i < (count + 7) / 8 * 8) indices[i] = 0;
}

// encode_sparse: a chunk is read four times, but for the first time from a cache.
// alias      none
// repeatable integer atomics only
// moves      20 bytes an element, and 6 for each that is sent; memory bound
// reference  gpu/cpu/kernel/sparse.c, to the bit
__global__ void __launch_bounds__(SPARSE_THREADS)
    encode_sparse_kernel(float *values, uint16_t *indices, sparse_in in, int64_t count, int64_t kept, int64_t total,
                         const step_state *state, const step_state *clip) {
    K_SMEM(int, counts, [DIGIT_VALUES]);
    K_SMEM(int, room, [SPARSE_WARPS]);
    K_SMEM(uint32_t, most, [1]);
    K_SMEM(chosen, which, [1]);
    int64_t from = (int64_t)blockIdx.x * CHUNK, to = from + CHUNK < count ? from + CHUNK : count;
    int k = of_chunk(total, kept);
    float *value = values + blockIdx.x * kept;
    uint16_t *index = indices + blockIdx.x * kept;
    in.by = state ? state->loss_scale : 1.0f, in.back = clip ? clip->grad_factor : 1.0f / in.by;
    if (threadIdx.x == 0) most[0] = 0, which[0].least = 0, which[0].ties = k, which[0].finite = true;
    if (blockIdx.x == gridDim.x - 1) write_ends(values, indices, total);
    choose_digit(in, from, to, 20, 11, counts, most, which);
    choose_digit(in, from, to, 10, 10, counts, most, which);
    choose_digit(in, from, to, 0, 10, counts, most, which);
    if (which[0].finite) {
        send_largest(in, from, to, which[0], room, value, index);
        return;
    }
    for (int i = threadIdx.x; i < k; i += SPARSE_THREADS) value[i] = NAN, index[i] = (uint16_t)i;
}

err_t cuda_encode_sparse(const encode_sparse_args *args, stream *s) {
    int64_t n = tensor_count(args->x);
    assert(args->x->type == FP32 && args->velocity->type == FP32 && args->residual->type == FP32);
    assert(tensor_count(args->velocity) == n && tensor_count(args->residual) == n);
    assert(args->kept >= 1 && args->kept <= CHUNK);
    assert((size_t)tensor_count(args->wire) == sparse_bytes(n, args->kept));
    char *wire = (char *)args->wire->data;
    sparse_in in = {(float *)args->velocity->data,
                    (float *)args->residual->data,
                    (const float *)args->x->data,
                    args->momentum,
                    1.0f,
                    1.0f,
                    args->nesterov};
    LAUNCH(encode_sparse_kernel, (unsigned)ceil_div(n, CHUNK), SPARSE_THREADS, 0, s, (float *)wire,
           (uint16_t *)(wire + sparse_values(n, args->kept)), in, n, args->kept, sparse_kept(n, args->kept),
           args->state, args->clip);
    return ERR_OK;
}

// decode_sparse: a block a chunk, whose indices differ.
// alias      none
// moves      8 bytes for each element that was sent, and the wire; memory bound
// reference  gpu/cpu/kernel/sparse.c, to the bit
__global__ void __launch_bounds__(SPARSE_THREADS)
    decode_sparse_kernel(float *y, const float *values, const uint16_t *indices, int64_t n, int64_t kept,
                         int64_t total) {
    int64_t from = (int64_t)blockIdx.x * CHUNK, first = blockIdx.x * kept, end = first + of_chunk(total, kept);
    for (int64_t i = first + threadIdx.x; i < end; i += SPARSE_THREADS) {
        if (indices[i] >= CHUNK || from + indices[i] >= n) continue;
        float *to = &y[from + indices[i]];
        *to = __fadd_rn(*to, values[i]);
    }
}

err_t cuda_decode_sparse(const decode_sparse_args *args, stream *s) {
    int64_t n = tensor_count(args->y);
    assert(args->y->type == FP32 && args->kept >= 1 && args->kept <= CHUNK);
    assert((size_t)tensor_count(args->wire) == sparse_bytes(n, args->kept));
    const char *wire = (const char *)args->wire->data;
    LAUNCH(decode_sparse_kernel, (unsigned)ceil_div(n, CHUNK), SPARSE_THREADS, 0, s, (float *)args->y->data,
           (const float *)wire, (const uint16_t *)(wire + sparse_values(n, args->kept)), n, args->kept,
           sparse_kept(n, args->kept));
    return ERR_OK;
}
