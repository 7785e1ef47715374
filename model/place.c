// model/place.c: where the values of a form lie: see model/lower.h.
//
// Time counts steps: forward, then backward, then the second half. A value lives from its first step to its last. Three kinds of memory:
//
//   kept     a set for each slot: what backward reads of forward, and the second half of the first
//   held     what is computed again: one for all blocks
//   scratch  what lives within one list: one for all blocks
//
// Kept memory has gaps: a value whose life in forward is over, or that backward reads early. What lives only in backward goes into such gaps first, and into
// the memory of the input's gradient, which is free until it is written.
#include "model/lower.h"

#include <string.h>

enum { PLACE_ALIGN = ARENA_ALIGN };

typedef struct life {
    int from, to;  // steps; from < 0: none
    int over;      // the value whose place it may take where it begins; 0: none
    bool anew;     // written in forward, and again in backward before it is read
    bool placed;
    region in;
    int64_t bytes, at;
} life;

typedef struct placing {
    const lowering *L;
    lists *x;
    life of[LOWER_VALUES + 2];   // by storage; the last two are the gradients that come and go
    int count;                   // of them
    int forward, backward, end;  // where the lists begin, and where all end
    bool kept[LOWER_VALUES], held[LOWER_VALUES];
    int64_t size[REGIONS];
} placing;

// Bytes of a value of the planned number of samples, on the place that has most.
static int64_t room_of(const lowering *L, value v) {
    const graph_value *x = &L->v[v];
    const model *m = L->g->m;
    int64_t T = m->losses, all = L->o->B * T, S = m->slices.of, width = x->width;
    int64_t n = x->at.rows == ROWS_ALL ? all : x->at.rows == ROWS_MATRIX ? model_most_matrix_rows(m, all) : model_most_rows(m, all);
    if (S > 1 && x->at.width == WIDTH_SLICES) width = width / S * m->slices.count;
    if (S > 1 && x->at.width == WIDTH_HEADS) width = width / S * model_head_slices(m);
    int64_t elements = x->shape == SHAPE_PLAIN ? x->width : x->shape == SHAPE_PER_ROW ? n : x->shape == SHAPE_PER_HEAD ? all * width : n * width;
    int64_t bytes = elements * (int64_t)dtype_bytes(x->is_E ? L->o->compute : x->type);
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static value storage_of(const lowering *L, value v) {
    while (L->v[v].storage != v) v = L->v[v].storage;
    return v;
}

// Where a value lies that the block does not place; REGION_NONE: it does.
static region fixed(const lowering *L, value storage) {
    const lowering *k = L;
    if (L->v[storage].is_input) return REGION_INPUT;
    if (L->v[storage].all_rows) return REGION_ALL;
    if (k->out && storage == storage_of(L, k->out)) return REGION_Y;  // first: a block whose input goes on in place leaves it there
    if (k->in && storage == storage_of(L, k->in)) return REGION_X;
    if (k->out && L->grad[k->out] && storage == storage_of(L, L->grad[k->out])) return REGION_DY;
    if (k->in && L->grad[k->in] && storage == storage_of(L, L->grad[k->in])) return REGION_DX;
    return REGION_NONE;
}

static void live(placing *x, const step_list *list, int base) {
    const lowering *L = x->L;
    for (int i = 0; i < list->count; i++)
        for (int k = 0; k < list->at[i].count; k++) {
            const step *s = &list->at[i];
            if (!s->v[k]) continue;
            life *l = &x->of[storage_of(L, s->v[k])];
            int64_t bytes = room_of(L, s->v[k]);
            int now = base + i;
            if (base && l->from >= 0 && l->to < base && s->how[k] == 'w') l->anew = true;
            if (l->from < 0) l->from = now, l->over = s->over >= 0 && s->into == k && s->v[s->over] ? storage_of(L, s->v[s->over]) : 0;
            l->to = now, l->bytes = bytes > l->bytes ? bytes : l->bytes;
        }
}

static bool follows(const life *a, const life *b, const life *of) { return a->over && &of[a->over] == b && a->from == b->to && a->at == b->at; }

static bool clash(const life *a, const life *b, const life *of) {
    if (a->at >= b->at + b->bytes || b->at >= a->at + a->bytes) return false;
    if (follows(a, b, of) || follows(b, a, of)) return false;
    return a->from <= b->to && b->from <= a->to;
}

static bool is_free(const placing *x, const life *l) {
    for (int j = 0; j < x->count; j++) {
        const life *o = &x->of[j];
        if (o != l && o->placed && o->in == l->in && clash(l, o, x->of)) return false;
    }
    return true;
}

// The lowest place that ends by `limit`: at 0, or where another value ends.
static bool fit(placing *x, life *l, region in, int64_t limit) {
    int64_t best = -1;
    l->in = in;
    for (int k = -1; k < x->count; k++) {
        if (k >= 0 && (!x->of[k].placed || x->of[k].in != in || &x->of[k] == l)) continue;
        l->at = k < 0 ? 0 : x->of[k].at + x->of[k].bytes;
        if (l->at + l->bytes <= limit && (best < 0 || l->at < best) && is_free(x, l)) best = l->at;
    }
    if (best >= 0) l->at = best;
    return best >= 0;
}

static void put_value(placing *x, life *l, region in) {
    static const region gaps[] = {REGION_KEPT, REGION_HELD, REGION_DX};
    bool found = false;
    for (int i = 0; in == REGION_SCRATCH && l->from >= x->backward && !found && i < 3; i++) found = fit(x, l, gaps[i], x->size[gaps[i]]);
    if (!found) fit(x, l, in, INT64_MAX);
    l->placed = true;
    if (l->at + l->bytes > x->size[l->in]) x->size[l->in] = l->at + l->bytes;
}

// The gradient that comes in is read until `last`, and the one that goes out is written from `first` on. They may lie in the same memory.
static void place_stream(placing *x) {
    const lowering *L = x->L;
    const lowering *k = L;
    value in = k->in ? L->grad[k->in] : 0, out = k->out ? L->grad[k->out] : 0;
    life *dy = &x->of[LOWER_VALUES], *dx = &x->of[LOWER_VALUES + 1];
    dy->from = dx->from = -1;
    x->count = LOWER_VALUES + 2;
    if (out) *dy = x->of[storage_of(L, out)], dy->from = x->backward, dy->in = REGION_DX, dy->at = 0, dy->placed = true;
    if (in) *dx = x->of[storage_of(L, in)], dx->to = x->end, dx->in = REGION_DX, dx->at = 0, dx->placed = true;
    x->size[REGION_DX] = in ? dx->bytes : out ? dy->bytes : 0;
}

void place_values(lists *out, const lowering *L, const bool *kept, const bool *again) {
    static const region kinds[] = {REGION_KEPT, REGION_HELD, REGION_SCRATCH};
    placing x = {.L = L, .x = out, .count = LOWER_VALUES};
    bool is_last = !L->out;
    int second = 0;
    x.backward = out->list[LIST_FORWARD].count;
    second = x.backward + out->list[LIST_AGAIN].count + out->list[LIST_BACKWARD].count;
    x.end = second + out->list[LIST_WEIGHTS].count;
    for (int s = 0; s < LOWER_VALUES + 2; s++) x.of[s].from = -1;
    live(&x, &out->list[LIST_FORWARD], 0);
    live(&x, &out->list[LIST_AGAIN], x.backward);
    live(&x, &out->list[LIST_BACKWARD], x.backward + out->list[LIST_AGAIN].count);
    live(&x, &out->list[LIST_WEIGHTS], second);
    for (value v = 1; v < L->values && !is_last; v++)
        if (kept[v]) (again[v] ? x.held : x.kept)[storage_of(L, v)] = true;
    place_stream(&x);
    for (int kind = 0; kind < 3; kind++)
        for (;;) {  // the largest first
            int best = -1;
            for (value s = 1; s < L->values; s++) {
                const life *l = &x.of[s];
                bool spans = l->from >= 0 && l->from < x.backward && l->to >= x.backward && !l->anew;
                bool later = l->from >= x.backward && l->from < second && l->to >= second;
                int of = x.kept[s] || (spans && !x.held[s] && !is_last) || later ? 0 : x.held[s] ? 1 : 2;
                if (l->from < 0 || l->placed || of != kind || fixed(L, s)) continue;
                if (best < 0 || l->bytes > x.of[best].bytes) best = s;
            }
            if (best < 0) break;
            put_value(&x, &x.of[best], kinds[kind]);
        }
    for (value v = 1; v < L->values; v++) {
        value s = storage_of(L, v);
        region in = fixed(L, s);
        out->place[v] = in ? (place){.in = in} : (place){.in = x.of[s].in, .at = x.of[s].at};
    }
    for (int i = 0; i < 3; i++) out->bytes[kinds[i]] = x.size[kinds[i]];
}
