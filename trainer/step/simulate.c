// trainer/step/simulate.c: see trainer/step/simulate.h. Every rank goes as far as it can, again and again, until all
// are done or none can. What a rank waits for has one time, whoever comes there first.
#include "trainer/step/simulate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Messages between two ranks, one way, of one kind: when each end posted the n-th, when it had left its buffer, and
// when it had arrived.
typedef struct fifo {
    int from, to, sends, receives, left, arrived;  // ranks; how many
    const message **send, **receive;               // [room]
    const action **post;                           // of those that send
    double *sent, *received, *left_at, *arrived_at;
    int room;
} fifo;

// The collectives of the ranks that have the same stages, in their order. The first one is the SPREAD of the step
// before, if there is one: it is on its way when the step begins.
typedef struct group {
    int calls, done;
    bool carries;
    const action **call;  // as the first rank has them
    double *latest, *start, *end;
    int *queued;  // by how many ranks
} group;

typedef struct walker {
    const action_list *list;
    const stages *of;
    int at, calls;
    int over;        // so many calls of its group were done before its clock
    int reduced;     // the last call that is a REDUCE, + 1
    int fetched[2];  // the last call that is a FETCH of these rows, + 1
    int *gathered;   // [blocks] the last call that is a GATHER of it, + 1
    int *number;     // [messages] of it in its FIFO
    double clock;
    bool shares, told;  // it has come to SHARE; it is in the text about a circle
} walker;

typedef struct run {
    const simulate_lists *in;
    const simulate_costs *costs;
    walker *rank;
    fifo *fifo;    // [data][4 * pipeline]
    group *group;  // [pipeline]
    int sharing;   // ranks that have come to SHARE, and when the last one did
    double shared;
    simulation *out;
} run;

static double later(double a, double b) { return a > b ? a : b; }

static double time_of(const run *x, int rank, const action *a) {
    return x->costs && x->costs->time ? x->costs->time(x->costs->ctx, rank, a) : 0;
}

static bool beside(const action *a) {
    return a->kind == ACTION_GATHER || a->kind == ACTION_FETCH || a->kind == ACTION_AHEAD || a->kind == ACTION_REDUCE ||
           a->kind == ACTION_SPREAD;
}

static fifo *fifo_of(const run *x, int rank, const message *m) {
    int data = x->in->data, stage = rank / data, d = rank % data;
    const pipeline_layout *l = &x->rank[rank].of->pipe;
    int n = pipeline_fifo(l, m->sends ? stage : m->peer, m->sends ? m->peer : stage, m->kind);
    return &x->fifo[d * 4 * x->in->pipeline + n];
}

// --- the start -------------------------------------------------------------------------------------------------------

static void *array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static bool open_rank(run *x, int i) {
    walker *k = &x->rank[i];
    simulated_rank *o = &x->out->rank[i];
    *k = (walker){.list = x->in->list[i], .of = x->in->of[i]};
    size_t n = (size_t)k->list->count;
    o->came = array(n, sizeof *o->came), o->left = array(n, sizeof *o->left);
    o->message = array((size_t)k->of->table.messages, sizeof *o->message);
    k->gathered = array((size_t)k->of->cut[k->of->count], sizeof *k->gathered);
    k->number = array((size_t)k->of->table.messages, sizeof *k->number);
    return o->came && o->left && o->message && k->gathered && k->number;
}

static bool open_fifo(fifo *f) {
    size_t n = (size_t)f->room;
    f->send = array(n, sizeof *f->send), f->receive = array(n, sizeof *f->receive);
    f->post = array(n, sizeof *f->post);
    f->sent = array(n, sizeof *f->sent), f->received = array(n, sizeof *f->received);
    f->left_at = array(n, sizeof *f->left_at), f->arrived_at = array(n, sizeof *f->arrived_at);
    return f->send && f->receive && f->post && f->sent && f->received && f->left_at && f->arrived_at;
}

static bool open_group(group *g, const action_list *first) {
    const action *carried = NULL;
    for (int i = 0; i < first->count; i++) {
        g->calls += beside(&first->at[i]);
        if (first->at[i].kind == ACTION_SPREAD) carried = &first->at[i];
    }
    g->carries = carried != NULL, g->calls += g->carries;
    size_t n = (size_t)g->calls;
    g->call = array(n, sizeof *g->call), g->queued = array(n, sizeof *g->queued);
    g->latest = array(n, sizeof *g->latest);
    g->start = array(n, sizeof *g->start), g->end = array(n, sizeof *g->end);
    if (!g->call || !g->queued || !g->latest || !g->start || !g->end) return false;
    if (carried) g->call[0] = carried;
    for (int i = 0, k = g->carries; i < first->count; i++)
        if (beside(&first->at[i])) g->call[k++] = &first->at[i];
    return true;
}

static void carry(run *x, int stage) {
    group *g = &x->group[stage];
    int first = stage * x->in->data;
    if (!g->carries) return;
    g->end[0] = time_of(x, first, g->call[0]), g->done = 1;
    for (int i = first; i < first + x->in->data; i++) x->rank[i].calls = 1;
}

static bool open_run(run *x) {
    int p = x->in->pipeline, data = x->in->data, ranks = p * data;
    *x->out = (simulation){.ranks = ranks, .rank = array((size_t)ranks, sizeof *x->out->rank)};
    x->rank = array((size_t)ranks, sizeof *x->rank);
    x->fifo = array(4 * (size_t)ranks, sizeof *x->fifo);
    x->group = array((size_t)p, sizeof *x->group);
    if (!x->out->rank || !x->rank || !x->fifo || !x->group) return false;
    for (int i = 0; i < ranks; i++) {
        if (!open_rank(x, i)) return false;
        for (int k = 0; k < x->rank[i].of->table.messages; k++) fifo_of(x, i, &x->rank[i].of->table.message[k])->room++;
    }
    for (int i = 0; i < 4 * ranks; i++)
        if (!open_fifo(&x->fifo[i])) return false;
    for (int s = 0; s < p; s++) {
        if (!open_group(&x->group[s], x->in->list[s * data])) return false;
        carry(x, s);
    }
    return true;
}

static void close_run(run *x) {
    int p = x->in->pipeline, ranks = p * x->in->data;
    for (int i = 0; x->rank && i < ranks; i++) free(x->rank[i].gathered), free(x->rank[i].number);
    for (int i = 0; x->fifo && i < 4 * ranks; i++) {
        fifo *f = &x->fifo[i];
        free(f->send), free(f->receive), free(f->post);
        free(f->sent), free(f->received), free(f->left_at), free(f->arrived_at);
    }
    for (int s = 0; x->group && s < p; s++) {
        group *g = &x->group[s];
        free(g->call), free(g->queued), free(g->latest), free(g->start), free(g->end);
    }
    free(x->rank), free(x->fifo), free(x->group);
}

// Both ends of a FIFO name its messages in the same order.
static err_t connect(run *x) {
    int ranks = x->in->pipeline * x->in->data;
    for (int i = 0; i < ranks; i++) {
        const unit_table *t = &x->rank[i].of->table;
        for (int k = 0; k < t->messages; k++) {
            const message *m = &t->message[k];
            fifo *f = fifo_of(x, i, m);
            int peer = m->peer * x->in->data + i % x->in->data, *count = m->sends ? &f->sends : &f->receives;
            f->from = m->sends ? i : peer, f->to = m->sends ? peer : i;
            (m->sends ? f->send : f->receive)[x->rank[i].number[k] = (*count)++] = m;
        }
    }
    for (int i = 0; i < 4 * ranks; i++) {
        fifo *f = &x->fifo[i];
        for (int n = 0; n < f->sends || n < f->receives; n++) {
            const message *s = f->send[n], *r = f->receive[n];
            char a[MESSAGE_TEXT], b[MESSAGE_TEXT];
            if (s && r && s->stage == r->stage && s->micro == r->micro) continue;
            return err_set(ERR_INTERNAL,
                           "message %d from rank %d to rank %d: `%s`, `%s`: expected the same order at both ends", n,
                           f->from, f->to, s ? message_text(s, a) : "nothing", r ? message_text(r, b) : "nothing");
        }
        f->sends = f->receives = 0;
    }
    return ERR_OK;
}

// --- what goes on beside the ranks -----------------------------------------------------------------------------------

// The next message leaves if the link has room for it: at depth 0 the receive itself.
static bool leaves(const run *x, fifo *f) {
    int n = f->left, depth = x->costs ? x->costs->depth : 0;
    if (n >= f->sends || n >= (depth ? f->arrived + depth : f->receives)) return false;
    double start = n ? later(f->sent[n], f->left_at[n - 1]) : f->sent[n];
    if (!depth) start = later(start, f->received[n]);
    else if (n >= depth) start = later(start, f->arrived_at[n - depth]);
    f->left_at[n] = start + time_of(x, f->from, f->post[n]);
    f->left++;
    return true;
}

static bool arrives(fifo *f) {
    int n = f->arrived;
    if (n >= f->left || n >= f->receives) return false;
    double both = later(f->left_at[n], f->received[n]);
    f->arrived_at[n] = n ? later(both, f->arrived_at[n - 1]) : both;
    f->arrived++;
    return true;
}

static void post(run *x, int rank, const action *a) {
    walker *k = &x->rank[rank];
    const message *m = &k->of->table.message[a->message];
    fifo *f = fifo_of(x, rank, m);
    int n = k->number[a->message];
    if (m->sends) f->post[n] = a, f->sent[n] = k->clock, f->sends = n + 1;
    else f->received[n] = k->clock, f->receives = n + 1;
    while (leaves(x, f) || arrives(f)) {}
}

static err_t queue(run *x, int rank, const action *a) {
    walker *k = &x->rank[rank];
    group *g = &x->group[rank / x->in->data];
    int n = k->calls++;
    const action *first = n < g->calls ? g->call[n] : NULL;
    char one[ACTION_TEXT], two[ACTION_TEXT];
    if (!first || first->kind != a->kind || first->first != a->first || first->bucket != a->bucket ||
        first->turn != a->turn)
        return err_set(ERR_INTERNAL, "rank %d does `%s`, and the first rank of its group `%s`", rank,
                       action_text(a, one), first ? action_text(first, two) : "nothing");
    g->latest[n] = later(g->latest[n], k->clock);
    if (++g->queued[n] == x->in->data) {
        g->start[n] = later(g->latest[n], n ? g->end[n - 1] : 0);
        g->end[n] = g->start[n] + time_of(x, rank, a);
        g->done = n + 1;
    }
    if (a->kind == ACTION_GATHER) k->gathered[a->first] = n + 1;
    if (a->kind == ACTION_REDUCE) k->reduced = n + 1;
    if (a->kind == ACTION_FETCH) k->fetched[a->input_slot] = n + 1;
    return ERR_OK;
}

// --- a rank goes on --------------------------------------------------------------------------------------------------

// How many of its group's calls must be done before the rank may go on.
static int calls_before(const walker *k, const action *a) {
    return a->kind == ACTION_NEED     ? k->gathered[a->first]
           : a->kind == ACTION_HAVE   ? k->fetched[a->input_slot]
           : a->kind == ACTION_SETTLE ? k->reduced
           : a->kind == ACTION_ROWS   ? k->calls
           : a->kind == ACTION_SHARE  ? k->calls
                                      : 0;
}

// When has the rank's message left, or arrived? False: not yet.
static bool message_over(const run *x, int rank, int index, double *at) {
    const walker *k = &x->rank[rank];
    const message *m = &k->of->table.message[index];
    const fifo *f = fifo_of(x, rank, m);
    int n = k->number[index];
    *at = m->sends ? f->left_at[n] : f->arrived_at[n];
    return n < (m->sends ? f->left : f->arrived);
}

// New weights come block after block: the share of SPREAD's time until this one's are here, where blocks have as much.
static double spread_so_far(const walker *k, int block) {
    int before = 0, all = 0, blocks = k->of->cut[k->of->count];
    for (int b = 0; b < blocks; b++)
        if (stages_chunk(k->of, b) >= 0) all++, before += b <= block;
    return (double)before / all;
}

// From when on may it go on? False: that is not known yet.
static bool may_go_on(const run *x, int rank, const action *a, double *from) {
    const walker *k = &x->rank[rank];
    const group *g = &x->group[rank / x->in->data];
    int calls = calls_before(k, a);
    *from = k->clock;
    if (calls > g->done || (a->kind == ACTION_SHARE && x->sharing < x->out->ranks)) return false;
    if (calls) *from = later(*from, g->end[calls - 1]);
    else if (a->kind == ACTION_NEED && g->carries) *from = later(*from, g->end[0] * spread_so_far(k, a->first));
    if (a->kind == ACTION_SHARE) *from = later(*from, x->shared);
    if (a->kind != ACTION_AWAIT) return true;
    double at;
    bool over = message_over(x, rank, a->message, &at);
    if (over) *from = later(*from, at);
    return over;
}

// What it sends before SHARE has to be done by then.
static void come(run *x, walker *k, const action *a) {
    if (a->kind != ACTION_SHARE || k->shares) return;
    k->shares = true, x->sharing++;
    x->shared = later(x->shared, k->clock);
}

// A collective that takes longer delays those after it.
static void delay_after(group *g, int n) {
    for (; n + 1 < g->done; n++) {
        double time = g->end[n + 1] - g->start[n + 1];
        g->start[n + 1] = later(g->latest[n + 1], g->end[n]);
        g->end[n + 1] = g->start[n + 1] + time;
    }
}

// When work that takes so long alone is done: collectives beside it leave it the rest of its processors. One that
// costs more than its own time has no processor until the work lets it have one, and both are late.
static double done_at(const run *x, int rank, double from, double time) {
    const double lost = x->costs ? x->costs->beside : 0, kept = lost < 1 ? 1 - lost : 0;
    group *g = &x->group[rank / x->in->data];
    walker *k = &x->rank[rank];
    double at = from;
    if (time <= 0 || lost <= 0) return from + time;
    while (k->over < g->done && g->end[k->over] <= from) k->over++;
    for (int n = k->over; n < g->done && g->start[n] < at + time; n++) {
        double start = later(g->start[n], at), sends = g->end[n] - start;
        time -= start - at;
        if (time <= sends * kept) return start + time / kept;
        time -= sends * kept;
        if (lost > 1) g->end[n] = start + sends * lost, delay_after(g, n);
        at = g->end[n];
    }
    return at + time;
}

static err_t step(run *x, int rank, const action *a, double from) {
    walker *k = &x->rank[rank];
    simulated_rank *o = &x->out->rank[rank];
    bool own = !beside(a) && a->kind != ACTION_POST;
    double time = own ? time_of(x, rank, a) : 0;
    if (beside(a)) TRY(queue(x, rank, a));
    if (a->kind == ACTION_POST) post(x, rank, a);
    o->came[k->at] = k->clock;
    k->clock = o->left[k->at] = done_at(x, rank, from, time);
    o->busy += time;
    k->at++;
    return ERR_OK;
}

static err_t go_on(run *x, int rank, bool *moved) {
    walker *k = &x->rank[rank];
    while (k->at < k->list->count) {
        const action *a = &k->list->at[k->at];
        double from;
        come(x, k, a);
        if (!may_go_on(x, rank, a, &from)) break;
        TRY(step(x, rank, a, from));
        *moved = true;
    }
    return ERR_OK;
}

// --- the end ---------------------------------------------------------------------------------------------------------

// The rank that it waits for, and for what.
static int waits_for(const run *x, int rank, const action *a, char what[MESSAGE_TEXT]) {
    const walker *k = &x->rank[rank];
    int data = x->in->data, calls = calls_before(k, a), first = rank / data * data;
    snprintf(what, MESSAGE_TEXT, "the others");
    if (a->kind == ACTION_AWAIT) {
        const message *m = &k->of->table.message[a->message];
        message_text(m, what);
        return m->peer * data + rank % data;
    }
    if (calls > x->group[rank / data].done) {
        action_text(x->group[rank / data].call[x->group[rank / data].done], what);
        for (int i = first; i < first + data; i++)
            if (x->rank[i].calls <= x->group[rank / data].done) return i;
    }
    for (int i = 0; i < x->out->ranks; i++)
        if (!x->rank[i].shares) return i;
    return rank;
}

// From the first rank that waits to the one it waits for, and so on, until one comes again.
static err_t stuck(run *x) {
    int rank = 0, n = 0;
    char text[ERR_TEXT - 64] = "", one[ACTION_TEXT], what[MESSAGE_TEXT];
    while (x->rank[rank].at == x->rank[rank].list->count) rank++;
    while (!x->rank[rank].told && n < (int)sizeof text) {
        walker *k = &x->rank[rank];
        k->told = true;
        if (k->at == k->list->count) {
            n += snprintf(text + n, sizeof text - (size_t)n, "; rank %d is done", rank);
            break;
        }
        int next = waits_for(x, rank, &k->list->at[k->at], what);
        n += snprintf(text + n, sizeof text - (size_t)n, "%srank %d waits in `%s` for `%s` of rank %d", n ? "; " : "",
                      rank, action_text(&k->list->at[k->at], one), what, next);
        rank = next;
    }
    return err_set(ERR_INTERNAL, "the ranks' lists never end: %s", text);
}

static err_t go(run *x) {
    TRY(connect(x));
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < x->out->ranks; i++) TRY(go_on(x, i, &moved));
    }
    for (int i = 0; i < x->out->ranks; i++) {
        const walker *k = &x->rank[i];
        if (k->at < k->list->count) return stuck(x);
        if (k->calls < x->group[i / x->in->data].calls)
            return err_set(ERR_INTERNAL, "rank %d does fewer collectives than the first rank of its group", i);
        x->out->total = later(x->out->total, x->rank[i].clock);
        for (int n = 0; n < k->of->table.messages; n++) message_over(x, i, n, &x->out->rank[i].message[n]);
    }
    return ERR_OK;
}

err_t simulate_run(const simulate_lists *in, const simulate_costs *costs, simulation *out) {
    run x = {.in = in, .costs = costs, .out = out};
    assert(!costs || costs->beside <= 0 || in->data == 1);
    err_t rc = open_run(&x) ? go(&x) : err_set(ERR_INTERNAL, "no memory to run the lists of %d ranks", out->ranks);
    close_run(&x);
    if (rc != ERR_OK) simulation_free(out);
    return rc;
}

void simulation_free(simulation *s) {
    for (int i = 0; s->rank && i < s->ranks; i++)
        free(s->rank[i].came), free(s->rank[i].left), free(s->rank[i].message);
    free(s->rank);
    *s = (simulation){0};
}
