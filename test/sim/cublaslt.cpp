// test/sim/cublaslt.cpp: stands in for cuBLASLt in the simulator: the calls of gpu/cuda/blas.h against the real header,
// and nothing that the real library would not take. A product is one operation of its stream, seen by the race detector
// as a reader and writer of whole ranges.
//
// What it is strict about: every attribute, its size and its value; shapes, leading dimensions, types that cuBLASLt
// lacks; the alignment that an algorithm was asked for; the workspace, which every product overwrites. What is not in
// use is refused, with a message.
//
// Its arithmetic is the real one's in kind, not in bits: FP32 sums over blocks of k, which are added in order. As with
// the real one the order depends on the algorithm, and the algorithm on the whole shape that the heuristic is asked
// about, on alignment and on the leave to divide k: who asks it with another shape, where the same bits are promised,
// is found out.
//
//   SIM_BLAS=n         the heuristic is of another mind: its algorithms add k in blocks of another size. They say so:
//                      custom option n (0)
//   SIM_BLAS_LACKS=n   those of mind n are not possible here
//   SIM_BLAS_ALIGN=n   there is none for operands that are aligned to less than n bytes
//   SIM_BLAS_WHOLE=1   an algorithm can do no fewer rows than it was made for
//   SIM_BLAS_USABLE=n  of the library's versions, newest first, the n-th (0) is the first that makes a handle
//   SIM_BLAS_COUNT=n   how many algorithms the heuristic knows (2)
//   SIM_BLAS_ODD=n     the order in which the n-th of them adds depends on the number of rows
#include "gpu/cuda/blas.h"
#include "test/sim/simt_rt.h"

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <vector>

using namespace simt;

namespace {

struct Desc {
    int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias = nullptr;
};
struct Layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};
struct Preference {
    uint64_t workspace = 0;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t align[4] = {256, 256, 256, 256};
};
struct Algo {
    uint32_t magic, tile, block, split, scheme, align_a, align_b, align_d;
    uint64_t workspace;
    uint32_t types, mind, rows, odd;
};
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "room");

enum { MAGIC = 0x5eedb1a5, ALGO_ID = 7 };

uint32_t opened;               // which of the versions was opened last
std::set<const void *> alive;  // handles, descriptors, layouts, preferences

cublasStatus_t refuse(cublasStatus_t status, const char *what) {
    check_msg("cublasLt", "%s", what);
    return status;
}
#define DEMAND(condition, what) \
    do { \
        if (!(condition)) return refuse(CUBLAS_STATUS_INVALID_VALUE, what); \
    } while (0)

template <class T> T *of(const void *opaque) { return (T *)opaque; }
template <class T, class O> cublasStatus_t create(O *out, T value) {
    T *p = new T(value);
    alive.insert(p);
    *out = (O)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t destroy(const void *p) {
    DEMAND(alive.erase(p), "destroyed what was not created, or twice");
    delete (T *)p;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> bool set(T *field, const void *buf, size_t size) {
    if (size != sizeof *field || !buf) return false;
    memcpy(field, buf, size);
    return true;
}

// --- shapes ----------------------------------------------------------------------------------------------------------

struct Problem {
    const Desc *op;
    const Layout *a, *b, *d;
    int64_t m, n, k;
};

uint32_t types_of(const Problem &p) { return (uint32_t)p.a->type << 16 | (uint32_t)p.d->type; }
size_t bytes_of(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : 2; }

cublasStatus_t read_problem(Problem *p, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    DEMAND(alive.count(op) && alive.count(a) && alive.count(b) && alive.count(c) && alive.count(d),
           "a descriptor that was destroyed");
    *p = {of<Desc>(op), of<Layout>(a), of<Layout>(b), of<Layout>(d), 0, 0, 0};
    const Layout *in = of<Layout>(c);
    DEMAND(in->type == p->d->type && in->rows == p->d->rows && in->cols == p->d->cols && in->ld == p->d->ld,
           "C and D are of two layouts");
    for (const Layout *l : {p->a, p->b, p->d})
        DEMAND(l->rows && l->cols && l->ld >= (int64_t)l->rows, "an empty matrix, or columns that overlap");
    DEMAND(p->a->type == p->b->type && (p->d->type == p->a->type || p->d->type == CUDA_R_32F),
           "types that cuBLASLt does not multiply");
    bool ta = p->op->trans_a == CUBLAS_OP_T, tb = p->op->trans_b == CUBLAS_OP_T;
    p->m = (int64_t)p->d->rows, p->n = (int64_t)p->d->cols, p->k = (int64_t)(ta ? p->a->rows : p->a->cols);
    DEMAND((int64_t)(ta ? p->a->cols : p->a->rows) == p->m && (int64_t)(tb ? p->b->rows : p->b->cols) == p->n &&
               (int64_t)(tb ? p->b->cols : p->b->rows) == p->k,
           "shapes that do not fit each other");
    DEMAND(p->op->epilogue == CUBLASLT_EPILOGUE_DEFAULT || p->op->bias, "a bias epilogue without a bias");
    return CUBLAS_STATUS_SUCCESS;
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

float load(const void *p, cudaDataType_t t, int64_t i) {
    if (t == CUDA_R_32F) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    if (t == CUDA_R_16F) return _cvtsh_ss(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

void store(void *p, cudaDataType_t t, int64_t i, float x) {  // to nearest even
    uint32_t bits;
    if (t == CUDA_R_32F) {
        ((float *)p)[i] = x;
        return;
    }
    if (t == CUDA_R_16F) {
        ((uint16_t *)p)[i] = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)p)[i] = x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum { LANES = 8, WIDE = 64 };  // rows of d in a vector and in a strip
typedef float lanes __attribute__((vector_size(4 * LANES)));

// strip[k][i] = op(A)[first + i][k], zero past the last row.
void read_strip(float *strip, const Problem &p, const void *a, int64_t first, int64_t count, int64_t width) {
    bool trans = p.op->trans_a == CUBLAS_OP_T;
    memset(strip, 0, (size_t)(p.k * width) * sizeof *strip);
    for (int64_t o = 0; o < (trans ? count : p.k); o++)
        for (int64_t i = 0; i < (trans ? p.k : count); i++)
            strip[trans ? i * width + o : o * width + i] =
                load(a, p.a->type, trans ? (first + o) * p.a->ld + i : o * p.a->ld + first + i);
}

void read_columns(float *columns, const Problem &p, const void *b) {  // columns[j][k] = op(B)[k][j]
    bool trans = p.op->trans_b == CUBLAS_OP_T;
    for (int64_t o = 0; o < (trans ? p.k : p.n); o++)
        for (int64_t i = 0; i < (trans ? p.n : p.k); i++)
            columns[trans ? i * p.k + o : o * p.k + i] = load(b, p.b->type, o * p.b->ld + i);
}

// sum[i] = strip * column over k0 .. k1-1, from zero: blocks of k, each from zero, added in order.
template <int V>
void column_sums(float *out, const float *strip, const float *column, int64_t k0, int64_t k1, int64_t block) {
    lanes sum[V] = {};
    for (int64_t from = k0; from < k1; from += block) {
        lanes part[V] = {};
        for (int64_t k = from; k < std::min(from + block, k1); k++) {
            const float *s = strip + k * V * LANES;
            for (int v = 0; v < V; v++) {
                lanes x;
                memcpy(&x, s + v * LANES, sizeof x);
                part[v] += x * column[k];
            }
        }
        for (int v = 0; v < V; v++) sum[v] += part[v];
    }
    memcpy(out, sum, sizeof sum);
}

// What d held (or NULL) is added after the first part of a k that is divided: that it is added once, to the whole sum,
// is promised by no one.
void strip_sums(float *out, int64_t width, const float *strip, const float *column, int64_t k, const Algo &g,
                const float *held) {
    int64_t share = ((k + g.split - 1) / g.split + 7) / 8 * 8;
    float part[WIDE];
    for (int64_t k0 = 0; k0 < k; k0 += share) {
        int64_t k1 = std::min(k0 + share, k);
        float *to = k0 ? part : out;
        if (width == WIDE) column_sums<WIDE / LANES>(to, strip, column, k0, k1, g.block);
        else if (width == 2 * LANES) column_sums<2>(to, strip, column, k0, k1, g.block);
        else column_sums<1>(to, strip, column, k0, k1, g.block);
        const float *add = k0 ? part : held;
        for (int64_t i = 0; add && i < width; i++) out[i] += add[i];
    }
}

struct Call {
    Desc op;
    Layout a, b, d;
    Algo algo;
    const void *pa, *pb, *pc;
    void *pd, *workspace;
    float beta;
};

void compute(const Call &c) {
    Problem p = {&c.op,
                 &c.a,
                 &c.b,
                 &c.d,
                 (int64_t)c.d.rows,
                 (int64_t)c.d.cols,
                 (int64_t)(c.op.trans_a == CUBLAS_OP_T ? c.a.rows : c.a.cols)};
    int64_t width = p.m <= LANES ? LANES : p.m <= 2 * LANES ? 2 * LANES : WIDE;
    std::vector<float> strip((size_t)(p.k * width)), columns((size_t)(p.k * p.n));
    read_columns(columns.data(), p, c.pb);
    for (int64_t first = 0; first < p.m; first += width) {
        int64_t count = std::min(width, p.m - first);
        read_strip(strip.data(), p, c.pa, first, count, width);
        for (int64_t j = 0; j < p.n; j++) {
            float sum[WIDE], held[WIDE] = {};
            for (int64_t i = 0; c.beta != 0 && i < count; i++)
                held[i] = c.beta * load(c.pc, c.d.type, j * c.d.ld + first + i);
            strip_sums(sum, width, strip.data(), columns.data() + j * p.k, p.k, c.algo, c.beta != 0 ? held : nullptr);
            for (int64_t i = 0; i < count; i++) {
                int64_t at = j * c.d.ld + first + i;
                float x = sum[i];
                if (c.op.epilogue == CUBLASLT_EPILOGUE_BIAS) x += load(c.op.bias, c.d.type, first + i);
                store(c.pd, c.d.type, at, x);
            }
        }
    }
}

size_t extent(const Layout &l) { return (size_t)(((int64_t)l.cols - 1) * l.ld + (int64_t)l.rows) * bytes_of(l.type); }

bool range(uint32_t op, const char *what, const void *p, size_t n, bool write) {
    char why[200];
    if (!n) return true;
    if (mem_class(p, n, write, why, sizeof why)) {
        check_msg("memcheck", "cublasLtMatmul, %s: %s", what, why);
        return false;
    }
    range_access(op, p, n, write);
    return true;
}

void run_call(const Call &c, uint32_t op) {
    bool bias = c.op.epilogue == CUBLASLT_EPILOGUE_BIAS;
    bool ok = range(op, "A", c.pa, extent(c.a), false) && range(op, "B", c.pb, extent(c.b), false) &&
              (!bias || range(op, "bias", c.op.bias, c.d.rows * bytes_of(c.d.type), false)) &&
              range(op, "workspace", c.workspace, c.algo.workspace, true) &&
              (c.beta == 0 || range(op, "C", c.pc, extent(c.d), false)) && range(op, "D", c.pd, extent(c.d), true);
    if (!ok) return;
    memset(c.workspace, 0xff, c.algo.workspace);
    compute(c);
}

// --- algorithms ------------------------------------------------------------------------------------------------------

enum { ROWS_MOST = 16 };  // times the rows that an algorithm was made for

uint32_t asked(const char *variable, uint32_t otherwise) {
    return getenv(variable) ? (uint32_t)atoi(getenv(variable)) : otherwise;
}

uint32_t log2_of(int64_t x) { return 63 - (uint32_t)__builtin_clzll((uint64_t)x); }

Algo design(const Problem &p, const Preference &w) {
    Algo g = {};
    g.magic = MAGIC, g.types = types_of(p), g.split = 1;
    g.align_a = w.align[0], g.align_b = w.align[1], g.align_d = std::min(w.align[2], w.align[3]);
    bool wide = std::min({g.align_a, g.align_b, g.align_d}) >= 16;
    g.tile = 18 + log2_of(p.n) % 4;
    g.block = 16 + 8 * (log2_of(p.n) % 4) + (wide ? 0 : 4);
    g.mind = asked("SIM_BLAS", 0), g.rows = (uint32_t)p.n;
    g.block += 4 * g.mind;
    g.workspace = wide && w.workspace >= 4096 ? 4096 : 0;
    int64_t tiles = (p.m + 127) / 128 * ((p.n + 127) / 128), most = (int64_t)(w.workspace / (size_t)(4 * p.m * p.n));
    int64_t split = std::min({(int64_t)8, p.k / 64, most});
    if ((w.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) && tiles < 64 && split > 1) {
        g.split = (uint32_t)split, g.scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        g.workspace = (uint64_t)(4 * split * p.m * p.n);
    }
    return g;
}

cublasStatus_t check(const Problem &p, const Algo &g) {
    DEMAND(g.magic == MAGIC, "an algorithm that no heuristic gave");
    if (g.types != types_of(p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (asked("SIM_BLAS_WHOLE", 0) && p.n < (int64_t)g.rows) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (g.mind == asked("SIM_BLAS_LACKS", ~0u) || p.n > (int64_t)ROWS_MOST * g.rows) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (g.split > 1 && g.workspace < (uint64_t)(4 * g.split * p.m * p.n)) return CUBLAS_STATUS_NOT_SUPPORTED;
    // the second choice can: callers must look further than the first
    if (g.tile < 22 && p.n == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void *p, uint32_t to) { return (uintptr_t)p % to == 0; }

}  // namespace

// --- the calls -------------------------------------------------------------------------------------------------------

extern "C" {

size_t CUBLASWINAPI cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char *CUBLASWINAPI cublasLtGetStatusString(cublasStatus_t s) {
    return s == CUBLAS_STATUS_SUCCESS ? "success" : "refused by the simulator";
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t *out) {
    return opened < asked("SIM_BLAS_USABLE", 0) ? CUBLAS_STATUS_NOT_INITIALIZED : create(out, Problem{});
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t h) { return destroy<Problem>(h); }

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                     cudaDataType_t scale) {
    DEMAND(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "sums are not FP32");
    return create(out, Desc{});
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return destroy<Desc>(d); }

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                           cublasLtMatmulDescAttributes_t name, const void *buf,
                                                           size_t size) {
    DEMAND(alive.count(desc), "a descriptor that was destroyed");
    Desc *d = of<Desc>(desc);
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB: {
        int32_t *t = name == CUBLASLT_MATMUL_DESC_TRANSA ? &d->trans_a : &d->trans_b;
        DEMAND(set(t, buf, size) && (*t == CUBLAS_OP_N || *t == CUBLAS_OP_T),
               "TRANSA or TRANSB is neither N nor T, or of another size");
        return CUBLAS_STATUS_SUCCESS;
    }
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        DEMAND(set(&d->epilogue, buf, size) &&
                   (d->epilogue == CUBLASLT_EPILOGUE_DEFAULT || d->epilogue == CUBLASLT_EPILOGUE_BIAS),
               "an epilogue that is not known here, or of another size");
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        DEMAND(set(&d->bias, buf, size), "BIAS_POINTER is not of a pointer's size");
        return CUBLAS_STATUS_SUCCESS;
    default: return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of a product that is not known here");
    }
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                       uint64_t cols, int64_t ld) {
    DEMAND(type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF, "a type that is not known here");
    return create(out, Layout{type, rows, cols, ld});
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return destroy<Layout>(l); }

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t name, const void *buf,
                                                             size_t size) {
    DEMAND(alive.count(layout), "a layout that was destroyed");
    DEMAND(name == CUBLASLT_MATRIX_LAYOUT_COLS && set(&of<Layout>(layout)->cols, buf, size),
           "an attribute of a layout that is not known here");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    return create(out, Preference{});
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t w) {
    return destroy<Preference>(w);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                                 cublasLtMatmulPreferenceAttributes_t name,
                                                                 const void *buf, size_t size) {
    DEMAND(alive.count(pref), "a preference that was destroyed");
    Preference *w = of<Preference>(pref);
    int which = (int)name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        DEMAND(set(&w->workspace, buf, size), "MAX_WORKSPACE_BYTES of another size");
    else if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        DEMAND(set(&w->schemes, buf, size), "REDUCTION_SCHEME_MASK of another size");
    else if (which >= 0 && which < 4)
        DEMAND(set(&w->align[which], buf, size) && (w->align[which] & (w->align[which] - 1)) == 0,
               "MIN_ALIGNMENT is no power of two, or of another size");
    else return refuse(CUBLAS_STATUS_INVALID_VALUE, "a preference that is not known here");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t op,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t pref, int most,
                                                           cublasLtMatmulHeuristicResult_t out[], int *count) {
    Problem p;
    DEMAND(alive.count(h) && alive.count(pref) && most > 0, "a heuristic without handle, preference or room");
    if (cublasStatus_t s = read_problem(&p, op, a, b, c, d)) return s;
    Preference w = *of<Preference>(pref);
    DEMAND(!(w.schemes & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE),
           "a reduction scheme that adds in the output or rounds partial sums");
    if (std::min({w.align[0], w.align[1], w.align[3]}) < asked("SIM_BLAS_ALIGN", 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (*count = 0; *count < std::min(most, (int)asked("SIM_BLAS_COUNT", 2)); ++*count) {
        Algo g = design(p, w);
        g.tile += 4 * (uint32_t)*count;
        if (*count > 1) g.block += 4 * (uint32_t)*count;
        g.odd = (uint32_t)*count == asked("SIM_BLAS_ODD", ~0u);
        cublasLtMatmulHeuristicResult_t *r = &out[*count];
        memset(r, 0, sizeof *r);
        memcpy(&r->algo, &g, sizeof g);
        r->workspaceSize = g.workspace, r->state = CUBLAS_STATUS_SUCCESS, r->wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t op,
                                                    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                    const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulHeuristicResult_t *out) {
    Problem p;
    Algo g;
    DEMAND(alive.count(h), "a handle that was destroyed");
    if (cublasStatus_t s = read_problem(&p, op, a, b, c, d)) return s;
    memcpy(&g, algo, sizeof g);
    memset(out, 0, sizeof *out);
    out->state = check(p, g), out->workspaceSize = g.workspace;
    return out->state;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                                 cublasLtMatmulAlgoConfigAttributes_t name, void *buf,
                                                                 size_t size, size_t *written) {
    Algo g;
    memcpy(&g, algo, sizeof g);
    bool narrow = name == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || name == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    uint32_t value = name == CUBLASLT_ALGO_CONFIG_ID                 ? (uint32_t)ALGO_ID
                     : name == CUBLASLT_ALGO_CONFIG_TILE_ID          ? g.tile
                     : name == CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION    ? g.mind
                     : name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? g.split
                     : name == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? g.scheme
                                                                     : 0;
    DEMAND(size == (narrow ? 2u : 4u) && g.magic == MAGIC, "a configuration of another size, or of no algorithm");
    memcpy(buf, &value, size);
    *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t op, const void *alpha,
                                           const void *A, cublasLtMatrixLayout_t a, const void *B,
                                           cublasLtMatrixLayout_t b, const void *beta, const void *C,
                                           cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                                           const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                                           cudaStream_t stream) {
    Problem p;
    Algo g;
    DEMAND(alive.count(h) && algo && alpha && beta && *(const float *)alpha == 1,
           "no handle, no algorithm, or alpha is not 1");
    if (cublasStatus_t s = read_problem(&p, op, a, b, c, d)) return s;
    memcpy(&g, algo, sizeof g);
    if (check(p, g) != CUBLAS_STATUS_SUCCESS)
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm that cannot do this shape");
    DEMAND(C == D || (char *)C + extent(*p.d) <= (char *)D || (char *)D + extent(*p.d) <= (char *)C, "C overlaps D");
    DEMAND(aligned(A, g.align_a) && aligned(B, g.align_b) && aligned(C, g.align_d) && aligned(D, g.align_d),
           "an operand is not aligned as the algorithm was asked for");
    for (const Layout *l : {p.a, p.b, p.d}) {  // of one column the leading dimension means nothing
        uint32_t align = l == p.a ? g.align_a : l == p.b ? g.align_b : g.align_d;
        DEMAND(l->cols == 1 || (size_t)l->ld * bytes_of(l->type) % align == 0,
               "columns are not aligned as the algorithm was asked for");
    }
    DEMAND(p.op->epilogue != CUBLASLT_EPILOGUE_BIAS || aligned(p.op->bias, g.align_d), "the bias is not aligned as D");
    DEMAND(bytes >= g.workspace && aligned(workspace, 256), "the workspace is too small, or not aligned to 256 bytes");
    if (g.odd) g.block = 8 + 4 * (uint32_t)(p.n % 7);
    Call call = {*p.op, *p.a, *p.b, *p.d, g, A, B, C, D, workspace, *(const float *)beta};
    char name[96];
    snprintf(name, sizeof name, "cublasLtMatmul(m %lld, n %lld, k %lld)", (long long)p.m, (long long)p.n,
             (long long)p.k);
    enqueue_poll(stream, name, nullptr, [call](uint32_t id) { run_call(call, id); });
    return CUBLAS_STATUS_SUCCESS;
}

#define TAKE(name) out->name = name;
err_t blas_open(blas *out, int *from) {
    memset(out, 0, sizeof *out);
    if (*from == BLAS_NAMES)
        return err_set_at(__FILE__, __LINE__, __func__, ERR_UNAVAILABLE, "cuda: the simulator has no other cuBLASLt");
    opened = (uint32_t)(*from)++;
    snprintf(out->path, sizeof out->path, "the simulator's");
    BLAS_CALLS(TAKE)
    out->version = cublasLtGetVersion() - 10000 * opened;
    return ERR_OK;
}
}
