// gpu/paper.c: see gpu/paper.h.
#include "gpu/paper.h"

#include "gpu/backend.h"

#include <stdlib.h>

#define ON_PAPER(op) \
    static err_t paper_##op(const op##_args *args, stream *s) { return (void)args, (void)s, ERR_OK; }
OPS(ON_PAPER)

#define ENTRY(op) .op = paper_##op,
const ops ops_on_paper = {OPS(ENTRY)};

// --- counted ---------------------------------------------------------------------------------------------------------

struct stream {
    struct stream_head head;
    device dev;
    paper_see see;
    void *ctx;
};

static err_t seen(stream *s, const char *op, op_cost cost) {
    s->see(s->ctx, op, &cost);
    return ERR_OK;
}

#define COUNTED(op) \
    static err_t counted_##op(const op##_args *args, stream *s) { return seen(s, #op, op##_cost(args)); }
OPS(COUNTED)

#define COUNTED_ENTRY(op) .op = counted_##op,
const ops ops_counted = {OPS(COUNTED_ENTRY)};

static err_t counted_copy(stream *s, void *dst, const void *src, size_t bytes) {
    (void)dst, (void)src;
    return seen(s, "copy", (op_cost){INT32, {(int64_t)bytes}, COST_BYTES, 2.0 * (double)bytes, 0});
}

static err_t counted_zero(stream *s, void *dst, size_t bytes) {
    (void)dst;
    return seen(s, "zero", (op_cost){INT32, {(int64_t)bytes}, COST_BYTES, (double)bytes, 0});
}

static const backend counted_backend = {.copy = counted_copy, .zero = counted_zero};

err_t paper_open(stream **out, paper_see see, void *ctx) {
    stream *s = *out = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_INTERNAL, "no memory for a stream of paper");
    *s = (stream){.dev = {.backend = &counted_backend, .ops = &ops_counted}, .see = see, .ctx = ctx};
    s->head.dev = &s->dev;
    return ERR_OK;
}

void paper_close(stream *s) { free(s); }
