// test/support/calls.h: which operations a model calls, on which values. Nothing is computed: a table of operations
// writes each call down, and a shadow of memory knows what wrote each two bytes last. So an operand is the result that
// lies in it, not the place where it lies: memory may be laid out in another way, and a value that is overwritten too
// early shows as another operand.
//
//   call  = operation, flags, shapes, and of each operand that is read the results in it
//   list  = the calls of one part of one block: their number and the sum of their hashes, so that calls which do not
//         depend on each other may change places
//
// Programs that include it are linked with -Wl,--wrap=stream_zero.
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNIT = 2, OPERANDS_MOST = 14, LABELS_MOST = 4096 };

typedef struct call_operand {
    char how;  // r reads, w overwrites, u reads and writes
    const char *field;
    const tensor *t;
    int64_t first, count, row;  // elements first .. first+count-1 of each `row`; row 0: all
} call_operand;

typedef struct call_list {
    int calls;
    uint64_t sum;
} call_list;

typedef struct recorder {
    uintptr_t base;
    size_t units;
    uint64_t *writer;  // [units] hash of the result that lies there; 0: garbage
    uint32_t *at;      // [units] where in this result
    const char *op;
    uint64_t hash;  // of the call under way
    char flags[160];
    call_operand operand[OPERANDS_MOST];
    int operands;
    call_list list;
    int garbage;   // reads of what nothing wrote
    int meetings;  // calls in which places meet
    // results that lie partly in what the call reads: threads of a device would read what others have written
    int overlaps;
    FILE *say;  // calls as text; NULL: none
    struct {
        uint64_t hash;
        char text[48];
    } label[LABELS_MOST];
    int labels;
} recorder;

static recorder rec;

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text) {
    for (; *text; text++) h = mix(h, (unsigned char)*text);
    return mix(h, 256);
}

// --- memory ----------------------------------------------------------------------------------------------------------

static void rec_open(size_t bytes, uintptr_t base) {
    FILE *say = rec.say;
    rec = (recorder){.base = base, .units = bytes / UNIT, .say = say};
    rec.writer = calloc(rec.units, sizeof *rec.writer);
    rec.at = calloc(rec.units, sizeof *rec.at);
    assert_true(rec.writer && rec.at);
}

static void rec_close(void) {
    free(rec.writer), free(rec.at);
    rec.writer = NULL, rec.at = NULL;
}

static size_t unit_of(const void *data, size_t bytes) {
    size_t first = ((uintptr_t)data - rec.base) / UNIT;
    assert_true((uintptr_t)data >= rec.base && first + bytes / UNIT <= rec.units);
    return first;
}

static void put_units(const void *data, size_t bytes, uint64_t writer, size_t at) {
    size_t first = unit_of(data, bytes);
    for (size_t i = 0; i < bytes / UNIT; i++) rec.writer[first + i] = writer, rec.at[first + i] = (uint32_t)(at + i);
}

static const char *label_of(uint64_t writer) {
    for (int i = rec.labels - 1; i >= 0; i--)
        if (rec.label[i].hash == writer) return rec.label[i].text;
    return writer ? "?" : "GARBAGE";
}

static void set_label(uint64_t writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set_label(uint64_t writer, const char *format, ...) {
    va_list ap;
    if (!rec.say || rec.labels == LABELS_MOST) return;
    va_start(ap, format);
    vsnprintf(rec.label[rec.labels].text, sizeof rec.label->text, format, ap);
    va_end(ap);
    rec.label[rec.labels++].hash = writer;
}

// Gives what lies there before the first call a name.
static void rec_name(const tensor *t, const char *name, int index) {
    uint64_t writer = mix(mix_text(1, name), (uint64_t)index);
    put_units(t->data, tensor_bytes(t), writer, 0);
    set_label(writer, "%s%d", name, index);
}

// The results in these bytes, in the order in which they lie there.
static uint64_t read_units(uint64_t h, const void *data, size_t bytes) {
    size_t first = unit_of(data, bytes), n = bytes / UNIT, begin = 0;
    for (size_t i = 1; i <= n; i++) {
        const uint64_t *w = rec.writer + first;
        const uint32_t *at = rec.at + first;
        if (i < n && w[i] == w[i - 1] && (!w[i] || at[i] == at[i - 1] + 1)) continue;
        if (!w[begin]) rec.garbage++;
        if (rec.say) fprintf(rec.say, " %s%s", begin ? "+" : "<", label_of(w[begin]));
        if (rec.say && at[begin]) fprintf(rec.say, "[%u]", at[begin]);
        h = mix(mix(mix(h, w[begin]), w[begin] ? at[begin] : 0), i - begin);
        begin = i;
    }
    return h;
}

// --- a call ----------------------------------------------------------------------------------------------------------

static void begin_call(const char *op) {
    rec.op = op, rec.operands = 0, rec.flags[0] = 0;
    rec.hash = mix_text(7, op);
}

static void flag(const char *name, int64_t value) {
    size_t n = strlen(rec.flags);
    rec.hash = mix(mix_text(rec.hash, name), (uint64_t)value);
    if (value) snprintf(rec.flags + n, sizeof rec.flags - n, " %s=%lld", name, (long long)value);
}

// An argument that came later is in the hash where it does something: where it does not, calls are what they were.
static void unless(float neutral, const char *name, float value) {
    size_t n = strlen(rec.flags);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value == neutral) return;
    rec.hash = mix(mix_text(rec.hash, name), bits);
    snprintf(rec.flags + n, sizeof rec.flags - n, " %s=%g", name, (double)value);
}

static void columns(char how, const char *field, const tensor *t, int64_t first, int64_t count, int64_t row) {
    if (!t) return;
    assert_true(rec.operands < OPERANDS_MOST);
    rec.operand[rec.operands++] = (call_operand){how, field, t, first, count, row};
}
static void operand(char how, const char *field, const tensor *t) { columns(how, field, t, 0, 0, 0); }

static void each_part(const call_operand *x, uint64_t *h, uint64_t writer) {
    size_t size = dtype_bytes(x->t->type), bytes = tensor_bytes(x->t), row = x->row ? (size_t)x->row * size : bytes;
    size_t first = (size_t)x->first * size, count = x->row ? (size_t)x->count * size : bytes;
    for (size_t at = 0; at < bytes; at += row) {
        const char *part = (const char *)x->t->data + at + first;
        if (h) *h = read_units(*h, part, count);
        else put_units(part, count, writer, (at + first) / UNIT);
    }
}

static void read_operand(const call_operand *x) {
    if (rec.say) fprintf(rec.say, "  %c:%s(", x->how, x->field);
    rec.hash = mix(mix_text(rec.hash, x->field), (uint64_t)x->how);
    rec.hash = mix(mix(rec.hash, (uint64_t)x->t->type), (uint64_t)x->t->dims);
    for (int i = 0; i < x->t->dims; i++) {
        rec.hash = mix(rec.hash, (uint64_t)x->t->size[i]);
        if (rec.say) fprintf(rec.say, "%s%lld", i ? "," : "", (long long)x->t->size[i]);
    }
    if (rec.say) fprintf(rec.say, ")");
    if (x->how != 'w') each_part(x, &rec.hash, 0);
}

static bool meet_partly(const tensor *a, const tensor *b) {
    const char *x = a->data, *y = b->data;
    return x != y && x < y + tensor_bytes(b) && y < x + tensor_bytes(a);
}

static void look_for_overlaps(void) {
    for (int i = 0; i < rec.operands; i++)
        for (int k = 0; rec.operand[i].how == 'w' && k < rec.operands; k++)
            if (k != i && meet_partly(rec.operand[i].t, rec.operand[k].t)) rec.overlaps++;
}

// All operands are read before any is written.
static err_t end_call(void) {
    if (strcmp(rec.op, "gather") != 0) look_for_overlaps();  // which fills in the rows of others
    if (rec.say) fprintf(rec.say, "%d %s%s", rec.list.calls, rec.op, rec.flags);
    for (int i = 0; i < rec.operands; i++) read_operand(&rec.operand[i]);
    for (int i = 0; i < rec.operands; i++) {
        uint64_t result = mix_text(rec.hash, rec.operand[i].field);
        if (rec.operand[i].how == 'r') continue;
        each_part(&rec.operand[i], NULL, result);
        set_label(result, "%s#%d.%s", rec.op, rec.list.calls, rec.operand[i].field);
    }
    if (rec.say) fprintf(rec.say, "\n");
    rec.list.calls++;
    rec.list.sum += mix(rec.hash, 11);
    return ERR_OK;
}

// A copy: what is read from y later counts as read from what made x, and the copy itself is no call of the list.
static err_t copy_call(const tensor *y, const tensor *x) {
    size_t n = tensor_bytes(x) / UNIT, to = unit_of(y->data, tensor_bytes(y)), from = unit_of(x->data, tensor_bytes(x));
    if (meet_partly(y, x)) rec.overlaps++;
    memmove(rec.writer + to, rec.writer + from, n * sizeof *rec.writer);
    memmove(rec.at + to, rec.at + from, n * sizeof *rec.at);
    return ERR_OK;
}

// --- the operations --------------------------------------------------------------------------------------------------

#define OP(op) \
    static err_t rec_##op(const op##_args *a, stream *s) { \
        (void)s; \
        begin_call(#op);
#define END \
    return end_call(); \
    }
#define W(f) operand('w', #f, a->f);
#define R(f) operand('r', #f, a->f);
#define U(f) operand('u', #f, a->f);
#define GRAD(f) operand(a->fresh ? 'w' : 'u', #f, a->f);
#define FLAG(f) flag(#f, (int64_t)a->f);
#define UNLESS(neutral, f) unless(neutral, #f, a->f);
#define DROP flag("site", a->drop ? a->drop->site : 0);
#define HEADS FLAG(heads) FLAG(kv_heads) FLAG(window) UNLESS(0, all) FLAG(samples) FLAG(first_head) DROP

// clang-format off
OP(matmul) FLAG(epilogue) UNLESS(0, erf) FLAG(ta) FLAG(tb) FLAG(rows) flag("fresh", a->dbias && a->fresh);
    R(a) R(b) R(bias) R(residual) operand(a->epilogue & MATMUL_DGELU ? 'r' : 'w', "pre", a->pre);
    operand(a->epilogue & MATMUL_ACCUMULATE ? 'u' : 'w', "d", a->d); GRAD(dbias) END
OP(bias_backward) FLAG(fresh) R(dy) GRAD(dbias) END
OP(attention_forward) HEADS R(lengths) R(places) R(qkv) W(y) W(lse) END
OP(attention_backward) HEADS R(lengths) R(places) R(dy) R(y) R(lse) R(qkv) W(dqkv) W(delta) END
OP(cross_attention_forward) FLAG(heads) FLAG(causal) UNLESS(0, first) FLAG(samples) FLAG(first_head) DROP
    tensor seen = *a->kv; int64_t most = a->first + a->q->size[1];
    if (a->causal && seen.size[0] == 1 && most < seen.size[1]) seen.size[1] = most; /* a growing text has no more */
    R(lengths) R(bias) R(q) operand('r', "kv", &seen); W(y) W(lse) END
OP(cross_attention_backward) FLAG(heads) FLAG(causal) FLAG(samples) FLAG(first_head) DROP R(lengths) R(bias) R(dy) R(y) R(lse) R(q) R(kv) W(dq) W(dkv)
    W(parts) W(delta) END
OP(distance_bias_forward) FLAG(queries) FLAG(both) FLAG(most) R(table) W(bias) END
OP(distance_bias_backward) FLAG(queries) FLAG(both) FLAG(most) FLAG(fresh) R(parts) W(sums) GRAD(dtable) END
OP(attention_past) FLAG(heads) FLAG(kv_heads) FLAG(window) FLAG(first)
    int64_t width = a->past->size[1]; tensor before = view2(a->past, a->first, width), kept = tensor_rows(a->past, a->first, a->y->size[0]);
    R(qkv) if (a->first) operand('r', "past", &before); operand('w', "kept", &kept); W(y) END
OP(layer_norm_forward) R(x) R(residual) R(w) R(b) W(y) W(mean) W(rstd) W(sum) END
OP(layer_norm_backward) FLAG(fresh) R(dy) R(dresidual) R(x) R(w) R(mean) R(rstd) W(dx) GRAD(dw) GRAD(db) GRAD(dx_sums) GRAD(dresidual_sums) END
OP(rms_norm_forward) UNLESS(0, shift) R(x) R(w) W(y) W(rstd) END
OP(rms_norm_backward) FLAG(fresh) UNLESS(0, shift) R(dy) R(dresidual) R(x) R(w) R(rstd) W(dx) GRAD(dw) END
OP(head_norm_forward) FLAG(first) UNLESS(0, shift) R(w) int64_t D = a->w->size[0], n = a->kept->size[a->kept->dims - 1];
    columns('u', "x", a->x, a->first * D, n, a->x->size[a->x->dims - 1]); W(kept) W(rstd) END
OP(head_norm_backward) FLAG(first) FLAG(fresh) UNLESS(0, shift) R(kept) R(rstd) R(w) int64_t D = a->w->size[0], n = a->kept->size[a->kept->dims - 1];
    columns('u', "dx", a->dx, a->first * D, n, a->dx->size[a->dx->dims - 1]); GRAD(dw) END
OP(rotary) FLAG(heads) FLAG(back) R(table) R(places) columns('u', "x", a->x, 0, a->heads * a->table->size[1], a->x->size[a->x->dims - 1]); END
OP(swiglu_forward) R(x) W(y) END
OP(swiglu_backward) R(dy) R(x) W(dx) END
OP(geglu_forward) R(x) W(y) END
OP(geglu_backward) R(dy) R(x) W(dx) END
OP(gelu_forward) UNLESS(0, erf) R(x) W(y) END
OP(gelu_backward) UNLESS(0, erf) FLAG(fresh) R(dy) R(x) W(dx) GRAD(dbias) END
OP(tanh_forward) R(x) W(y) END
OP(widen) R(codes) R(scales) W(y) END
OP(tanh_backward) R(dy) R(y) W(dx) END
OP(gather_rows) R(x) R(at) W(y) END
OP(scatter_rows) R(dy) R(at) W(dx) END
OP(interact_forward) R(x) R(rows) W(y) END
OP(interact_backward) R(dy) R(x) R(rows) W(dx) W(drows) END
OP(relu_forward) R(x) W(y) END
OP(relu_backward) R(dy) R(y) W(dx) END
OP(embedding_forward) UNLESS(1, factor) FLAG(part) FLAG(first) R(tokens) R(places) R(wte) R(wpe) W(x) END
OP(embedding_backward) UNLESS(1, factor) FLAG(part) FLAG(first) FLAG(fresh_wte) FLAG(fresh_wpe) R(dx) R(tokens) R(places) W(scratch)
    operand(a->fresh_wte ? 'w' : 'u', "dwte", a->dwte); operand(a->fresh_wpe ? 'w' : 'u', "dwpe", a->dwpe); END
OP(cross_entropy) FLAG(classes) UNLESS(0, smoothing) flag("scale", a->scale != NULL); R(targets) operand(a->scale ? 'u' : 'r', "logits", a->logits); W(losses) END
OP(cross_entropy_part) FLAG(stage) FLAG(classes) FLAG(first) flag("scale", a->scale != NULL); R(targets)
    if (a->stage == LOGITS_TOP) { R(logits) W(most) W(logit) }
    if (a->stage == LOGITS_SUM) { R(most) U(logits) W(sum) }
    if (a->stage == LOGITS_LOSS) { R(most) R(logit) R(sum) U(logits) W(losses) } END
OP(top_k) rec.hash = mix_text(7, "top_1"); /* its name when the table was made */ FLAG(classes) UNLESS(0, k) R(logits) R(targets) W(hits) END
OP(first_equal) FLAG(classes) FLAG(first) R(logits) R(values) W(at) END
OP(squared_error) flag("scale", a->scale != NULL); R(targets) operand(a->scale ? 'u' : 'r', "outputs", a->outputs); W(losses) W(said) W(wanted) END
OP(loss_means) R(losses) W(means) END
OP(count_targets) R(targets) W(counts) END
OP(dropout) DROP FLAG(sample) FLAG(first) R(x) W(y) END
OP(add) R(a) R(b) W(y) END
OP(scale_columns) FLAG(add) FLAG(x_first) R(x) columns(a->add ? 'u' : 'w', "y", a->y, a->y_first, a->width, a->y->size[1]); END
OP(sum_slices) FLAG(add) R(parts) R(bias) R(residual) operand(a->add ? 'u' : 'w', "y", a->y); END
OP(cast) if (a->x->type == a->y->type) return copy_call(a->y, a->x); R(x) W(y) END
OP(conv_forward) FLAG(stride) FLAG(pad) FLAG(groups) R(x) R(w) R(residual) W(y) END
OP(conv_inputs) FLAG(stride) FLAG(pad) FLAG(groups) R(dy) R(w) R(residual) W(dx) END
OP(conv_weights) FLAG(stride) FLAG(pad) FLAG(groups) FLAG(fresh) R(dy) R(x) GRAD(dw) END
OP(max_pool_forward) FLAG(taps) FLAG(stride) FLAG(pad) R(x) W(y) W(index) END
OP(max_pool_backward) FLAG(taps) FLAG(stride) FLAG(pad) R(dy) R(index) W(dx) END
OP(mean_pool_forward) R(x) W(y) END
OP(mean_pool_backward) R(dy) W(dx) END
OP(batch_norm_sums) R(x) R(center) W(sums) END
OP(batch_norm_moments) FLAG(rows) R(sums) R(center) R(running) W(mean) W(rstd) W(variance) END
OP(batch_norm_apply) FLAG(relu) R(x) R(mean) R(rstd) R(gain) R(bias) R(residual) W(y) END
OP(batch_norm_back_sums) FLAG(fresh) R(dy) R(x) R(y) R(mean) R(rstd) W(sums) GRAD(dgain) GRAD(dbias) END
OP(batch_norm_back) FLAG(rows) R(dy) R(x) R(y) R(mean) R(rstd) R(gain) R(sums) W(dx) W(dresidual) END
OP(pixels) R(x) R(mean) R(inv) W(y) END
// Nothing of these is a model's.
OP(random_fill) W(y) END
OP(cast_stochastic) R(x) W(y) END
OP(sum_squares) R(g) W(sums) END
OP(step_decide) (void)a; END
OP(adamw) (void)a; END
OP(sgd) (void)a; END
OP(average) (void)a; END
OP(lars_ratio) (void)a; END
OP(muon_direction) (void)a; END
OP(normalize) (void)a; END
OP(encode) (void)a; END
OP(decode) (void)a; END
OP(encode_sparse) (void)a; END
OP(decode_sparse) (void)a; END
// clang-format on

#define REC_ENTRY(op) .op = rec_##op,
    static const ops rec_ops = {OPS(REC_ENTRY)};

err_t __wrap_stream_zero(stream *s, void *dst, size_t bytes);
err_t __wrap_stream_zero(stream *s, void *dst, size_t bytes) {
    (void)s;
    tensor t = {.data = dst, .type = FP32, .dims = 1, .size = {(int64_t)bytes / 4, 1, 1, 1}};
    begin_call("zero");
    operand('w', "y", &t);
    return end_call();
}

// --- where places meet -----------------------------------------------------------------------------------------------

static void begin_meeting(const char *how) {
    rec.meetings++;
    begin_call(how);
}

static err_t meet_whole(void *ctx, merge_kind kind, const tensor *part, stream *s) {
    (void)ctx, (void)s;
    begin_meeting("whole");
    flag("kind", kind);
    operand('u', "part", part);
    return end_call();
}

static err_t meet_deal(void *ctx, tensor *parts, const tensor *part, stream *s) {
    (void)ctx, (void)s;
    begin_meeting("deal");
    operand('r', "part", part);
    operand('w', "parts", parts);
    return end_call();
}

// In place it reads the rows of its own place, and writes the others.
static err_t meet_gather(void *ctx, const tensor *x, const tensor *own, stream *s) {
    const slice_merge *m = ctx;
    int64_t N = x->size[0], first = part_row(N, m->rank, m->ranks);
    tensor here = tensor_rows(x, first, part_row(N, m->rank + 1, m->ranks) - first);
    (void)s;
    begin_meeting("gather");
    flag("in_place", !own);
    operand('r', "own", own ? own : &here);
    operand('w', "x", x);
    return end_call();
}

static err_t meet_heads(void *ctx, const tensor *heads, const tensor *rows, stream *s) {
    (void)ctx, (void)s;
    begin_meeting("to_heads");
    operand('r', "rows", rows);
    operand('w', "heads", heads);
    return end_call();
}

static err_t meet_rows(void *ctx, const tensor *rows, const tensor *heads, stream *s) {
    (void)ctx, (void)s;
    begin_meeting("to_rows");
    operand('r', "heads", heads);
    operand('w', "rows", rows);
    return end_call();
}

#endif
