// gpu/cuda/blas.c: finds libcublasLt on the machine. Its name carries the major version of CUDA that it belongs to; the calls in use are the same in
// both that are looked for. Which one it is decides about bits, so its version belongs to what a run says of itself.
#include "gpu/cuda/blas.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static void append(char *dst, size_t room, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void append(char *dst, size_t room, const char *fmt, ...) {
    size_t at = strlen(dst);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(dst + at, room - at, fmt, ap);
    va_end(ap);
}

// A file that is there and cannot be loaded is another matter than one that is not: its reason is kept.
static err_t find(void **handle) {
    char tried[ERR_TEXT / 2] = "";
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if ((*handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL))) return ERR_OK;
        const char *why = dlerror();
        append(tried, sizeof tried, "%s%s", *tried ? ", " : "", places[i]);
        if (why && !strstr(why, "No such file")) append(tried, sizeof tried, " (%s)", why);
    }
    return err_set(ERR_UNAVAILABLE, "cuda: libcublasLt.so.13 not found (tried %s); install the cuBLAS of CUDA 13 (package libcublas-13-0) or "
                   "name its folder in LD_LIBRARY_PATH, or set [device] backend = cpu", tried);
}

// ISO C has no conversion from an object's address to a function's; POSIX promises that they have the same representation.
#define RESOLVE(name)                                                                \
    symbol = dlsym(handle, #name), memcpy(&out->name, &symbol, sizeof symbol);       \
    if (!symbol) append(missing, sizeof missing, "%s%s", *missing ? ", " : "", #name);

static err_t resolve(blas *out, void *handle) {
    char missing[ERR_TEXT / 2] = "";
    void *symbol;
    BLAS_CALLS(RESOLVE)
    out->version = out->cublasLtGetVersion ? out->cublasLtGetVersion() : 0;
    if (out->version < BLAS_OLDEST)
        return err_set(ERR_UNAVAILABLE, "cuda: %s is version %zu.%zu, expected %d.%d or newer; install the cuBLAS of CUDA 13", out->path,
                       out->version / 10000, out->version / 100 % 100, BLAS_OLDEST / 10000, BLAS_OLDEST / 100 % 100);
    if (*missing) return err_set(ERR_UNAVAILABLE, "cuda: %s lacks %s; install the cuBLAS of CUDA 13", out->path, missing);
    return ERR_OK;
}

err_t blas_open(blas *out) {
    void *handle = NULL;
    struct link_map *map = NULL;
    *out = (blas){0};
    TRY(find(&handle));
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) snprintf(out->path, sizeof out->path, "%s", map->l_name);
    err_t rc = resolve(out, handle);
    if (rc != ERR_OK) dlclose(handle);  // nothing but its version was asked for
    return rc;
}
