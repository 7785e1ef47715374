// test/test_uneven.c: two ranks, of which one has other data than its neighbour: other validation data, and none at all
// from some read on. What is wrong with one is known to both, and neither goes on alone.
#include "test/support/run.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const char small_model[] =
    "[data]\nformat = raw16\nretry = 0\n[model]\nlayers = 1\nheads = 2\nembed = 16\ncontext = 24\nvocab = 131\n"
    "[batch]\nglobal = 8\nmicro = 2\nlanes = 4\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\n[cluster]\ntimeout = "
    "20\n";

enum { STEPS = 4, RANKS = 2 };

// What one rank saw.
typedef struct outcome {
    err_t code;
    int64_t step;
    char text[ERR_TEXT], hash[STEPS + 1][17];  // of the weights after each step
} outcome;

typedef struct pair {
    char *dir;
    config c[RANKS];  // of each rank
    int nodes, world;
    outcome *out;
} pair;

// --- ranks -----------------------------------------------------------------------------------------------------------

static err_t hash_now(session *x, outcome *o) {
    TRY(session_settle(x));
    TRY(session_fetch(x));
    return ckpt_hash(&x->state.ckpt, o->hash[x->progress.step]);
}

// Steps until one fails, or all are done; the weights after a failure are those of the last good step.
static err_t step_on(session *x, outcome *o) {
    step_result s;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    TRY(hash_now(x, o));
    err_t rc = ERR_OK;
    while (x->progress.step < STEPS && rc == ERR_OK) {
        if ((rc = session_step(x, &s)) == ERR_OK) TRY(hash_now(x, o));
    }
    if (rc == ERR_OK) return rc;
    err_record why = *err_last();
    TRY(hash_now(x, o));
    return err_restore(&why);
}

static void be_rank(pair *p, launch *at, int local) {
    session x;
    alarm(60);
    launch_become(at, local);
    outcome *o = &p->out[at->rank];
    o->code = session_open(&x, &p->c[at->rank], SESSION_TRAIN, at);
    if (o->code == ERR_OK) o->code = step_on(&x, o);
    snprintf(o->text, sizeof o->text, "%s", o->code == ERR_OK ? "" : err_last()->text);
    o->step = x.progress.step;
    if (o->code != ERR_OK) session_abort(&x, o->code);
    session_close(&x);
    launch_close(at);
    _exit(0);
}

// Runs all ranks of the pair to their ends, which must be orderly ones.
static void run_pair(pair *p) {
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2"};
    memset(p->out, 0, RANKS * sizeof *p->out);
    fflush(NULL);
    for (int node = 0; node < p->nodes; node++) {
        launch l;
        int ranks[2] = {p->world / p->nodes, p->world / p->nodes};
        OK(launch_open(&l, p->nodes, ranks, hosts, node));
        for (int i = 0; i < ranks[node]; i++)
            if (fork() == 0) be_rank(p, &l, i);
        launch_close(&l);
    }
    for (int i = 0, status; i < p->world; i++) {
        assert_true(wait(&status) > 0);
        if (status != 0) fail_msg("a rank ended with status 0x%x", (unsigned)status);
    }
}

static int enter(void **state) {
    pair *p = calloc(1, sizeof *p);
    char path[512], bytes[64];
    p->dir = make_dir();
    write_tokens(p->dir, "text.bin", 3000);
    write_tokens(p->dir, "val.bin", 500);
    memset(bytes, 'x', sizeof bytes);
    snprintf(path, sizeof path, "%s/secret", p->dir);
    OK(io_write_file(path, bytes, sizeof bytes, NULL));
    assert_int_equal(chmod(path, 0600), 0);
    p->out = mmap(NULL, RANKS * sizeof *p->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p->out != MAP_FAILED);
    *state = p;
    return 0;
}

static int leave(void **state) {
    pair *p = *state;
    munmap(p->out, RANKS * sizeof *p->out);
    drop_dir(p->dir);
    free(p);
    return 0;
}

// --- data that can't be read -----------------------------------------------------------------------------------------

// From its read number `nth` on one of two ranks has no data. Both end with its reason, after the same step, with the
// weights of that step.
static int64_t unread(pair *p, int zero, int victim, int nth, const outcome *alone) {
    char more[256], name[32];
    for (int r = 0; r < RANKS; r++) {
        int n = snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
        if (r == victim) snprintf(more + n, sizeof more - (size_t)n, "[run]\nfaults = read@%dx1000000\n", nth);
        load_config(&p->c[r], p->dir, small_model, more);
    }
    p->nodes = 1, p->world = 2;
    run_pair(p);
    snprintf(name, sizeof name, "rank %d (127.0.0.1): ", victim);
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &p->out[r];
        bool said = strstr(o->text, "text.bin: read of") && (r == victim || strncmp(o->text, name, strlen(name)) == 0);
        if (o->code != ERR_IO || !said || o->step != p->out[0].step || o->step >= STEPS)
            fail_msg("zero %d, rank %d can't read number %d: rank %d ended with %d after step %" PRId64 ": %s", zero,
                     victim, nth, r, o->code, o->step, o->text);
        for (int64_t k = 0; k <= o->step; k++) assert_string_equal(o->hash[k], alone->hash[k]);
    }
    return p->out[0].step;
}

static void a_rank_without_data_is_everybodys_news(void **state) {
    pair *p = *state;
    outcome alone;
    p->nodes = p->world = 1;
    load_config(&p->c[0], p->dir, small_model, "");
    run_pair(p);
    alone = p->out[0];
    if (alone.code != ERR_OK) fail_msg("one rank: %d: %s", alone.code, alone.text);
    for (int k = 0; k <= STEPS; k++) assert_int_equal(strlen(alone.hash[k]), 16);
    for (int zero = 0; zero <= 3; zero++)
        for (int victim = 0; victim < RANKS; victim++) {
            int64_t early = unread(p, zero, victim, 5, &alone), late = unread(p, zero, victim, 15, &alone);
            if (early != 0 || late <= early) fail_msg("they ended after steps %" PRId64 " and %" PRId64, early, late);
        }
}

// --- data that differ ------------------------------------------------------------------------------------------------

static int random_port(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 20000 + (int)((t.tv_nsec / 1000 + getpid() * 37L) % 6900);
}

// Node 1 has, under the same name, files with one token that differs. `what`: text.bin or val.bin.
static void other_tokens(pair *p, const char *what) {
    char more[700], path[600], *there = make_dir();
    char *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", p->dir, what);
    OK(io_read_file(path, 1 << 20, &bytes, &n));
    bytes[n / 2 / 2 * 2] ^= 1;
    snprintf(path, sizeof path, "%s/%s", there, what);
    OK(io_write_file(path, bytes, n, NULL));
    free(bytes);
    p->nodes = p->world = 2;
    for (int attempt = 0; attempt < 5; attempt++) {  // a port may be taken
        snprintf(more, sizeof more, "[cluster]\nport = %d\nsecret_file = %s/secret\n", random_port(), p->dir);
        for (int r = 0; r < RANKS; r++) load_config(&p->c[r], p->dir, small_model, more);
        strcpy(what[0] == 'v' ? p->c[1].data.val : p->c[1].data.train, path);
        run_pair(p);
        if (!strstr(p->out[0].text, "in use") && !strstr(p->out[1].text, "in use")) break;
    }
    for (int r = 0; r < RANKS; r++) {
        const outcome *o = &p->out[r];
        if (o->code != ERR_CONFIG || !strstr(o->text, "rank 1 (127.0.0.2) runs dataset ") ||
            !strstr(o->text, "copy the same data to all nodes"))
            fail_msg("%s differs, and rank %d ended with %d: %s", what, r, o->code, o->text);
    }
    drop_dir(there);
}

static void other_data_is_refused(void **state) {
    other_tokens(*state, "val.bin");
    other_tokens(*state, "text.bin");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(a_rank_without_data_is_everybodys_news), TEST(other_data_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
