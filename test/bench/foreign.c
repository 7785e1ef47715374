// test/bench/foreign.c: see test/bench/foreign.h: what a step's parts take, and how long the whole does. The lists are
// in test/bench/foreign_lists.c.
#include "test/bench/foreign.h"

#include <math.h>

enum { NODE = 8 };  // GPUs

// What a layer's operations add up to.
typedef struct pricer {
    const foreign_run *r;
    const costs *c;
    const foreign_sheet *sheet;
    dtype type;
    double s;
} pricer;

// --- operations ------------------------------------------------------------------------------------------------------

// Matrices in 16 bits. In FP8 both factors are cast before: read and measured, then read and written.
static void product(pricer *p, double m, double n, double k, bool added) {
    op_cost x = {.type = p->type,
                 .size = {(int64_t)m, (int64_t)n, (int64_t)k},
                 .bytes = 2 * (m * k + k * n) + (added ? 2 * p->r->gradient : 2) * m * n,
                 .flops = 2 * m * n * k};
    p->s += costs_of_op(p->c, "matmul", &x).s;
    if (p->r->type == FOREIGN_FP16) return;
    double passes = p->r->type == FOREIGN_FP8_ROWS ? p->sheet->at[CONSTANT_h100_rows] : 1;
    op_cost cast = {.type = p->type, .size = {(int64_t)(m * k)}, .bytes = passes * 5 * (m * k + k * n)};
    p->s += costs_of_op(p->c, "other", &cast).s;
}

// So many operations that read and write so much in all.
static void move(pricer *p, double bytes, int operations) {
    op_cost x = {.type = p->type, .size = {(int64_t)(bytes / operations)}, .bytes = bytes / operations};
    p->s += operations * costs_of_op(p->c, "other", &x).s;
}

static void attention(pricer *p, const char *op, double products, double tokens, double seen, double width) {
    op_cost x = {.type = p->type,
                 .size = {p->r->micro, p->r->sequence, (int64_t)width, p->r->heads},
                 .bytes = 2 * 4 * tokens * width,
                 .flops = products * tokens * seen * width};
    p->s += costs_of_op(p->c, op, &x).s;
}

// --- collectives -----------------------------------------------------------------------------------------------------

// Of `ranks` that stand `apart` from each other, where 8 GPUs make a node: a ring leaves each node once, and all rings
// of a node share its cards. bytes: of the whole buffer.
static double ring(const foreign_run *r, const costs *c, costs_call call, int ranks, int apart, double bytes) {
    int near = ranks * apart <= NODE ? ranks : apart < NODE ? NODE / apart : 1;
    double sent = (call == CALL_ALL_REDUCE ? 2 : 1) * bytes * (ranks - 1) / ranks;
    double inside = costs_of_call(c, call, COSTS_NODE, near, sent).s;
    if (near == ranks) return inside;
    double between = costs_of_call(c, call, COSTS_RACK, ranks, sent / near).s;
    return fmax(between * (r->one_by_one ? near : 1), inside);
}

// What tensor ranks say to each other about activations, so many times one way.
static double merges(const pricer *p, double calls) {
    const foreign_run *r = p->r;
    double bytes = 2.0 * (double)(r->micro * r->sequence / r->context * r->hidden);
    if (r->tensor == 1) return 0;
    double s = r->rows ? calls * (ring(r, p->c, CALL_ALL_GATHER, r->tensor, 1, bytes) +
                                  ring(r, p->c, CALL_REDUCE_SCATTER, r->tensor, 1, bytes))
                       : calls * ring(r, p->c, CALL_ALL_REDUCE, r->tensor, 1, bytes);
    return r->beside ? s / r->tensor : s;  // all but the first piece
}

// --- a layer ---------------------------------------------------------------------------------------------------------

typedef struct sizes {
    double tokens, rows, hidden, inner, width, keys, scores;  // of this rank: rows of norms, channels of its heads
} sizes;

static sizes sizes_of(const foreign_run *r) {
    double t = r->tensor, tokens = (double)(r->micro * r->sequence / r->context);
    return (sizes){.tokens = tokens,
                   .rows = r->rows ? tokens / t : tokens,
                   .hidden = (double)r->hidden,
                   .inner = (double)r->inner / t,
                   .width = (double)r->hidden / t,
                   .keys = (double)(r->hidden / r->heads * r->keys) / t,
                   .scores = tokens * (double)(r->heads * r->sequence) / t};
}

// The core of attention as one product for each head, softmax and dropout over all positions.
static void scores_forward(pricer *p, const sizes *z) {
    double length = (double)p->r->sequence, size = (double)(p->r->hidden / p->r->heads), rows = z->scores / length;
    product(p, rows, length, size, false), product(p, rows, size, length, false);
    move(p, 4 * z->scores, 1), move(p, 5 * z->scores, 1);
    move(p, 4 * 4 * z->tokens * z->width, 4);  // transposed and back
}

static void scores_backward(pricer *p, const sizes *z) {
    double length = (double)p->r->sequence, size = (double)(p->r->hidden / p->r->heads), rows = z->scores / length;
    for (int i = 0; i < 2; i++) product(p, rows, length, size, false), product(p, rows, size, length, false);
    move(p, 6 * z->scores, 1), move(p, 5 * z->scores, 1);
    move(p, 4 * 4 * z->tokens * z->width, 4);
}

static void gpt_forward(pricer *p, const sizes *z) {
    product(p, z->tokens, 3 * z->width, z->hidden, false);
    scores_forward(p, z);
    product(p, z->tokens, z->hidden, z->width, false);
    product(p, z->tokens, z->inner, z->hidden, false), product(p, z->tokens, z->hidden, z->inner, false);
    move(p, 2 * (4 + 7) * z->rows * z->hidden, 4);  // norms; bias, dropout and sum
    move(p, (4 + 4) * z->tokens * z->inner, 2);     // bias and GELU
    p->s += merges(p, 2);
}

static void gpt_backward(pricer *p, const sizes *z) {
    const double products[4][2] = {
        {3 * z->width, z->hidden}, {z->hidden, z->width}, {z->inner, z->hidden}, {z->hidden, z->inner}};
    for (int i = 0; i < 4; i++) {
        product(p, z->tokens, products[i][1], products[i][0], false);
        product(p, products[i][0], products[i][1], z->tokens, true);
    }
    scores_backward(p, z);
    move(p, 2 * (10 + 5 + 6) * z->rows * z->hidden, 6);
    move(p, (6 + 2) * z->tokens * z->inner, 2);
    p->s += merges(p, 2);
}

static void llama_forward(pricer *p, const sizes *z) {
    double seen = (double)p->r->sequence / 2;
    product(p, z->tokens, z->width + 2 * z->keys, z->hidden, false);
    attention(p, "attention_forward", 4, z->tokens, seen, z->width);
    product(p, z->tokens, z->hidden, z->width, false);
    product(p, z->tokens, 2 * z->inner, z->hidden, false), product(p, z->tokens, z->hidden, z->inner, false);
    move(p, 2 * (4 + 6) * z->rows * z->hidden, 2);
    move(p, 4 * z->tokens * (z->width + z->keys) + 6 * z->tokens * z->inner, 3);  // rotary; the gate
    p->s += merges(p, 2);
}

static void llama_backward(pricer *p, const sizes *z) {
    double seen = (double)p->r->sequence / 2;
    const double products[4][2] = {
        {z->width + 2 * z->keys, z->hidden}, {z->hidden, z->width}, {2 * z->inner, z->hidden}, {z->hidden, z->inner}};
    for (int i = 0; i < 4; i++) {
        product(p, z->tokens, products[i][1], products[i][0], false);
        product(p, products[i][0], products[i][1], z->tokens, false);
    }
    attention(p, "attention_backward", 10, z->tokens, seen, z->width);
    move(p, 2 * (8 + 6) * z->rows * z->hidden, 4);
    move(p, 4 * z->tokens * (z->width + z->keys) + 10 * z->tokens * z->inner, 3);
    p->s += merges(p, 2);
}

static double forward_of(pricer *p, const sizes *z) {
    p->s = 0;
    (p->r->llama ? llama_forward : gpt_forward)(p, z);
    return p->s;
}

static double backward_of(pricer *p, const sizes *z, double forward) {
    p->s = 0;
    (p->r->llama ? llama_backward : gpt_backward)(p, z);
    double s = p->s;
    p->s = 0;
    switch (p->r->again) {
    case AGAIN_NONE: return s;
    case AGAIN_HALF: return s + forward / 2;
    case AGAIN_ALL: return s + forward;
    case AGAIN_ATTENTION: scores_forward(p, z);
    }
    return s + p->s;
}

// --- the rest --------------------------------------------------------------------------------------------------------

// Products with the table of words are never in FP8. Of logits: the loss, its parts in FP32 there and back.
static double head_of(pricer *p, const sizes *z) {
    foreign_run plain = *p->r;
    double words = (double)p->r->vocabulary / p->r->tensor;
    pricer q = {.r = &plain, .c = p->c, .sheet = p->sheet, .type = p->type};
    plain.type = FOREIGN_FP16;
    product(&q, z->tokens, words, z->hidden, false), product(&q, z->tokens, z->hidden, words, false);
    product(&q, words, z->hidden, z->tokens, true);
    move(&q, 30 * z->tokens * words, 6);
    move(&q, 14 * z->rows * z->hidden, 2);
    q.s += merges(&q, p->r->rows ? 1 : 0.5);
    return q.s;
}

static double weights_of(const foreign_run *r) {
    double h = (double)r->hidden, keys = (double)(r->hidden / r->heads * r->keys);
    return (h * (2 * h + 2 * keys) + (r->llama ? 3 : 2) * h * (double)r->inner) / r->tensor;
}

// What computes while a collective runs beside it is slowed down.
static double beside(double compute, double calls, double slower) {
    return compute + (slower - 1) * fmin(compute, calls);
}

// Without buckets one ring after the other goes through one card, however many of a node are in it. vTrain's nodes have
// 800 Gbit/s, 4 cards: one for 2 GPUs.
static double reduce_of(const foreign_run *r, const costs *c, const foreign_sheet *sheet, double bytes) {
    enum { SHARED = 2 };
    int data = r->data * r->context, far = data * r->tensor > NODE;
    double all = ring(r, c, CALL_ALL_REDUCE, data, r->tensor, bytes);
    if (!r->deepspeed || !far) return all;
    return fmax(all, 2 * bytes * (data - 1) / data / (SHARED * r->card * sheet->at[CONSTANT_a100_card]));
}

// How many times as long vTrain's layers take that some GPUs of a node divide, and not all: the more of the node are
// others', the longer. The reason is not known.
static double others_of(const foreign_run *r, const foreign_sheet *sheet) {
    if (!r->deepspeed || r->tensor == 1 || r->tensor >= NODE) return 1;
    return 1 + sheet->at[CONSTANT_vtrain_others] * (1 - (double)r->tensor / NODE);
}

void foreign_price_of(foreign_price *p, const foreign_run *r, const costs *c, const foreign_sheet *sheet) {
    const double STATE = 50;  // bytes for an element of Adam's masters and moments, read and written, and their copies
    // products beside a collective: galvatron/profile_hardware/hardware_configs/overlap_coefficient.json
    const double BESIDE = 1.1256;
    pricer x = {.r = r, .c = c, .sheet = sheet, .type = r->llama ? BF16 : FP16};
    sizes z = sizes_of(r);
    int data = r->data * r->context, apart = r->tensor;
    double words = (double)(r->vocabulary * r->hidden) / r->tensor, each = weights_of(r);
    double held = each * (double)r->layers / r->pipeline + words;
    *p = (foreign_price){.forward = forward_of(&x, &z)};
    p->backward = backward_of(&x, &z, p->forward);
    p->forward *= others_of(r, sheet), p->backward *= others_of(r, sheet);
    p->head = head_of(&x, &z);
    x.s = 0, move(&x, 10 * z.rows * z.hidden, 4), p->embed = x.s;
    if (r->pipeline > 1) {
        double bytes = 2 * z.tokens * z.hidden / r->tensor;
        bool far = r->tensor * data >= 8;
        p->message = costs_of_call(c, CALL_MESSAGE, far ? COSTS_RACK : COSTS_NODE, 2, bytes).s;
        p->message += ring(r, c, CALL_ALL_GATHER, r->tensor, 1, bytes * r->tensor);
    }
    if (r->shards) {
        double slower = r->llama ? BESIDE : sheet->at[CONSTANT_a100_beside];
        p->gather = ring(r, c, CALL_ALL_GATHER, data, apart, 2 * each);
        p->scatter = ring(r, c, CALL_REDUCE_SCATTER, data, apart, r->gradient * each);
        p->forward = beside(p->forward, p->gather, slower);
        p->backward = beside(p->backward, p->gather + p->scatter, slower);
        held /= data;
    } else if (data > 1) p->reduce = reduce_of(r, c, sheet, r->gradient * held);
    x.s = 0, move(&x, STATE * held, 8), p->update = x.s;
}

err_t foreign_case_open(foreign_case *x, const foreign_run *r) {
    int64_t p = r->pipeline, rest = r->micros % p, few = 3 * p + rest, more = 4 * p + rest;
    *x = (foreign_case){.run = *r};
    if (r->micros <= more) return foreign_open(&x->more, r, r->micros);
    x->left = r->micros - more;
    TRY(foreign_open(&x->few, r, few));
    return foreign_open(&x->more, r, more);
}

void foreign_case_close(foreign_case *x) { foreign_close(&x->few), foreign_close(&x->more); }

err_t foreign_step(double *s, const foreign_case *x, foreign_machines *m) {
    const foreign_run *r = &x->run;
    const double *k = m->sheet->at;
    const costs *c;
    foreign_price p;
    double few, card = r->one_by_one ? r->card * k[CONSTANT_a100_zero3] / k[CONSTANT_a100_card] : r->card;
    TRY(foreign_machine(&c, m, r->device, r->type, card));
    foreign_price_of(&p, r, c, m->sheet);
    TRY(foreign_simulate(s, &x->more, &p));
    if (!x->left) return ERR_OK;
    TRY(foreign_simulate(&few, &x->few, &p));
    *s += (*s - few) * (double)x->left / r->pipeline;
    return ERR_OK;
}
