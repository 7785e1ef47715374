// comm/server/serving.c: see comm/server/serving.h.
#include "comm/server/serving.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void serving_begin(serving *x, const serving_rules *r, int64_t first, int64_t last, int *applied) {
    assert(r->workers >= 1 && r->workers <= SERVE_WORKERS && first >= 1 && last >= first);
    *x = (serving){.rules = *r, .first = first, .last = last, .done = first - 1, .open = first, .applied = applied};
    x->next = (first - 1) * r->workers;
    memset(applied, 0, (size_t)(last - first + 1) * sizeof *applied);
    for (int k = 0; k < r->workers; k++) x->held[k] = -1;
}

bool serving_has(const serving *x, int64_t ticket) {
    return ticket >= (x->first - 1) * x->rules.workers && ticket < x->last * x->rules.workers;
}

static bool hybrid(const serving *x) { return x->rules.kind == SERVE_HYBRID; }

// A worker has one share of each step, so one that was late goes on with the step that is open.
static bool may_have_next(const serving *x, int worker) {
    return !hybrid(x) || x->open > x->last || x->pulled[worker] < x->open;
}

static bool may_pull(const serving *x, int64_t step) {
    if (x->rules.kind == SERVE_BOUNDED) return x->done >= step - 1 - x->rules.staleness;
    return !hybrid(x) || x->open >= step;
}

bool serving_may(const serving *x, serving_ask what, int worker, int64_t ticket) {
    int64_t step = serving_step(&x->rules, ticket);
    switch (what) {
    case ASK_NOTHING: return false;
    case ASK_NEXT: return may_have_next(x, worker);
    case ASK_PULL: return may_pull(x, step);
    case ASK_PUSH: return !hybrid(x) || step <= x->open;
    }
    return false;
}

bool serving_has_ended(const serving *x) {
    return hybrid(x) ? x->open > x->last : x->next == x->last * x->rules.workers;
}

int64_t serving_next(serving *x, int worker) {
    if (serving_has_ended(x)) return SERVE_END;
    return hybrid(x) ? (x->open - 1) * x->rules.workers + worker : x->next++;
}

void serving_pull(serving *x, int worker, int64_t ticket) {
    x->pulled[worker] = serving_step(&x->rules, ticket);
    x->computes[worker] = true;
}

static void count_applied(serving *x, int64_t step) {
    x->applied[step - x->first]++;
    while (x->done < x->last && x->applied[x->done + 1 - x->first] == x->rules.workers) x->done++;
}

serving_fate serving_push(serving *x, int worker, int64_t ticket, double now) {
    int64_t step = serving_step(&x->rules, ticket);
    x->computes[worker] = false;
    if (!hybrid(x)) {
        count_applied(x, step);
        return PUSH_APPLY;
    }
    if (x->open > x->last || (step < x->open && !x->rules.decays)) return PUSH_DROP;
    if (x->since == 0) x->since = now;
    x->held[worker] = ticket;
    return PUSH_HOLD;
}

bool serving_holds(const serving *x) { return x->since != 0; }

// One that still computes an earlier step is not awaited.
bool serving_closes(const serving *x, double now) {
    bool awaited = false;
    if (!serving_holds(x)) return false;
    for (int k = 0; k < x->rules.workers; k++) awaited |= x->held[k] < 0 && !(x->computes[k] && x->pulled[k] < x->open);
    return !awaited || now >= x->since + x->rules.timeout_s;
}

double serving_deadline(const serving *x) { return serving_holds(x) ? x->since + x->rules.timeout_s : 0; }

// Not yet divided by their sum.
static double weight(const serving *x, int worker) {
    if (x->held[worker] < 0) return 0;
    return ldexp(1, (int)(serving_step(&x->rules, x->held[worker]) - x->open));
}

double serving_weight(const serving *x, int worker) {
    double all = 0;
    for (int k = 0; k < x->rules.workers; k++) all += weight(x, k);
    return all > 0 ? weight(x, worker) / all : 0;
}

void serving_close(serving *x) {
    for (int k = 0; k < x->rules.workers; k++) x->held[k] = -1;
    x->since = 0;
    x->open++;
}
