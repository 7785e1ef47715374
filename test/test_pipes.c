// test/test_pipes.c: pipelines as runs, from the inside. Whatever the schedule, the stages, the pipelines beside each
// other, ZeRO, recomputation, offload and nodes: each step's loss, norm and scale, the evaluation, the sample and the
// hashes are those of one rank. And a rank whose data fails ends the run on all of them, after the same step. Ranks
// that share layers or positions without a pipeline find the same, too.
#include "test/support/idx.h"
#include "test/support/ranks.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

#include <inttypes.h>
#include <math.h>

enum { STEPS = 12, MOST = 8, SAMPLE = 64 };

// Sixteen samples are 8 lanes of 2 micro-batches. 5 blocks: tokens, 3 layers, head.
static const char gpt_run[] =
    "[data]\nformat = raw16\nretry = 0\n[model]\nlayers = 3\nheads = 2\nembed = 20\ncontext = 12\nvocab = 131\n"
    "[batch]\nglobal = 16\nmicro = 1\nlanes = 8\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 2\n[eval]\nbatches = 6\n"
    "[sample]\ntokens = 8\nprompt = bottles\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.01\n[cluster]\ntimeout = 20\n";

static const char dropout[] = "[model]\ndropout = 0.1\n";

static const char deep[] = "[model]\nlayers = 6\ndropout = 0.1\n[batch]\nglobal = 24\n";

// The same of a Llama whose head has weights of its own; 3 layers of odd sizes, so that the head is heavy.
static const char llama[] =
    "[model]\ntype = llama\nheads = 4\nkv_heads = 2\nhead_dim = 10\nembed = 24\nhidden = 36\ntied = no\nqk_norm = yes\n";

// 4 blocks whose backward has two halves.
static const char mlp_run[] =
    "[model]\ntype = mlp\ninputs = 25\nhidden = 70 30 20\nclasses = 7\n[data]\nretry = 0\nval =\nholdout = 13\n"
    "[batch]\nglobal = 24\nmicro = 3\nlanes = 4\n[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 2\n[eval]\nbatches = 2\n"
    "[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.002\n[cluster]\ntimeout = 20\n";

// What one rank found.
typedef struct finding {
    char hash[17], state_hash[17], sample[SAMPLE];
    double loss[STEPS], norm[STEPS], scale[STEPS], eval;
    bool applied[STEPS];
    int64_t skipped;
    // Of a rank whose run ended early:
    err_t code;
    int64_t step;
    char text[ERR_TEXT];
} finding;

// A run of all ranks.
typedef struct plan {
    finding *all;
    int victim, read;  // this rank can't read from this read on; -1: none
} plan;

// --- what each rank does ---------------------------------------------------------------------------------------------

static err_t take_step(session *x, finding *f) {
    step_result s;
    TRY(session_step(x, &s));
    int64_t i = s.step - 1;
    f->loss[i] = s.loss, f->norm[i] = s.grad_norm, f->scale[i] = s.loss_scale, f->applied[i] = s.applied,
    f->skipped = s.skipped;
    return ERR_OK;
}

static err_t take_sample(session *x, finding *f) {
    char *text;
    if (!x->net->vocab) return ERR_OK;
    if (x->ranks->rank > 0 && !session_samples_on_all(x)) return session_await_sample(x);
    TRY(session_sample(x, x->cfg->sample.prompt, &text));
    snprintf(f->sample, sizeof f->sample, "%s", text);
    free(text);
    return ERR_OK;
}

static err_t take_hashes(session *x, finding *f) {
    TRY(session_settle(x));
    TRY(session_fetch(x));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    return ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash);
}

// An evaluation in the middle, as a run has it: what it leaves behind must not reach the next step.
static err_t whole_run(session *x, finding *f) {
    int64_t samples;
    double early;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < STEPS) {
        TRY(take_step(x, f));
        TRY(session_settle(x));
        if (x->progress.step == 2) TRY(eval_loss(x, 1, &early, &samples));
        if (x->progress.step == 3) TRY(take_sample(x, f));
        TRY(session_settle(x));
    }
    TRY(eval_loss(x, x->cfg->eval.batches, &f->eval, &samples));
    TRY(session_settle(x));
    return take_hashes(x, f);
}

static err_t live(const config *c, const launch *at, void *ctx) {
    const plan *p = ctx;
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = whole_run(&x, &p->all[at->rank]);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

// --- comparing -------------------------------------------------------------------------------------------------------

// The norm of a gradient that overflowed is no number.
static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void compare(const char *what, int rank, const finding *f, const finding *one) {
    for (int i = 0; i < STEPS; i++)
        if (f->loss[i] != one->loss[i] || !same(f->norm[i], one->norm[i]) || f->scale[i] != one->scale[i] ||
            f->applied[i] != one->applied[i])
            fail_msg("%s, rank %d, step %d: loss %.17g norm %.17g scale %g applied %d, expected %.17g, %.17g, %g, %d",
                     what, rank, i + 1, f->loss[i], f->norm[i], f->scale[i], f->applied[i], one->loss[i], one->norm[i],
                     one->scale[i], one->applied[i]);
    if (f->skipped != one->skipped || f->eval != one->eval)
        fail_msg("%s, rank %d: %d skipped, evaluation %.17g; expected %d, %.17g", what, rank, (int)f->skipped, f->eval,
                 (int)one->skipped, one->eval);
    if (strcmp(f->hash, one->hash) != 0 || strcmp(f->state_hash, one->state_hash) != 0)
        fail_msg("%s, rank %d: hash %s state %s, expected %s and %s", what, rank, f->hash, f->state_hash, one->hash,
                 one->state_hash);
    if (f->sample[0] && strcmp(f->sample, one->sample) != 0)
        fail_msg("%s, rank %d: sample \"%s\", expected \"%s\"", what, rank, f->sample, one->sample);
}

typedef struct layout {
    const char *schedule;
    int pipeline, data, zero;
    const char *more;
    int nodes, ranks[RANK_NODES];  // 0 nodes: one with all ranks
} layout;

static rank_world world_of(const layout *y) {
    rank_world w = {.nodes = y->nodes};
    memcpy(w.ranks, y->ranks, sizeof w.ranks);
    if (!y->nodes) w = (rank_world){.nodes = 1, .ranks = {y->pipeline * y->data}};
    return w;
}

static void text_of(const layout *y, char dst[1024], const char *dir, const char *kind, const char *files) {
    int n = snprintf(dst, 1024, "%s%s\n[parallel]\npipeline = %d\nzero = %d\n%s%s\n%s", kind, files, y->pipeline,
                     y->zero, y->schedule[0] ? "schedule = " : "", y->schedule, y->more ? y->more : "");
    assert_true(n < 1024 && dir);
}

static void try_layout(const char *dir, const char *run, const char *kind, const char *files, const layout *y,
                       finding *one) {
    char more[1024], what[256];
    plan p = {.all = share_memory(MOST * sizeof(finding)), .victim = -1};
    config c;
    rank_world w = world_of(y);
    text_of(y, more, dir, kind, files);
    snprintf(what, sizeof what, "%s, pipeline %d, data %d, zero %d, %s on %d node%s", y->schedule, y->pipeline, y->data,
             y->zero, y->more ? y->more : "", w.nodes, w.nodes == 1 ? "" : "s");
    rank_config(&c, dir, run, more);
    run_ranks(what, &w, &c, live, &p);
    if (!one->hash[0]) *one = p.all[0];
    if (strlen(one->hash) != 16) fail_msg("%s: no hash", what);
    for (int k = 0; k < rank_count(&w); k++) compare(what, k, &p.all[k], one);
    munmap(p.all, MOST * sizeof(finding));
}

static const layout alone = {"", 1, 1, 0, NULL, 0, {0}};

// Returns what one rank found.
static finding try_layouts(const char *dir, const char *run, const char *kind, const char *files, const layout *y,
                           int count) {
    finding one = {.hash = ""};
    try_layout(dir, run, kind, files, &alone, &one);
    for (int i = 0; i < count; i++) try_layout(dir, run, kind, files, &y[i], &one);
    return one;
}

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

// --- the same bits ---------------------------------------------------------------------------------------------------

static void a_gpt_with_dropout_and_a_tied_head(void **state) {
    (void)state;
    static const layout layouts[] = {
        {"1f1b", 2, 1, 0, NULL, 0, {0}},
        {"gpipe", 3, 1, 0, "recompute = selective", 0, {0}},
        {"interleaved", 2, 1, 0, "chunks = 2", 0, {0}},
        {"zb-h1", 5, 1, 0, "stages = 1 1 1 1 1", 0, {0}},
        {"zb-v", 2, 2, 0, "chunks = 2\noffload = yes", 0, {0}},
        {"1f1b", 2, 3, 1, "stages = 1 4", 0, {0}},  // 3 pipelines share 8 lanes: 3, 3 and 2
        {"zb-h1", 2, 3, 2, "offload = nvme", 0, {0}},
        {"zb-v", 2, 3, 3, "chunks = 2\nrecompute = block", 0, {0}},
        {"interleaved", 2, 2, 3, "chunks = 2", 0, {0}},
        {"1f1b", 2, 2, 2, NULL, 2, {2, 2}},
        {"zb-v", 2, 2, 1, "chunks = 2", 4, {1, 1, 1, 1}},
        {"gpipe", 3, 1, 0, NULL, 2, {1, 2}},
    };
    char *dir = rank_dir();
    try_layouts(dir, gpt_run, dropout, "", layouts, COUNT(layouts));
    drop_dir(dir);
}

// Every schedule at every depth, with one pipeline and several, in turn with each stage of ZeRO, kind of recomputation
// and offload. 8 blocks.
static void every_schedule_at_every_depth(void **state) {
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}, *const recompute[] = {
                                                                                                  "none", "selective",
                                                                                                  "block"};
    char *dir = rank_dir(), more[128];
    finding one = {.hash = ""};
    try_layout(dir, gpt_run, deep, "", &alone, &one);
    for (int k = 0, turn = 0; k < COUNT(schedules); k++)
        for (int p = 2; p <= 4; p++)
            for (int data = 1; p * data <= MOST; data *= 2, turn++) {
                snprintf(more, sizeof more, "recompute = %s\noffload = %s\n%s", recompute[turn % 3],
                         turn % 5 ? "no" : "yes", k == 2 || k == 4 ? "chunks = 2" : "");
                layout y = {schedules[k], p, data, data > 1 ? turn % 4 : 0, more, 0, {0}};
                try_layout(dir, gpt_run, deep, "", &y, &one);
            }
    drop_dir(dir);
}

// Ranks that share layers or positions need each other for each token of a sample, also where no pipeline has them
// together.
static void ranks_that_share_a_model_of_one_stage(void **state) {
    (void)state;
    static const layout layers[] = {
        {"", 1, 1, 0, "tensor = 2", 1, {2}},
        {"", 1, 1, 1, "tensor = 2\nsequence = yes", 1, {4}},
        {"", 1, 1, 3, "tensor = 2", 2, {1, 3}},
    };
    static const layout positions[] = {
        {"", 1, 1, 2, "context = 2", 1, {2}},
        {"", 1, 1, 3, "context = 2", 2, {2, 2}},
    };
    char *dir = rank_dir();
    try_layouts(dir, gpt_run, "[model]\ndropout = 0.1\n[parallel]\nslices = 2\n", "", layers, COUNT(layers));
    try_layouts(dir, gpt_run, "[model]\ndropout = 0.1\n[parallel]\nslices = 2\ntoken_slices = 2\n", "", positions,
                COUNT(positions));
    drop_dir(dir);
}

static void a_gpt_in_bf16(void **state) {
    (void)state;
    static const layout layouts[] = {
        {"zb-h1", 3, 1, 0, "offload = nvme", 0, {0}},
        {"1f1b", 2, 3, 3, NULL, 0, {0}},
        {"zb-v", 2, 2, 2, "chunks = 2\nrecompute = selective", 0, {0}},
        {"interleaved", 2, 3, 1, "chunks = 2", 0, {0}},
    };
    char *dir = rank_dir();
    try_layouts(
        dir, gpt_run,
        "[precision]\ncompute = bf16\nrounding = stochastic\n[model]\ndropout = 0.1\n[batch]\nlanes = 4\nglobal = 24\n",
        "", layouts, COUNT(layouts));
    drop_dir(dir);
}

// The scale doubles with every step, until a gradient overflows: that step is skipped by all ranks, and the scale is
// halved.
static void a_gpt_in_fp16_that_overflows(void **state) {
    (void)state;
    static const layout layouts[] = {
        {"1f1b", 3, 1, 0, NULL, 0, {0}},
        {"zb-h1", 2, 2, 3, NULL, 0, {0}},
        {"zb-v", 2, 1, 0, "chunks = 2\noffload = nvme", 0, {0}},
        {"gpipe", 2, 3, 2, NULL, 0, {0}},
    };
    char *dir = rank_dir();
    finding one = try_layouts(dir, gpt_run, "[precision]\ncompute = fp16\nscale_window = 1\n[model]\ndropout = 0.1\n",
                              "", layouts, COUNT(layouts));
    drop_dir(dir);
    int first = 0;
    while (first < STEPS && one.applied[first]) first++;
    if (first == 0 || first >= STEPS - 1 || one.skipped == 0)
        fail_msg("step %d is the first that was skipped: expected one in the middle", first + 1);
}

static void a_llama_whose_head_is_not_tied(void **state) {
    (void)state;
    static const layout layouts[] = {
        {"1f1b", 2, 1, 0, NULL, 0, {0}},
        {"zb-h1", 3, 2, 3, "recompute = block", 0, {0}},
        {"interleaved", 2, 2, 2, "chunks = 2", 0, {0}},
        {"zb-v", 2, 3, 1, "chunks = 2", 0, {0}},
    };
    char *dir = rank_dir();
    try_layouts(dir, gpt_run, llama, "", layouts, COUNT(layouts));
    drop_dir(dir);
}

enum { IMAGES = 50, SIDE = 5 };

static void write_images(const char *dir) {
    static uint8_t pixels[IMAGES * SIDE * SIDE], label[IMAGES];
    char path[1024];
    for (int n = 0; n < IMAGES; n++) {
        label[n] = (uint8_t)(n * 5 % 7);
        for (int i = 0; i < SIDE * SIDE; i++)
            pixels[n * SIDE * SIDE + i] = (uint8_t)(n * 37 + i * i * 11 + (i / 3 == label[n]) * 90);
    }
    snprintf(path, sizeof path, "%s/images", dir);
    write_idx(path, 3, (uint32_t[]){IMAGES, SIDE, SIDE}, pixels, false);
    snprintf(path, sizeof path, "%s/labels", dir);
    write_idx(path, 1, (uint32_t[]){IMAGES}, label, true);
}

static void a_perceptron_in_halves(void **state) {
    (void)state;
    static const layout layouts[] = {
        {"1f1b", 4, 1, 0, NULL, 0, {0}},
        {"zb-h1", 2, 1, 0, "stages = 3 1", 0, {0}},
        {"zb-v", 2, 1, 0, "chunks = 2", 0, {0}},
        {"zb-h1", 2, 3, 0, NULL, 0, {0}},
        {"zb-h1", 2, 3, 1, NULL, 0, {0}},
        {"zb-h1", 2, 3, 2, NULL, 0, {0}},
        {"zb-h1", 2, 3, 3, NULL, 0, {0}},
        {"zb-v", 2, 2, 1, "chunks = 2", 0, {0}},
        {"zb-v", 2, 2, 3, "chunks = 2", 0, {0}},
        {"interleaved", 2, 2, 0, "chunks = 2", 0, {0}},
        {"gpipe", 2, 2, 2, "offload = yes", 0, {0}},
    };
    char *dir = rank_dir(), files[256];
    write_images(dir);
    snprintf(files, sizeof files, "[data]\ntrain = %s/images %s/labels\n", dir, dir);
    try_layouts(dir, mlp_run, "", files, layouts, COUNT(layouts));
    try_layouts(dir, mlp_run, "[precision]\ncompute = bf16\n[model]\nactivation = gelu\n", files, layouts + 2, 5);
    drop_dir(dir);
}

// --- data that fails -------------------------------------------------------------------------------------------------

static err_t good_steps(session *x, finding *f) {
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < STEPS) TRY(take_step(x, f));
    return ERR_OK;
}

// The weights after a failure are those of the last good step.
static err_t live_until_it_fails(const config *shared, const launch *at, void *ctx) {
    const plan *p = ctx;
    finding *f = &p->all[at->rank];
    static config c;
    session x;
    c = *shared;
    if (at->rank == p->victim) snprintf(c.run.faults, sizeof c.run.faults, "read@%dx1000000", p->read);
    f->code = session_open(&x, &c, SESSION_TRAIN, at);
    if (f->code == ERR_OK) f->code = good_steps(&x, f);
    err_record why = *err_last();
    f->step = x.progress.step;
    if (f->code == ERR_OK || f->code == ERR_IO) TRY(take_hashes(&x, f));
    if (f->code != ERR_OK)
        snprintf(f->text, sizeof f->text, "%s", why.text), err_restore(&why), session_abort(&x, f->code);
    session_close(&x);
    return ERR_OK;
}

static void until_it_fails(const char *dir, const layout *y, int victim, int read, const finding hashes[STEPS + 1]) {
    char more[1024], what[128], name[COMM_NAME], role[COMM_ROLE];
    plan p = {.all = share_memory(MOST * sizeof(finding)), .victim = victim, .read = read};
    config c;
    rank_world w = world_of(y);
    text_of(y, more, dir, "", "");
    rank_config(&c, dir, gpt_run, more);
    snprintf(what, sizeof what, "%s, rank %d can't read number %d", y->schedule, victim, read);
    run_ranks(what, &w, &c, live_until_it_fails, &p);
    grid shape = config_grid(&c, rank_count(&w));
    snprintf(name, sizeof name, "rank %d (127.0.0.1%s): ", victim, grid_role(&shape, victim, role));
    for (int k = 0; k < rank_count(&w); k++) {
        const finding *f = &p.all[k];
        bool said = strstr(f->text, "text.bin: read of") && (k == victim || strncmp(f->text, name, strlen(name)) == 0);
        if (f->code != ERR_IO || !said || f->step != p.all[0].step || f->step >= STEPS)
            fail_msg("%s: rank %d ended with %d after step %d: %s", what, k, f->code, (int)f->step, f->text);
        if (strcmp(f->hash, hashes[f->step].hash) != 0)
            fail_msg("%s: rank %d has hash %s after step %d", what, k, f->hash, (int)f->step);
    }
    if ((p.all[0].step > 0) != (read > 20)) fail_msg("%s: all ended after step %d", what, (int)p.all[0].step);
    munmap(p.all, MOST * sizeof(finding));
}

// The hash of one rank after each step.
static void hashes_of_one(const char *dir, finding hashes[STEPS + 1]) {
    config c;
    session x;
    rank_config(&c, dir, gpt_run, "");
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    for (int i = 0; i <= STEPS; i++) {
        if (i) OK(take_step(&x, &hashes[i]));
        OK(take_hashes(&x, &hashes[i]));
    }
    session_close(&x);
}

// Of 16 samples each rank of one pipeline reads all, each of two a half: reads come in the middle of a step, and of the
// first one.
static void a_rank_without_data_is_everybodys_news(void **state) {
    (void)state;
    static const layout layouts[] = {{"1f1b", 3, 1, 0, NULL, 0, {0}},
                                     {"zb-v", 2, 2, 0, "chunks = 2", 0, {0}},
                                     {"zb-h1", 2, 2, 3, NULL, 0, {0}},
                                     {"interleaved", 2, 1, 0, "chunks = 2", 0, {0}}};
    char *dir = rank_dir();
    finding hashes[STEPS + 1] = {0};
    hashes_of_one(dir, hashes);
    for (int i = 0; i < COUNT(layouts); i++)
        for (int victim = 0; victim < layouts[i].pipeline * layouts[i].data; victim += i % 2 + 1) {
            until_it_fails(dir, &layouts[i], victim, 8, hashes);
            until_it_fails(dir, &layouts[i], victim, 37, hashes);
        }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_with_dropout_and_a_tied_head),
        cmocka_unit_test(every_schedule_at_every_depth),
        cmocka_unit_test(ranks_that_share_a_model_of_one_stage),
        cmocka_unit_test(a_gpt_in_bf16),
        cmocka_unit_test(a_gpt_in_fp16_that_overflows),
        cmocka_unit_test(a_llama_whose_head_is_not_tied),
        cmocka_unit_test(a_perceptron_in_halves),
        cmocka_unit_test(a_rank_without_data_is_everybodys_news),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
