// trainer/step/links.c: see trainer/step/links.h.
#include "trainer/step/links.h"

#include <stdlib.h>

unsigned links_of(const pipeline_layout *l, bool tied) {
    unsigned all = l->ranks == 1                                      ? 0
                   : l->kind == PIPELINE_ZB_V                         ? LINKS_V
                   : l->kind == PIPELINE_INTERLEAVED && l->chunks > 1 ? LINKS_LOOP
                                                                      : LINKS_PLAIN;
    return all | (tied && l->ranks > 1 ? 1u << LINK_TIED : 0);
}

// The number of the link for the input of `stage`, or its gradient, on this rank. The ranks of both stages are
// neighbours in the ring of ranks: the stage before is on the rank before (plain), after (the second half of a V), or
// on the last one (several chunks).
static int number_of(const stages *of, int stage, message_kind kind) {
    int from = stages_rank(of, stage - 1), to = stages_rank(of, stage), last = of->pipe.ranks - 1;
    bool loop = of->pipe.kind == PIPELINE_INTERLEAVED && from == last && to == 0, down = !loop && to < from;
    link_kind forward = loop ? LINK_LOOP_FORWARD : down ? LINK_DOWN_FORWARD : LINK_FORWARD;
    bool after = loop ? of->rank == last : of->rank == (from < to ? from : to);
    return 2 * (int)(kind == MESSAGE_ACTIVATIONS ? forward : forward + 1) + !after;
}

static comm *link_at(const groups *ranks, int number) {
    return (number % 2 ? ranks->before : ranks->after)[number / 2];
}

static err_t open_link(links *x, int number, device *dev) {
    if (x->to[number]) return ERR_OK;
    x->to[number] = link_at(x->ranks, number);
    if (!x->to[number]) return err_set(ERR_INTERNAL, "link %d of stage rank %d is not open", number, x->of->rank);
    TRY(event_open(dev, &x->ready[number]));
    return stream_open_queue(dev, &x->side[number]);
}

// By stage and slot: the message that sends the activations.
static err_t pair_messages(links *x) {
    const unit_table *t = &x->of->table;
    int *sent = malloc(((size_t)x->of->count * (size_t)t->slots + 1) * sizeof *sent);
    if (!sent) return err_set(ERR_INTERNAL, "no memory for %d slots", t->slots);
    for (int i = 0; i < t->messages; i++) x->before[i] = -1;
    for (int i = 0; i < t->units; i++) {
        const unit *u = &t->unit[i];
        int *at = &sent[u->stage * t->slots + u->slot];
        if (u->kind == UNIT_FORWARD) *at = u->send;
        else if (u->receive >= 0) x->before[u->receive] = *at;
    }
    free(sent);
    return ERR_OK;
}

static err_t open_messages(links *x, device *dev) {
    const unit_table *t = &x->of->table;
    x->done = calloc((size_t)t->messages + 1, sizeof *x->done);
    x->before = calloc((size_t)t->messages + 1, sizeof *x->before);
    if (!x->done || !x->before) return err_set(ERR_INTERNAL, "no memory for %d messages", t->messages);
    x->messages = t->messages;
    TRY(pair_messages(x));
    for (int i = 0; i < t->messages; i++) {
        int n = number_of(x->of, t->message[i].stage, t->message[i].kind);
        TRY(open_link(x, n, dev));
        TRY(event_open(dev, &x->done[i]));
        if (t->message[i].sends) x->last[n] = i;
    }
    return ERR_OK;
}

err_t links_open(links *x, const stages *of, const groups *ranks, device *dev, stream *s, bool training) {
    *x = (links){.of = of, .ranks = ranks, .s = s};
    for (int n = 0; n < LINKS_MOST; n++) x->last[n] = -1;
    return training ? open_messages(x, dev) : ERR_OK;
}

void links_close(links *x) {
    for (int k = 0; k < LINKS_MOST; k++) {
        if (x->side[k]) stream_close(x->side[k]);
        if (x->ready[k]) event_close(x->ready[k]);
    }
    for (int i = 0; i < x->messages; i++)
        if (x->done[i]) event_close(x->done[i]);
    free(x->done), free(x->before);
    *x = (links){0};
}

typedef struct link_call {
    comm *to;
    void *data;
    size_t bytes;
    int64_t step;
    int stage;
    bool sends;
    message_kind kind;
} link_call;

static err_t run_call(void *ctx, stream *inner) {
    static const char *const what[2][2] = {{"receive activations of stage", "receive gradients of stage"},
                                           {"send activations to stage", "send gradients from stage"}};
    const link_call *k = ctx;
    k->to->phase = (comm_phase){what[k->sends][k->kind], k->step, k->stage};
    return k->sends ? comm_send(k->to, 1 - k->to->rank, k->data, k->bytes, inner)
                    : comm_recv(k->to, 1 - k->to->rank, k->data, k->bytes, inner);
}

err_t links_post(links *x, int i, void *data, size_t bytes, int64_t step) {
    const message *m = &x->of->table.message[i];
    int n = number_of(x->of, m->stage, m->kind);
    TRY(event_record(x->ready[n], x->s));
    TRY(stream_wait_event(x->side[n], x->ready[n]));
    TRY(stream_call(x->side[n], run_call, &(link_call){x->to[n], data, bytes, step, m->stage, m->sends, m->kind},
                    sizeof(link_call)));
    return event_record(x->done[i], x->side[n]);
}

event *links_done(const links *x, int message) { return x->done[message]; }

err_t links_left(const links *x, int message) {
    int before = x->before[message];
    return before < 0 ? ERR_OK : stream_wait_event(x->s, x->done[before]);
}

err_t links_settle(links *x) {
    for (int n = 0; n < LINKS_MOST; n++)
        if (x->last[n] >= 0) TRY(stream_wait_event(x->s, x->done[x->last[n]]));
    return ERR_OK;
}

err_t links_pass(links *x, int stage, bool sends, void *data, size_t bytes) {
    comm *to = link_at(x->ranks, number_of(x->of, stage, MESSAGE_ACTIVATIONS));
    return run_call(&(link_call){to, data, bytes, -1, stage, sends, MESSAGE_ACTIVATIONS}, x->s);
}

comm_cost links_cost(const groups *ranks, const stages *of, const message *m, size_t bytes) {
    const comm *to = link_at(ranks, number_of(of, m->stage, m->kind));
    return m->sends ? cost_send(to, 1 - to->rank, (int64_t)bytes, 1) : (comm_cost){0};
}
