// comm/team/council_view.c: reports come in; who is near, and who is lost, follows from their times.
#include "comm/team/council_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void council_view_open(council_view *v, int node, int nodes, uint64_t life, double now) {
    memset(v, 0, sizeof *v);
    v->node = node, v->nodes = nodes, v->life = life;
    v->ran_at = v->entered = v->worked_at = v->need_at = now;
    v->sealed_at = COUNCIL_NEVER;
    for (int j = 0; j < nodes; j++) v->of[j].at = v->of[j].said_at = v->of[j].ranks_at = COUNCIL_NEVER;
}

// --- what comes in ---------------------------------------------------------------------------------------------------

void council_hears(council_view *v, double now, int from, uint64_t life, const council_record *newest) {
    council_heard *h = &v->of[from];
    // A new life has reported nothing: it hears nobody, so the node does not count as near.
    if (h->life != life) h->says = (council_report){.sealed = -1};
    h->life = life, h->at = now;
    h->has_record = newest != NULL;
    if (!newest) return;
    memcpy(h->run, newest->run, COUNCIL_RUN);
    h->k = newest->k, h->epoch = newest->epoch;
}

void council_said(council_view *v, double now, int from, const council_report *r) {
    v->of[from].said_at = now;
    v->of[from].says = *r;
}

void council_woke(council_view *v, double now) {
    double slept = now - v->ran_at;
    v->ran_at = now;
    if (slept <= COUNCIL_PAUSE_S) return;
    for (int j = 0; j < v->nodes; j++) {
        council_heard *h = &v->of[j];
        h->at = fmin(h->at + slept, now), h->said_at = fmin(h->said_at + slept, now);
        h->ranks_at = fmin(h->ranks_at + slept, now);
    }
    v->worked_at = fmin(v->worked_at + slept, now);
    v->need_at = fmin(v->need_at + slept, now);
}

// Has the node reported in the epoch of r?
static bool in_epoch(const council_heard *h, const council_record *r) {
    return h->has_record && h->epoch == r->epoch && memcmp(h->run, r->run, COUNCIL_RUN) == 0;
}

static bool all_sealed(const council_view *v, const council_record *r) {
    FOR_NODES(j, &r->members)
        if (!in_epoch(&v->of[j], r) || v->of[j].says.sealed < 0) return false;
    return true;
}

void council_own(council_view *v, double now, const council_record *r, const council_report *own, double dead_s) {
    council_heard *me = &v->of[v->node];
    council_hears(v, now, v->node, v->life, r);
    council_said(v, now, v->node, own);
    me->says.hears = (node_set){{0}};
    for (int j = 0; j < v->nodes; j++)
        if (now - v->of[j].at < dead_s) set_add(&me->says.hears, j);
    me->says.ready = own->ready && council_back_off(v, now) <= 0;
    if (r && v->sealed_at < v->entered && all_sealed(v, r)) v->sealed_at = now;
}

void council_taken(council_view *v, double now, const council_record *r, uint64_t epoch, bool member) {
    v->worked_at = v->need_at = now;
    if (member && !council_member(v, r, v->node) && !v->of[v->node].says.leaving)
        v->put_out[v->exiles++ % COUNCIL_EXILES] = now;
    if (epoch == r->epoch) return;
    v->entered = now, v->sealed_at = COUNCIL_NEVER;
    FOR_NODES(j, &r->members) v->of[j].ranks_at = now;
    // what is said with the new record is of the new epoch
    council_report *own = &v->of[v->node].says;
    own->failed = own->began = false, own->sealed = -1;
    own->state = council_member(v, r, v->node) ? COUNCIL_ENTERING : COUNCIL_LEAVING;
}

double council_back_off(const council_view *v, double now) {
    int times = 0;
    double last = COUNCIL_NEVER, wait = COUNCIL_BACK_OFF_S;
    for (int i = 0; i < COUNCIL_EXILES && i < v->exiles; i++)
        if (now - v->put_out[i] < COUNCIL_EXILE_S) times++, last = fmax(last, v->put_out[i]);
    for (int i = 1; i < times; i++) wait *= 3;
    return times ? fmax(last + fmin(wait, COUNCIL_EXILE_S) - now, 0) : 0;
}

// --- what follows from it --------------------------------------------------------------------------------------------

bool council_both(const council_view *v, int a, int b) {
    return set_has(&v->of[a].says.hears, b) && set_has(&v->of[b].says.hears, a);
}

node_set council_near(const council_view *v, double now, double dead_s) {
    node_set near = {{0}};
    for (int j = 0; j < v->nodes; j++)
        if (j == v->node || (now - v->of[j].said_at < dead_s && set_has(&v->of[j].says.hears, v->node)))
            set_add(&near, j);
    return near;
}

node_set council_same_life(const council_view *v, const council_record *r, node_set who) {
    node_set same = {{0}};
    FOR_NODES(j, &who)
        if (v->of[j].life == r->life[j]) set_add(&same, j);
    return same;
}

static uint64_t life_of(const council_view *v, int j) { return j == v->node ? v->life : v->of[j].life; }

bool council_member(const council_view *v, const council_record *r, int j) {
    return r && set_has(&r->members, j) && life_of(v, j) == r->life[j];
}

bool council_votes(const council_view *v, const council_record *r, int j) {
    return r && set_has(&r->voters, j) && life_of(v, j) == r->life[j];
}

// --- lost ------------------------------------------------------------------------------------------------------------

static void lose(council_loss *out, int node, const char *why) {
    if (!out->any) snprintf(out->why, sizeof out->why, "%s", why);
    if (node >= 0) set_add(&out->nodes, node);
    out->any = true;
}

// Only who is a member judges silence: nobody else hears ranks.
static void lost_silent(council_loss *out, double now, const council_record *r, const council_view *v, double dead_s) {
    char why[COUNCIL_WHY];
    FOR_NODES(j, &r->members) {
        double silent = now - fmax(fmax(v->of[j].at, v->of[j].ranks_at), v->entered);
        if (j == v->node || silent < dead_s || set_has(&out->nodes, j)) continue;
        snprintf(why, sizeof why, "node %d has not been heard for %.1f s, neither its council nor its ranks", j,
                 silent);
        lose(out, j, why);
    }
}

void council_lost(council_loss *out, double now, const council_record *r, const council_view *v, double dead_s) {
    char why[COUNCIL_WHY];
    node_set near = council_near(v, now, dead_s);
    *out = (council_loss){.any = false};
    FOR_NODES(j, &r->members) {
        const council_heard *h = &v->of[j];
        if (!set_has(&near, j)) continue;
        if (life_of(v, j) != r->life[j]) {
            snprintf(why, sizeof why, "node %d has started anew: the life that record %llu names is over", j,
                     (unsigned long long)r->k);
            lose(out, j, why);
        } else if (in_epoch(h, r) && h->says.failed) {
            snprintf(why, sizeof why, "a rank of node %d reports a failure", j);
            lose(out, -1, why);
        }
    }
    if (council_member(v, r, v->node)) lost_silent(out, now, r, v, dead_s);
}
