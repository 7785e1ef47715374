// test/test_optimizer.c: what every optimizer promises, and gradient descent against PyTorch (test/golden/make_sgd.py):
// what is kept, under which names, whatever the device's width, with a stop in the middle or without one. (AdamW
// against PyTorch: test_trainer.c; ranks: test_ranks.c.)
#include "test/support/golden.h"
#include "trainer/step/optimizer.h"

static const char small_model[] =
    "[data]\nformat = raw16\n[model]\nlayers = 2\nheads = 3\nembed = 36\ncontext = 24\nvocab = 128\n"
    "[batch]\nglobal = 12\nmicro = 3\nlanes = 4\n[run]\nsteps = 6\n[schedule]\nwarmup = 2\n[device]\nthreads = 1\n";

// What an optimizer is asked for, and what it then keeps.
static const struct {
    const char *settings;
    int type, arrays;
    const char *names[2];
} kinds[] = {
    {"[optimizer]\ntype = adamw\n", OPTIMIZER_ADAMW, 2, {"m", "v"}},
    {"[optimizer]\ntype = adamw\nmomentum = 0.9\n", OPTIMIZER_ADAMW, 2, {"m", "v"}},  // not its own
    {"[optimizer]\ntype = sgd\nlr = 0.1\n", OPTIMIZER_SGD, 0, {NULL}},
    {"[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\n", OPTIMIZER_SGD, 1, {"momentum"}},
    {"[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.5\nnesterov = yes\n[precision]\ncompute = bf16\nrounding = stochastic\n",
     OPTIMIZER_SGD,
     1,
     {"momentum"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, DESCENT = 2, MOMENTUM = 3, STEPS = 6 };

static void begin(session *x, config *c, const char *dir, const char *more) {
    load_config(c, dir, small_model, more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
}

// --- against PyTorch -------------------------------------------------------------------------------------------------

static void like_pytorch(const char *kind, const char *settings) {
    char *dir = make_dir(), more[256];
    config c;
    session x;
    snprintf(more, sizeof more, "[optimizer]\ntype = sgd\nlr = 0.05\n%s", settings);
    golden_open(&x, &c, dir, more);
    golden_losses_of(&x, "test/golden/sgd-golden.safetensors", kind);
    session_close(&x);
    drop_dir(dir);
}

static void descent_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("plain/", "");
}
static void momentum_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("momentum/", "momentum = 0.9\n");
}
static void nesterov_is_like_pytorch(void **state) {
    (void)state;
    like_pytorch("nesterov/", "momentum = 0.9\nnesterov = yes\n");
}

// --- what is kept ----------------------------------------------------------------------------------------------------

// Names become names in files: plain, and each once.
static void every_optimizer_names_what_it_keeps(void **state) {
    (void)state;
    char *dir = data_dir();
    for (int k = 0; k < KINDS; k++) {
        config c;
        session x;
        begin(&x, &c, dir, kinds[k].settings);
        assert_int_equal(c.optimizer.type, kinds[k].type);
        assert_int_equal(x.state.arrays, kinds[k].arrays);
        assert_int_equal(x.state.ckpt.groups, 1 + kinds[k].arrays);
        for (int i = 0; i < kinds[k].arrays; i++) {
            const char *name = x.state.array[i].name;
            assert_string_equal(name, kinds[k].names[i]);
            assert_true(*name && strlen(name) < CKPT_GROUP_NAME && !strchr(name, '/'));
            assert_string_equal(x.state.ckpt.group[1 + i].name, name);
            assert_int_equal(tensor_count(&x.state.array[i].t), tensor_count(&x.state.masters.t));
        }
        session_close(&x);
    }
    drop_dir(dir);
}

static void expect_files(const session *x, int kind) {
    char path[1200], name[CKPT_NAME];
    snprintf(path, sizeof path, "%s/ckpt/step-%08d/optimizer.safetensors", x->dir, (int)x->progress.step);
    st_file f;
    if (!kinds[kind].arrays) {
        assert_int_equal(access(path, F_OK), -1);
        return;
    }
    OK(st_open(&f, path));
    assert_int_equal(f.count, kinds[kind].arrays * x->state.ckpt.params);
    for (int i = 0; i < kinds[kind].arrays; i++) {
        snprintf(name, sizeof name, "%s/wte.weight", kinds[kind].names[i]);
        assert_non_null(st_find(&f, name));
    }
    st_close(&f);
}

// --- the same bits ---------------------------------------------------------------------------------------------------

typedef struct ending {
    char hash[17], state_hash[17];
    double loss;
} ending;

// Goes on from what `dir` has to step `last`, saves, and checks what was saved.
static ending run_to(const char *dir, int kind, const char *more, int64_t last) {
    char text[512], path[1200], saved[2][17];
    config c;
    session x;
    bool found;
    step_result s = {0};
    ending e;
    monitor m = {0};
    snprintf(text, sizeof text, "%s%s", kinds[kind].settings, more);
    begin(&x, &c, dir, text);
    OK(session_resume(&x, &found, &m));
    if (!found) OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    while (x.progress.step < last) OK(session_step(&x, &s));
    OK(session_fetch(&x));
    OK(ckpt_save(x.dir, &x.state.ckpt, &x.progress, 1, NULL));
    OK(ckpt_hash(&x.state.ckpt, e.hash));
    OK(ckpt_state_hash(&x.state.ckpt, &x.progress, e.state_hash));
    e.loss = s.loss;
    expect_files(&x, kind);
    snprintf(path, sizeof path, "%s/ckpt/step-%08d", x.dir, (int)last);
    OK(ckpt_hash_dir(path, saved[0], saved[1]));
    assert_string_equal(saved[0], e.hash);
    assert_string_equal(saved[1], e.state_hash);
    session_close(&x);
    return e;
}

static void expect_same(int kind, const char *how, ending a, ending b) {
    if (strcmp(a.hash, b.hash) != 0 || strcmp(a.state_hash, b.state_hash) != 0 || a.loss != b.loss)
        fail_msg("%s, %s: hash %s, state %s, loss %.17g; expected %s, %s, %.17g", kinds[kind].settings, how, b.hash,
                 b.state_hash, b.loss, a.hash, a.state_hash, a.loss);
}

static void stops_widths_and_offload_do_not_matter(void **state) {
    (void)state;
    for (int k = DESCENT; k < KINDS; k++) {
        char *whole = data_dir(), *parts = data_dir(), *other = data_dir();
        ending one = run_to(whole, k, "", STEPS);
        run_to(parts, k, "", 1);
        run_to(parts, k, "[parallel]\noffload = yes\n", 4);
        expect_same(k, "stopped twice", one, run_to(parts, k, "", STEPS));
        expect_same(k, "portable, three threads", one,
                    run_to(other, k, "[device]\nsimd = portable\nthreads = 3\n", STEPS));
        drop_dir(whole), drop_dir(parts), drop_dir(other);
    }
}

static void every_setting_changes_the_bits(void **state) {
    (void)state;
    static const char *const more[] = {"",
                                       "lr = 0.1\n",
                                       "weight_decay = 0\n",
                                       "momentum = 0.9\n",
                                       "momentum = 0.8\n",
                                       "momentum = 0.9\nnesterov = yes\n"};
    enum { SETTINGS = sizeof more / sizeof *more };
    char *dir = data_dir(), hash[SETTINGS][17], text[128];
    for (int i = 0; i < SETTINGS; i++) {
        config c;
        session x;
        step_result s;
        snprintf(text, sizeof text, "[optimizer]\ntype = sgd\n%s", more[i]);
        begin(&x, &c, dir, text);
        OK(session_init(&x));
        OK(session_feed(&x, STEPS));
        for (int step = 0; step < 2; step++) OK(session_step(&x, &s));
        OK(ckpt_hash(&x.state.ckpt, hash[i]));
        session_close(&x);
        for (int k = 0; k < i; k++)
            if (strcmp(hash[i], hash[k]) == 0) fail_msg("\"%s\" and \"%s\" give the same bits", more[i], more[k]);
    }
    drop_dir(dir);
}

static void refuses(const char *dir, const char *settings, const char *key, const char *value) {
    config c;
    session x;
    bool found;
    monitor m = {0};
    begin(&x, &c, dir, settings);
    assert_int_equal(session_resume(&x, &found, &m), ERR_CONFIG);
    if (!strstr(err_last()->text, key) || !strstr(err_last()->text, value)) fail_msg("%s", err_last()->text);
    session_close(&x);
}

static void another_optimizer_does_not_go_on(void **state) {
    (void)state;
    char *dir = data_dir();
    run_to(dir, MOMENTUM, "", 2);
    refuses(dir, "[optimizer]\ntype = adamw\nlr = 0.1\nmomentum = 0.9\n", "optimizer.type", "sgd");
    refuses(dir, "[optimizer]\ntype = sgd\nlr = 0.1\n", "optimizer.momentum", "0.9");
    refuses(dir, "[optimizer]\ntype = sgd\nlr = 0.1\nmomentum = 0.9\nnesterov = yes\n", "optimizer.nesterov", "yes");
    drop_dir(dir);
}

// Loading for inference reads the weights only, whatever else the checkpoint has.
static void looking_reads_no_optimizer_state(void **state) {
    (void)state;
    char *dir = data_dir(), path[1200];
    config c;
    session x;
    run_to(dir, MOMENTUM, "", 2);
    load_config(&c, dir, small_model, kinds[0].settings);
    OK(session_open(&x, &c, SESSION_INFERENCE, NULL));
    snprintf(path, sizeof path, "%s/ckpt/step-%08d/optimizer.safetensors", x.dir, 2);
    assert_int_equal(unlink(path), 0);
    OK(session_load(&x, NULL));
    assert_int_equal(x.state.arrays, 0);
    assert_int_equal(x.progress.step, 2);
    session_close(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descent_is_like_pytorch),
        cmocka_unit_test(momentum_is_like_pytorch),
        cmocka_unit_test(nesterov_is_like_pytorch),
        cmocka_unit_test(every_optimizer_names_what_it_keeps),
        cmocka_unit_test(stops_widths_and_offload_do_not_matter),
        cmocka_unit_test(every_setting_changes_the_bits),
        cmocka_unit_test(another_optimizer_does_not_go_on),
        cmocka_unit_test(looking_reads_no_optimizer_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
