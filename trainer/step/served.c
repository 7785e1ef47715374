// trainer/step/served.c: see trainer/step/served.h.
#include "trainer/step/served.h"

#include "base/clock.h"
#include "base/io.h"
#include "trainer/step/executor.h"
#include "trainer/step/finish.h"
#include "trainer/step/schedule.h"
#include "trainer/step/served_wire.h"
#include "trainer/step/server.h"
#include "trainer/step/sync.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct served {
    step_runner *r;
    serving_rules rules;
    int64_t lanes;  // of a share
    served_record record;
    served_replay replay;
    server *server;       // of a rank that is one
    step_result *result;  // [most]
    served_step *step;    // [most]
    served_step all;      // sums over the steps so far
};

static bool serves(const served *x) { return x->r->state->o.serves; }
static int servers(const served *x) { return x->r->state->o.servers; }
static int workers(const served *x) { return x->rules.workers; }

// --- opening ---------------------------------------------------------------------------------------------------------

static const char *const mode_of[] = {[SERVE_ASYNC] = "async", [SERVE_BOUNDED] = "bounded", [SERVE_HYBRID] = "hybrid"};

static err_t open_records(served *x, const served_options *o) {
    int number = x->r->ranks->rank - workers(x);
    const served_about about = {number, servers(x), workers(x), mode_of[x->rules.kind]};
    char path[IO_PATH];
    if (o->replay) {
        TRY(io_path(path, "%s/served-%d.log", o->replay, number));
        TRY(served_replay_open(&x->replay, path, &about, o->after));
    }
    if (!o->record) return ERR_OK;
    TRY(io_path(path, "%s/served-%d.log", o->record, number));
    return served_record_open(&x->record, path, &about, o->after);
}

static err_t open_parts(served *x, const served_options *o) {
    x->result = calloc((size_t)o->most, sizeof *x->result);
    x->step = calloc((size_t)o->most, sizeof *x->step);
    if (!x->result || !x->step) return err_set(ERR_INTERNAL, "no memory for periods");
    if (!serves(x)) return ERR_OK;
    TRY(open_records(x, o));
    return server_open(&x->server, &(server_options){.r = x->r,
                                                     .rules = &x->rules,
                                                     .most = o->most,
                                                     .record = o->record ? &x->record : NULL,
                                                     .replay = o->replay ? &x->replay : NULL});
}

err_t served_open(served **out, step_runner *r, const served_options *o) {
    served *x = *out = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for periods");
    x->r = r, x->rules = o->rules;
    x->lanes = r->cfg->resolved.lanes / r->shares;
    err_t rc = comm_agree_ok(r->ranks, open_parts(x, o), r->s);
    if (rc == ERR_OK) return ERR_OK;
    served_close(x);
    *out = NULL;
    return rc;
}

void served_close(served *x) {
    if (!x) return;
    server_close(x->server);
    served_record_close(&x->record);
    served_replay_close(&x->replay);
    free(x->result), free(x->step);
    free(x);
}

// --- a worker --------------------------------------------------------------------------------------------------------

static err_t say(const served *x, int server, const served_head *h) {
    return served_send(x->r->state->o.server[server], SERVED_SERVER, h, x->r->s);
}

static err_t say_to_all(const served *x, const served_head *h) {
    for (int k = 0; k < servers(x); k++) TRY(say(x, k, h));
    return ERR_OK;
}

static err_t hear(const served *x, int server, served_head *h) {
    return served_receive(x->r->state->o.server[server], SERVED_SERVER, h, x->r->s);
}

static err_t next_ticket(const served *x, int64_t *ticket) {
    served_head h = {.says = SERVED_SAYS_NEXT};
    TRY(say(x, 0, &h));
    TRY(hear(x, 0, &h));
    *ticket = h.ticket;
    return ERR_OK;
}

static err_t ask_for_samples(const served *x, loader *data, int64_t step, int64_t first_lane) {
    for (int64_t k = 0; k < x->lanes; k++) TRY(loader_ask(data, step, first_lane + k));
    return ERR_OK;
}

// The mean loss of this rank's samples of the step.
static double loss_of(const served *x, int64_t first_lane) {
    const step_runner *r = x->r;
    const int64_t each = r->cfg->batch.global / r->cfg->resolved.lanes;
    const double *loss = r->results.sample_loss.data;
    double sum = 0;
    for (int64_t i = first_lane * each; i < (first_lane + x->lanes) * each; i++) sum += loss[i];
    return sum / (double)(x->lanes * each);
}

// The gradient is with all servers. They learn its norm, which is that of all their parts.
static err_t end_push(const served *x, int64_t ticket, int64_t first_lane) {
    served_head h, all = {.says = SERVED_SAYS_PUSH, .ticket = ticket, .failed = x->r->inputs.failed.code != ERR_OK};
    TRY(parallel_wait(&x->r->together));
    for (int k = 0; k < servers(x); k++) {
        TRY(hear(x, k, &h));
        all.squares += h.squares;
    }
    TRY(stream_wait(x->r->s));
    all.loss = loss_of(x, first_lane);
    return say_to_all(x, &all);
}

static err_t run_ticket(const served *x, loader *data, int64_t ticket) {
    step_runner *r = x->r;
    const int64_t step = serving_step(&x->rules, ticket), share = serving_share(&x->rules, ticket),
                  first_lane = share * x->lanes;
    r->ranks->phase = (comm_phase){"share", step, share};
    TRY(ask_for_samples(x, data, step, first_lane));
    r->together.step = step;
    r->lane_shift = first_lane - r->ranks->rank * x->lanes;
    TRY(say_to_all(x, &(served_head){.says = SERVED_SAYS_PULL, .ticket = ticket}));
    TRY(parallel_spread(&r->together));
    TRY(executor_run(r, ACTION_SQUARES, data, step));
    return end_push(x, ticket, first_lane);
}

static err_t work(const served *x, loader *data) {
    int64_t ticket = 0;
    while (x->r->inputs.failed.code == ERR_OK) {
        board_waiting(x->r->board, WAIT_RANKS, "ask for a share of a step", -1, x->r->together.step);
        TRY(next_ticket(x, &ticket));
        if (ticket == SERVE_END) break;
        TRY(run_ticket(x, data, ticket));
    }
    return say_to_all(x, &(served_head){.says = SERVED_SAYS_BYE});
}

// --- where all meet --------------------------------------------------------------------------------------------------

// The first server's step_state, and what it knows of the steps.
static err_t spread_news(const served *x, int64_t steps) {
    step_runner *r = x->r;
    comm *c = r->ranks;
    train_state *t = r->state;
    TRY(c->table->broadcast(c, x->step, (size_t)steps * sizeof *x->step, workers(x), r->s));
    TRY(c->table->broadcast(c, t->step.data, tensor_bytes(&t->step), workers(x), r->s));
    return stream_wait(r->s);
}

// Weights of all servers to all ranks, for what follows a period.
static err_t spread_weights(const served *x) {
    parallel *p = &x->r->together;
    TRY(weights_spread.spread(p));
    return parallel_wait(p);
}

// The ranks' times, of a step on average.
static err_t share_times(const served *x, result_slot *to, int64_t last, int64_t steps) {
    step_runner *r = x->r;
    to->step = last;
    TRY(stream_zero(r->s, r->results.shared.data, tensor_bytes(&r->results.shared)));
    TRY(finish_share(r, to));
    TRY(stream_copy(r->s, to->loss.data, r->results.sample_loss.data, tensor_bytes(&to->loss)));
    TRY(stream_wait(r->s));
    for (int k = 0; k < r->ranks->world; k++) {
        double *of = (double *)to->loss.data + r->results.sample_loss.size[0] + k * REPORT_ITEMS;
        for (int i = REPORT_COMPUTE_MS; i <= REPORT_BUSY_MS; i++) of[i] /= (double)steps;
    }
    return ERR_OK;
}

static void fill(const served *x, int64_t first, int64_t steps) {
    const step_runner *r = x->r;
    const step_state *s = state_step(r->state);
    const served_step *of = x->step;
    const double *reports = results_report(&r->results, &r->results.slot[(first + steps - 1) % r->results.slots], 0);
    step_wish wish = STEP_GO_ON;
    bool written = true;
    for (int k = 0; k < r->ranks->world; k++) {
        const double *report = reports + k * REPORT_ITEMS;
        if (report[REPORT_WISH] - 1 > wish) wish = (step_wish)(report[REPORT_WISH] - 1);
        written &= report[REPORT_WRITTEN] != 0;
    }
    for (int64_t i = 0; i < steps; i++)
        x->result[i] = (step_result){.step = first + i,
                                     .loss = isnan(of[i].loss) ? NAN : of[i].loss,
                                     .grad_norm = isnan(of[i].norm) ? NAN : of[i].norm,
                                     .lr = schedule_lr(r->cfg, first + i),
                                     .loss_scale = s->loss_scale,
                                     .applied = isfinite(of[i].norm),
                                     .updates = s->updates,
                                     .good_steps = s->good_steps,
                                     .skipped = s->skipped,
                                     .wish = wish,
                                     .written = written,
                                     .served = &of[i],
                                     .reports = reports};
    x->result[steps - 1].over = clock_wall();
    for (int64_t i = steps - 1; i > 0; i--) x->result[i - 1].over = x->result[i].over - of[i].ms / 1e3;
}

static err_t meet(const served *x, int64_t first, int64_t last) {
    step_runner *r = x->r;
    const int64_t steps = last - first + 1;
    board_waiting(r->board, WAIT_RANKS, "meet after a period", -1, last);
    r->ranks->phase = (comm_phase){"meet after a period", last, 0};
    err_t rc = r->inputs.failed.code == ERR_OK ? ERR_OK : err_restore(&r->inputs.failed);
    TRY(comm_agree_ok(r->ranks, rc, r->s));
    TRY(spread_news(x, steps));
    TRY(spread_weights(x));
    TRY(share_times(x, results_of(&r->results, last), last, steps));
    fill(x, first, steps);
    return ERR_OK;
}

// --- a period --------------------------------------------------------------------------------------------------------

static err_t run_here(served *x, loader *data, int64_t first, int64_t last) {
    return serves(x) ? server_serve(x->server, first, last, x->step) : work(x, data);
}

static void add_up(served *x, int64_t steps) {
    for (int64_t i = 0; i < steps; i++) {
        x->all.pushes += x->step[i].pushes, x->all.dropped += x->step[i].dropped;
        for (int k = 0; k < SERVED_STALE; k++) x->all.stale[k] += x->step[i].stale[k];
    }
}

err_t served_period(served *x, loader *data, int64_t first, int64_t last, served_results *out) {
    step_runner *r = x->r;
    r->end.began = clock_now();
    r->inputs.waited_s = 0;
    r->inputs.failed.code = ERR_OK;
    r->together.step = first;
    r->ranks->phase = (comm_phase){serves(x) ? "serve workers" : "ask for a share", first, 0};
    memset(x->step, 0, (size_t)(last - first + 1) * sizeof *x->step);
    TRY(run_here(x, data, first, last));
    TRY(meet(x, first, last));
    add_up(x, last - first + 1);
    *out = (served_results){x->result, x->step};
    return ERR_OK;
}

const char *served_summary(const served *x, char dst[SERVED_SUMMARY]) {
    const served_step *a = &x->all;
    int at = snprintf(dst, SERVED_SUMMARY, "%" PRId64 " gradients applied", a->pushes);
    if (a->dropped) at += snprintf(dst + at, SERVED_SUMMARY - (size_t)at, ", %" PRId64 " too late", a->dropped);
    at += snprintf(dst + at, SERVED_SUMMARY - (size_t)at, "; updates since their weights were read:");
    for (int k = 0; k < SERVED_STALE && at < SERVED_SUMMARY - 48; k++) {
        if (!a->stale[k]) continue;
        at += snprintf(dst + at, SERVED_SUMMARY - (size_t)at, k < 2 ? " %d" : " %d to %d", k ? 1 << (k - 1) : 0,
                       (1 << k) - 1);
        at += snprintf(dst + at, SERVED_SUMMARY - (size_t)at, " in %.1f %%,",
                       100.0 * (double)a->stale[k] / (double)a->pushes);
    }
    dst[at - 1] = 0;
    return dst;
}
