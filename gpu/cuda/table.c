// gpu/cuda/table.c: the operations of a CUDA device.
#include "gpu/cuda/cuda.h"

#define ENTRY(op) .op = cuda_##op,
const ops cuda_ops = {OPS(ENTRY)};
