// trainer/watch/suspect.c: see trainer/watch/suspect.h.
//
// Evidence is weighed from certain to likely: the state of the process, the operation that it reports, the power that
// its device draws.
#include "trainer/watch/suspect.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// --- who -------------------------------------------------------------------------------------------------------------

static bool is_over(const watch_rank *r) { return r->phase == PHASE_ENDED || r->process == 'Z' || r->process == 'X'; }
static bool is_stopped(const watch_rank *r) { return r->process == 'T' || r->process == 't'; }
static bool in_kernel(const watch_rank *r) { return r->process == 'D' && r->what_s > 5; }
static bool is_idle(const watch_rank *r) { return r->device[0] && r->utilisation < 0.1; }  // not where it is not known
static bool waits_for_data(const watch_rank *r) { return r->waits_for == WAIT_DATA; }
// on a GPU the host waits for its device, which may itself wait for other ranks
static bool computes(const watch_rank *r) { return r->waits_for == WAIT_NONE; }

// Of the ranks matching `is`, the one longest in its current operation; -1 if none.
static int longest(const watch_state *s, bool (*is)(const watch_rank *)) {
    int found = -1;
    for (int i = 0; i < s->locals; i++)
        if (!is_over(&s->rank[i]) && is(&s->rank[i]) && (found < 0 || s->rank[i].what_s > s->rank[found].what_s))
            found = i;
    return found;
}

static bool any(const watch_rank *r) { return (void)r, true; }

// The rank that has not reached the step or the collective in which others are; -1 if none.
static int behind(const watch_state *s) {
    int last = -1, first = -1, out = -1, in = 0;
    for (int i = 0; i < s->locals; i++) {
        const watch_rank *r = &s->rank[i];
        if (is_over(r)) continue;
        if (last < 0 || r->step < s->rank[last].step) last = i;
        if (first < 0 || r->step > s->rank[first].step) first = i;
        if (r->beside) in++;
        else out = i;
    }
    if (last >= 0 && s->rank[last].step < s->rank[first].step) return last;
    return in > 0 ? out : -1;
}

// Where every host waits for its GPU: the only GPU that draws power computes, and the others wait for it. -1 if none
// does, or several.
static int only_busy(const watch_state *s, double half) {
    int busy = -1, others = 0;
    for (int i = 0; i < s->locals; i++) {
        const watch_rank *r = &s->rank[i];
        if (is_over(r) || !(r->median_watts > 0) || isnan(r->sensors.watts)) continue;
        if (r->sensors.watts < half * r->median_watts) others++;
        else if (busy >= 0) return -1;
        else busy = i;
    }
    return others > 0 ? busy : -1;
}

suspect suspect_find(const watch_state *s) {
    static const struct {
        bool (*is)(const watch_rank *);
        suspect_why why;
    } certain[] = {{is_stopped, SUSPECT_STOPPED},
                   {in_kernel, SUSPECT_DISK},
                   {waits_for_data, SUSPECT_DATA},
                   {computes, SUSPECT_COMPUTES}};
    int i;
    for (size_t k = 0; k < sizeof certain / sizeof *certain; k++)
        if ((i = longest(s, certain[k].is)) >= 0) return (suspect){i, certain[k].why};
    int idle = longest(s, is_idle), busy = only_busy(s, 0.5), all = longest(s, any);
    bool others = false;  // that are not idle
    for (int k = 0; k < s->locals; k++) others |= !is_over(&s->rank[k]) && !is_idle(&s->rank[k]);
    if (idle >= 0 && others) return (suspect){idle, SUSPECT_IDLE};
    if (busy >= 0) return (suspect){busy, SUSPECT_COMPUTES};
    if ((i = behind(s)) >= 0) return (suspect){i, SUSPECT_BEHIND};
    if (all >= 0 && s->world == 1) return (suspect){all, SUSPECT_COMPUTES};
    return (suspect){all, s->nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN};
}

// --- what is said ----------------------------------------------------------------------------------------------------

const char *suspect_name(const watch_rank *r, char dst[SUSPECT_NAME]) {
    char place[COMM_NAME];
    snprintf(dst, SUSPECT_NAME, "%s, %s%s", comm_place_text(&r->place, place), r->device[0] ? "GPU " : "CPU",
             r->device);
    return dst;
}

static const char *const reason[] = {
    [SUSPECT_STOPPED] = "its process is stopped",
    [SUSPECT_DISK] = "it waits in the kernel, mostly for a disk",
    [SUSPECT_DATA] = "it waits for data",
    [SUSPECT_COMPUTES] = "it computes",
    [SUSPECT_IDLE] = "its device has nothing to do",
    [SUSPECT_BEHIND] = "it is behind the others",
    [SUSPECT_ELSEWHERE] = "all ranks of this node wait for another node",
    [SUSPECT_UNKNOWN] = "all ranks wait for each other",
};

// Does it work or wait? A GPU's rank is judged by its watts, a CPU's by its processor time, since a CPU's watts are the
// whole machine's.
static const char *judge_work(const watch_rank *r, double waits_s) {
    if (r->device[0] && r->median_watts > 0) return r->low_watts_s >= waits_s ? " nothing, or waits" : " slowly";
    if (isnan(r->cpu)) return "";
    return r->cpu < 0.2 ? " nothing, or waits" : " slowly";
}

static void put_next(text *l, const watch_state *s, suspect who) {
    const watch_rank *r = &s->rank[who.local];
    switch (who.why) {
    case SUSPECT_STOPPED: text_put(l, "kill -CONT %d", r->pid); break;
    case SUSPECT_DISK: text_put(l, "dmesg; cat /proc/%d/stack", r->pid); break;
    case SUSPECT_DATA: text_put(l, "look at the disk or file system of [data] train"); break;
    case SUSPECT_ELSEWHERE: text_put(l, "lockstep status on the other nodes"); break;
    default: text_put(l, "%sgdb -p %d -batch -ex 'thread apply all bt'", r->device[0] ? "dmesg (Xid); " : "", r->pid);
    }
}

void suspect_text(char *dst, size_t room, const watch_state *s, suspect who, int64_t step, double quiet_s,
                  double waits_s) {
    text l = {.at = dst, .room = room};
    char name[SUSPECT_NAME];
    if (who.local < 0)
        return (void)snprintf(dst, room, "no step for %.0f s, and no rank of this node is there", quiet_s);
    const watch_rank *r = &s->rank[who.local];
    text_put(&l, "no step for %.0f s", quiet_s);
    if (step >= 0) text_put(&l, " after step %" PRId64, step);
    bool found = who.why != SUSPECT_ELSEWHERE && who.why != SUSPECT_UNKNOWN;
    if (found)
        text_put(&l, ": waiting for %s: %s%s; ", suspect_name(r, name), reason[who.why],
                 who.why == SUSPECT_COMPUTES ? judge_work(r, waits_s) : "");
    else text_put(&l, ": %s, for the longest time %s: ", reason[who.why], suspect_name(r, name));
    text_put(&l, "phase %s", board_phase_name(r->phase));
    if (r->what) text_put(&l, ", %s", r->what);
    if (r->what && r->number >= 0) text_put(&l, " %" PRId64, r->number);
    text_put(&l, " of step %" PRId64 " for %.0f s", r->step, r->what_s);
    if (!isnan(r->sensors.watts) && r->median_watts > 0)
        text_put(&l, "; %.0f W, median %.0f W", r->sensors.watts, r->median_watts);
    text_put(&l, ". Next: ");
    put_next(&l, s, who);
}
