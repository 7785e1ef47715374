// trainer/node/healing.c: see trainer/node/healing.h.
#include "trainer/node/healing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static const double leave_s = 5;                             // for a survivor, to leave
static const double last_s = 60;                             // for all to be ready for the last world
static const double again_s[HEALING_DEATHS] = {0, 0, 1, 3};  // before the next start, by deaths in a row

healing *healing_new(int slots) {
    healing *h = calloc(1, sizeof *h + (size_t)slots * sizeof *h->slot);
    if (h) h->slots = slots, h->first = -1;
    return h;
}

// --- facts -----------------------------------------------------------------------------------------------------------

void healing_began(healing *h, int64_t step) {
    h->began = true;
    h->high = h->high_then = step;
}

void healing_step(healing *h, int64_t step) {
    if (step > h->high) h->high = step;
}

static void note_out(healing *h, double now) {
    if (h->failed_at == 0) h->failed_at = now;
    h->out_at = now;
}

void healing_ended(healing *h, int slot, int status, double now) {
    healing_slot *s = &h->slot[slot];
    if (s->place == SLOT_GOING) {
        healing_retired(h, slot);
        return;
    }
    if (h->last_at > 0 && !h->last && s->place == SLOT_NEW) {
        healing_retired(h, slot);
        return;
    }
    s->place = SLOT_ENDED, s->status = status, s->ended_at = now;
    s->deaths = s->deaths && s->high == h->high ? s->deaths + 1 : 1;
    s->high = h->high;
    if (h->first < 0) h->first = slot;
    note_out(h, now);
}

void healing_left(healing *h, int slot, double now) {
    bool fresh = h->slot[slot].place == SLOT_NEW;
    h->slot[slot].place = SLOT_LEFT;
    if (!fresh) note_out(h, now);
}

void healing_killed(healing *h, int slot) { h->slot[slot].hung = true; }

void healing_opened(healing *h) {
    h->fruitless = h->high > h->high_then ? 0 : h->fruitless + 1;
    h->high_then = h->high;
    h->failed_at = 0, h->first = -1, h->last = h->last_at > 0;
    for (int i = 0; i < h->slots; i++) {
        if (h->slot[i].place != SLOT_RETIRED) h->slot[i].place = SLOT_IN;
        h->slot[i].hung = false;
    }
}

void healing_over(healing *h, double now) {
    if (h->failed_at == 0) h->failed_at = h->out_at = now;
}

void healing_last(healing *h, double now) {
    healing_over(h, now);
    h->last_at = now;
}

void healing_restarted(healing *h, int slot) { h->slot[slot].place = SLOT_NEW, h->slot[slot].hung = false; }
void healing_waits(healing *h, int slot) { h->slot[slot].place = SLOT_LEFT; }
// Other ranks may finish the step that this one never did.
void healing_retired(healing *h, int slot) { h->slot[slot].place = SLOT_RETIRED, h->fruitless = 0; }

void healing_goes(healing *h, int slot, double now) { h->slot[slot].place = SLOT_GOING, h->slot[slot].ended_at = now; }

static int count(const healing *h, healing_place place) {
    int n = 0;
    for (int i = 0; i < h->slots; i++) n += h->slot[i].place == place;
    return n;
}

bool healing_inside(const healing *h) { return count(h, SLOT_IN) > 0; }
int healing_slots(const healing *h) { return h->slots - count(h, SLOT_RETIRED); }
bool healing_ready(const healing *h) { return count(h, SLOT_LEFT) == healing_slots(h); }

// --- decisions -------------------------------------------------------------------------------------------------------

// Another attempt meets the same error: usage, data, a fault of the program, permission, settings.
static bool is_final(int status) {
    if (!WIFEXITED(status)) return false;
    err_t code = (err_t)WEXITSTATUS(status);
    return code == ERR_USAGE || code == ERR_DATA || code == ERR_INTERNAL || code == ERR_AUTH || code == ERR_CONFIG;
}

static bool ended_with(const healing_slot *s, err_t code) {
    return s->place == SLOT_ENDED && WIFEXITED(s->status) && WEXITSTATUS(s->status) == (int)code;
}

static healing_choice end(err_t code, int slot) { return (healing_choice){HEAL_END, .code = code, .slot = slot}; }

// A rank that ended well knew that all had finished, or saved: nothing is left to be done.
static bool is_over(const healing *h, healing_choice *out) {
    for (int i = 0; i < h->slots; i++) {
        bool done = ended_with(&h->slot[i], ERR_OK), stopped = ended_with(&h->slot[i], ERR_INTERRUPTED);
        if (done || stopped) return *out = end(done ? ERR_OK : ERR_INTERRUPTED, -1), true;
    }
    return false;
}

static bool is_hopeless(const healing *h, healing_choice *out) {
    for (int i = 0; i < h->slots; i++) {
        const healing_slot *s = &h->slot[i];
        if (s->place != SLOT_ENDED) continue;
        // Before all have been ready once nothing is lost, and a person waits for the reason.
        if (is_final(s->status) || (!h->began && WIFEXITED(s->status))) return *out = end(ERR_UNAVAILABLE, i), true;
        if (s->deaths < HEALING_DEATHS) continue;
        *out = end(ERR_UNAVAILABLE, i);
        out->saves = h->began;
        if (healing_slots(h) > 1) out->kind = HEAL_RETIRE;
        snprintf(out->why, sizeof out->why,
                 "%d times in a row, and no new step was finished between: look at its device, "
                 "its memory and dmesg",
                 s->deaths);
        return true;
    }
    if (h->several || h->fruitless < HEALING_FRUITLESS) return false;  // the council of nodes counts them
    *out = end(ERR_INTERNAL, h->first);
    out->saves = true;
    snprintf(out->why, sizeof out->why, "%d worlds in a row ended before a new step was finished after step %lld",
             h->fruitless, (long long)h->high);
    return true;
}

static double open_at(const healing *h) {
    double at = 0;
    for (int i = 0; i < h->slots; i++) {
        const healing_slot *s = &h->slot[i];
        double due = s->ended_at + again_s[s->deaths < HEALING_DEATHS ? s->deaths : HEALING_DEATHS - 1];
        if (s->place == SLOT_ENDED && due > at) at = due;
    }
    return at;
}

// Since when the last one that is to end has been told so; 0: there is none.
static double goes_since(const healing *h) {
    double since = 0;
    for (int i = 0; i < h->slots; i++)
        if (h->slot[i].place == SLOT_GOING && h->slot[i].ended_at > since) since = h->slot[i].ended_at;
    return since;
}

healing_choice healing_choose(const healing *h, double now) {
    healing_choice c = {.kind = HEAL_NOTHING, .slot = -1};
    if (h->failed_at == 0) return c;
    if (is_over(h, &c) || (h->last_at == 0 && is_hopeless(h, &c))) return c;
    if (h->last || (h->last_at > 0 && now >= h->last_at + last_s)) return end(ERR_UNAVAILABLE, -1);
    double goes = goes_since(h);
    bool out = !healing_inside(h) && goes == 0;
    if (out && h->several && count(h, SLOT_ENDED) == 0) {
        if (h->last_at > 0) c.kind = HEAL_WAIT, c.until = h->last_at + last_s;
        return c;
    }
    double until = out ? open_at(h) : (goes > 0 ? goes : h->failed_at) + leave_s;
    if (now < until) return c.kind = HEAL_WAIT, c.until = until, c;
    c.kind = out ? HEAL_OPEN : HEAL_KILL;
    return c;
}
