// data/image/view.c: see data/image/view.h.
#include "data/image/view.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <string.h>

// What is drawn at an image's position in the run: four words each. The tries at a box have 0 .. TRIES-1.
enum { TRIES = 10, DRAW_SHIFT = TRIES, DRAW_FLIP, DRAW_HALF };

static void draw(uint32_t word[4], const source_draw *d, uint32_t what) {
    philox4x32(word, d->seed, what, SITE_VIEW, (uint32_t)d->n, (uint32_t)((uint64_t)d->n >> 32));
}

// [low,high) of 32 bits, and 0 .. most.
static double between(uint32_t bits, double low, double high) { return low + (high - low) * (bits * 0x1p-32); }
static int upto(uint32_t bits, int64_t most) { return (int)((uint64_t)bits * (uint64_t)(most + 1) >> 32); }

view view_middle(const picture *p, int h, int w) {
    view v = {.h = h, .w = w};
    if (p->h < h || p->w < w) {  // the largest box of this shape, which will be enlarged
        bool by_height = (int64_t)p->h * w < (int64_t)p->w * h;
        v.h = by_height ? p->h : (int)((int64_t)p->w * h / w);
        v.w = by_height ? (int)((int64_t)p->h * w / h) : p->w;
        if (v.h < 1) v.h = 1;
        if (v.w < 1) v.w = 1;
    }
    v.top = (p->h - v.h) / 2, v.left = (p->w - v.w) / 2;
    return v;
}

static int within(int at, int most) { return at < 0 ? 0 : at > most ? most : at; }

view view_test(const picture *p, int h, int w, int which) {
    view v = view_middle(p, h, w);
    int side = v.h < v.w ? v.h : v.w, step = side < 32 ? 1 : side / 32;
    int move = which / 2 == 1 ? -step : which / 2 == 2 ? step : 0;
    v.top += move, v.left += move;
    if (v.h != h || v.w != w) {  // to be resized: it stays inside
        v.top = within(v.top, p->h - v.h);
        v.left = within(v.left, p->w - v.w);
    }
    v.flip = which & 1;
    return v;
}

// torchvision's RandomResizedCrop: up to ten tries, then the largest box in the middle whose shape is within bounds.
static view random_box(double area, const picture *p, const source_draw *d) {
    double slim = fm_log(3.0 / 4), wide = fm_log(4.0 / 3), all = (double)p->h * p->w;
    for (uint32_t t = 0; t < TRIES; t++) {
        uint32_t word[4];
        draw(word, d, t);
        double share = all * between(word[0], area, 1), shape = fm_exp(between(word[1], slim, wide));
        view v = {.w = (int)(__builtin_sqrt(share * shape) + 0.5), .h = (int)(__builtin_sqrt(share / shape) + 0.5)};
        if (v.w < 1 || v.h < 1 || v.w > p->w || v.h > p->h) continue;
        v.top = upto(word[2], p->h - v.h), v.left = upto(word[3], p->w - v.w);
        return v;
    }
    view v = {.h = p->h, .w = p->w};
    if (3 * (int64_t)p->h > 4 * (int64_t)p->w) v.h = (int)((4 * (int64_t)p->w + 1) / 3);
    else if (3 * (int64_t)p->w > 4 * (int64_t)p->h) v.w = (int)((4 * (int64_t)p->h + 1) / 3);
    v.top = (p->h - v.h) / 2, v.left = (p->w - v.w) / 2;
    return v;
}

// Of alternating flips a sample's first one is drawn for the sample, not for the position.
static bool flips(flip_mode how, const source_draw *d) {
    uint32_t word[4];
    source_draw of_sample = *d;
    of_sample.n = d->sample;
    if (how == FLIP_NO) return false;
    if (how == FLIP_RANDOM) draw(word, d, DRAW_FLIP);
    else draw(word, &of_sample, DRAW_HALF);
    return (word[0] ^ (how == FLIP_ALTERNATING ? (uint64_t)d->epoch : 0)) & 1;
}

view view_train(const source_view *o, const picture *p, int h, int w, const source_draw *d) {
    view v;
    if (o->area > 0 && o->area < 1) {
        v = random_box(o->area, p, d);
    } else {
        uint32_t word[4];
        v = view_middle(p, h, w);
        draw(word, d, DRAW_SHIFT);
        if (o->shift && v.h == h && v.w == w) {
            v.top += upto(word[0], 2 * o->shift) - (int)o->shift;
            v.left += upto(word[1], 2 * o->shift) - (int)o->shift;
        }
    }
    v.flip = flips(o->flip, d);
    return v;
}

// --- cutting ---------------------------------------------------------------------------------------------------------

// A box of the sample's size, of which some may lie outside of the picture.
static void copy_box(uint8_t *dst, const picture *p, const view *v) {
    int64_t c = p->c, row = v->w * c;
    int from = v->left < 0 ? -v->left : 0, end = v->left + v->w > p->w ? p->w - v->left : v->w;
    for (int y = 0; y < v->h; y++, dst += row) {
        int at = v->top + y;
        if (at < 0 || at >= p->h || end <= from) {
            memset(dst, 0, (size_t)row);
            continue;
        }
        memset(dst, 0, (size_t)(from * c));
        memcpy(dst + from * c, p->at + ((int64_t)at * p->w + v->left + from) * c, (size_t)((end - from) * c));
        memset(dst + end * c, 0, (size_t)((v->w - end) * c));
    }
}

static void mirror(uint8_t *at, int h, int w, int c) {
    for (int y = 0; y < h; y++, at += (int64_t)w * c)
        for (uint8_t *a = at, *b = at + (int64_t)(w - 1) * c; a < b; a += c, b -= c)
            for (int k = 0; k < c; k++) {
                uint8_t t = a[k];
                a[k] = b[k], b[k] = t;
            }
}

err_t view_cut(resizer *r, uint8_t *dst, int h, int w, const picture *p, const view *v) {
    if (v->h == h && v->w == w) {
        copy_box(dst, p, v);
    } else {
        int64_t stride = (int64_t)p->w * p->c;
        region box = {p->at + v->top * stride + (int64_t)v->left * p->c, stride, v->h, v->w, p->c};
        TRY(resize(r, dst, h, w, &box));
    }
    if (v->flip) mirror(dst, h, w, p->c);
    return ERR_OK;
}
