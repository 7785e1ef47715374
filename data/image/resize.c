// data/image/resize.c: see data/image/resize.h. The loops are compiled twice: for any processor, and on x86 for those
// with AVX2. They compute in integers, so that both give the same bytes.
#include "data/image/resize.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 22, HALF = 1 << (BITS - 1), STRIP = 64 };  // STRIP: bytes of a row that are summed at once

// --- weights ---------------------------------------------------------------------------------------------------------

static double triangle(double x) {
    if (x < 0) x = -x;
    return x < 1 ? 1 - x : 0;
}

// Weights of `to` results from `from` values. Each conversion to int is toward zero, as in Pillow.
static err_t find_taps(taps *t, int from, int to) {
    double scale = (double)from / to, wide = scale < 1 ? 1 : scale, narrow = 1 / wide;
    int reach = (int)wide;
    t->most = (reach + (reach < wide)) * 2 + 1;
    int64_t room = (int64_t)to * (t->most + 2);
    if (room > t->room || t->most > t->exact_room) {
        free(t->first), free(t->exact);
        t->first = malloc((size_t)room * sizeof *t->first);
        t->exact = malloc((size_t)t->most * sizeof *t->exact);
        t->room = t->exact_room = 0;
        if (!t->first || !t->exact) return err_set(ERR_INTERNAL, "no memory for the weights of %d pixels", to);
        t->room = room, t->exact_room = t->most;
    }
    t->count = t->first + to, t->weight = t->count + to;
    for (int i = 0; i < to; i++) {
        double centre = (i + 0.5) * scale, sum = 0;
        int first = (int)(centre - wide + 0.5), end = (int)(centre + wide + 0.5);
        if (first < 0) first = 0;
        if (end > from) end = from;
        for (int k = 0; k < end - first; k++) {
            t->exact[k] = triangle((k + first - centre + 0.5) * narrow);
            sum += t->exact[k];
        }
        for (int k = 0; k < end - first; k++) {
            if (sum != 0) t->exact[k] /= sum;
            t->weight[(int64_t)i * t->most + k] = (int32_t)(0.5 + t->exact[k] * (1 << BITS));
        }
        t->first[i] = first, t->count[i] = end - first;
    }
    return ERR_OK;
}

// --- the two passes --------------------------------------------------------------------------------------------------

typedef int32_t four __attribute__((vector_size(16)));
typedef uint8_t four_bytes __attribute__((vector_size(4)));

static inline uint8_t to_byte(int32_t sum) {
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static inline four load_four(const uint8_t *at) {
    four_bytes b;
    memcpy(&b, at, sizeof b);
    return __builtin_convertvector(b, four);
}

// A pixel of three channels is three of four numbers; the fourth is of the next pixel, and thrown away.
#define ACROSS(suffix, target) \
    target static void across3##suffix(uint8_t *to, const uint8_t *from, int w, const taps *t) { \
        for (int x = 0; x < w; x++, to += 3) { \
            const int32_t *weight = t->weight + (int64_t)x * t->most; \
            const uint8_t *at = from + 3 * (int64_t)t->first[x]; \
            four sum = {HALF, HALF, HALF, HALF}; \
            for (int k = 0; k < t->count[x]; k++, at += 3) sum += load_four(at) * weight[k]; \
            for (int c = 0; c < 3; c++) to[c] = to_byte(sum[c]); \
        } \
    } \
    target static void across1##suffix(uint8_t *to, const uint8_t *from, int w, const taps *t) { \
        for (int x = 0; x < w; x++) { \
            const int32_t *weight = t->weight + (int64_t)x * t->most; \
            const uint8_t *at = from + t->first[x]; \
            int32_t sum = HALF; \
            for (int k = 0; k < t->count[x]; k++) sum += at[k] * weight[k]; \
            to[x] = to_byte(sum); \
        } \
    }

// n bytes of a row of the result, from `count` rows below each other.
#define DOWN(suffix, target) \
    target static void down##suffix(uint8_t *to, const uint8_t *from, int64_t stride, int64_t n, \
                                    const int32_t *weight, int count) { \
        int64_t x = 0; \
        for (; x + STRIP <= n; x += STRIP) { \
            int32_t sum[STRIP]; \
            for (int i = 0; i < STRIP; i++) sum[i] = HALF; \
            for (int k = 0; k < count; k++) \
                for (int i = 0; i < STRIP; i++) sum[i] += from[k * stride + x + i] * weight[k]; \
            for (int i = 0; i < STRIP; i++) to[x + i] = to_byte(sum[i]); \
        } \
        for (; x < n; x++) { \
            int32_t sum = HALF; \
            for (int k = 0; k < count; k++) sum += from[k * stride + x] * weight[k]; \
            to[x] = to_byte(sum); \
        } \
    }

typedef struct loops {
    void (*across1)(uint8_t *to, const uint8_t *from, int w, const taps *t);
    void (*across3)(uint8_t *to, const uint8_t *from, int w, const taps *t);
    void (*down)(uint8_t *to, const uint8_t *from, int64_t stride, int64_t n, const int32_t *weight, int count);
} loops;

ACROSS(_any, )
DOWN(_any, )
#if defined(__x86_64__)
ACROSS(_avx2, __attribute__((target("avx2"))))
DOWN(_avx2, __attribute__((target("avx2"))))
#endif

static loops choose_loops(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return (loops){across1_avx2, across3_avx2, down_avx2};
#endif
    return (loops){across1_any, across3_any, down_any};
}

// --- a picture -------------------------------------------------------------------------------------------------------

static err_t reserve(resizer *r, int64_t bytes) {
    if (bytes <= r->room) return ERR_OK;
    free(r->rows);
    r->room = 0;
    if (!(r->rows = malloc((size_t)bytes))) return err_set(ERR_INTERNAL, "no memory to resize a picture");
    r->room = bytes;
    return ERR_OK;
}

err_t resize(resizer *r, uint8_t *dst, int h, int w, const region *from) {
    loops l = choose_loops();
    int64_t row = (int64_t)w * from->c;
    const uint8_t *at = from->at;
    int64_t stride = from->stride;
    if (w != from->w) {
        uint8_t *to = dst;
        if (h != from->h) {
            TRY(reserve(r, row * from->h));
            to = r->rows;
        }
        TRY(find_taps(&r->across, from->w, w));
        for (int y = 0; y < from->h; y++)
            (from->c == 1 ? l.across1 : l.across3)(to + y * row, at + y * stride, w, &r->across);
        at = to, stride = row;
    }
    if (h != from->h) {
        const taps *t = &r->down;
        TRY(find_taps(&r->down, from->h, h));
        for (int y = 0; y < h; y++)
            l.down(dst + y * row, at + t->first[y] * stride, stride, row, t->weight + (int64_t)y * t->most,
                   t->count[y]);
    } else if (at != dst) {
        for (int y = 0; y < h; y++) memcpy(dst + y * row, at + y * stride, (size_t)row);
    }
    return ERR_OK;
}

void resizer_free(resizer *r) {
    free(r->across.first), free(r->across.exact);
    free(r->down.first), free(r->down.exact);
    free(r->rows);
    *r = (resizer){0};
}
