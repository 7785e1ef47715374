// trainer/step/pipeline.c: see trainer/step/pipeline.h. First the order of units, one function a schedule; then
// buffers, which are dealt to spans of units; then messages, which follow from both.
#include "trainer/step/pipeline.h"

#include "trainer/config/pipes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

// --- layouts ---------------------------------------------------------------------------------------------------------

const char *pipeline_name(pipeline_kind kind) {
    static const char *const names[] = {PIPELINE_WORDS(WORD_NAME)};
    return names[kind];
}

int pipeline_stages(const pipeline_layout *l) { return l->ranks * l->chunks; }

int pipeline_stage_of(const pipeline_layout *l, int rank, int chunk) {
    if (l->kind == PIPELINE_ZB_V && chunk == 1) return 2 * l->ranks - 1 - rank;
    return chunk * l->ranks + rank;
}

int pipeline_rank_of(const pipeline_layout *l, int stage) {
    if (l->kind == PIPELINE_ZB_V && stage >= l->ranks) return 2 * l->ranks - 1 - stage;
    return stage % l->ranks;
}

int pipeline_fifo(const pipeline_layout *l, int from, int to, message_kind kind) {
    return 4 * from + 2 * (to != (from + 1) % l->ranks) + (int)kind;
}

bool pipeline_halves(pipeline_kind kind) { return kind == PIPELINE_ZB_H1 || kind == PIPELINE_ZB_V; }

// What the settings of a run were checked for already (trainer/config/layout.c).
err_t pipeline_check(const pipeline_layout *l) {
    if ((int)l->kind < 0 || l->kind >= PIPELINE_KINDS)
        return err_set(ERR_INTERNAL, "no pipeline schedule has the number %d", (int)l->kind);
    if (l->ahead < 0) return err_set(ERR_INTERNAL, "receives %d units ahead: expected 0 or more", l->ahead);
    const char *name = pipeline_name(l->kind), *why = "";
    switch (pipe_judge(l->kind, l->ranks, l->chunks, l->micros)) {
    case PIPE_FITS: return ERR_OK;
    case PIPE_EMPTY: why = "1 or more of each"; break;
    case PIPE_CHUNKS:
        why = l->kind == PIPELINE_ZB_V          ? "2 stages a rank"
              : l->kind == PIPELINE_INTERLEAVED ? "1 stage a rank or more"
                                                : "1 stage a rank";
        break;
    case PIPE_GROUPS: why = "micro-batches that are a multiple of the ranks"; break;
    case PIPE_TOO_FEW: why = "as many micro-batches as ranks, or more"; break;
    case PIPE_TOO_MANY: why = "fewer units of work"; break;
    }
    return err_set(ERR_CONFIG, "pipeline schedule %s: %d micro-batches, %d stages a rank and %d ranks: expected %s",
                   name, l->micros, l->chunks, l->ranks, why);
}

// --- the order of units ----------------------------------------------------------------------------------------------

// While a table is made. Places are (chunk, micro-batch), chunk * m + micro.
typedef struct maker {
    const pipeline_layout *l;
    int rank;
    unit_table *out;
    // by (stage, micro-batch): index of FORWARD, of BACKWARD or INPUTS, of the last unit that reads its slot
    int *forward, *backward, *last;
    // by unit: the buffer that it receives into is free after this unit. -1: from the start
    int *freed;
    int received;  // gradient buffers that units here read
    // by whether it comes from the rank after, and kind: when the last receive was posted
    int posted[2][MESSAGE_KINDS];
    int room;    // units that the table must have
    bool wrong;  // it has others
} maker;

// Micro-batches that do not exist are left out: schedules need not know their end.
static void push(maker *m, unit_kind kind, int chunk, int micro) {
    unit_table *o = m->out;
    if (micro >= m->l->micros) return;
    int pair = chunk * m->l->micros + micro, stage = pipeline_stage_of(m->l, m->rank, chunk);
    int *index = kind == UNIT_FORWARD ? m->forward : kind == UNIT_WEIGHTS ? m->last : m->backward;
    m->wrong |= o->units == m->room || index[pair] >= 0;
    if (m->wrong) return;
    index[pair] = o->units;
    if (kind == UNIT_BACKWARD) m->last[pair] = o->units;
    o->unit[o->units++] = (unit){kind, stage, micro, -1, -1, -1, -1, -1, -1};
}

static void gpipe(maker *m) {
    for (int i = 0; i < m->l->micros; i++) push(m, UNIT_FORWARD, 0, i);
    for (int i = 0; i < m->l->micros; i++) push(m, UNIT_BACKWARD, 0, i);
}

// Rank r begins with p - 1 - r forwards: just then the first gradient can be there. zb-h1 holds each weights' half back
// by r more micro-batches, so that all ranks hold p, and fills with them the time in which gradients are on their way
// at the end.
static void one_forward_one_backward(maker *m) {
    int micros = m->l->micros, r = m->rank, warm_up = least(micros, m->l->ranks - 1 - r);
    bool two = pipeline_halves(m->l->kind);
    for (int k = 0; k < micros + warm_up; k++) {
        push(m, UNIT_FORWARD, 0, k);
        if (k >= warm_up) push(m, two ? UNIT_INPUTS : UNIT_BACKWARD, 0, k - warm_up);
        if (two && k - warm_up >= r) push(m, UNIT_WEIGHTS, 0, k - warm_up - r);
    }
    for (int i = most(0, micros - r); two && i < micros; i++) push(m, UNIT_WEIGHTS, 0, i);
}

// Micro-batches go in groups of p, each group through all chunks of the rank; backward through the chunks in reverse.
static void interleaved(maker *m) {
    int p = m->l->ranks, v = m->l->chunks, n = v * m->l->micros;
    int warm_up = least(n, v == 1 ? p - 1 - m->rank : 2 * (p - 1 - m->rank) + (v - 1) * p);
    for (int k = 0; k < n + warm_up; k++) {
        int b = k - warm_up;
        if (k < n) push(m, UNIT_FORWARD, k % (p * v) / p, k / (p * v) * p + k % p);
        if (b >= 0) push(m, UNIT_BACKWARD, v - 1 - b % (p * v) / p, b / (p * v) * p + b % p);
    }
}

static void inputs_and_weights(maker *m, int chunk, int micro) {
    push(m, UNIT_INPUTS, chunk, micro);
    push(m, UNIT_WEIGHTS, chunk, micro);
}

// Chunk 0 goes down the ranks, chunk 1 comes up again. With fewer than 2p - 1 micro-batches this is the table of 2p - 1
// without those that do not exist.
static void zb_v(maker *m) {
    int p = m->l->ranks, r = m->rank, micros = most(m->l->micros, 2 * p - 1);
    int f0 = 0, f1 = 0, b0 = 0, b1 = 0;  // the next micro-batch of each
    while (f0 < 2 * (p - r) - 1) push(m, UNIT_FORWARD, 0, f0++);
    while (f1 < r) push(m, UNIT_FORWARD, 1, f1++), push(m, UNIT_FORWARD, 0, f0++);
    while (f1 < p) push(m, UNIT_FORWARD, 1, f1++), inputs_and_weights(m, 1, b1++);
    while (f1 < micros) {
        if (f0 < micros) push(m, UNIT_FORWARD, 0, f0++);
        inputs_and_weights(m, 0, b0++);
        push(m, UNIT_FORWARD, 1, f1++);
        inputs_and_weights(m, 1, b1++);
    }
    int w0 = b0, w1 = b1;
    while (b1 < micros) push(m, UNIT_INPUTS, 0, b0++), push(m, UNIT_INPUTS, 1, b1++);
    while (b0 < micros) push(m, UNIT_INPUTS, 0, b0++), push(m, UNIT_WEIGHTS, 0, w0++);
    while (w1 < micros) push(m, UNIT_WEIGHTS, 1, w1++);
    while (w0 < micros) push(m, UNIT_WEIGHTS, 0, w0++);
}

static void order(maker *m) {
    switch (m->l->kind) {
    case PIPELINE_GPIPE: gpipe(m); break;
    case PIPELINE_INTERLEAVED: interleaved(m); break;
    case PIPELINE_ZB_V: zb_v(m); break;
    default: one_forward_one_backward(m); break;
    }
}

// --- buffers ---------------------------------------------------------------------------------------------------------

// A buffer is in use from before unit `from` until unit `to` is done.
typedef struct span {
    int from, to;
    int buffer, freed;  // found by deal(): which one, and the unit after which it was free
} span;

static int by_from(const void *a, const void *b) {
    const span *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

// Walks the units. At each the spans that begin there take the buffers that have been free the longest, so that
// receives can be posted as early as possible; then the span that ends there frees its own. `ring` has the free ones;
// without it they are only counted. Returns how many are in use at once.
static int walk(span *s, int count, int units, const int *ends, span *ring, int buffers) {
    int next = 0, used = 0, top = 0, head = 0;
    for (int u = 0; u < units; u++) {
        for (; next < count && s[next].from <= u; next++) {
            used++;
            if (ring) s[next].buffer = ring[head].buffer, s[next].freed = ring[head].freed, head = (head + 1) % buffers;
        }
        top = most(top, used);
        if (ends[u] < 0) continue;
        if (ring) ring[(head + buffers - used) % buffers] = (span){.buffer = s[ends[u]].buffer, .freed = u};
        used--;
    }
    return top;
}

// Spans get as few buffers as there are spans at any time (interval graphs are perfect: no order of units needs fewer).
// At most one span ends at a unit.
static err_t deal(span *s, int count, int units, int *buffers) {
    qsort(s, (size_t)count, sizeof *s, by_from);
    int *ends = malloc((size_t)units * sizeof *ends);
    span *ring = malloc((size_t)(count + 1) * sizeof *ring);
    if (ends && ring) {
        memset(ends, -1, (size_t)units * sizeof *ends);
        for (int i = 0; i < count; i++) ends[s[i].to] = i;
        *buffers = walk(s, count, units, ends, NULL, 0);
        for (int i = 0; i < *buffers; i++) ring[i] = (span){.buffer = i, .freed = -1};
        walk(s, count, units, ends, ring, *buffers);
    }
    bool failed = !ends || !ring;
    free(ends);
    free(ring);
    return failed ? err_set(ERR_INTERNAL, "no memory for the buffers of %d units", units) : ERR_OK;
}

static int pair_of(const maker *m, int stage, int micro) { return stage / m->l->ranks * m->l->micros + micro; }

static bool is_here(const maker *m, int stage) { return pipeline_rank_of(m->l, stage) == m->rank; }

static bool has_stage(const maker *m, int stage) { return stage >= 0 && stage < pipeline_stages(m->l); }

// Memory belongs to a stage's blocks, so each chunk has slots of its own, which follow those of the chunks before.
static err_t deal_slots(maker *m, span *s) {
    unit_table *o = m->out;
    int micros = m->l->micros, slots;
    for (int at = 0; at < m->l->chunks * micros; at += micros, o->slots += slots) {
        for (int i = 0; i < micros; i++)
            s[i] = (span){.from = most(0, m->forward[at + i] - m->l->ahead), .to = m->last[at + i]};
        TRY(deal(s, micros, o->units, &slots));
        for (int i = 0; i < micros; i++) {
            int pair = at + o->unit[s[i].to].micro;
            m->freed[m->forward[pair]] = s[i].freed;
            o->unit[m->forward[pair]].slot = o->unit[m->backward[pair]].slot = o->unit[m->last[pair]].slot =
                o->slots + s[i].buffer;
        }
    }
    return ERR_OK;
}

// Those that units here read. The gradient of a boundary whose both stages are here is made by the next stage's unit.
static err_t deal_gradients(maker *m, span *s) {
    unit_table *o = m->out;
    int count = 0;
    for (int i = 0; i < m->l->chunks * m->l->micros; i++) {
        const unit *u = &o->unit[m->backward[i]];
        if (!has_stage(m, u->stage + 1)) continue;
        bool here = is_here(m, u->stage + 1);
        int from = here ? m->backward[pair_of(m, u->stage + 1, u->micro)] : most(0, m->backward[i] - m->l->ahead);
        s[count++] = (span){.from = from, .to = m->last[i]};
    }
    TRY(deal(s, count, o->units, &m->received));
    for (int i = 0; i < count; i++) {
        int stage = o->unit[s[i].to].stage, micro = o->unit[s[i].to].micro, pair = pair_of(m, stage, micro);
        m->freed[m->backward[pair]] = s[i].freed;
        o->unit[m->backward[pair]].gradient_in = o->unit[m->last[pair]].gradient_in = s[i].buffer;
        if (is_here(m, stage + 1)) o->unit[m->backward[pair_of(m, stage + 1, micro)]].gradient_out = s[i].buffer;
    }
    return ERR_OK;
}

// --- messages --------------------------------------------------------------------------------------------------------

// A slot for a later unit may be free earlier. Its receive waits for those before it, as it does at the sender.
static int post_receive(maker *m, message_kind kind, int peer, int u) {
    int *posted = &m->posted[peer == (m->rank + 1) % m->l->ranks][kind];
    return *posted = most(*posted, m->freed[u]);
}

static void add_message(maker *m, message_kind kind, bool sends, int peer_stage, int u) {
    const unit *x = &m->out->unit[u];
    bool activations = kind == MESSAGE_ACTIVATIONS;
    if (!has_stage(m, peer_stage) || is_here(m, peer_stage)) return;
    int peer = pipeline_rank_of(m->l, peer_stage);
    m->out->message[m->out->messages++] = (message){.kind = kind,
                                                    .sends = sends,
                                                    .peer = peer,
                                                    .stage = most(x->stage, peer_stage),
                                                    .micro = x->micro,
                                                    .buffer = activations ? x->slot
                                                              : sends     ? x->gradient_out
                                                                          : x->gradient_in,
                                                    .unit = u,
                                                    .after = sends ? u : post_receive(m, kind, peer, u)};
}

static int by_post(const void *a, const void *b) {
    const message *x = a, *y = b;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);  // a send comes first: its unit is that one, a receive's is later
}

// Gradients that leave take turns in buffers of their own: one, or two where receives are ahead.
static void add_messages(maker *m) {
    unit_table *o = m->out;
    int turns = m->l->ahead ? 2 : 1, sent = 0;
    for (int u = 0; u < o->units; u++) {
        unit *x = &o->unit[u];
        if (x->kind == UNIT_WEIGHTS) continue;
        if (x->kind == UNIT_FORWARD) {
            add_message(m, MESSAGE_ACTIVATIONS, false, x->stage - 1, u);
            add_message(m, MESSAGE_ACTIVATIONS, true, x->stage + 1, u);
            continue;
        }
        if (has_stage(m, x->stage - 1) && !is_here(m, x->stage - 1)) x->gradient_out = m->received + sent++ % turns;
        add_message(m, MESSAGE_GRADIENTS, false, x->stage + 1, u);
        add_message(m, MESSAGE_GRADIENTS, true, x->stage - 1, u);
    }
    qsort(o->message, (size_t)o->messages, sizeof *o->message, by_post);
    o->gradients = m->received + least(sent, turns);
    int left[2] = {-1, -1};  // the last message out of each
    for (int i = 0; i < o->messages; i++) {
        message *x = &o->message[i];
        *(x->sends ? &o->unit[x->unit].send : &o->unit[x->unit].receive) = i;
        if (!x->sends || x->kind != MESSAGE_GRADIENTS) continue;
        o->unit[x->unit].reuse = left[x->buffer - m->received];
        left[x->buffer - m->received] = i;
    }
}

// --- the table -------------------------------------------------------------------------------------------------------

static err_t make(maker *m, span *spans) {
    order(m);
    if (m->wrong || m->out->units != m->room)
        return err_set(ERR_INTERNAL, "pipeline schedule %s, rank %d of %d: not every unit is in the table once",
                       pipeline_name(m->l->kind), m->rank, m->l->ranks);
    TRY(deal_slots(m, spans));
    TRY(deal_gradients(m, spans));
    add_messages(m);
    return ERR_OK;
}

err_t pipeline_units(const pipeline_layout *l, int rank, unit_table *out) {
    *out = (unit_table){0};
    TRY(pipeline_check(l));
    if (rank < 0 || rank >= l->ranks) return err_set(ERR_INTERNAL, "rank %d of a pipeline of %d", rank, l->ranks);
    size_t pairs = (size_t)l->chunks * (size_t)l->micros, units = pairs * (pipeline_halves(l->kind) ? 3 : 2);
    maker m = {.l = l, .rank = rank, .out = out, .room = (int)units, .posted = {{-1, -1}, {-1, -1}}};
    span *spans = malloc(pairs * sizeof *spans);
    size_t indices = 3 * pairs + units;
    int *index = malloc(indices * sizeof *index);
    out->unit = malloc(units * sizeof *out->unit);
    out->message = malloc(4 * pairs * sizeof *out->message);
    err_t rc = ERR_OK;
    if (!spans || !index || !out->unit || !out->message) {
        rc = err_set(ERR_INTERNAL, "no memory for a pipeline's table of %zu units", units);
    } else {
        memset(index, -1, indices * sizeof *index);
        m.forward = index, m.backward = index + pairs, m.last = index + 2 * pairs, m.freed = index + 3 * pairs;
        rc = make(&m, spans);
    }
    free(spans);
    free(index);
    if (rc != ERR_OK) unit_table_free(out);
    return rc;
}

void unit_table_free(unit_table *t) {
    free(t->unit);
    free(t->message);
    *t = (unit_table){0};
}

// --- text ------------------------------------------------------------------------------------------------------------

const char *unit_text(const unit *u, char dst[UNIT_TEXT]) {
    static const char *const names[] = {
        [UNIT_FORWARD] = "forward", [UNIT_BACKWARD] = "backward", [UNIT_INPUTS] = "inputs", [UNIT_WEIGHTS] = "weights"};
    snprintf(dst, UNIT_TEXT, "%s %d.%d", names[u->kind], u->stage, u->micro);
    return dst;
}

const char *message_text(const message *m, char dst[MESSAGE_TEXT]) {
    const char *what = m->kind == MESSAGE_ACTIVATIONS ? "activations" : "gradients",
               *place = m->kind == MESSAGE_ACTIVATIONS ? "slot" : "buffer";
    int n =
        snprintf(dst, MESSAGE_TEXT, m->sends ? "send %s %d.%d to %d from %s %d" : "receive %s %d.%d from %d into %s %d",
                 what, m->stage, m->micro, m->peer, place, m->buffer);
    if (m->after < 0) snprintf(dst + n, (size_t)(MESSAGE_TEXT - n), " at once");
    else snprintf(dst + n, (size_t)(MESSAGE_TEXT - n), " after %d", m->after);
    return dst;
}
