// base/fmath.h: exp, log, cos, sin and powers in double that give the same bits on every machine. Only + - * / on IEEE
// doubles, in the order written: no libm, whose last bits differ between versions and processors. For schedules and
// initial weights, not for speed.
#ifndef BASE_FMATH_H
#define BASE_FMATH_H

#include <stdint.h>

// Errors in units of the last place, as measured by test/test_fmath.c against long double.
double fm_exp(double x);  // < 1. Overflows to infinity, goes through the denormals to 0; NaN stays NaN
double fm_log(double x);  // < 1. ln 0 = -infinity, of negative numbers NaN
double fm_cos(double x);  // < 1 for |x| <= 1e6, NaN beyond
double fm_sin(double x);  // the same

// x^n by squaring: each squaring doubles the relative error, so about n/2 ulp. 0^0 = 1; a negative n divides at the
// end.
double fm_pow(double x, int64_t n);

#endif
