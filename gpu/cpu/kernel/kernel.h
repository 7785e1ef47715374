// gpu/cpu/kernel/kernel.h: the operations of one vector width. Every file here is compiled once for each width with
// SIMD set to its name; KERNEL(x) is x with that name appended, so that all widths are in one binary. kernel/table.c
// puts them into cpu_ops_<width>. The files that multiply are compiled once more with PAIRS (products.h): KERNEL(x)
// then ends in _pairs, and kernel/pairs.c puts them into cpu_pairs_<width>; what else they call is PLAIN_KERNEL(x), of
// the width REST.
#ifndef GPU_CPU_KERNEL_KERNEL_H
#define GPU_CPU_KERNEL_KERNEL_H

#include "gpu/cpu/cpu.h"

#include <assert.h>

#define KERNEL_GLUE2(name, simd) name##_##simd
#define KERNEL_GLUE(name, simd) KERNEL_GLUE2(name, simd)
#if defined(PAIRS)
#define KERNEL_PAIRS2(name, simd) name##_##simd##_pairs
#define KERNEL_PAIRS(name, simd) KERNEL_PAIRS2(name, simd)
#define KERNEL(name) KERNEL_PAIRS(name, SIMD)
#define PLAIN_KERNEL(name) KERNEL_GLUE(name, REST)
#else
#define KERNEL(name) KERNEL_GLUE(name, SIMD)
#define PLAIN_KERNEL(name) KERNEL(name)
#endif

#define KERNEL_DECLARATION(op) err_t KERNEL(op)(const op##_args *args, stream *s);
OPS(KERNEL_DECLARATION)
#undef KERNEL_DECLARATION

#endif
