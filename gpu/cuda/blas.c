// gpu/cuda/blas.c: finds libcublasLt on the machine. Its name has the major version of CUDA that it belongs to; the
// calls in use are the same in both versions that are searched for. The version decides the bits, so it is part of a
// run's description.
#include "gpu/cuda/blas.h"

#include "base/library.h"

#include <stdio.h>

static const char *const places[] = {
    "libcublasLt.so.13",  // wherever the dynamic linker looks: LD_LIBRARY_PATH, /etc/ld.so.conf, the distribution's own
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/lib/x86_64-linux-gnu/libcublasLt.so.13",
    "/usr/lib/aarch64-linux-gnu/libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
    "/usr/lib/x86_64-linux-gnu/libcublasLt.so.12",
    "/usr/lib/aarch64-linux-gnu/libcublasLt.so.12",
};

#define FIND(name) library_find(lib, #name, true, &out->name);

static err_t resolve(blas *out, library *lib) {
    BLAS_CALLS(FIND)
    out->version = out->cublasLtGetVersion ? out->cublasLtGetVersion() : 0;
    if (out->version < BLAS_OLDEST)
        return err_set(ERR_UNAVAILABLE, "cuda: %s is version %zu.%zu, expected %d.%d or newer; install the cuBLAS of CUDA 13", out->path,
                       out->version / 10000, out->version / 100 % 100, BLAS_OLDEST / 10000, BLAS_OLDEST / 100 % 100);
    if (lib->missing) return err_set(ERR_UNAVAILABLE, "cuda: %s lacks %s; install the cuBLAS of CUDA 13", out->path, lib->text);
    return ERR_OK;
}

err_t blas_open(blas *out) {
    library lib;
    *out = (blas){0};
    if (!library_open(&lib, places, sizeof places / sizeof *places))
        return err_set(ERR_UNAVAILABLE,
                       "cuda: libcublasLt.so.13 not found (tried %s); install the cuBLAS of CUDA 13 (package libcublas-13-0) or "
                       "name its folder in LD_LIBRARY_PATH, or set [device] backend = cpu",
                       lib.text);
    snprintf(out->path, sizeof out->path, "%s", lib.path);
    err_t rc = resolve(out, &lib);
    if (rc != ERR_OK) library_close(&lib);  // only its version was read
    return rc;
}
