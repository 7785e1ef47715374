// gpu/cuda/blas.c: finds libcublasLt on the machine. Its name has the major version of CUDA that it belongs to; the
// calls in use are the same in both versions that are searched for. The newer one comes first: the driver decides
// whether it can be used, which shows when a handle is made, and then the older one is tried (plans.c). The version
// decides the bits, so it is part of a run's description.
#include "gpu/cuda/blas.h"

#include "base/library.h"

#include <stdio.h>

static const char *const names[BLAS_NAMES] = {"libcublasLt.so.13", "libcublasLt.so.12"};

#define FIND(name) library_find(lib, #name, true, &out->name);

static err_t resolve(blas *out, library *lib) {
    BLAS_CALLS(FIND)
    out->version = out->cublasLtGetVersion ? out->cublasLtGetVersion() : 0;
    if (out->version < BLAS_OLDEST)
        return err_set(ERR_UNAVAILABLE,
                       "cuda: %s is version %zu.%zu, expected %d.%d or newer; install the cuBLAS of CUDA 13", out->path,
                       out->version / 10000, out->version / 100 % 100, BLAS_OLDEST / 10000, BLAS_OLDEST / 100 % 100);
    if (lib->missing)
        return err_set(ERR_UNAVAILABLE, "cuda: %s lacks %s; install the cuBLAS of CUDA 13", out->path, lib->text);
    return ERR_OK;
}

err_t blas_open(blas *out, int *from) {
    library lib;
    int first = *from;
    *out = (blas){0};
    for (; *from < BLAS_NAMES && !library_search(&lib, &names[*from], 1); ++*from) {}
    if (*from == BLAS_NAMES && first)
        return err_set(ERR_UNAVAILABLE, "cuda: %s, which is for older drivers, was not found (tried %s)", names[first],
                       lib.text);
    if (*from == BLAS_NAMES)
        return err_set(
            ERR_UNAVAILABLE,
            "cuda: neither libcublasLt.so.13 nor .12 was found (tried %s); install the cuBLAS of CUDA 13 (package libcublas-13-0, or "
            "nvidia-cublas of Python's) or name its folder in LD_LIBRARY_PATH, or set [device] backend = cpu",
            lib.text);
    ++*from;
    snprintf(out->path, sizeof out->path, "%s", lib.path);
    err_t rc = resolve(out, &lib);
    if (rc != ERR_OK) library_close(&lib);  // only its version was read
    return rc;
}
