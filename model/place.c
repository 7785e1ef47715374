// model/place.c: where the values of a form lie: see model/lower.h.
//
// Time counts steps: forward, then backward, then the second half. A value lives from its first step to its last. Three
// kinds of memory:
//
//   kept     a set for each slot: values of forward that backward reads, and of its first half that the second reads
//   held     one for all blocks: values that are computed again
//   scratch  one for all blocks: values that live within one list
//
// Kept memory has gaps, where a value is not needed any more, or not yet. Values of backward alone fill these gaps
// first, and the memory of the input's gradient, which is free until that is written.
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
    life of[LOWER_VALUES + 2];  // by storage; the last two are the gradients that come and go
    int count;                  // of them
    int backward, second, end;  // where backward and its second half begin, and where all ends
    bool kept[LOWER_VALUES], held[LOWER_VALUES];
    int64_t size[REGIONS];
} placing;

// Bytes of a value for the planned number of samples, on the rank that has most.
static int64_t room_of(const lowering *L, value v) {
    const graph_value *x = &L->v[v];
    const model *m = L->g->m;
    int64_t T = x->rows ? x->rows : model_positions(m), all = L->o->B * T, S = m->slices.of, width = x->width;
    int64_t n = x->at.rows == ROWS_ALL      ? all
                : x->at.rows == ROWS_MATRIX ? model_most_matrix_rows(m, all)
                                            : model_most_rows(m, all);
    if (S > 1 && x->at.width == WIDTH_SLICES) width = width / S * m->slices.count;
    if (S > 1 && x->at.width == WIDTH_HEADS) width = width / S * model_head_slices(m);
    int64_t elements = x->shape == SHAPE_PLAIN      ? x->width
                       : x->shape == SHAPE_PER_ROW  ? n
                       : x->shape == SHAPE_PER_HEAD ? all * width
                                                    : n * width;
    int64_t bytes = elements * (int64_t)dtype_bytes(x->is_E ? L->o->compute : x->type);
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static value storage_of(const lowering *L, value v) {
    while (L->v[v].storage != v) v = L->v[v].storage;
    return v;
}

// Where a value lies that the block does not place itself; else REGION_NONE.
static region fixed(const lowering *L, value storage) {
    if (L->v[storage].is_input) return REGION_INPUT;
    if (L->v[storage].all_rows) return REGION_ALL;
    // first: if a block's output overwrites its input, it lies where the output does
    if (L->out && storage == storage_of(L, L->out)) return REGION_Y;
    if (L->in && storage == storage_of(L, L->in)) return REGION_X;
    if (L->out && L->grad[L->out] && storage == storage_of(L, L->grad[L->out])) return REGION_DY;
    if (L->in && L->grad[L->in] && storage == storage_of(L, L->grad[L->in])) return REGION_DX;
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
            if (l->from < 0)
                l->from = now,
                l->over = s->over >= 0 && s->into == k && s->v[s->over] ? storage_of(L, s->v[s->over]) : 0;
            l->to = now, l->bytes = bytes > l->bytes ? bytes : l->bytes;
        }
}

static bool follows(const life *a, const life *b, const life *of) {
    return a->over && &of[a->over] == b && a->from == b->to && a->at == b->at;
}

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

// The lowest address from which it ends by `limit`: 0, or the end of another value.
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
    for (int i = 0; in == REGION_SCRATCH && l->from >= x->backward && !found && i < 3; i++)
        found = fit(x, l, gaps[i], x->size[gaps[i]]);
    if (!found) fit(x, l, in, INT64_MAX);
    l->placed = true;
    if (l->at + l->bytes > x->size[l->in]) x->size[l->in] = l->at + l->bytes;
}

// dy and dx, the gradients of the block's output and input, may share memory: dy lives until its last read, dx from its
// first write. Between the two, that memory is free for others.
static void place_stream(placing *x) {
    const lowering *L = x->L;
    value in = L->in ? L->grad[L->in] : 0, out = L->out ? L->grad[L->out] : 0;
    life *dy = &x->of[LOWER_VALUES], *dx = &x->of[LOWER_VALUES + 1];
    dy->from = dx->from = -1;
    x->count = LOWER_VALUES + 2;
    if (out) *dy = x->of[storage_of(L, out)], dy->from = x->backward, dy->in = REGION_DX, dy->at = 0, dy->placed = true;
    if (in) *dx = x->of[storage_of(L, in)], dx->to = x->end, dx->in = REGION_DX, dx->at = 0, dx->placed = true;
    x->size[REGION_DX] = in ? dx->bytes : out ? dy->bytes : 0;
}

// In which memory a value should lie. The last block keeps nothing: all of it is computed in backward.
static region wants(const placing *x, value s) {
    const life *l = &x->of[s];
    bool is_last = !x->L->out, spans = l->from < x->backward && l->to >= x->backward && !l->anew;
    bool later = l->from >= x->backward && l->from < x->second && l->to >= x->second;
    if (x->kept[s] || later || (spans && !x->held[s] && !is_last)) return REGION_KEPT;
    return x->held[s] ? REGION_HELD : REGION_SCRATCH;
}

// The largest value for this memory that has no address yet; 0: none.
static value next_for(const placing *x, region in) {
    value best = 0;
    for (value s = 1; s < x->L->values; s++) {
        const life *l = &x->of[s];
        if (l->from < 0 || l->placed || fixed(x->L, s) || wants(x, s) != in) continue;
        if (!best || l->bytes > x->of[best].bytes) best = s;
    }
    return best;
}

static void follow_lives(placing *x, const lists *of) {
    int begin[LISTS + 1] = {0};
    for (int s = 0; s < LOWER_VALUES + 2; s++) x->of[s].from = -1;
    for (int k = 0; k < LISTS; k++) {
        live(x, &of->list[k], begin[k]);
        begin[k + 1] = begin[k] + of->list[k].count;
    }
    x->backward = begin[LIST_AGAIN], x->second = begin[LIST_WEIGHTS], x->end = begin[LISTS];
}

void place_values(lists *out, const lowering *L, const bool *kept, const bool *again) {
    placing x = {.L = L, .count = LOWER_VALUES};
    follow_lives(&x, out);
    for (value v = 1; v < L->values && L->out; v++)
        if (kept[v]) (again[v] ? x.held : x.kept)[storage_of(L, v)] = true;
    place_stream(&x);
    for (region in = REGION_KEPT; in <= REGION_SCRATCH; in++)
        for (value s; (s = next_for(&x, in)) != 0;) put_value(&x, &x.of[s], in);
    for (value v = 1; v < L->values; v++) {
        value s = storage_of(L, v);
        region in = fixed(L, s);
        out->place[v] = in ? (place){.in = in} : (place){.in = x.of[s].in, .at = x.of[s].at};
    }
    for (region in = REGION_KEPT; in <= REGION_SCRATCH; in++) out->bytes[in] = x.size[in];
}
