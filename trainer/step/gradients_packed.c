// trainer/step/gradients_packed.c: [reduce] compress. At a turn each rank codes its lane and sends owners their parts;
// an owner adds what the codes say along the tree of comm/ordered.h, over its own ranges. See trainer/step/packed.h.
#include "trainer/step/sync.h"

// A bucket, at a turn.
typedef struct part {
    parallel *x;
    train_state *t;
    const packed *p;
    int bucket;
    int64_t turn;
    stream *s;
} part;

static tensor floats(const tensor *of, size_t at, int64_t n) {
    return (tensor){(float *)of->data + at, FP32, 1, {n, 1, 1, 1}};
}

static tensor bytes_of(void *data, size_t n) { return (tensor){data, UINT8, 1, {(int64_t)n, 1, 1, 1}}; }

static err_t encode(const part *k, const packed_piece *p, codec c, const tensor *x, tensor *residual, char *to) {
    tensor wire = bytes_of(to, packed_bytes(p, c, 0));
    if (!p->codes || c == CODEC_NONE) return stream_copy(k->s, to, x->data, (size_t)p->count * sizeof(float));
    return k->x->ops->encode(
        &(encode_args){.wire = &wire, .residual = residual, .x = x, .codec = c, .state = state_step(k->t)}, k->s);
}

static err_t decode(const part *k, const packed_piece *p, codec c, char *from, bool add, tensor *y) {
    tensor wire = bytes_of(from, packed_bytes(p, c, 0)), plain = {from, FP32, 1, {p->count, 1, 1, 1}};
    if (p->codes && c != CODEC_NONE)
        return k->x->ops->decode(&(decode_args){.y = y, .wire = &wire, .codec = c, .add = add}, k->s);
    if (add) return k->x->ops->add(&(add_args){.y = y, .a = y, .b = &plain}, k->s);
    return stream_copy(k->s, y->data, from, (size_t)p->count * sizeof(float));
}

// Lanes' largest elements, with the momentum that sgd would have (gpu/ops.h: encode_sparse).
static err_t encode_largest(const part *k, const packed_piece *p) {
    int64_t kept = k->p->sparse.kept;
    const optimizer_keys *o = k->t->o.keys;
    tensor wire = bytes_of((char *)k->t->out.data + p->there, packed_bytes(p, CODEC_NONE, kept)),
           x = floats(&k->t->slab[0], p->slab, p->count),
           residual = floats(&k->t->residual[k->turn], p->slab, p->count),
           velocity = floats(&k->t->velocity[k->turn], p->slab, p->count);
    return k->x->ops->encode_sparse(&(encode_sparse_args){.wire = &wire,
                                                          .velocity = &velocity,
                                                          .residual = &residual,
                                                          .x = &x,
                                                          .kept = kept,
                                                          .momentum = (float)o->momentum,
                                                          .nesterov = o->nesterov,
                                                          .state = state_step(k->t),
                                                          .clip = k->t->lane_step.data},
                                    k->s);
}

static err_t decode_largest(const part *k, const packed_piece *p, char *from, tensor *y) {
    int64_t kept = k->p->sparse.kept;
    tensor wire = bytes_of(from, packed_bytes(p, CODEC_NONE, kept));
    return k->x->ops->decode_sparse(&(decode_sparse_args){.y = y, .wire = &wire, .kept = kept}, k->s);
}

// Decides how much of this rank's lane is left when it is clipped (Lin et al. 2018, section 3.2), as it is decided for
// a whole gradient: all of the lane is here before its first bucket is reduced.
static err_t decide_clip(const part *k) {
    train_state *t = k->t;
    int64_t n = 0;
    for (int i = 0; i < t->zero.wholes; i++) {
        const zero_piece *p = &t->zero.whole[i];
        if (t->net->param[p->row].rule == PARAM_AVERAGE) continue;
        tensor x = floats(&t->slab[0], p->slab, p->count);
        tensor sums = {(double *)t->lane_sums.data + n, FP64, 1, {(p->count + CHUNK - 1) / CHUNK, 1, 1, 1}};
        TRY(k->x->ops->sum_squares(&(sum_squares_args){.sums = &sums, .g = &x}, k->s));
        n += tensor_count(&sums);
    }
    tensor all = {t->lane_sums.data, FP64, 1, {n, 1, 1, 1}};
    TRY(stream_copy(k->s, t->lane_step.data, t->step.data, sizeof(step_state)));
    return k->x->ops->step_decide(
        &(step_decide_args){.state = t->lane_step.data, .sums = &all, .rules = &t->lane_rules}, k->s);
}

// --- lanes to owners -------------------------------------------------------------------------------------------------

// A rank takes part in the first turns, a lane in each, so the turn is the number of its lane.
static err_t encode_lane(const part *k) {
    const int *first = packed_first(k->p, k->bucket);
    for (const packed_piece *p = k->p->piece + first[0]; p < k->p->piece + first[k->p->world]; p++) {
        tensor x = floats(&k->t->slab[0], p->slab, p->count),
               residual = floats(&k->t->residual[k->turn], p->slab, p->count);
        if (k->p->sparse.kept && p->codes) TRY(encode_largest(k, p));
        else TRY(encode(k, p, k->p->to, &x, &residual, (char *)k->t->out.data + p->there));
    }
    return ERR_OK;
}

// What a rank adds: its part of a bucket, or the whole. `first`: where that begins.
static size_t own_bytes(const part *k, int owner) {
    const size_t *cut = packed_there(k->p, k->bucket);
    return k->p->sparse.all ? cut[k->p->world] : cut[owner + 1] - cut[owner];
}
static size_t own_at(const part *k, int owner) { return k->p->sparse.all ? 0 : packed_there(k->p, k->bucket)[owner]; }

static bool has_lane(const part *k, int rank) { return lane_table_at(reduce_lanes(k->t->reduce), rank, k->turn) >= 0; }

// What this rank sends to others and receives from them, and how many messages that is.
static void list_parts(const part *k, comm_part *send, int *sends, comm_part *recv, int *recvs) {
    int me = k->t->ranks->rank;
    *sends = *recvs = 0;
    for (int r = 0; r < k->p->world; r++) {
        if (r == me) continue;
        if (has_lane(k, me) && own_bytes(k, r))
            send[(*sends)++] = (comm_part){r, (char *)k->t->out.data + own_at(k, r), own_bytes(k, r)};
        if (!has_lane(k, r) || !own_bytes(k, me)) continue;
        char *to = (char *)k->t->in.data + (size_t)*recvs * k->p->most_own;
        recv[(*recvs)++] = (comm_part){r, to, own_bytes(k, me)};
    }
}

static err_t add_pieces(const part *k, int into, int from) {
    const int *first = packed_first(k->p, k->bucket) + k->t->ranks->rank;
    for (const packed_piece *p = k->p->piece + first[0]; p < k->p->piece + first[1]; p++) {
        tensor sum = floats(&k->t->kept[into], p->shard, p->count),
               more = floats(&k->t->kept[from], p->shard, p->count);
        TRY(k->x->ops->add(&(add_args){.y = &sum, .a = &sum, .b = &more}, k->s));
    }
    return ERR_OK;
}

// One lane's codes of the pieces that this rank owns: `from` is where its part of the message begins.
static err_t add_lane(const part *k, char *from, lane_place to) {
    int me = k->t->ranks->rank;
    const int *first = packed_first(k->p, k->bucket) + me;
    size_t base = packed_there(k->p, k->bucket)[me];
    for (const packed_piece *p = k->p->piece + first[0]; p < k->p->piece + first[1]; p++) {
        tensor y = floats(&k->t->kept[to.buffer], p->shard, p->count);
        TRY(decode(k, p, k->p->to, from + (p->there - base), to.joins, &y));
    }
    return ERR_OK;
}

// The pieces that this rank adds up, and where it does so.
static void own_pieces(const part *k, const packed_piece **begin, const packed_piece **end) {
    const int *first = packed_first(k->p, k->bucket);
    int me = k->t->ranks->rank;
    *begin = k->p->piece + first[k->p->sparse.all ? 0 : me];
    *end = k->p->piece + first[k->p->sparse.all ? k->p->world : me + 1];
}
static tensor sum_of(const part *k, const packed_piece *p) {
    return floats(&k->t->kept[0], k->p->sparse.all ? p->slab : p->shard, p->count);
}

// As add_turn, but into zeros, lane after lane: the same order in every layout, without buffers for subtrees.
static err_t add_largest(const part *k) {
    const packed_piece *begin, *end;
    int me = k->t->ranks->rank;
    char *in = k->t->in.data;
    own_pieces(k, &begin, &end);
    for (const packed_piece *p = begin; p < end && k->turn == 0; p++) {
        tensor y = sum_of(k, p);
        TRY(stream_zero(k->s, y.data, tensor_bytes(&y)));
    }
    for (int r = 0; r < k->p->world; r++) {
        if (!has_lane(k, r)) continue;
        char *from = r == me ? (char *)k->t->out.data + own_at(k, me) : in;
        if (r != me) in += k->p->most_own;
        for (const packed_piece *p = begin; p < end; p++) {
            tensor y = sum_of(k, p);
            char *at = from + (p->there - own_at(k, me));
            if (p->codes) TRY(decode_largest(k, p, at, &y));
            else TRY(decode(k, p, CODEC_NONE, at, true, &y));
        }
    }
    return ERR_OK;
}

// The turn's lanes, in order: a lane that has a left sibling is added to it at once.
static err_t add_turn(const part *k) {
    const lane_table *lanes = reduce_lanes(k->t->reduce);
    int64_t span = lane_table_span(lanes);
    lane_counter c = lane_counter_of(0, packed_before(lanes, k->turn) / span, true);
    char *in = k->t->in.data;
    for (int r = 0; r < k->p->world; r++) {
        int64_t first = lane_table_at(lanes, r, k->turn), number = first / span;
        if (first < 0) continue;
        bool mine = r == k->t->ranks->rank;
        lane_place to = lane_counter_begin(&c, number, true);
        TRY(add_lane(k, mine ? (char *)k->t->out.data + packed_there(k->p, k->bucket)[r] : in, to));
        if (!mine) in += k->p->most_own;
        lane_counter_end(&c, number, to);
        for (int into, from; lane_counter_merge(&c, &into, &from);) TRY(add_pieces(k, into, from));
    }
    return ERR_OK;
}

// --- sums to all -----------------------------------------------------------------------------------------------------

// This rank's sums become what their codes say, which are in `out`, at `back`.
static err_t code_sums(const part *k) {
    const int *first = packed_first(k->p, k->bucket) + k->t->ranks->rank;
    for (const packed_piece *p = k->p->piece + first[0]; p < k->p->piece + first[1]; p++) {
        tensor sum = floats(&k->t->kept[0], p->shard, p->count),
               residual = floats(&k->t->residual_back, p->shard, p->count);
        char *wire = (char *)k->t->out.data + p->back;
        TRY(encode(k, p, k->p->from, &sum, &residual, wire));
        if (k->t->shards.masters) TRY(decode(k, p, k->p->from, wire, false, &sum));
    }
    return ERR_OK;
}

// ZeRO 0: all ranks' codes, and what they say, in the slab.
static err_t return_codes(const part *k) {
    const int *first = packed_first(k->p, k->bucket);
    if (k->p->world > 1)
        TRY(k->x->ranks->table->all_gather(k->x->ranks, k->t->out.data, packed_back(k->p, k->bucket), k->s));
    for (const packed_piece *p = k->p->piece + first[0]; p < k->p->piece + first[k->p->world]; p++) {
        tensor y = floats(&k->t->slab[0], p->slab, p->count);
        TRY(decode(k, p, k->p->from, (char *)k->t->out.data + p->back, false, &y));
    }
    return ERR_OK;
}

static err_t finish(const part *k) {
    if (k->p->sparse.all || (k->p->from == CODEC_NONE && k->t->shards.masters)) return ERR_OK;
    TRY(code_sums(k));
    return k->t->shards.masters ? ERR_OK : return_codes(k);
}

// --- the policy ------------------------------------------------------------------------------------------------------

static err_t reduce(parallel *x, int bucket, int64_t turn, stream *inner) {
    train_state *t = x->state;
    part k = {.x = x, .t = t, .p = packed_at(&t->packed, x->step), .bucket = bucket, .turn = turn, .s = inner};
    int world = t->ranks->world, sends, recvs;
    comm_part send[world], recv[world];
    if (has_lane(&k, t->ranks->rank) && t->o.lane_clip > 0 && bucket == 0) TRY(decide_clip(&k));
    if (has_lane(&k, t->ranks->rank)) TRY(encode_lane(&k));
    list_parts(&k, send, &sends, recv, &recvs);
    if (world > 1) TRY(x->ranks->table->exchange(x->ranks, send, sends, recv, recvs, inner));
    TRY(k.p->sparse.kept ? add_largest(&k) : add_turn(&k));
    return turn + 1 == reduce_turns(t->reduce) ? finish(&k) : ERR_OK;
}

// Of steps after those of density_warmup.
static err_t cost(train_state *t, int bucket, int64_t turn, comm_cost *out) {
    part k = {.t = t, .p = packed_last(&t->packed), .bucket = bucket, .turn = turn};
    int me = t->ranks->rank;
    *out = (comm_cost){0};
    for (int r = 0; r < k.p->world; r++)
        if (r != me && has_lane(&k, me) && own_bytes(&k, r))
            *out = cost_add(*out, cost_send(t->ranks, r, (int64_t)own_bytes(&k, r), 1));
    if (turn + 1 == reduce_turns(t->reduce) && !t->shards.masters && !k.p->sparse.all && k.p->world > 1)
        *out = cost_add(*out, cost_all_gather(t->ranks, packed_back(k.p, bucket)));
    return ERR_OK;
}

const gradient_policy gradients_packed = {.reduce = reduce, .cost = cost};
