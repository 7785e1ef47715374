// trainer/lies.c: see trainer/lies.h.
#include "trainer/lies.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>

enum { ENOUGH = 4, WHAT = 640 };

static void count(uint8_t *points, int more) { *points = (uint8_t)(*points + more < 255 ? *points + more : 255); }

// A process that was started again knows nothing of what was before: the others do.
static err_t recall_points(lies *l, session *x, int rank) {
    int64_t most = l->points[rank];
    TRY(comm_agree_max(x->ranks, &most, x->s));
    l->points[rank] = (uint8_t)most;
    return ERR_OK;
}

// Who of the two was farther from what all hold now? By less than a factor of ten says nothing.
static err_t settle(lies *l, session *x, monitor *m) {
    double far[2] = {0};
    char who[COMM_NAME], said[WHAT];
    int rank = x->ranks->rank, at = rank == l->rank[0] ? 0 : rank == l->rank[1] ? 1 : -1;
    if (at >= 0) TRY(replica_far(&x->state, &l->had, &far[at]));
    comm *host = x->ranks->host;
    TRY(host->table->all_reduce(host, far, 2, FP64, REDUCE_SUM, x->s));
    TRY(stream_wait(x->s));
    int liar = far[0] >= 100 * far[1] && far[0] > 0 ? 0 : far[1] >= 100 * far[0] && far[1] > 0 ? 1 : -1;
    int64_t step = l->step;
    lies_leave(l);
    if (liar < 0) return ERR_OK;
    count(&l->points[l->rank[liar]], 1);
    snprintf(said, sizeof said,
             "after step %" PRId64 " it was %s that held other values: they were %.3g from what they are now that the "
             "steps were computed again, those of the other rank %.3g",
             step, comm_rank_text(x->ranks, l->rank[liar], who), sqrt(far[liar]), sqrt(far[1 - liar]));
    if (rank == 0) monitor_event(m, "liar", step, said);
    return ERR_OK;
}

void lies_leave(lies *l) {
    replica_drop(&l->had);
    l->step = 0;
}

err_t lies_look(lies *l, session *x, monitor *m, replica_verdict *v) {
    TRY(session_settle(x));
    TRY(replicas_compare(&x->state, v));
    if (!v->differ) {
        l->same = x->progress.step;
        return l->step == l->same ? settle(l, x, m) : ERR_OK;
    }
    lies_leave(l);
    if (v->liar < 0) {
        l->step = x->progress.step, l->rank[0] = v->rank[0], l->rank[1] = v->rank[1];
        TRY(replica_keep(&x->state, v->index, &l->had));
    }
    for (int k = 0; k < 2; k++) {
        int rank = v->rank[k];
        if (rank < 0 || rank >= LIES_RANKS) continue;
        TRY(recall_points(l, x, rank));
        count(&l->points[rank], v->liar >= 0 ? 2 : 1);
    }
    return ERR_OK;
}

bool lies_are_enough(const lies *l, const replica_verdict *v) {
    for (int k = 0; k < 2; k++)
        if (v->rank[k] >= 0 && v->rank[k] < LIES_RANKS && l->points[v->rank[k]] >= ENOUGH) return true;
    return false;
}

static void put_who(text *t, const session *x, const replica_verdict *v) {
    char a[COMM_NAME], b[COMM_NAME];
    comm_rank_text(x->ranks, v->rank[0], a);
    if (v->liar >= 0) {
        text_put(t, "%s holds other values than those that should hold the same", a);
        return;
    }
    text_put(t, "%s and %s do not hold the same, and no third rank tells which one is right", a,
             comm_rank_text(x->ranks, v->rank[1], b));
}

static const char *describe(const lies *l, const session *x, const replica_verdict *v, char to[WHAT]) {
    text t = {.at = to, .room = WHAT};
    put_who(&t, x, v);
    text_put(&t, " after step %" PRId64 ": %s", x->progress.step, v->tensor);
    if (v->tensors > 1) text_put(&t, " and %d other tensor%s", v->tensors - 1, v->tensors == 2 ? "" : "s");
    if (l->same >= 0) text_put(&t, "; after step %" PRId64 " it was the same", l->same);
    return to;
}

void lies_say(const lies *l, const session *x, monitor *m, const replica_verdict *v, bool goes_back) {
    char what[WHAT], said[WHAT + 128];
    if (x->ranks->rank != 0) return;
    snprintf(said, sizeof said, "%s: a bit has flipped in memory, or a processor computes wrongly%s",
             describe(l, x, v, what), goes_back ? "; all ranks go back, and compute these steps again" : "");
    monitor_event(m, "lie", x->progress.step, said);
}

// Said by a suspect, whose name the others put before it.
static err_t accuse(const lies *l, const session *x, const replica_verdict *v, int64_t saved) {
    char what[WHAT], then[96] = "there is no checkpoint yet: the same command begins anew";
    bool again = lies_are_enough(l, v);
    if (saved >= 0)
        snprintf(then, sizeof then, "the same command continues after step %" PRId64 ", which was compared", saved);
    return err_set(again ? ERR_INTERNAL : ERR_UNAVAILABLE,
                   "%s%s. Look at that machine's memory (edac-util, dmesg, memtester), or leave it out; %s",
                   describe(l, x, v, what), again ? "; it is not the first time" : "", then);
}

err_t lies_end(const lies *l, session *x, const replica_verdict *v, int64_t saved) {
    bool mine = x->ranks->rank == v->rank[0];
    return comm_agree_ok(x->ranks, mine ? accuse(l, x, v, saved) : ERR_OK, x->s);
}
