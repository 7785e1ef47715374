// gpu/cuda/book.c: a plan as a line of text: version; key; algorithms, best first, byte for byte, which is how cuBLASLt
// lets them be stored for the same version of itself; the numbers of the first, for people; and the FNV-1a of all that,
// which any single change changes:
//
//   matmul 2: m 4096 n 24 k 40 lda 40 ldb 40 bf16 to fp32 ta 0 tb 1 bias 0 split 0 align 16 16 16: 0700...00 0700...00:
//   algo 7 tile 18 ...: 0123456789abcdef matmul 2: m 4096 n 23 k 41 lda 41 ldb 41 bf16 to fp32 ta 0 tb 1 bias 0 split 0
//   align 2 2 2: own: tile 64 x 64: 0123456789abcdef
#include "gpu/cuda/plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

void plan_numbers(const matmul_plans *p, const cublasLtMatmulAlgo_t *algo, char dst[NUMBERS_TEXT]) {
    int at = 0;
    for (int i = 0; i < NUMBERS; i++)
        at += snprintf(dst + at, NUMBERS_TEXT - (size_t)at, "%s%s %u", i ? " " : "", numbers[i].name,
                       plan_number(p, algo, numbers[i].attribute));
}

// The numbers define an algorithm completely. Some of its bytes may have no meaning.
static bool same_algorithm(const matmul_plans *p, const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b) {
    for (int i = 0; i < NUMBERS; i++)
        if (plan_number(p, a, numbers[i].attribute) != plan_number(p, b, numbers[i].attribute)) return false;
    return true;
}

// In place of algorithms. Its number changes with the order of its sums.
#define OWN "own kernel 1"

static int head_text(const plan_key *k, char dst[DEVICE_PLAN]) {
    return snprintf(dst, DEVICE_PLAN,
                    "matmul %d: m %" PRId64 " n %" PRId64 " k %" PRId64 " lda %" PRId64 " ldb %" PRId64
                    " %s to %s ta %u tb %u bias %u split %u align %u %u %u:",
                    BOOK_VERSION, k->m, k->n, k->k, k->lda, k->ldb, dtype_name(k->type), dtype_name(k->d_type), k->ta,
                    k->tb, k->bias, k->split, k->align[0], k->align[1], k->align[2]);
}

void plan_write(const matmul_plans *p, const plan_entry *x, char dst[DEVICE_PLAN]) {
    char words[NUMBERS_TEXT];
    int at = head_text(&x->key, dst);
    for (int i = 0; i < x->candidates; i++) {
        const unsigned char *byte = (const unsigned char *)&x->candidate[i];
        dst[at++] = ' ';
        for (int k = 0; k < ALGO_BYTES; k++) at += snprintf(dst + at, DEVICE_PLAN - (size_t)at, "%02x", byte[k]);
    }
    if (x->candidates) plan_numbers(p, &x->candidate[0], words);
    else snprintf(words, sizeof words, "%s", OWN);
    at += snprintf(dst + at, DEVICE_PLAN - (size_t)at, ": %s: ", words);
    snprintf(dst + at, DEVICE_PLAN - (size_t)at, "%016" PRIx64, plan_fnv(dst, (size_t)at));
}

bool cuda_plans_get(const device *d, int index, char text[DEVICE_PLAN]) {
    const matmul_plans *p = ((const cuda_device *)d)->plans;
    for (int i = 0; i < PLANS; i++) {
        const plan *e = &p->table[i];
        if (!e->ready || index-- > 0) continue;
        plan_entry x = {.key = e->key, .candidates = e->candidates};
        memcpy(x.candidate, e->candidate, sizeof x.candidate);
        plan_write(p, &x, text);
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
    int found = sscanf(
        text,
        "matmul %*d: m %lld n %lld k %lld lda %lld ldb %lld %7s to %7s ta %u tb %u bias %u split %u align %u %u %u:%n",
        &m, &n, &depth, &lda, &ldb, type, d_type, &k->ta, &k->tb, &k->bias, &k->split, &k->align[0], &k->align[1],
        &k->align[2], &end);
    if (found != 14 || end == 0 || !read_type(type, &k->type) || !read_type(d_type, &k->d_type)) return NULL;
    k->m = m, k->n = n, k->k = depth, k->lda = lda, k->ldb = ldb;
    bool flags = k->ta <= 1 && k->tb <= 1 && k->bias <= 1 && k->split <= 1;
    for (int i = 0; i < 3; i++)
        flags = flags && k->align[i] >= 1 && k->align[i] <= 16 && !(k->align[i] & (k->align[i] - 1));
    bool written_so = head_text(k, again) == end && memcmp(again, text, (size_t)end) == 0;
    return flags && written_so && m >= 1 && n >= 1 && depth >= 1 && lda >= 1 && ldb >= 1 ? text + end : NULL;
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

static bool read_entry(const char *text, plan_entry *x) {
    const char *at = read_head(text, &x->key);
    x->candidates = 0;
    while (at && *at == ' ' && x->candidates < CANDIDATES && read_algorithm(at + 1, &x->candidate[x->candidates])) {
        at += 1 + 2 * ALGO_BYTES;
        x->candidates++;
    }
    return at && *at == ':';
}

// Nothing is guessed: the entry that was read, written again, must give the same text.
err_t plan_read(const matmul_plans *p, const char *text, plan_entry *x) {
    char again[DEVICE_PLAN], sum[17];
    int version = 0;
    size_t n = strnlen(text, DEVICE_PLAN);
    if (sscanf(text, "matmul %d:", &version) == 1 && version != BOOK_VERSION)
        return err_set(
            ERR_CONFIG,
            "cuda: a matmul plan is of version %d, this build knows %d: go on with the build that wrote it (\"%.80s...\")",
            version, BOOK_VERSION, text);
    snprintf(sum, sizeof sum, "%016" PRIx64, plan_fnv(text, n < 16 ? 0 : n - 16));
    bool whole = n >= 16 && n < DEVICE_PLAN && strcmp(text + n - 16, sum) == 0 && read_entry(text, x);
    if (whole) plan_write(p, x, again);
    if (whole && strcmp(again, text) == 0) return ERR_OK;
    return err_set(ERR_DATA, "cuda: a matmul plan is damaged, or of another library: \"%.80s...\"", text);
}

// The plan of a key that was met already, or set already.
static err_t confirm(const matmul_plans *p, const plan *e, const plan_entry *x) {
    char text[PLAN_NAME], mine[NUMBERS_TEXT], theirs[NUMBERS_TEXT];
    int i = 0, count = e->candidates < x->candidates ? e->candidates : x->candidates;
    while (i < count && same_algorithm(p, &e->candidate[i], &x->candidate[i])) i++;
    if (i == count && e->candidates == x->candidates) return ERR_OK;
    plan_name(&e->key, e->key.m, text);
    if (count == 0)
        return err_set(ERR_CONFIG, "cuda: %s: the plan that is given is %s, the device has chosen %s", text,
                       x->candidates ? "cuBLASLt's" : OWN, e->candidates ? "cuBLASLt's" : OWN);
    if (i == count)
        return err_set(
            ERR_CONFIG,
            "cuda: %s: the plan that is given has %d algorithms to choose from, the device has chosen among %d", text,
            x->candidates, e->candidates);
    plan_numbers(p, &x->candidate[i], theirs);
    plan_numbers(p, &e->candidate[i], mine);
    return err_set(ERR_CONFIG, "cuda: %s: the plan that is given is %s, the device has chosen %s", text, theirs, mine);
}

static err_t fill(matmul_plans *p, plan *e, const plan_entry *x) {
    static const _Alignas(16) char some_bias[16];  // never read, but its address may be checked
    char text[PLAN_NAME], words[NUMBERS_TEXT];
    e->key = x->key;
    e->m = x->key.m;
    e->candidates = x->candidates;
    e->fits = e->ready = true;
    if (!e->candidates) return ERR_OK;
    memcpy(e->candidate, x->candidate, sizeof e->candidate);
    TRY(plan_describe(p, e, some_bias));
    for (int i = 0; i < e->candidates; i++) {
        if (plan_possible(p, e, &e->candidate[i])) continue;
        plan_name(&e->key, e->m, text);
        plan_numbers(p, &e->candidate[i], words);
        return err_set(ERR_CONFIG,
                       "cuda: %s: the plan that is given, %s, is refused: cuBLASLt %zu (%s) cannot do it on this GPU",
                       text, words, p->lib.version, p->lib.path);
    }
    plan_take(p, e, &e->candidate[0]);
    return ERR_OK;
}

err_t cuda_plans_set(device *d, const char *text) {
    matmul_plans *p = ((cuda_device *)d)->plans;
    plan_entry x = {0};
    plan *place, *e;
    TRY(plan_read(p, text, &x));
    if ((e = plan_find(p, &x.key, &place))) TRY(confirm(p, e, &x));
    else if (!place) return plan_no_place(&x.key);
    else {
        plan_drop(p, e = place);
        err_t rc = fill(p, e, &x);
        if (rc != ERR_OK) plan_drop(p, e);
        TRY(rc);
    }
    e->kept = true;
    return ERR_OK;
}
