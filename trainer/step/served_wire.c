// trainer/step/served_wire.c: see trainer/step/served_wire.h. A worker has a communicator with each server, on which
// the two are alone; so the servers are independent of each other.
#include "trainer/step/served_wire.h"

#include "trainer/step/spread.h"
#include "trainer/step/sync.h"

err_t served_send(comm *c, int to, const served_head *x, stream *s) { return comm_send(c, to, x, sizeof *x, s); }
err_t served_receive(comm *c, int from, served_head *x, stream *s) { return comm_recv(c, from, x, sizeof *x, s); }

// Servers are the last of those that share rows.
static int owner_of(const train_state *t, int server) { return t->zero.world - t->o.servers + server; }

static comm_part part_of(const train_state *t, int owner, int segment, size_t element, char *base, bool slab) {
    const zero_layout *z = &t->zero;
    size_t at = slab ? z->segment[segment].at + z->cut[(size_t)segment * (size_t)(z->world + 1) + (size_t)owner]
                     : z->shard_at[segment];
    return (comm_part){.peer = slab ? SERVED_SERVER : SERVED_WORKER,
                       .data = base ? base + at * element : NULL,  // on paper
                       .bytes = zero_range(z, segment, owner) * element};
}

int served_weights(const train_state *t, int server, int segment, size_t element, char *base, bool slab,
                   comm_part *part) {
    if (t->zero.segment[segment].tied) return 0;
    *part = part_of(t, owner_of(t, server), segment, element, base, slab);
    return part->bytes > 0;
}

int served_bucket(const train_state *t, int server, int bucket, char *base, bool slab, comm_part *part) {
    const zero_bucket *b = &t->zero.bucket[bucket];
    int parts = 0;
    for (int g = b->first; g < b->first + b->count; g++) {
        part[parts] = part_of(t, owner_of(t, server), g, sizeof(float), base, slab);
        parts += part[parts].bytes > 0;
    }
    return parts;
}

static err_t push_bucket(parallel *x, int k, int64_t turn, stream *inner) {
    train_state *t = x->state;
    comm_part part[t->zero.segments];
    (void)turn;
    for (int s = 0; s < t->o.servers; s++) {
        comm *c = t->o.server[s];
        int parts = served_bucket(t, s, k, t->slab[0].data, true, part);
        if (parts) TRY(c->table->exchange(c, part, parts, NULL, 0, inner));
    }
    return ERR_OK;
}

static err_t push_cost(train_state *t, int k, int64_t turn, comm_cost *out) {
    comm_part part[t->zero.segments];
    (void)turn;
    *out = (comm_cost){0};
    for (int s = 0; s < t->o.servers && !t->o.serves; s++) {
        int parts = served_bucket(t, s, k, NULL, true, part);
        for (int i = 0; i < parts; i++)
            *out = cost_add(*out, cost_send(t->ranks, owner_of(t, s), (int64_t)part[i].bytes, 1));
    }
    return ERR_OK;
}

const gradient_policy gradients_pushed = {.reduce = push_bucket, .cost = push_cost};

static err_t pull_segment(parallel *x, int g, int64_t turn, stream *inner) {
    train_state *t = x->state;
    comm_part part;
    (void)turn;
    for (int s = 0; s < t->o.servers; s++) {
        comm *c = t->o.server[s];
        if (served_weights(t, s, g, dtype_bytes(t->o.compute), t->weights.t.data, true, &part))
            TRY(c->table->exchange(c, NULL, 0, &part, 1, inner));
    }
    return ERR_OK;
}

// They arrive while the forward pass begins.
static err_t pull(parallel *x) {
    const train_state *t = x->state;
    TRY(parallel_follow(x));
    for (int g = 0; g < t->zero.segments; g++) {
        if (t->zero.segment[g].tied) continue;
        TRY(parallel_queue(x, "pull weights", pull_segment, g, 0, x->arrived[g]));
        x->fresh[g] = true;
    }
    return ERR_OK;
}

// A server sends its weights to each worker once for each of its pushes, so in a step once to all.
static comm_cost pull_cost(train_state *t) {
    comm_cost sum = {0};
    size_t element = dtype_bytes(t->o.compute);
    for (int g = 0; g < t->zero.segments && t->o.serves; g++)
        for (int w = 0; w < t->zero.world - t->o.servers && !t->zero.segment[g].tied; w++) {
            int64_t bytes = (int64_t)(zero_range(&t->zero, g, t->zero.rank) * element);
            if (bytes) sum = cost_add(sum, cost_send(t->ranks, w, bytes, 1));
        }
    return sum;
}

const weight_policy weights_pulled = {.need = spread_need, .spread = pull, .spread_cost = pull_cost};
