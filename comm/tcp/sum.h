// comm/tcp/sum.h: what a transport does with bytes that it does not only move: adds them to, or takes the larger of them and, what is
// there already.
#ifndef COMM_TCP_SUM_H
#define COMM_TCP_SUM_H

#include "comm/comm.h"

// dst (op)= src, element by element; a whole number of elements, any alignment, no overlap. NaN wins over any number; integers
// wrap.
typedef void sum_fn(void *dst, const void *src, size_t bytes);

// NULL: nobody needs that type.
sum_fn *sum_of(dtype type, reduce_op op);

#endif
