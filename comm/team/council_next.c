// comm/team/council_next.c: the rules, one after the other, each a function that answers whether it applies.
#include "comm/team/council_next.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const council_action_names[COUNCIL_ACTIONS] = {COUNCIL_WORDS(WORD_NAME)};

// What the rules look at.
typedef struct scene {
    double now;
    const council_record *r;
    const council_view *v;
    const council_rules *k;
    node_set near, living, stay;  // reported; voters and members of those, in the lives of the record
    council_loss loss;
} scene;

static bool say(council_decision *out, council_action action, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool say(council_decision *out, council_action action, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(out->why, sizeof out->why, fmt, args);
    va_end(args);
    out->action = action;
    return true;
}

// dst (=) "nodes 0 1 5". Returns dst.
static const char *names(char dst[COUNCIL_WHY], const node_set *s) {
    size_t n = (size_t)snprintf(dst, COUNCIL_WHY, set_count(s) == 0 ? "none" : set_count(s) == 1 ? "node" : "nodes");
    FOR_NODES(j, s)
        if (n < 40) n += (size_t)snprintf(dst + n, COUNCIL_WHY - n, " %d", j);
    return dst;
}

static bool end(council_decision *out, err_t code, const char *why) {
    out->code = code;
    return say(out, COUNCIL_END, "%s", why);
}

// Other data would give other bits. Only a member's own is known to be the run's.
static bool has_other_data(const scene *s, int j) {
    uint64_t mine = s->v->of[s->v->node].says.data, its = s->v->of[j].says.data;
    return mine && its && mine != its;
}

// May it be taken in?
static bool may_come(const scene *s, int j) {
    const council_report *r = &s->v->of[j].says;
    return r->ready && !r->leaving && !has_other_data(s, j);
}

// --- the layout of a world -------------------------------------------------------------------------------------------

int council_width(const council_rules *k, int slots) {
    int per = k->grid.tensor * k->grid.pipeline * k->grid.context;
    for (int w = slots / per < k->lanes ? slots / per : k->lanes; w > 0; w--)
        if (k->fits[w / 64] >> w % 64 & 1 && w * per >= k->min_ranks) return w;
    return 0;
}

static int slots_of(const scene *s, const node_set *who) {
    int n = 0;
    FOR_NODES(j, who) n += s->v->of[j].says.slots;
    return n < TEAM_RANKS_MAX ? n : TEAM_RANKS_MAX;
}

static bool fits(const scene *s, const node_set *who) { return council_width(s->k, slots_of(s, who)) > 0; }

static void lay_out(council_record *n, const scene *s) {
    int slots = slots_of(s, &n->members), seats = 0, width = council_width(s->k, slots);
    n->grid = s->k->grid;
    n->grid.data = (uint16_t)width, n->lanes = s->k->lanes;
    n->ranks = width * n->grid.tensor * n->grid.pipeline * n->grid.context;
    n->spares = slots - n->ranks;
    FOR_NODES(j, &n->members)
        for (int i = 0; i < n->slots[j] && seats < slots; i++)
            n->seat[seats++] = (council_seat){(uint16_t)j, (uint16_t)i};
    memset(n->deal, 0, sizeof n->deal);
    for (int i = 0; i < width; i++)
        n->deal[i] = (uint16_t)((int64_t)(i + 1) * n->lanes / width - (int64_t)i * n->lanes / width);
}

// --- the next record -------------------------------------------------------------------------------------------------

// The highest step that is known to be applied, and whether this epoch has begun one.
static int64_t highest(const scene *s, bool *began) {
    int64_t high = s->r->high;
    *began = false;
    FOR_NODES(j, &s->near) {
        const council_heard *h = &s->v->of[j];
        if (!h->has_record || memcmp(h->run, s->r->run, COUNCIL_RUN) != 0) continue;
        if (h->says.step > high) high = h->says.step;
        *began |= h->epoch == s->r->epoch && h->says.began;
    }
    return high;
}

static council_record *follow(council_decision *out, const scene *s, decree_kind kind) {
    council_record *n = &out->next;
    *n = *s->r;
    n->k++, n->kind = kind;
    snprintf(n->why, sizeof n->why, "%s", out->why);
    out->proposes = true;
    return n;
}

// A record that begins an epoch, with these members.
static council_record *begin(council_decision *out, const scene *s, decree_kind kind, const node_set *members) {
    council_record *n = follow(out, s, kind);
    bool began;
    int64_t high = highest(s, &began);
    if (high > n->high) n->fruitless = 0;
    else if (began && kind == DECREE_HEAL) n->fruitless++;
    n->high = high, n->members = *members, n->epoch = n->k;
    memset(n->fence, 0, sizeof n->fence);
    FOR_NODES(j, members) n->life[j] = s->v->of[j].life, n->slots[j] = (uint16_t)s->v->of[j].says.slots;
    lay_out(n, s);
    return n;
}

// The members vote from now on, with the slots that they have.
static void voters_follow(council_record *n) {
    n->voters = n->members;
    FOR_NODES(j, &n->voters) n->weight[j] = n->slots[j];
}

// A record that goes on with the epoch of r.
static council_record *go_on(council_decision *out, const scene *s, decree_kind kind) {
    council_record *n = follow(out, s, kind);
    council_fence(n->fence, s->r);
    return n;
}

// --- cold start ------------------------------------------------------------------------------------------------------

static void form(council_decision *out, const scene *s) {
    council_record *n = &out->next;
    *n = (council_record){.k = 1, .epoch = 1, .kind = DECREE_FORM, .nodes = s->v->nodes, .members = s->near};
    memcpy(n->run, s->k->run, COUNCIL_RUN);
    for (int j = 0; j < n->nodes; j++) n->life[j] = s->v->of[j].life, n->slots[j] = (uint16_t)s->v->of[j].says.slots;
    lay_out(n, s);
    voters_follow(n);
    say(out, COUNCIL_FORM, "all %d nodes hear each other and none has a record: a run begins", n->nodes);
    snprintf(n->why, sizeof n->why, "%s", out->why);
    out->proposes = true;
}

// Only with all configured nodes: a part of them cannot know whether the others train.
static void cold_start(council_decision *out, const scene *s) {
    int absent = -1, apart = -1;
    for (int a = 0; a < s->v->nodes; a++) {
        if (!set_has(&s->near, a) || s->v->of[a].has_record) absent = a;
        for (int b = 0; b < a; b++)
            if (!council_both(s->v, a, b)) apart = a;
    }
    if (s->v->of[s->v->node].says.leaving) end(out, ERR_OK, "asked to leave before a run began");
    else if (absent >= 0)
        say(out, COUNCIL_WAIT,
            s->v->of[absent].has_record ? "node %d has a record: waits to be taken in"
                                        : "waits for node %d: a run begins with all nodes",
            absent);
    else if (apart >= 0) say(out, COUNCIL_WAIT, "node %d does not hear all others, or is not heard by all", apart);
    else if (!fits(s, &s->near)) say(out, COUNCIL_WAIT, "the slots of all nodes make no world that fits");
    else if (s->v->node != 0) say(out, COUNCIL_WAIT, "node 0 forms the first record");
    else form(out, s);
}

// --- ends ------------------------------------------------------------------------------------------------------------

// A person, or systemd, should know of a run that does not begin.
static void begin_or_give_up(council_decision *out, const scene *s) {
    char why[COUNCIL_WHY];
    double waited = s->now - s->v->worked_at;
    cold_start(out, s);
    if (out->action != COUNCIL_WAIT || waited <= s->k->give_up_s) return;
    memcpy(why, out->why, sizeof why);
    out->code = ERR_UNAVAILABLE;
    say(out, COUNCIL_END, "gives up after %.0f s: %.100s", waited, why);
}

// All were to save and stop, but this node's ranks are in no world any more, or not yet, and some that they need are
// lost: no record may follow that gives them another one.
static bool stopped_short(council_decision *out, const scene *s) {
    const council_view *v = s->v;
    council_state state = v->of[v->node].says.state;
    council_loss loss;
    if (!council_member(v, s->r, v->node) || state == COUNCIL_WORKING || state == COUNCIL_ENDING) return false;
    council_lost(&loss, s->now, s->r, v, s->k->dead_s);
    if (!loss.any) return false;
    out->code = ERR_INTERRUPTED;
    return say(out, COUNCIL_END, "%.90s, while all were to save and stop", loss.why);
}

static bool recorded_end(council_decision *out, const scene *s) {
    if (s->r->kind != DECREE_STOP && s->r->kind != DECREE_END) return false;
    if (s->r->kind == DECREE_STOP && stopped_short(out, s)) return true;
    out->code = s->r->kind == DECREE_STOP ? ERR_INTERRUPTED : ERR_INTERNAL;
    return say(out, s->r->kind == DECREE_STOP ? COUNCIL_STOP : COUNCIL_END, "%s", s->r->why);
}

// Do all members go on with this record, or have they ended with it? Then `ended`.
static bool members_go_on(const scene *s, bool *ended) {
    *ended = true;
    FOR_NODES(j, &s->r->members) {
        const council_heard *h = &s->v->of[j];
        if (!h->has_record || h->k < s->r->k || memcmp(h->run, s->r->run, COUNCIL_RUN) != 0) return false;
        if (h->says.state != COUNCIL_WORKING && h->says.state != COUNCIL_ENDING) return false;
        *ended &= h->says.state == COUNCIL_ENDING;
    }
    return true;
}

// Has the leaver given all that it has? Every member has the record that goes on without it, and works. While its vote
// may be needed it stays.
static bool parted(council_decision *out, const scene *s) {
    const council_view *v = s->v;
    bool ended;
    if (!v->of[v->node].says.leaving || council_member(v, s->r, v->node)) return false;
    if (s->now - v->entered >= s->k->drain_s)
        return end(out, ERR_OK, "has left: the others did not say in time that they go on");
    if (!members_go_on(s, &ended) || (council_votes(v, s->r, v->node) && !ended)) return false;
    if (v->of[v->node].says.slow && !ended)
        return end(out, ERR_OK, "was put out, since it stays slow: every member goes on without this node");
    return end(out, ERR_OK, ended ? "has left: the run is over" : "has left: every member goes on without this node");
}

// Members end together, after the last step or a stop. One whose ranks lost the others in their last moments has
// nothing to go on with, nor anybody.
static bool ended_elsewhere(council_decision *out, const scene *s) {
    const council_view *v = s->v;
    if (!council_member(v, s->r, v->node) || !v->of[v->node].says.failed) return false;
    FOR_NODES(j, &s->r->members) {
        const council_heard *h = &v->of[j];
        bool here = h->has_record && h->epoch == s->r->epoch && memcmp(h->run, s->r->run, COUNCIL_RUN) == 0;
        if (j != v->node && here && h->says.state == COUNCIL_ENDING)
            return end(out, ERR_OK, "the others have ended the run, saved");
    }
    return false;
}

// Voters whose machine reports another life never vote again.
static bool hopeless(council_decision *out, const scene *s) {
    node_set rest = s->r->voters;
    FOR_NODES(j, &s->r->voters)
        if (s->v->of[j].life && s->v->of[j].life != s->r->life[j]) set_drop(&rest, j);
    if (council_enough(&rest, s->r)) return false;
    return end(out, ERR_UNAVAILABLE, "so many voters have started anew that no record can follow");
}

static bool gave_up(council_decision *out, const scene *s) {
    double waited = s->now - s->v->worked_at;
    if (!council_votes(s->v, s->r, s->v->node) || waited <= s->k->give_up_s) return false;
    out->code = ERR_UNAVAILABLE;
    return say(out, COUNCIL_END, "no world for %.0f s: gives up", waited);
}

// Who has no vote waits for members, for as long as it hears one. They may have ended meanwhile.
static bool forsaken(council_decision *out, const scene *s) {
    const council_view *v = s->v;
    double heard = v->worked_at;
    bool ended = true, any = false;
    if (council_votes(v, s->r, v->node)) return false;
    FOR_NODES(j, &s->r->members) {
        const council_heard *h = &v->of[j];
        if (j == v->node) continue;
        if (h->at > heard) heard = h->at;
        any = true;
        ended &= h->has_record && memcmp(h->run, s->r->run, COUNCIL_RUN) == 0 && h->says.state == COUNCIL_ENDING;
    }
    double silent = s->now - heard;
    if (any && ended && silent > s->k->dead_s)
        return end(out, ERR_OK, "all members have ended the run, without this node");
    if (silent <= s->k->give_up_s) return false;
    out->code = ERR_UNAVAILABLE;
    return say(out, COUNCIL_END, "no member has been heard for %.0f s: gives up", silent);
}

// --- a loss ----------------------------------------------------------------------------------------------------------

// The members to come, and whether they fit. A node that is no member comes in only where nothing fits without it; a
// voter also where those who stay are not enough.
static bool healed(const scene *s, node_set *members) {
    node_set come = {{0}}, pool;
    FOR_NODES(j, &s->near)
        if (may_come(s, j) && !set_has(&s->stay, j)) set_add(&come, j);
    pool = s->stay;
    if (!set_empty(&pool) && !council_enough(&pool, s->r)) {
        node_set voters = set_and(come, &s->living);
        pool = set_or(pool, &voters);
    }
    *members = council_largest(s->v, pool, s->stay);
    if (!set_empty(members) && fits(s, members)) return true;
    *members = council_largest(s->v, set_or(s->stay, &come), s->stay);
    return !set_empty(members) && fits(s, members);
}

static bool heal(council_decision *out, const scene *s) {
    char text[COUNCIL_WHY];
    node_set members;
    if (!s->loss.any) return false;
    if (!council_enough(&s->living, s->r))
        return say(out, COUNCIL_WAIT, "%.90s; too few voters are heard: %s", s->loss.why, names(text, &s->living));
    if (!healed(s, &members))
        return say(out, COUNCIL_WAIT, "%.90s; what is left makes no world that fits", s->loss.why);
    say(out, COUNCIL_HEAL, "%s", s->loss.why);
    council_record *n = begin(out, s, DECREE_HEAL, &members);
    if (n->fruitless < COUNCIL_FRUITLESS) return true;
    say(out, COUNCIL_END, "%d epochs in a row ended at step %lld: a step kills whoever computes it", n->fruitless,
        (long long)n->high);
    go_on(out, s, DECREE_END)->fruitless = COUNCIL_FRUITLESS;
    return true;
}

// --- turns -----------------------------------------------------------------------------------------------------------

static bool drain(council_decision *out, const scene *s) {
    node_set leave = {{0}}, rest;
    char text[COUNCIL_WHY];
    FOR_NODES(j, &s->stay)
        if (s->v->of[j].says.leaving) set_add(&leave, j);
    if (set_empty(&leave) || !set_within(&s->r->members, &s->near)) return false;
    rest = set_less(s->r->members, &leave);
    if (set_empty(&rest) || !fits(s, &rest)) {
        say(out, COUNCIL_STOP, "leaving: %s; the rest does not fit: all save and stop", names(text, &leave));
        go_on(out, s, DECREE_STOP);
        return true;
    }
    say(out, COUNCIL_TURN, "leaving: %s", names(text, &leave));
    voters_follow(begin(out, s, DECREE_DRAIN, &rest));
    return true;
}

// One that came back and is slow again stays.
static bool evict(council_decision *out, const scene *s) {
    node_set rest = s->r->members;
    int slow = -1;
    FOR_NODES(j, &s->stay)
        if (slow < 0 && s->v->of[j].says.slow && !set_has(&s->r->evicted, j)) slow = j;
    if (slow < 0 || !set_within(&s->r->members, &s->near)) return false;
    set_drop(&rest, slow);
    if (set_empty(&rest) || !fits(s, &rest)) return false;
    say(out, COUNCIL_TURN, "node %d stays %.1f times as slow as the others, so the run goes on without it", slow,
        s->v->of[slow].says.slow / 10.0);
    council_record *n = begin(out, s, DECREE_EVICT, &rest);
    set_add(&n->evicted, slow);
    voters_follow(n);
    return true;
}

static bool join(council_decision *out, const scene *s) {
    node_set pool = s->stay, members, added;
    char text[COUNCIL_WHY];
    if (s->now - s->v->entered <= COUNCIL_QUIET_S || s->v->sealed_at < s->v->entered) return false;
    FOR_NODES(j, &s->near)
        if (may_come(s, j)) set_add(&pool, j);
    members = council_largest(s->v, pool, s->stay);
    added = set_less(members, &s->r->members);
    if (set_empty(&added) || !set_within(&s->r->members, &members)) return false;
    say(out, COUNCIL_TURN, "joining: %s", names(text, &added));
    begin(out, s, DECREE_JOIN, &members);
    return true;
}

static bool settle(council_decision *out, const scene *s) {
    if (s->v->sealed_at < s->v->entered || s->now - s->v->sealed_at <= COUNCIL_QUIET_S) return false;
    if (set_same(&s->r->voters, &s->r->members) || !set_within(&s->r->members, &s->near)) return false;
    say(out, COUNCIL_SETTLE, "sealed for %.0f s: the members vote from now on", s->now - s->v->sealed_at);
    voters_follow(go_on(out, s, DECREE_SETTLE));
    return true;
}

static void wait_to_come(council_decision *out, const scene *s) {
    FOR_NODES(j, &s->stay)
        if (has_other_data(s, j)) {
            say(out, COUNCIL_WAIT, "no member: node %d, which trains, has other data: copy the same files to all nodes",
                j);
            return;
        }
    say(out, COUNCIL_WAIT, "no member: waits to be taken in");
}

// --- what follows ----------------------------------------------------------------------------------------------------

void epoch_next(council_decision *out, double now, const council_record *r, const council_view *v,
                const council_rules *k) {
    scene s = {.now = now, .r = r, .v = v, .k = k, .near = council_near(v, now, k->dead_s)};
    out->action = COUNCIL_STAY, out->proposes = false, out->code = ERR_OK, out->why[0] = 0;
    if (!r) {
        begin_or_give_up(out, &s);
        return;
    }
    if (recorded_end(out, &s) || parted(out, &s) || ended_elsewhere(out, &s) || hopeless(out, &s) || gave_up(out, &s) ||
        forsaken(out, &s))
        return;
    s.living = council_same_life(v, r, set_and(s.near, &r->voters));
    s.stay = council_same_life(v, r, set_and(s.near, &r->members));
    council_lost(&s.loss, now, r, v, k->dead_s);
    if (heal(out, &s)) return;
    if (!council_member(v, r, v->node)) wait_to_come(out, &s);
    else if (!drain(out, &s) && !evict(out, &s) && !join(out, &s)) settle(out, &s);
}

bool council_works(double now, const council_record *r, const council_view *v, const council_rules *k) {
    if (!council_member(v, r, v->node) || v->of[v->node].says.failed) return false;
    FOR_NODES(j, &r->members)
        if (j != v->node && now - v->of[j].ranks_at >= k->dead_s) return false;
    return true;
}

bool council_proposes(const council_decision *d, double now, double since, const council_record *r,
                      const council_view *v, const council_rules *k) {
    if (!d->proposes || !council_votes(v, r, v->node)) return false;
    node_set near = council_near(v, now, k->dead_s);
    node_set living = council_same_life(v, r, set_and(near, &r->voters)), first = set_and(d->next.members, &r->voters);
    int before = 0, lead = set_lowest(set_empty(&first) ? &r->voters : &first);
    FOR_NODES(j, &living) before += j < v->node;
    double wait = COUNCIL_OTHER_S + COUNCIL_PLACE_S * before;
    return now - since >= wait && (lead == v->node || now - v->need_at >= wait);
}
