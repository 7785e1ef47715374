// gpu/cost.c: see gpu/cost.h.
#include "gpu/cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- as text ---------------------------------------------------------------------------------------------------------

static const struct {
    unsigned bit;
    const char *name;
} option[] = {
    {MATMUL_BIAS, "bias"},
    {MATMUL_GELU, "gelu"},
    {MATMUL_DGELU, "dgelu"},
    {MATMUL_ACCUMULATE, "acc"},
    {COST_TA, "ta"},
    {COST_TB, "tb"},
    {COST_DROPOUT, "dropout"},
    {COST_RESIDUAL, "residual"},
    {COST_GRADIENT, "gradient"},
    {COST_BYTES, "bytes"},
    {COST_SUMS, "sums"},
};
enum { OPTIONS = sizeof option / sizeof *option };

const char *cost_words(unsigned options, char dst[COST_WORDS]) {
    int n = 0;
    for (int i = 0; i < OPTIONS; i++)
        if (options & option[i].bit)
            n += snprintf(dst + n, COST_WORDS - (size_t)n, "%s%s", n ? "," : "", option[i].name);
    if (!n) snprintf(dst, COST_WORDS, "-");
    return dst;
}

bool cost_options(const char *words, unsigned *options) {
    *options = 0;
    if (strcmp(words, "-") == 0) return true;
    for (const char *p = words;; p++) {
        size_t n = strcspn(p, ",");
        int i = 0;
        while (i < OPTIONS && (strlen(option[i].name) != n || strncmp(option[i].name, p, n) != 0)) i++;
        if (i == OPTIONS || *options & option[i].bit) return false;
        *options |= option[i].bit;
        p += n;
        if (!*p) return true;
    }
}

const char *cost_sizes(const int64_t size[4], char dst[COST_SIZES]) {
    int n = 0;
    for (int i = 0; i < 4 && size[i]; i++)
        n += snprintf(dst + n, COST_SIZES - (size_t)n, i ? "x%" PRId64 : "%" PRId64, size[i]);
    return dst;
}

bool cost_size(const char *text, int64_t size[4]) {
    memset(size, 0, 4 * sizeof *size);
    for (int i = 0; i < 4; i++) {
        char *end;
        if (*text < '1' || *text > '9') return false;
        size[i] = strtoll(text, &end, 10);
        if (!*end) return true;
        if (*end != 'x') return false;
        text = end + 1;
    }
    return false;
}

// --- operations ------------------------------------------------------------------------------------------------------

static double size_of(const tensor *t) { return t ? (double)tensor_bytes(t) : 0; }

// Of a gradient: read and written, unless it is fresh.
static double gradient_of(const tensor *t, bool fresh) { return size_of(t) * (fresh ? 1 : 2); }

#define ROWS(t) (t)->size[0], (t)->size[1]

// Multiply-adds of one T x T product under the diagonal, of all heads; of a window only what it shows. all: also those
// above it, of samples as long as they may be.
static double pairs(const tensor *y, int window, bool all) {
    double T = (double)y->size[1], W = window && window < T ? window : T;
    if (all) return T * (double)tensor_count(y);
    return (double)y->size[0] * (W * (W + 1) / 2 + (T - W) * W) * (double)y->size[2];
}

op_cost matmul_cost(const matmul_args *args) {
    int64_t m = matrix_rows(args->d), n = matrix_columns(args->d),
            k = args->ta ? matrix_rows(args->a) : matrix_columns(args->a);
    bool has_pre = args->epilogue & (MATMUL_GELU | MATMUL_DGELU);
    double bytes = size_of(args->a) + size_of(args->b) +
                   size_of(args->d) * (args->epilogue & MATMUL_ACCUMULATE ? 2 : 1) +
                   (has_pre ? size_of(args->pre) : 0) + (args->epilogue & MATMUL_BIAS ? size_of(args->bias) : 0) +
                   size_of(args->residual) + gradient_of(args->dbias, args->fresh);
    return (op_cost){args->a->type,
                     {m, n, k},
                     args->epilogue | (args->ta ? COST_TA : 0) | (args->tb ? COST_TB : 0) |
                         (args->residual ? COST_RESIDUAL : 0) | (args->dbias ? COST_SUMS : 0),
                     bytes,
                     2.0 * (double)m * (double)n * (double)k};
}

op_cost sum_slices_cost(const sum_slices_args *args) {
    return (op_cost){args->y->type,
                     {ROWS(args->y), args->parts->size[0]},
                     args->residual ? COST_RESIDUAL : 0,
                     size_of(args->y) * (args->add ? 2 : 1) + size_of(args->parts) + size_of(args->bias) +
                         size_of(args->residual),
                     0};
}

op_cost bias_backward_cost(const bias_backward_args *args) {
    return (op_cost){args->dy->type,
                     {matrix_rows(args->dy), matrix_columns(args->dy)},
                     0,
                     gradient_of(args->dbias, args->fresh) + size_of(args->dy),
                     0};
}

op_cost attention_forward_cost(const attention_forward_args *args) {
    return (op_cost){args->y->type,
                     {ROWS(args->y), args->y->size[2], args->heads},
                     args->drop ? COST_DROPOUT : 0,
                     size_of(args->y) + size_of(args->lse) + size_of(args->qkv) + size_of(args->lengths) +
                         size_of(args->places),
                     4 * pairs(args->y, args->window, args->all)};
}

// Keys and values are read up to the last position, by each row what it sees.
op_cost attention_past_cost(const attention_past_args *args) {
    double n = (double)args->qkv->size[0], first = (double)args->first, W = args->window, seen = first + (n + 1) / 2,
           row = (double)args->past->size[1];
    if (W > 0 && W < seen) seen = W;
    double reach = W > 0 && W + n < first + n ? W + n : first + n;
    return (op_cost){args->y->type,
                     {args->qkv->size[0], args->y->size[1], args->heads, args->first},
                     0,
                     size_of(args->y) + size_of(args->qkv) + reach * row * (double)dtype_bytes(args->y->type),
                     4 * n * seen * (double)args->y->size[1]};
}

// Five products: s, dp, dq, dk, dv.
op_cost attention_backward_cost(const attention_backward_args *args) {
    return (op_cost){args->y->type,
                     {ROWS(args->y), args->y->size[2], args->heads},
                     args->drop ? COST_DROPOUT : 0,
                     size_of(args->dqkv) + size_of(args->delta) + size_of(args->dy) + size_of(args->y) +
                         size_of(args->lse) + size_of(args->qkv) + size_of(args->lengths) + size_of(args->places),
                     10 * pairs(args->y, args->window, args->all)};
}

// Multiply-adds of one Tq x Tk product of all heads; causal: as far as a query sees, of which the first one is at
// position `first`.
static double cross_pairs(const tensor *q, const tensor *kv, bool causal, int64_t first) {
    double Tq = (double)q->size[1], Tk = (double)kv->size[1], at = (double)first, all = Tq * Tk;
    double n = Tk > at ? Tk - at : 0;  // queries at the position of a key
    if (n > Tq) n = Tq;
    if (causal) all = n * at + n * (n + 1) / 2 + (Tq - n) * Tk;
    return (double)q->size[0] * all * (double)q->size[2];
}

// Bytes of the keys and values that are read: of queries in the middle of a text, up to the last one.
static double cross_reach(const cross_attention_forward_args *args) {
    double Tk = (double)args->kv->size[1], seen = (double)(args->first + args->q->size[1]);
    return args->causal && args->first && seen < Tk ? size_of(args->kv) * seen / Tk : size_of(args->kv);
}

op_cost cross_attention_forward_cost(const cross_attention_forward_args *args) {
    return (op_cost){args->q->type,
                     {ROWS(args->q), args->kv->size[1], args->q->size[2]},
                     args->drop ? COST_DROPOUT : 0,
                     size_of(args->y) + size_of(args->lse) + size_of(args->q) + cross_reach(args) +
                         size_of(args->bias) + size_of(args->lengths),
                     4 * cross_pairs(args->q, args->kv, args->causal, args->first)};
}

op_cost cross_attention_backward_cost(const cross_attention_backward_args *args) {
    return (op_cost){args->q->type,
                     {ROWS(args->q), args->kv->size[1], args->q->size[2]},
                     args->drop ? COST_DROPOUT : 0,
                     size_of(args->dq) + size_of(args->dkv) + size_of(args->parts) + size_of(args->delta) +
                         size_of(args->dy) + size_of(args->y) + size_of(args->lse) + size_of(args->q) +
                         size_of(args->kv) + size_of(args->bias) + size_of(args->lengths),
                     10 * cross_pairs(args->q, args->kv, args->causal, 0)};
}

op_cost distance_bias_forward_cost(const distance_bias_forward_args *args) {
    return (op_cost){args->table->type, {tensor_count(args->bias)}, 0, size_of(args->bias) + size_of(args->table), 0};
}

op_cost distance_bias_backward_cost(const distance_bias_backward_args *args) {
    return (op_cost){
        FP32, {tensor_count(args->parts)}, 0, gradient_of(args->dtable, args->fresh) + size_of(args->parts), 0};
}

op_cost layer_norm_forward_cost(const layer_norm_forward_args *args) {
    double bytes = size_of(args->y) + size_of(args->mean) + size_of(args->rstd) + size_of(args->sum) +
                   size_of(args->x) + size_of(args->residual) + size_of(args->w) + size_of(args->b);
    return (op_cost){args->x->type, {ROWS(args->x)}, args->residual ? COST_RESIDUAL : 0, bytes, 0};
}

op_cost layer_norm_backward_cost(const layer_norm_backward_args *args) {
    double sums = gradient_of(args->dw, args->fresh) + gradient_of(args->db, args->fresh) +
                  gradient_of(args->dx_sums, args->fresh) + gradient_of(args->dresidual_sums, args->fresh);
    double bytes = size_of(args->dx) + sums + size_of(args->dy) + size_of(args->dresidual) + size_of(args->x) +
                   size_of(args->w) + size_of(args->mean) + size_of(args->rstd);
    bool columns = args->dx_sums || args->dresidual_sums;
    return (op_cost){
        args->x->type, {ROWS(args->x)}, (args->dresidual ? COST_RESIDUAL : 0) | (columns ? COST_SUMS : 0), bytes, 0};
}

op_cost rms_norm_forward_cost(const rms_norm_forward_args *args) {
    return (op_cost){args->x->type,
                     {ROWS(args->x)},
                     0,
                     size_of(args->y) + size_of(args->rstd) + size_of(args->x) + size_of(args->w),
                     0};
}

op_cost rms_norm_backward_cost(const rms_norm_backward_args *args) {
    double bytes = size_of(args->dx) + gradient_of(args->dw, args->fresh) + size_of(args->dy) +
                   size_of(args->dresidual) + size_of(args->x) + size_of(args->w) + size_of(args->rstd);
    return (op_cost){args->x->type, {ROWS(args->x)}, args->dresidual ? COST_RESIDUAL : 0, bytes, 0};
}

// Of the heads that are normed.
op_cost head_norm_forward_cost(const head_norm_forward_args *args) {
    double bytes = 3 * size_of(args->kept) + size_of(args->rstd) + size_of(args->w);
    return (op_cost){args->x->type, {args->kept->size[0], args->kept->size[1]}, 0, bytes, 0};
}

op_cost head_norm_backward_cost(const head_norm_backward_args *args) {
    double bytes =
        3 * size_of(args->kept) + gradient_of(args->dw, args->fresh) + size_of(args->rstd) + size_of(args->w);
    return (op_cost){args->dx->type, {args->kept->size[0], args->kept->size[1]}, 0, bytes, 0};
}

// Of the heads that are turned, and of the table's rows that are read.
op_cost rotary_cost(const rotary_args *args) {
    int64_t B = args->x->size[0], T = args->x->size[1], D = args->table->size[1];
    double bytes = 2 * (double)(B * T * args->heads * D) * (double)dtype_bytes(args->x->type) +
                   (double)(T * D) * sizeof(float) + size_of(args->places);
    return (op_cost){args->x->type, {B, T, args->x->size[2], args->heads}, 0, bytes, 0};
}

static op_cost gated_forward_cost(const gated_forward_args *args) {
    return (op_cost){args->y->type, {ROWS(args->y)}, 0, size_of(args->y) + size_of(args->x), 0};
}

static op_cost gated_backward_cost(const gated_backward_args *args) {
    return (op_cost){args->dy->type, {ROWS(args->dy)}, 0, size_of(args->dx) + size_of(args->dy) + size_of(args->x), 0};
}

op_cost swiglu_forward_cost(const swiglu_forward_args *args) { return gated_forward_cost(args); }
op_cost swiglu_backward_cost(const swiglu_backward_args *args) { return gated_backward_cost(args); }
op_cost geglu_forward_cost(const geglu_forward_args *args) { return gated_forward_cost(args); }
op_cost geglu_backward_cost(const geglu_backward_args *args) { return gated_backward_cost(args); }

op_cost gelu_forward_cost(const gelu_forward_args *args) {
    return (op_cost){args->x->type, {tensor_count(args->x)}, 0, size_of(args->y) + size_of(args->x), 0};
}

op_cost gelu_backward_cost(const gelu_backward_args *args) {
    return (op_cost){args->x->type,
                     {tensor_count(args->x)},
                     args->dbias ? COST_SUMS : 0,
                     size_of(args->dx) + size_of(args->dy) + size_of(args->x) + gradient_of(args->dbias, args->fresh),
                     0};
}

op_cost relu_forward_cost(const relu_forward_args *args) {
    return (op_cost){args->x->type, {tensor_count(args->x)}, 0, size_of(args->y) + size_of(args->x), 0};
}

op_cost relu_backward_cost(const relu_backward_args *args) {
    return (op_cost){
        args->y->type, {tensor_count(args->y)}, 0, size_of(args->dx) + size_of(args->dy) + size_of(args->y), 0};
}

op_cost tanh_forward_cost(const tanh_forward_args *args) {
    return (op_cost){args->x->type, {tensor_count(args->x)}, 0, size_of(args->y) + size_of(args->x), 0};
}

op_cost tanh_backward_cost(const tanh_backward_args *args) {
    return (op_cost){
        args->y->type, {tensor_count(args->y)}, 0, size_of(args->dx) + size_of(args->dy) + size_of(args->y), 0};
}

op_cost gather_rows_cost(const gather_rows_args *args) {
    return (op_cost){args->y->type, {ROWS(args->y), args->y->size[2]}, 0, 2 * size_of(args->y) + size_of(args->at), 0};
}

op_cost scatter_rows_cost(const scatter_rows_args *args) {
    return (op_cost){args->dx->type,
                     {ROWS(args->dx), args->dx->size[2]},
                     0,
                     size_of(args->dx) + size_of(args->dy) + size_of(args->at),
                     0};
}

static op_cost interact_cost(const tensor *rows, double bytes, double products) {
    double B = (double)rows->size[0], F = (double)rows->size[1], C = (double)rows->size[2];
    return (op_cost){
        rows->type, {rows->size[0], rows->size[1], rows->size[2]}, 0, bytes, 2 * products * B * C * F * (F + 1) / 2};
}

op_cost interact_forward_cost(const interact_forward_args *args) {
    return interact_cost(args->rows, size_of(args->y) + size_of(args->x) + size_of(args->rows), 1);
}

op_cost interact_backward_cost(const interact_backward_args *args) {
    double in = size_of(args->dy) + size_of(args->x) + size_of(args->rows);
    return interact_cost(args->rows, in + size_of(args->dx) + size_of(args->drows), 2);
}

// A row of each table is read for each that is written.
op_cost embedding_forward_cost(const embedding_forward_args *args) {
    return (op_cost){args->x->type,
                     {ROWS(args->x), args->x->size[2], args->wte->size[0]},
                     0,
                     (args->wpe ? 3 : 2) * size_of(args->x) + size_of(args->places),
                     0};
}

// dx is read for each table; updated are as many rows as the tokens can touch.
op_cost embedding_backward_cost(const embedding_backward_args *args) {
    int64_t N = args->dx->size[0] * args->dx->size[1], V = args->dwte->size[0];
    double rows = (double)((N < V ? N : V) + (args->dwpe ? args->dx->size[1] : 0)),
           read = (args->dwpe ? 2 : 1) * size_of(args->dx) + size_of(args->places);
    return (op_cost){
        args->dx->type, {ROWS(args->dx), args->dx->size[2], V}, 0, read + 8.0 * (double)args->dx->size[2] * rows, 0};
}

op_cost cross_entropy_cost(const cross_entropy_args *args) {
    return (op_cost){args->logits->type,
                     {ROWS(args->logits)},
                     args->scale ? COST_GRADIENT : 0,
                     size_of(args->losses) + size_of(args->targets) + size_of(args->logits) * (args->scale ? 2 : 1) +
                         (double)sizeof *args->state,
                     0};
}

// A stage reads all logits; the last two may write them.
op_cost cross_entropy_part_cost(const cross_entropy_part_args *args) {
    double passes = args->scale && args->stage != LOGITS_TOP ? 2 : args->stage == LOGITS_LOSS ? 0 : 1;
    return (op_cost){args->logits->type,
                     {matrix_rows(args->logits), matrix_columns(args->logits)},
                     0,
                     passes * size_of(args->logits) + size_of(args->targets) + 3 * size_of(args->most),
                     0};
}

op_cost top_k_cost(const top_k_args *args) {
    return (op_cost){args->logits->type,
                     {ROWS(args->logits)},
                     0,
                     size_of(args->hits) + size_of(args->targets) + size_of(args->logits),
                     0};
}

op_cost first_equal_cost(const first_equal_args *args) {
    return (op_cost){args->logits->type,
                     {matrix_rows(args->logits), matrix_columns(args->logits)},
                     0,
                     size_of(args->at) + size_of(args->values) + size_of(args->logits),
                     0};
}

op_cost squared_error_cost(const squared_error_args *args) {
    double said = args->said ? size_of(args->said) + size_of(args->wanted) : 0;
    return (op_cost){args->outputs->type,
                     {ROWS(args->outputs)},
                     0,
                     said + size_of(args->losses) + size_of(args->targets) +
                         (args->scale ? 2 : 1) * size_of(args->outputs),
                     0};
}

op_cost loss_means_cost(const loss_means_args *args) {
    return (op_cost){args->losses->type, {ROWS(args->losses)}, 0, size_of(args->means) + size_of(args->losses), 0};
}

op_cost count_targets_cost(const count_targets_args *args) {
    return (op_cost){args->targets->type, {ROWS(args->targets)}, 0, size_of(args->counts) + size_of(args->targets), 0};
}

op_cost dropout_cost(const dropout_args *args) {
    return (op_cost){args->x->type, {tensor_count(args->x)}, 0, size_of(args->y) + size_of(args->x), 0};
}

op_cost add_cost(const add_args *args) {
    return (op_cost){
        args->y->type, {tensor_count(args->y)}, 0, size_of(args->y) + size_of(args->a) + size_of(args->b), 0};
}

// What it adds to is read, too.
op_cost scale_columns_cost(const scale_columns_args *args) {
    int64_t count = args->x->size[0] * args->width;
    return (op_cost){args->x->type, {count}, 0, (args->add ? 3 : 2) * count * (int64_t)dtype_bytes(args->x->type), 0};
}

op_cost cast_cost(const cast_args *args) {
    return (op_cost){args->x->type, {tensor_count(args->x)}, 0, size_of(args->y) + size_of(args->x), 0};
}

op_cost random_fill_cost(const random_fill_args *args) {
    return (op_cost){args->y->type, {tensor_count(args->y)}, 0, size_of(args->y), 0};
}

op_cost cast_stochastic_cost(const cast_stochastic_args *args) {
    return (op_cost){args->x->type,
                     {tensor_count(args->x)},
                     0,
                     size_of(args->y) + size_of(args->x) + (double)sizeof *args->state,
                     0};
}

op_cost sum_squares_cost(const sum_squares_args *args) {
    return (op_cost){args->g->type, {tensor_count(args->g)}, 0, size_of(args->sums) + size_of(args->g), 0};
}

op_cost step_decide_cost(const step_decide_args *args) {
    return (op_cost){args->sums->type,
                     {tensor_count(args->sums)},
                     0,
                     size_of(args->sums) + size_of(args->counts) + 2.0 * (double)sizeof *args->state +
                         2.0 * args->scalar_count * (double)sizeof *args->scalars +
                         args->ranks * (double)sizeof *args->ended,
                     0};
}

op_cost adamw_cost(const adamw_args *args) {
    double bytes = size_of(args->w) + 2 * (size_of(args->master) + size_of(args->m) + size_of(args->v)) +
                   size_of(args->grad) + (double)sizeof *args->state + 2 * (double)sizeof *args->power;
    return (op_cost){args->w ? args->w->type : FP32, {tensor_count(args->master)}, 0, bytes, 0};
}

op_cost sgd_cost(const sgd_args *args) {
    double bytes = size_of(args->w) + 2 * (size_of(args->master) + size_of(args->buf)) + size_of(args->grad) +
                   (double)sizeof *args->state + (args->ratio ? (double)sizeof *args->ratio : 0);
    return (op_cost){args->w ? args->w->type : FP32, {tensor_count(args->master)}, 0, bytes, 0};
}

op_cost muon_direction_cost(const muon_direction_args *args) {
    return (op_cost){FP32,
                     {tensor_count(args->m)},
                     0,
                     size_of(args->d) + 2 * size_of(args->m) + size_of(args->grad) + (double)sizeof *args->state,
                     0};
}

op_cost normalize_cost(const normalize_args *args) {
    return (op_cost){FP32, {tensor_count(args->x)}, 0, 2 * size_of(args->x) + size_of(args->sums), 0};
}

op_cost lars_ratio_cost(const lars_ratio_args *args) {
    return (op_cost){args->weights->type,
                     {tensor_count(args->ratio), tensor_count(args->weights)},
                     0,
                     size_of(args->ratio) + size_of(args->at) + size_of(args->grads) + size_of(args->weights) +
                         (double)sizeof *args->state,
                     0};
}

// A chunk is read twice, the second time from a cache.
op_cost encode_cost(const encode_args *args) {
    return (op_cost){FP32,
                     {tensor_count(args->x), args->codec},
                     0,
                     size_of(args->x) + 2 * size_of(args->residual) + size_of(args->wire) +
                         (args->state ? (double)sizeof *args->state : 0),
                     0};
}

op_cost widen_cost(const widen_args *args) {
    return (op_cost){
        args->y->type, {tensor_count(args->y)}, 0, size_of(args->y) + size_of(args->codes) + size_of(args->scales), 0};
}

op_cost decode_cost(const decode_args *args) {
    return (op_cost){
        FP32, {tensor_count(args->y), args->codec}, 0, (args->add ? 2 : 1) * size_of(args->y) + size_of(args->wire), 0};
}

// A chunk is read five times, but for the first time from a cache.
op_cost encode_sparse_cost(const encode_sparse_args *args) {
    return (op_cost){FP32,
                     {tensor_count(args->x), args->kept},
                     0,
                     size_of(args->x) + 2 * size_of(args->velocity) + 2 * size_of(args->residual) +
                         size_of(args->wire) +
                         (double)sizeof(step_state) * ((args->state != NULL) + (args->clip != NULL)),
                     0};
}

// Only what is added to is read and written.
op_cost decode_sparse_cost(const decode_sparse_args *args) {
    int64_t n = tensor_count(args->y);
    return (op_cost){FP32, {n, args->kept}, 0, 8.0 * (double)sparse_kept(n, args->kept) + size_of(args->wire), 0};
}

// One product of rows of pixels and filters; each tensor once.
static op_cost conv_cost(const tensor *x, const tensor *y, const tensor *w, double bytes, unsigned options) {
    double per_output = (double)(tensor_count(w) / w->size[0]);
    return (op_cost){x->type,
                     {x->size[0], x->size[1], x->size[3], w->size[0]},
                     options,
                     bytes,
                     2.0 * (double)tensor_count(y) * per_output};
}

op_cost conv_forward_cost(const conv_forward_args *args) {
    return conv_cost(args->x, args->y, args->w,
                     size_of(args->x) + size_of(args->w) + size_of(args->y) + size_of(args->residual),
                     args->residual ? COST_RESIDUAL : 0);
}

op_cost conv_inputs_cost(const conv_inputs_args *args) {
    return conv_cost(args->dx, args->dy, args->w,
                     size_of(args->dx) + size_of(args->w) + size_of(args->dy) + size_of(args->residual),
                     args->residual ? COST_RESIDUAL : 0);
}

op_cost conv_weights_cost(const conv_weights_args *args) {
    return conv_cost(args->x, args->dy, args->dw,
                     size_of(args->x) + size_of(args->dy) + gradient_of(args->dw, args->fresh), 0);
}

op_cost max_pool_forward_cost(const max_pool_forward_args *args) {
    return (op_cost){args->x->type,
                     {args->x->size[0], args->x->size[1], args->x->size[2], args->x->size[3]},
                     0,
                     size_of(args->x) + size_of(args->y) + size_of(args->index),
                     0};
}

op_cost max_pool_backward_cost(const max_pool_backward_args *args) {
    return (op_cost){args->dx->type,
                     {args->dx->size[0], args->dx->size[1], args->dx->size[2], args->dx->size[3]},
                     0,
                     size_of(args->dx) + size_of(args->dy) + size_of(args->index),
                     0};
}

op_cost mean_pool_forward_cost(const mean_pool_forward_args *args) {
    return (op_cost){args->x->type,
                     {args->x->size[0], args->x->size[1], args->x->size[2], args->x->size[3]},
                     0,
                     size_of(args->x) + size_of(args->y),
                     0};
}

op_cost mean_pool_backward_cost(const mean_pool_backward_args *args) {
    return (op_cost){args->dx->type,
                     {args->dx->size[0], args->dx->size[1], args->dx->size[2], args->dx->size[3]},
                     0,
                     size_of(args->dx) + size_of(args->dy),
                     0};
}

static op_cost rows_cost(const tensor *x, int64_t channels, double bytes, unsigned options) {
    return (op_cost){x->type, {tensor_count(x) / channels, channels}, options, bytes, 0};
}

op_cost batch_norm_sums_cost(const batch_norm_sums_args *args) {
    return rows_cost(args->x, args->sums->size[1], size_of(args->x) + size_of(args->sums) + size_of(args->center), 0);
}

op_cost batch_norm_moments_cost(const batch_norm_moments_args *args) {
    return (op_cost){FP32,
                     {tensor_count(args->mean)},
                     0,
                     size_of(args->sums) + size_of(args->center) + size_of(args->running) + size_of(args->mean) +
                         size_of(args->rstd) + size_of(args->variance),
                     0};
}

op_cost batch_norm_apply_cost(const batch_norm_apply_args *args) {
    return rows_cost(args->x, tensor_count(args->mean),
                     size_of(args->x) + size_of(args->y) + size_of(args->residual) + 4 * size_of(args->mean),
                     args->residual ? COST_RESIDUAL : 0);
}

op_cost batch_norm_back_sums_cost(const batch_norm_back_sums_args *args) {
    return rows_cost(args->x, args->sums->size[1],
                     size_of(args->x) + size_of(args->dy) + size_of(args->y) + size_of(args->sums) +
                         gradient_of(args->dgain, args->fresh) + gradient_of(args->dbias, args->fresh) +
                         2 * size_of(args->mean),
                     0);
}

op_cost batch_norm_back_cost(const batch_norm_back_args *args) {
    return rows_cost(args->x, tensor_count(args->mean),
                     size_of(args->dx) + size_of(args->dresidual) + size_of(args->dy) + size_of(args->x) +
                         size_of(args->y) + size_of(args->sums) + 3 * size_of(args->mean),
                     args->dresidual ? COST_RESIDUAL : 0);
}

op_cost pixels_cost(const pixels_args *args) {
    return rows_cost(args->y, args->y->size[args->y->dims - 1],
                     size_of(args->y) + size_of(args->x) + size_of(args->mean) + size_of(args->inv), 0);
}

op_cost average_cost(const average_args *args) {
    double bytes = 2 * size_of(args->x) + size_of(args->sum) + (double)sizeof *args->state;
    return (op_cost){FP32, {tensor_count(args->x)}, 0, bytes, 0};
}
