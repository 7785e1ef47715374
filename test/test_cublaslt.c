// test/test_cublaslt.c: does this machine's cuBLASLt have every call that the CUDA device makes, and what the rows of test_ops do not
// reach: plans that are shared, pushed out and made again, and sums too large for the stream's scratch. In a build without CUDA, on a
// machine without cuBLASLt or without a GPU, the parts concerned are skipped, by name.
#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// gpu/cuda/blas.h, without the headers that it includes; absent in a build without CUDA.
err_t blas_about(char *dst, size_t room) __attribute__((weak));
bool matmul_plan_text(const device *d, int index, char *dst, size_t room) __attribute__((weak));

typedef struct gpu { device *dev; stream *s; const ops *o; } gpu;

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

static int open_gpu(void **state) {
    gpu *g = calloc(1, sizeof *g);
    *state = g;
    if (device_open(&g->dev, &(device_options){.kind = DEVICE_CUDA}) != ERR_OK) return 0;
    g->o = device_ops(g->dev);
    return stream_open(g->dev, &g->s) == ERR_OK ? 0 : -1;
}

static int close_gpu(void **state) {
    gpu *g = *state;
    stream_close(g->s);
    device_close(g->dev);
    free(g);
    return 0;
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

typedef struct shape { int64_t M, N, K; bool ta, tb; dtype type; unsigned epilogue; } shape;

// d = a b (+ bias, + what it held) in FP32: every element, against whole numbers.
static void check_product(gpu *g, shape z) {
    bool adds = z.epilogue & MATMUL_ACCUMULATE, biased = z.epilogue & MATMUL_BIAS;
    tensor a = new_tensor(g, z.type, z.ta ? z.K : z.M, z.ta ? z.M : z.K, 1);
    tensor b = new_tensor(g, z.type, z.tb ? z.N : z.K, z.tb ? z.K : z.N, 2);
    tensor bias = new_tensor(g, z.type, 1, z.N, 3), d = new_tensor(g, FP32, z.M, z.N, 4);
    tensor flat = view1(&bias, z.N);
    float *got = malloc(tensor_bytes(&d));
    err_t rc = g->o->matmul(&d, NULL, &a, z.ta, &b, z.tb, biased ? &flat : NULL, z.epilogue, g->s);
    if (rc != ERR_OK) fail_msg("%s", err_last()->text);
    assert_int_equal(stream_copy(g->s, got, d.data, tensor_bytes(&d)), ERR_OK);
    assert_int_equal(stream_wait(g->s), ERR_OK);
    for (int64_t m = 0; m < z.M; m++)
        for (int64_t n = 0; n < z.N; n++) {
            float want = (adds ? number(m * z.N + n, 4) : 0) + (biased ? number(n, 3) : 0), found = got[m * z.N + n];
            for (int64_t k = 0; k < z.K; k++)
                want += number(z.ta ? k * z.M + m : m * z.K + k, 1) * number(z.tb ? n * z.K + k : k * z.N + n, 2);
            if (found != want) fail_msg("d[%lld][%lld] is %g, expected %g", (long long)m, (long long)n, (double)found, (double)want);
        }
    free(got);
    drop(g, &a), drop(g, &b), drop(g, &bias), drop(g, &d);
}

static int plans(const gpu *g, const char *with) {
    char text[512];
    int count = 0;
    for (int i = 0; matmul_plan_text(g->dev, i, text, sizeof text); i++) count += strstr(text, with) != NULL;
    return count;
}

static void test_shared(void **state) {
    gpu *g = gpu_of(state, "rows share a plan");
    for (int64_t m = 1; m <= 9; m += 4) check_product(g, (shape){m, 24, 40, false, true, BF16, 0});
    assert_int_equal(plans(g, "matmul (0,24,40) bf16 to fp32, b transposed"), 1);
    assert_int_equal(plans(g, " split 1 "), 1);
    for (int64_t m = 8; m <= 24; m += 8) check_product(g, (shape){m, 24, 40, true, false, BF16, MATMUL_ACCUMULATE});
    assert_int_equal(plans(g, "a transposed"), 3);  // a weight gradient's rows are no batch
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),
        cmocka_unit_test_setup_teardown(test_shared, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_bias, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_large_sums, open_gpu, close_gpu),
        cmocka_unit_test_setup_teardown(test_bounded, open_gpu, close_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
