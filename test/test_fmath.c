// test/test_fmath.c: base/fmath.h against long double, and a few exact bits, so that a compiler that reorders
// arithmetic is found out.
#include "base/fmath.h"
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static double uniform(uint32_t i) {
    uint32_t w[4];
    philox4x32(w, 1, i, 0, 0, 0);
    return ((double)w[0] + (double)w[1] * 0x1p-32) * 0x1p-32;
}

static double ulps(double got, long double want) {
    int e;
    frexpl(want, &e);
    return (double)(fabsl(got - want) / ldexpl(1, e - 53 < -1074 ? -1074 : e - 53));
}

typedef struct range {
    const char *name;
    double (*f)(double);
    long double (*exact)(long double);
    double from, to;
} range;

static void check(const range *r) {
    double worst = 0, at = 0;
    for (uint32_t i = 0; i < 1000000; i++) {
        double x = i == 0 ? r->from : i == 1 ? r->to : r->from + (r->to - r->from) * uniform(i);
        double u = ulps(r->f(x), r->exact(x));
        if (!(u <= worst)) worst = u, at = x;
    }
    print_message("%s [%g, %g]: %.3f ulp at %a\n", r->name, r->from, r->to, worst, at);
    if (!(worst < 1)) fail_msg("%s(%a): %.3f ulp", r->name, at, worst);
}

static void test_errors(void **state) {
    (void)state;
    const range ranges[] = {
        {"exp", fm_exp, expl, -1, 1},
        {"exp", fm_exp, expl, -745, 709.78},
        {"exp", fm_exp, expl, -745, -708},
        {"log", fm_log, logl, 0x1p-53, 1},
        {"log", fm_log, logl, 0.5, 2},
        {"log", fm_log, logl, 1e-3, 1e9},
        {"log", fm_log, logl, 5e-324, 1e-307},
        {"log", fm_log, logl, 1, 1.7e308},
        {"cos", fm_cos, cosl, 0, 6.2831853071795862},
        {"cos", fm_cos, cosl, -100, 100},
        {"cos", fm_cos, cosl, -1e6, 1e6},
        {"cos", fm_cos, cosl, 1.5707, 1.5709},
        {"sin", fm_sin, sinl, 0, 6.2831853071795862},
        {"sin", fm_sin, sinl, -1e6, 1e6},
        {"sin", fm_sin, sinl, 3.1415, 3.1417},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) check(&ranges[i]);
}

static void test_edges(void **state) {
    (void)state;
    assert_true(fm_exp(0) == 1 && fm_exp(-INFINITY) == 0 && fm_exp(INFINITY) == INFINITY && isnan(fm_exp(NAN)));
    assert_true(fm_exp(709.79) == INFINITY && fm_exp(-745.2) == 0 && fm_exp(-745.1) == 0x1p-1074);
    assert_true(fm_log(1) == 0 && fm_log(0) == -INFINITY && fm_log(INFINITY) == INFINITY && isnan(fm_log(-1)) &&
                isnan(fm_log(NAN)));
    assert_true(fm_cos(0) == 1 && fm_cos(3.1415926535897931) == -1 &&
                fm_cos(1.5707963267948966) == 6.123233995736766e-17);
    assert_true(isnan(fm_cos(INFINITY)) && isnan(fm_cos(NAN)) && isnan(fm_cos(1e9)));
    assert_true(fm_sin(0) == 0 && fm_sin(1.5707963267948966) == 1 && fm_sin(-1.5707963267948966) == -1 &&
                isnan(fm_sin(INFINITY)) && isnan(fm_sin(-1e9)));
    assert_true(fm_pow(2, 10) == 1024 && fm_pow(2, -2) == 0.25 && fm_pow(0, 0) == 1 && fm_pow(-3, 3) == -27);
    assert_true(fabs(fm_pow(0.999, 1000) / (double)powl(0.999, 1000) - 1) < 1e-12);
}

// One number over many results: any other order of operations, a fused multiply-add or an x87 register changes it.
static void test_bits(void **state) {
    (void)state;
    uint64_t mix = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        double u = uniform(i),
               y[4] = {fm_exp(40 * u - 20), fm_log(u), fm_cos(6.2831853071795862 * u), fm_pow(u, i % 50)};
        for (int k = 0; k < 4; k++) {
            uint64_t b;
            memcpy(&b, &y[k], sizeof b);
            mix = (mix ^ b) * 0x9E3779B97F4A7C15u;
            mix ^= mix >> 29;
        }
    }
    assert_int_equal(mix, 0xbde9f8e419dd76cbu);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests_name("fmath", tests, NULL, NULL);
}
