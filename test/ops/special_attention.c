// test/ops/special_attention.c: what a row of attention does not depend on.
#include "test/ops/special.h"

#include <stdlib.h>
#include <string.h>

// What comes later changes nothing before it, to the bit.
bool attention_causal(const fixture *f, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    enum { T = 70, C = 24, H = 3, FROM = 41 };
    float *qkv = random_values(FP32, T * 3 * C, 1, 8);
    tensor x = {0}, *flat = box(&b, FP32, T, 3 * C, qkv);
    for (int i = FROM * 3 * C; i < T * 3 * C; i++) qkv[i] = 50 - qkv[i];
    tensor *flat2 = box(&b, FP32, T, 3 * C, qkv), *y = box(&b, FP32, T, C, NULL), *y2 = box(&b, FP32, T, C, NULL);
    tensor *lse = box(&b, FP32, H, T, NULL), *lse2 = box(&b, FP32, H, T, NULL);
    tensor ya = view3(y, 1, T, C), yb = view3(y2, 1, T, C), la = view3(lse, 1, H, T), lb = view3(lse2, 1, H, T);
    x = view3(flat, 1, T, 3 * C);
    if (b.ok)
        did(&b,
            f->table->attention_forward(&(attention_forward_args){.y = &ya, .lse = &la, .qkv = &x, .heads = H}, f->s));
    x = view3(flat2, 1, T, 3 * C);
    if (b.ok)
        did(&b,
            f->table->attention_forward(&(attention_forward_args){.y = &yb, .lse = &lb, .qkv = &x, .heads = H}, f->s));
    tensor before = view2(y, FROM, C), before2 = view2(y2, FROM, C);
    expect_same(&b, "outputs before the first changed position", &before, &before2);
    free(qkv);
    return done(&b);
}

// --- a text that grows -----------------------------------------------------------------------------------------------

typedef struct growth {
    int64_t T, D;
    int H, KV, W;
} growth;

// Rows first .. first+n-1.
static tensor rows_from(const tensor *t, int64_t first, int64_t n) {
    tensor part = view2(t, n, t->size[1]);
    part.data = (char *)t->data + (size_t)(first * t->size[1]) * dtype_bytes(t->type);
    return part;
}

// The text's attention in parts: `step` positions at a time, or, if it is 0, parts of changing length.
static void grow(bench *b, const growth *g, tensor *y, tensor *past, const tensor *qkv, int64_t step) {
    static const int64_t parts[] = {61, 1, 2, 70};
    for (int64_t at = 0, n, i = 0; at < g->T && b->ok; at += n, i++) {
        n = step ? step : parts[i % 4];
        if (n > g->T - at) n = g->T - at;
        tensor out = rows_from(y, at, n), in = rows_from(qkv, at, n);
        did(b,
            b->f->table->attention_past(
                &(attention_past_args){
                    .y = &out, .past = past, .qkv = &in, .heads = g->H, .kv_heads = g->KV, .window = g->W, .first = at},
                b->f->s));
    }
}

// On a CPU this is the attention that the model was trained with.
static void expect_forward(bench *b, const growth *g, const tensor *y, const tensor *qkv) {
    tensor *full = box(b, y->type, g->T, g->H * g->D, NULL), *lse = box(b, FP32, g->H, g->T, NULL);
    tensor out = view3(full, 1, g->T, g->H * g->D), in = view3(qkv, 1, g->T, qkv->size[1]),
           sums = view3(lse, 1, g->H, g->T);
    if (!b->ok || device_about(b->f->dev)->kind != DEVICE_CPU) return;
    did(b, b->f->table->attention_forward(
               &(attention_forward_args){
                   .y = &out, .lse = &sums, .qkv = &in, .heads = g->H, .kv_heads = g->KV, .window = g->W},
               b->f->s));
    expect_same(b, "attention_past and attention_forward", y, full);
}

static bool grows(const fixture *f, const growth *g, dtype type, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    const char *what[] = {"one position at a time and all at once", "parts and all at once"};
    int64_t C = g->H * g->D, P = 2 * g->KV * g->D;
    tensor *qkv = random_box(&b, type, g->T, C + P, 2, 11), *y = box(&b, type, g->T, C, NULL),
           *past = box(&b, type, g->T, P, NULL);
    grow(&b, g, y, past, qkv, g->T);
    expect_forward(&b, g, y, qkv);
    for (int k = 0; k < 2; k++) {
        tensor *y2 = box(&b, type, g->T, C, NULL), *past2 = box(&b, type, g->T, P, NULL);
        grow(&b, g, y2, past2, qkv, 1 - k);
        expect_same(&b, what[k], y, y2);
        expect_same(&b, "what they keep", past, past2);
    }
    return done(&b);
}

bool attention_grows(const fixture *f, char why[WHY]) {
    static const growth list[] = {
        {150, 32, 2, 2, 0}, {150, 12, 4, 1, 0}, {140, 64, 2, 1, 37}, {70, 7, 3, 3, 64}, {5, 128, 1, 1, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int t = 0; t < 3; t++)
            if (!grows(f, &list[i], compute_types[t], why)) return false;
    return true;
}

// --- a text that is said ---------------------------------------------------------------------------------------------

typedef struct saying {
    int64_t T, D, read, room;  // positions of the text that is said, keys of the one that was read, and room for these
    int H;
} saying;

// NaN of any type.
static tensor *box_of_nan(bench *b, dtype type, int64_t n0, int64_t n1) {
    size_t bytes = (size_t)(n0 * n1) * dtype_bytes(type);
    void *host = malloc(bytes);
    memset(host, 0xff, bytes);
    tensor *x = box(b, type, n0, n1, host);
    free(host);
    return x;
}

// Queries first .. first+n-1 of q. lengths: of the keys that are seen, NULL: all.
static void attend_some(bench *b, const saying *g, const tensor *y, const tensor *q, const tensor *kv, int64_t keys,
                        const tensor *bias, const tensor *lengths, int64_t first, int64_t n) {
    tensor out = rows_from(y, first, n), in = rows_from(q, first, n), *lse = box(b, FP32, n * g->H, 0, NULL);
    tensor outs = view3(&out, 1, n, y->size[1]), ins = view3(&in, 1, n, q->size[1]),
           all = view3(kv, 1, keys, kv->size[1]), sums = view3(lse, 1, g->H, n), row = {0};
    if (bias) row = view3(bias, 1, g->H, bias->size[1]);
    if (!b->ok) return;
    did(b, b->f->table->cross_attention_forward(&(cross_attention_forward_args){.y = &outs,
                                                                                .lse = &sums,
                                                                                .q = &ins,
                                                                                .kv = &all,
                                                                                .bias = bias ? &row : NULL,
                                                                                .heads = g->H,
                                                                                .scale = 1,
                                                                                .causal = bias != NULL,
                                                                                .first = bias ? first : 0,
                                                                                .lengths = lengths},
                                                b->f->s));
    did(b, stream_wait(b->f->s));
    device_free(b->f->dev, MEMORY_DEVICE, lse->data, tensor_bytes(lse));
    b->count--;
}

// In parts of 1, 2, 61 and 70, as keys come; after them stands what is no number.
static void say_parts(bench *b, const saying *g, const tensor *y, const tensor *q, const tensor *kv,
                      const tensor *bias) {
    static const int64_t parts[] = {1, 2, 61, 70};
    tensor *kept = box_of_nan(b, kv->type, g->T, kv->size[1]);
    for (int64_t at = 0, n, i = 0; at < g->T && b->ok; at += n, i++) {
        n = parts[i % 4] < g->T - at ? parts[i % 4] : g->T - at;
        tensor to = rows_from(kept, at, n), from = rows_from(kv, at, n);
        did(b, b->f->table->cast(&(cast_args){.y = &to, .x = &from}, b->f->s));
        attend_some(b, g, y, q, kept, g->T, bias, NULL, at, n);
    }
}

static bool says(const fixture *f, const saying *g, dtype type, char why[WHY]) {
    bench b = {.f = f, .ok = true, .why = why};
    int64_t C = g->H * g->D;
    int32_t read = (int32_t)g->read;
    tensor *q = random_box(&b, type, g->T, C, 1, 3), *kv = random_box(&b, type, g->T, 2 * C, 1, 4),
           *other = random_box(&b, type, g->room, 2 * C, 1, 5), *bias = random_box(&b, FP32, g->H, 2 * g->T - 1, 2, 6),
           *length = box(&b, INT32, 1, 0, &read), *y = box(&b, type, g->T, C, NULL), *y2 = box(&b, type, g->T, C, NULL);
    attend_some(&b, g, y, q, kv, g->T, bias, NULL, 0, g->T);
    say_parts(&b, g, y2, q, kv, bias);
    expect_same(&b, "its own text in parts and all at once", y, y2);
    attend_some(&b, g, y, q, other, g->room, NULL, length, 0, g->T);
    for (int64_t i = 0; i < g->T && b.ok; i++) attend_some(&b, g, y2, q, other, g->read, NULL, NULL, i, 1);
    expect_same(&b, "the other text, by each query and by all", y, y2);
    return done(&b);
}

bool cross_attention_grows(const fixture *f, char why[WHY]) {
    static const saying list[] = {{150, 32, 70, 90, 2}, {70, 7, 1, 5, 3}, {5, 128, 64, 64, 1}, {66, 64, 130, 190, 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int t = 0; t < 3; t++)
            if (!says(f, &list[i], compute_types[t], why)) return false;
    return true;
}
