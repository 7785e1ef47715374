// trainer/step/rows.c: see trainer/step/rows.h.
#include "trainer/step/rows.h"

#include "trainer/step/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int64_t width(const step_rows *x) { return x->of->width; }
static row_table *table(const step_rows *x) { return *x->table; }

static err_t declare_keys(arena *a, tensor *t, int64_t n) {
    return arena_1d(a, t, UINT8, n * (int64_t)sizeof(row_key));
}

// --- lists -----------------------------------------------------------------------------------------------------------

static err_t declare_pile(const step_rows *x, row_pile *p, int64_t rows, arena *a) {
    p->span = calloc((size_t)x->lanes.lanes + 1, sizeof *p->span);
    if (!p->span) return err_set(ERR_INTERNAL, "no memory for the lists of %lld lanes", (long long)x->lanes.lanes);
    TRY(declare_keys(a, &p->key, rows));
    return arena_2d(a, &p->row, FP32, rows, width(x));
}

static row_list list_at(const step_rows *x, const row_pile *p, const list_span *of) {
    return (row_list){of->n, (row_key *)p->key.data + of->at, (float *)p->row.data + of->at * width(x)};
}

// The last two lists become one, in the place of the first.
static void add_last(step_rows *x, row_pile *p) {
    list_span *a = &p->span[p->spans - 2], *b = a + 1;
    row_list first = list_at(x, p, a), second = list_at(x, p, b), sum = {0, x->more_key.data, x->more_row.data};
    row_add(&sum, &first, &second, width(x));
    memcpy(first.key, sum.key, (size_t)sum.n * sizeof *sum.key);
    memcpy(first.row, sum.row, (size_t)(sum.n * width(x)) * sizeof *sum.row);
    a->n = sum.n;
    p->used = a->at + a->n;
    p->spans--;
}

static bool are_siblings(const list_span *a, const list_span *b) {
    return a->size == b->size && a->first + a->size == b->first && a->first % (2 * a->size) == 0;
}

static void add_siblings(step_rows *x, row_pile *p) {
    while (p->spans > 1 && are_siblings(&p->span[p->spans - 2], &p->span[p->spans - 1])) {
        add_last(x, p);
        p->span[p->spans - 1].size *= 2;
    }
}

// The sum of all lanes, of the rows that this rank owns.
static row_list sum_of(const step_rows *x) {
    const row_pile *p = x->ranks->world == 1 ? &x->own : &x->owned;
    return p->spans ? list_at(x, p, &p->span[0]) : (row_list){0};
}

// --- opening ---------------------------------------------------------------------------------------------------------

// What is left of a rank's lanes when all siblings are added, to `to`, which has room for all lanes. Returns how many.
static int64_t left_of(const lane_table *t, int rank, list_span *to) {
    int64_t n = 0;
    for (int64_t i = 0; i < lane_table_count(t, rank); i++) {
        to[n++] = (list_span){.first = lane_table_lane(t, rank, i), .size = 1};
        for (; n > 1 && are_siblings(&to[n - 2], &to[n - 1]); n--) to[n - 2].size *= 2;
    }
    return n;
}

static err_t plan_messages(step_rows *x) {
    size_t world = (size_t)x->ranks->world, lanes = (size_t)x->lanes.lanes;
    x->left = calloc(lanes + 1, sizeof *x->left);
    x->order = calloc(lanes + 1, sizeof *x->order);
    x->left_at = calloc(world + 1, sizeof *x->left_at);
    x->count = calloc(lanes * world + lanes + 2 * world, sizeof *x->count);
    x->part = calloc(2 * lanes * world + 2 * lanes + 2 * world, sizeof *x->part);
    if (!x->left || !x->order || !x->left_at || !x->count || !x->part)
        return err_set(ERR_INTERNAL, "no memory for the messages of %zu ranks' rows", world);
    for (int r = 0; r < x->ranks->world; r++)
        x->left_at[r + 1] = x->left_at[r] + left_of(&x->lanes, r, x->left + x->left_at[r]);
    for (int64_t i = 0; i < x->left_at[world]; i++) {  // in order of lane
        int64_t k = i;
        for (; k > 0 && x->left[x->order[k - 1]].first > x->left[i].first; k--) x->order[k] = x->order[k - 1];
        x->order[k] = i;
    }
    return ERR_OK;
}

static err_t declare_lists(step_rows *x, const train_state *t, arena *a) {
    int64_t lane = t->o.micros * x->most, own = lane_table_count(&x->lanes, x->ranks->rank) * lane,
            all = x->lanes.lanes * lane, most = x->ranks->world > 1 ? all : own;
    if (own == 0) own = 1;  // a rank without lanes has an empty list
    TRY(arena_2d(a, &x->gradient, FP32, x->most, width(x)));
    TRY(declare_pile(x, &x->own, own, a));
    if (x->ranks->world > 1) TRY(declare_pile(x, &x->owned, all, a));
    TRY(declare_keys(a, &x->more_key, most));
    TRY(arena_2d(a, &x->more_row, FP32, most, width(x)));
    return plan_messages(x);
}

err_t step_rows_open(step_rows *x, const train_state *t, comm *ranks, int64_t micro, arena *a) {
    const model_table *of = &t->net->table;
    *x = (step_rows){0};
    if (!of->width) return ERR_OK;
    *x = (step_rows){.of = of, .table = &t->rows, .ranks = ranks, .cut = t->row_cut, .most = micro * of->tables};
    // lanes that are coded, several of them in a turn, are refused with such rows
    x->lanes = (lane_table){.lanes = t->o.lanes, .world = t->ranks->world, .turns = t->turns, .count = t->o.deal};
    for (rows_set *k = x->set; k < x->set + 2; k++) {
        TRY(declare_keys(a, &k->key, x->most));
        TRY(arena_2d(a, &k->fetched.index, INT32, micro, of->tables));
        TRY(arena_2d(a, &k->values, FP32, x->most, of->width));
    }
    TRY(declare_keys(a, &x->more, x->most));
    TRY(arena_1d(a, &x->scratch, INT32, row_unique_room(x->most)));
    if (ranks->world > 1) {
        TRY(declare_keys(a, &x->asked, ranks->world * x->most));
        TRY(arena_2d(a, &x->answer, FP32, ranks->world * x->most, of->width));
    }
    return t->o.training ? declare_lists(x, t, a) : plan_messages(x);
}

void step_rows_close(step_rows *x) {
    free(x->own.span), free(x->owned.span), free(x->left), free(x->order), free(x->left_at), free(x->count),
        free(x->part);
    *x = (step_rows){0};
}

pass_rows *step_rows_of(step_rows *x) {
    if (!x->of) return NULL;
    rows_set *k = &x->set[x->now];
    k->fetched.values = k->values, k->fetched.gradient = x->gradient;
    if (k->keys) k->fetched.values.size[0] = k->fetched.gradient.size[0] = k->keys;
    return &k->fetched;
}

// --- rows of a micro-batch -------------------------------------------------------------------------------------------

static void add_part(comm_part *part, int *n, int peer, void *data, size_t bytes) {
    if (bytes) part[(*n)++] = (comm_part){peer, data, bytes};
}

// send [world] and recv [world + 1] say where each rank's share of two arrays begins, in items of `each` bytes.
static err_t exchange(step_rows *x, void *from, const int64_t *send, void *to, const int64_t *recv, size_t each,
                      stream *s) {
    comm *c = x->ranks;
    int sends = 0, recvs = 0;
    comm_part *out = x->part, *in = x->part + c->world;
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank) continue;
        add_part(out, &sends, r, (char *)from + (size_t)send[r] * each, (size_t)(send[r + 1] - send[r]) * each);
        add_part(in, &recvs, r, (char *)to + (size_t)recv[r] * each, (size_t)(recv[r + 1] - recv[r]) * each);
    }
    TRY(c->table->exchange(c, out, sends, in, recvs, s));
    return stream_wait(s);
}

// Begins of shares of these sizes, in their place; of this rank's own nothing.
static void begins(int64_t *count, int world, int rank) {
    int64_t sum = 0;
    for (int r = 0; r <= world; r++) {
        int64_t n = r == world || r == rank ? 0 : count[r];
        count[r] = sum, sum += n;
    }
}

// What each owner is asked for: cut [world + 1] (=) where its share of the set's keys begins; ask [world + 1] (=) where
// the keys begin that each rank asks this one for, in x->asked.
static err_t ask_owners(step_rows *x, const rows_set *k, int64_t *cut, int64_t *ask, stream *s) {
    comm *c = x->ranks;
    const int world = c->world;
    int64_t one[world + 1], n[world + 1];
    assert(world > 1);
    for (int r = 0; r <= world; r++) cut[r] = row_lower(k->key.data, k->keys, x->cut[r]), one[r] = r;
    for (int r = 0; r < world; r++) n[r] = cut[r + 1] - cut[r];
    TRY(exchange(x, n, one, ask, one, sizeof *n, s));
    begins(ask, world, c->rank);
    return exchange(x, k->key.data, cut, x->asked.data, ask, sizeof(row_key), s);
}

static err_t answer(step_rows *x, const rows_set *k, const int64_t *cut, const int64_t *ask) {
    float *values = k->values.data, *answer = x->answer.data;
    const row_key *key = k->key.data, *asked = x->asked.data;
    for (int r = 0; r < x->ranks->world; r++) {
        if (r == x->ranks->rank)
            TRY(row_table_look(table(x), key + cut[r], cut[r + 1] - cut[r], values + cut[r] * width(x)));
        else TRY(row_table_look(table(x), asked + ask[r], ask[r + 1] - ask[r], answer + ask[r] * width(x)));
    }
    return ERR_OK;
}

static void find_keys(step_rows *x, rows_set *k, const void *ids, int64_t B) {
    k->keys = B ? row_unique(ids, B * x->of->tables, x->of->tables, k->key.data, k->fetched.index.data, x->scratch.data,
                             x->more.data)
                : 0;
}

err_t step_rows_fetch(step_rows *x, int set, int64_t B, stream *s) {
    if (!x->of) return ERR_OK;
    const int world = x->ranks->world;
    rows_set *k = &x->set[set];
    int64_t cut[world + 1], ask[world + 1];
    TRY(stream_wait(s));
    find_keys(x, k, B ? k->ids->data : NULL, B);
    if (world == 1) return row_table_look(table(x), k->key.data, k->keys, k->values.data);
    TRY(ask_owners(x, k, cut, ask, s));
    TRY(answer(x, k, cut, ask));
    return exchange(x, x->answer.data, ask, k->values.data, cut, (size_t)width(x) * sizeof(float), s);
}

err_t step_rows_ahead(step_rows *x, int set, int64_t B, stream *s) {
    const int world = x->ranks->world, rank = x->ranks->rank;
    rows_set *k = &x->set[set];
    int64_t cut[world + 1], ask[world + 1];
    const row_key *key = k->key.data, *asked = x->asked.data;
    find_keys(x, k, x->next, B);
    if (world == 1) return row_table_ahead(table(x), key, k->keys);
    TRY(ask_owners(x, k, cut, ask, s));
    for (int r = 0; r < world; r++)
        TRY(row_table_ahead(table(x), r == rank ? key + cut[r] : asked + ask[r],
                            r == rank ? cut[r + 1] - cut[r] : ask[r + 1] - ask[r]));
    return ERR_OK;
}

// --- gradients -------------------------------------------------------------------------------------------------------

void step_rows_begin(step_rows *x) { x->own.spans = x->own.used = x->owned.spans = 0; }

void step_rows_keep(step_rows *x, int64_t lane, int64_t micro, int64_t micros) {
    row_pile *p = &x->own;
    const rows_set *k = &x->set[x->now];
    list_span *to = &p->span[p->spans++];
    *to = (list_span){.first = lane, .size = 1, .at = p->used, .n = k->keys};
    row_list list = list_at(x, p, to);
    memcpy(list.key, k->key.data, (size_t)list.n * sizeof *list.key);
    memcpy(list.row, x->gradient.data, (size_t)(list.n * width(x)) * sizeof *list.row);
    p->used += list.n;
    if (micro > 0) add_last(x, p);
    if (micro == micros - 1) add_siblings(x, p);
}

// mine [left here] of each owner, owner after owner; theirs [left of all]: how many rows of this rank's each list has.
static err_t count_rows(step_rows *x, int64_t *mine, int64_t *theirs, stream *s) {
    comm *c = x->ranks;
    int64_t left = x->own.spans, send[c->world + 1];
    for (int r = 0; r <= c->world; r++) send[r] = r * left;
    for (int r = 0; r < c->world; r++)
        for (int64_t k = 0; k < left; k++) {
            row_list list = list_at(x, &x->own, &x->own.span[k]);
            mine[r * left + k] = row_lower(list.key, list.n, x->cut[r + 1]) - row_lower(list.key, list.n, x->cut[r]);
        }
    memcpy(theirs + x->left_at[c->rank], mine + c->rank * left, (size_t)left * sizeof *mine);
    return exchange(x, mine, send, theirs, x->left_at, sizeof *mine, s);
}

// Where the lists of all ranks come, in order of lane.
static void place_lists(step_rows *x, const int64_t *theirs) {
    int64_t at = 0;
    for (int64_t i = 0; i < x->left_at[x->ranks->world]; i++) {
        list_span *of = &x->left[x->order[i]];
        of->at = at, of->n = theirs[x->order[i]];
        at += of->n;
    }
}

static void add_list(comm_part *part, int *n, int peer, const step_rows *x, const row_list *list) {
    add_part(part, n, peer, list->key, (size_t)list->n * sizeof *list->key);
    add_part(part, n, peer, list->row, (size_t)(list->n * width(x)) * sizeof *list->row);
}

// The owner's part of one of this rank's lists.
static row_list part_of(const step_rows *x, int64_t span, int owner) {
    row_list list = list_at(x, &x->own, &x->own.span[span]);
    int64_t from = row_lower(list.key, list.n, x->cut[owner]), to = row_lower(list.key, list.n, x->cut[owner + 1]);
    return (row_list){to - from, list.key + from, list.row + from * width(x)};
}

static err_t move_lists(step_rows *x, stream *s) {
    comm *c = x->ranks;
    comm_part *out = x->part, *in = out + 2 * x->own.spans * c->world;
    int sends = 0, recvs = 0;
    for (int r = 0; r < c->world; r++) {
        for (int64_t i = x->left_at[r]; i < x->left_at[r + 1]; i++) {
            row_list to = list_at(x, &x->owned, &x->left[i]);
            if (r != c->rank) add_list(in, &recvs, r, x, &to);
        }
        for (int64_t k = 0; k < x->own.spans; k++) {
            row_list from = part_of(x, k, r), to = list_at(x, &x->owned, &x->left[x->left_at[c->rank] + k]);
            if (r != c->rank) add_list(out, &sends, r, x, &from);
            else if (from.n) {
                memcpy(to.key, from.key, (size_t)from.n * sizeof *to.key);
                memcpy(to.row, from.row, (size_t)(from.n * width(x)) * sizeof *to.row);
            }
        }
    }
    TRY(c->table->exchange(c, out, sends, in, recvs, s));
    return stream_wait(s);
}

err_t step_rows_send(step_rows *x, stream *s) {
    int world = x->ranks->world;
    int64_t *mine = x->count, *theirs = mine + x->own.spans * world;
    if (world == 1) return ERR_OK;
    assert(x->own.spans == x->left_at[x->ranks->rank + 1] - x->left_at[x->ranks->rank]);
    TRY(count_rows(x, mine, theirs, s));
    place_lists(x, theirs);
    TRY(move_lists(x, s));
    for (int64_t i = 0; i < x->left_at[world]; i++) {
        x->owned.span[x->owned.spans++] = x->left[x->order[i]];
        add_siblings(x, &x->owned);
    }
    assert(x->owned.spans == 1);
    return ERR_OK;
}

// --- the step's end --------------------------------------------------------------------------------------------------

void step_rows_squares(const step_rows *x, const tensor *sums) {
    if (!x->of) return;
    row_list sum = sum_of(x);
    row_squares((double *)sums->data + tensor_count(sums) - ROW_BUCKETS, &sum, width(x));
}

void step_rows_count(const step_rows *x, const tensor *counts) {
    if (!x->of) return;
    row_list sum = sum_of(x);
    double *to = counts->data;
    to[0] = (double)row_table_rows(table(x));
    to[1] = (double)row_table_missing(table(x), sum.key, sum.n);
    to[2] = (double)row_table_cold(table(x));
}

err_t step_rows_update(step_rows *x, const step_state *decided) {
    if (!x->of) return ERR_OK;
    row_list sum = sum_of(x);
    if (decided->apply) TRY(row_table_update(table(x), &sum, &(row_rules){decided->grad_factor, decided->lr, ROW_EPS}));
    return row_table_cool(table(x));
}
