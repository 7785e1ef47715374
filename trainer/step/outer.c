// trainer/step/outer.c: see trainer/step/outer.h. What a rank owns is many pieces, most of them small, so as many as
// fit are put side by side in the room and travel together.
#include "trainer/step/outer.h"

#include "trainer/step/outer_deltas.h"
#include "trainer/step/tied.h"

// --- as it is --------------------------------------------------------------------------------------------------------

// Where a walk over all that travels as it is has come to: the masters (store 0), where no deltas are sent for them,
// then each array of the optimizer that is mixed.
typedef struct cursor {
    int store, end, piece;
    int64_t first;      // element of the piece
    const bool *mixed;  // [params] which tensors; NULL: all
} cursor;

// Elements of a piece that travel together, and where they are in a part.
typedef struct outer_run {
    int store;
    zero_piece of;
    int64_t at;
} outer_run;

// Elements from `first` on of a part: 0: what this rank brings, and then the means. 1: what the others bring of its
// slice.
static tensor part(const outer_room *x, int k, int64_t first, int64_t n) {
    return (tensor){(float *)x->room.data + k * x->most + first, FP32, 1, {n, 1, 1, 1}};
}

// The outer optimizer's own momentum is the same on all islands, and so is all that comes after it.
static int stores(const train_state *t) { return 1 + (t->o.own_moments ? 0 : state_moments(t)); }
static cursor beginning(const train_state *t, const bool *mixed) {
    return (cursor){.store = t->outer.deltas ? 1 : 0, .end = stores(t), .mixed = mixed};
}

static bool takes(const train_state *t, const cursor *c, int row) {
    return t->net->param[row].tied < 0 && (!c->mixed || c->mixed[row]);
}

// The next run, to stand at out->at. False: there is no room for more in this part, or no more.
static bool next_run(const train_state *t, cursor *c, outer_run *out) {
    const zero_layout *z = &t->zero;
    int64_t room = t->outer.most - out->at;
    for (;;) {
        if (c->store >= c->end || room <= 0) return false;
        if (c->piece == z->owned) c->store++, c->piece = 0;
        else if (!takes(t, c, z->piece[c->piece].row)) c->piece++;
        else break;
    }
    zero_piece *p = &out->of;
    *p = z->piece[c->piece], out->store = c->store;
    int64_t rest = p->count - c->first, n = rest < room ? rest : room;
    p->first += c->first, p->slab += (size_t)c->first, p->shard += (size_t)c->first, p->count = n;
    c->first += n;
    if (n == rest) c->piece++, c->first = 0;
    return true;
}

static int64_t end_of(const outer_run *r) {
    return (r->at + r->of.count + OUTER_ALIGN - 1) / OUTER_ALIGN * OUTER_ALIGN;
}

// Moves the cursor on by as many runs as the room takes. Returns the elements of it that they use: equal slices for all
// islands.
static int64_t fill(const train_state *t, cursor *c) {
    int64_t unit = OUTER_ALIGN * t->o.islands->world;
    outer_run r = {0};
    while (next_run(t, c, &r)) r.at = end_of(&r);
    return (r.at + unit - 1) / unit * unit;
}

static err_t copy_runs(train_state *t, cursor c) {
    for (outer_run r = {0}; next_run(t, &c, &r); r.at = end_of(&r)) {
        tensor from = store_view(state_store(t, r.store), &r.of), to = part(&t->outer, 0, r.at, r.of.count);
        TRY(stream_copy(t->s, to.data, from.data, tensor_bytes(&to)));
    }
    return ERR_OK;
}

// The sum of all islands' slices of n elements, to the first of them. The others are overwritten.
static err_t add_islands(train_state *t, int64_t n) {
    int K = t->o.islands->world;
    for (int span = 1; span < K; span *= 2)
        for (int k = 0; k < K; k += 2 * span) {
            tensor sum = part(&t->outer, 1, k * n, n), more = part(&t->outer, 1, (k + span) * n, n);
            TRY(device_ops(t->dev)->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, t->s));
        }
    return ERR_OK;
}

// Of slices of n elements, in bytes.
static void cuts_of(const train_state *t, int64_t n, size_t cut[OUTER_ISLANDS + 1]) {
    for (int k = 0; k <= t->o.islands->world; k++) cut[k] = (size_t)(k * n) * sizeof(float);
}

// The means over the islands, to part 0. Each takes the mean of a slice, and all get all of them.
static err_t take_means(train_state *t, int64_t each) {
    comm *c = t->o.islands;
    int64_t n = each / c->world;
    size_t cut[OUTER_ISLANDS + 1];
    tensor all = part(&t->outer, 0, 0, each), sum = part(&t->outer, 1, 0, n), mean = part(&t->outer, 0, c->rank * n, n);
    cuts_of(t, n, cut);
    TRY(c->table->all_to_all(c, sum.data, all.data, cut[1], t->s));
    TRY(add_islands(t, n));
    TRY(stream_zero(t->s, mean.data, tensor_bytes(&mean)));
    // from zero, so that this is the sum divided by a power of two, which is exact
    TRY(device_ops(t->dev)->average(&(average_args){.x = &mean,
                                                    .sum = &sum,
                                                    .count = c->world,
                                                    .momentum = 1,
                                                    .state = (const step_state *)t->outer.whole.data},
                                    t->s));
    return c->table->all_gather(c, all.data, cut, t->s);
}

static err_t put_run(train_state *t, const outer_run *r) {
    int64_t n = r->of.count;
    tensor mine = store_view(state_store(t, r->store), &r->of), mean = part(&t->outer, 0, r->at, n),
           delta = part(&t->outer, 1, r->at, n);
    if (r->store > 0 || !state_steps_outer(t)) return stream_copy(t->s, mine.data, mean.data, tensor_bytes(&mine));
    TRY(deltas_take(t, &r->of, &mean, &delta));
    return deltas_step(t, &r->of, &delta);
}

static err_t walk(train_state *t, cursor from) {
    for (cursor to = from;; from = to) {
        int64_t each = fill(t, &to);
        if (each == 0) return ERR_OK;
        TRY(copy_runs(t, from));
        TRY(take_means(t, each));
        cursor c = from;
        for (outer_run r = {0}; next_run(t, &c, &r); r.at = end_of(&r)) TRY(put_run(t, &r));
    }
}

static comm_cost walk_cost(const train_state *t, cursor c) {
    const comm *over = t->o.islands;
    comm_cost sum = {0};
    size_t cut[OUTER_ISLANDS + 1];
    for (int64_t each; (each = fill(t, &c)) > 0;) {
        cuts_of(t, each / over->world, cut);
        for (int k = 0; k < over->world; k++)
            if (k != over->rank) sum = cost_add(sum, cost_send(over, k, (int64_t)cut[1], 1));
        sum = cost_add(sum, cost_all_gather(over, cut));
    }
    return sum;
}

// --- when ------------------------------------------------------------------------------------------------------------

static bool leaves(const train_state *t, int fragment, int64_t step) {
    return step > 0 && fragment_is_due(&t->outer.rules.of[fragment], step);
}

static bool arrives(const train_state *t, int fragment, int64_t step) {
    return leaves(t, fragment, step - t->o.overlap);
}

bool outer_is_due(const train_state *t, int64_t step) {
    for (int f = 0; f < t->outer.count; f++)
        if (leaves(t, f, step) || arrives(t, f, step)) return true;
    return false;
}

int64_t outer_cycle(const train_state *t) {
    int64_t all = 1;
    for (int f = 0; f < t->outer.count && all <= OUTER_CYCLE; f++) {
        int64_t a = all, b = t->outer.rules.of[f].period;
        while (b > 0) {
            int64_t rest = a % b;
            a = b, b = rest;
        }
        all *= t->outer.rules.of[f].period / a;
    }
    return all < OUTER_CYCLE ? all : OUTER_CYCLE;
}

// Elements of the whole model, of which each rank has its share.
static int64_t leaving(const train_state *t, int64_t step) {
    int64_t n = 0;
    for (int i = 0; i < t->net->params; i++)
        if (t->net->param[i].tied < 0 && leaves(t, t->outer.of_row[i], step))
            n += param_slices(&t->net->param[i]) * param_slice_room(&t->net->param[i]);
    return n;
}

int64_t outer_busiest(const train_state *t) {
    int64_t cycle = outer_cycle(t), most = -1, at = cycle;
    for (int64_t step = cycle; step > 0; step--) {
        int64_t n = leaving(t, step);
        if (n >= most) most = n, at = step;
    }
    return at;
}

// Notes which tensors are mixed after the step. Returns whether any is.
static bool mark(const train_state *t, int64_t step) {
    bool any = false;
    for (int i = 0; i < t->net->params; i++) any |= t->outer.mixed[i] = arrives(t, t->outer.of_row[i], step);
    return any;
}

// Where islands hold the same at boundaries, all that a rank has is made anew there.
static const bool *mixed(const train_state *t) { return state_apart(t) ? t->outer.mixed : NULL; }

// --- a step's end ----------------------------------------------------------------------------------------------------

static err_t put_rule(train_state *t, const tensor *to, double lr) {
    const step_state rule = {.lr = (float)lr, .apply = 1, .grad_factor = 1};
    return stream_copy(t->s, to->data, &rule, sizeof rule);
}

// What the operations read of a step: it counts, and its gradients are as they are.
static err_t put_rules(train_state *t) {
    TRY(put_rule(t, &t->outer.whole, 1));
    TRY(put_rule(t, &t->outer.step, t->o.outer_lr));
    if (t->o.overlap) TRY(put_rule(t, &t->outer.give, 1 - t->o.keep));
    return stream_wait(t->s);
}

static err_t mix_deltas(train_state *t, int64_t step) {
    for (int f = 0; f < t->outer.count && t->outer.deltas; f++) {
        if (t->o.overlap && arrives(t, f, step)) TRY(deltas_land(t, f));
        if (leaves(t, f, step)) TRY(deltas_send(t, f));
        if (!t->o.overlap && leaves(t, f, step)) TRY(deltas_use(t, f));
    }
    return ERR_OK;
}

err_t outer_mix(train_state *t, int64_t step) {
    bool any = mark(t, step);
    TRY(put_rules(t));
    TRY(mix_deltas(t, step));
    if (!any) return ERR_OK;
    TRY(walk(t, beginning(t, mixed(t))));
    return state_mixed(t, mixed(t));
}

comm_cost outer_cost(const train_state *t, int64_t step) {
    comm_cost sum = {0};
    for (int f = 0; f < t->outer.count && t->outer.deltas; f++)
        if (leaves(t, f, step)) sum = cost_add(sum, deltas_cost(t, f));
    return mark(t, step) ? cost_add(sum, walk_cost(t, beginning(t, mixed(t)))) : sum;
}

comm_cost outer_cost_inside(train_state *t, int64_t step) {
    return mark(t, step) ? state_mixed_cost(t, mixed(t)) : (comm_cost){0};
}

// --- islands that are apart ------------------------------------------------------------------------------------------

err_t outer_wait(train_state *t) { return t->outer.beside ? stream_wait(t->outer.beside) : ERR_OK; }

err_t outer_collect(train_state *t) {
    int shown = state_shown(t);
    if (!state_apart(t)) return ERR_OK;
    TRY(outer_wait(t));
    TRY(put_rules(t));
    for (int f = 0; f < t->outer.count; f++) TRY(deltas_keep(t, f));
    for (int i = 0; i < t->zero.owned; i++) {
        const zero_piece *p = &t->zero.piece[i];
        tensor from = store_view(&t->masters, p), to = store_view(state_store(t, shown), p);
        if (t->net->param[p->row].tied < 0) TRY(stream_copy(t->s, to.data, from.data, tensor_bytes(&to)));
    }
    return walk(t, (cursor){.store = shown, .end = shown + 1});
}

// Masters and their mean change places, a room at a time.
static err_t swap(train_state *t) {
    store *mean = state_store(t, state_shown(t));
    for (int i = 0; i < t->zero.owned; i++) {
        zero_piece p = t->zero.piece[i];
        if (t->net->param[p.row].tied >= 0) continue;
        for (int64_t rest = p.count, n; rest > 0; rest -= n) {
            p.count = n = rest < t->outer.most ? rest : t->outer.most;
            tensor a = store_view(&t->masters, &p), b = store_view(mean, &p), aside = part(&t->outer, 0, 0, n);
            TRY(stream_copy(t->s, aside.data, a.data, tensor_bytes(&a)));
            TRY(stream_copy(t->s, a.data, b.data, tensor_bytes(&a)));
            TRY(stream_copy(t->s, b.data, aside.data, tensor_bytes(&a)));
            p.first += n, p.slab += (size_t)n, p.shard += (size_t)n;
        }
    }
    TRY(state_mixed(t, NULL));
    return tied_values(t, t->s);
}

err_t outer_show(train_state *t) {
    if (!state_apart(t)) return ERR_OK;
    TRY(outer_collect(t));
    return swap(t);
}

err_t outer_hide(train_state *t) { return state_apart(t) ? swap(t) : ERR_OK; }
