// test/test_unread.c: validation data that one rank of a shared model can't read. Ranks that share layers or positions,
// and the stages of a pipeline, work on the same samples: whichever of them has none, all hear why, and its name once;
// none waits for another, and the next evaluation is as good as the one before.
#include "test/support/ranks.h"
#include "trainer/session/restore.h"

#include <inttypes.h>

static const char small[] =
    "[run]\nsteps = 4\n[data]\nformat = raw16\nretry = 0\n[model]\nlayers = 2\nheads = 4\nembed = 32\ncontext = 16\nvocab = 130\n"
    "[sample]\ntokens = 0\n[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[device]\nthreads = 1\n[cluster]\ntimeout = 20\n";

enum { BATCHES = 12 };  // several rounds of all ranks

static const struct layout {
    const char *more;
    int ranks;
} layouts[] = {
    {"zero = 3\n", 2},
    {"pipeline = 2\n", 2},
    {"slices = 2\ntensor = 2\n", 2},
    {"slices = 2\ntoken_slices = 2\ncontext = 2\nzero = 2\n", 2},
    {"slices = 2\ntensor = 2\npipeline = 2\n", 4},
    {"slices = 2\ntoken_slices = 2\ncontext = 2\nzero = 2\npipeline = 2\n", 4},
    {"slices = 4\ntoken_slices = 2\ncontext = 2\nzero = 2\ntensor = 2\n", 4},
    {"slices = 2\ntensor = 2\npipeline = 2\nzero = 3\n", 8},
    {"slices = 4\ntoken_slices = 2\ncontext = 2\nzero = 2\ntensor = 2\npipeline = 2\nschedule = zb-v\n", 8},
};

static err_t expect_loss(session *x, double expected, int victim) {
    double loss;
    int64_t samples;
    TRY(eval_loss(x, BATCHES, &loss, &samples));
    if (loss == expected) return ERR_OK;
    return err_set(ERR_INTERNAL, "loss %.17g after rank %d could not read, expected %.17g", loss, victim, expected);
}

// From its read number `nth` on one rank has no data, and then it has again.
static err_t without_data(session *x, int victim, int nth) {
    char fault[32], name[32];
    int64_t samples;
    double loss;
    bool mine = x->ranks->rank == victim;
    snprintf(fault, sizeof fault, "read@%dx1000000", nth);
    snprintf(name, sizeof name, "rank %d (", victim);
    TRY(fault_parse(&x->faults, mine ? fault : ""));
    err_t rc = eval_loss(x, BATCHES, &loss, &samples);
    TRY(fault_parse(&x->faults, ""));
    const char *text = rc == ERR_OK ? "no error" : err_last()->text, *why = text;
    if (!mine && strncmp(text, name, strlen(name)) == 0) why += strlen(name);
    if (rc == ERR_IO && mine == (why == text) && strstr(why, "val.bin: read of") && !strstr(why, "rank "))
        return ERR_OK;
    return err_set(ERR_INTERNAL, "rank %d can't read number %d, and this one ends with %d: %.300s", victim, nth, rc,
                   text);
}

static err_t all_hear(session *x) {
    double loss;
    int64_t samples;
    TRY(session_init(x));
    TRY(eval_loss(x, BATCHES, &loss, &samples));
    for (int victim = 0; victim < x->ranks->world; victim++)
        for (int nth = 1; nth <= 4; nth += 3) {  // of the first micro-batch, and of the second
            TRY(without_data(x, victim, nth));
            TRY(expect_loss(x, loss, victim));
        }
    return session_settle(x);
}

static err_t look(const config *c, const launch *at, void *ctx) {
    session x;
    (void)ctx;
    err_t rc = session_open(&x, c, SESSION_INFERENCE, at);
    if (rc == ERR_OK) rc = all_hear(&x);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static void a_rank_without_samples_is_everybodys_news(void **state) {
    (void)state;
    char *dir = rank_dir(), more[256];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        config c;
        snprintf(more, sizeof more, "[parallel]\n%s", layouts[i].more);
        rank_config(&c, dir, small, more);
        OK(config_fits(&c, layouts[i].ranks));
        run_ranks(layouts[i].more, &(rank_world){.nodes = 1, .ranks = {layouts[i].ranks}}, &c, look, NULL);
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_without_samples_is_everybodys_news)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
