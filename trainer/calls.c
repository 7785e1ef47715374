// trainer/calls.c: see trainer/calls.h. Groups are the first 2, 4, 8, ... ranks, and all of them. A call's time is that
// of its slowest rank, from a barrier on. Each collective moves other bytes than the one before, as in a step, where
// little of what it moves is in a cache. A merge, or a message, moves the same ones again: a step sends what it has
// just computed.
#include "trainer/calls.h"

#include "base/clock.h"
#include "comm/transport.h"
#include "trainer/costs/costs.h"
#include "trainer/session/machine.h"
#include "trainer/waiting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const double LONG = 0.03, SECONDS = 0.05;  // no larger sizes after a call of so long; spent on one size
enum { SMALLEST = 1 << 10, LARGEST = 256 << 20, FACTOR = 4, MOST = 200, LEAST = 3 };

// A rank's part in it.
typedef struct prober {
    session *x;
    stream *side;     // as a step has it for collectives and messages; merges are made on the compute stream
    comm *c;          // the group
    float *in, *out;  // of `room` bytes each, where the ranks' transport moves them
    size_t room, *cut;
    comm_part *send, *recv;  // [world]
    size_t at;               // of the next call's part of them, bytes
    costs *found;            // of rank 0
} prober;

// A part to each other rank, and one from each: how gradients, positions and halves of layers travel.
static err_t exchange(prober *p, char *out, char *in, size_t each, stream *s) {
    comm *c = p->c;
    int n = 0;
    for (int i = 1; i < c->world; i++, n++) {
        int to = (c->rank + i) % c->world, from = (c->rank + c->world - i) % c->world;
        p->send[n] = (comm_part){to, in + (size_t)to * each, each};
        p->recv[n] = (comm_part){from, out + (size_t)from * each, each};
    }
    return c->table->exchange(c, p->send, n, p->recv, n, s);
}

// The next part of the buffers: they are larger than any cache, and are gone through in at most MOST calls.
static size_t next_part(prober *p, size_t bytes) {
    const size_t PAGE = 4096, step = p->room / MOST / PAGE * PAGE;
    if (p->at + bytes > p->room) p->at = 0;
    size_t at = p->at;
    p->at += bytes > step ? bytes : step;
    return at;
}

// A collective. bytes: of the whole buffer.
static err_t make_call(prober *p, costs_call call, size_t bytes, stream *s) {
    comm *c = p->c;
    const comm_table *t = c->table;
    size_t at = call == CALL_MERGE ? 0 : next_part(p, bytes);
    char *in = (char *)p->in + at, *out = (char *)p->out + at;
    bool floats = call == CALL_REDUCE_SCATTER;
    size_t n = bytes / sizeof(float);
    for (size_t r = 0; r <= (size_t)c->world; r++) p->cut[r] = n * r / (size_t)c->world * (floats ? 1 : sizeof(float));
    switch (call) {
    case CALL_ALL_REDUCE: TRY(t->all_reduce(c, in, n, FP32, REDUCE_SUM, s)); break;
    case CALL_REDUCE_SCATTER: TRY(t->reduce_scatter(c, in, p->cut, FP32, s)); break;
    case CALL_ALL_GATHER: TRY(t->all_gather(c, in, p->cut, s)); break;
    case CALL_ALL_TO_ALL:
    case CALL_MERGE: TRY(exchange(p, out, in, bytes / (size_t)c->world, s)); break;
    default: return err_set(ERR_INTERNAL, "a call of kind %d", (int)call);
    }
    return ERR_OK;
}

// The largest over the ranks of the group, of a few numbers.
static err_t largest(prober *p, double *v, size_t n) {
    comm *host = p->c->host;
    return host->table->all_reduce(host, v, n, FP64, REDUCE_MAX, p->x->s);
}

// What a stream is given to do. sends: this rank's end of a message.
typedef struct one_call {
    prober *p;
    costs_call call;
    size_t bytes;
    bool sends;
} one_call;

static err_t run_call(void *ctx, stream *inner) {
    const one_call *x = ctx;
    prober *p = x->p;
    if (x->call != CALL_MESSAGE) return make_call(p, x->call, x->bytes, inner);
    return x->sends ? comm_send(p->c, !p->c->rank, p->in, x->bytes, inner)
                    : comm_recv(p->c, !p->c->rank, p->out, x->bytes, inner);
}

// On the stream on which a step makes it, until it is done.
static err_t do_call(prober *p, costs_call call, size_t bytes, bool sends) {
    stream *on = call == CALL_MERGE ? p->x->s : p->side;
    TRY(stream_call(on, run_call, &(one_call){p, call, bytes, sends}, sizeof(one_call)));
    return stream_wait(on);
}

// Of a message there and back, one way.
static err_t timed(prober *p, costs_call call, size_t bytes, double *s) {
    comm *host = p->c->host;
    bool both = call == CALL_MESSAGE;
    TRY(host->table->barrier(host, p->x->s));
    double start = clock_now();
    TRY(do_call(p, call, bytes, p->c->rank == 0));
    if (both) TRY(do_call(p, call, bytes, p->c->rank == 1));
    *s = (clock_now() - start) / (both ? 2 : 1);
    return ERR_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static costs_level level_of(const comm *c) {
    return comm_racks(c) > 1 ? COSTS_SPINE : comm_nodes(c) > 1 ? COSTS_RACK : COSTS_NODE;
}

static err_t note(prober *p, costs_call call, double sent, double *s, int times) {
    qsort(s, (size_t)times, sizeof *s, by_value);
    double median = s[times / 2], half = (s[3 * times / 4] - s[times / 4]) / 2;  // half of what the middle ones span
    costs_comm k = {.call = call,
                    .level = level_of(p->c),
                    .ranks = p->c->world,
                    .bytes = sent,
                    .s = {median, fmax(half / median, 0.01)}};
    if (p->c->rank) return ERR_OK;
    printf("%-15s %-6s %5d %12.0f %12.1f us %9.3f GB/s +- %.0f %%\n", costs_call_name[call], costs_level_name[k.level],
           k.ranks, sent, 1e6 * median, 1e-9 * sent / median, 100 * k.s.spread);
    return costs_set_comm(p->found, &k);
}

// *took (=) how long a call takes.
static err_t measure(prober *p, costs_call call, size_t bytes, double *took) {
    double s[MOST], before = (double)p->c->traffic.sent, sent;
    TRY(timed(p, call, bytes, took));
    sent = (double)p->c->traffic.sent - before;
    double both[] = {*took, sent};
    TRY(largest(p, both, 2));
    *took = both[0], sent = both[1];
    int times = (int)fmin(fmax(SECONDS / *took, LEAST), MOST);
    for (int i = 0; i < times; i++) TRY(timed(p, call, bytes, &s[i]));
    TRY(largest(p, s, (size_t)times));
    return sent > 0 ? note(p, call, sent, s, times) : ERR_OK;
}

static err_t measure_group(prober *p) {
    for (int call = 0; call < CALLS; call++) {
        double took = 0;
        if (call == CALL_MESSAGE && p->c->world != 2) continue;
        for (size_t bytes = SMALLEST; bytes <= p->room && took < LONG; bytes *= FACTOR)
            TRY(measure(p, (costs_call)call, bytes, &took));
    }
    return ERR_OK;
}

// The others wait: a communicator on channel 0 has the connections of all.
static err_t groups_of_all(prober *p) {
    comm *all = p->x->ranks;
    for (int n = 2; n <= all->world; n = n < all->world && 2 * n > all->world ? all->world : 2 * n) {
        TRY(all->table->split(all, all->rank < n ? 0 : -1, all->rank, 0, &p->c));
        err_t rc = p->c ? measure_group(p) : ERR_OK;
        if (p->c) p->c->table->close(p->c);
        TRY(rc);
        TRY(all->host->table->barrier(all->host, p->x->s));
    }
    return ERR_OK;
}

// --- work beside collectives -----------------------------------------------------------------------------------------

// So many all-gathers on a side stream, while products go on.
typedef struct beside {
    prober *p;
    int calls;
} beside;

enum { GATHERED = 4 << 20, WIDTH = 512, TURNS = 7 };
static const double ALONE = 0.04;  // seconds of gathers; of products four times as long

static err_t gather_often(void *ctx, stream *inner) {
    const beside *b = ctx;
    for (int i = 0; i < b->calls; i++) TRY(make_call(b->p, CALL_ALL_GATHER, GATHERED, inner));
    return ERR_OK;
}

// Products on the compute stream, and gathers on the side stream until they are done. *s: seconds until the products
// are, and with no products until the gathers are.
static err_t work(prober *p, int products, int calls, double *s) {
    tensor t[3];
    for (int i = 0; i < 3; i++) t[i] = (tensor){p->out + i * WIDTH * WIDTH, FP32, 2, {WIDTH, WIDTH}};
    TRY(p->c->host->table->barrier(p->c->host, p->x->s));
    double start = clock_now();
    if (calls) TRY(stream_call(p->side, gather_often, &(beside){p, calls}, sizeof(beside)));
    for (int i = 0; i < products; i++)
        TRY(device_ops(p->x->dev)->matmul(&(matmul_args){.d = &t[0], .a = &t[1], .b = &t[2]}, p->x->s));
    TRY(stream_wait(p->x->s));
    if (!products) TRY(stream_wait(p->side));
    *s = clock_now() - start;
    return stream_wait(p->side);
}

// As often as takes so long, on the slowest rank.
static err_t enough(prober *p, bool products, double seconds, int *times) {
    double took = 0;
    for (*times = 1; took < seconds && *times < 1 << 20; *times = took < seconds ? 2 * *times : *times) {
        TRY(work(p, products ? *times : 0, products ? 0 : *times, &took));
        TRY(largest(p, &took, 1));
    }
    return ERR_OK;
}

static void note_beside(prober *p, double lost[TURNS]) {
    qsort(lost, TURNS, sizeof *lost, by_value);
    double median = fmax(lost[TURNS / 2], 0), half = (lost[3 * TURNS / 4] - lost[TURNS / 4]) / 2;
    double spread = median > 0 ? half / median : 0;
    p->found->beside = (costs_figure){median, spread};
    printf("beside          a second of all_gather costs a rank %.2f s of its own work +- %.0f %%\n", median,
           100 * spread);
}

// What a rank loses of its own work while a collective of all ranks goes on, for each second that this takes alone.
static err_t measure_beside(prober *p) {
    int products, calls;
    double lost[TURNS];
    p->c = p->x->ranks;
    TRY(enough(p, false, ALONE, &calls));
    TRY(enough(p, true, 4 * ALONE, &products));
    for (int i = 0; i < TURNS; i++) {
        double s[3];
        TRY(work(p, products, 0, &s[0]));
        TRY(work(p, 0, calls, &s[1]));
        TRY(work(p, products, calls, &s[2]));
        TRY(largest(p, s, 3));
        lost[i] = (s[2] - s[0]) / s[1];
    }
    if (p->c->rank == 0) note_beside(p, lost);
    return ERR_OK;
}

static err_t probe(session *x, costs *found) {
    const size_t world = (size_t)x->ranks->world;
    prober p = {.x = x, .room = LARGEST, .found = found, .cut = calloc(world + 1, sizeof *p.cut)};
    void *memory = NULL;
    p.send = calloc(world, sizeof *p.send), p.recv = calloc(world, sizeof *p.recv);
    err_t rc = p.cut && p.send && p.recv ? ERR_OK : err_set(ERR_INTERNAL, "no memory for parts of %zu ranks", world);
    if (rc == ERR_OK) rc = stream_open_queue(x->dev, &p.side);
    if (rc == ERR_OK) rc = device_alloc(x->dev, MEMORY_DEVICE, 2 * p.room, &memory);
    p.in = memory, p.out = memory ? p.in + p.room / sizeof(float) : NULL;
    if (rc == ERR_OK) rc = transport_register(x->ranks, memory, 2 * p.room);
    if (rc == ERR_OK) rc = stream_zero(x->s, memory, 2 * p.room);  // sums of zeros do not grow
    if (rc == ERR_OK) rc = stream_wait(x->s);
    if (rc == ERR_OK) rc = groups_of_all(&p);
    if (rc == ERR_OK) rc = measure_beside(&p);
    if (p.side) stream_close(p.side);
    if (memory) device_free(x->dev, MEMORY_DEVICE, memory, 2 * p.room);
    free(p.cut), free(p.send), free(p.recv);
    return rc;
}

static err_t probe_and_save(session *x) {
    costs found = {0};
    const char *path = x->cfg->save;
    if (x->ranks->world == 1)
        return err_set(ERR_CONFIG, "bench comm: this run has one rank, which has nobody to talk to; see [device] ranks "
                                   "and [cluster] nodes");
    err_t rc = path && x->ranks->rank == 0 ? costs_begin(&found, path, device_about(x->dev)->name) : ERR_OK;
    if (rc == ERR_OK) rc = probe(x, &found);
    if (rc == ERR_OK && path && x->ranks->rank == 0) rc = costs_save(&found, path);
    if (rc == ERR_OK && path && x->ranks->rank == 0)
        printf("saved   %d times of messages are in %s\n", found.comms, path);
    costs_free(&found);
    return rc;
}

err_t calls_rank(const config *c, const launch *at, board *b) {
    session x = {0};
    err_t rc = session_machine(&x, c, SESSION_BENCH, at->local);
    if (rc == ERR_OK) rc = waiting_enter(&x, at, b, false);
    if (rc == ERR_OK) {
        atomic_fetch_add(&b->ready, 1);
        rc = probe_and_save(&x);
    }
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}
