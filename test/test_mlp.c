// test/test_mlp.c: the perceptron as a run, from the inside. Its losses are PyTorch's (test/golden/make_mlp.py), and
// whatever the ranks, the stage and the precision, it holds and sends what its plan says, to the byte, and comes to the
// same bits.
#include "test/support/idx.h"
#include "test/support/ranks.h"

#include "trainer/evaluate.h"
#include "trainer/plan.h"
#include "trainer/restore.h"

#include <inttypes.h>
#include <math.h>

// --- PyTorch ---------------------------------------------------------------------------------------------------------

enum { GOLDEN_STEPS = 5 };

static const char golden_run[] =
    "[model]\ntype = mlp\ninputs = 20\nhidden = 17 9\nclasses = 6\ninit_from = test/golden/mlp-weights.safetensors\n"
    "[data]\ntrain = test/golden/mlp-images.idx test/golden/mlp-labels.idx\nval = test/golden/mlp-images.idx test/golden/mlp-labels.idx\nshuffle = no\n"
    "[batch]\nglobal = 12\nmicro = 12\nlanes = 1\n"
    "[optimizer]\nlr = 0.01\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\ngrad_clip = 1\n"
    "[schedule]\ntype = constant\nwarmup = -1\n";

// The numbers on the line of mlp.txt that begins with "NAME WHAT".
static void golden_line(const char *name, const char *what, double *out, int count) {
    char line[256], begins[32];
    FILE *f = fopen("test/golden/mlp.txt", "r");
    assert_non_null(f);
    size_t n = (size_t)snprintf(begins, sizeof begins, "%s %s ", name, what);
    while (fgets(line, sizeof line, f)) {
        char *at = line + n;
        if (strncmp(line, begins, n) != 0) continue;
        for (int i = 0; i < count; i++) {
            char *end;
            out[i] = strtod(at, &end);
            assert_true(end > at);
            at = end;
        }
        fclose(f);
        return;
    }
    fail_msg("test/golden/mlp.txt has no line \"%s\"", begins);
}

static void is_near(const char *name, const char *what, int step, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-5 * wanted))
        fail_msg("%s, %s %d: %.9f, PyTorch %.9f", name, what, step, found, wanted);
}

static void five_steps_are_those_of_pytorch(void **state) {
    static const char *const names[] = {"relu", "gelu"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char *dir = make_dir(), more[64];
        double losses[GOLDEN_STEPS] = {0}, after[2] = {0};
        session x;
        config c;
        step_result s;
        evaluation e = {0};
        snprintf(more, sizeof more, "[model]\nactivation = %s\n", names[k]);
        load_config(&c, dir, golden_run, more);
        golden_line(names[k], "losses", losses, GOLDEN_STEPS);
        golden_line(names[k], "after", after, 2);
        OK(session_open(&x, &c, SESSION_TRAIN, NULL));
        OK(session_init(&x));
        OK(session_feed(&x, GOLDEN_STEPS));
        for (int i = 0; i < GOLDEN_STEPS; i++) {
            OK(session_step(&x, &s));
            is_near(names[k], "loss of step", i + 1, s.loss, losses[i]);
        }
        OK(evaluate(&x.evaluator, x.val, 0, &e));
        is_near(names[k], "loss after step", GOLDEN_STEPS, e.loss, after[0]);
        assert_int_equal(e.samples, GOLDEN_STEPS * 12);
        assert_true(fabs(e.metric[0] - after[1]) < 1e-8);  // of 60 images
        session_close(&x);
        drop_dir(dir);
    }
}

// --- ranks -----------------------------------------------------------------------------------------------------------

enum { IMAGES = 50, SIDE = 5, STEPS = 3, MOST = 4 };

// Odd sizes; a hidden layer of more than one chunk of 16384, so that owners cut it.
static const char small_run[] =
    "[model]\ntype = mlp\ninputs = 25\nhidden = 700 30\nclasses = 7\n[batch]\nglobal = 24\nmicro = 3\nlanes = 4\n[optimizer]\nlr = 3e-3\n"
    "[schedule]\nwarmup = 2\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";

typedef struct finding {
    char hash[17], state_hash[17];
    evaluation eval;
    int64_t memory, planned, sent, planned_sent;
} finding;

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

static err_t measure(session *x, const config *c, finding *f) {
    plan_rank p;
    step_result s;
    int64_t before = 0;
    TRY(session_init(x));
    TRY(session_feed(x, STEPS));
    while (x->progress.step < STEPS) {
        TRY(session_settle(x));
        before = x->ranks->traffic.sent;
        TRY(session_step(x, &s));
        TRY(session_settle(x));
    }
    f->sent = x->ranks->traffic.sent - before;
    TRY(evaluate(&x->evaluator, x->val, 0, &f->eval));
    TRY(session_settle(x));
    TRY(session_fetch(x));
    TRY(ckpt_hash(&x->state.ckpt, f->hash));
    TRY(ckpt_state_hash(&x->state.ckpt, &x->progress, f->state_hash));
    TRY(plan_one(c, x->ranks->rank, x->ranks->world, x->ranks->place, &p));
    f->memory = (int64_t)(state_bytes(&x->state) + x->runner.memory.bytes + x->runner.staging.bytes + x->ring_bytes);
    f->planned = (int64_t)plan_bytes(&p);
    f->planned_sent = p.sent;
    return ERR_OK;
}

static err_t live(const config *c, const launch *at, void *ctx) {
    session x;
    err_t rc = session_open(&x, c, SESSION_TRAIN, at);
    if (rc == ERR_OK) rc = measure(&x, c, (finding *)ctx + at->rank);
    session_abort(&x, rc);
    session_close(&x);
    return rc;
}

static void compare(const char *what, const finding *f, int rank, const finding *one) {
    if (strlen(f->hash) != 16 || strcmp(f->hash, one->hash) != 0 || strcmp(f->state_hash, one->state_hash) != 0)
        fail_msg("%s, rank %d: hash %s state %s, expected %s and %s", what, rank, f->hash, f->state_hash, one->hash,
                 one->state_hash);
    if (f->eval.loss != one->eval.loss || f->eval.metric[0] != one->eval.metric[0] || f->eval.samples != 13)
        fail_msg("%s, rank %d: evaluation %.17g and %.17g of %d samples, expected %.17g and %.17g", what, rank,
                 f->eval.loss, f->eval.metric[0], (int)f->eval.samples, one->eval.loss, one->eval.metric[0]);
    if (f->memory != f->planned)
        fail_msg("%s: rank %d holds %" PRId64 " bytes, planned %" PRId64, what, rank, f->memory, f->planned);
    if (f->sent != f->planned_sent)
        fail_msg("%s: rank %d sent %" PRId64 " bytes, planned %" PRId64, what, rank, f->sent, f->planned_sent);
}

static void try_world(const char *dir, const char *kind, int ranks, int zero, bool offload, finding *one) {
    char more[512], what[256];
    finding *all = share_memory(MOST * sizeof *all);
    config c;
    rank_world w = {.nodes = 1, .ranks = {ranks}};
    snprintf(more, sizeof more,
             "%s\n[data]\ntrain = %s/images %s/labels\nval =\nholdout = 13\n[parallel]\nzero = %d\noffload = %s\n",
             kind, dir, dir, zero, offload ? "yes" : "no");
    snprintf(what, sizeof what, "%d ranks, zero %d, offload %d", ranks, zero, offload);
    rank_config(&c, dir, small_run, more);
    run_ranks(what, &w, &c, live, all);
    if (!one->hash[0]) *one = all[0];
    for (int k = 0; k < ranks; k++) compare(what, &all[k], k, one);
    munmap(all, MOST * sizeof *all);
}

static void any_world_holds_what_is_planned_and_has_the_same_bits(void **state) {
    static const char *const kinds[] = {"[model]\nactivation = gelu",
                                        "[precision]\ncompute = bf16\nrounding = stochastic"};
    (void)state;
    char *dir = rank_dir();
    write_images(dir);
    for (int k = 0; k < 2; k++) {
        finding one = {.hash = ""};
        for (int ranks = 1; ranks <= MOST; ranks++)
            for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
                for (int offload = 0; offload <= (ranks == 3 || ranks == 1); offload++)
                    try_world(dir, kinds[k], ranks, zero, offload, &one);
        assert_true(one.eval.loss > 0 && isfinite(one.eval.loss));
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_steps_are_those_of_pytorch),
        cmocka_unit_test(any_world_holds_what_is_planned_and_has_the_same_bits),
    };
    return cmocka_run_group_tests_name("mlp", tests, NULL, NULL);
}
