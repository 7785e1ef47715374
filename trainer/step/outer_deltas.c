// trainer/step/outer_deltas.c: see trainer/step/outer_deltas.h. With overlap what travels has buffers of its own, and
// what is computed meanwhile has others (outer_room.work).
#include "trainer/step/outer_deltas.h"

#include "comm/ordered.h"

static tensor buffer(const outer_room *x, int k, int64_t n) {
    return (tensor){(float *)x->sums.data + k * x->sums.size[1], FP32, 1, {n, 1, 1, 1}};
}

static tensor floats_of(const tensor *of, size_t at, int64_t n) {
    return of->data ? (tensor){(float *)of->data + at, FP32, 1, {n, 1, 1, 1}} : (tensor){0};
}

// --- a step of the anchor --------------------------------------------------------------------------------------------

// How far x has gone, with the sign turned, as a gradient is (algorithm 1, line 12).
err_t deltas_take(train_state *t, const zero_piece *p, const tensor *x, tensor *y) {
    static const sgd_rules plain = {0};
    tensor anchor = store_view(state_anchor(t), p);
    TRY(stream_copy(t->s, y->data, anchor.data, tensor_bytes(y)));
    return device_ops(t->dev)->sgd(&(sgd_args){.master = y, .grad = x, .state = t->outer.whole.data, .rules = &plain},
                                   t->s);
}

// What was learned alone stays in part: mine - (1 - keep) (mine - anchor) (arXiv 2501.18512, algorithm 2).
static err_t go_to_anchor(train_state *t, tensor *mine, const tensor *anchor) {
    static const sgd_rules plain = {0};
    const ops *o = device_ops(t->dev);
    if (!t->o.overlap) return stream_copy(t->s, mine->data, anchor->data, tensor_bytes(mine));
    tensor alone = buffer(&t->outer, t->outer.work + 1, tensor_count(mine));
    TRY(stream_copy(t->s, alone.data, mine->data, tensor_bytes(mine)));
    TRY(o->sgd(&(sgd_args){.master = &alone, .grad = anchor, .state = t->outer.whole.data, .rules = &plain}, t->s));
    return o->sgd(&(sgd_args){.master = mine, .grad = &alone, .state = t->outer.give.data, .rules = &plain}, t->s);
}

// The anchor takes its step (algorithm 1, line 14), or goes all the way.
err_t deltas_step(train_state *t, const zero_piece *p, const tensor *delta) {
    bool steps = state_steps_outer(t);
    sgd_rules rules = {.momentum = steps ? t->o.outer_momentum : 0, .nesterov = steps};
    tensor anchor = store_view(state_anchor(t), p), mine = store_view(&t->masters, p), momentum;
    if (rules.momentum > 0) momentum = store_view(&t->array[state_moments(t)], p);
    TRY(device_ops(t->dev)->sgd(&(sgd_args){.master = &anchor,
                                            .buf = rules.momentum > 0 ? &momentum : NULL,
                                            .grad = delta,
                                            .state = steps ? t->outer.step.data : t->outer.whole.data,
                                            .rules = &rules},
                                t->s));
    return go_to_anchor(t, &mine, &anchor);
}

// --- between islands -------------------------------------------------------------------------------------------------

// A fragment's message, on the stream that carries it.
typedef struct flight {
    train_state *t;
    const outer_fragment *f;
    stream *s;
} flight;

static const outer_piece *pieces_from(const train_state *t, const outer_fragment *f, int island) {
    return t->outer.piece + f->first[island];
}

static tensor wire_of(const outer_room *x, const outer_piece *p, char *at) {
    return (tensor){at, UINT8, 1, {(int64_t)outer_bytes(x, p), 1, 1, 1}};
}

static err_t encode(const flight *k, const outer_piece *p, const tensor *v, tensor *residual) {
    const outer_room *x = &k->t->outer;
    tensor wire = wire_of(x, p, (char *)x->out.data + p->there);
    if (!p->codes) return stream_copy(k->s, wire.data, v->data, tensor_bytes(v));
    return device_ops(k->t->dev)->encode(&(encode_args){.wire = &wire, .residual = residual, .x = v, .codec = x->codec},
                                         k->s);
}

static err_t decode(const flight *k, const outer_piece *p, char *from, bool add, tensor *y) {
    const outer_room *x = &k->t->outer;
    const ops *o = device_ops(k->t->dev);
    tensor wire = wire_of(x, p, from), plain = {from, FP32, 1, {p->of.count, 1, 1, 1}};
    if (p->codes) return o->decode(&(decode_args){.y = y, .wire = &wire, .codec = x->codec, .add = add}, k->s);
    if (add) return o->add(&(add_args){.y = y, .a = y, .b = &plain}, k->s);
    return stream_copy(k->s, y->data, from, tensor_bytes(y));
}

// How far this island's masters have gone.
static err_t code_deltas(const flight *k) {
    train_state *t = k->t;
    const outer_room *x = &t->outer;
    for (const outer_piece *p = pieces_from(t, k->f, 0); p < pieces_from(t, k->f, x->islands); p++) {
        tensor mine = store_view(&t->masters, &p->of), delta = buffer(x, x->work, p->of.count),
               residual = floats_of(&x->residual, p->of.shard, p->of.count);
        TRY(deltas_take(t, &p->of, &mine, &delta));
        TRY(encode(k, p, &delta, &residual));
    }
    return ERR_OK;
}

// To each piece's owner.
static err_t exchange(const flight *k) {
    const outer_room *x = &k->t->outer;
    comm *over = k->t->o.islands;
    int sends = 0, recvs = 0;
    comm_part send[OUTER_ISLANDS], recv[OUTER_ISLANDS];
    char *out = (char *)x->out.data + k->f->out, *in = (char *)x->in.data + k->f->in;
    size_t own = outer_part(k->f, x->island);
    for (int i = 0; i < x->islands; i++) {
        if (i == x->island) continue;
        if (outer_part(k->f, i)) send[sends++] = (comm_part){i, out + k->f->cut[i], outer_part(k->f, i)};
        if (!own) continue;
        recv[recvs] = (comm_part){i, in + (size_t)recvs * own, own};
        recvs++;
    }
    return over->table->exchange(over, send, sends, recv, recvs, k->s);
}

// What all islands' codes of a piece say, added along the tree of lanes, to the first buffer.
static err_t add_deltas(const flight *k, const outer_piece *p) {
    const outer_room *x = &k->t->outer;
    int64_t n = p->of.count;
    size_t own = outer_part(k->f, x->island), at = p->there - k->f->out - k->f->cut[x->island];
    char *in = (char *)x->in.data + k->f->in + at;
    lane_counter c = {0};
    for (int i = 0; i < x->islands; i++) {
        lane_place to = lane_counter_begin(&c, i, true);
        tensor y = buffer(x, to.buffer, n);
        TRY(decode(k, p, i == x->island ? (char *)x->out.data + p->there : in, to.joins, &y));
        if (i != x->island) in += own;
        lane_counter_end(&c, i, to);
        for (int into, from; lane_counter_merge(&c, &into, &from);) {
            tensor sum = buffer(x, into, n), more = buffer(x, from, n);
            TRY(device_ops(k->t->dev)->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, k->s));
        }
    }
    return ERR_OK;
}

// The sums go to all islands, coded once more.
static err_t return_sums(const flight *k) {
    const outer_room *x = &k->t->outer;
    comm *over = k->t->o.islands;
    for (const outer_piece *p = pieces_from(k->t, k->f, x->island); p < pieces_from(k->t, k->f, x->island + 1); p++) {
        tensor sum = buffer(x, 0, p->of.count),
               residual = floats_of(&x->residual_back, p->of.shard - x->back_at, p->of.count);
        TRY(add_deltas(k, p));
        TRY(encode(k, p, &sum, &residual));
    }
    return over->table->all_gather(over, (char *)x->out.data + k->f->out, k->f->cut, k->s);
}

static err_t travel(const flight *k) {
    TRY(exchange(k));
    return return_sums(k);
}

static err_t travel_beside(void *ctx, stream *inner) {
    flight k = *(const flight *)ctx;
    k.s = inner;
    return travel(&k);
}

err_t deltas_send(train_state *t, int fragment) {
    outer_room *x = &t->outer;
    outer_fragment *f = &x->fragment[fragment];
    const flight k = {t, f, t->s};
    if (!f->cut[x->islands]) return ERR_OK;  // a rank may own nothing of it, on no island
    TRY(code_deltas(&k));
    if (!t->o.overlap) return travel(&k);
    TRY(event_record(x->left, t->s));
    TRY(stream_wait_event(x->beside, x->left));
    TRY(stream_call(x->beside, travel_beside, &k, sizeof k));
    f->travels = true;
    return event_record(f->arrived, x->beside);
}

// --- what comes of it ------------------------------------------------------------------------------------------------

// All islands, owners too, use what these codes say.
static err_t mean_of(train_state *t, const outer_fragment *f, const outer_piece *p, tensor *mean) {
    const outer_room *x = &t->outer;
    tensor sum = buffer(x, x->work, p->of.count);
    TRY(decode(&(flight){t, f, t->s}, p, (char *)x->out.data + p->there, false, &sum));
    TRY(stream_zero(t->s, mean->data, tensor_bytes(mean)));
    return device_ops(t->dev)->average(
        &(average_args){.x = mean, .sum = &sum, .count = x->islands, .momentum = 1, .state = x->whole.data}, t->s);
}

err_t deltas_use(train_state *t, int fragment) {
    const outer_fragment *f = &t->outer.fragment[fragment];
    for (const outer_piece *p = pieces_from(t, f, 0); p < pieces_from(t, f, t->outer.islands); p++) {
        tensor mean = buffer(&t->outer, t->outer.work + 1, p->of.count);
        TRY(mean_of(t, f, p, &mean));
        TRY(deltas_step(t, &p->of, &mean));
    }
    return ERR_OK;
}

err_t deltas_keep(train_state *t, int fragment) {
    outer_fragment *f = &t->outer.fragment[fragment];
    if (!f->travels) return ERR_OK;
    TRY(stream_wait_event(t->s, f->arrived));
    for (const outer_piece *p = pieces_from(t, f, 0); p < pieces_from(t, f, t->outer.islands); p++) {
        tensor mean = store_view(state_flight(t), &p->of);
        TRY(mean_of(t, f, p, &mean));
    }
    f->travels = false;
    return ERR_OK;
}

err_t deltas_land(train_state *t, int fragment) {
    const outer_fragment *f = &t->outer.fragment[fragment];
    TRY(deltas_keep(t, fragment));
    for (const outer_piece *p = pieces_from(t, f, 0); p < pieces_from(t, f, t->outer.islands); p++) {
        tensor mean = store_view(state_flight(t), &p->of);
        TRY(deltas_step(t, &p->of, &mean));
        TRY(stream_zero(t->s, mean.data, tensor_bytes(&mean)));
    }
    return ERR_OK;
}

comm_cost deltas_cost(const train_state *t, int fragment) {
    const outer_fragment *f = &t->outer.fragment[fragment];
    const comm *over = t->o.islands;
    comm_cost sum = {0};
    if (!f->cut[t->outer.islands]) return sum;
    for (int k = 0; k < t->outer.islands; k++)
        if (k != t->outer.island && outer_part(f, k))
            sum = cost_add(sum, cost_send(over, k, (int64_t)outer_part(f, k), 1));
    return cost_add(sum, cost_all_gather(over, f->cut));
}
