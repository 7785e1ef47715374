// trainer/wires.c: see trainer/wires.h.
#include "trainer/wires.h"

#include "base/clock.h"
#include "comm/levels.h"
#include "trainer/session/machine.h"
#include "trainer/waiting.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 0.7, SECONDS = 0.5;
enum { MESSAGE = 1 << 20, SMALL = 8, SMALLS = 100, LISTED = 28 };

// --- who meets whom --------------------------------------------------------------------------------------------------

int wires_rounds(int n) { return n < 2 ? 0 : n - 1 + n % 2; }

// The circle method: of an even number the last player stands still, and i meets round - i of the others.
int wires_partner(int me, int round, int n) {
    int all = n + n % 2, others = all - 1, partner;
    if (me == others) partner = round * (all / 2) % others;
    else partner = ((round - me) % others + others) % others;
    if (partner == me) partner = others;
    return partner < n ? partner : -1;
}

// --- what was found --------------------------------------------------------------------------------------------------

static int downwards(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

double wires_equal(const wires *w) {
    int count = 0;
    double *all = calloc((size_t)w->n * (size_t)w->n + 1, sizeof *all), equal = 0;
    if (!all) return 0;
    for (int i = 0; i < w->n; i++)
        for (int k = i + 1; k < w->n; k++) all[count++] = w->bytes_s[i * w->n + k];
    qsort(all, (size_t)count, sizeof *all, downwards);
    if (count) equal = all[(count + 3) / 4 - 1];
    free(all);
    return equal;
}

static bool is_slow(const wires *w, int a, int b, double equal) {
    return w->bytes_s[a < b ? a * w->n + b : b * w->n + a] < SLOW * equal;
}

// Are all its links slow, while others have one that is not?
static bool all_slow(const wires *w, int player, double equal) {
    for (int k = 0; k < w->n; k++)
        if (k != player && !is_slow(w, player, k, equal)) return false;
    return w->n > 2;
}

static void print_link(FILE *out, const wires *w, int a, int b) {
    double rate = w->bytes_s[a * w->n + b], late = w->seconds[a * w->n + b];
    char from[WIRES_NAME], to[WIRES_NAME];
    fprintf(out, "  %-24s %-24s %10.1f MB/s %9.1f us\n", w->name(w->of, a, from), w->name(w->of, b, to), 1e-6 * rate,
            1e6 * late);
}

// A player whose links are all slow is named once.
static void print_slow(FILE *out, const wires *w, double equal) {
    char from[WIRES_NAME], to[WIRES_NAME];
    for (int i = 0; i < w->n; i++)
        if (all_slow(w, i, equal))
            fprintf(out, "slow    all links of %s: look at its cable, its port, its card and its settings\n",
                    w->name(w->of, i, from));
    for (int i = 0; i < w->n; i++)
        for (int k = i + 1; k < w->n; k++)
            if (is_slow(w, i, k, equal) && !all_slow(w, i, equal) && !all_slow(w, k, equal))
                fprintf(out, "slow    %s - %s: %.1f MB/s, %.2f of what its equals carry\n", w->name(w->of, i, from),
                        w->name(w->of, k, to), 1e-6 * w->bytes_s[i * w->n + k], w->bytes_s[i * w->n + k] / equal);
}

void wires_print(FILE *out, const wires *w) {
    int count = w->n * (w->n - 1) / 2;
    double equal = wires_equal(w);
    if (!count) return;
    fprintf(out, "links   %d between %d %s: a quarter of them carry %.1f MB/s or more, each way at once\n", count, w->n,
            w->what, 1e-6 * equal);
    for (int i = 0; i < w->n; i++)
        for (int k = i + 1; k < w->n; k++)
            if (count <= LISTED) print_link(out, w, i, k);
    print_slow(out, w, equal);
}

// --- measuring -------------------------------------------------------------------------------------------------------

// A rank's part in it. bytes_s, seconds: (world, world).
typedef struct probe {
    session *x;
    char *send, *recv;  // MESSAGE bytes each, where the ranks' transport moves them
    double *bytes_s, *seconds;
} probe;

static err_t both_ways(probe *p, int peer, size_t bytes, int times) {
    comm *c = p->x->ranks;
    for (int i = 0; i < times; i++) {
        TRY(c->table->exchange(c, &(comm_part){peer, p->send, bytes}, 1, &(comm_part){peer, p->recv, bytes}, 1,
                               p->x->s));
        TRY(stream_wait(p->x->s));
    }
    return ERR_OK;
}

// The lower rank of the two says how often, by what one message took it.
static err_t agree_times(probe *p, int peer, double took, int *times) {
    comm *c = p->x->ranks;
    int64_t n = took > 0 ? (int64_t)(SECONDS / took) : 1;
    n = n < 1 ? 1 : n > 20000 ? 20000 : n;
    TRY(stream_copy(p->x->s, p->send, &n, sizeof n));
    TRY(both_ways(p, peer, sizeof n, 1));
    if (c->rank > peer) TRY(stream_copy(p->x->s, &n, p->recv, sizeof n));
    TRY(stream_wait(p->x->s));
    *times = (int)n;
    return ERR_OK;
}

static err_t measure(probe *p, int peer) {
    comm *c = p->x->ranks;
    int times;
    TRY(both_ways(p, peer, SMALL, SMALLS / 10));
    double start = clock_now();
    TRY(both_ways(p, peer, SMALL, SMALLS));
    double small = (clock_now() - start) / SMALLS;
    start = clock_now();
    TRY(both_ways(p, peer, MESSAGE, 1));
    TRY(agree_times(p, peer, clock_now() - start, &times));
    start = clock_now();
    TRY(both_ways(p, peer, MESSAGE, times));
    double took = clock_now() - start;
    if (c->rank > peer) return ERR_OK;
    p->bytes_s[c->rank * c->world + peer] = (double)MESSAGE * times / took;
    p->seconds[c->rank * c->world + peer] = small;
    return ERR_OK;
}

// This rank is player `me` of n, whose ranks rank_of names; -1: it does not play. All ranks wait for the end of each
// round.
static err_t tournament(probe *p, int rounds, int me, int n, const int *rank_of) {
    comm *host = p->x->ranks->host;
    for (int r = 0; r < rounds; r++) {
        int partner = me >= 0 && r < wires_rounds(n) ? wires_partner(me, r, n) : -1;
        if (partner >= 0) TRY(measure(p, rank_of[partner]));
        TRY(host->table->barrier(host, p->x->s));
    }
    return ERR_OK;
}

static int ranks_of(const levels *h, int node) { return h->first[node + 1] - h->first[node]; }

static int most_ranks(const levels *h) {
    int most = 0;
    for (int n = 0; n < h->nodes; n++) most = ranks_of(h, n) > most ? ranks_of(h, n) : most;
    return most;
}

static const char *machine_name(const void *of, int player, char to[WIRES_NAME]) {
    const comm *c = of;
    int k = 0;
    while (c->place[k].node != player) k++;
    snprintf(to, WIRES_NAME, "%s", c->place[k].host);
    return to;
}

// of: the ranks of the machine.
static const char *rank_name(const void *of, int player, char to[WIRES_NAME]) {
    snprintf(to, WIRES_NAME, "rank %d", ((const int *)of)[player]);
    return to;
}

// One kind: the players' part of the table.
static err_t print_kind(const probe *p, wires w, const int *rank_of) {
    int world = p->x->ranks->world;
    size_t n = (size_t)w.n;
    double *table = calloc(2 * n * n + 1, sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "no memory for a table of %d links", w.n * w.n);
    for (int i = 0; i < w.n; i++)
        for (int k = i + 1; k < w.n; k++) {
            table[i * w.n + k] = p->bytes_s[rank_of[i] * world + rank_of[k]];
            table[n * n + (size_t)(i * w.n + k)] = p->seconds[rank_of[i] * world + rank_of[k]];
        }
    w.bytes_s = table, w.seconds = table + n * n;
    wires_print(stdout, &w);
    free(table);
    return ERR_OK;
}

// first [nodes]: the first rank of each machine.
static err_t print_all(const probe *p, const levels *h, const int *first) {
    const comm *c = p->x->ranks;
    char what[COMM_HOST + 32];
    for (int node = 0; node < h->nodes; node++) {
        const int *here = h->member + h->first[node];
        snprintf(what, sizeof what, "ranks of %s", c->place[first[node]].host);
        TRY(print_kind(p, (wires){what, ranks_of(h, node), rank_name, here, NULL, NULL}, here));
    }
    return print_kind(p, (wires){"machines", h->nodes, machine_name, c, NULL, NULL}, first);
}

static err_t run_probe(probe *p, const levels *h) {
    comm *c = p->x->ranks, *host = c->host;
    const comm_place *at = &c->place[c->rank];
    size_t n = (size_t)c->world * (size_t)c->world;
    int first[h->nodes];
    for (int node = 0; node < h->nodes; node++) first[node] = h->member[h->first[node]];
    TRY(tournament(p, wires_rounds(most_ranks(h)), at->local, ranks_of(h, at->node), h->member + h->first[at->node]));
    TRY(tournament(p, wires_rounds(h->nodes), at->local == 0 ? at->node : -1, h->nodes, first));
    TRY(host->table->all_reduce(host, p->bytes_s, n, FP64, REDUCE_SUM, p->x->s));
    TRY(host->table->all_reduce(host, p->seconds, n, FP64, REDUCE_SUM, p->x->s));
    return c->rank == 0 ? print_all(p, h, first) : ERR_OK;
}

static err_t probe_links(session *x) {
    int world = x->ranks->world, room[levels_room(world)];
    size_t n = (size_t)world * (size_t)world;
    levels h;
    void *memory = NULL;
    if (world == 1)
        return err_set(ERR_CONFIG, "bench links: this run has one rank, which has no links; see [device] ranks and "
                                   "[cluster] nodes");
    levels_of(&h, x->ranks, room);
    probe p = {.x = x, .bytes_s = calloc(n, sizeof(double)), .seconds = calloc(n, sizeof(double))};
    err_t rc = p.bytes_s && p.seconds ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a table of %zu links", n);
    if (rc == ERR_OK) rc = device_alloc(x->dev, MEMORY_DEVICE, 2 * MESSAGE, &memory);
    p.send = memory, p.recv = memory ? (char *)memory + MESSAGE : NULL;
    if (rc == ERR_OK) rc = transport_register(x->ranks, memory, 2 * MESSAGE);
    if (rc == ERR_OK) rc = run_probe(&p, &h);
    if (memory) device_free(x->dev, MEMORY_DEVICE, memory, 2 * MESSAGE);
    free(p.bytes_s), free(p.seconds);
    return rc;
}

err_t wires_rank(const config *c, const launch *at, board *b) {
    session x = {0};
    err_t rc = session_machine(&x, c, SESSION_BENCH, at->local);
    if (rc == ERR_OK) rc = waiting_enter(&x, at, b, false);
    if (rc == ERR_OK) {
        atomic_fetch_add(&b->ready, 1);
        rc = probe_links(&x);
    }
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}
