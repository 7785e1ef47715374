// gpu/cuda/elementwise.cu: operations whose elements are independent: add, GELU, tanh, ReLU, cast, dropout. Each thread
// takes 16 bytes of the narrower type and reads and writes them in 16-byte accesses; where an address is not a multiple
// of 16 bytes, one element.
#include "gpu/cuda/columns.h"

enum { BLOCK = 256 };

// --- add, gelu, tanh, relu, cast -------------------------------------------------------------------------------------

typedef enum each_op {
    EACH_ADD,
    EACH_GELU,
    EACH_DGELU,
    EACH_RELU,
    EACH_DRELU,
    EACH_CAST,
    EACH_ERF,
    EACH_DERF,
    EACH_TANH,
    EACH_DTANH
} each_op;

// y = op(a, b) in FP32, rounded once.
// alias      y may be a or b: what a thread writes it has read before
// moves      count times the bytes of an element of each tensor; memory bound
// reference  gpu/cpu/kernel/elementwise.c: add, cast; gelu.c and relu.c: forward and backward
template <each_op OP> __device__ __forceinline__ float each(float a, float b) {
    switch (OP) {
    case EACH_ADD: return a + b;
    case EACH_GELU: return gelu(a);
    case EACH_DGELU: return a * gelu_slope(b);
    case EACH_RELU: return a <= 0.0f ? 0.0f : a;  // a NaN is not, and stays
    case EACH_DRELU: return b > 0.0f ? a : 0.0f;
    case EACH_ERF: return gelu_erf(a);
    case EACH_DERF: return a * gelu_erf_slope(b);
    case EACH_TANH: return tanhf(a);
    case EACH_DTANH: return a * fmaf(-b, b, 1.0f);
    default: return a;
    }
}

template <each_op OP, int W, class U, class T>
__global__ void __launch_bounds__(BLOCK) each_kernel(U *y, const T *a, const T *b, int64_t count) {
    constexpr bool TWO = OP == EACH_ADD || OP == EACH_DGELU || OP == EACH_DRELU || OP == EACH_DERF || OP == EACH_DTANH;
    int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * W;
    if (i + W <= count) {
        float u[W], v[W] = {0};
        load_floats<W>(u, a + i);
        if (TWO) load_floats<W>(v, b + i);
#pragma unroll
        for (int k = 0; k < W; k++) u[k] = each<OP>(u[k], v[k]);
        store_floats<W>(y + i, u);
    } else
        for (; i < count; i++) round_to(&y[i], each<OP>(to_float(a[i]), TWO ? to_float(b[i]) : 0.0f));
}

template <each_op OP, class U, class T> static err_t each_of(tensor *y, const tensor *a, const tensor *b, stream *s) {
    constexpr int W = 16 / (sizeof(U) < sizeof(T) ? sizeof(U) : sizeof(T));
    int64_t count = tensor_count(y);
    U *out = (U *)y->data;
    const T *p = (const T *)a->data, *q = (const T *)b->data;
    if (((uintptr_t)out | (uintptr_t)p | (uintptr_t)q) % 16 == 0)
        LAUNCH((each_kernel<OP, W, U, T>), (unsigned)ceil_div(count, BLOCK * W), BLOCK, 0, s, out, p, q, count);
    else LAUNCH((each_kernel<OP, 1, U, T>), (unsigned)ceil_div(count, BLOCK), BLOCK, 0, s, out, p, q, count);
    return ERR_OK;
}

err_t cuda_add(const add_args *args, stream *s) {
    assert(args->a->type == args->y->type && args->b->type == args->y->type &&
           tensor_count(args->a) == tensor_count(args->y) && tensor_count(args->b) == tensor_count(args->y));
    BY_TYPE(args->y->type, T, TRY((each_of<EACH_ADD, T, T>(args->y, args->a, args->b, s))));
    return ERR_OK;
}

// scale_columns: a thread an element of the columns.
// alias      none
// moves      2 * sizeof(E) bytes an element of the columns, 3 where it adds; memory bound
// reference  gpu/cpu/kernel/elementwise.c, to the bit in FP32
template <class T> struct columns_shape {
    T *y;
    const T *x;
    int64_t count, width, y_row, x_row;
    float factor;
    bool add;
};
template <class T> __global__ void __launch_bounds__(BLOCK) scale_columns_kernel(columns_shape<T> z) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= z.count) return;
    int64_t row = i / z.width, column = i % z.width;
    T *y = z.y + row * z.y_row + column;
    float x = to_float(z.x[row * z.x_row + column]);
    round_to(y, z.add ? fmaf(z.factor, x, to_float(*y)) : z.factor * x);
}

err_t cuda_scale_columns(const scale_columns_args *args, stream *s) {
    const int64_t rows = args->y->size[0];
    assert(args->y->dims == 2 && args->x->dims == 2 && args->x->type == args->y->type && args->x->size[0] == rows);
    assert(args->width >= 1 && args->y_first + args->width <= args->y->size[1] &&
           args->x_first + args->width <= args->x->size[1]);
    BY_TYPE(args->y->type, T, {
        columns_shape<T> z = {(T *)args->y->data + args->y_first,
                              (const T *)args->x->data + args->x_first,
                              rows * args->width,
                              args->width,
                              args->y->size[1],
                              args->x->size[1],
                              args->factor,
                              args->add};
        LAUNCH((scale_columns_kernel<T>), (unsigned)ceil_div(z.count, BLOCK), BLOCK, 0, s, z);
    });
    return ERR_OK;
}

// sum_slices: a thread an element. A binary counter of sums: siblings are added as soon as both are there.
// alias      y == residual allowed
// sums       FP32, along the tree of slices: the same bits as the CPU's
// moves      4 bytes an element of each part (8 in FP64), and what is added and written; memory bound
// reference  gpu/cpu/kernel/elementwise.c
template <class T, class P> struct slices_args {
    T *y;
    const P *parts;
    const T *bias, *residual;
    int64_t count, columns;
    int slices;
    bool add;
};
// Parts s of element i, s = 0 .. slices-1.
template <class P> __device__ P slices_tree(const P *parts, int64_t i, int64_t count, int slices) {
    enum { LEVELS = 11 };
    P level[LEVELS], sum = parts[i];
    level[0] = sum;
    for (int s = 1; s < slices; s++) {
        sum = parts[s * count + i];
#pragma unroll
        for (int l = 0; l < LEVELS; l++) {
            if (!(s >> l & 1)) {
                level[l] = sum;
                break;
            }
            sum = level[l] + sum;
        }
    }
    return sum;
}
template <class T> __global__ void __launch_bounds__(BLOCK) slices_kernel(slices_args<T, float> a) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= a.count) return;
    float sum = slices_tree(a.parts, i, a.count, a.slices);
    if (a.bias) sum += to_float(a.bias[i % a.columns]);
    if (a.residual) sum += to_float(a.residual[i]);
    round_to(&a.y[i], a.add ? to_float(a.y[i]) + sum : sum);
}
__global__ void __launch_bounds__(BLOCK) doubles_kernel(slices_args<double, double> a) {
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < a.count) a.y[i] = slices_tree(a.parts, i, a.count, a.slices);
}

static err_t sum_doubles(const sum_slices_args *args, int64_t count, stream *s) {
    slices_args<double, double> a = {(double *)args->y->data, (const double *)args->parts->data, NULL, NULL, count,
                                     args->parts->size[2],    (int)args->parts->size[0],         false};
    assert(args->y->type == FP64 && !args->bias && !args->residual && !args->add);
    LAUNCH(doubles_kernel, (unsigned)ceil_div(count, BLOCK), BLOCK, 0, s, a);
    return ERR_OK;
}

err_t cuda_sum_slices(const sum_slices_args *args, stream *s) {
    int64_t slices = args->parts->size[0], columns = args->parts->size[2], count = args->parts->size[1] * columns;
    assert(args->parts->dims == 3 && (slices & (slices - 1)) == 0 && slices <= 1024 && tensor_count(args->y) == count);
    if (args->parts->type == FP64) return sum_doubles(args, count, s);
    assert(args->parts->type == FP32);
    assert(!args->bias || (args->bias->type == args->y->type && tensor_count(args->bias) == columns));
    assert(!args->residual || (args->residual->type == args->y->type && tensor_count(args->residual) == count));
    assert(!args->add || args->y->type == FP32);
    BY_TYPE(args->y->type, T, {
        slices_args<T, float> a = {(T *)args->y->data,
                                   (const float *)args->parts->data,
                                   args->bias ? (const T *)args->bias->data : NULL,
                                   args->residual ? (const T *)args->residual->data : NULL,
                                   count,
                                   columns,
                                   (int)slices,
                                   args->add};
        LAUNCH((slices_kernel<T>), (unsigned)ceil_div(count, BLOCK), BLOCK, 0, s, a);
    });
    return ERR_OK;
}

// All kernels are compiled for the same processors: one stands for all.
err_t cuda_kernel_code(int *machine, int *ptx) {
    struct cudaFuncAttributes a;
    CUDA(cudaFuncGetAttributes(&a, (const void *)each_kernel<EACH_ADD, 1, float, float>));
    *machine = a.binaryVersion;
    *ptx = a.ptxVersion;
    return ERR_OK;
}

err_t cuda_gelu_forward(const gelu_forward_args *args, stream *s) {
    assert(args->y->type == args->x->type && tensor_count(args->y) == tensor_count(args->x));
    BY_TYPE(args->y->type, T, {
        if (args->erf) TRY((each_of<EACH_ERF, T, T>(args->y, args->x, args->x, s)));
        else TRY((each_of<EACH_GELU, T, T>(args->y, args->x, args->x, s)));
    });
    return ERR_OK;
}

err_t cuda_gelu_backward(const gelu_backward_args *args, stream *s) {
    assert(args->dx->type == args->x->type && args->dy->type == args->x->type);
    assert(tensor_count(args->dx) == tensor_count(args->x) && tensor_count(args->dy) == tensor_count(args->x));
    if (args->dbias) return columns_gelu_backward(args, s);
    BY_TYPE(args->dx->type, T, {
        if (args->erf) TRY((each_of<EACH_DERF, T, T>(args->dx, args->dy, args->x, s)));
        else TRY((each_of<EACH_DGELU, T, T>(args->dx, args->dy, args->x, s)));
    });
    return ERR_OK;
}

err_t cuda_tanh_forward(const tanh_forward_args *args, stream *s) {
    assert(args->y->type == args->x->type && tensor_count(args->y) == tensor_count(args->x));
    BY_TYPE(args->y->type, T, TRY((each_of<EACH_TANH, T, T>(args->y, args->x, args->x, s))));
    return ERR_OK;
}

err_t cuda_tanh_backward(const tanh_backward_args *args, stream *s) {
    assert(args->dx->type == args->y->type && args->dy->type == args->y->type);
    assert(tensor_count(args->dx) == tensor_count(args->y) && tensor_count(args->dy) == tensor_count(args->y));
    BY_TYPE(args->dx->type, T, TRY((each_of<EACH_DTANH, T, T>(args->dx, args->dy, args->y, s))));
    return ERR_OK;
}

err_t cuda_relu_forward(const relu_forward_args *args, stream *s) {
    assert(args->y->type == args->x->type && tensor_count(args->y) == tensor_count(args->x));
    BY_TYPE(args->y->type, T, TRY((each_of<EACH_RELU, T, T>(args->y, args->x, args->x, s))));
    return ERR_OK;
}

err_t cuda_relu_backward(const relu_backward_args *args, stream *s) {
    assert(args->dx->type == args->y->type && args->dy->type == args->y->type);
    assert(tensor_count(args->dx) == tensor_count(args->y) && tensor_count(args->dy) == tensor_count(args->y));
    BY_TYPE(args->dx->type, T, TRY((each_of<EACH_DRELU, T, T>(args->dx, args->dy, args->y, s))));
    return ERR_OK;
}

err_t cuda_cast(const cast_args *args, stream *s) {
    assert(tensor_count(args->x) == tensor_count(args->y) && args->y->type <= FP16 && args->x->type <= FP16);
    BY_TYPE(args->y->type, U, BY_TYPE(args->x->type, T, TRY((each_of<EACH_CAST, U, T>(args->y, args->x, args->x, s)))));
    return ERR_OK;
}

// --- random numbers --------------------------------------------------------------------------------------------------

// Four elements a thread, those of one call of philox.
// moves      sizeof(E) bytes an element; bound by philox, 10 rounds for 4 elements
// reference  gpu/cpu/kernel/random_fill.c, to the bit
template <class T> __global__ void __launch_bounds__(BLOCK) random_fill_kernel(T *y, int64_t count, uint64_t seed) {
    int64_t quad = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    uint32_t word[4];
    if (quad * 4 >= count) return;
    philox4x32(word, seed, (uint32_t)quad, 0, (uint32_t)(quad >> 32), 0);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (quad * 4 + k < count) round_to(&y[quad * 4 + k], (float)(word[k] >> 8) * 0x1p-23f - 1.0f);
}

err_t cuda_random_fill(const random_fill_args *args, stream *s) {
    int64_t count = tensor_count(args->y);
    assert(args->y->type <= FP16 && count > 0);
    BY_TYPE(args->y->type, T,
            LAUNCH((random_fill_kernel<T>), (unsigned)ceil_div(count, 4 * BLOCK), BLOCK, 0, s, (T *)args->y->data,
                   count, args->seed));
    return ERR_OK;
}

// --- dropout ---------------------------------------------------------------------------------------------------------

typedef struct dropout_draw {
    dropout_key key;
    uint32_t limit, sample;
    int64_t first;
    float grow;
} dropout_draw;

// One row of blocks for each sample; a thread draws the words of the 4 or 8 elements of its 16 bytes. Samples of odd
// length begin where 16-byte accesses are not allowed: then the same threads take the same elements one by one.
// alias      y may be x
// moves      2 * sizeof(E) bytes an element, and 10 rounds of philox for 4 of them; memory bound
// reference  gpu/cpu/kernel/dropout.c: the same mask and the same bits
template <class T, bool PACKED>
__global__ void __launch_bounds__(BLOCK)
    dropout_kernel(T *y, const T *x, int64_t samples, int64_t elements, dropout_draw d) {
    constexpr int W = 16 / sizeof(T);
    int64_t e = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * W;
    if (e >= elements) return;
    const uint32_t step = d.key.at ? d.key.at[0] : d.key.step,
                   first = (d.key.at ? d.key.at[1] : d.key.first_sample) + d.sample;
    for (int64_t b = blockIdx.y; b < samples; b += gridDim.y) {
        const T *from = x + b * elements;
        T *to = y + b * elements;
        float v[W];
        load_row<PACKED>(v, from, e, elements);
#pragma unroll
        for (int q = 0; q < W; q += 4) {
            uint32_t word[4];
            philox4x32(word, d.key.seed, (uint32_t)((d.first + e + q) / 4), d.key.site, first + (uint32_t)b, step);
#pragma unroll
            for (int k = 0; k < 4; k++) v[q + k] = dropout_goes(word[k], d.limit) ? 0.0f : v[q + k] * d.grow;
        }
        store_row<PACKED>(to, v, e, elements);
    }
}

err_t cuda_dropout(const dropout_args *args, stream *s) {
    int64_t samples = args->x->size[0], elements = tensor_count(args->x) / samples;
    assert(args->y->type == args->x->type && tensor_count(args->y) == tensor_count(args->x));
    assert(args->drop->p >= 0 && args->drop->p < 1 && args->first % 4 == 0 &&
           args->first + elements <= (int64_t)1 << 34);
    dropout_draw d = {*args->drop, dropout_limit(args->drop->p), args->sample, args->first,
                      1.0f / (1.0f - args->drop->p)};
    unsigned rows = samples < 65535 ? (unsigned)samples : 65535;  // a grid has no more
    BY_TYPE(args->x->type, T, {
        T *out = (T *)args->y->data;
        const T *in = (const T *)args->x->data;
        dim3 grid((unsigned)ceil_div(elements, BLOCK * (16 / sizeof(T))), rows);
        bool packed = packs<T>(out, elements) && packs<T>(in, elements);
        if (packed) LAUNCH((dropout_kernel<T, true>), grid, BLOCK, 0, s, out, in, samples, elements, d);
        else LAUNCH((dropout_kernel<T, false>), grid, BLOCK, 0, s, out, in, samples, elements, d);
    });
    return ERR_OK;
}
