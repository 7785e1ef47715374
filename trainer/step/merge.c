// trainer/step/merge.c: see trainer/step/merge.h.
#include "trainer/step/merge.h"

#include "base/clock.h"
#include "gpu/paper.h"

#include <assert.h>
#include <stdlib.h>

static float *row_at(const tensor *x, int64_t row) { return (float *)x->data + row * x->size[x->dims - 1]; }

// Where the rows of each rank begin, in units of `unit` for each row.
static const size_t *cuts(merge_ranks *x, int64_t rows, size_t unit) {
    for (int k = 0; k <= x->ranks->world; k++) x->cut[k] = (size_t)part_row(rows, k, x->ranks->world) * unit;
    return x->cut;
}

void merge_begin(merge_ranks *x, int64_t step) { x->step = step, x->met = 0; }

// If a rank is lost from here on, the error names this call and the step; outside of steps, the phase that the run has
// set.
static void enter(merge_ranks *x, const char *what) {
    if (x->step >= 0) x->run->phase = (comm_phase){what, x->step, ++x->met};
    x->ranks->phase = x->run->phase;
}

err_t merge_run(merge_ranks *x, const char *what, merge_call call, const tensor *t, void *more, stream *s) {
    double since = clock_now();
    enter(x, what);
    board_task before = board_waiting(x->board, WAIT_RANKS, what, x->met, x->step);
    if (x->watch) TRY(stopwatch_begin(x->watch, SPAN_TENSOR, s));
    TRY(call(x, t, more, s));
    board_resume(x->board, before);
    x->waited_s += clock_now() - since;
    return x->watch ? stopwatch_end(x->watch, SPAN_TENSOR, s) : ERR_OK;
}

// --- large sums ------------------------------------------------------------------------------------------------------

// The transport's own sum, in place.
static err_t deal_any(merge_ranks *x, const tensor *part, void *out, stream *s) {
    tensor *parts = out;
    int64_t rows = matrix_rows(part), C = matrix_columns(part), first = part_row(rows, x->ranks->rank, x->ranks->world);
    TRY(x->ranks->table->reduce_scatter(x->ranks, part->data, cuts(x, rows, (size_t)C), FP32, s));
    parts->size[0] = 1;
    parts->data = row_at(part, first);
    return ERR_OK;
}

static err_t deal_fixed(merge_ranks *x, const tensor *part, void *out, stream *s) {
    const tensor *parts = out;
    comm *c = x->ranks;
    int64_t rows = matrix_rows(part), C = matrix_columns(part), own = parts->size[1];
    comm_part *send = x->to, *recv = x->to + c->world;
    int n = 0;
    for (int k = 0; k < c->world; k++) {
        int64_t first = part_row(rows, k, c->world), count = part_row(rows, k + 1, c->world) - first;
        float *to = row_at(parts, k * own);
        if (k == c->rank) {
            TRY(stream_copy(s, to, row_at(part, first), (size_t)(own * C) * sizeof *to));
            continue;
        }
        send[n] = (comm_part){k, row_at(part, first), (size_t)(count * C) * sizeof *to};
        recv[n++] = (comm_part){k, to, (size_t)(own * C) * sizeof *to};
    }
    return c->table->exchange(c, send, n, recv, n, s);
}

static err_t deal(void *ctx, tensor *parts, const tensor *part, stream *s) {
    merge_ranks *x = ctx;
    return merge_run(x, "add up slices", x->fixed ? deal_fixed : deal_any, part, parts, s);
}

static err_t gather_rows(merge_ranks *x, const tensor *t, void *from, stream *s) {
    const tensor *own = from;
    const size_t *cut = cuts(x, matrix_rows(t), (size_t)matrix_columns(t) * dtype_bytes(t->type));
    if (own) TRY(stream_copy(s, (char *)t->data + cut[x->ranks->rank], own->data, tensor_bytes(own)));
    return x->ranks->table->all_gather(x->ranks, t->data, cut, s);
}

static err_t gather(void *ctx, const tensor *t, const tensor *own, stream *s) {
    return merge_run(ctx, "gather rows", gather_rows, t, (void *)(uintptr_t)own, s);
}

// --- small tensors ---------------------------------------------------------------------------------------------------

// Its room, in floats.
static int64_t floats_of(const tensor *part) { return (int64_t)(tensor_bytes(part) / sizeof(float)); }

static err_t sum_all(merge_ranks *x, const tensor *part, stream *s) {
    comm *c = x->ranks;
    int64_t n = tensor_count(part);
    size_t bytes = tensor_bytes(part);
    assert(floats_of(part) <= x->most);
    tensor at = {.data = x->all.data, .type = part->type}, all = view3(&at, c->world, 1, n), y = view2(part, 1, n);
    for (int k = 0; k <= c->world; k++) x->cut[k] = (size_t)k * bytes;
    TRY(stream_copy(s, (char *)x->all.data + x->cut[c->rank], part->data, bytes));
    TRY(c->table->all_gather(c, x->all.data, x->cut, s));
    return x->ops->sum_slices(&(sum_slices_args){.y = &y, .parts = &all}, s);
}

// All ranks but one hold zeros, so an integer sum copies the value. Memory extends to the next multiple of ARENA_ALIGN.
static size_t words(const tensor *t) { return (tensor_bytes(t) + sizeof(int32_t) - 1) / sizeof(int32_t); }

static err_t complete(merge_ranks *x, const tensor *part, void *how, stream *s) {
    merge_kind kind = *(const merge_kind *)how;
    const comm_table *table = x->ranks->table;
    size_t n = (size_t)tensor_count(part);
    if (kind == MERGE_LARGEST) return table->all_reduce(x->ranks, part->data, n, FP32, REDUCE_MAX, s);
    if (kind == MERGE_PICK) return table->all_reduce(x->ranks, part->data, words(part), INT32, REDUCE_SUM, s);
    return x->fixed ? sum_all(x, part, s) : table->all_reduce(x->ranks, part->data, n, part->type, REDUCE_SUM, s);
}

static err_t whole(void *ctx, merge_kind kind, const tensor *part, stream *s) {
    return merge_run(ctx, "complete slices", complete, part, &kind, s);
}

// --- on paper --------------------------------------------------------------------------------------------------------

static err_t paper_deal(void *ctx, tensor *parts, const tensor *part, stream *s) {
    merge_ranks *x = ctx;
    int64_t rows = matrix_rows(part), C = matrix_columns(part);
    (void)parts, (void)s;
    x->calls++;
    if (!x->fixed) x->sent = cost_add(x->sent, cost_reduce_scatter(x->ranks, cuts(x, rows, (size_t)C), sizeof(float)));
    for (int k = 0; x->fixed && k < x->ranks->world; k++) {
        int64_t count = part_row(rows, k + 1, x->ranks->world) - part_row(rows, k, x->ranks->world);
        if (k != x->ranks->rank)
            x->sent = cost_add(x->sent, cost_send(x->ranks, k, count * C * (int64_t)sizeof(float), 1));
    }
    return ERR_OK;
}

static err_t paper_gather(void *ctx, const tensor *t, const tensor *own, stream *s) {
    merge_ranks *x = ctx;
    (void)own, (void)s;
    x->calls++;
    x->sent = cost_add(
        x->sent, cost_all_gather(x->ranks, cuts(x, matrix_rows(t), (size_t)matrix_columns(t) * dtype_bytes(t->type))));
    return ERR_OK;
}

static err_t paper_whole(void *ctx, merge_kind kind, const tensor *part, stream *s) {
    merge_ranks *x = ctx;
    int64_t n = tensor_count(part);
    (void)s;
    x->calls++;
    if (kind == MERGE_SUM && x->fixed) {
        for (int k = 0; k <= x->ranks->world; k++) x->cut[k] = (size_t)k * tensor_bytes(part);
        x->sent = cost_add(x->sent, cost_all_gather(x->ranks, x->cut));
        if (floats_of(part) > x->most) x->most = floats_of(part);
    } else if (kind == MERGE_PICK) {
        x->sent = cost_add(x->sent, cost_all_reduce(x->ranks, words(part), sizeof(float)));
    } else {
        x->sent = cost_add(x->sent, cost_all_reduce(x->ranks, (size_t)n, dtype_bytes(part->type)));
    }
    return ERR_OK;
}

slice_merge merge_paper(merge_ranks *x) {
    return (slice_merge){x->ranks->world, x->ranks->rank, paper_whole, paper_deal, paper_gather, x};
}

void merge_on_paper(merge_ranks *x, pass *p, slice_merge *paper) {
    *paper = merge_paper(x);
    p->merge = paper;
}

// --- opening ---------------------------------------------------------------------------------------------------------

err_t merge_open(merge_ranks *x, comm *ranks, comm *run, const ops *o, bool fixed) {
    *x = (merge_ranks){.ranks = ranks, .run = run, .step = -1, .ops = o, .fixed = fixed};
    if (ranks->world == 1) return ERR_OK;
    x->merge = (slice_merge){ranks->world, ranks->rank, whole, deal, gather, x};
    x->cut = calloc((size_t)ranks->world + 1, sizeof *x->cut);
    x->to = calloc(2 * (size_t)ranks->world, sizeof *x->to);
    return x->cut && x->to ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d ranks that share layers", ranks->world);
}

err_t merge_declare(merge_ranks *x, arena *a) {
    return x->most ? arena_1d(a, &x->all, FP32, x->most * x->ranks->world) : ERR_OK;
}

void merge_close(merge_ranks *x) {
    free(x->cut), free(x->to);
    *x = (merge_ranks){0};
}
