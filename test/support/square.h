// test/support/square.h: a square, of numbers below zero too. pow() of a program that reads PNG is that of
// data/image/png.c, which makes zero of them, and whether a compiler calls it for a second power depends on -O.
#ifndef TEST_SUPPORT_SQUARE_H
#define TEST_SUPPORT_SQUARE_H

static inline double square(double x) { return x * x; }

#endif
