// test/test_recompute.c: what backward computes again instead of keeping it changes memory, by so many bytes, and
// nothing else. (Ranks: test_ranks.c; GPUs: test_device.c.) A plan for forward passes alone keeps nothing, and says the
// same of the same weights.
#include "test/support/run.h"

#include "trainer/session/evaluate.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

enum { LAYERS = 3, HEADS = 3, EMBED = 36, CONTEXT = 24, VOCAB = 128, MICRO = 2, STEPS = 3 };

static const char small_model[] = SMALL_GPT(3, 3, 36, 24, 128)
    SMALL_BATCH(8, 2, 4) "[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[sample]\ntokens = 12\nprompt = 7 bottles\n";

static const char *const modes[] = {"none", "selective", "block"};
static const char *const types[] = {"fp32", "bf16", "fp16"};

// --- the same bits ---------------------------------------------------------------------------------------------------

typedef struct course {
    double loss[STEPS], norm[STEPS], eval[STEPS];
    char text[STEPS][64], hash[17], state_hash[17];
} course;

// Steps with an evaluation and a sample after each: both run forward over the same memory, with other T and B.
static course train(const char *dir, const char *more) {
    config c;
    session x;
    course k = {0};
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    for (int i = 0; i < STEPS; i++) {
        step_result s;
        int64_t windows;
        char *text;
        OK(session_step(&x, &s));
        k.loss[i] = s.loss, k.norm[i] = s.grad_norm;
        OK(eval_loss(&x, 3, &k.eval[i], &windows));
        OK(session_sample(&x, c.sample.prompt, &text));
        snprintf(k.text[i], sizeof k.text[i], "%s", text);
        free(text);
    }
    OK(session_fetch(&x));
    OK(ckpt_hash(&x.state.ckpt, k.hash));
    OK(ckpt_state_hash(&x.state.ckpt, &x.progress, k.state_hash));
    session_close(&x);
    return k;
}

static void expect_same(const char *what, const course *a, const course *b) {
    for (int i = 0; i < STEPS; i++) {
        if (a->loss[i] != b->loss[i])
            fail_msg("%s: step %d: loss %.17g, expected %.17g", what, i + 1, b->loss[i], a->loss[i]);
        if (a->norm[i] != b->norm[i])
            fail_msg("%s: step %d: norm %.17g, expected %.17g", what, i + 1, b->norm[i], a->norm[i]);
        if (a->eval[i] != b->eval[i])
            fail_msg("%s: step %d: evaluation %.17g, expected %.17g", what, i + 1, b->eval[i], a->eval[i]);
        if (strcmp(a->text[i], b->text[i]))
            fail_msg("%s: step %d: sample `%s`, expected `%s`", what, i + 1, b->text[i], a->text[i]);
    }
    if (strcmp(a->hash, b->hash) || strcmp(a->state_hash, b->state_hash))
        fail_msg("%s: hashes %s %s, expected %s %s", what, b->hash, b->state_hash, a->hash, a->state_hash);
}

// Twelve kinds of run: storage, dropout, and one or two micro-batches in a lane.
static void every_mode_gives_the_same_bits(void **state) {
    (void)state;
    char *dir = data_dir(), more[256], what[128];
    for (int kind = 0; kind < 12; kind++) {
        const char *type = types[kind / 4], *dropout = kind % 2 ? "0.1" : "0";
        course kept = {0};
        for (int mode = 0; mode < 3; mode++) {
            snprintf(what, sizeof what, "%s, dropout %s, %d micro-batches in a lane, recompute %s", type, dropout,
                     kind & 2 ? 2 : 1, modes[mode]);
            snprintf(
                more, sizeof more,
                "[precision]\ncompute = %s\n[model]\ndropout = %s\n[batch]\nlanes = %d\n[parallel]\nrecompute = %s\n",
                type, dropout, kind & 2 ? 2 : 4, modes[mode]);
            course k = train(dir, more);
            if (mode == 0) kept = k;
            expect_same(what, &kept, &k);
        }
    }
    drop_dir(dir);
}

// One layer has nothing to share, and none but the last.
static void one_layer_is_no_exception(void **state) {
    (void)state;
    char *dir = data_dir(), more[128];
    course kept = {0};
    for (int mode = 0; mode < 3; mode++) {
        snprintf(more, sizeof more, "[model]\nlayers = 1\ndropout = 0.1\n[parallel]\nrecompute = %s\n", modes[mode]);
        course k = train(dir, more);
        if (mode == 0) kept = k;
        expect_same(modes[mode], &kept, &k);
    }
    drop_dir(dir);
}

// Steps of a run up to `last`, from its checkpoint where it has one, and another checkpoint.
static void go_on(const char *dir, const char *mode, int64_t last, char state_hash[17]) {
    config c;
    session x;
    bool found;
    step_result s;
    monitor m = {0};
    char more[128];
    snprintf(more, sizeof more, "[run]\nsteps = 4\n[model]\ndropout = 0.1\n[parallel]\nrecompute = %s\n", mode);
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_resume(&x, &found, &m));
    if (!found) OK(session_init(&x));
    OK(session_feed(&x, c.run.steps));
    while (x.progress.step < last) OK(session_step(&x, &s));
    OK(session_fetch(&x));
    OK(ckpt_save(x.dir, &x.state.ckpt, &x.progress, 2, NULL));
    OK(ckpt_state_hash(&x.state.ckpt, &x.progress, state_hash));
    session_close(&x);
}

static void a_run_goes_on_with_another_mode(void **state) {
    (void)state;
    char *whole = data_dir(), *parts = data_dir(), a[17], b[17];
    go_on(whole, "none", 4, a);
    go_on(parts, "block", 1, b);
    go_on(parts, "none", 2, b);
    go_on(parts, "selective", 4, b);
    assert_string_equal(a, b);
    drop_dir(whole);
    drop_dir(parts);
}

// --- memory ----------------------------------------------------------------------------------------------------------

static size_t place(int64_t elements, size_t bytes) {
    return ((size_t)elements * bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

enum { N = MICRO * CONTEXT, C = EMBED };

// Of one layer, with elements of e bytes: x; ln_1, ln_2, fc; qkv, att, lse, mid, fc_pre, and means and deviations.
static size_t input_bytes(size_t e) { return place(N * C, e); }
static size_t cheap_bytes(size_t e) { return 2 * place(N * C, e) + place(4 * N * C, e); }
static size_t costly_bytes(size_t e) {
    return place(3 * N * C, e) + 2 * place(N * C, e) + place(MICRO * HEADS * CONTEXT, 4) + place(4 * N * C, e) +
           4 * place(N, 4);
}

// Beside what layers keep, a run that trains has the gradient between blocks, and the head's norm with what its
// backward reads. What a layer's backward needs finds room among what it has read.
static size_t backward_bytes(size_t e) { return 2 * place(N * C, e) + 2 * place(N, 4); }

// Without backward a layer holds most at once while it forms fc: mid, ln_2, fc_pre, fc.
static size_t forward_bytes(size_t e) { return 2 * place(N * C, e) + 2 * place(4 * N * C, e); }

// For each text that may grow: keys and values of all layers, its scores. A run has one, where nothing is trained there
// are 8.
static size_t texts_bytes(int64_t texts, size_t e) {
    return LAYERS * place(texts * CONTEXT * 2 * C, e) + place(texts * VOCAB, 4);
}

// What a run of the kind holds for its passes, as it is planned and as it is.
static size_t activations(const char *dir, const char *type, const char *mode, session_kind kind) {
    config c;
    session x;
    plan_rank p;
    comm_place here = {.host = "here"};
    char more[128];
    snprintf(more, sizeof more, "[precision]\ncompute = %s\n[parallel]\nrecompute = %s\n", type, mode);
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, kind, NULL));
    size_t bytes = x.runner.memory.bytes;
    session_close(&x);
    OK(plan_one(&c, 0, 1, &here, &p));
    if (kind == SESSION_TRAIN) assert_int_equal(p.activations, bytes);
    return bytes;
}

static void expect_bytes(const char *what, const char *type, size_t found, size_t expected) {
    if (found != expected) fail_msg("%s, %s: %zu bytes of activations, expected %zu", what, type, found, expected);
}

static void memory_shrinks_by_what_is_not_kept(void **state) {
    (void)state;
    char *dir = data_dir();
    for (int t = 0; t < 3; t++) {
        size_t e = t == 0 ? 4 : 2, none = activations(dir, types[t], "none", SESSION_TRAIN);
        expect_bytes("selective", types[t], activations(dir, types[t], "selective", SESSION_TRAIN),
                     none - (LAYERS - 1) * cheap_bytes(e));
        expect_bytes("block", types[t], activations(dir, types[t], "block", SESSION_TRAIN),
                     none - (LAYERS - 1) * (cheap_bytes(e) + costly_bytes(e)));
        size_t look = none - (LAYERS - 1) * input_bytes(e) - LAYERS * (cheap_bytes(e) + costly_bytes(e)) -
                      backward_bytes(e) + forward_bytes(e) + texts_bytes(8, e) - texts_bytes(1, e);
        for (int mode = 0; mode < 3; mode++)
            expect_bytes("forward only", types[t], activations(dir, types[t], modes[mode], SESSION_INFERENCE), look);
    }
    drop_dir(dir);
}

// --- forward passes alone --------------------------------------------------------------------------------------------

static void look_at(const char *dir, const char *type, session_kind kind, double *loss, char text[64]) {
    config c;
    session x;
    int64_t windows;
    char more[64], *written;
    snprintf(more, sizeof more, "[precision]\ncompute = %s\n", type);
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, kind, NULL));
    OK(session_init(&x));
    OK(eval_loss(&x, 0, loss, &windows));
    OK(session_sample(&x, c.sample.prompt, &written));
    snprintf(text, 64, "%s", written);
    free(written);
    session_close(&x);
}

// The layers' inputs lie on one another there.
static void without_backward_the_same_is_said(void **state) {
    (void)state;
    char *dir = data_dir(), text[2][64];
    double loss[2];
    for (int t = 0; t < 3; t++) {
        look_at(dir, types[t], SESSION_TRAIN, &loss[0], text[0]);
        look_at(dir, types[t], SESSION_INFERENCE, &loss[1], text[1]);
        if (loss[0] != loss[1])
            fail_msg("%s: evaluation %.17g, where nothing is kept %.17g", types[t], loss[0], loss[1]);
        assert_string_equal(text[0], text[1]);
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_gives_the_same_bits),    cmocka_unit_test(one_layer_is_no_exception),
        cmocka_unit_test(a_run_goes_on_with_another_mode),   cmocka_unit_test(memory_shrinks_by_what_is_not_kept),
        cmocka_unit_test(without_backward_the_same_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
