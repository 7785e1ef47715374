// test/test_pipe_wait.c: each rank of a pipeline reports whom it waits for. Two ranks, of which one sleeps in its
// products.
#include "gpu/backend.h"
#include "test/support/ranks.h"
#include "trainer/session/machine.h"
#include "trainer/session/restore.h"

static const char settings[] =
    "[model]\ntype = mlp\ninputs = 24\nhidden = 40 40 40\nclasses = 10\n[sample]\ntokens = 0\n"
    "[batch]\nglobal = 8\nmicro = 1\nlanes = 4\n[device]\nthreads = 1\n[cluster]\ntimeout = 20\n[parallel]\npipeline = 2\n";

enum { SLEEP_MS = 3, STEPS = 2, MICROS = 8 };

typedef struct slow_run {
    int slow;                         // the rank that sleeps
    double report[2 * REPORT_ITEMS];  // of the last step
} slow_run;

static err_t slow_relu(const relu_forward_args *args, stream *s) {
    (void)args, (void)s;
    nanosleep(&(struct timespec){0, SLEEP_MS * 1000000L}, NULL);
    return ERR_OK;
}

static err_t train_steps(session *x, slow_run *r) {
    step_result s;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < STEPS) TRY(session_step(x, &s));
    if (x->ranks->rank == 0) memcpy(r->report, s.reports, sizeof r->report);
    return session_settle(x);
}

static err_t run_rank(const config *c, const launch *at, void *ctx) {
    slow_run *r = ctx;
    session x;
    ops slow;
    err_t rc = session_machine(&x, c, SESSION_BENCH, at->local);
    if (rc == ERR_OK) {
        slow = *x.dev->ops;
        if (at->rank == r->slow) slow.relu_forward = slow_relu, x.dev->ops = &slow;
        rc = session_enter(&x, at);
    }
    if (rc == ERR_OK) rc = train_steps(&x, r);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static void run_two(const char *name, slow_run *r) {
    char *dir = rank_dir();
    config c;
    rank_config(&c, dir, settings, "");
    run_ranks(name, &(rank_world){.nodes = 1, .ranks = {2}}, &c, run_rank, r);
    drop_dir(dir);
}

// Who waits spends at least as long as the other sleeps, in whatever its own work leaves.
static void the_stage_that_is_waited_for_is_told(void **state) {
    (void)state;
    slow_run *r = share_memory(sizeof *r);
    for (r->slow = 0; r->slow < 2; r->slow++) {
        run_two(r->slow ? "the second stage sleeps" : "the first stage sleeps", r);
        const double *first = r->report, *second = r->report + REPORT_ITEMS, *quick = r->slow ? first : second,
                     *slow = r->slow ? second : first;
        assert_true(first[REPORT_BEFORE_MS] == 0 && second[REPORT_AFTER_MS] == 0);  // there is no such stage
        assert_true(first[REPORT_AFTER_MS] > 0 && second[REPORT_BEFORE_MS] > 0);
        assert_true(slow[REPORT_COMPUTE_MS] >= MICROS * SLEEP_MS);
        double waited = quick[REPORT_BEFORE_MS] + quick[REPORT_AFTER_MS],
               own = quick[REPORT_COMPUTE_MS] + quick[REPORT_DATA_MS];
        assert_true(waited + own >= MICROS * SLEEP_MS);
    }
    munmap(r, sizeof *r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_stage_that_is_waited_for_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
