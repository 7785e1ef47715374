// trainer/log/board_sink.c: the last records, for the other processes of rank 0's node: copied to the board
// (trainer/log/board.h), with how long the steps of this process have taken.
#include "base/quantiles.h"
#include "trainer/log/sink.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct board_sink {
    board *to;  // NULL: there is none
    board_news news;
    quantiles ms;  // of steps
} board_sink;

static err_t board_open(void *self, const log_setup *run) {
    board_sink *b = self;
    b->to = run->board;
    b->news = (board_news){.steps = run->c->run.steps,
                           .step_time = NAN,
                           .eval_loss = NAN,
                           .best = NAN,
                           .checkpoint_time = NAN,
                           .checkpoint_ms = NAN};
#define UNKNOWN(name, curve, board, member, ...) IF_##board(b->news.member = NAN;)
    STEP_FIELDS(UNKNOWN)
#undef UNKNOWN
#define NO_FIGURE(name, help) b->news.eval_##name = NAN;
    BOARD_MEASURES(NO_FIGURE)
#undef NO_FIGURE
    snprintf(b->news.unit, sizeof b->news.unit, "%s", run->unit);
    return ERR_OK;
}

static err_t publish(board_sink *b) {
    if (b->to) board_publish(b->to, &b->news);
    return ERR_OK;
}

static void time_step(board_sink *b, double ms) {
    board_news *n = &b->news;
    int k = 0;
    if (!(ms >= 0)) return;
    while (k < BOARD_BUCKETS - 1 && ms > 1e3 * board_bucket_s[k]) k++;
    n->bucket[k]++;
    n->timed++;
    n->timed_s += 1e-3 * ms;
    quantiles_add(&b->ms, ms);
    n->p50_ns = (int64_t)(1e6 * quantiles_at(&b->ms, 0.5));
    n->p99_ns = (int64_t)(1e6 * quantiles_at(&b->ms, 0.99));
}

static err_t take_start(void *self, const record *r) {
    board_sink *b = self;
    b->news.step = b->news.began_step = r->start.step;
    b->news.units = r->start.units;
    return publish(b);
}

static err_t take_step(void *self, const record *all) {
    board_sink *b = self;
    const step_record *r = &all->step;
    board_news *n = &b->news;
    n->step = r->step, n->units = r->units, n->skipped += r->skipped, n->rows = r->rows;
    n->cold_rows = r->cold_rows;
#define COPY(name, curve, board, member, key, as, nth, tag, value, ...) IF_##board(n->member = (value);)
    STEP_FIELDS(COPY)
#undef COPY
    n->step_time = r->time > 0 ? r->time : NAN;
    time_step(b, r->ms);
    return publish(b);
}

// Those of named sets.
static void keep_figures(board_news *n, const eval_record *r) {
    n->figures = 0;
    for (int i = 0; i < r->metrics && n->figures < BOARD_FIGURES; i++) {
        if (!strchr(r->metric[i], '.')) continue;
        snprintf(n->figure[n->figures], BOARD_FIGURE, "%s", r->metric[i]);
        n->figure_value[n->figures++] = r->value[i];
    }
}

static double figure_of(const eval_record *r, const char *name) {
    for (int i = 0; i < r->metrics; i++)
        if (strcmp(r->metric[i], name) == 0) return r->value[i];
    return NAN;
}

static err_t take_eval(void *self, const record *all) {
    board_sink *b = self;
    const eval_record *r = &all->eval;
    b->news.eval_loss = r->loss, b->news.eval_step = r->step;
#define TAKE_FIGURE(name, help) b->news.eval_##name = figure_of(r, #name);
    BOARD_MEASURES(TAKE_FIGURE)
#undef TAKE_FIGURE
    b->news.best = r->best, b->news.best_step = r->best_step;
    keep_figures(&b->news, r);
    return publish(b);
}

static err_t take_saved(void *self, const record *all) {
    board_sink *b = self;
    const checkpoint_record *r = &all->saved;
    b->news.checkpoint_step = r->step;
    b->news.checkpoint_ms = r->ms > 0 ? r->ms : NAN;
    b->news.checkpoint_time = r->time > 0 ? r->time : NAN;
    snprintf(b->news.hash, BOARD_HASH, "%s", r->hash);
    return publish(b);
}

const sink sink_board = {
    .name = "the board",
    .bytes = sizeof(board_sink),
    .every_step = true,
    .open = board_open,
    .take = {[RECORD_START] = take_start,
             [RECORD_STEP] = take_step,
             [RECORD_EVAL] = take_eval,
             [RECORD_SAVED] = take_saved},
};
