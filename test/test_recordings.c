// test/test_recordings.c: what the ranks of a pipeline record, on the simulated GPU of `make sim`: each part of a unit
// is one submission of the host from its second time on, no recording is made after the first steps, and no bit
// changes: after an evaluation, an overflow, and with steps queued ahead. The stand-in for NCCL is beside this program.
// Skipped by name elsewhere.
#include "test/support/ranks.h"
#include "trainer/session/restore.h"

#include <math.h>

extern long sim_submitted(const char *what) __attribute__((weak));  // test/sim/cudart.h; not there on a GPU

enum { STEPS = 8, LOOK = 3, MOST = 4 };  // an evaluation after step LOOK, in the middle of which nothing is queued

static const char base[] = SMALL_GPT(6, 2, 16, 8, 128) SMALL_BATCH(
    8, 1, 2) "[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\nbackend = cuda\n[reduce]\n"
             "transport = nccl\nbucket_mb = 0.01\n[cluster]\ntimeout = 20\n";

static const char gpt[] = "[model]\ndropout = 0.1\n";
static const char llama[] = "[model]\ntype = llama\nheads = 4\nkv_heads = 2\nhidden = 24\ntied = no\n";

typedef struct finding {
    double loss[STEPS], norm[STEPS], eval;
    char hash[17], state_hash[17];
    int64_t skipped;
    // Of the last step: what the host submitted, and what of it are parts of units; recordings after step LOOK + 1, and
    // at the end.
    long graphs, kernels, parts;
    int early, late, different;
    int kept;  // recordings of parts that find values of their own in memory that layers share
} finding;

// --- a rank ----------------------------------------------------------------------------------------------------------

static bool is_part(action_kind k) {
    return k == ACTION_FORWARD || k == ACTION_BACKWARD || k == ACTION_INPUTS || k == ACTION_WEIGHTS;
}

static int made(const step_runner *r) {
    int n = 0;
    for (int i = 0; i < 2 * r->recorded.count; i++) n += r->recorded.run[i].calls.made != NULL;
    return n;
}

static err_t collect(session *x, finding *f) {
    step_result s;
    TRY(session_collect(x, &s));
    f->loss[s.step - 1] = s.loss, f->norm[s.step - 1] = s.grad_norm, f->skipped = s.skipped;
    return ERR_OK;
}

// So many steps, each queued before the one before it is collected.
static err_t steps_ahead(session *x, int count, finding *f) {
    for (int i = 0; i < count; i++) {
        long graphs = sim_submitted("graphs"), kernels = sim_submitted("kernels");
        TRY(session_queue(x));
        f->graphs = sim_submitted("graphs") - graphs, f->kernels = sim_submitted("kernels") - kernels;
        if (x->runner.uncollected == 2) TRY(collect(x, f));
    }
    while (x->runner.uncollected) TRY(collect(x, f));
    return session_settle(x);
}

// Logit gradients beyond 65504: the next step overflows where FP16 is computed with.
static err_t overflow_next(session *x) {
    step_state now;
    TRY(state_get_step(&x->state, &now));
    if (x->cfg->precision.compute == FP16) now.loss_scale = 0x1p22f;
    return state_set_step(&x->state, &now);
}

static err_t whole_run(session *x, finding *f) {
    int64_t samples;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    TRY(steps_ahead(x, LOOK, f));
    TRY(eval_loss(x, 2, &f->eval, &samples));
    TRY(session_settle(x));
    TRY(steps_ahead(x, 1, f));
    f->early = made(&x->runner);
    TRY(overflow_next(x));
    TRY(steps_ahead(x, STEPS - LOOK - 1, f));
    for (int i = 0; i < x->runner.recorded.count; i++) f->kept += x->runner.recorded.run[2 * i + 1].calls.made != NULL;
    f->late = made(&x->runner), f->different = x->runner.recorded.count;
    for (int i = 0; i < x->runner.actions.count; i++) f->parts += is_part(x->runner.actions.at[i].kind);
    TRY(session_fetch(x));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    return ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash);
}

static err_t live(const config *c, const launch *at, void *ctx) {
    session x;
    finding *all = ctx;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = whole_run(&x, &all[at->rank]);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

// --- a layout --------------------------------------------------------------------------------------------------------

typedef struct layout {
    int ranks, pipeline, kept;  // kept: of all ranks
    const char *model, *schedule, *parallel, *more;
} layout;

// The stand-in for NCCL that knows streams.
static void nccl_of(char dst[512]) {
    ssize_t n = readlink("/proc/self/exe", dst, 400);
    assert_true(n > 0);
    dst[n] = 0;
    strcpy(strrchr(dst, '/'), "/libnccl-sim.so");
}

static finding *run_layout(const char *dir, const layout *y, const char *graph) {
    char more[1536], nccl[512], count[16];
    rank_world w = {.nodes = 1, .ranks = {y->ranks}};
    config c;
    finding *all = share_memory(MOST * sizeof *all);
    nccl_of(nccl);
    snprintf(count, sizeof count, "%d", y->ranks);
    setenv("SIM_DEVICES", count, 1);
    snprintf(
        more, sizeof more,
        "%s%s[parallel]\npipeline = %d\nschedule = %s\n%s[reduce]\nnccl_library = %s\n[device]\ngraph = %s\nranks = %d\n",
        y->model, y->more, y->pipeline, y->schedule, y->parallel, nccl, graph, y->ranks);
    rank_config(&c, dir, base, more);
    run_ranks(more, &w, &c, live, all);
    return all;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void compare(const char *what, const finding *graph, const finding *plain) {
    for (int i = 0; i < STEPS; i++)
        if (graph->loss[i] != plain->loss[i] || !same(graph->norm[i], plain->norm[i]))
            fail_msg("%s: step %d: loss %.17g norm %.17g from recordings, %.17g and %.17g without", what, i + 1,
                     graph->loss[i], graph->norm[i], plain->loss[i], plain->norm[i]);
    if (graph->eval != plain->eval || graph->skipped != plain->skipped)
        fail_msg("%s: evaluation %.17g, %d skipped; without recordings %.17g, %d", what, graph->eval,
                 (int)graph->skipped, plain->eval, (int)plain->skipped);
    if (strcmp(graph->hash, plain->hash) != 0 || strcmp(graph->state_hash, plain->state_hash) != 0)
        fail_msg("%s: hash %s state %s, without recordings %s and %s", what, graph->hash, graph->state_hash,
                 plain->hash, plain->state_hash);
}

// Beside the parts there are two recordings of the step's end. Of kernels only those remain that add lanes, and what
// ranks send each other.
static void count(const char *what, int rank, const finding *graph, const finding *plain) {
    if (graph->graphs != graph->parts + 2 || plain->graphs != 0)
        fail_msg(
            "%s, rank %d: the host submitted %ld recordings for a step of %ld parts, expected 2 more; and %ld without them",
            what, rank, graph->graphs, graph->parts, plain->graphs);
    if (!graph->early || graph->early != graph->late || graph->late > 2 * graph->different ||
        graph->different > graph->parts)
        fail_msg("%s, rank %d: %d recordings after step %d, %d after the last; %ld parts, %d of them different", what,
                 rank, graph->early, LOOK + 1, graph->late, graph->parts, graph->different);
    if (graph->kernels >= plain->kernels / 4)
        fail_msg("%s, rank %d: %ld kernels of a step are submitted one by one, %ld without recordings", what, rank,
                 graph->kernels, plain->kernels);
}

static void try_layouts(const layout *at, int n) {
    if (!sim_submitted) {
        print_message("skipped: this program is not built with the simulator: make sim\n");
        skip();
    }
    for (int k = 0; k < n; k++) {
        char what[256], *dir = rank_dir();
        finding *plain = run_layout(dir, &at[k], "no"), *graph = run_layout(dir, &at[k], "yes");
        snprintf(what, sizeof what, "%s, %d ranks, %s%s", at[k].schedule, at[k].ranks, at[k].parallel, at[k].more);
        int kept = 0;
        for (int rank = 0; rank < at[k].ranks; rank++) {
            kept += graph[rank].kept;
            compare(what, &graph[rank], &plain[rank]);
            count(what, rank, &graph[rank], &plain[rank]);
        }
        if (kept != at[k].kept)
            fail_msg("%s: %d recordings are of parts that compute less again, expected %d", what, kept, at[k].kept);
        if (strstr(at[k].more, "fp16") && (plain->skipped < 1 || plain->skipped > 2))
            fail_msg("%s: %d steps were skipped", what, (int)plain->skipped);
        munmap(plain, MOST * sizeof *plain), munmap(graph, MOST * sizeof *graph);
        drop_dir(dir);
    }
}

// --- the layouts -----------------------------------------------------------------------------------------------------

static void schedules(void **state) {
    static const layout y[] = {
        {2, 2, 0, gpt, "gpipe", "", ""},
        {2, 2, 0, gpt, "1f1b", "", "[precision]\ncompute = fp16\n"},
        {2, 2, 0, gpt, "interleaved\nchunks = 2", "", ""},
        {3, 3, 0, llama, "zb-h1", "", "[batch]\nglobal = 6\n[reduce]\norder = any\n"},
        {3, 3, 0, gpt, "zb-v\nchunks = 2", "", "[precision]\ncompute = bf16\nrounding = stochastic\n"}};
    (void)state;
    try_layouts(y, sizeof y / sizeof *y);
}

// Buckets are reduced after their last block, and blocks are gathered before each: units are several parts.
static void beside_each_other(void **state) {
    static const layout y[] = {
        {4, 2, 0, gpt, "1f1b", "zero = 0\n", "[batch]\nlanes = 4\n"},
        {4, 2, 0, gpt, "gpipe", "zero = 1\n", ""},
        {4, 2, 0, gpt, "zb-h1", "zero = 2\n", "[batch]\nlanes = 8\n"},
        {4, 2, 0, gpt, "interleaved\nchunks = 2", "zero = 3\n", "[precision]\ncompute = fp16\n"}};
    (void)state;
    try_layouts(y, sizeof y / sizeof *y);
}

// What a layer left in memory that it shares with others is there for backward, or it is not: a part is recorded both
// ways.
static void computed_again(void **state) {
    static const layout y[] = {{2, 2, 4, gpt, "1f1b", "recompute = block\n", ""},
                               {2, 2, 8, llama, "interleaved\nchunks = 2", "recompute = selective\n", ""},
                               {2, 2, 0, gpt, "gpipe", "recompute = selective\n", ""},
                               {2, 2, 8, gpt, "zb-v\nchunks = 2", "recompute = block\n", ""},
                               {4, 2, 4, gpt, "1f1b", "recompute = block\nzero = 3\n", ""}};
    (void)state;
    try_layouts(y, sizeof y / sizeof *y);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules), cmocka_unit_test(beside_each_other),
                                       cmocka_unit_test(computed_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
