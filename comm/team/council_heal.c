// comm/team/council_heal.c: coverage: which steps are whole over which holders. A step survives the loss of any one
// holder when each of its parts has two.
#include "comm/team/council_heal.h"

#include <stdio.h>

bool council_commit(int64_t ok_sum, int world, bool revoked) { return ok_sum == world && !revoked; }

// --- snapshots -------------------------------------------------------------------------------------------------------

int64_t council_sealed(int64_t known, const int64_t *sealed, int ranks) {
    int64_t least = ranks > 0 ? sealed[0] : -1;
    for (int i = 1; i < ranks; i++)
        if (sealed[i] < least) least = sealed[i];
    return least > known ? least : known;
}

int council_snap(const int64_t generation[VAULT_SLOTS], int64_t sealed, int64_t step, int64_t every) {
    int old = generation[0] <= generation[1] ? 0 : 1;
    int64_t newest = generation[1 - old];
    if (step - newest < every) return -1;
    return generation[old] < 0 || sealed >= newest ? old : -1;
}

// --- coverage --------------------------------------------------------------------------------------------------------

static bool usable(const heal_holding *h) { return !h->torn && (h->live || h->sealed); }

static bool has(const heal_holding *h, int64_t step, int part) {
    return h->step == step && usable(h) && part >= h->first && part < h->first + h->count;
}

// How many holders have the part, counted up to 2.
static int holders(const heal_holding *of, int n, int64_t step, int part) {
    int first = -1;
    for (int i = 0; i < n; i++) {
        if (!has(&of[i], step, part)) continue;
        if (first >= 0 && of[i].holder != first) return 2;
        first = of[i].holder;
    }
    return first >= 0;
}

// 0: a part is missing. 1: all are there. 2: also after the loss of any one holder.
static int coverage(const heal_holding *of, int n, int parts, int64_t step) {
    int least = 2;
    for (int p = 0; p < parts && least > 0; p++) {
        int found = holders(of, n, step, p);
        if (found < least) least = found;
    }
    return least;
}

// --- healing ---------------------------------------------------------------------------------------------------------

// step (=) those that anything usable belongs to. Returns how many; -1: more than HEAL_STEPS.
static int steps_of(int64_t step[HEAL_STEPS], const heal_holding *of, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        int at = 0;
        if (!usable(&of[i])) continue;
        while (at < count && step[at] != of[i].step) at++;
        if (at == HEAL_STEPS) return -1;
        if (at == count) step[count++] = of[i].step;
    }
    return count;
}

static err_t choose_step(heal_plan *out, const heal_holding *of, int n, int parts) {
    int64_t step[HEAL_STEPS];
    int count = steps_of(step, of, n), best = 0;
    if (count < 0) return err_set(ERR_INTERNAL, "an inventory of more than %d steps", HEAL_STEPS);
    *out = (heal_plan){.step = -1};
    for (int i = 0; i < count; i++) {
        int covered = coverage(of, n, parts, step[i]);
        if (covered < best || covered == 0 || (covered == best && step[i] <= out->step)) continue;
        best = covered, out->step = step[i];
    }
    out->twice = best == 2;
    if (best == 0) snprintf(out->why, sizeof out->why, "no step has all its parts in memory: all load from disk");
    else
        snprintf(out->why, sizeof out->why, "continues after step %lld, the newest whose %d parts are all there%s",
                 (long long)out->step, parts, out->twice ? ", each twice" : "");
    return ERR_OK;
}

// Parts that `holder` sends in the first n moves.
static int sends(const heal_move *move, int n, int holder) {
    int count = 0;
    for (int i = 0; i < n; i++) count += move[i].from == holder && move[i].to != holder;
    return count;
}

static int source(const heal_move *move, int n, const heal_holding *of, int holdings, int64_t step, int part, int to) {
    int best = -1, least = 0;
    for (int i = 0; i < holdings; i++) {
        if (!has(&of[i], step, part)) continue;
        if (of[i].holder == to) return to;
        int load = best < 0 || of[i].holder != best ? sends(move, n, of[i].holder) : least;
        if (best >= 0 && (load > least || (load == least && of[i].holder >= best))) continue;
        best = of[i].holder, least = load;
    }
    return best;
}

static bool in_range(int first, int count, int parts) { return first >= 0 && count >= 0 && count <= parts - first; }

err_t heal_choose(heal_plan *out, heal_move *move, int room, const heal_holding *of, int holdings, int parts,
                  const heal_want *wants, int n) {
    for (int i = 0; i < holdings; i++)
        if (!in_range(of[i].first, of[i].count, parts) || of[i].step < 0)
            return err_set(ERR_INTERNAL, "holding %d of holder %d: parts or step out of range", i, of[i].holder);
    TRY(choose_step(out, of, holdings, parts));
    if (out->step < 0) return ERR_OK;
    for (int i = 0; i < n; i++) {
        if (!in_range(wants[i].first, wants[i].count, parts) || wants[i].count > room - out->moves)
            return err_set(ERR_INTERNAL, "want %d of holder %d: out of range, or more than %d moves", i,
                           wants[i].holder, room);
        for (int p = wants[i].first; p < wants[i].first + wants[i].count; p++, out->moves++) {
            int from = source(move, out->moves, of, holdings, out->step, p, wants[i].holder);
            move[out->moves] = (heal_move){p, from, wants[i].holder};
        }
    }
    return ERR_OK;
}

// --- checkpoints -----------------------------------------------------------------------------------------------------

static bool complete(const heal_holding *of, int n, int parts, const node_set *members, int64_t step) {
    for (int p = 0; p < parts; p++) {
        bool found = false;
        for (int i = 0; i < n && !found; i++) found = set_has(members, of[i].holder) && has(&of[i], step, p);
        if (!found) return false;
    }
    return true;
}

bool council_prune(const heal_holding *of, int holdings, int parts, const node_set *members, int64_t step) {
    for (int i = 0; i < holdings; i++)
        if (of[i].step > step && complete(of, holdings, parts, members, of[i].step)) return true;
    return false;
}
