// gpu/cuda/refused.c: operations that CUDA has no kernels of yet.
#include "gpu/cuda/cuda.h"

#define REFUSED(op) \
    err_t cuda_##op(const op##_args *args, stream *s) { \
        (void)args, (void)s; \
        return err_set(ERR_UNAVAILABLE, "cuda: " #op " has no CUDA kernel yet; set [device] backend = cpu"); \
    }
OPS_OF_IMAGES(REFUSED)
