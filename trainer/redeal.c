// trainer/redeal.c: see trainer/redeal.h.
#include "trainer/redeal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEAL_TEXT = 96 };

static void show(const redeal *x, const session *of) {
    const train_state *t = &of->state;
    if (x->mine) atomic_store(&x->mine->lanes, reduce_lane_count(t->reduce, t->ranks->rank));
}

err_t redeal_open(redeal *x, const session *of, board_rank *mine) {
    int ranks = grid_workers(&of->shape);
    *x = (redeal){.mine = mine};
    show(x, of);
    if (of->cfg->parallel.balance != BALANCE_AUTO || ranks < 2) return ERR_OK;
    int64_t *deal = calloc((size_t)ranks, sizeof *deal);
    x->ms = calloc((size_t)ranks, sizeof *x->ms);
    if (!deal || !x->ms) return free(deal), err_set(ERR_INTERNAL, "no memory for the times of %d ranks", ranks);
    for (int k = 0; k < ranks; k++) deal[k] = reduce_lane_count(of->state.reduce, k);
    err_t rc = balance_open(&x->b, ranks, of->cfg->resolved.lanes, deal);
    free(deal);
    return rc;
}

void redeal_close(redeal *x) {
    balance_close(&x->b);
    free(x->ms);
    *x = (redeal){0};
}

// Ranks that share layers run the same lanes, and wait for the slowest of them.
void redeal_add(redeal *x, const session *of, const double *reports) {
    int world = of->ranks->world;
    if (!x->ms || !report_is_timed(reports, world)) return;
    memset(x->ms, 0, (size_t)x->b.ranks * sizeof *x->ms);
    for (int k = 0; k < world; k++) {
        double ms = reports[k * REPORT_ITEMS + REPORT_COMPUTE_MS], *most = &x->ms[grid_at(&of->shape, k).data];
        if (!grid_serves(&of->shape, k) && ms > *most) *most = ms;
    }
    balance_add(&x->b, x->ms);
}

bool redeal_is_due(const redeal *x, int64_t step) { return x->ms && step % BALANCE_STEPS == 0; }

// Of the ranks with these lanes the first one.
static const char *who_is(const session *of, int data, char name[COMM_NAME]) {
    return comm_rank_text(of->ranks, grid_rank(&of->shape, (grid_place){.data = data}), name);
}

static void log_deal(const redeal *x, const session *of, monitor *m, const balance_choice *c) {
    char who[COMM_NAME], from[DEAL_TEXT], to[DEAL_TEXT], text[4 * DEAL_TEXT + COMM_NAME];
    snprintf(text, sizeof text,
             "lanes %s become %s: %s takes %.1f ms for a lane, the median rank %.1f ms; the longest computes %.1f ms a "
             "step, and then about %.1f ms",
             balance_text(x->b.deal, x->b.ranks, from, sizeof from),
             balance_text(x->b.wanted, x->b.ranks, to, sizeof to), who_is(of, c->slowest, who), c->slowest_ms,
             c->median_ms, c->now_ms, c->then_ms);
    monitor_event(m, "balance", of->progress.step, text);
}

static void log_slow(const session *of, monitor *m, const balance_choice *c) {
    char who[COMM_NAME], text[256 + COMM_NAME];
    snprintf(text, sizeof text,
             "%s stays %.1f times as slow as the median rank: %.1f ms for a lane, over the last %d steps; look for a "
             "hot or shared processor there, or run without it",
             who_is(of, c->slowest, who), c->slowest_ms / c->median_ms, c->slowest_ms,
             BALANCE_SLOW_WINDOWS * BALANCE_STEPS);
    monitor_event(m, "slow", of->progress.step, text);
}

// What is known of each: ms (=), 0: nothing. The same on all ranks.
static err_t gather_speeds(const redeal *x, session *of, double *ms) {
    comm *host = of->ranks->host;
    size_t n = (size_t)host->world, *cut = malloc((n + 1) * sizeof *cut);
    double *all = calloc(n, sizeof *all);
    err_t rc = cut && all ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the speeds of %zu ranks", n);
    rc = comm_agree_ok(of->ranks, rc, of->s);
    for (size_t k = 0; rc == ERR_OK && k <= n; k++) cut[k] = k * sizeof *all;
    if (rc == ERR_OK && x->mine) all[host->rank] = atomic_load(&x->mine->lane_ms);
    if (rc == ERR_OK) rc = host->table->all_gather(host, all, cut, of->s);
    if (rc == ERR_OK) rc = stream_wait(of->s);
    memset(ms, 0, (size_t)x->b.ranks * sizeof *ms);
    for (size_t k = 0; rc == ERR_OK && k < n; k++) {
        double *most = &ms[grid_at(&of->shape, (int)k).data];
        if (!grid_serves(&of->shape, (int)k) && all[k] > *most) *most = all[k];
    }
    free(cut), free(all);
    return rc;
}

err_t redeal_recall(redeal *x, session *of, monitor *m) {
    char from[DEAL_TEXT], to[DEAL_TEXT], text[4 * DEAL_TEXT];
    if (!x->ms) return ERR_OK;
    TRY(gather_speeds(x, of, x->ms));
    balance_choice c = balance_recall(&x->b, x->ms);
    if (!c.moves) return ERR_OK;
    snprintf(
        text, sizeof text,
        "lanes %s become %s, by what ranks took for a lane in the world before: the longest computes about %.1f ms "
        "a step, and else %.1f ms",
        balance_text(x->b.deal, x->b.ranks, from, sizeof from), balance_text(x->b.wanted, x->b.ranks, to, sizeof to),
        c.then_ms, c.now_ms);
    monitor_event(m, "balance", of->progress.step, text);
    balance_take(&x->b);
    TRY(session_deal(of, x->b.deal));
    show(x, of);
    x->moved = true;
    return ERR_OK;
}

// What this rank takes for a lane, for the world after this one.
static void keep_speed(const redeal *x, const session *of) {
    int place = grid_at(&of->shape, of->ranks->rank).data;
    if (x->mine && place < x->b.ranks && x->b.deal[place]) atomic_store(&x->mine->lane_ms, x->b.lane_ms[place]);
}

err_t redeal_now(redeal *x, session *of, monitor *m, bool *moved) {
    *moved = false;
    if (!redeal_is_due(x, of->progress.step)) return ERR_OK;
    balance_choice c = balance_judge(&x->b);
    if (c.median_ms > 0) keep_speed(x, of);
    *moved = c.moves;
    x->moved |= c.moves;
    if (c.names) log_slow(of, m, &c);
    if (!c.moves) return ERR_OK;
    log_deal(x, of, m, &c);
    balance_take(&x->b);
    TRY(session_deal(of, x->b.deal));
    show(x, of);
    return ERR_OK;
}
