// model/flow.c: see model/flow.h.
#include "model/flow.h"

#include "model/slices.h"
#include <stdlib.h>
#include <string.h>

static int pairs(const flow *f) { return f->of->blocks - 1; }

// Slots for which x[b] has memory: as many as block b or b+1 uses, whichever are more.
static int kept(const flow *f, int b) { return f->slots[b] > f->slots[b + 1] ? f->slots[b] : f->slots[b + 1]; }

// Does one range of blocks end here and another begin?
static bool parts(const flow *f, int b) {
    const int *range = f->plan.range;
    return range && !f->plan.forward_only && f->slots[b] && f->slots[b + 1] && range[b] != range[b + 1];
}

// If rows are divided, as many as any rank may have.
static int64_t elements(const flow *f, int b) {
    const block *k = &f->of->block[b];
    if (!model_divides_rows(f->of)) return model_left(f->of, b, f->plan.B, 0);
    int64_t rows = model_left_rows(f->of, b);
    return model_most_rows(f->of, f->plan.B * rows) * (shape_count(k->dims, k->size) / rows);
}

// The largest output of a block that is needed here.
static int64_t largest(const flow *f, int first, int stride) {
    int64_t most = 0;
    for (int b = first; b < pairs(f); b += stride)
        if (kept(f, b) && elements(f, b) > most) most = elements(f, b);
    return most;
}

// Without a backward pass a block's output is needed only until the next block has read it.
static err_t declare_two(flow *f, arena *a) {
    for (int i = 0; i < 2 && i < pairs(f); i++) {
        int64_t n = largest(f, i, 2);
        if (n) TRY(arena_1d(a, &f->memory[i], f->plan.compute, n));
    }
    return ERR_OK;
}

static err_t declare_all(flow *f, arena *a) {
    int64_t n = largest(f, 0, 1);
    for (int b = 0; b < pairs(f); b++) {
        for (int s = 0; s < kept(f, b); s++)
            TRY(arena_1d(a, &f->memory[f->first[b] + s], f->plan.compute, elements(f, b)));
        for (int s = 0; f->end[b] >= 0 && s < f->slots[b]; s++)
            TRY(arena_1d(a, &f->memory[f->end[b] + s], f->plan.compute, elements(f, b)));
    }
    for (int i = 0; i < f->plan.boundaries; i++) TRY(arena_1d(a, &f->boundary[i], f->plan.compute, n));
    return n ? arena_1d(a, &f->gradient, f->plan.compute, n) : ERR_OK;
}

err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o) {
    *f = (flow){.of = m, .plan = *o};
    int n = pairs(f), sets = 0, most = 1;
    f->slots = malloc((size_t)m->blocks * sizeof *f->slots);
    f->first = calloc((size_t)n + 1, sizeof *f->first);
    f->end = calloc((size_t)n + 1, sizeof *f->end);
    f->boundary = calloc((size_t)o->boundaries + 1, sizeof *f->boundary);
    f->dx = calloc((size_t)n + 1, sizeof *f->dx);
    if (!f->slots || !f->first || !f->end || !f->boundary || !f->dx)
        return err_set(ERR_INTERNAL, "no memory for a table of %d blocks", m->blocks);
    memcpy(f->slots, o->slots, (size_t)m->blocks * sizeof *f->slots);
    f->plan.slots = f->slots;
    for (int b = 0; b < n; b++) {
        f->first[b] = sets;
        sets += kept(f, b);
        f->end[b] = parts(f, b) ? sets : -1;
        if (parts(f, b)) sets += f->slots[b];
        most = kept(f, b) > most ? kept(f, b) : most;
    }
    f->memory = calloc((size_t)sets + 2, sizeof *f->memory);
    f->x = calloc((size_t)(most * n) + 1, sizeof *f->x);
    if (!f->memory || !f->x) return err_set(ERR_INTERNAL, "no memory for a table of %d blocks", m->blocks);
    return o->forward_only ? declare_two(f, a) : declare_all(f, a);
}

// (rows here, width)
static tensor own_rows(const flow *f, int b, void *data) {
    const block *k = &f->of->block[b];
    int64_t rows = model_left_rows(f->of, b), n = model_own_rows(f->of, f->plan.B * rows);
    return (tensor){data, f->plan.compute, 2, {n, shape_count(k->dims, k->size) / rows, 1, 1}};
}

static tensor view(const flow *f, int b, void *data) {
    const block *k = &f->of->block[b];
    tensor t = {data, f->plan.compute, 1 + k->dims, {f->plan.B, 1, 1, 1}};
    for (int d = 0; d < k->dims; d++) t.size[1 + d] = k->size[d];
    if (k->divided) t.size[k->dims] = model_share(f->of, t.size[k->dims]);
    if (model_divides_rows(f->of)) t = own_rows(f, b, data);
    return t;
}

void flow_link(flow *f) {
    for (int b = 0; b < pairs(f); b++) {
        for (int s = 0; s < kept(f, b); s++)
            *flow_x(f, b, s) = view(f, b, f->memory[f->plan.forward_only ? b % 2 : f->first[b] + s].data);
        f->dx[b] = view(f, b, f->gradient.data);
    }
}

void flow_use(const flow *f, pass *p) {
    p->x = f->x + p->slot * pairs(f);
    p->dx = f->dx;
}

void flow_leave(flow *f, int b, int slot, bool first) {
    flow_x(f, b, slot)->data = f->memory[(first ? f->end[b] : f->first[b]) + slot].data;
}

void flow_cross(flow *f, int b, int boundary) {
    f->dx[b].data = boundary < 0 ? f->gradient.data : f->boundary[boundary].data;
}

void flow_close(flow *f) {
    free(f->slots), free(f->first), free(f->end), free(f->memory), free(f->boundary), free(f->x), free(f->dx);
    *f = (flow){0};
}
