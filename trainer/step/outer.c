// trainer/step/outer.c: see trainer/step/outer.h. What a rank owns is many pieces, most of them small, so as many as
// fit are put side by side in the room and travel together.
#include "trainer/step/outer.h"

#include "comm/ordered.h"

// --- as it is --------------------------------------------------------------------------------------------------------

// Where the walk over all that travels as it is has come to: the masters (store 0), where they are not coded, then each
// array of the optimizer that is mixed.
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
static int stores(const train_state *t) { return 1 + (t->o.own_moments ? 0 : state_moments(t)); }
static cursor beginning(const train_state *t) { return (cursor){.store = outer_codes(&t->outer) ? 1 : 0}; }

// The next run, to stand at out->at. False: there is no room for more in this part, or no more.
static bool next_run(const train_state *t, cursor *c, outer_run *out) {
    const zero_layout *z = &t->zero;
    int64_t room = t->outer.most - out->at;
    for (;;) {
        if (c->store >= stores(t) || room <= 0) return false;
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

// y = anchor - x: how far x has gone from a piece of it, with the sign turned, as a gradient is (algorithm 1, line 12).
static err_t take_delta(train_state *t, const zero_piece *p, const tensor *x, tensor *y) {
    static const sgd_rules plain = {0};
    tensor anchor = store_view(&t->anchor, p);
    TRY(stream_copy(t->s, y->data, anchor.data, tensor_bytes(y)));
    return device_ops(t->dev)->sgd(&(sgd_args){.master = y, .grad = x, .state = t->outer.whole.data, .rules = &plain},
                                   t->s);
}

// A piece of the anchor takes its step (line 14), or goes all the way, and the masters begin from there.
static err_t step_anchor(train_state *t, const zero_piece *p, const tensor *delta) {
    bool steps = state_steps_outer(t);
    sgd_rules rules = {.momentum = steps ? t->o.outer_momentum : 0, .nesterov = steps};
    tensor anchor = store_view(&t->anchor, p), mine = store_view(&t->masters, p), momentum;
    if (rules.momentum > 0) momentum = store_view(&t->array[t->arrays - 1], p);
    TRY(device_ops(t->dev)->sgd(&(sgd_args){.master = &anchor,
                                            .buf = rules.momentum > 0 ? &momentum : NULL,
                                            .grad = delta,
                                            .state = steps ? t->outer.step.data : t->outer.whole.data,
                                            .rules = &rules},
                                t->s));
    return stream_copy(t->s, mine.data, anchor.data, tensor_bytes(&mine));
}

static err_t put_run(train_state *t, const outer_run *r) {
    int64_t n = r->of.count;
    tensor mine = store_view(state_store(t, r->store), &r->of), mean = part(&t->outer, 0, r->at, n),
           delta = part(&t->outer, 1, r->at, n);
    if (r->store > 0 || !state_steps_outer(t)) return stream_copy(t->s, mine.data, mean.data, tensor_bytes(&mine));
    TRY(take_delta(t, &r->of, &mean, &delta));
    return step_anchor(t, &r->of, &delta);
}

static err_t mix_plainly(train_state *t) {
    for (cursor from = beginning(t), to = from;; from = to) {
        int64_t each = fill(t, &to);
        if (each == 0) return ERR_OK;
        TRY(copy_runs(t, from));
        TRY(take_means(t, each));
        cursor c = from;
        for (outer_run r = {0}; next_run(t, &c, &r); r.at = end_of(&r)) TRY(put_run(t, &r));
    }
}

// --- in codes --------------------------------------------------------------------------------------------------------

static tensor sum_of(const outer_room *x, int buffer, int64_t n) {
    return (tensor){(float *)x->sums.data + buffer * x->sums.size[1], FP32, 1, {n, 1, 1, 1}};
}

static tensor floats_of(const tensor *of, size_t at, int64_t n) {
    return (tensor){(float *)of->data + at, FP32, 1, {n, 1, 1, 1}};
}

static tensor wire_of(const outer_room *x, const outer_piece *p, char *at) {
    return (tensor){at, UINT8, 1, {(int64_t)outer_bytes(x, p), 1, 1, 1}};
}

static err_t encode(train_state *t, const outer_piece *p, const tensor *v, tensor *residual) {
    const outer_room *x = &t->outer;
    tensor wire = wire_of(x, p, (char *)x->out.data + p->there);
    if (!p->codes) return stream_copy(t->s, wire.data, v->data, tensor_bytes(v));
    return device_ops(t->dev)->encode(&(encode_args){.wire = &wire, .residual = residual, .x = v, .codec = x->codec},
                                      t->s);
}

static err_t decode(train_state *t, const outer_piece *p, char *from, bool add, tensor *y) {
    const outer_room *x = &t->outer;
    const ops *o = device_ops(t->dev);
    tensor wire = wire_of(x, p, from), plain = {from, FP32, 1, {p->of.count, 1, 1, 1}};
    if (p->codes) return o->decode(&(decode_args){.y = y, .wire = &wire, .codec = x->codec, .add = add}, t->s);
    if (add) return o->add(&(add_args){.y = y, .a = y, .b = &plain}, t->s);
    return stream_copy(t->s, y->data, from, tensor_bytes(y));
}

// How far this island's masters have gone, to each piece's owner.
static err_t send_deltas(train_state *t) {
    outer_room *x = &t->outer;
    int sends = 0, recvs = 0, own = x->island;
    comm_part send[OUTER_ISLANDS], recv[OUTER_ISLANDS];
    for (const outer_piece *p = x->piece; p < x->piece + x->first[x->islands]; p++) {
        tensor mine = store_view(&t->masters, &p->of), delta = sum_of(x, 0, p->of.count),
               residual = floats_of(&x->residual, p->of.shard, p->of.count);
        TRY(take_delta(t, &p->of, &mine, &delta));
        TRY(encode(t, p, &delta, &residual));
    }
    for (int k = 0; k < x->islands; k++) {
        if (k == own) continue;
        if (outer_part(x, k)) send[sends++] = (comm_part){k, (char *)x->out.data + x->cut[k], outer_part(x, k)};
        if (!outer_part(x, own)) continue;
        recv[recvs] = (comm_part){k, (char *)x->in.data + (size_t)recvs * outer_part(x, own), outer_part(x, own)};
        recvs++;
    }
    return t->o.islands->table->exchange(t->o.islands, send, sends, recv, recvs, t->s);
}

// What all islands' codes of a piece say, added along the tree of lanes, to the first buffer.
static err_t add_deltas(train_state *t, const outer_piece *p) {
    const outer_room *x = &t->outer;
    int64_t n = p->of.count;
    size_t at = p->there - x->cut[x->island];
    char *in = x->in.data;
    lane_counter c = {0};
    for (int k = 0; k < x->islands; k++) {
        lane_place to = lane_counter_begin(&c, k, true);
        tensor y = sum_of(x, to.buffer, n);
        TRY(decode(t, p, k == x->island ? (char *)x->out.data + p->there : in + at, to.joins, &y));
        if (k != x->island) in += outer_part(x, x->island);
        lane_counter_end(&c, k, to);
        for (int into, from; lane_counter_merge(&c, &into, &from);) {
            tensor sum = sum_of(x, into, n), more = sum_of(x, from, n);
            TRY(device_ops(t->dev)->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, t->s));
        }
    }
    return ERR_OK;
}

// The sums go to all islands, coded once more.
static err_t return_sums(train_state *t) {
    const outer_room *x = &t->outer;
    for (const outer_piece *p = x->piece + x->first[x->island]; p < x->piece + x->first[x->island + 1]; p++) {
        tensor sum = sum_of(x, 0, p->of.count),
               residual = floats_of(&x->residual_back, p->of.shard - x->back_at, p->of.count);
        TRY(add_deltas(t, p));
        TRY(encode(t, p, &sum, &residual));
    }
    return t->o.islands->table->all_gather(t->o.islands, x->out.data, x->cut, t->s);
}

// All islands, owners too, use what these codes say.
static err_t put_codes(train_state *t, const outer_piece *p) {
    const outer_room *x = &t->outer;
    tensor sum = sum_of(x, 0, p->of.count), mean = sum_of(x, 1, p->of.count);
    TRY(decode(t, p, (char *)x->out.data + p->there, false, &sum));
    TRY(stream_zero(t->s, mean.data, tensor_bytes(&mean)));
    TRY(device_ops(t->dev)->average(
        &(average_args){.x = &mean, .sum = &sum, .count = x->islands, .momentum = 1, .state = x->whole.data}, t->s));
    return step_anchor(t, &p->of, &mean);
}

static err_t mix_codes(train_state *t) {
    const outer_room *x = &t->outer;
    if (!outer_codes(x) || !x->cut[x->islands]) return ERR_OK;  // a rank may own nothing, on no island
    TRY(send_deltas(t));
    TRY(return_sums(t));
    for (const outer_piece *p = x->piece; p < x->piece + x->first[x->islands]; p++) TRY(put_codes(t, p));
    return ERR_OK;
}

// --- both ------------------------------------------------------------------------------------------------------------

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
    TRY(mix_codes(t));
    TRY(mix_plainly(t));
    return state_mixed(t);
}

static comm_cost codes_cost(const train_state *t) {
    const comm *over = t->o.islands;
    const outer_room *x = &t->outer;
    comm_cost sum = {0};
    if (!outer_codes(x) || !x->cut[x->islands]) return sum;
    for (int k = 0; k < x->islands; k++)
        if (k != x->island && outer_part(x, k)) sum = cost_add(sum, cost_send(over, k, (int64_t)outer_part(x, k), 1));
    return cost_add(sum, cost_all_gather(over, x->cut));
}

comm_cost outer_cost(const train_state *t) {
    const comm *over = t->o.islands;
    comm_cost sum = codes_cost(t);
    size_t cut[OUTER_ISLANDS + 1];
    cursor c = beginning(t);
    for (int64_t each; (each = fill(t, &c)) > 0;) {
        cuts_of(t, each / over->world, cut);
        for (int k = 0; k < over->world; k++)
            if (k != over->rank) sum = cost_add(sum, cost_send(over, k, (int64_t)cut[1], 1));
        sum = cost_add(sum, cost_all_gather(over, cut));
    }
    return sum;
}
