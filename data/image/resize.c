// data/image/resize.c: see data/image/resize.h. On x86 processors with AVX2 most is done by loops of their own. All
// compute in integers, so that both give the same bytes.
#include "data/image/resize.h"

#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BITS = 22, HALF = 1 << (BITS - 1), STRIP = 32 };  // STRIP: bytes of a row that AVX2 sums at once

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

static inline uint8_t to_byte(int32_t sum) {
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

// A row of w pixels from one of another width.
static void across(uint8_t *to, const uint8_t *from, int w, int c, const taps *t) {
    for (int x = 0; x < w; x++, to += c) {
        const int32_t *weight = t->weight + (int64_t)x * t->most;
        const uint8_t *at = from + (int64_t)c * t->first[x];
        for (int k = 0; k < c; k++) {
            int32_t sum = HALF;
            for (int i = 0; i < t->count[x]; i++) sum += at[i * c + k] * weight[i];
            to[k] = to_byte(sum);
        }
    }
}

// Bytes `from` to `end` of a row of the result, from `count` rows below each other.
static void down(uint8_t *to, const uint8_t *rows, int64_t stride, int64_t from, int64_t end, const int32_t *weight,
                 int count) {
    for (int64_t x = from; x < end; x++) {
        int32_t sum = HALF;
        for (int k = 0; k < count; k++) sum += rows[k * stride + x] * weight[k];
        to[x] = to_byte(sum);
    }
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))

// Four bytes of each of two rows, as numbers.
AVX2 static inline __m256i load_two(const uint8_t *a, const uint8_t *b) {
    return _mm256_cvtepu8_epi32(_mm_unpacklo_epi32(_mm_loadu_si32(a), _mm_loadu_si32(b)));
}

// Four rows at once, of three channels: a pixel is three of four numbers, and the fourth, of the next pixel, is
// overwritten by it; after the last pixel of a row there is none.
AVX2 static void across_four(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t stride, int w,
                             const taps *t) {
    for (int x = 0; x < w; x++, to += 3) {
        const int32_t *weight = t->weight + (int64_t)x * t->most;
        const uint8_t *at = from + 3 * (int64_t)t->first[x];
        __m256i a = _mm256_set1_epi32(HALF), b = a;
        for (int k = 0; k < t->count[x]; k++, at += 3) {
            __m256i v = _mm256_set1_epi32(weight[k]);
            a = _mm256_add_epi32(a, _mm256_mullo_epi32(load_two(at, at + stride), v));
            b = _mm256_add_epi32(b, _mm256_mullo_epi32(load_two(at + 2 * stride, at + 3 * stride), v));
        }
        __m256i words = _mm256_packus_epi32(_mm256_srai_epi32(a, BITS), _mm256_srai_epi32(b, BITS));
        __m256i bytes = _mm256_packus_epi16(words, words);  // rows 0 and 2 in the lower half, 1 and 3 in the upper
        uint64_t even = (uint64_t)_mm256_extract_epi64(bytes, 0), odd = (uint64_t)_mm256_extract_epi64(bytes, 2);
        size_t n = x + 1 < w ? 4 : 3;
        uint32_t row[4] = {(uint32_t)even, (uint32_t)odd, (uint32_t)(even >> 32), (uint32_t)(odd >> 32)};
        if (n == 4)
            for (int y = 0; y < 4; y++) memcpy(to + y * to_stride, &row[y], 4);
        else
            for (int y = 0; y < 4; y++) memcpy(to + y * to_stride, &row[y], 3);
    }
}

AVX2 static inline __m256i load_eight(const uint8_t *at) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
}

// As many bytes as come in pieces of STRIP; returns how many.
AVX2 static int64_t down_strips(uint8_t *to, const uint8_t *rows, int64_t stride, int64_t n, const int32_t *weight,
                                int count) {
    int64_t x = 0;
    for (; x + STRIP <= n; x += STRIP) {
        __m256i a = _mm256_set1_epi32(HALF), b = a, c = a, d = a;
        const uint8_t *at = rows + x;
        for (int k = 0; k < count; k++, at += stride) {
            __m256i v = _mm256_set1_epi32(weight[k]);
            a = _mm256_add_epi32(a, _mm256_mullo_epi32(load_eight(at), v));
            b = _mm256_add_epi32(b, _mm256_mullo_epi32(load_eight(at + 8), v));
            c = _mm256_add_epi32(c, _mm256_mullo_epi32(load_eight(at + 16), v));
            d = _mm256_add_epi32(d, _mm256_mullo_epi32(load_eight(at + 24), v));
        }
        a = _mm256_packus_epi32(_mm256_srai_epi32(a, BITS), _mm256_srai_epi32(b, BITS));
        c = _mm256_packus_epi32(_mm256_srai_epi32(c, BITS), _mm256_srai_epi32(d, BITS));
        // packing works in halves of the vector: groups of four bytes come out as 0 2 4 6 1 3 5 7
        __m256i mixed = _mm256_packus_epi16(a, c);
        mixed = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)(void *)(to + x), mixed);
    }
    return x;
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
static void across_four(uint8_t *to, int64_t to_stride, const uint8_t *from, int64_t stride, int w, const taps *t) {
    (void)to, (void)to_stride, (void)from, (void)stride, (void)w, (void)t;
}
static int64_t down_strips(uint8_t *to, const uint8_t *rows, int64_t stride, int64_t n, const int32_t *weight,
                           int count) {
    (void)to, (void)rows, (void)stride, (void)n, (void)weight, (void)count;
    return 0;
}
static bool has_avx2(void) { return false; }
#endif

// All rows of `from` in another width.
static void go_across(uint8_t *to, const region *from, int w, const taps *t, bool wide) {
    int64_t row = (int64_t)w * from->c;
    int y = 0;
    for (; wide && from->c == 3 && y + 4 <= from->h; y += 4)
        across_four(to + y * row, row, from->at + y * from->stride, from->stride, w, t);
    for (; y < from->h; y++) across(to + y * row, from->at + y * from->stride, w, from->c, t);
}

// Rows of n bytes to h of them.
static void go_down(uint8_t *to, const uint8_t *from, int64_t stride, int64_t n, int h, const taps *t, bool wide) {
    for (int y = 0; y < h; y++, to += n) {
        const int32_t *weight = t->weight + (int64_t)y * t->most;
        const uint8_t *rows = from + t->first[y] * stride;
        int64_t done = wide ? down_strips(to, rows, stride, n, weight, t->count[y]) : 0;
        down(to, rows, stride, done, n, weight, t->count[y]);
    }
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
    int64_t row = (int64_t)w * from->c, stride = from->stride;
    const uint8_t *at = from->at;
    bool wide = !r->plain && has_avx2();
    if (w != from->w) {
        uint8_t *to = dst;
        if (h != from->h) {
            TRY(reserve(r, row * from->h));
            to = r->rows;
        }
        TRY(find_taps(&r->across, from->w, w));
        go_across(to, from, w, &r->across, wide);
        at = to, stride = row;
    }
    if (h != from->h) {
        TRY(find_taps(&r->down, from->h, h));
        go_down(dst, at, stride, row, h, &r->down, wide);
    } else if (at != dst) {
        for (int y = 0; y < h; y++) memcpy(dst + y * row, at + y * stride, (size_t)row);
    }
    return ERR_OK;
}

err_t resizer_reserve(resizer *r, int most_h, int most_w, int h, int w, int c) {
    TRY(find_taps(&r->across, most_w, w));
    TRY(find_taps(&r->down, most_h, h));
    return reserve(r, (int64_t)w * c * most_h);
}

void resizer_free(resizer *r) {
    free(r->across.first), free(r->across.exact);
    free(r->down.first), free(r->down.exact);
    free(r->rows);
    *r = (resizer){0};
}
