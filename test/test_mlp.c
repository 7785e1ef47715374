// test/test_mlp.c: the perceptron as a run, from the inside. Its losses are PyTorch's (test/golden/make_mlp.py), and
// whatever the ranks, the stage and the precision, it holds and sends what its plan says, to the byte, and comes to the
// same bits.
#include "test/support/classifiers.h"

// --- PyTorch ---------------------------------------------------------------------------------------------------------

enum { GOLDEN_STEPS = 5 };

static const char golden[] = "test/golden/mlp.txt";
static const char golden_run[] =
    "[model]\ntype = mlp\ninputs = 20\nhidden = 17 9\nclasses = 6\ninit_from = test/golden/mlp-weights.safetensors\n"
    "[data]\ntrain = test/golden/mlp-images.idx test/golden/mlp-labels.idx\nval = test/golden/mlp-images.idx test/golden/mlp-labels.idx\nshuffle = no\n"
    "[batch]\nglobal = 12\nmicro = 12\nlanes = 1\n"
    "[optimizer]\nlr = 0.01\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\ngrad_clip = 1\n"
    "[schedule]\ntype = constant\nwarmup = -1\n";

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
        golden_line(golden, names[k], "losses", losses, GOLDEN_STEPS);
        golden_line(golden, names[k], "after", after, 2);
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

enum { IMAGES = 50, SIDE = 5, MOST = 4 };

// Odd sizes; a hidden layer of more than one chunk of 16384, so that owners cut it.
static const char small_run[] =
    "[model]\ntype = mlp\ninputs = 25\nhidden = 700 30\nclasses = 7\n[batch]\nglobal = 24\nmicro = 3\nlanes = 4\n[optimizer]\nlr = 3e-3\n"
    "[schedule]\nwarmup = 2\n[device]\nthreads = 1\n[reduce]\nbucket_mb = 0.02\n[cluster]\ntimeout = 20\n";

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
                for (int offload = 0; offload <= (ranks == 3 || ranks == 1); offload++) {
                    char layout[64];
                    snprintf(layout, sizeof layout, "zero = %d\noffload = %s", zero, offload ? "yes" : "no");
                    try_world(dir, small_run, kinds[k], ranks, layout, &one);
                }
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
