// trainer/step/outer.c: see trainer/step/outer.h. What a rank owns is many pieces, most of them small, so as many as
// fit are put side by side in the room and travel together.
#include "trainer/step/outer.h"

// Where the walk over all that is mixed has come to: the masters (store 0), then each array of the optimizer.
typedef struct cursor {
    int store, piece;
    int64_t first;  // element of the piece
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

// The outer optimizer's own momentum is the same on all islands.
static int stores(const train_state *t) { return 1 + t->arrays - state_steps_outer(t); }

// The next run, to stand at out->at. False: there is no room for more in this part, or no more.
static bool next_run(const train_state *t, cursor *c, outer_run *out) {
    const zero_layout *z = &t->zero;
    int64_t room = t->outer.most - out->at;
    for (;;) {
        if (c->store == stores(t) || room <= 0) return false;
        if (c->piece == z->owned) c->store++, c->piece = 0;
        else if (t->net->param[z->piece[c->piece].row].tied >= 0) c->piece++;
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

// The anchor's step: the gradient is how far the mean has gone from it, with the sign turned (algorithm 1, lines 12 and
// 14). delta: room for it.
static err_t step_anchor(train_state *t, tensor *anchor, tensor *momentum, const tensor *mean, tensor *delta) {
    static const sgd_rules plain = {0};
    sgd_rules rules = {.momentum = t->o.outer_momentum, .nesterov = true};
    const ops *o = device_ops(t->dev);
    TRY(stream_copy(t->s, delta->data, anchor->data, tensor_bytes(delta)));
    TRY(o->sgd(&(sgd_args){.master = delta, .grad = mean, .state = t->outer.whole.data, .rules = &plain}, t->s));
    return o->sgd(&(sgd_args){.master = anchor,
                              .buf = rules.momentum > 0 ? momentum : NULL,
                              .grad = delta,
                              .state = t->outer.step.data,
                              .rules = &rules},
                  t->s);
}

static err_t put_run(train_state *t, const outer_run *r) {
    int64_t n = r->of.count;
    tensor mine = store_view(state_store(t, r->store), &r->of), mean = part(&t->outer, 0, r->at, n),
           delta = part(&t->outer, 1, r->at, n);
    if (r->store > 0 || !state_steps_outer(t)) return stream_copy(t->s, mine.data, mean.data, tensor_bytes(&mine));
    tensor anchor = store_view(&t->anchor, &r->of), momentum = store_view(&t->array[t->arrays - 1], &r->of);
    TRY(step_anchor(t, &anchor, &momentum, &mean, &delta));
    return stream_copy(t->s, mine.data, anchor.data, tensor_bytes(&mine));
}

// What the two operations read of a step: it counts, and its gradients are as they are.
static err_t put_rules(train_state *t) {
    const step_state whole = {.lr = 1, .apply = 1, .grad_factor = 1},
                     step = {.lr = (float)t->o.outer_lr, .apply = 1, .grad_factor = 1};
    TRY(stream_copy(t->s, t->outer.whole.data, &whole, sizeof whole));
    TRY(stream_copy(t->s, t->outer.step.data, &step, sizeof step));
    return stream_wait(t->s);
}

err_t outer_mix(train_state *t) {
    TRY(put_rules(t));
    for (cursor from = {0}, to = {0};; from = to) {
        int64_t each = fill(t, &to);
        if (each == 0) return state_mixed(t);
        TRY(copy_runs(t, from));
        TRY(take_means(t, each));
        cursor c = from;
        for (outer_run r = {0}; next_run(t, &c, &r); r.at = end_of(&r)) TRY(put_run(t, &r));
    }
}

comm_cost outer_cost(const train_state *t) {
    const comm *over = t->o.islands;
    comm_cost sum = {0};
    size_t cut[OUTER_ISLANDS + 1];
    cursor c = {0};
    for (int64_t each; (each = fill(t, &c)) > 0;) {
        cuts_of(t, each / over->world, cut);
        for (int k = 0; k < over->world; k++)
            if (k != over->rank) sum = cost_add(sum, cost_send(over, k, (int64_t)cut[1], 1));
        sum = cost_add(sum, cost_all_gather(over, cut));
    }
    return sum;
}
