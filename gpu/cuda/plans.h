// gpu/cuda/plans.h: how each matrix product is computed: a plan, made when a shape is first met, and kept.
//
//   plans     A plan is a set of descriptors and an algorithm: one of cuBLASLt's, or, where it has none, our own kernel
//             (matmul_own.cu). Plans are in a table that is allocated at open. No memory is allocated at any other
//             time. A plan can be written as text and set in another process: the book (book.c). A plan from the book
//             is used unchanged and stays; only plans that were made here may be evicted, because they would be made
//             again the same
//   rows      The rows of a, where it is not transposed, are a batch, and a product of a part of them must give the
//             same bits. So a plan is for the rows of the whole batch, and computes any number of rows up to that: an
//             algorithm treats every element of d alike, wherever it is. `lockstep tune` tests that (tune.c)
//   choice    The heuristic's first algorithm, or the fastest of those that `lockstep tune` has timed
#ifndef GPU_CUDA_PLANS_H
#define GPU_CUDA_PLANS_H

#include "gpu/cuda/blas.h"
#include "gpu/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// All of these are part of the arithmetic.
enum {
    K_STEP = 4096,   // of FP32 operands: a longer chain of FP32 additions loses digits
    K_LONG = 16384,  // from here on k may be divided also where a is not transposed: few tiles, and each takes long
    CANDIDATES = 4,  // of the heuristic, best first; the first that can do M rows is taken
    TUNE_MOST = 32,  // of the heuristic, that are timed
};
enum { PLANS = 512, PROBES = 32 };  // a power of two; places that a plan may lie at
enum { BOOK_VERSION = 2, ALGO_BYTES = sizeof(cublasLtMatmulAlgo_t), NUMBERS_TEXT = 192 };

// What makes two products use one plan. Compared as bytes: no padding.
typedef struct plan_key {
    int64_t m, n, k;   // m: where a is not transposed, rows of the whole batch
    int64_t lda, ldb;  // columns of a and b in memory
    uint32_t type, d_type;
    uint32_t ta, tb, bias;
    uint32_t split;     // whether k may be divided
    uint32_t align[3];  // a, b, d: bytes, at most 16
    uint32_t unused;
} plan_key;
static_assert(sizeof(plan_key) == 5 * 8 + 10 * 4, "padding");

typedef struct plan {
    plan_key key;
    bool ready;
    bool kept;  // belongs to the book: is never evicted
    int64_t m;  // that the layouts and `algo` are for; 0: for none
    bool fits;  // an algorithm can do m rows: `algo`
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    int candidates;  // best first; 0: our kernel computes it, and there are no descriptors
    cublasLtMatmulAlgo_t candidate[CANDIDATES], algo;
    bool parts;  // it divides k
} plan;

struct matmul_plans {
    blas lib;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    plan *table;  // PLANS
};

err_t blas_status(const matmul_plans *p, cublasStatus_t status, const char *call, const char *file, int line);
#define BLAS(name, ...) TRY(blas_status(p, p->lib.name(__VA_ARGS__), #name, __FILE__, __LINE__))
#define DESC(attribute, value) \
    BLAS(cublasLtMatmulDescSetAttribute, e->desc, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))

// "matmul (7,65,33) bf16 to fp32, a transposed, ..." for m rows, of at most PLAN_NAME - 1 bytes.
void plan_name(const plan_key *k, int64_t m, char dst[PLAN_NAME]);

// --- plans.c ---------------------------------------------------------------------------------------------------------

// The key's plan. NULL: it has none, and *place is where to make it: an unused place, or the first whose plan may be
// evicted, or NULL.
plan *plan_find(matmul_plans *p, const plan_key *key, plan **place);
err_t plan_no_place(const plan_key *key);

// The key's plan, made where there is none yet. bias: the address that its descriptor begins with.
err_t plan_get(matmul_plans *p, const plan_key *key, const void *bias, plan **out);

// Prepares a plan for m rows. If none of its algorithms can do them, *of becomes a plan that is for m rows: correct,
// but perhaps with other bits.
err_t plan_fit(matmul_plans *p, plan **of, int64_t m, const void *bias);

// Frees what e holds; e is unused then.
void plan_drop(const matmul_plans *p, plan *e);

// Descriptors for e->key and e->m.
err_t plan_describe(matmul_plans *p, plan *e, const void *bias);

// Sets the number of rows in the layouts. Where a is transposed, they are always the key's.
err_t plan_set_rows(matmul_plans *p, plan *e, int64_t m);

// The heuristic's algorithms for the plan's layouts as they are, best first: at most `most`, none where it has none.
err_t plan_ask(matmul_plans *p, const plan *e, int most, cublasLtMatmulAlgo_t *out, int *count);

// Can it do this, for the plan's layouts as they are?
bool plan_possible(matmul_plans *p, const plan *e, const cublasLtMatmulAlgo_t *algo);

// Makes it the plan's algorithm.
void plan_take(const matmul_plans *p, plan *e, const cublasLtMatmulAlgo_t *algo);

// FNV-1a, 64 bits.
uint64_t plan_fnv(const void *bytes, size_t n);

// A number of an algorithm's configuration.
uint32_t plan_number(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo,
                     cublasLtMatmulAlgoConfigAttributes_t attribute);

// --- book.c ----------------------------------------------------------------------------------------------------------

// The content of a line.
typedef struct plan_entry {
    plan_key key;
    int candidates;
    cublasLtMatmulAlgo_t candidate[CANDIDATES];
} plan_entry;

void plan_write(const matmul_plans *p, const plan_entry *x, char dst[DEVICE_PLAN]);
err_t plan_read(const matmul_plans *p, const char *text, plan_entry *x);

// "algo 7 tile 18 ...": what defines an algorithm, for people.
void plan_numbers(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo, char dst[NUMBERS_TEXT]);

// --- matmul.c --------------------------------------------------------------------------------------------------------

// out = beta * c + op(a) op(b) (+ bias) for m rows, as the plan says, which is ready for them (plan_fit). c may be out.
typedef struct plan_operands {
    int64_t m;
    void *out;
    const void *c, *a, *b, *bias;
    float beta;
} plan_operands;
err_t plan_run(matmul_plans *p, plan *e, const plan_operands *x, stream *s);

// --- matmul_own.cu ---------------------------------------------------------------------------------------------------

err_t matmul_own(const plan_key *k, const plan_operands *x, stream *s);

// *differ (=), on the device: 1 if the two hold different bytes, else 0. bytes is a multiple of 2.
err_t memory_differs(int32_t *differ, const void *a, const void *b, size_t bytes, stream *s);

#ifdef __cplusplus
}
#endif
#endif
