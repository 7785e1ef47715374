// comm/flight_view.c: see comm/flight_view.h.
//
// A rank waits in a call that it has entered and not left. It waits for those members that have not entered it, which
// the number of the call says; what they wait for in turn is the next arrow. At the end of the arrows is who holds up
// all others:
//
//   rank 0 --all_reduce #7--> rank 2 --exchange #3--> rank 5, which computes
//
// A rank whose call failed has waited in it up to its failure. Queued calls of a device count as waiting where another
// rank has not queued them.
#include "comm/flight_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- collecting ------------------------------------------------------------------------------------------------------

// Room for one more of n.
static err_t grow(void **at, int n, size_t each) {
    if (n & (n - 1)) return ERR_OK;
    void *more = realloc(*at, (n ? 2 * (size_t)n : 1) * each);
    if (!more) return err_set(ERR_INTERNAL, "no memory for a flight recording of %d entries", n + 1);
    *at = more;
    return ERR_OK;
}

err_t flight_view_rank(flight_view *v, const flight_who *who) {
    if (who->rank < 0 || who->rank >= FLIGHT_RANKS || v->at[who->rank])
        return err_set(ERR_DATA, "rank %d: expected one of 0 to %d, and each once", who->rank, FLIGHT_RANKS - 1);
    TRY(grow((void **)&v->who, v->ranks, sizeof *v->who));
    v->who[v->ranks] = *who;
    v->who[v->ranks].first = v->lines, v->who[v->ranks++].lines = 0;
    v->at[who->rank] = (int16_t)v->ranks;
    return ERR_OK;
}

err_t flight_view_line(flight_view *v, const flight_line *line) {
    flight_who *last = v->ranks ? &v->who[v->ranks - 1] : NULL;
    if (!last || last->rank != line->rank || last->lines == FLIGHT_COMMS)
        return err_set(ERR_DATA, "a communicator of rank %d: expected at most %d of a rank, after it", line->rank,
                       FLIGHT_COMMS);
    TRY(grow((void **)&v->line, v->lines, sizeof *v->line));
    v->line[v->lines++] = *line;
    last->lines++;
    return ERR_OK;
}

void flight_view_close(flight_view *v) {
    free(v->who), free(v->line);
    v->who = NULL, v->line = NULL, v->ranks = v->lines = 0;
    memset(v->at, 0, sizeof v->at);
}

err_t flight_view_take(flight_view *v, const flight_who *who, const flight_rank *f, uint64_t moment_ns) {
    TRY(flight_view_rank(v, who));
    for (int i = 0; i < FLIGHT_COMMS; i++) {
        flight_line l = {.rank = who->rank};
        if (!flight_stands(f, i, &l.at)) continue;
        l.since_s = ((double)moment_ns - (double)l.at.since_ns) * 1e-9;
        snprintf(l.what, sizeof l.what, "%s", l.at.what ? l.at.what : "");
        l.at.since_ns = 0, l.at.what = NULL;
        TRY(flight_view_line(v, &l));
    }
    return ERR_OK;
}

// --- words -----------------------------------------------------------------------------------------------------------

static int count(const uint64_t *mask) {
    int n = 0;
    for (int i = 0; i < FLIGHT_WORDS; i++) n += __builtin_popcountll(mask[i]);
    return n;
}

void flight_put_ranks(text *t, const uint64_t *mask) {
    int n = count(mask);
    text_put(t, n == 0 ? "no rank" : n == 1 ? "rank " : "ranks ");
    const char *comma = "";
    for (int r = 0; r < FLIGHT_RANKS; r++) {
        int last = r;
        if (!flight_has(mask, r)) continue;
        while (last + 1 < FLIGHT_RANKS && flight_has(mask, last + 1)) last++;
        if (last > r + 1) text_put(t, "%s%d-%d", comma, r, last);
        else text_put(t, "%s%d", comma, last = r);
        r = last, comma = ", ";
    }
}

void flight_put_phase(text *t, const char *what, int64_t part, int64_t step) {
    text_put(t, "%s", what);
    if (part >= 0) text_put(t, " %" PRId64, part);
    if (step >= 0) text_put(t, " of step %" PRId64, step);
}

static uint32_t number_of(const flight_line *l) { return l->at.op == FLIGHT_EXCHANGE ? l->at.exchanges : l->at.calls; }

void flight_put_call(text *t, const flight_line *l) {
    text_put(t, "%s #%" PRIu32 " of ", flight_op_name((flight_op)l->at.op), number_of(l));
    flight_put_ranks(t, l->at.member);
    if (!*l->what) return;
    text_put(t, " (");
    flight_put_phase(t, l->what, l->at.part, l->at.step);
    text_put(t, ")");
}

static const flight_who *who_is(const flight_view *v, int rank) { return &v->who[v->at[rank] - 1]; }

// The one by its name, several by their numbers.
static void put_who(const flight_view *v, text *t, const uint64_t *mask) {
    int only = 0;
    while (only < FLIGHT_RANKS && !flight_has(mask, only)) only++;
    if (count(mask) == 1 && v->at[only]) text_put(t, "%s", who_is(v, only)->who);
    else flight_put_ranks(t, mask);
}

// --- who waits for whom ----------------------------------------------------------------------------------------------

static bool is_waiting(const flight_line *l) {
    return l->at.op != FLIGHT_NONE && l->at.world > 1 && l->at.state != FLIGHT_DONE;
}

static const flight_line *line_of(const flight_view *v, int rank, uint32_t id) {
    const flight_who *w = who_is(v, rank);
    for (int i = w->first; i < w->first + w->lines; i++)
        if (v->line[i].at.id == id) return &v->line[i];
    return NULL;
}

// Has rank m entered what l's rank is in? Of an exchange, also who is in one with that rank.
static bool has_entered(const flight_view *v, const flight_line *l, int m) {
    const flight_line *its = line_of(v, m, l->at.id);
    if (!its) return false;
    if (l->at.op != FLIGHT_EXCHANGE) return its->at.calls >= l->at.calls;
    bool meets = is_waiting(its) && its->at.op == FLIGHT_EXCHANGE && flight_has(its->at.peer, l->rank);
    return meets || its->at.exchanges >= l->at.exchanges;
}

typedef struct waits {
    uint64_t missing[FLIGHT_WORDS];  // have not entered it
    uint64_t unknown[FLIGHT_WORDS];  // nothing is known of them
} waits;

static waits waits_of(const flight_view *v, const flight_line *l) {
    waits w = {0};
    const uint64_t *with = l->at.op == FLIGHT_EXCHANGE ? l->at.peer : l->at.member;
    for (int m = 0; m < FLIGHT_RANKS; m++) {
        if (m == l->rank || !flight_has(with, m)) continue;
        if (!v->at[m]) flight_put(w.unknown, m);
        else if (!has_entered(v, l, m)) flight_put(w.missing, m);
    }
    return w;
}

typedef struct findings {
    waits *of;                       // each line; all zeros where it does not wait
    uint64_t blocked[FLIGHT_WORDS];  // wait for somebody who is known
    uint64_t holds[FLIGHT_WORDS];    // are waited for, and do not wait themselves
    bool elsewhere;                  // only victims: the cause is a rank of which nothing is known, or one that ended
    uint64_t said[FLIGHT_WORDS];
    bool *told;  // lines that were said
} findings;

// Among those who do not wait, one that was in a call itself, or left its work because of a failure, is a victim
// too, unless its process ended by itself.
static void hold(const flight_view *v, const uint64_t *wanted, findings *x) {
    uint64_t victim[FLIGHT_WORDS] = {0}, free_ones[FLIGHT_WORDS];
    for (int i = 0; i < v->lines; i++)
        if (is_waiting(&v->line[i]) && v->line[i].at.state != FLIGHT_QUEUED && !*who_is(v, v->line[i].rank)->ended)
            flight_put(victim, v->line[i].rank);
    for (int i = 0; i < v->ranks; i++)
        if (v->who[i].failed && !*v->who[i].ended) flight_put(victim, v->who[i].rank);
    for (int k = 0; k < FLIGHT_WORDS; k++) {
        x->holds[k] = wanted[k] & ~x->blocked[k];
        free_ones[k] = x->holds[k] & ~victim[k];
    }
    for (int i = 0; i < v->lines; i++) x->elsewhere |= count(x->of[i].unknown) && flight_has(x->holds, v->line[i].rank);
    for (int i = 0; i < v->ranks; i++) x->elsewhere |= *v->who[i].ended != 0;
    if (count(free_ones)) x->elsewhere = false;
    if (count(free_ones) || x->elsewhere) memcpy(x->holds, free_ones, sizeof x->holds);
}

static void find(const flight_view *v, findings *x) {
    uint64_t wanted[FLIGHT_WORDS] = {0};
    for (int i = 0; i < v->lines; i++) {
        if (!is_waiting(&v->line[i])) continue;
        x->of[i] = waits_of(v, &v->line[i]);
        if (count(x->of[i].missing)) flight_put(x->blocked, v->line[i].rank);
        for (int k = 0; k < FLIGHT_WORDS; k++) wanted[k] |= x->of[i].missing[k];
    }
    hold(v, wanted, x);
}

// --- the verdict -----------------------------------------------------------------------------------------------------

static bool meet(const uint64_t *a, const uint64_t *b) {
    for (int k = 0; k < FLIGHT_WORDS; k++)
        if (a[k] & b[k]) return true;
    return false;
}

// The ranks that wait in the same call as line i: those, who is missing, and the longest wait.
typedef struct gathering {
    uint64_t in[FLIGHT_WORDS], missing[FLIGHT_WORDS], unknown[FLIGHT_WORDS];
    double since_s;
} gathering;

static gathering gather(const flight_view *v, findings *x, int i) {
    const flight_line *l = &v->line[i];
    gathering g = {0};
    for (int k = i; k < v->lines; k++) {
        const flight_line *o = &v->line[k];
        if (!is_waiting(o) || o->at.id != l->at.id || o->at.op != l->at.op || number_of(o) != number_of(l)) continue;
        x->told[k] = true;
        flight_put(g.in, o->rank);
        flight_put(x->said, o->rank);
        if (o->since_s > g.since_s) g.since_s = o->since_s;
        for (int w = 0; w < FLIGHT_WORDS; w++) {
            g.missing[w] |= x->of[k].missing[w];
            g.unknown[w] |= x->of[k].unknown[w];
        }
    }
    return g;
}

static void put_waiting(text *t, const uint64_t *in, double since_s) {
    flight_put_ranks(t, in);
    text_put(t, " %s in it since %.*f s", count(in) == 1 ? "waits" : "wait", since_s < 10 ? 1 : 0, since_s);
}

// Calls that somebody of `holds` has not entered; NULL: all calls in which somebody is missing.
static void say_missing(const flight_view *v, findings *x, const uint64_t *holds, text *t) {
    for (int i = 0; i < v->lines; i++) {
        if (x->told[i] || !count(x->of[i].missing) || (holds && !meet(x->of[i].missing, holds))) continue;
        gathering g = gather(v, x, i);
        for (int k = 0; holds && k < FLIGHT_WORDS; k++) g.missing[k] &= holds[k];
        put_who(v, t, g.missing);
        text_put(t, " %s not entered ", count(g.missing) == 1 ? "has" : "have");
        flight_put_call(t, &v->line[i]);
        text_put(t, "; ");
        put_waiting(t, g.in, g.since_s);
        text_put(t, "\n");
    }
}

static void say_in_turn(findings *x, text *t) {
    uint64_t rest[FLIGHT_WORDS];
    for (int k = 0; k < FLIGHT_WORDS; k++) rest[k] = x->blocked[k] & ~x->said[k];
    if (!count(rest)) return;
    flight_put_ranks(t, rest);
    text_put(t, " %s for these in turn\n", count(rest) == 1 ? "waits" : "wait");
}

// Of who holds up others, and of who has ended: what it was doing.
static void say_doing(const flight_view *v, const findings *x, text *t) {
    for (int i = 0; i < v->ranks; i++) {
        const flight_who *w = &v->who[i];
        if (!flight_has(x->holds, w->rank) && !*w->ended) continue;
        text_put(t, "%s %s", w->who, *w->ended ? w->ended : "had not ended");
        if (*w->doing) text_put(t, "; its last task: %s, since %.1f s", w->doing, w->doing_s);
        for (int k = w->first; k < w->first + w->lines; k++) {
            if (!is_waiting(&v->line[k])) continue;
            text_put(t, "; it was in ");
            flight_put_call(t, &v->line[k]);
        }
        text_put(t, "\n");
    }
}

// Calls that no rank of these recordings delays: ranks of other machines may, or what is sent does not arrive.
static void say_whole(const flight_view *v, findings *x, text *t) {
    for (int i = 0; i < v->lines; i++) {
        bool held = count(x->of[i].missing) && !x->elsewhere;
        if (x->told[i] || !is_waiting(&v->line[i]) || held || v->line[i].at.state == FLIGHT_QUEUED) continue;
        gathering g = gather(v, x, i);
        flight_put_ranks(t, g.in);
        text_put(t, " %s in ", count(g.in) == 1 ? "was" : "were");
        flight_put_call(t, &v->line[i]);
        text_put(t, " since %.1f s", g.since_s);
        if (count(g.unknown)) {
            text_put(t, "; what ");
            flight_put_ranks(t, g.unknown);
            text_put(t, " did is in the recordings of other machines: lockstep flight DIR DIR ...\n");
        } else if (count(g.missing)) {
            text_put(t, "; ");
            flight_put_ranks(t, g.missing);
            text_put(t, " had not entered it\n");
        } else text_put(t, ", which all others of it had entered\n");
    }
}

static void judge(const flight_view *v, findings *x, text *t) {
    size_t before = t->n;
    find(v, x);
    bool circle = count(x->blocked) && !count(x->holds) && !x->elsewhere;
    if (circle) text_put(t, "ranks wait for each other, in different calls:\n");
    say_missing(v, x, circle ? NULL : x->holds, t);
    if (!count(x->holds)) say_whole(v, x, t);
    if (!circle) say_in_turn(x, t);
    say_doing(v, x, t);
    if (t->n == before) text_put(t, "no rank was waiting for another one\n");
}

void flight_verdict(const flight_view *v, text *out) {
    size_t n = v->lines > 0 ? (size_t)v->lines : 1;
    findings x = {.of = calloc(n, sizeof *x.of), .told = calloc(n, sizeof *x.told)};
    if (x.of && x.told) judge(v, &x, out);
    else text_put(out, "no memory to find out who waited for whom\n");
    free(x.of), free(x.told);
}
