// gpu/cuda/plans.c: see gpu/cuda/plans.h: plans of cuBLASLt, and the table that holds them.
//
// A row-major d (M,N) = op(a) op(b) is, read by columns, d' (N,M) = op(b)' op(a)': cuBLASLt's A is our b, its B our a,
// its m is N and its n is M; what is transposed here is transposed there.
#include "gpu/cuda/plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- failures --------------------------------------------------------------------------------------------------------

err_t blas_status(const matmul_plans *p, cublasStatus_t status, const char *call, const char *file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return ERR_OK;
    bool absent = status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED ||
                  status == CUBLAS_STATUS_ARCH_MISMATCH;
    return err_set_at(file, line, call, absent ? ERR_UNAVAILABLE : ERR_INTERNAL,
                      "cuda: %.40s: %s (%d, cuBLASLt %zu, %s)", call, p->lib.cublasLtGetStatusString(status),
                      (int)status, p->lib.version, p->lib.path);
}

void plan_name(const plan_key *k, int64_t m, char dst[PLAN_NAME]) {
    snprintf(dst, PLAN_NAME,
             "matmul (%" PRId64 ",%" PRId64 ",%" PRId64 ") %s to %s%s%s%s%s, rows of %" PRId64 " and %" PRId64
             ", aligned to %u, %u and %u",
             m, k->n, k->k, dtype_name(k->type), dtype_name(k->d_type), k->ta ? ", a transposed" : "",
             k->tb ? ", b transposed" : "", k->bias ? ", with bias" : "", k->split ? ", k may be divided" : "", k->lda,
             k->ldb, k->align[0], k->align[1], k->align[2]);
}

// --- making plans ----------------------------------------------------------------------------------------------------

static cudaDataType_t blas_type(uint32_t t) { return t == FP32 ? CUDA_R_32F : t == BF16 ? CUDA_R_16BF : CUDA_R_16F; }

#define PREFER(attribute, value) \
    BLAS(cublasLtMatmulPreferenceSetAttribute, p->preference, CUBLASLT_MATMUL_PREF_##attribute, &(value), sizeof(value))

err_t plan_describe(matmul_plans *p, plan *e, const void *bias) {
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

err_t plan_ask(matmul_plans *p, const plan *e, int most, cublasLtMatmulAlgo_t *out, int *count) {
    uint64_t workspace = CUDA_WORKSPACE;
    uint32_t scheme = e->key.split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t found[TUNE_MOST] = {0};  // bytes that the library leaves are the same everywhere
    int all = 0;
    assert(most <= TUNE_MOST);
    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, scheme);
    PREFER(MIN_ALIGNMENT_A_BYTES, e->key.align[1]);
    PREFER(MIN_ALIGNMENT_B_BYTES, e->key.align[0]);
    PREFER(MIN_ALIGNMENT_C_BYTES, e->key.align[2]);
    PREFER(MIN_ALIGNMENT_D_BYTES, e->key.align[2]);
    cublasStatus_t status = p->lib.cublasLtMatmulAlgoGetHeuristic(p->handle, e->desc, e->a, e->b, e->d, e->d,
                                                                  p->preference, most, found, &all);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
        TRY(blas_status(p, status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__));
    *count = 0;
    for (int i = 0; i < all; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace)
            out[(*count)++] = found[i].algo;
    return ERR_OK;
}

uint32_t plan_number(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo,
                     cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint64_t wide = 0;  // the two shapes are 16 bits, the rest 32
    size_t written = 0;
    bool narrow =
        attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    (void)p->lib.cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, &wide, narrow ? 2 : 4, &written);
    return (uint32_t)wide;
}

void plan_take(const matmul_plans *p, plan *e, const cublasLtMatmulAlgo_t *algo) {
    e->algo = *algo;
    e->parts = plan_number(p, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

void plan_drop(const matmul_plans *p, plan *e) {
    if (e->desc) (void)p->lib.cublasLtMatmulDescDestroy(e->desc);
    if (e->a) (void)p->lib.cublasLtMatrixLayoutDestroy(e->a);
    if (e->b) (void)p->lib.cublasLtMatrixLayoutDestroy(e->b);
    if (e->d) (void)p->lib.cublasLtMatrixLayoutDestroy(e->d);
    *e = (plan){0};
}

bool plan_possible(matmul_plans *p, const plan *e, const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t status = p->lib.cublasLtMatmulAlgoCheck(p->handle, e->desc, e->a, e->b, e->d, e->d, algo, &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= CUDA_WORKSPACE;
}

// Sets `algo` to the first of the plan's algorithms that can do the number of rows in its layouts. False: none can.
static bool choose(matmul_plans *p, plan *e) {
    for (int i = 0; i < e->candidates; i++) {
        if (!plan_possible(p, e, &e->candidate[i])) continue;
        plan_take(p, e, &e->candidate[i]);
        return true;
    }
    return false;
}

// Where cuBLASLt has no algorithm that can do it, our kernel does it.
static err_t make(matmul_plans *p, plan *e, const plan_key *key, const void *bias) {
    cublasLtMatmulAlgo_t found[CANDIDATES];
    int count;
    plan_drop(p, e);
    e->key = *key;
    e->m = key->m;
    TRY(plan_describe(p, e, bias));
    TRY(plan_ask(p, e, CANDIDATES, found, &count));
    for (int i = 0; i < count; i++)
        if (plan_possible(p, e, &found[i])) e->candidate[e->candidates++] = found[i];
    if (e->candidates) plan_take(p, e, &e->candidate[0]);
    e->fits = e->ready = true;
    return ERR_OK;
}

// --- the table -------------------------------------------------------------------------------------------------------

uint64_t plan_fnv(const void *bytes, size_t n) {
    const unsigned char *c = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ c[i]) * 0x100000001b3u;
    return h;
}

plan *plan_find(matmul_plans *p, const plan_key *key, plan **place) {
    uint64_t h = plan_fnv(key, sizeof *key), home = h ^ h >> 32;
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

err_t plan_no_place(const plan_key *key) {
    char text[PLAN_NAME];
    plan_name(key, key->m, text);
    return err_set(
        ERR_UNAVAILABLE,
        "cuda: %s: there is no place for its plan among those of the run, of which there are %d at most; the run has met too "
        "many shapes: do what meets others in a run of its own",
        text, PLANS);
}

// A plan that is made here follows from its key alone: an evicted one is made again the same.
err_t plan_get(matmul_plans *p, const plan_key *key, const void *bias, plan **out) {
    plan *place;
    if ((*out = plan_find(p, key, &place))) return ERR_OK;
    if (!place) return plan_no_place(key);
    *out = place;
    return make(p, place, key, bias);
}

err_t plan_set_rows(matmul_plans *p, plan *e, int64_t m) {
    uint64_t rows = (uint64_t)m;
    if (e->m == m) return ERR_OK;
    e->m = 0;  // until all of it is for m
    BLAS(cublasLtMatrixLayoutSetAttribute, e->b, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
    BLAS(cublasLtMatrixLayoutSetAttribute, e->d, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows);
    e->m = m;
    return ERR_OK;
}

err_t plan_fit(matmul_plans *p, plan **of, int64_t m, const void *bias) {
    plan *e = *of;
    if (!e->candidates) return ERR_OK;
    if (e->m != m) {
        e->fits = false;
        TRY(plan_set_rows(p, e, m));
        e->fits = choose(p, e);
    }
    if (e->fits) return ERR_OK;
    plan_key key = e->key;
    key.m = m;
    return plan_get(p, &key, bias, of);
}

// --- opening ---------------------------------------------------------------------------------------------------------

// The newest library that makes a handle: one that is newer than the driver does not.
static err_t open_library(matmul_plans *p) {
    char first[ERR_TEXT / 2] = "";
    int from = 0;
    err_t rc = ERR_OK;
    while (from < BLAS_NAMES) {
        rc = blas_open(&p->lib, &from);
        if (rc == ERR_OK) rc = blas_status(p, p->lib.cublasLtCreate(&p->handle), "cublasLtCreate", __FILE__, __LINE__);
        if (rc == ERR_OK) return ERR_OK;
        if (*first) break;
        snprintf(first, sizeof first, "%.*s", (int)sizeof first - 1, err_last()->text);
    }
    return strcmp(first, err_last()->text) ? err_prefix("%s; and then", first) : rc;
}

static err_t open_plans(matmul_plans *p) {
    TRY(open_library(p));
    p->table = calloc(PLANS, sizeof *p->table);
    if (!p->table) return err_set(ERR_INTERNAL, "no memory for matmul plans");
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
    for (int i = 0; p->table && i < PLANS; i++) plan_drop(p, &p->table[i]);
    if (p->preference) (void)p->lib.cublasLtMatmulPreferenceDestroy(p->preference);
    if (p->handle) (void)p->lib.cublasLtDestroy(p->handle);
    free(p->table);
    free(p);
}

size_t matmul_plans_library(const matmul_plans *p) { return p->lib.version; }

err_t blas_about(char *dst, size_t room) {
    blas lib;
    int from = 0;
    TRY(blas_open(&lib, &from));
    snprintf(dst, room, "cuBLASLt %zu.%zu.%zu, %s", lib.version / 10000, lib.version / 100 % 100, lib.version % 100,
             lib.path);
    return ERR_OK;
}
