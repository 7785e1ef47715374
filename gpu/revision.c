// gpu/revision.c: see gpu/revision.h.
#include "gpu/revision.h"

#include <stdio.h>

// 1: the bits of build b86639b, with which the first tables were made.
// 2: one rounding of the residual stream in 16 bits (7eca9e8); on GPUs other plans of products and another attention
//    too (e3f1396, e2189b6).
static const int revision[][FP16 + 1] = {
    [DEVICE_CPU] = {[FP32] = 1, [BF16] = 2, [FP16] = 2},
    [DEVICE_CUDA] = {[FP32] = 2, [BF16] = 2, [FP16] = 2},
};

// Of products of BF16 pairs, on CPUs.
enum { PAIRS = 1 };

int arithmetic_revision(device_kind kind, dtype compute, products products) {
    bool known = (kind == DEVICE_CPU || kind == DEVICE_CUDA) && compute <= FP16;
    if (products == PRODUCTS_BF16_PAIRS) return kind == DEVICE_CPU && compute <= BF16 ? PAIRS : 0;
    return known ? revision[kind][compute] : 0;
}

const char *arithmetic_revisions(char dst[REVISIONS_TEXT]) {
    static const char *const kinds[] = {[DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "; cuda"};
    size_t n = 0;
    for (device_kind k = DEVICE_CPU; k <= DEVICE_CUDA; k++) {
        n += (size_t)snprintf(dst + n, REVISIONS_TEXT - n, "%s", kinds[k]);
        for (dtype t = FP32; t <= FP16; t++)
            n += (size_t)snprintf(dst + n, REVISIONS_TEXT - n, "%s %s %d", t == FP32 ? "" : ",", dtype_name(t),
                                  revision[k][t]);
        if (k == DEVICE_CPU)
            n += (size_t)snprintf(dst + n, REVISIONS_TEXT - n, ", %s %d", products_name(PRODUCTS_BF16_PAIRS), PAIRS);
    }
    return dst;
}
