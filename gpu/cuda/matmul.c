// gpu/cuda/matmul.c: matrix products through cuBLASLt.
//
// A row-major d (M,N) = op(a) op(b) is, read by columns, d' (N,M) = op(b)' op(a)': cuBLASLt's A is our b, its B our a, its m is N and its n is M;
// what is transposed here is transposed there.
//
//   plans     Each product needs a plan: descriptors and an algorithm, made when a shape is first met, kept in a table
//             that is allocated at open. No memory is allocated at any other time. A plan can be written as text and
//             set in another process: the book. A plan from the book is used unchanged and stays; only plans that the
//             heuristic made here may be evicted, because they would be made again the same
//   rows      The rows of a, where it is not transposed, are the batch, and a product of a part of them must give the
//             same bits. So such a plan does not depend on M: its algorithm is the heuristic's choice for BATCH_ROWS
//             rows and for the alignment that every row has, whichever row this call begins with. An algorithm treats
//             every element of d alike, wherever it is. A few rows (sampling) are computed with larger tiles than they
//             need; whole micro-batches, which take most of the time, with the right ones
//   sums      FP32 for every type; true FP32 for FP32 operands, not TF32. k is divided only by the plan: where a is
//             transposed (a weight's gradient has few tiles and a long k). The partial sums are then in the workspace,
//             as FP32, and one more kernel adds them in a fixed order. Two schemes are excluded: one adds the partial
//             sums to d itself, one by one; the other keeps them as 16 bits. Neither way of summing uses atomics. FP32
//             operands are multiplied K_STEP of k at a time: a longer chain of FP32 additions loses digits
//   (+=)      Unsplit with beta = 1: the epilogue adds d once to the whole sum over k. A sum in parts is made in the
//             stream's scratch, where it fits, and added by one more pass
//   epilogue  The bias is added by cuBLASLt to the FP32 sum. Its GELU and DGELU epilogues are not used: they take gelu
//             of the unrounded sum, with a tanh of their own, so recomputation, which takes GELU of the kept pre, would
//             give other bits. The elementwise kernels do it. They move 2 * M * N * sizeof(E) bytes more than the fused
//             ones would (3 for DGELU), of which L2 holds what fits
//   alias     none: d, pre, a, b and bias are apart
//   reference gpu/cpu/kernel/matmul.c
#include "gpu/cuda/blas.h"
#include "gpu/cuda/cuda.h"
#include "gpu/matmul_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// All of these are part of the arithmetic.
enum {
    WORKSPACE = CUDA_SCRATCH / 2,     // bytes of a stream's scratch for cuBLASLt
    ROOM = CUDA_SCRATCH - WORKSPACE,  // the rest: sums that come in parts, or a bias as FP32
    BATCH_ROWS = 4096,                // rows that a plan for any number of rows is made for
    K_STEP = 4096,                    // of FP32 operands
    CANDIDATES = 4,                   // of the heuristic, best first; the first that can do M rows is taken
};
enum { PLANS = 512, PROBES = 8 };  // a power of two; places that a plan may lie at
enum { BOOK_VERSION = 1, ALGO_BYTES = sizeof(cublasLtMatmulAlgo_t), NUMBERS_TEXT = 192 };

// What makes two products use one plan. Compared as bytes: no padding.
typedef struct plan_key {
    int64_t m, n, k;   // m: 0 for any, as far as the algorithms can do it
    int64_t lda, ldb;  // columns of a and b in memory
    uint32_t type, d_type;
    uint32_t ta, tb, bias;
    uint32_t split;     // whether k may be divided
    uint32_t align[3];  // a, b, d: bytes, at most 16
    uint32_t unused;
} plan_key;
_Static_assert(sizeof(plan_key) == 5 * 8 + 10 * 4, "padding");

typedef struct plan {
    plan_key key;
    bool ready;
    bool kept;  // belongs to the book: is never evicted
    int64_t m;  // that the layouts and `algo` are for; 0: for none
    bool fits;  // an algorithm can do m rows: `algo`
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    int candidates;  // best first
    cublasLtMatmulAlgo_t candidate[CANDIDATES], algo;
    bool parts;  // it divides k
} plan;

struct matmul_plans {
    blas lib;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    plan *table;  // PLANS
};

// --- failures ------------------------------------------------------------------------------------------------------------------------

static err_t blas_status(const matmul_plans *p, cublasStatus_t status, const char *call, const char *file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return ERR_OK;
    bool absent = status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED || status == CUBLAS_STATUS_ARCH_MISMATCH;
    return err_set_at(file, line, call, absent ? ERR_UNAVAILABLE : ERR_INTERNAL, "cuda: %.40s: %s (%d, cuBLASLt %zu, %s)", call,
                      p->lib.cublasLtGetStatusString(status), (int)status, p->lib.version, p->lib.path);
}
#define BLAS(name, ...) TRY(blas_status(p, p->lib.name(__VA_ARGS__), #name, __FILE__, __LINE__))

// "matmul (7,65,33) bf16 to fp32, a transposed, ..."; m is 0 for any
static int key_text(const plan_key *k, int64_t m, char *dst, size_t room) {
    return snprintf(dst, room,
                    "matmul (%" PRId64 ",%" PRId64 ",%" PRId64 ") %s to %s%s%s%s%s, rows of %" PRId64 " and %" PRId64 ", aligned to %u, %u and %u", m,
                    k->n, k->k, dtype_name(k->type), dtype_name(k->d_type), k->ta ? ", a transposed" : "", k->tb ? ", b transposed" : "",
                    k->bias ? ", with bias" : "", k->split ? ", k may be divided" : "", k->lda, k->ldb, k->align[0], k->align[1], k->align[2]);
}

// --- making plans --------------------------------------------------------------------------------------------------------------------

static cudaDataType_t blas_type(uint32_t t) { return t == FP32 ? CUDA_R_32F : t == BF16 ? CUDA_R_16BF : CUDA_R_16F; }

#define DESC(attribute, value) BLAS(cublasLtMatmulDescSetAttribute, e->desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))
#define PREFER(attribute, value) BLAS(cublasLtMatmulPreferenceSetAttribute, p->preference, CUBLASLT_MATMUL_PREF_##attribute, &(value), sizeof(value))

static err_t make_descriptors(matmul_plans *p, plan *e, const void *bias) {
    const plan_key *k = &e->key;
    int32_t trans_a = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N, trans_b = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    uint64_t n = (uint64_t)k->n, m = (uint64_t)e->m, depth = (uint64_t)k->k;
    cudaDataType_t type = blas_type(k->type);
    BLAS(cublasLtMatmulDescCreate, &e->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    DESC(TRANSA, trans_a);
    DESC(TRANSB, trans_b);
    if (k->bias) {
        DESC(EPILOGUE, epilogue);
        DESC(BIAS_POINTER, bias);
    }
    BLAS(cublasLtMatrixLayoutCreate, &e->a, type, k->tb ? depth : n, k->tb ? n : depth, k->ldb);
    BLAS(cublasLtMatrixLayoutCreate, &e->b, type, k->ta ? m : depth, k->ta ? depth : m, k->lda);
    BLAS(cublasLtMatrixLayoutCreate, &e->d, blas_type(k->d_type), n, m, k->n);
    return ERR_OK;
}

// The heuristic's algorithms for the plan's layouts as they are, best first: at least one.
static err_t ask(matmul_plans *p, const plan *e, cublasLtMatmulAlgo_t out[CANDIDATES], int *count) {
    uint64_t workspace = WORKSPACE;
    uint32_t scheme = e->key.split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES] = {0};  // bytes that the library leaves are the same everywhere
    int all = 0;
    char text[256];
    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, scheme);
    PREFER(MIN_ALIGNMENT_A_BYTES, e->key.align[1]);
    PREFER(MIN_ALIGNMENT_B_BYTES, e->key.align[0]);
    PREFER(MIN_ALIGNMENT_C_BYTES, e->key.align[2]);
    PREFER(MIN_ALIGNMENT_D_BYTES, e->key.align[2]);
    cublasStatus_t status = p->lib.cublasLtMatmulAlgoGetHeuristic(p->handle, e->desc, e->a, e->b, e->d, e->d, p->preference, CANDIDATES, found, &all);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) TRY(blas_status(p, status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__));
    *count = 0;
    for (int i = 0; i < all; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= WORKSPACE) out[(*count)++] = found[i].algo;
    if (*count) return ERR_OK;
    key_text(&e->key, e->m, text, sizeof text);
    return err_set(ERR_UNAVAILABLE, "cuda: %s: cuBLASLt %zu (%s) has no algorithm for it on this GPU; install a newer cuBLAS", text, p->lib.version,
                   p->lib.path);
}

static uint32_t config(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint64_t wide = 0;  // the two shapes are 16 bits, the rest 32
    size_t written = 0;
    bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    (void)p->lib.cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, &wide, narrow ? 2 : 4, &written);
    return (uint32_t)wide;
}

static void take(const matmul_plans *p, plan *e, const cublasLtMatmulAlgo_t *candidate) {
    e->algo = *candidate;
    e->parts = config(p, candidate, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

static void drop(const matmul_plans *p, plan *e) {
    if (e->desc) (void)p->lib.cublasLtMatmulDescDestroy(e->desc);
    if (e->a) (void)p->lib.cublasLtMatrixLayoutDestroy(e->a);
    if (e->b) (void)p->lib.cublasLtMatrixLayoutDestroy(e->b);
    if (e->d) (void)p->lib.cublasLtMatrixLayoutDestroy(e->d);
    *e = (plan){0};
}

static err_t make(matmul_plans *p, plan *e, const plan_key *key, const void *bias) {
    drop(p, e);
    e->key = *key;
    e->m = key->m ? key->m : BATCH_ROWS;
    TRY(make_descriptors(p, e, bias));
    TRY(ask(p, e, e->candidate, &e->candidates));
    if (key->m) e->candidates = 1;  // the others are for other numbers of rows
    take(p, e, &e->candidate[0]);
    e->fits = e->ready = true;
    return ERR_OK;
}

// Can it do this, for the plan's layouts as they are?
static bool possible(matmul_plans *p, const plan *e, const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = p->lib.cublasLtMatmulAlgoCheck(p->handle, e->desc, e->a, e->b, e->d, e->d, algo, &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= WORKSPACE;
}

// Sets `algo` to the first of the plan's algorithms that can do the number of rows in its layouts. False: none can.
static bool choose(matmul_plans *p, plan *e) {
    for (int i = 0; i < e->candidates; i++) {
        if (!possible(p, e, &e->candidate[i])) continue;
        take(p, e, &e->candidate[i]);
        return true;
    }
    return false;
}

// --- the table -----------------------------------------------------------------------------------------------------------------------

static uint64_t fnv(const void *bytes, size_t n) {  // FNV-1a, 64 bits
    const unsigned char *c = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ c[i]) * 0x100000001b3u;
    return h;
}

// The key's plan. NULL: it has none, and *place is where to make it: an unused place, or the first whose plan may be
// evicted, or NULL.
static plan *find(matmul_plans *p, const plan_key *key, plan **place) {
    uint64_t h = fnv(key, sizeof *key), home = h ^ h >> 32;
    plan *unused = NULL, *pushed = NULL;
    for (int i = 0; i < PROBES; i++) {
        plan *e = &p->table[(home + (uint64_t)i) % PLANS];
        if (e->ready && memcmp(&e->key, key, sizeof *key) == 0) return e;
        if (!e->ready && !unused) unused = e;
        if (!e->kept && !pushed) pushed = e;
    }
    *place = unused ? unused : pushed;
    return NULL;
}

static err_t no_place(const plan_key *key) {
    char text[256];
    key_text(key, key->m, text, sizeof text);
    return err_set(ERR_UNAVAILABLE,
                   "cuda: %s: there is no place for its plan among those of the run, of which there are %d at most; the run has met too "
                   "many shapes: do what meets others in a run of its own",
                   text, PLANS);
}

// A plan that the heuristic makes follows from its key alone: an evicted one is made again the same.
static err_t plan_for(matmul_plans *p, const plan_key *key, const void *bias, plan **out) {
    plan *place;
    if ((*out = find(p, key, &place))) return ERR_OK;
    if (!place) return no_place(key);
    *out = place;
    return make(p, place, key, bias);
}

// Turns a plan for any number of rows into one for m. If none of its algorithms can do m rows, m gets a plan of its
// own: correct, but perhaps with other bits.
static err_t fit(matmul_plans *p, plan **of, int64_t m, const void *bias) {
    plan *e = *of;
    if (e->m != m) {
        uint64_t rows = (uint64_t)m;
        e->m = 0;  // until all of it is for m
        BLAS(cublasLtMatrixLayoutSetAttribute, e->b, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
        BLAS(cublasLtMatrixLayoutSetAttribute, e->d, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
        e->fits = choose(p, e);
        e->m = m;
    }
    if (e->fits) return ERR_OK;
    plan_key own = e->key;
    own.m = m;
    return plan_for(p, &own, bias, of);
}

// --- products ------------------------------------------------------------------------------------------------------------------------

// The largest power of two up to 16 that divides x.
static uint32_t alignment(uint64_t x) { return (uint32_t)((x | 16) & (~(x | 16) + 1)); }

// What every row of t is aligned to.
static uint32_t row_alignment(const tensor *t) { return alignment((uintptr_t)t->data | (uint64_t)t->size[1] * dtype_bytes(t->type)); }

// op(a) op(b) and its sums, before the elementwise part of the epilogue.
typedef struct product {
    int64_t m, k;
    const tensor *a, *b, *d;  // d: for its type and shape
    bool ta, tb;
    bool split;
    const void *bias;  // of d's type, or NULL
} product;

// The plan for `depth` of k from k0 on.
static err_t plan_step(matmul_plans *p, const product *g, int64_t k0, int64_t depth, plan **out) {
    const void *bias = k0 ? NULL : g->bias;
    plan_key key = {
        .m = g->ta ? g->m : 0,
        .n = g->d->size[1],
        .k = depth,
        .lda = g->a->size[1],
        .ldb = g->b->size[1],
        .type = g->a->type,
        .d_type = g->d->type,
        .ta = g->ta,
        .tb = g->tb,
        .bias = bias != NULL,
        .split = g->split,
        .align = {row_alignment(g->a), row_alignment(g->b), row_alignment(g->d)},
    };
    if (bias && alignment((uintptr_t)bias) < key.align[2]) key.align[2] = alignment((uintptr_t)bias);
    return plan_for(p, &key, bias, out);
}

static const char *from_k(const tensor *t, bool k_first, int64_t k) {
    return (const char *)t->data + (size_t)(k * (k_first ? t->size[1] : 1)) * dtype_bytes(t->type);
}

// out = beta * out + the product, `step` of k at a time.
static err_t multiply(matmul_plans *p, const product *g, int64_t step, void *out, float beta, stream *s) {
    const float one = 1;
    for (int64_t k0 = 0; k0 < g->k; k0 += step, beta = 1) {
        plan *e;
        TRY(plan_step(p, g, k0, g->k - k0 < step ? g->k - k0 : step, &e));
        TRY(fit(p, &e, g->m, g->bias));
        if (e->key.bias) DESC(BIAS_POINTER, g->bias);
        BLAS(cublasLtMatmul, p->handle, e->desc, &one, from_k(g->b, !g->tb, k0), e->a, from_k(g->a, g->ta, k0), e->b, &beta, out, e->d, out, e->d,
             &e->algo, s->scratch, WORKSPACE, s->native);
        TRY(cuda_launched(s, "cublasLtMatmul", __FILE__, __LINE__));
    }
    return ERR_OK;
}

// d (+=): the whole sum over k is formed before d is added.
static err_t accumulate(matmul_plans *p, const product *g, tensor *d, stream *s) {
    tensor sum = *d;
    plan *first;
    bool fits = tensor_bytes(d) <= ROOM;
    int64_t step = fits && g->a->type == FP32 && g->k > K_STEP ? K_STEP : g->k;
    product whole = *g;
    whole.split = g->split && fits;
    TRY(plan_step(p, &whole, 0, step, &first));
    if (step == g->k && !first->parts) return multiply(p, &whole, step, d->data, 1, s);
    sum.data = (char *)s->scratch + WORKSPACE;
    TRY(multiply(p, &whole, step, sum.data, 0, s));
    return cuda_add(&(add_args){.y = d, .a = d, .b = &sum}, s);
}

err_t cuda_matmul(const matmul_args *args, stream *s) {
    matmul_check(args);
    matmul_plans *p = ((cuda_device *)s->dev)->plans;
    tensor out = *args->d, bias32;
    product g = {.m = args->d->size[0],
                 .k = args->a->size[!args->ta],
                 .a = args->a,
                 .b = args->b,
                 .d = &out,
                 .ta = args->ta,
                 .tb = args->tb,
                 .split = args->ta};
    if (args->epilogue & MATMUL_ACCUMULATE) return accumulate(p, &g, args->d, s);
    if (args->epilogue & MATMUL_BIAS) {
        g.bias = args->bias->data;
        if (args->d->type != args->bias->type) {  // cuBLASLt requires d's type
            bias32 = *args->bias;
            bias32.type = FP32;
            bias32.data = (char *)s->scratch + WORKSPACE;
            if (tensor_bytes(&bias32) > ROOM)
                return err_set(ERR_INTERNAL, "matmul: a bias of %" PRId64 " does not fit into scratch", args->d->size[1]);
            TRY(cuda_cast(&(cast_args){.y = &bias32, .x = args->bias}, s));
            g.bias = bias32.data;
        }
    }
    if (args->epilogue & MATMUL_GELU) out.data = args->pre->data;
    TRY(multiply(p, &g, args->a->type == FP32 ? K_STEP : g.k, out.data, 0, s));
    if (args->epilogue & MATMUL_GELU) return cuda_gelu_forward(&(gelu_forward_args){.y = args->d, .x = args->pre}, s);
    if (args->epilogue & MATMUL_DGELU) return cuda_gelu_backward(&(gelu_backward_args){.dx = args->d, .dy = args->d, .x = args->pre}, s);
    return ERR_OK;
}

// --- opening, and what was chosen ----------------------------------------------------------------------------------------------------

static err_t open_plans(matmul_plans *p) {
    TRY(blas_open(&p->lib));
    p->table = calloc(PLANS, sizeof *p->table);
    if (!p->table) return err_set(ERR_INTERNAL, "no memory for matmul plans");
    BLAS(cublasLtCreate, &p->handle);
    BLAS(cublasLtMatmulPreferenceCreate, &p->preference);
    return ERR_OK;
}

err_t matmul_plans_open(matmul_plans **out, cuda_device *d) {
    (void)d;  // it is the current device: the handle becomes its
    *out = NULL;
    matmul_plans *p = calloc(1, sizeof *p);
    if (!p) return err_set(ERR_INTERNAL, "no memory for matmul plans");
    err_t rc = open_plans(p);
    if (rc != ERR_OK) {
        matmul_plans_close(p);
        return err_pass(__FILE__, __LINE__, __func__, rc);
    }
    *out = p;
    return ERR_OK;
}

void matmul_plans_close(matmul_plans *p) {
    if (!p) return;
    for (int i = 0; p->table && i < PLANS; i++) drop(p, &p->table[i]);
    if (p->preference) (void)p->lib.cublasLtMatmulPreferenceDestroy(p->preference);
    if (p->handle) (void)p->lib.cublasLtDestroy(p->handle);
    free(p->table);
    free(p);
}

size_t matmul_plans_library(const matmul_plans *p) { return p->lib.version; }

// --- the book ------------------------------------------------------------------------------------------------------------------------
// A plan as a line of text: version; key; algorithms, best first, byte for byte, which is how cuBLASLt lets them be stored for the same version of
// itself; the numbers of the first, for people; and the FNV-1a of all that, which any single change changes:
//
//   matmul 1: m 0 n 24 k 40 lda 40 ldb 40 bf16 to fp32 ta 0 tb 1 bias 0 split 0 align 16 16 16: 0700...00 0700...00: algo 7 tile 18 ...: 0123456789abcdef

static const struct number {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    const char *name;
} numbers[] = {
    {CUBLASLT_ALGO_CONFIG_ID, "algo"},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, "tile"},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages"},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split"},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, "scheme"},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, "swizzle"},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "custom"},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, "inner"},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, "cluster"},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void numbers_text(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo, char dst[NUMBERS_TEXT]) {
    int at = 0;
    for (int i = 0; i < NUMBERS; i++)
        at += snprintf(dst + at, NUMBERS_TEXT - (size_t)at, "%s%s %u", i ? " " : "", numbers[i].name, config(p, algo, numbers[i].attribute));
}

// The numbers define an algorithm completely. Some of its bytes may have no meaning.
static bool same_algorithm(const matmul_plans *p, const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b) {
    for (int i = 0; i < NUMBERS; i++)
        if (config(p, a, numbers[i].attribute) != config(p, b, numbers[i].attribute)) return false;
    return true;
}

// The content of a line.
typedef struct entry {
    plan_key key;
    int candidates;
    cublasLtMatmulAlgo_t candidate[CANDIDATES];
} entry;

static int head_text(const plan_key *k, char dst[DEVICE_PLAN]) {
    return snprintf(dst, DEVICE_PLAN,
                    "matmul %d: m %" PRId64 " n %" PRId64 " k %" PRId64 " lda %" PRId64 " ldb %" PRId64
                    " %s to %s ta %u tb %u bias %u split %u align %u %u %u:",
                    BOOK_VERSION, k->m, k->n, k->k, k->lda, k->ldb, dtype_name(k->type), dtype_name(k->d_type), k->ta, k->tb, k->bias, k->split,
                    k->align[0], k->align[1], k->align[2]);
}

static void entry_text(const matmul_plans *p, const entry *x, char dst[DEVICE_PLAN]) {
    char words[NUMBERS_TEXT];
    int at = head_text(&x->key, dst);
    for (int i = 0; i < x->candidates; i++) {
        const unsigned char *byte = (const unsigned char *)&x->candidate[i];
        dst[at++] = ' ';
        for (int k = 0; k < ALGO_BYTES; k++) at += snprintf(dst + at, DEVICE_PLAN - (size_t)at, "%02x", byte[k]);
    }
    numbers_text(p, &x->candidate[0], words);
    at += snprintf(dst + at, DEVICE_PLAN - (size_t)at, ": %s: ", words);
    snprintf(dst + at, DEVICE_PLAN - (size_t)at, "%016" PRIx64, fnv(dst, (size_t)at));
}

bool cuda_plans_get(const device *d, int index, char text[DEVICE_PLAN]) {
    const matmul_plans *p = ((const cuda_device *)d)->plans;
    for (int i = 0; i < PLANS; i++) {
        const plan *e = &p->table[i];
        if (!e->ready || index-- > 0) continue;
        entry x = {.key = e->key, .candidates = e->candidates};
        memcpy(x.candidate, e->candidate, sizeof x.candidate);
        entry_text(p, &x, text);
        return true;
    }
    return false;
}

static bool read_type(const char *word, uint32_t *type) {
    for (*type = FP32; *type <= FP16; ++*type)
        if (strcmp(word, dtype_name(*type)) == 0) return true;
    return false;
}

// Reads the key. Returns where the algorithms begin; NULL: not a key.
static const char *read_head(const char *text, plan_key *k) {
    long long m, n, depth, lda, ldb;
    char type[8], d_type[8], again[DEVICE_PLAN];
    int end = 0;
    *k = (plan_key){0};
    int found = sscanf(text, "matmul %*d: m %lld n %lld k %lld lda %lld ldb %lld %7s to %7s ta %u tb %u bias %u split %u align %u %u %u:%n", &m, &n,
                       &depth, &lda, &ldb, type, d_type, &k->ta, &k->tb, &k->bias, &k->split, &k->align[0], &k->align[1], &k->align[2], &end);
    if (found != 14 || end == 0 || !read_type(type, &k->type) || !read_type(d_type, &k->d_type)) return NULL;
    k->m = m, k->n = n, k->k = depth, k->lda = lda, k->ldb = ldb;
    bool flags = k->ta <= 1 && k->tb <= 1 && k->bias <= 1 && k->split <= 1;
    for (int i = 0; i < 3; i++) flags = flags && k->align[i] >= 1 && k->align[i] <= 16 && !(k->align[i] & (k->align[i] - 1));
    bool written_so = head_text(k, again) == end && memcmp(again, text, (size_t)end) == 0;
    return flags && written_so && m >= 0 && n >= 1 && depth >= 1 && lda >= 1 && ldb >= 1 ? text + end : NULL;
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static bool read_algorithm(const char *hex, cublasLtMatmulAlgo_t *out) {
    unsigned char *byte = (unsigned char *)out;
    for (int k = 0; k < ALGO_BYTES; k++) {
        int high = digit(hex[2 * k]), low = high < 0 ? -1 : digit(hex[2 * k + 1]);  // never past the end of the text
        if (low < 0) return false;
        byte[k] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool read_entry(const char *text, entry *x) {
    const char *at = read_head(text, &x->key);
    x->candidates = 0;
    while (at && *at == ' ' && x->candidates < CANDIDATES && read_algorithm(at + 1, &x->candidate[x->candidates])) {
        at += 1 + 2 * ALGO_BYTES;
        x->candidates++;
    }
    return at && *at == ':' && x->candidates > 0;
}

// Nothing is guessed: the entry that was read, written again, must give the same text.
static err_t parse_entry(const matmul_plans *p, const char *text, entry *x) {
    char again[DEVICE_PLAN], sum[17];
    int version = 0;
    size_t n = strnlen(text, DEVICE_PLAN);
    if (sscanf(text, "matmul %d:", &version) == 1 && version != BOOK_VERSION)
        return err_set(ERR_CONFIG, "cuda: a matmul plan is of version %d, this build knows %d: go on with the build that wrote it (\"%.80s...\")",
                       version, BOOK_VERSION, text);
    snprintf(sum, sizeof sum, "%016" PRIx64, fnv(text, n < 16 ? 0 : n - 16));
    bool whole = n >= 16 && n < DEVICE_PLAN && strcmp(text + n - 16, sum) == 0 && read_entry(text, x);
    if (whole) entry_text(p, x, again);
    if (whole && strcmp(again, text) == 0) return ERR_OK;
    return err_set(ERR_DATA, "cuda: a matmul plan is damaged, or of another library: \"%.80s...\"", text);
}

// The plan of a key that was met already, or set already.
static err_t confirm(const matmul_plans *p, const plan *e, const entry *x) {
    char text[256], mine[NUMBERS_TEXT], theirs[NUMBERS_TEXT];
    int i = 0, count = e->candidates < x->candidates ? e->candidates : x->candidates;
    while (i < count && same_algorithm(p, &e->candidate[i], &x->candidate[i])) i++;
    if (i == count && e->candidates == x->candidates) return ERR_OK;
    key_text(&e->key, e->key.m, text, sizeof text);
    if (i == count)
        return err_set(ERR_CONFIG, "cuda: %s: the plan that is given has %d algorithms to choose from, the device has chosen among %d", text,
                       x->candidates, e->candidates);
    numbers_text(p, &x->candidate[i], theirs);
    numbers_text(p, &e->candidate[i], mine);
    return err_set(ERR_CONFIG, "cuda: %s: the plan that is given is %s, the device has chosen %s", text, theirs, mine);
}

static err_t fill(matmul_plans *p, plan *e, const entry *x) {
    static const _Alignas(16) char some_bias[16];  // never read, but its address may be checked
    char text[256], words[NUMBERS_TEXT];
    e->key = x->key;
    e->m = x->key.m ? x->key.m : BATCH_ROWS;
    e->candidates = x->candidates;
    memcpy(e->candidate, x->candidate, sizeof e->candidate);
    TRY(make_descriptors(p, e, some_bias));
    for (int i = 0; i < e->candidates; i++) {
        if (possible(p, e, &e->candidate[i])) continue;
        key_text(&e->key, e->m, text, sizeof text);
        numbers_text(p, &e->candidate[i], words);
        return err_set(ERR_CONFIG, "cuda: %s: the plan that is given, %s, is refused: cuBLASLt %zu (%s) cannot do it on this GPU", text, words,
                       p->lib.version, p->lib.path);
    }
    take(p, e, &e->candidate[0]);
    e->fits = e->ready = true;
    return ERR_OK;
}

err_t cuda_plans_set(device *d, const char *text) {
    matmul_plans *p = ((cuda_device *)d)->plans;
    entry x = {0};
    plan *place, *e;
    TRY(parse_entry(p, text, &x));
    if ((e = find(p, &x.key, &place))) TRY(confirm(p, e, &x));
    else if (!place) return no_place(&x.key);
    else {
        drop(p, e = place);
        err_t rc = fill(p, e, &x);
        if (rc != ERR_OK) drop(p, e);
        TRY(rc);
    }
    e->kept = true;
    return ERR_OK;
}

err_t blas_about(char *dst, size_t room) {
    blas lib;
    TRY(blas_open(&lib));
    snprintf(dst, room, "cuBLASLt %zu.%zu.%zu, %s", lib.version / 10000, lib.version / 100 % 100, lib.version % 100, lib.path);
    return ERR_OK;
}
