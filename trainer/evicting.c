// trainer/evicting.c: see trainer/evicting.h.
#include "trainer/evicting.h"

#include "trainer/log/report.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool several_nodes(const comm *c) {
    for (int k = 1; k < c->world; k++)
        if (c->place[k].node != c->place[0].node) return true;
    return false;
}

err_t evicting_open(evicting *x, const session *of, const launch *at, board *b) {
    const comm *c = of->ranks;
    size_t n = (size_t)c->world;
    *x = (evicting){.b = b};
    if (!of->cfg->cluster.evict_slow || !at->yard || c->world < 2) return ERR_OK;
    int *numbers = calloc(3 * n, sizeof *numbers), *stage = numbers, *unit = numbers + n, *place = numbers + 2 * n;
    x->ms = calloc(n, sizeof *x->ms);
    x->deal = calloc((size_t)of->shape.data, sizeof *x->deal);
    if (!numbers || !x->ms || !x->deal)
        return free(numbers), err_set(ERR_INTERNAL, "no memory for the times of %d ranks", c->world);
    for (int k = 0; k < c->world; k++) {
        grid_place p = grid_at(&of->shape, k);
        stage[k] = p.stage, place[k] = p.data, unit[k] = several_nodes(c) ? c->place[k].node : k;
    }
    err_t rc = evict_open(&x->e, &(evict_ranks){c->world, stage, unit, place, of->shape.data, grid_workers(&of->shape)},
                          (double)of->cfg->cluster.slow_s);
    free(numbers);
    x->on = rc == ERR_OK;
    return rc;
}

void evicting_close(evicting *x) {
    evict_close(&x->e);
    free(x->ms), free(x->deal);
    *x = (evicting){.on = false};
}

// How many share the lanes in the largest world without this rank's unit; 0: none fits.
static int width_without(const evicting *x, const session *of, int rank) {
    const config *c = of->cfg;
    err_record before = *err_last();
    const evict_ranks *r = &x->e.of;
    int left = 0, least = c->cluster.min_ranks > 1 ? (int)c->cluster.min_ranks : 1;
    for (int k = 0; k < r->world; k++) left += r->unit[k] != r->unit[rank];
    while (left >= least && (config_fits(c, left) != ERR_OK || session_fits(c, left) != ERR_OK)) left--;
    err_restore(&before);
    if (left < least) return 0;
    grid then = config_grid(c, left);
    return grid_workers(&then);
}

// Only the machine that it is about has something to do.
static void ask(const evicting *x, const session *of, const evict_choice *c) {
    const comm_place *place = of->ranks->place;
    if (place[c->rank].node != place[of->ranks->rank].node) return;
    atomic_store(&x->b->slow_times, c->times);
    atomic_store(&x->b->slow, place[c->rank].local + 1);
    kill(getppid(), SIGCHLD);  // the supervisor sleeps until a signal comes
}

static void judge(evicting *x, const session *of, monitor *m, const evict_choice *c) {
    char who[COMM_NAME], then[160], text[512];
    int width = width_without(x, of, c->rank);
    bool balanced = of->cfg->parallel.balance == BALANCE_AUTO;
    evict_cost cost = evict_compare(&x->e, c->rank, x->deal, width, balanced);
    bool pays = evict_pays(cost, width);
    if (width == 0) snprintf(then, sizeof then, "it stays: no world without it fits the model and min_ranks");
    else
        snprintf(then, sizeof then,
                 "the slowest computes as long as the median rank would for %.1f lanes%s, and %.0f without it: %s",
                 cost.with, balanced ? " dealt by speed" : "", cost.without,
                 pays ? "the run is to go on without it" : "it stays, since that gains less than 8 %");
    snprintf(text, sizeof text, "%s stays %.1f times as slow as the others, now for %.0f s of computing; %s",
             comm_rank_text(of->ranks, c->rank, who), c->times, c->slow_s, then);
    monitor_event(m, "slow", of->progress.step, text);
    if (pays) ask(x, of, c);
}

void evicting_add(evicting *x, const session *of, monitor *m, const double *reports) {
    int world = of->ranks->world, context = grid_context(&of->shape);
    if (!x->on || !report_is_timed(reports, world)) return;
    for (int k = 0; k < world; k++) x->ms[k] = reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS];
    for (int d = 0; d < of->shape.data; d++) x->deal[d] = reduce_lane_count(of->state.reduce, d * context);
    if (!evict_add(&x->e, x->ms, x->deal)) return;
    evict_choice c = evict_judge(&x->e);
    if (c.withdraws) atomic_store(&x->b->slow, 0);
    if (c.asks) judge(x, of, m, &c);
}
