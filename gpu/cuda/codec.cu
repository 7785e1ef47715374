// gpu/cuda/codec.cu: gradients in fewer bits, chunk by chunk. A block takes a chunk. All it does to an element is one
// IEEE operation after the other, and the largest of a span has no order, so it gives the bits of the CPU.
#include "gpu/cuda/kernel.h"

#include <float.h>

enum { CODEC_THREADS = 256 };

typedef struct span_scale {
    float scale, inverse;
} span_scale;

// As gpu/cpu/kernel/codec.c: scale_of.
__device__ __forceinline__ span_scale scale_of(codec c, uint32_t most) {
    float m = __uint_as_float(most);
    span_scale of = {NAN, 0.0f};
    if (most > 0x7f7fffffu) return of;
    of.scale = of.inverse = 0.0f;
    if (m < CODEC_LEAST) return of;
    if (c == CODEC_INT8) {
        of.scale = m / 127.0f, of.inverse = 127.0f / m;
        return of;
    }
    if (c == CODEC_INT4) {
        of.scale = m / 7.0f, of.inverse = 7.0f / m;
        return of;
    }
    uint32_t power = most & 0x7f800000u;
    of.scale = __uint_as_float(power - (14u << 23)), of.inverse = __uint_as_float((268u << 23) - power);
    return of;
}

// The largest of a warp, on all threads.
__device__ __forceinline__ uint32_t warp_most(uint32_t v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, v, step);
        v = other > v ? other : v;
    }
    return v;
}

// The largest of a block, on all threads. `room` is shared memory for a number of each warp.
__device__ __forceinline__ uint32_t block_most(uint32_t v, uint32_t *room) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_most(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = 0;
#pragma unroll
    for (int k = 0; k < CODEC_THREADS / WARP; k++) v = room[k] > v ? room[k] : v;
    return v;
}

template <codec C> struct coded;
template <> struct coded<CODEC_INT8> { typedef int8_t type; };
template <> struct coded<CODEC_FP16> { typedef fp16 type; };

__device__ __forceinline__ float to_code(int8_t *code, float scaled) {
    int whole = __float2int_rn(scaled);
    *code = (int8_t)whole;
    return (float)whole;
}
__device__ __forceinline__ float to_code(fp16 *code, float scaled) {
    *code = __float2half_rn(scaled);
    return __half2float(*code);
}
__device__ __forceinline__ float of_code(int8_t code) { return (float)code; }
__device__ __forceinline__ float of_code(fp16 code) { return __half2float(code); }

// What fills up scales and codes, after so many of each, the latter in bytes.
__device__ __forceinline__ void write_ends(float *scales, int64_t count, uint8_t *codes, int64_t bytes) {
    constexpr int64_t SCALES = 16 / sizeof(float), CODES = 16;
    int64_t scale = count + threadIdx.x, code = bytes + threadIdx.x;
    if (scale < (count + SCALES - 1) / SCALES * SCALES) scales[scale] = 0.0f;
    if (code < (bytes + CODES - 1) / CODES * CODES) codes[code] = 0;
}

// encode: the chunk is read twice, the second time from a cache.
// alias      none
// moves      13 or 14 bytes an element; memory bound
// reference  gpu/cpu/kernel/codec.c, to the bit
template <codec C>
__global__ void __launch_bounds__(CODEC_THREADS)
    encode_kernel(float *scales, typename coded<C>::type *codes, float *residual, const float *x, int64_t count,
                  const step_state *state) {
    K_SMEM(uint32_t, room, [CODEC_THREADS / WARP]);
    int64_t from = (int64_t)blockIdx.x * CHUNK, to = from + CHUNK < count ? from + CHUNK : count;
    float by = state ? state->loss_scale : 1.0f, back = 1.0f / by;
    uint32_t most = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += CODEC_THREADS) {
        uint32_t size = __float_as_uint(__fadd_rn(x[i], __fmul_rn(residual[i], by))) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    span_scale of = scale_of(C, block_most(most, room));
    if (threadIdx.x == 0) scales[blockIdx.x] = of.scale;
    if (blockIdx.x == gridDim.x - 1) write_ends(scales, gridDim.x, (uint8_t *)codes, count * (int64_t)sizeof *codes);
    for (int64_t i = from + threadIdx.x; i < to; i += CODEC_THREADS) {
        float v = __fadd_rn(x[i], __fmul_rn(residual[i], by));
        bool finite = of.scale == of.scale;
        float code = to_code(&codes[i], finite ? __fmul_rn(v, of.inverse) : 0.0f);
        if (finite) residual[i] = __fmul_rn(__fsub_rn(v, __fmul_rn(code, of.scale)), back);
    }
}

// encode INT4: a warp takes spans, each thread two neighbours of one, which share a byte.
// alias      none
// moves      12.6 bytes an element; memory bound
// reference  gpu/cpu/kernel/codec.c, to the bit
__global__ void __launch_bounds__(CODEC_THREADS)
    encode_int4_kernel(float *scales, uint8_t *codes, float *residual, const float *x, int64_t count,
                       const step_state *state) {
    constexpr int WARPS = CODEC_THREADS / WARP;
    static_assert(CODEC_INT4_SPAN == 2 * WARP, "a thread has two elements");
    int64_t end = (int64_t)(blockIdx.x + 1) * CHUNK;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float by = state ? state->loss_scale : 1.0f, back = 1.0f / by;
    if (end > count) end = count;
    for (int64_t from = (int64_t)blockIdx.x * CHUNK + warp * CODEC_INT4_SPAN; from < end;
         from += WARPS * CODEC_INT4_SPAN) {
        float v[2] = {0.0f, 0.0f};
        uint32_t most = 0, byte = 0;
        int64_t i = from + 2 * lane;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (i + k < end) v[k] = __fadd_rn(x[i + k], __fmul_rn(residual[i + k], by));
            uint32_t size = __float_as_uint(v[k]) & 0x7fffffffu;
            most = size > most ? size : most;
        }
        span_scale of = scale_of(CODEC_INT4, warp_most(most));
        if (lane == 0) scales[from / CODEC_INT4_SPAN] = of.scale;
        bool finite = of.scale == of.scale;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int whole = finite ? __float2int_rn(__fmul_rn(v[k], of.inverse)) : 0;
            byte |= ((uint32_t)whole & 15u) << 4 * k;
            if (finite && i + k < end)
                residual[i + k] = __fmul_rn(__fsub_rn(v[k], __fmul_rn((float)whole, of.scale)), back);
        }
        if (i < end) codes[i / 2] = (uint8_t)byte;
    }
    if (blockIdx.x == gridDim.x - 1)
        write_ends(scales, (count + CODEC_INT4_SPAN - 1) / CODEC_INT4_SPAN, codes, (count + 1) / 2);
}

static err_t encode_int4(const encode_args *args, int64_t n, stream *s) {
    char *wire = (char *)args->wire->data;
    LAUNCH(encode_int4_kernel, (unsigned)ceil_div(n, CHUNK), CODEC_THREADS, 0, s, (float *)wire,
           (uint8_t *)(wire + codec_scales(CODEC_INT4, n)), (float *)args->residual->data, (const float *)args->x->data,
           n, args->state);
    return ERR_OK;
}

template <codec C> static err_t encode_as(const encode_args *args, int64_t n, stream *s) {
    char *wire = (char *)args->wire->data;
    LAUNCH((encode_kernel<C>), (unsigned)ceil_div(n, CHUNK), CODEC_THREADS, 0, s, (float *)wire,
           (typename coded<C>::type *)(wire + codec_scales(C, n)), (float *)args->residual->data,
           (const float *)args->x->data, n, args->state);
    return ERR_OK;
}

err_t cuda_encode(const encode_args *args, stream *s) {
    int64_t n = tensor_count(args->x);
    assert(args->codec != CODEC_NONE && args->x->type == FP32 && args->residual->type == FP32);
    assert(tensor_count(args->residual) == n && (size_t)tensor_count(args->wire) == codec_bytes(args->codec, n));
    if (args->codec == CODEC_INT4) return encode_int4(args, n, s);
    return args->codec == CODEC_INT8 ? encode_as<CODEC_INT8>(args, n, s) : encode_as<CODEC_FP16>(args, n, s);
}

// decode: a thread an element of a chunk after the other.
// alias      none
// moves      a code, and 4 bytes an element, 8 where it adds; memory bound
// reference  gpu/cpu/kernel/codec.c, to the bit
template <codec C>
__global__ void __launch_bounds__(CODEC_THREADS)
    decode_kernel(float *y, const float *scales, const typename coded<C>::type *codes, int64_t count, bool add) {
    int64_t from = (int64_t)blockIdx.x * CHUNK, to = from + CHUNK < count ? from + CHUNK : count;
    float scale = scales[blockIdx.x];
    for (int64_t i = from + threadIdx.x; i < to; i += CODEC_THREADS) {
        float u = __fmul_rn(of_code(codes[i]), scale);
        y[i] = add ? __fadd_rn(y[i], u) : u;
    }
}

__global__ void __launch_bounds__(CODEC_THREADS)
    decode_int4_kernel(float *y, const float *scales, const int8_t *codes, int64_t count, bool add) {
    int64_t from = (int64_t)blockIdx.x * CHUNK, to = from + CHUNK < count ? from + CHUNK : count;
    for (int64_t i = from + threadIdx.x; i < to; i += CODEC_THREADS) {
        int pair = codes[i / 2], code = i % 2 ? pair >> 4 : ((pair & 15) ^ 8) - 8;
        float u = __fmul_rn((float)code, scales[i / CODEC_INT4_SPAN]);
        y[i] = add ? __fadd_rn(y[i], u) : u;
    }
}

static err_t decode_int4(const decode_args *args, int64_t n, stream *s) {
    const char *wire = (const char *)args->wire->data;
    LAUNCH(decode_int4_kernel, (unsigned)ceil_div(n, CHUNK), CODEC_THREADS, 0, s, (float *)args->y->data,
           (const float *)wire, (const int8_t *)(wire + codec_scales(CODEC_INT4, n)), n, args->add);
    return ERR_OK;
}

template <codec C> static err_t decode_as(const decode_args *args, int64_t n, stream *s) {
    const char *wire = (const char *)args->wire->data;
    LAUNCH((decode_kernel<C>), (unsigned)ceil_div(n, CHUNK), CODEC_THREADS, 0, s, (float *)args->y->data,
           (const float *)wire, (const typename coded<C>::type *)(wire + codec_scales(C, n)), n, args->add);
    return ERR_OK;
}

err_t cuda_decode(const decode_args *args, stream *s) {
    int64_t n = tensor_count(args->y);
    assert(args->codec != CODEC_NONE && args->y->type == FP32);
    assert((size_t)tensor_count(args->wire) == codec_bytes(args->codec, n));
    if (args->codec == CODEC_INT4) return decode_int4(args, n, s);
    return args->codec == CODEC_INT8 ? decode_as<CODEC_INT8>(args, n, s) : decode_as<CODEC_FP16>(args, n, s);
}
