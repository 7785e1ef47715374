// trainer/telling.c: what a run says: of each step its record, how its ranks spend their time, and what is wrong with
// it; of each world from where it goes on.
#include "trainer/run.h"

#include "base/clock.h"
#include "trainer/node/yard.h"
#include "trainer/step/outer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

const char *run_advice(const run *r, int64_t step, int64_t count, double loss, char text[DIVERGED_TEXT]) {
    const run_progress *at = &r->x.progress;
    const diverged_run of = {r->x.cfg, r->x.dir, step - count + 1, step, loss, at->least_loss, at->sound_step};
    if (diverged_advice(&of, text) != ERR_OK)
        snprintf(text, DIVERGED_TEXT, "%.*s", DIVERGED_TEXT - 1, err_last()->text);
    return text;
}

static void say_ruined(run *r, int64_t step) {
    char text[DIVERGED_TEXT];
    int64_t count = r->bad.far_steps > 0 ? r->bad.far_steps : 1;
    if (r->x.ranks->rank == 0)
        monitor_event(&r->m, "ruined", step, run_advice(r, step, count, r->x.progress.loss, text));
}

void run_say_if_ruined(run *r) {
    if (divergence_at_end(&r->bad, &r->x.progress)) say_ruined(r, run_step(r));
}

static void say_mended(run *r, int64_t step) {
    const run_progress *at = &r->x.progress;
    char text[128];
    snprintf(text, sizeof text, "the loss is %.4g, near the lowest again, %.4g", at->loss, at->least_loss);
    monitor_event(&r->m, "mended", step, text);
}

// The first of several in a row. A dynamic loss scale finds its place by steps that are skipped.
static void say_skipped(run *r, const step_result *s) {
    const config *c = r->x.cfg;
    bool usual = !isfinite(s->grad_norm) && c->precision.compute == FP16 && c->precision.loss_scale == 0;
    char text[SKIPPED_TEXT];
    if (s->applied || usual || r->x.progress.bad_steps > 1) return;
    monitor_event(&r->m, "skipped", s->step, skipped_text(c, s->grad_norm, s->norm_mean, text));
}

// A diverged run looks busy. Weights that are ruined may give a finite loss for ever; it may also be what the user
// wants, on other data, so the run goes on.
static void watch_bad_steps(run *r, const step_result *s) {
    run_progress *at = &r->x.progress;
    int64_t limit = diverged_limit(r->x.cfg);
    char text[DIVERGED_TEXT];
    if (r->bad.gave_up) return;
    divergence_news news = divergence_step(&r->bad, at, r->x.cfg, s->step, s->loss, s->applied);
    if (!r->spiked && spike_step(at, r->x.cfg->optimizer.rollback, s->loss)) r->spiked = s->step;
    atomic_store(&r->b->bad_limit, limit);
    atomic_store(&r->b->bad_steps, at->bad_steps);
    if (r->x.ranks->rank != 0) return;
    say_skipped(r, s);
    if (news == NEWS_RUINED) say_ruined(r, s->step);
    if (news == NEWS_MENDED) say_mended(r, s->step);
    if (news == NEWS_DIVERGED) monitor_event(&r->m, "diverged", s->step, run_advice(r, s->step, limit, NAN, text));
}

// A rank that is much slower than the others delays all of them: every step waits for it.
static void name_straggler(run *r, int64_t step, const rank_summary *t) {
    char who[COMM_NAME], text[256];
    snprintf(
        text, sizeof text,
        "%s computes %.1f ms a step, the median rank %.1f ms: the others wait for it; look for a hot or shared processor there",
        comm_rank_text(r->x.ranks, t->slowest, who), t->slowest_ms, t->median_ms);
    monitor_event(&r->m, "straggler", step, text);
}

// How each rank has spent its time since the last such record.
static void log_ranks(run *r, int64_t step) {
    rank_report *x = &r->rank_times;
    if (!run_is_due(step, r->x.cfg->log.ranks_every)) return;
    const int64_t *lanes = report_lanes(x, r->x.state.reduce);
    const ranks_record said = {.step = step, .steps = x->steps, .world = x->world, .sum = x->sum, .lanes = lanes};
    if (x->steps) monitor_log(&r->m, &(record){RECORD_RANKS, .ranks = said});
    report_clear(x);
}

void run_show_reading(run *r, double now) {
    enum { NS = 1000000000 };
    board_rank *to = r->mine;
    if (!to || !r->x.data || now < r->read_at + 0.5) return;  // a server reads none
    loader_stats of = loader_about(r->x.data);
    r->read_at = now;
    atomic_store_explicit(&to->read_bytes, of.bytes, memory_order_relaxed);
    atomic_store_explicit(&to->read_retries, of.retries, memory_order_relaxed);
    atomic_store_explicit(&to->read_p50_ns, (int64_t)(NS * of.read_p50_s), memory_order_relaxed);
    atomic_store_explicit(&to->read_p99_ns, (int64_t)(NS * of.read_p99_s), memory_order_relaxed);
}

err_t run_log_step(run *r, const step_result *s, double ms) {
    const config *c = r->x.cfg;
    int64_t step = s->step;
    int world = r->x.ranks->world;
    bool hashed = run_is_due(step, c->log.hash_every);
    bool logged = run_is_due(step, c->log.every) || step == c->run.steps || hashed || !s->applied;
    char hash[17];
    if (hashed) board_doing(r->mine, "hash the weights", -1, step);
    if (hashed) TRY(session_settle(&r->x));
    if (hashed) TRY(outer_collect(&r->x.state));
    if (hashed) TRY(state_fetch(&r->x.state, false));
    if (hashed) TRY(ckpt_hash(&r->x.state.ckpt, hash));
    report_add(&r->step_times, s->reports);
    report_add(&r->rank_times, s->reports);
    redeal_add(&r->lanes, &r->x, s->reports);
    evicting_add(&r->evicting, &r->x, &r->m, s->reports);
    rank_summary times = logged && world > 1 ? report_take(&r->step_times, r->x.state.reduce) : (rank_summary){0};
    const double *mine = s->reports + r->x.ranks->rank * REPORT_ITEMS;
    bool timed = report_is_timed(s->reports, world);
    int64_t units = c->batch.global * r->x.net->units;
    const step_record said = {
        .step = step,
        .units = step * units,
        .logged = logged,
        .loss = s->loss,
        .grad_norm = s->grad_norm,
        .lr = s->lr,
        .ms = ms,
        .units_per_s = (double)units / (ms / 1e3),
        .data_wait_ms = mine[REPORT_DATA_MS],
        .comm_wait_ms = timed ? mine[REPORT_WAIT_MS] + mine[REPORT_BEFORE_MS] + mine[REPORT_AFTER_MS] : NAN,
        .loss_scale = s->loss_scale,
        .rows = s->rows,
        .cold_rows = s->cold_rows,
        .skipped = !s->applied,
        .why = s->applied ? NULL : skipped_why(s->grad_norm),
        .hash = hashed ? hash : NULL,
        .time = s->over > 0 ? s->over : clock_wall(),
        .mfu = speed_mfu(&r->speed, ms),
        .resident = logged ? speed_resident(&r->speed) : 0,
        .device_bytes = logged ? speed_device_bytes(&r->x) : 0,
        .world = world,
        .comm_ms = timed ? mine[REPORT_BUSY_MS] : NAN,
        .hidden = times.hidden,
        .slowest = times.slowest,
        .slowest_ms = times.slowest_ms,
        .median_ms = times.median_ms,
        .served = s->served,
        .stale = s->served ? s->served->missed : NAN,
        .late = s->served ? (double)s->served->dropped : NAN,
        .waiting = s->served ? s->served->waiting : NAN,
    };
    watch_bad_steps(r, s);
    monitor_log(&r->m, &(record){RECORD_STEP, .step = said});
    log_ranks(r, step);
    // where lanes follow speed, the others need not wait for a slow rank; it may be named as `slow`
    if (times.straggler && !r->lanes.moved) name_straggler(r, step, &times);
    power_log(&r->power, &r->m, step, s->reports, units);
    return ERR_OK;
}

void run_say_resumed(run *r) {
    const session *x = &r->x;
    char text[128];
    int64_t steps = x->cfg->run.steps;
    if (r->saved < 0) return;
    if (x->progress.step < steps)
        snprintf(text, sizeof text, "continuing after step %" PRId64 " of %" PRId64, x->progress.step, steps);
    else if (x->progress.step == steps)
        snprintf(text, sizeof text, "after step %" PRId64 " of %" PRId64 ": all are done", steps, steps);
    else
        snprintf(text, sizeof text, "all %" PRId64 " steps are done; the newest checkpoint is of step %" PRId64, steps,
                 x->progress.step);
    monitor_event(&r->m, "resume", x->progress.step, text);
}

// What ended the world before this one, and from where it goes on.
void run_say_healed(run *r, const launch *at) {
    const yard_news *n = &at->yard->news;
    const double *when = r->healed.at;
    char text[YARD_WHY + 192];
    if (!run_leads_node(r)) return;
    snprintf(text, sizeof text,
             "%s; world %u of this run began %.3f s later, of which leaving took %.3f s; continuing after step %" PRId64
             " from %s",
             n->why, at->epoch + 1, when[HEALED_MOVE + 1] - when[0], when[HEALED_UNWIND + 1] - when[0], run_step(r),
             r->live         ? "where the ranks that were left are"
             : r->recalled   ? "the snapshot in memory"
             : r->saved >= 0 ? "the newest checkpoint"
                             : "the beginning");
    monitor_event(&r->m, n->evicted ? "evicted" : "healed", run_step(r), text);
}

// The run is as far again as it was before the loss.
void run_say_caught_up(run *r, int64_t step) {
    healed_times *h = &r->healed;
    char text[HEALED_TEXT + 128], phases[HEALED_TEXT];
    double value[HEALED_PHASES];
    if (!healed_caught_up(h, step, clock_now()) || !run_leads_node(r)) return;
    healed_seconds(h, value);
    snprintf(text, sizeof text, "as far as before the loss after %.3f s: %s", h->at[HEALED_PHASES] - h->at[0],
             healed_text(h, phases));
    monitor_log(&r->m,
                &(record){RECORD_EVENT, .event = {step, "caught_up", text, HEALED_PHASES, healed_figures, value}});
}
