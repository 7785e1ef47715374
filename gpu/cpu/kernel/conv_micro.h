// gpu/cpu/kernel/conv_micro.h: the inner loop of convolutions: a tile of outputs that lives in registers.
//
// As in a matrix product (gemm_micro.h) every output has one accumulator, and a step does acc[i][j] = fma(s[i], v[j],
// acc[i][j]). But s is not packed: forward each row of the tile has a pointer of its own, to wherever its pixel lies,
// and all rows move on by the same distance; filters of dy are neighbours, and have one. Steps come in runs, since what
// a pixel needs of an image is contiguous row by row:
//
//     forward  a row is an output pixel, a run the S*C inputs that a row of taps covers; v is packed filters
//     weights  a row is a filter of dy, a run the output pixels of a row; v is inputs, packed or where they lie. Pairs
//              of pixels are always packed, both of dy and of inputs
//
// With products = bf16-pairs a step is product_step, of cells (products.h). They lie in the order of their channels or
// pixels; where a pair is two cells, the second one is taken first.
//
// Tiles, rows x columns, chosen by the number of columns that are left:
//
//     AVX-512  6 x 64, 8 x 48, 12 x 32, 12 x 16        AVX2, NEON  6 x 16        portable  4 x 16
#ifndef GPU_CPU_KERNEL_CONV_MICRO_H
#define GPU_CPU_KERNEL_CONV_MICRO_H

#include "gpu/cpu/kernel/cells.h"

#include <stdbool.h>

#if defined(__AVX512F__) || defined(CONV_WIDE)
enum { CONV_ROWS = 12, CONV_VECTORS = 4 };
static inline int conv_tile_rows(int vectors) { return vectors <= 2 ? 12 : vectors == 3 ? 8 : 6; }
#elif defined(__AVX2__) || defined(VEC_NEON)
enum { CONV_ROWS = 6, CONV_VECTORS = 1 };
static inline int conv_tile_rows(int vectors) { return (void)vectors, CONV_ROWS; }
#else
enum { CONV_ROWS = 4, CONV_VECTORS = 1 };
static inline int conv_tile_rows(int vectors) { return (void)vectors, CONV_ROWS; }
#endif
enum { CONV_COLUMNS = CONV_VECTORS * VL };

// Vectors of the next panel, where `left` columns remain and a panel has at most so many: no panel of one vector is
// left over where two wider ones do.
static inline int conv_panel(int64_t left, int most) {
    int64_t vectors = (left + VL - 1) / VL;
    if (vectors <= most) return (int)vectors;
    return vectors == most + 1 && most >= 3 ? most - 1 : most;
}

// Steps i = 0 .. length-1, whole pairs of them: row r takes s[r][s_at + i * s_step], columns v[v_at + i * v_step ..].
typedef struct conv_run {
    int64_t s_at, v_at, length;
} conv_run;

// What is prefetched meanwhile: two lines every four steps, up to `end`.
typedef struct conv_ahead {
    const char *at, *end;
    int64_t by;
} conv_ahead;

typedef struct conv_tile {
    const float *const *s;  // of each row; where rows are neighbours, of the first
    int64_t s_step, v_step;
    const conv_run *run;
    int runs;
    const float *v;
    float *const *c;  // where each row's outputs go, from column `column` on
    int64_t column;
    bool onto;          // c (+=)
    int lanes;          // columns of the last vector
    conv_ahead *ahead;  // where rows step, or NULL
} conv_tile;
typedef void (*conv_micro)(const conv_tile *t);

VEC void conv_step(int rows, int vectors, bool apart, product_state *p, vf acc[CONV_ROWS][CONV_VECTORS],
                   const float *const *s, int64_t at, const float *v) {
    vf b[CONV_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) b[j] = vf_load(v + j * VL);
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        vf a = vf_set1(apart ? s[i][at] : s[0][at + i]);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) acc[i][j] = product_step(p, a, b[j], acc[i][j]);
    }
}

// The cells that are taken together.
VEC void conv_steps(int rows, int vectors, bool apart, product_state *p, vf acc[CONV_ROWS][CONV_VECTORS],
                    const float *const *s, int64_t at, int64_t s_step, const float *v, int64_t v_step) {
    if (PAIR_CELLS == 2) conv_step(rows, vectors, apart, p, acc, s, at + s_step, v + v_step);
    conv_step(rows, vectors, apart, p, acc, s, at, v);
}

// The same chains as they are specified.
static __attribute__((unused)) void conv_again(int rows, int vectors, bool packed, vf acc[CONV_ROWS][CONV_VECTORS],
                                               const conv_tile *t) {
    const int64_t s_step = packed ? 1 : t->s_step, v_step = vectors * VL;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            acc[i][j] = vf_zero();
            for (const conv_run *r = t->run; r < t->run + t->runs; r++)
                for (int64_t n = 0; n < r->length; n++) {
                    int64_t c = cell_place(n), at = r->s_at + c * s_step;
                    acc[i][j] = product_exact(vf_set1(packed ? t->s[i][at] : t->s[0][at + i]),
                                              vf_load(t->v + r->v_at + c * v_step + j * VL), acc[i][j]);
                }
        }
}

VEC void conv_store(int rows, int vectors, vf acc[CONV_ROWS][CONV_VECTORS], const conv_tile *t, bool onto) {
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        float *c = t->c[i] + t->column;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++, c += VL) {
            if (j < vectors - 1 || t->lanes == VL) vf_store(c, onto ? vf_add(vf_load(c), acc[i][j]) : acc[i][j]);
            else vf_store_n(c, onto ? vf_add(vf_load_n(c, t->lanes), acc[i][j]) : acc[i][j], t->lanes);
        }
    }
}

// packed: s_step is 1 and v_step the panel's width, as the compiler then knows. Else rows are neighbours: with a
// pointer for each, pointers and strides did not fit into registers, and 5 to 10 % were lost. Pairs always have
// panels.
VEC void conv_micro_body(int rows, int vectors, bool packed, const conv_tile *t) {
    vf acc[CONV_ROWS][CONV_VECTORS];
    const float *s[CONV_ROWS];
    const int64_t s_step = packed ? 1 : t->s_step, v_step = packed || PAIRED ? vectors * VL : t->v_step;
    const char *line = packed ? NULL : t->ahead->at;
    int64_t by = packed ? 0 : t->ahead->by;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        s[i] = packed ? t->s[i] : t->s[0] + i;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) acc[i][j] = vf_zero();
    }
    // a short chain of pairs is over before its outputs have come
    for (int i = 0; WORDS && packed && i < rows; i++)
        for (int j = 0; j < vectors; j++) __builtin_prefetch(t->c[i] + t->column + j * VL, 1);
    product_state p = product_begin();
    for (int r = 0; r < t->runs; r++) {
        int64_t at = t->run[r].s_at, n = t->run[r].length;
        const float *v = t->v + t->run[r].v_at;
        if (packed)
            for (; n >= 8; n -= 8, at += 8, v += 8 * v_step) {
                __builtin_prefetch(v + 16 * v_step);
#pragma GCC unroll 8
                for (int k = 0; k < 8; k += PAIR_CELLS)
                    conv_steps(rows, vectors, true, &p, acc, s, at + k, s_step, v + k * v_step, v_step);
            }
        else
            for (; n >= 4; n -= 4, line += by) {
                __builtin_prefetch(line, 0, 2), __builtin_prefetch(line + 64, 0, 2);
#pragma GCC unroll 4
                for (int k = 0; k < 4; k += PAIR_CELLS, at += PAIR_CELLS * s_step, v += PAIR_CELLS * v_step)
                    conv_steps(rows, vectors, false, &p, acc, s, at, s_step, v, v_step);
            }
        for (; n > 0; n -= PAIR_CELLS, at += PAIR_CELLS * s_step, v += PAIR_CELLS * v_step)
            conv_steps(rows, vectors, packed, &p, acc, s, at, s_step, v, v_step);
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) product_hold(&acc[i][j]);
    if (product_end(&p)) conv_again(rows, vectors, packed, acc, t);
    if (!packed) {
        if (line >= t->ahead->end) line = t->ahead->end, t->ahead->by = 0;
        t->ahead->at = line;
    }
    if (t->onto) conv_store(rows, vectors, acc, t, true);
    else conv_store(rows, vectors, acc, t, false);
}

// A table [vectors - 1][rows - 1] of all tiles.
// clang-format off
#define CONV_TILE(name, packed, r, w) \
    static void name##_##r##x##w(const conv_tile *t) { conv_micro_body(r, w, packed, t); }
#define CONV_TILES4(name, packed, w) CONV_TILE(name, packed, 1, w) CONV_TILE(name, packed, 2, w) \
    CONV_TILE(name, packed, 3, w) CONV_TILE(name, packed, 4, w)
#define CONV_TILES6(name, packed, w) CONV_TILES4(name, packed, w) CONV_TILE(name, packed, 5, w) \
    CONV_TILE(name, packed, 6, w)
#define CONV_TILES8(name, packed, w) CONV_TILES6(name, packed, w) CONV_TILE(name, packed, 7, w) \
    CONV_TILE(name, packed, 8, w)
#define CONV_TILES12(name, packed, w) CONV_TILES8(name, packed, w) CONV_TILE(name, packed, 9, w) \
    CONV_TILE(name, packed, 10, w) CONV_TILE(name, packed, 11, w) CONV_TILE(name, packed, 12, w)
#define CONV_NAMES4(name, w) name##_1x##w, name##_2x##w, name##_3x##w, name##_4x##w
#define CONV_NAMES6(name, w) CONV_NAMES4(name, w), name##_5x##w, name##_6x##w
#define CONV_NAMES8(name, w) CONV_NAMES6(name, w), name##_7x##w, name##_8x##w
#define CONV_NAMES12(name, w) CONV_NAMES8(name, w), name##_9x##w, name##_10x##w, name##_11x##w, name##_12x##w
#if defined(__AVX512F__) || defined(CONV_WIDE)
#define CONV_MICRO(name, packed) \
    CONV_TILES12(name, packed, 1) CONV_TILES12(name, packed, 2) CONV_TILES8(name, packed, 3) \
    CONV_TILES6(name, packed, 4) \
    static const conv_micro name[CONV_VECTORS][CONV_ROWS] = {{CONV_NAMES12(name, 1)}, {CONV_NAMES12(name, 2)}, \
                                                             {CONV_NAMES8(name, 3)}, {CONV_NAMES6(name, 4)}};
#elif defined(__AVX2__) || defined(VEC_NEON)
#define CONV_MICRO(name, packed) \
    CONV_TILES6(name, packed, 1) \
    static const conv_micro name[CONV_VECTORS][CONV_ROWS] = {{CONV_NAMES6(name, 1)}};
#else
#define CONV_MICRO(name, packed) \
    CONV_TILES4(name, packed, 1) \
    static const conv_micro name[CONV_VECTORS][CONV_ROWS] = {{CONV_NAMES4(name, 1)}};
#endif
// clang-format on

// Rows of the next tile of at most `most` rows, where `left` remain: two of the same height, not a full one and a
// sliver.
static inline int64_t conv_rows_now(int64_t left, int64_t most) {
    if (left <= most) return left;
    return left < 2 * most ? (left + 1) / 2 : most;
}

#endif
