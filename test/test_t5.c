// test/test_t5.c: T5 of both versions, read from directories that save_pretrained wrote, against what transformers
// computes with it (test/golden/t5): what the encoder gives, the first gradients, twenty AdamW steps. Which spans are
// left out comes from our own source and must be the same. Lengths of spans as T5's code has them, and names of others.
// Twenty steps on texts and what is said of them, too, and what an evaluation says of such a model.
#include "test/support/expect.h"
#include "test/support/foreign.h"
#include "test/support/learned.h"

#include "model/families.h"
#include "model/t5/t5.h"
#include "model/weights.h"
#include "data/text/pack.h"
#include "trainer/replies.h"

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
    int64_t C = o->embed, Te = o->context, T = Te + o->says;
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

// A checkpoint that lacks a key, as one of a build that did not know it, fits if the run has its default: T5's.
static void keys_are_compared_with_defaults_of_t5(void **state) {
    (void)state;
    session x;
    config c;
    int found = 0;
    char *dir = make_dir();
    open_version(&x, &c, dir, "v1.1", "");
    for (int i = 0; i < x.state.ckpt.keys; i++) {
        const ckpt_key *k = &x.state.ckpt.key[i];
        if (strncmp(k->key, "model.", 6) == 0 && !k->usual[0]) fail_msg("%s has no default", k->key);
        found += strcmp(k->key, "model.task") == 0 && strcmp(k->usual, "spans") == 0;
        found += strcmp(k->key, "model.decoder_context") == 0 && strcmp(k->usual, "0") == 0;
    }
    assert_int_equal(found, 2);
    session_close(&x);
    drop_dir(dir);
}

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

// Of a prompt that is shorter than the encoder's room, token by token; and what a second text says changes nothing. Of
// one that is longer so much is read as leaves room for its end.
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
    said found[3] = {{.n = 0}, {.n = 0}, {.n = 0}};
    int room = (int)x.net->reads - 1;
    predict_text text[3] = {{.prompt = "", .ids = ids, .count = 9, .put = take, .ctx = &found[0]},
                            {.prompt = "", .ids = other, .count = 60, .put = take, .ctx = &found[1]},
                            {.prompt = "", .ids = other, .count = room, .put = take, .ctx = &found[2]}};
    OK(evaluator_predict(&x.evaluator, &(predict_options){.tokens = 12}, text, 3));
    assert_true(found[1].n > 0);
    assert_memory_equal(&found[1], &found[2], sizeof found[1]);
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

// --- text to text ----------------------------------------------------------------------------------------------------

enum { SAYS = 12, READS = 40, SAMPLES = 23, STEPS = 120 };

// On test/golden/t5/texts.jsonl, in bytes.
static void open_texts(session *x, config *c, const char *dir, const char *version, const char *more, const char *lr,
                       int64_t steps) {
    char path[PATH_MAX], text[8192], output[PATH_MAX];
    size_t n;
    pack_report r;
    snprintf(output, sizeof output, "%s/texts", dir);
    OK(pack_run(&(pack_options){.input = FOLDER "/texts.jsonl",
                                .output = output,
                                .shard_tokens = 100000,
                                .template = CHAT_TEXT,
                                .context = READS,
                                .says = SAYS,
                                .end = 1},
                &r));
    assert_int_equal(r.documents, SAMPLES);
    assert_true(r.cut > 0);
    snprintf(path, sizeof path, FOLDER "/%s", version);
    char *section = inspected(path), *ids;
    snprintf(path, sizeof path, FOLDER "/%s/more.ini", version);
    OK(io_read_file(path, 4096, &ids, &n));
    snprintf(text, sizeof text, "%s%s", rest, section);
    snprintf(path, sizeof path,
             "[data]\ntrain = %s-train-00000.bin\nformat = auto\nanswers = yes\nval = %s-train-00000.bin\n%s%s", output,
             output, ids, more);
    static const char keys[] = "task = text\ndecoder_context = 12\n";
    char *at = strstr(path, "[model]\n") + strlen("[model]\n");
    memmove(at + strlen(keys), at, strlen(at) + 1);
    memcpy(at, keys, strlen(keys));
    memcpy(strstr(path, "lr = 0.001") + strlen("lr = "), lr, strlen("0.001"));
    free(section), free(ids);
    load_config(c, dir, text, path);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
    OK(session_init(x));
    OK(session_feed(x, steps));
}

static void learns_texts(const char *version, bool gradients) {
    session x;
    config c;
    st_file f;
    char *dir = make_dir(), path[PATH_MAX];
    snprintf(path, sizeof path, FOLDER "/%s/texts.safetensors", version);
    OK(st_open(&f, path));
    open_texts(&x, &c, dir, version, "", "0.001", 20);
    if (gradients) gradients_agree(&x, &f, version);
    steps_agree(&x, &f, version);
    session_close(&x);
    st_close(&f);
    drop_dir(dir);
}

static void texts_as_transformers_learns_them(void **state) {
    (void)state;
    learns_texts("v1.0", true);
    learns_texts("v1.1", false);
}

// What the model says of the sample's prompt: as many tokens as it has room for, or up to the end.
static said says_of(session *x, const int32_t *tokens, int32_t length) {
    said found = {.n = 0};
    predict_text text = {.prompt = "", .ids = tokens, .count = length - 1, .put = take, .ctx = &found};
    OK(evaluator_predict(&x->evaluator, &(predict_options){.tokens = SAYS}, &text, 1));
    return found;
}

static bool is_right(const said *found, const int32_t *targets) {
    for (int t = 0; t < SAYS && targets[t] >= 0; t++)
        if (t >= found->n || found->token[t] != targets[t]) return false;
    return true;
}

// What every sample's answer is, and what the model says of it.
typedef struct all_said {
    int32_t targets[SAMPLES][SAYS];
    said found[SAMPLES];
} all_said;

// How long answer b goes on as what is said of sample a.
static int agrees_for(const all_said *x, int a, int b) {
    int t = 0;
    while (t < SAYS && t < x->found[a].n && x->found[a].token[t] == x->targets[b][t]) t++;
    return t;
}

// Macro F1, by comparing all samples with all others.
static double f1_of(const all_said *x) {
    double sum = 0, answers = 0;
    for (int k = 0; k < SAMPLES; k++) {
        double of = 0, right = 0, said_so = 0;
        bool again = false;
        for (int i = 0; i < k; i++) again |= memcmp(x->targets[i], x->targets[k], sizeof x->targets[k]) == 0;
        if (again) continue;
        for (int i = 0; i < SAMPLES; i++) {
            bool own = memcmp(x->targets[i], x->targets[k], sizeof x->targets[k]) == 0,
                 hit = is_right(&x->found[i], x->targets[i]), others = false;
            int past = agrees_for(x, i, i);
            for (int j = 0; j < SAMPLES; j++)
                others |= memcmp(x->targets[j], x->targets[k], sizeof x->targets[k]) != 0 && agrees_for(x, i, j) > past;
            of += own, right += own && hit;
            said_so += hit ? own : agrees_for(x, i, k) > past && !others;
        }
        sum += 2 * right / (of + said_so), answers++;
    }
    return sum / answers;
}

// All samples are right but one, which begins its own answer and goes on with a token of another one.
static void what_differs_early_is_not_said(session *x, const evaluation *e, const all_said *of) {
    text_answer answers[SAMPLES];
    all_said all = *of;
    double f1;
    bool known;
    for (int i = 0; i < SAMPLES; i++) {
        answers[i] = (text_answer){-1, -1};
        memcpy(all.found[i].token, all.targets[i], sizeof all.targets[i]), all.found[i].n = SAYS;
    }
    x->replies = answers;
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < SAMPLES; j++) {
            const int at = 1 + (i + j) % 3, *own = all.targets[i], *other = all.targets[j];
            if (own[at] < 0 || other[at] < 0 || own[at] == other[at]) continue;
            answers[i] = (text_answer){at, other[at]};
            all.found[i].token[at] = other[at], all.found[i].n = at + 1;
            OK(replies_f1(x, e, &f1, &known));
            if (!(known && fabs(f1 - f1_of(&all)) < 1e-12))
                fail_msg("samples %d and %d: F1 %.9f, expected %.9f", i, j, f1, f1_of(&all));
            answers[i] = (text_answer){-1, -1};
            all.found[i].token[at] = own[at], all.found[i].n = SAYS;
        }
    x->replies = NULL;
}

// After some steps some answers are right and some are wrong.
static void accuracy_is_what_the_model_says(const char *version, const char *more) {
    session x;
    config c;
    step_result s;
    evaluation e;
    all_said all = {0};
    text_answer answers[SAMPLES];
    double right = 0, f1;
    bool known;
    int32_t tokens[READS + SAYS], length;
    char *dir = make_dir();
    open_texts(&x, &c, dir, version, more, "0.010", STEPS);
    for (int i = 0; i < STEPS; i++) OK(session_step(&x, &s));
    OK(session_settle(&x));
    OK(evaluate_texts(&x.evaluator, x.val, 0, answers, &e));
    assert_int_equal(e.samples, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        int32_t *targets = all.targets[i];
        OK(source_look(x.val, i, (void *[]){tokens, &length, targets}));
        said found = all.found[i] = says_of(&x, tokens, length);
        bool hit = is_right(&found, targets);
        if (hit != (answers[i].at < 0)) fail_msg("%s: sample %d: place %d", version, i, answers[i].at);
        for (int t = 0; t < answers[i].at; t++) assert_int_equal(found.token[t], targets[t]);
        if (!hit) assert_int_equal(found.token[answers[i].at], answers[i].token);
        right += hit;
    }
    if (!(right > 3 && right < SAMPLES)) fail_msg("%s: %g right of %d: nothing is tested", version, right, SAMPLES);
    assert_true(fabs(e.metric[0] - right / SAMPLES) < 1e-15);
    assert_int_equal(replies_f1(&x, &e, &f1, &known), ERR_INTERNAL);
    x.replies = answers;
    OK(replies_f1(&x, &e, &f1, &known));
    x.replies = NULL;
    assert_true(known);
    if (!(fabs(f1 - f1_of(&all)) < 1e-12)) fail_msg("%s: F1 %.9f, expected %.9f", version, f1, f1_of(&all));
    what_differs_early_is_not_said(&x, &e, &all);
    session_close(&x);
    drop_dir(dir);
}

static void accuracies_are_what_the_model_says(void **state) {
    (void)state;
    static const char fast[] = "[sample]\ntokens = 12\n";
    accuracy_is_what_the_model_says("v1.0", fast);
    accuracy_is_what_the_model_says("v1.1", fast);
    accuracy_is_what_the_model_says("v1.1", "[sample]\ntokens = 12\n[model]\nhead_chunks = 3\n");
}

// A model whose weights are no numbers says no token, of any sample.
static void what_is_no_number_says_nothing(void **state) {
    (void)state;
    session x;
    config c;
    evaluation e;
    text_answer answers[SAMPLES];
    double f1;
    bool known;
    char *dir = make_dir();
    open_texts(&x, &c, dir, "v1.1", "", "0.010", 1);
    for (int i = 0; i < x.net->params; i++)
        for (int64_t k = 0; k < tensor_count(&x.state.w[i]); k++) ((float *)x.state.w[i].data)[k] = NAN;
    OK(evaluate_texts(&x.evaluator, x.val, 0, answers, &e));
    assert_true(isnan(e.loss) && !signbit(e.loss) && e.metric[0] == 0);
    for (int i = 0; i < SAMPLES; i++) assert_true(answers[i].at == 0 && answers[i].token == -1);
    x.replies = answers;
    OK(replies_f1(&x, &e, &f1, &known));
    assert_true(known && f1 == 0);
    x.replies = NULL;
    session_close(&x);
    drop_dir(dir);
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

static int64_t between(double x, int64_t least, int64_t most) {
    int64_t n = (int64_t)nearbyint(x);  // half to even, as Python's round
    return n < least ? least : n > most ? most : n;
}

// The longest window whose text fits, for any shares and lengths.
static void windows_fit_the_context(void **state) {
    (void)state;
    static const double noises[] = {0, 0.15, 0.25, 0.5, 0.75, 0.9}, spans[] = {1, 2, 2.5, 3, 7, 1024};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            for (int64_t context = 4; context < 80; context++) {
                t5_spans want = {.window = 0}, found = t5_spans_for(context, noises[a], spans[b]);
                for (int64_t w = 2;; w++) {
                    int64_t noise = between((double)w * noises[a], 1, w - 1),
                            n = between((double)noise / spans[b], 1, w - noise);
                    if (w > 2 && w - noise + n + 1 > context) break;
                    want = (t5_spans){w, noise, n, w - noise + n + 1, noise + n + 1};
                }
                if (memcmp(&found, &want, sizeof want) != 0)
                    fail_msg(
                        "context %d, noise %g, span %g: window %d with %d left out in %d spans, expected %d, %d, %d",
                        (int)context, noises[a], spans[b], (int)found.window, (int)found.noise, (int)found.spans,
                        (int)want.window, (int)want.noise, (int)want.spans);
            }
}

// A file must have the tokens of one window, which are more than the encoder reads.
static void a_window_is_the_least(void **state) {
    (void)state;
    char *dir = make_dir(), path[PATH_MAX], says[128];
    for (int64_t context = 16; context <= 128; context *= 2) {
        t5_spans of = t5_spans_for(context, 0.15, 3);
        tensor_spec wanted[] = {
            {.name = "tokens", .type = INT32, .dims = 1, .size = {of.inputs + of.targets, 1, 1}, .limit = 400},
            {.name = "length", .type = INT32, .size = {1, 1, 1}, .limit = of.inputs},
            {.name = "targets", .type = INT32, .dims = 1, .size = {of.targets, 1, 1}, .limit = 400}};
        source_options o = {.files = path,
                            .format = FORMAT_RAW16,
                            .wanted = wanted,
                            .inputs = 3,
                            .spans = of.spans,
                            .left_out = of.noise,
                            .window = of.window,
                            .mask = 399,
                            .end = 1};
        assert_true(of.window > context);
        if (context == 16) {
            source *s;
            write_tokens(dir, "few.bin", 100);
            snprintf(path, sizeof path, "%s/few.bin", dir);
            source_options answers = o, ignores = o;
            answers.answers = true, ignores.ignores = true;
            assert_error(source_open(&s, &answers), ERR_CONFIG, "leave out [data] answers and ignore");
            assert_error(source_open(&s, &ignores), ERR_CONFIG, "leave out [data] answers and ignore");
        }
        for (int64_t n = of.window - 1; n <= 2 * of.window; n += of.window / 2 + 1) {
            source *s;
            uint16_t *tokens = calloc((size_t)n, sizeof *tokens);
            snprintf(path, sizeof path, "%s/few.bin", dir);
            OK(io_write_file(path, tokens, (size_t)n * sizeof *tokens, NULL));
            free(tokens);
            err_t rc = source_open(&s, &o);
            snprintf(says, sizeof says, "%" PRId64 " tokens, expected at least %" PRId64 ": of so many the model reads",
                     n, of.window);
            if (n < of.window && (rc != ERR_DATA || !strstr(err_last()->text, says)))
                fail_msg("%s, expected \"%s\"", rc ? err_last()->text : "opened", says);
            if (n < of.window) continue;
            OK(rc);
            assert_int_equal(source_about(s).samples, n / of.window);
            source_close(s);
        }
    }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_0_as_transformers_learns_it),
        cmocka_unit_test(version_1_1_as_transformers_learns_it),
        cmocka_unit_test(keys_are_compared_with_defaults_of_t5),
        cmocka_unit_test(samples_are_what_transformers_generates),
        cmocka_unit_test(texts_as_transformers_learns_them),
        cmocka_unit_test(accuracies_are_what_the_model_says),
        cmocka_unit_test(what_is_no_number_says_nothing),
        cmocka_unit_test(windows_are_those_of_t5s_code),
        cmocka_unit_test(windows_fit_the_context),
        cmocka_unit_test(a_window_is_the_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
