// trainer/step/swap.c: see trainer/step/swap.h. A rank sends another its own rows of a slice. They are contiguous on
// both sides, so nothing is packed.
#include "trainer/step/swap.h"

#include <stdlib.h>

// heads (slices here,N,W); rows (all slices,n,W). The rows of rank k begin with N * k / world.
typedef struct swap_shape {
    int64_t N, n;
    size_t row;  // bytes
} swap_shape;

static swap_shape shape_of(const swap_ranks *x, const tensor *heads) {
    int64_t N = matrix_rows(heads);
    return (swap_shape){.N = N,
                        .n = part_row(N, x->at.ranks->rank + 1, x->at.ranks->world) -
                             part_row(N, x->at.ranks->rank, x->at.ranks->world),
                        .row = (size_t)heads->size[heads->dims - 1] * dtype_bytes(heads->type)};
}

// Rank k's rows of slice s, of the slices here.
static comm_part of_heads(const swap_ranks *x, const swap_shape *a, const tensor *heads, int k, int s) {
    int64_t first = part_row(a->N, k, x->at.ranks->world), n = part_row(a->N, k + 1, x->at.ranks->world) - first;
    return (comm_part){k, (char *)heads->data + (size_t)(s * a->N + first) * a->row, (size_t)n * a->row};
}

// This rank's rows of slice s, of the slices whose attention is on rank k.
static comm_part of_rows(const swap_ranks *x, const swap_shape *a, const tensor *rows, int k, int s) {
    return (comm_part){k, (char *)rows->data + (size_t)((k * x->slices + s) * a->n) * a->row, (size_t)a->n * a->row};
}

typedef comm_part (*part_call)(const swap_ranks *x, const swap_shape *a, const tensor *t, int k, int s);

static err_t exchange(swap_ranks *x, const swap_shape *a, part_call to_call, const tensor *to, part_call from_call,
                      const tensor *from, stream *s) {
    comm *c = x->at.ranks;
    comm_part *send = x->part, *recv = x->part + (c->world - 1) * x->slices;
    int n = 0;
    for (int k = 0; k < c->world; k++)
        for (int i = 0; i < x->slices; i++) {
            comm_part in = to_call(x, a, to, k, i), out = from_call(x, a, from, k, i);
            if (k != c->rank) send[n] = out, recv[n++] = in;
            else TRY(stream_copy(s, in.data, out.data, in.bytes));
        }
    return c->table->exchange(c, send, n, recv, n, s);
}

static err_t heads_from_rows(merge_ranks *x, const tensor *heads, void *rows, stream *s) {
    swap_shape a = shape_of((swap_ranks *)x, heads);
    return exchange((swap_ranks *)x, &a, of_heads, heads, of_rows, rows, s);
}

static err_t rows_from_heads(merge_ranks *x, const tensor *heads, void *rows, stream *s) {
    swap_shape a = shape_of((swap_ranks *)x, heads);
    return exchange((swap_ranks *)x, &a, of_rows, rows, of_heads, heads, s);
}

static err_t to_heads(void *ctx, const tensor *heads, const tensor *rows, stream *s) {
    return merge_run(ctx, "exchange rows for heads", heads_from_rows, heads, (void *)(uintptr_t)rows, s);
}

static err_t to_rows(void *ctx, const tensor *rows, const tensor *heads, stream *s) {
    return merge_run(ctx, "exchange heads for rows", rows_from_heads, heads, (void *)(uintptr_t)rows, s);
}

// --- on paper --------------------------------------------------------------------------------------------------------

static err_t paper_call(swap_ranks *x, const tensor *heads, bool rows_leave) {
    const comm *c = x->at.ranks;
    swap_shape a = shape_of(x, heads);
    x->at.calls++;
    for (int k = 0; k < c->world; k++)
        for (int i = 0; i < x->slices; i++) {
            comm_part part = rows_leave ? (comm_part){.bytes = (size_t)a.n * a.row} : of_heads(x, &a, heads, k, i);
            if (k != c->rank) x->at.sent = cost_add(x->at.sent, cost_send(c, k, (int64_t)part.bytes, 1));
        }
    return ERR_OK;
}

static err_t paper_to_heads(void *ctx, const tensor *heads, const tensor *rows, stream *s) {
    (void)rows, (void)s;
    return paper_call(ctx, heads, true);
}

static err_t paper_to_rows(void *ctx, const tensor *rows, const tensor *heads, stream *s) {
    (void)rows, (void)s;
    return paper_call(ctx, heads, false);
}

void swap_on_paper(swap_ranks *x, pass *p, row_swap *paper) {
    *paper = (row_swap){.merge = merge_paper(&x->at), .to_heads = paper_to_heads, .to_rows = paper_to_rows};
    p->swap = paper;
}

// --- opening ---------------------------------------------------------------------------------------------------------

err_t swap_open(swap_ranks *x, comm *ranks, comm *run, const ops *o, int slices) {
    *x = (swap_ranks){.slices = slices};
    TRY(merge_open(&x->at, ranks, run, o, true));
    if (ranks->world == 1) return ERR_OK;
    x->swap = (row_swap){.merge = x->at.merge, .to_heads = to_heads, .to_rows = to_rows};
    x->part = calloc(2 * (size_t)(ranks->world - 1) * (size_t)slices, sizeof *x->part);
    return x->part ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d ranks that share positions", ranks->world);
}

void swap_close(swap_ranks *x) {
    merge_close(&x->at);
    free(x->part);
    *x = (swap_ranks){0};
}
