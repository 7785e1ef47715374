// comm/tcp/sum.h: how a transport reduces received elements into its own: by adding them, or by keeping the larger.
#ifndef COMM_TCP_SUM_H
#define COMM_TCP_SUM_H

#include "comm/comm.h"

// dst (op)= src, element by element; a whole number of elements, any alignment, no overlap. NaN wins over any number;
// integers wrap.
typedef void sum_fn(void *dst, const void *src, size_t bytes);

// NULL: the type is not supported.
sum_fn *sum_of(dtype type, reduce_op op);

#endif
