// test/test_served_period.c: what a period of served steps says of itself (trainer/step/served.h), on every rank the
// same: of each step its rate, of all steps what was skipped, and of all ranks what they wish and have written. And
// while a record is repeated a server sleeps until the gradient comes that the record has next.
#include "test/support/ranks.h"

#include "comm/server/record.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"

#include <math.h>

static const char small_model[] =
    "[run]\nsteps = 24\n[data]\nformat = raw16\n[model]\nlayers = 1\nheads = 2\nembed = 24\ncontext = 16\nvocab = 130\n"
    "[batch]\nglobal = 8\nmicro = 1\nlanes = 2\n[optimizer]\nlr = 8e-3\n[schedule]\nwarmup = 8\n[device]\nthreads = 1\n"
    "[checkpoint]\nevery = 0\n[eval]\nevery = 0\n[parallel]\nzero = 1\n[server]\ncount = 1\n[cluster]\ntimeout = 20\n";

enum { WORKERS = 2, SERVER = 2, RANKS = 3 };

static err_t enter(session *x, const config *c, const launch *at, launch *own) {
    *own = *at;
    TRY(session_machine(x, c, SESSION_TRAIN, 0));
    TRY(session_enter(x, own));
    TRY(session_init(x));
    TRY(session_feed(x, c->run.steps));
    return session_serve(x);
}

#define EXPECT(what, ...) \
    do { \
        if (!(what)) return err_set(ERR_INTERNAL, __VA_ARGS__); \
    } while (0)

// The third gradient that comes is not finite: of all updates of the period one is skipped.
static err_t count(const config *c, const launch *at, void *ctx) {
    enum { STEPS = 4 };
    session x;
    launch own;
    served_results got;
    int applied = 0;
    (void)ctx;
    TRY(enter(&x, c, at, &own));
    TRY(session_period(&x, STEPS, &got));
    for (int i = 0; i < STEPS; i++) {
        const step_result *r = &got.result[i];
        EXPECT(r->step == i + 1 && r->served == &got.step[i], "result %d is of step %d", i, (int)r->step);
        EXPECT(fabs(r->lr - 1e-3 * (i + 1)) < 1e-9, "step %d: rate %g", i + 1, r->lr);
        EXPECT(r->updates == STEPS * WORKERS - 1 && r->skipped == 1, "step %d: %d updates, %d skipped", i + 1,
               (int)r->updates, (int)r->skipped);
        EXPECT(r->applied == isfinite(r->grad_norm), "step %d: norm %g", i + 1, r->grad_norm);
        EXPECT(isfinite(r->loss) && r->loss > 1, "step %d: loss %g", i + 1, r->loss);
        applied += r->applied;
    }
    EXPECT(applied == STEPS - 1, "%d of %d steps have a finite norm", applied, STEPS);
    session_close(&x);
    return ERR_OK;
}

static void skipped_updates_are_counted(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    rank_config(&c, dir, small_model, "[server]\nmode = async\nevery = 4\n[run]\nfaults = nan@3:2\n");
    run_ranks("counts", &(rank_world)ONE(RANKS), &c, count, NULL);
    drop_dir(dir);
}

// A checkpoint is written when all ranks say so, and the strongest wish of any rank is everyone's: ranks that are said
// to have written or to wish, a period each, bit k for rank k.
static err_t wish(const config *c, const launch *at, void *ctx) {
    static const struct {
        int written, turns, stops;
        step_wish all;
    } of[] = {
        {7, 0, 0, STEP_GO_ON}, {3, 1, 0, STEP_TURN}, {5, 2, 0, STEP_TURN}, {6, 4, 0, STEP_TURN},
        {7, 2, 1, STEP_STOP},  {4, 1, 4, STEP_STOP}, {0, 0, 2, STEP_STOP}, {7, 0, 0, STEP_GO_ON},
    };
    session x;
    launch own;
    served_results got;
    (void)ctx;
    TRY(enter(&x, c, at, &own));
    for (int i = 0; i < (int)(sizeof of / sizeof *of); i++) {
        x.runner.written = of[i].written >> at->rank & 1;
        x.runner.wish = of[i].stops >> at->rank & 1 ? STEP_STOP : of[i].turns >> at->rank & 1 ? STEP_TURN : STEP_GO_ON;
        TRY(session_period(&x, i + 1, &got));
        EXPECT(got.result->written == (of[i].written == 7), "period %d: written %d", i, got.result->written);
        EXPECT(got.result->wish == of[i].all, "period %d: wish %d", i, (int)got.result->wish);
    }
    session_close(&x);
    return ERR_OK;
}

static void all_write_and_the_strongest_wish_counts(void **state) {
    (void)state;
    char *dir = rank_dir();
    config c;
    rank_config(&c, dir, small_model, "[server]\nmode = async\nevery = 1\n");
    run_ranks("wishes", &(rank_world)ONE(RANKS), &c, wish, NULL);
    drop_dir(dir);
}

static double now(clockid_t of) {
    struct timespec t;
    clock_gettime(of, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Worker 1 drags its micro-batches. The record waits for it in each step, long after the time is up for which a step
// would without one.
static err_t repeat(const config *c, const launch *at, void *ctx) {
    enum { STEPS = 3 };
    session x;
    launch own;
    served_results got;
    (void)ctx;
    TRY(enter(&x, c, at, &own));
    double wall = now(CLOCK_MONOTONIC), mine = now(CLOCK_THREAD_CPUTIME_ID);
    TRY(session_period(&x, STEPS, &got));
    wall = now(CLOCK_MONOTONIC) - wall, mine = now(CLOCK_THREAD_CPUTIME_ID) - mine;
    for (int i = 0; i < STEPS; i++)
        EXPECT(got.step[i].pushes == WORKERS && got.step[i].dropped == 0, "step %d: %d gradients", i + 1,
               (int)got.step[i].pushes);
    EXPECT(at->rank != SERVER || mine < wall / 4, "of %g s the server computed for %g s", wall, mine);
    session_close(&x);
    return ERR_OK;
}

static void a_server_sleeps_while_a_record_waits(void **state) {
    (void)state;
    char *dir = rank_dir(), path[IO_PATH], more[IO_PATH + 256];
    const served_about about = {0, 1, WORKERS, "hybrid"};
    served_record r;
    config c;
    snprintf(path, sizeof path, "%s/served-0.log", dir);
    OK(served_record_open(&r, path, &about, 0));
    OK(served_write(&r, (served_line){SERVED_PERIOD, 1, 3}));
    for (int64_t step = 1; step <= 3; step++) {
        static const served_event does[] = {SERVED_NEXT, SERVED_PULL, SERVED_PUSH};
        for (int k = 0; k < 3; k++)
            for (int w = 0; w < WORKERS; w++) OK(served_write(&r, (served_line){does[k], w, (step - 1) * WORKERS + w}));
        OK(served_write(&r, (served_line){SERVED_CLOSE, step, 0}));
    }
    OK(served_write(&r, (served_line){SERVED_END, 1, 3}));
    served_record_close(&r);
    snprintf(more, sizeof more,
             "[server]\nmode = hybrid\nevery = 3\ntimeout = 0.0001\nreplay = %s\n[run]\nfaults = drag@1x1000000:1\n",
             dir);
    rank_config(&c, dir, small_model, more);
    run_ranks("repeats", &(rank_world)ONE(RANKS), &c, repeat, NULL);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(skipped_updates_are_counted),
                                       cmocka_unit_test(all_write_and_the_strongest_wish_counts),
                                       cmocka_unit_test(a_server_sleeps_while_a_record_waits)};
    return cmocka_run_group_tests_name("served_period", tests, NULL, NULL);
}
