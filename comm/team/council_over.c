// comm/team/council_over.c: OVER, then KILL, then ENTER.
#include "comm/team/council_over.h"

static bool old(const over_rank *r, uint64_t epoch) {
    return r->state == OVER_KILLED || (r->state == OVER_IN_EPOCH && r->epoch != epoch);
}

bool council_over(over_action *action, double now, const over_rank *rank, int n, uint64_t epoch, bool enters) {
    bool gone = true;
    for (int i = 0; i < n; i++) {
        action[i] = OVER_NOTHING;
        if (!old(&rank[i], epoch)) continue;
        gone = false;
        if (rank[i].state == OVER_KILLED) continue;
        if (rank[i].over_at < 0) action[i] = OVER_TELL;
        else if (now - rank[i].over_at >= COUNCIL_LEAVE_S) action[i] = OVER_KILL;
    }
    for (int i = 0; gone && enters && i < n; i++)
        if (rank[i].state == OVER_READY) action[i] = OVER_ENTER;
    return gone;
}
