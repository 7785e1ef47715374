// test/test_async.c: whole runs over a transport whose transfers are late (test/support/late.h). Steps, evaluations,
// samples, hashes and checkpoints must wait for what they read, and ask the other ranks for nothing while something is
// under way: then the log, and every hash in it, is that of one rank.
#include "test/support/late.h"
#include "test/support/ranks.h"
#include "trainer/train.h"

// Steps 2, 3, 6 and 11 are followed by nothing but the next step. What else makes a run stand still comes alone: an
// evaluation after step 4, a hash in the log after 5, a checkpoint after 7, a sample after 9.
static const char small_model[] =
    "[run]\nsteps = 12\n[data]\nformat = raw16\n[batch]\nglobal = 16\nmicro = 2\n"
    "[model]\nlayers = 2\nheads = 3\nembed = 12\ncontext = 12\nvocab = 131\ndropout = 0.1\n"
    "[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.004\n"
    "[cluster]\ntimeout = 20\n[log]\nevery = 1\nhash_every = 5\n[eval]\nevery = 4\nbatches = 5\n"
    "[checkpoint]\nevery = 7\nkeep_best = no\n[sample]\nevery = 9\ntokens = 3\n";

// The nodes share a file system here: each but the first has a directory of its own.
static err_t rank_main(const config *shared, const launch *at, void *ctx) {
    config c = *shared;
    if (at->node > 0) snprintf(c.run.dir, sizeof c.run.dir, "%s-of-node-%d", shared->run.dir, at->node);
    if (!freopen("/dev/null", "w", stdout)) return err_set(ERR_IO, "/dev/null can't be opened");
    TRY(train_rank(&c, at, ctx));
    if (!atomic_load(&late.broken)) return ERR_OK;
    return err_set(ERR_INTERNAL, "something was wrong in the transport, and the run went on");
}

// --- what a log says but for times -----------------------------------------------------------------------------------

// Cuts ,"key":number out of a line.
static void cut_out(char *line, const char *key) {
    char name[64];
    snprintf(name, sizeof name, ",\"%s\":", key);
    char *from = strstr(line, name);
    if (!from) return;
    char *to = from + strlen(name);
    to += strcspn(to, ",}");
    memmove(from, to, strlen(to) + 1);
}

static char *facts_of(const char *dir, const char *name) {
    static const char *const timed[] = {
        "ms",          "tokens_per_s", "data_wait_ms",       "comm_wait_ms",      "comm_ms",
        "comm_hidden", "slowest_rank", "slowest_compute_ms", "median_compute_ms", "mfu",
        "time",        "resident",     "device_bytes"};
    char path[1024], line[4096], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/runs/%s/log.jsonl", dir, name);
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &size);
    if (!in || !out) fail_msg("%s: no log", path);
    while (fgets(line, sizeof line, in)) {
        if (strncmp(line, "{\"t\":\"ranks\"", 12) == 0) continue;
        for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) cut_out(line, timed[i]);
        fputs(line, out);
    }
    fclose(in), fclose(out);
    return text;
}

static void expect_same_log(const char *what, const char *want, const char *found) {
    for (int line = 1; *want || *found; line++) {
        size_t n = strcspn(want, "\n"), m = strcspn(found, "\n");
        if (n != m || memcmp(want, found, n) != 0)
            fail_msg("%s: line %d of the log is\n  %.*s\nexpected\n  %.*s", what, line, (int)m, found, (int)n, want);
        want += n + (want[n] == '\n'), found += m + (found[m] == '\n');
    }
}

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

// --- runs ------------------------------------------------------------------------------------------------------------

static char *run_facts(char *dir, const char *name, const char *more, const rank_world *w) {
    config c;
    char all[1024];
    board *b = share_memory(sizeof *b);
    snprintf(all, sizeof all, "%s\n[run]\nname = %s\n", more, name);
    rank_config(&c, dir, small_model, all);
    run_ranks(name, w, &c, rank_main, b);
    munmap(b, sizeof *b);
    return facts_of(dir, name);
}

static void as_one_rank(const char *more, const rank_world *w, int worlds, const int *stages) {
    char *dir = rank_dir(), name[64], all[512],
         *one = run_facts(dir, "one", more, &(rank_world){.nodes = 1, .ranks = {1}});
    assert_int_equal(count_of(one, "{\"t\":\"step\""), 12);
    assert_int_equal(count_of(one, "{\"t\":\"eval\""), 3);
    assert_int_equal(count_of(one, "{\"t\":\"sample\""), 2);
    assert_int_equal(count_of(one, "{\"t\":\"checkpoint\""), 2);
    assert_int_equal(count_of(one, "\"hash\":\""), 2 + 2);
    for (int i = 0; i < worlds; i++) {
        snprintf(name, sizeof name, "ranks-%d-nodes-%d-zero-%d", rank_count(&w[i]), w[i].nodes, stages[i]);
        snprintf(all, sizeof all, "%s[parallel]\nzero = %d\n", more, stages[i]);
        char *found = run_facts(dir, name, all, &w[i]);
        expect_same_log(name, one, found);
        free(found);
    }
    free(one);
    drop_dir(dir);
}

// One micro-batch a lane: stages 2 and 3 take turns in slots, one of them still on its way.
static void lanes_of_one_micro_batch(void **state) {
    (void)state;
    static const rank_world w[] = {{.nodes = 1, .ranks = {2}},
                                   {.nodes = 1, .ranks = {3}},
                                   {.nodes = 1, .ranks = {2}},
                                   {.nodes = 1, .ranks = {3}},
                                   {.nodes = 1, .ranks = {2}}};
    as_one_rank("[batch]\nlanes = 8\n", w, 5, (int[]){0, 1, 2, 3, 3});
}

// Two: a slab is zeroed for the next lane while the last one may be on its way. 16 bits: what is spread is not the
// masters.
static void lanes_of_two_micro_batches(void **state) {
    (void)state;
    static const rank_world w[] = {
        {.nodes = 1, .ranks = {3}}, {.nodes = 1, .ranks = {2}}, {.nodes = 1, .ranks = {3}}, {.nodes = 1, .ranks = {2}}};
    as_one_rank("[batch]\nlanes = 4\n[precision]\ncompute = bf16\n", w, 4, (int[]){1, 2, 2, 3});
}

static void several_nodes(void **state) {
    (void)state;
    static const rank_world w[] = {{.nodes = 2, .ranks = {1, 1}}, {.nodes = 2, .ranks = {2, 1}}};
    as_one_rank("[batch]\nlanes = 8\n", w, 2, (int[]){1, 2});
}

// test_async [CASE]
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_one_micro_batch),
        cmocka_unit_test(lanes_of_two_micro_batches),
        cmocka_unit_test(several_nodes),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
