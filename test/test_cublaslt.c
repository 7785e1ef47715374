// test/test_cublaslt.c: does this machine's cuBLASLt have every call that the CUDA device makes, and what the rows of
// test_ops do not reach: plans that are shared, pushed out and made again, taken out as text, put back and refused, and
// sums too large for the stream's scratch. In a build without CUDA, on a machine without cuBLASLt or without a GPU, the
// parts concerned are skipped, by name; over the simulator all run.
#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// gpu/cuda/blas.h, without the headers that it includes; absent in a build without CUDA.
err_t blas_about(char *dst, size_t room) __attribute__((weak));

typedef struct gpu {
    device *dev;
    stream *s;
    const ops *o;
} gpu;

static void test_library(void **state) {
    (void)state;
    char text[512] = "";
    if (!blas_about) {
        print_message("test_cublaslt: skipped, this build has no CUDA: library\n");
        skip();
    }
    if (blas_about(text, sizeof text) == ERR_UNAVAILABLE) {
        print_message("test_cublaslt: skipped, there is no cuBLASLt: library (%s)\n", err_last()->text);
        assert_non_null(strstr(err_last()->text, "libcublasLt.so.13"));
        assert_non_null(strstr(err_last()->text, "install"));
        skip();
    }
    print_message("test_cublaslt: %s\n", text);
    assert_memory_equal(text, "cuBLASLt 1", 10);  // 12 or 13, and all symbols resolved
}

static int enter_gpu(gpu *g) {
    *g = (gpu){0};
    if (device_open(&g->dev, &(device_options){.kind = DEVICE_CUDA}) != ERR_OK) return 0;
    g->o = device_ops(g->dev);
    return stream_open(g->dev, &g->s) == ERR_OK ? 0 : -1;
}

static void leave_gpu(gpu *g) {
    stream_close(g->s);
    device_close(g->dev);
}

static int open_gpu(void **state) { return enter_gpu(*state = calloc(1, sizeof(gpu))); }

static int close_gpu(void **state) {
    leave_gpu(*state);
    free(*state);
    return 0;
}

// The same device, opened anew: it has no plans.
static void reopen(gpu *g) {
    leave_gpu(g);
    assert_int_equal(enter_gpu(g), 0);
}

static gpu *gpu_of(void **state, const char *name) {
    gpu *g = *state;
    if (g->dev) return g;
    print_message("test_cublaslt: skipped, no GPU: %s\n", name);
    skip();
    return NULL;
}

// Small whole numbers: their sums are exact in every order.
static float number(int64_t i, int salt) { return (float)((i * 7 + salt * 5) % 9 - 4); }

static tensor new_tensor(gpu *g, dtype t, int64_t rows, int64_t columns, int salt) {
    tensor out = {NULL, t, 2, {rows, columns, 1, 1}};
    size_t n = (size_t)tensor_count(&out), bytes = tensor_bytes(&out);
    char *host = malloc(bytes);
    for (size_t i = 0; i < n; i++) {
        float x = number((int64_t)i, salt);
        if (t == FP32) memcpy(host + 4 * i, &x, 4);
        else memcpy(host + 2 * i, (char *)&x + 2, 2);  // BF16 is the upper half of it, here exact
    }
    assert_int_equal(device_alloc(g->dev, MEMORY_DEVICE, bytes, &out.data), ERR_OK);
    assert_int_equal(stream_copy(g->s, out.data, host, bytes), ERR_OK);
    assert_int_equal(stream_wait(g->s), ERR_OK);
    free(host);
    return out;
}

static void drop(gpu *g, tensor *t) { device_free(g->dev, MEMORY_DEVICE, t->data, tensor_bytes(t)); }

typedef struct shape {
    int64_t M, N, K;
    bool ta, tb;
    dtype type;
    unsigned epilogue;
} shape;

// d = a b (+ bias, + what it held) in FP32, of a batch of `rows` (0: M): every element, against whole numbers.
static void check_part(gpu *g, shape z, int64_t rows) {
    bool adds = z.epilogue & MATMUL_ACCUMULATE, biased = z.epilogue & MATMUL_BIAS;
    tensor a = new_tensor(g, z.type, z.ta ? z.K : z.M, z.ta ? z.M : z.K, 1);
    tensor b = new_tensor(g, z.type, z.tb ? z.N : z.K, z.tb ? z.K : z.N, 2);
    tensor bias = new_tensor(g, z.type, 1, z.N, 3), d = new_tensor(g, FP32, z.M, z.N, 4);
    tensor flat = view1(&bias, z.N);
    float *got = malloc(tensor_bytes(&d));
    err_t rc = g->o->matmul(&(matmul_args){.d = &d,
                                           .a = &a,
                                           .ta = z.ta,
                                           .b = &b,
                                           .tb = z.tb,
                                           .bias = biased ? &flat : NULL,
                                           .rows = rows,
                                           .epilogue = z.epilogue},
                            g->s);
    if (rc != ERR_OK) fail_msg("%s", err_last()->text);
    assert_int_equal(stream_copy(g->s, got, d.data, tensor_bytes(&d)), ERR_OK);
    assert_int_equal(stream_wait(g->s), ERR_OK);
    for (int64_t m = 0; m < z.M; m++)
        for (int64_t n = 0; n < z.N; n++) {
            float want = (adds ? number(m * z.N + n, 4) : 0) + (biased ? number(n, 3) : 0), found = got[m * z.N + n];
            for (int64_t k = 0; k < z.K; k++)
                want += number(z.ta ? k * z.M + m : m * z.K + k, 1) * number(z.tb ? n * z.K + k : k * z.N + n, 2);
            if (found != want)
                fail_msg("d[%" PRId64 "][%" PRId64 "] is %g, expected %g", m, n, (double)found, (double)want);
        }
    free(got);
    drop(g, &a), drop(g, &b), drop(g, &bias), drop(g, &d);
}

static void check_product(gpu *g, shape z) { check_part(g, z, 0); }

static int plans(const gpu *g, const char *with) {
    char text[DEVICE_PLAN];
    int count = 0;
    for (int i = 0; device_plans_get(g->dev, i, text); i++) count += strstr(text, with) != NULL;
    return count;
}

static void test_shared(void **state) {
    gpu *g = gpu_of(state, "rows share a plan");
    for (int64_t m = 1; m <= 9; m += 4) check_part(g, (shape){m, 24, 40, false, true, BF16, 0}, 9);
    assert_int_equal(plans(g, "matmul 2: m 9 n 24 k 40 lda 40 ldb 40 bf16 to fp32 ta 0 tb 1 "), 1);
    assert_int_equal(plans(g, " split 1 "), 1);
    for (int64_t m = 8; m <= 24; m += 8) check_product(g, (shape){m, 24, 40, true, false, BF16, MATMUL_ACCUMULATE});
    assert_int_equal(plans(g, " ta 1 "), 3);  // a weight gradient's rows are no batch
    assert_int_equal(plans(g, "matmul"), 4);
}

static void test_bias(void **state) {
    gpu *g = gpu_of(state, "bias of 16 bits on an FP32 result");
    check_product(g, (shape){5, 33, 17, false, true, BF16, MATMUL_BIAS});
}

static void test_large_sums(void **state) {
    gpu *g = gpu_of(state, "sums too large for scratch");
    check_product(g, (shape){2200, 2000, 3, true, false, BF16, MATMUL_ACCUMULATE});
    check_product(g, (shape){2200, 2000, 3, true, false, FP32, MATMUL_ACCUMULATE});
    check_product(g, (shape){7, 9, 9001, false, false, FP32, MATMUL_ACCUMULATE});  // three steps of k
    check_product(g, (shape){7, 9, 9001, true, true, FP32, MATMUL_BIAS});
}

static void test_bounded(void **state) {
    gpu *g = gpu_of(state, "the table of plans is bounded");
    for (int64_t n = 1; n <= 700; n++) check_product(g, (shape){2, n, 3, false, false, BF16, 0});
    int count = plans(g, "matmul");
    if (count < 256 || count > 512) fail_msg("%d plans are kept, expected most of 512 and not more", count);
    for (int64_t n = 1; n <= 3; n++) check_product(g, (shape){2, n, 3, false, false, BF16, 0});
}

// --- the book --------------------------------------------------------------------------------------------------------

enum { BOOK = 600 };
typedef struct book {
    int count;
    char line[BOOK][DEVICE_PLAN];
} book;

static int in_order(const void *a, const void *b) { return strcmp(a, b); }

static book *read_book(const gpu *g) {
    book *b = calloc(1, sizeof *b);
    while (b->count < BOOK && device_plans_get(g->dev, b->count, b->line[b->count])) b->count++;
    qsort(b->line, (size_t)b->count, sizeof *b->line, in_order);
    return b;
}

static bool has(const book *b, const char *line) {
    return bsearch(line, b->line, (size_t)b->count, sizeof *b->line, in_order) != NULL;
}

static void multiply_some(gpu *g) {
    check_product(g, (shape){5, 24, 40, false, true, BF16, MATMUL_BIAS});
    check_product(g, (shape){1, 24, 40, false, true, BF16, 0});
    check_product(g, (shape){16, 24, 40, true, false, BF16, MATMUL_ACCUMULATE});
    check_product(g, (shape){7, 9, 9001, true, true, FP32, MATMUL_BIAS});
}

#define REFUSES(call, expected, ...) \
    do { \
        const char *const says_[] = {__VA_ARGS__}; \
        err_t rc_ = (call); \
        if (rc_ != (expected)) fail_msg("%s: %d, expected %d: %s", #call, rc_, expected, rc_ ? err_last()->text : ""); \
        for (size_t i_ = 0; i_ < sizeof says_ / sizeof *says_; i_++) \
            if (!strstr(err_last()->text, says_[i_])) \
                fail_msg("%s: \"%s\" says nothing of %s", #call, err_last()->text, says_[i_]); \
    } while (0)

static void set_all(gpu *g, const book *b) {
    for (int i = 0; i < b->count; i++)
        if (device_plans_set(g->dev, b->line[i]) != ERR_OK) fail_msg("%s", err_last()->text);
}

// What was taken out, put into another device, is what it then says, and what it computes by: no plan comes to it.
static void test_book(void **state) {
    gpu *g = gpu_of(state, "plans are taken out and put back");
    multiply_some(g);
    book *whole = read_book(g);
    assert_in_range(whole->count, 5, 8);
    set_all(g, whole);  // confirms
    reopen(g);
    assert_int_equal(plans(g, ""), 0);
    set_all(g, whole);
    set_all(g, whole);
    multiply_some(g);
    book *again = read_book(g);
    assert_memory_equal(again, whole, sizeof *whole);
    free(whole), free(again);
}

static uint64_t sum_of(const char *text, size_t n) {  // FNV-1a, as the device's
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

// The line with `from` as `to`, and a sum that is right again.
static void forge(char line[DEVICE_PLAN], const char *from, const char *to) {
    char changed[DEVICE_PLAN];
    const char *at = strstr(line, from);
    assert_non_null(at);
    int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - line), line, to, at + strlen(from));
    snprintf(changed + n - 16, 17, "%016llx", (unsigned long long)sum_of(changed, (size_t)n - 16));
    strcpy(line, changed);
}

// Any bit changed, any length but its own, and what no device writes, though its sum is right.
static void test_damaged(void **state) {
    gpu *g = gpu_of(state, "damaged plans are refused");
    static const char *const changes[][2] = {
        {"m 5 ", "m 05 "},        {"m 5 ", "m -1 "},
        {"m 5 ", "m 0 "},         {"n 24 ", "n 0 "},
        {"k 40 ", "k 040 "},      {"bf16", "bf17"},
        {"ta 0", "ta 2"},         {"align 16", "align 3"},
        {"align 16", "align 32"}, {"split 0 align", "split  align"},
        {": algo ", " : algo "},  {": algo ", ": algo 1"},
        {" tile ", " tile 1"},    {"ldb 40", "ldb -40"},
        {"matmul 2", "matmul x"},
    };
    char line[DEVICE_PLAN], changed[DEVICE_PLAN];
    check_product(g, (shape){5, 24, 40, false, true, BF16, 0});
    assert_true(device_plans_get(g->dev, 0, line));
    reopen(g);
    size_t n = strlen(line);
    for (size_t i = 0; i < n; i++) {
        strcpy(changed, line);
        changed[i] = (char)(changed[i] ^ 1 << i % 7);
        err_t rc = device_plans_set(g->dev, changed);
        if (rc != ERR_DATA && rc != ERR_CONFIG) fail_msg("byte %zu as %d: %d: %s", i, changed[i], rc, changed);
        snprintf(changed, sizeof changed, "%.*s", (int)i, line);
        assert_int_equal(device_plans_set(g->dev, changed), ERR_DATA);
    }
    memset(changed, 'x', sizeof changed);  // no end
    assert_int_equal(device_plans_set(g->dev, changed), ERR_DATA);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        strcpy(changed, line);
        forge(changed, changes[i][0], changes[i][1]);
        if (device_plans_set(g->dev, changed) != ERR_DATA)
            fail_msg("%s as %s was believed", changes[i][0], changes[i][1]);
    }
    strcpy(changed, line);
    forge(changed, "matmul 2", "matmul 3");
    REFUSES(device_plans_set(g->dev, changed), ERR_CONFIG, "version 3", "knows 2");
    assert_int_equal(plans(g, ""), 0);
    assert_int_equal(device_plans_set(g->dev, line), ERR_OK);
}

static bool simulated(const gpu *g) { return strstr(device_about(g->dev)->name, "simulator") != NULL; }

// A library that thinks otherwise, or cannot do what it could.
static void test_other_minds(void **state) {
    gpu *g = gpu_of(state, "another choice is refused");
    multiply_some(g);
    book *first = read_book(g);
    setenv("SIM_BLAS", "1", 1);
    reopen(g);
    set_all(g, first);
    multiply_some(g);
    book *kept = read_book(g);
    assert_memory_equal(kept, first, sizeof *first);
    reopen(g);
    multiply_some(g);
    assert_int_equal(plans(g, " custom 1 "), first->count);
    for (int i = 0; i < first->count; i++)
        REFUSES(device_plans_set(g->dev, first->line[i]), ERR_CONFIG, "matmul (", " custom 0 ", "the device has chosen",
                " custom 1 ");
    unsetenv("SIM_BLAS");
    reopen(g);
    setenv("SIM_BLAS_LACKS", "0", 1);
    for (int i = 0; i < first->count; i++)
        REFUSES(device_plans_set(g->dev, first->line[i]), ERR_CONFIG, "matmul (", " custom 0 ", "is refused");
    unsetenv("SIM_BLAS_LACKS");
    assert_int_equal(plans(g, ""), 0);
    multiply_some(g);
    free(first), free(kept);
}

// Fewer rows than any algorithm of the whole batch's plan can do: they have a plan of their own, which is in the book
// like any other.
static void test_own_rows(void **state) {
    gpu *g = gpu_of(state, "a part that the plan can't do");
    setenv("SIM_BLAS_WHOLE", "1", 1);
    for (int k = 0; k < 2; k++) check_part(g, (shape){3, 1, 1, false, false, BF16, 0}, 70);
    check_part(g, (shape){70, 1, 1, false, false, BF16, 0}, 70);
    book *b = read_book(g);
    assert_int_equal(b->count, 2);
    assert_non_null(strstr(b->line[0], "matmul 2: m 3 n 1 k 1 "));
    assert_non_null(strstr(b->line[1], "matmul 2: m 70 n 1 k 1 "));
    setenv("SIM_BLAS", "1", 1);
    reopen(g);
    set_all(g, b);
    check_part(g, (shape){3, 1, 1, false, false, BF16, 0}, 70);
    unsetenv("SIM_BLAS"), unsetenv("SIM_BLAS_WHOLE");
    assert_int_equal(plans(g, " custom 0 "), 2);
    free(b);
}

// Shapes that cuBLASLt refuses are ours, and so their plans say; a library that could do them does not take them over.
static void test_own_kernel(void **state) {
    gpu *g = gpu_of(state, "shapes that the library refuses");
    setenv("SIM_BLAS_ALIGN", "4", 1);
    for (int64_t m = 1; m <= 130; m += 43) check_part(g, (shape){m, 67, 35, false, true, BF16, 0}, 130);
    check_product(g, (shape){66, 65, 33, true, false, BF16, MATMUL_ACCUMULATE});
    check_product(g, (shape){3, 67, 36, false, true, FP32, MATMUL_BIAS});
    assert_int_equal(plans(g, ": own kernel 1: "), 2);
    assert_int_equal(plans(g, "matmul 2: "), 3);
    book *b = read_book(g);
    unsetenv("SIM_BLAS_ALIGN");
    reopen(g);
    set_all(g, b);
    check_part(g, (shape){5, 67, 35, false, true, BF16, 0}, 130);
    assert_int_equal(plans(g, "matmul 2: "), 3);
    reopen(g);
    check_product(g, (shape){130, 67, 35, false, true, BF16, 0});
    for (int i = 0; i < b->count; i++)
        if (strstr(b->line[i], "m 130 n 67"))
            REFUSES(device_plans_set(g->dev, b->line[i]), ERR_CONFIG, "is own kernel 1", "has chosen cuBLASLt's");
    free(b);
}

// --- measuring -------------------------------------------------------------------------------------------------------

static plan_tuning tuned(gpu *g, const char *with) {
    plan_tuning t = {0};
    char text[DEVICE_PLAN];
    for (int i = 0; device_plans_get(g->dev, i, text); i++)
        if (strstr(text, with)) {
            if (device_plans_tune(g->dev, g->s, text, &t) != ERR_OK) fail_msg("%s", err_last()->text);
            return t;
        }
    fail_msg("no plan with %s", with);
    return t;
}

// What is fastest here is chance, but never an algorithm that gives a part of the rows other bits.
static void test_tuned(void **state) {
    gpu *g = gpu_of(state, "plans are measured");
    setenv("SIM_BLAS_COUNT", "5", 1);
    check_part(g, (shape){37, 24, 40, false, true, BF16, MATMUL_BIAS}, 64);
    check_product(g, (shape){40, 24, 640, true, false, BF16, MATMUL_ACCUMULATE});
    plan_tuning t = tuned(g, "matmul 2: m 64 ");
    assert_true(t.tried >= 1 && t.refused < t.tried && t.best_ms > 0 && t.first_ms > 0);
    if (simulated(g)) assert_true(t.tried == 5 && t.refused == 1);  // the first can't do one row
    assert_true(t.flops == 2.0 * 64 * 24 * 40);
    assert_non_null(strstr(t.name, "matmul (64,24,40) bf16 to fp32"));
    plan_tuning again = tuned(g, "matmul 2: m 40 ");
    reopen(g);
    assert_int_equal(device_plans_set(g->dev, t.text), ERR_OK);
    assert_int_equal(device_plans_set(g->dev, again.text), ERR_OK);
    check_part(g, (shape){37, 24, 40, false, true, BF16, MATMUL_BIAS}, 64);
    check_product(g, (shape){40, 24, 640, true, false, BF16, MATMUL_ACCUMULATE});
    assert_int_equal(plans(g, "matmul 2: "), 2);
    unsetenv("SIM_BLAS_COUNT");
}

static void test_tuned_bits(void **state) {
    gpu *g = gpu_of(state, "an algorithm that breaks bits");
    check_part(g, (shape){37, 24, 400, false, true, BF16, 0}, 64);
    for (int odd = 0; odd < 3; odd++) {
        char one[2] = {(char)('0' + odd)};
        setenv("SIM_BLAS_COUNT", "3", 1), setenv("SIM_BLAS_ODD", one, 1);
        plan_tuning t = tuned(g, "matmul 2: m 64 ");
        assert_int_equal(t.tried, 3);
        assert_int_equal(t.refused, 1 + (odd > 0));
    }
    setenv("SIM_BLAS_COUNT", "1", 1), setenv("SIM_BLAS_ODD", "0", 1);
    plan_tuning t = tuned(g, "matmul 2: m 64 ");
    assert_true(t.tried == 1 && t.refused == 1 && t.best_ms > 0);
    assert_non_null(strstr(t.text, ": own kernel 1: "));
    unsetenv("SIM_BLAS_COUNT"), unsetenv("SIM_BLAS_ODD");
    device *cpu;
    assert_int_equal(device_open(&cpu, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    assert_int_equal(device_plans_tune(cpu, NULL, t.text, &t), ERR_UNAVAILABLE);
    device_close(cpu);
}

// However many shapes are met: a plan that was set is not pushed out. When there is no room for others, they are
// refused.
static void test_kept(void **state) {
    gpu *g = gpu_of(state, "plans that were set stay");
    for (int64_t n = 1; n <= 600; n++) check_product(g, (shape){2, n, 3, false, false, BF16, 0});
    book *full = read_book(g);
    reopen(g);
    for (int i = 0; i < full->count; i += 2)
        if (device_plans_set(g->dev, full->line[i]) != ERR_OK) fail_msg("%s", err_last()->text);
    for (int64_t n = 1; n <= 600; n++) check_product(g, (shape){2, n, 5, false, false, BF16, 0});
    book *later = read_book(g);
    for (int i = 0; i < full->count; i += 2)
        if (!has(later, full->line[i])) fail_msg("pushed out: %s", full->line[i]);
    err_t rc = ERR_OK;
    for (int i = 0; i < later->count && rc == ERR_OK; i++) rc = device_plans_set(g->dev, later->line[i]);
    assert_int_equal(rc, ERR_OK);  // now all that it has are kept
    for (int i = 1; i < full->count && rc == ERR_OK; i += 2) rc = device_plans_set(g->dev, full->line[i]);
    assert_int_equal(rc, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_last()->text, "there is no place for its plan"));
    free(full), free(later);
}

// --- what a device says of its bits ----------------------------------------------------------------------------------

// A library that is newer than the driver makes no handle: then the older one is taken, and where that fails too, both
// are named.
static void test_older_library(void **state) {
    gpu *g = gpu_of(state, "an older library");
    char text[DEVICE_ARITHMETIC];
    setenv("SIM_BLAS_USABLE", "1", 1);
    reopen(g);
    device_arithmetic(g->dev, text, sizeof text);
    assert_non_null(strstr(text, "cuBLASLt 12."));
    check_product(g, (shape){5, 24, 40, false, true, BF16, 0});
    setenv("SIM_BLAS_USABLE", "2", 1);
    device *none;
    REFUSES(device_open(&none, &(device_options){.kind = DEVICE_CUDA}), ERR_UNAVAILABLE, "cuBLASLt 130100",
            "; and then: ", "cuBLASLt 120100");
    unsetenv("SIM_BLAS_USABLE");
}

static void test_arithmetic(void **state) {
    char text[DEVICE_ARITHMETIC];
    device *cpu;
    assert_int_equal(device_open(&cpu, &(device_options){.kind = DEVICE_CPU, .threads = 1}), ERR_OK);
    device_arithmetic(cpu, text, sizeof text);
    assert_string_equal(text, "cpu");
    char line[DEVICE_PLAN] = "matmul 1: m 0";
    assert_false(device_plans_get(cpu, 0, line));
    assert_int_equal(device_plans_set(cpu, line), ERR_UNAVAILABLE);
    device_close(cpu);
    gpu *g = gpu_of(state, "what a GPU says of its bits");
    device_arithmetic(g->dev, text, sizeof text);
    print_message("test_cublaslt: %s\n", text);
    int major, minor, sms, n = 0;
    assert_int_equal(sscanf(text, "cuda sm_%d %d SMs cuBLASLt %d.%d.%*d%n", &major, &sms, &minor, &minor, &n), 4);
    if (!simulated(g)) return;
    assert_int_equal(text[n], 0);
    setenv("SIM_JIT", "1", 1), setenv("SIM_SMS", "7", 1), setenv("SIM_CAPABILITY", "89", 1);
    reopen(g);
    unsetenv("SIM_JIT"), unsetenv("SIM_SMS"), unsetenv("SIM_CAPABILITY");
    device_arithmetic(g->dev, text, sizeof text);
    assert_non_null(strstr(text, "cuda sm_89 7 SMs cuBLASLt 1"));
    assert_non_null(strstr(text, ", driver 13.0 (kernels compiled from PTX)"));
    setenv("CUDA_FORCE_PTX_JIT", "1", 1);
    reopen(g);
    unsetenv("CUDA_FORCE_PTX_JIT");
    device_arithmetic(g->dev, text, sizeof text);
    assert_non_null(strstr(text, "cuda sm_90 4 SMs"));
    assert_non_null(strstr(text, "compiled from PTX"));
}

static bool has_gpu(bool *real) {
    gpu g;
    if (enter_gpu(&g) != 0 || !g.dev) return false;
    *real = !simulated(&g);
    leave_gpu(&g);
    return true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),
        cmocka_unit_test_setup_teardown(test_shared, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_bias, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_large_sums, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_bounded, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_book, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_damaged, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_tuned, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_kept, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_arithmetic, open_gpu, close_gpu),
    };
    // What only the simulator can be made to do: a library that thinks otherwise, or can't do what it could.
    const struct CMUnitTest only_simulated[] = {
        cmocka_unit_test_setup_teardown(test_other_minds, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_own_rows, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_own_kernel, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_tuned_bits, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_older_library, open_gpu, close_gpu),
    };
    bool real = false;
    if (!has_gpu(&real) && getenv("LOCKSTEP_NEED_GPU")) {
        fprintf(stderr, "test_cublaslt: %s\n", err_last()->text);
        return ERR_UNAVAILABLE;
    }
    int failed = real ? 0 : cmocka_run_group_tests(only_simulated, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL) + failed;
}
