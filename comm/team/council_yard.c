// comm/team/council_yard.c: OVER, then KILL, then ENTER.
#include "comm/team/council_yard.h"

static bool old(const yard_rank *r, uint64_t epoch) {
    return r->state == YARD_KILLED || (r->state == YARD_IN_EPOCH && r->epoch != epoch);
}

bool council_yard(yard_action *action, double now, const yard_rank *rank, int n, uint64_t epoch, bool enters) {
    bool gone = true;
    for (int i = 0; i < n; i++) {
        action[i] = YARD_NOTHING;
        if (!old(&rank[i], epoch)) continue;
        gone = false;
        if (rank[i].state == YARD_KILLED) continue;
        if (rank[i].over_at < 0) action[i] = YARD_OVER;
        else if (now - rank[i].over_at >= COUNCIL_LEAVE_S) action[i] = YARD_KILL;
    }
    for (int i = 0; gone && enters && i < n; i++)
        if (rank[i].state == YARD_READY) action[i] = YARD_ENTER;
    return gone;
}
