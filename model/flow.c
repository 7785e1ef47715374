// model/flow.c: see model/flow.h.
#include "model/flow.h"

#include <stdlib.h>

static int pairs(const flow *f) { return f->of->blocks - 1; }

static int places(const flow *f) {
    if (f->plan.forward_only) return pairs(f) < 2 ? pairs(f) : 2;
    return f->plan.slots * pairs(f);
}

static int64_t elements(const flow *f, int b) {
    int64_t n = f->plan.B * shape_count(f->of->block[b].dims, f->of->block[b].size);
    if (!f->of->block[b].divided || !f->plan.slice_count) return n;
    return n / f->of->slices.of * f->plan.slice_count;
}

// The most that any block leaves, of those that use this place.
static int64_t largest(const flow *f, int first, int stride) {
    int64_t most = 0;
    for (int b = first; b < pairs(f); b += stride)
        if (elements(f, b) > most) most = elements(f, b);
    return most;
}

err_t flow_declare(flow *f, const model *m, arena *a, const model_plan *o) {
    *f = (flow){.of = m, .plan = *o};
    int n = places(f);
    f->memory = calloc((size_t)n + 1, sizeof *f->memory);
    f->x = calloc((size_t)(o->slots * pairs(f)) + 1, sizeof *f->x);
    f->dx = calloc((size_t)pairs(f) + 1, sizeof *f->dx);
    if (!f->memory || !f->x || !f->dx) return err_set(ERR_INTERNAL, "no memory for a table of %d blocks", m->blocks);
    for (int i = 0; i < n; i++) TRY(arena_1d(a, &f->memory[i], o->compute, o->forward_only ? largest(f, i, n) : elements(f, i % pairs(f))));
    return o->forward_only || n == 0 ? ERR_OK : arena_1d(a, &f->gradient, o->compute, largest(f, 0, 1));
}

static tensor view(const flow *f, int b, void *data) {
    const block *k = &f->of->block[b];
    tensor t = {data, f->plan.compute, 1 + k->dims, {f->plan.B, 1, 1, 1}};
    for (int d = 0; d < k->dims; d++) t.size[1 + d] = k->size[d];
    return t;
}

void flow_link(flow *f) {
    int n = places(f);
    for (int b = 0; b < pairs(f); b++) {
        for (int s = 0; s < f->plan.slots; s++) {
            int at = s * pairs(f) + b;
            f->x[at] = view(f, b, f->memory[f->plan.forward_only ? b % n : at].data);
        }
        f->dx[b] = view(f, b, f->gradient.data);
    }
}

void flow_use(const flow *f, pass *p) {
    p->x = f->x + p->slot * pairs(f);
    p->dx = f->dx;
}

void flow_close(flow *f) {
    free(f->memory), free(f->x), free(f->dx);
    *f = (flow){0};
}
