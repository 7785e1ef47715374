// test/test_t5.c: T5 of both versions, read from directories that save_pretrained wrote, against what transformers
// computes with it (test/golden/t5): what the encoder gives, the first gradients, twenty AdamW steps. Which spans are
// left out comes from our own source and must be the same. Lengths of spans as T5's code has them, and names of others.
#include "test/support/foreign.h"
#include "test/support/learned.h"

#include "model/families.h"
#include "model/t5/t5.h"
#include "model/weights.h"

#define FOLDER "test/golden/t5"

static const char rest[] =
    "[run]\nseed = 11\n[data]\ntrain = " FOLDER "/tokens.bin\nformat = raw16\nval =\nshuffle = no\n"
    "[batch]\nglobal = 4\nmicro = 2\nlanes = 2\n[optimizer]\nlr = 1e-3\nbeta1 = 0.9\n"
    "beta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\ngrad_clip = 1\n[schedule]\n"
    "type = constant\nwarmup = -1\n[sample]\ntokens = 0\n";

static void open_version(session *x, config *c, const char *dir, const char *version, const char *more) {
    char path[PATH_MAX], text[8192];
    size_t n;
    snprintf(path, sizeof path, FOLDER "/%s", version);
    char *section = inspected(path), *ids;
    snprintf(path, sizeof path, FOLDER "/%s/more.ini", version);
    OK(io_read_file(path, 4096, &ids, &n));
    snprintf(text, sizeof text, "%s%s", rest, section);
    snprintf(path, sizeof path, "%s%s", ids, more);
    free(section), free(ids);
    load_config(c, dir, text, path);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
    OK(session_init(x));
    OK(session_feed(x, 20));
}

// Of all samples of the first step, in one micro-batch.
static void encoder_agrees(const char *version, const char *dir, const st_file *f) {
    session x;
    config c;
    int64_t n;
    open_version(&x, &c, dir, version, "[batch]\nmicro = 4\nlanes = 1\n");
    OK(step_gradient(&x.runner, x.data, 1));
    OK(stream_wait(x.s));
    const t5_options *o = x.net->options;
    double *want = golden(f, "encoder", &n), largest = 0;
    const tensor *last = flow_x(&x.runner.flow, (int)o->layers + 1, 0);
    int64_t C = o->embed, Te = o->context, T = Te + o->decoder_context;
    assert_int_equal(n, 4 * Te * C), assert_int_equal(tensor_count(last), 4 * T * C);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        double found = (double)((const float *)last->data)[i / (Te * C) * T * C + i % (Te * C)];
        if (!(fabs(found - want[i]) <= 1e-5 * largest))
            fail_msg("%s: element %" PRId64 " of the encoder is %.7f, expected %.7f", version, i, found, want[i]);
    }
    free(want);
    session_close(&x);
}

static void agrees(const char *version) {
    session x;
    config c;
    st_file f;
    char *dir = make_dir(), path[PATH_MAX];
    snprintf(path, sizeof path, FOLDER "/%s/golden.safetensors", version);
    OK(st_open(&f, path));
    encoder_agrees(version, dir, &f);
    open_version(&x, &c, dir, version, "");
    gradients_agree(&x, &f, version);
    steps_agree(&x, &f, version);
    session_close(&x);
    st_close(&f);
    drop_dir(dir);
}

static void version_1_0_as_transformers_learns_it(void **state) { (void)state, agrees("v1.0"); }
static void version_1_1_as_transformers_learns_it(void **state) { (void)state, agrees("v1.1"); }

// --- samples ---------------------------------------------------------------------------------------------------------

typedef struct said {
    int32_t token[32];
    int n;
} said;
static bool take(void *ctx, int32_t token) {
    said *x = ctx;
    x->token[x->n++] = token;
    return token != 1;
}

// Of a prompt that is shorter than the encoder's room, token by token; and what a second text says changes nothing.
static void expect_said(const char *version) {
    session x;
    config c;
    st_file f;
    int64_t n;
    char *dir = make_dir(), path[PATH_MAX];
    snprintf(path, sizeof path, FOLDER "/%s/golden.safetensors", version);
    OK(st_open(&f, path));
    double *want = golden(&f, "said", &n);
    open_version(&x, &c, dir, version, "[sample]\ntokens = 12\nbatch = 2\n");
    uint16_t tokens[9];
    int32_t ids[9], other[60];
    FILE *in = fopen(FOLDER "/tokens.bin", "rb");
    assert_true(in && fread(tokens, sizeof *tokens, 9, in) == 9 && fclose(in) == 0);
    for (int i = 0; i < 9; i++) ids[i] = tokens[i];
    for (int i = 0; i < 60; i++) other[i] = 2 + i;  // more than there is room for
    said found[2] = {{.n = 0}, {.n = 0}};
    predict_text text[2] = {{.prompt = "", .ids = ids, .count = 9, .put = take, .ctx = &found[0]},
                            {.prompt = "", .ids = other, .count = 60, .put = take, .ctx = &found[1]}};
    OK(evaluator_predict(&x.evaluator, &(predict_options){.tokens = 12}, text, 2));
    for (int i = 0; i < n || i < found[0].n; i++)
        if (i >= n || i >= found[0].n || found[0].token[i] != (int32_t)want[i])
            fail_msg("%s: token %d of %d is %d, expected %g of %d", version, i, found[0].n, found[0].token[i], want[i],
                     (int)n);
    assert_int_equal(predict_most(x.net, 100), 18);
    free(want);
    session_close(&x);
    st_close(&f);
    drop_dir(dir);
}
static void samples_are_what_transformers_generates(void **state) {
    (void)state;
    expect_said("v1.0");
    expect_said("v1.1");
}

// --- spans -----------------------------------------------------------------------------------------------------------

// Of random_spans_helper in T5's code, and of other lengths.
static void windows_are_those_of_t5s_code(void **state) {
    (void)state;
    static const struct {
        int64_t context;
        double noise, span;
        t5_spans want;
    } rows[] = {{512, 0.15, 3, {568, 85, 28, 512, 114}},
                {128, 0.15, 3, {141, 21, 7, 128, 29}},
                {1024, 0.15, 3, {1137, 171, 57, 1024, 229}},
                {256, 0.5, 2, {340, 170, 85, 256, 256}},
                {4, 0.15, 3, {3, 1, 1, 4, 3}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        t5_spans s = t5_spans_for(rows[i].context, rows[i].noise, rows[i].span);
        if (memcmp(&s, &rows[i].want, sizeof s) != 0)
            fail_msg("%" PRId64 " tokens: %" PRId64 " of %" PRId64 " in %" PRId64 " spans, %" PRId64 " and %" PRId64,
                     rows[i].context, s.noise, s.window, s.spans, s.inputs, s.targets);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_0_as_transformers_learns_it),
        cmocka_unit_test(version_1_1_as_transformers_learns_it),
        cmocka_unit_test(samples_are_what_transformers_generates),
        cmocka_unit_test(windows_are_those_of_t5s_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
