// gpu/cuda/blas.h: cuBLASLt, opened at run time, so that the binary starts where it is not installed. Types and
// functions are the real header's; only the calls go through a table. In the simulator's build test/sim/cublaslt.cpp
// fills the table instead of blas.c.
#ifndef GPU_CUDA_BLAS_H
#define GPU_CUDA_BLAS_H

#include <cublasLt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"

#include <stddef.h>

// Every function that is called; all of them are in every cuBLASLt since 12.0.
#define BLAS_CALLS(CALL) \
    CALL(cublasLtGetVersion) \
    CALL(cublasLtGetStatusString) \
    CALL(cublasLtCreate) \
    CALL(cublasLtDestroy) \
    CALL(cublasLtMatmulDescCreate) \
    CALL(cublasLtMatmulDescDestroy) \
    CALL(cublasLtMatmulDescSetAttribute) \
    CALL(cublasLtMatrixLayoutCreate) \
    CALL(cublasLtMatrixLayoutDestroy) \
    CALL(cublasLtMatrixLayoutSetAttribute) \
    CALL(cublasLtMatmulPreferenceCreate) \
    CALL(cublasLtMatmulPreferenceDestroy) \
    CALL(cublasLtMatmulPreferenceSetAttribute) \
    CALL(cublasLtMatmulAlgoGetHeuristic) \
    CALL(cublasLtMatmulAlgoCheck) \
    CALL(cublasLtMatmulAlgoConfigGetAttribute) \
    CALL(cublasLtMatmul)

enum { BLAS_PATH = 256, BLAS_OLDEST = 120000 };  // as cublasLtGetVersion says it: 120000 is 12.0.0

#define BLAS_FIELD(name) __typeof__(&name) name;
typedef struct blas {
    char path[BLAS_PATH];  // what the dynamic linker found
    size_t version;
    BLAS_CALLS(BLAS_FIELD)
} blas;

// Finds the library and its functions: the first that there is of the names from *from on, which begins at 0 and is
// left at the name after it. It stays loaded until the process ends: it keeps state for each CUDA context.
// ERR_UNAVAILABLE names what was tried or what is missing, and what to do; *from is BLAS_NAMES where there is none
// left.
enum { BLAS_NAMES = 2 };
err_t blas_open(blas *out, int *from);

// --- matmul.c --------------------------------------------------------------------------------------------------------

// "cuBLASLt 13.1.0, /usr/local/cuda/lib64/libcublasLt.so.13" into dst. Opens the library.
err_t blas_about(char *dst, size_t room);

#ifdef __cplusplus
}
#endif
#endif
