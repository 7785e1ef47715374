// test/test_bert.c: BERT, read from directories that save_pretrained wrote, against what transformers computes with it
// (test/golden/bert): the last layer's output, the first gradient, ten AdamW steps, for masked tokens, of pairs of
// texts too, and for classes of texts, and twenty for numbers of texts. Which positions are masked, which text is a
// pair's second, and how texts are cut, comes from our own sources and must be the same. What evaluations say of pairs,
// and of numbers; names as older files have them.
//
// LOCKSTEP_TEST_BERT=DIR: the same of DIR/mlm, DIR/pairs, DIR/classify, DIR/regress (test/interop/compare_bert.py).
#include "test/support/foreign.h"
#include "test/support/learned.h"

#include "data/text/pack.h"
#include "model/families.h"
#include "model/foreign.h"
#include "model/weights.h"
#include "trainer/session/correlate.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>

static const char *folder(void) {
    const char *other = getenv("LOCKSTEP_TEST_BERT");
    return other ? other : "test/golden/bert";
}

static const char *words(void) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder());
    return getenv("LOCKSTEP_TEST_BERT") ? path : "test/golden/tokenizer/bert.json";
}

// --- a run of a task -------------------------------------------------------------------------------------------------

static const char rest[] = "[run]\nseed = 11\n[data]\nval =\nshuffle = no\n[batch]\nglobal = 4\nmicro = 2\nlanes = 2\n"
                           "[optimizer]\nlr = 1e-3\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\n"
                           "grad_clip = 1\n[schedule]\ntype = constant\nwarmup = -1\n[sample]\ntokens = 0\n";

static void task_config(config *c, const char *dir, const char *task, const char *more) {
    char path[PATH_MAX], text[8192];
    snprintf(path, sizeof path, "%s/%s", folder(), task);
    char *section = inspected(path);
    bool pairs = strcmp(task, "pairs") == 0, masks = pairs || strcmp(task, "mlm") == 0;
    snprintf(text, sizeof text, "%s%s", rest, section);
    free(section);
    char *ids;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/more.ini", folder(), task);
    OK(io_read_file(path, 4096, &ids, &n));
    if (masks)
        snprintf(path, sizeof path, "%s[data]\ntrain = %s/%s.bin\nformat = raw16\n%s", ids, folder(),
                 pairs ? "pairs" : "tokens", more);
    else snprintf(path, sizeof path, "%s[data]\ntrain = %s/data-train*.bin\n%s", ids, dir, more);
    free(ids);
    load_config(c, dir, text, path);
}

static void pack_samples(const char *dir, bool numbers, int64_t context) {
    char output[PATH_MAX], file[PATH_MAX];
    pack_report r;
    snprintf(file, sizeof file, "%s/%s.jsonl", folder(), numbers ? "numbers" : "samples");
    snprintf(output, sizeof output, "%s/data", dir);
    OK(pack_run(&(pack_options){.input = file,
                                .output = output,
                                .shard_tokens = 1000,
                                .tokenizer = words(),
                                .template = numbers ? CHAT_NUMBERS : CHAT_LABELS,
                                .context = context},
                &r));
}

static void task_open(session *x, config *c, const char *dir, const char *task, const char *more) {
    if (strcmp(task, "mlm") != 0 && strcmp(task, "pairs") != 0) pack_samples(dir, strcmp(task, "regress") == 0, 32);
    task_config(c, dir, task, more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
    OK(session_init(x));
    OK(session_feed(x, 10));
}

// --- comparing -------------------------------------------------------------------------------------------------------

// The last layer's output, of all samples of the first step, in one micro-batch.
static void hidden_agrees(const char *task, const char *dir, const st_file *f) {
    session x;
    config c;
    int64_t n;
    task_open(&x, &c, dir, task, "[batch]\nmicro = 4\nlanes = 1\n");
    OK(step_gradient(&x.runner, x.data, 1));
    OK(stream_wait(x.s));
    double *want = golden(f, "hidden", &n), largest = 0;
    const tensor *last = flow_x(&x.runner.flow, x.net->blocks - 2, 0);
    const float *found = last->data;
    assert_int_equal(tensor_count(last), n);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - want[i]) <= 1e-5 * largest))
            fail_msg("%s: element %" PRId64 " of the last layer is %.7f, expected %.7f", task, i, (double)found[i],
                     want[i]);
    free(want);
    session_close(&x);
}

static void task_agrees(const char *task) {
    session x;
    config c;
    st_file f;
    char *dir = make_dir(), path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", folder(), task);
    OK(st_open(&f, path));
    hidden_agrees(task, dir, &f);
    task_open(&x, &c, dir, task, "");
    gradients_agree(&x, &f, task);
    steps_agree(&x, &f, task);
    session_close(&x);
    st_close(&f);
    drop_dir(dir);
}

static void masked_tokens_as_transformers_learns_them(void **state) { (void)state, task_agrees("mlm"); }
static void pairs_as_transformers_learns_them(void **state) { (void)state, task_agrees("pairs"); }
static void classes_as_transformers_learns_them(void **state) { (void)state, task_agrees("classify"); }
static void numbers_as_transformers_learns_them(void **state) { (void)state, task_agrees("regress"); }

// --- evaluation of pairs ---------------------------------------------------------------------------------------------

// Both losses, that of masked tokens alone, and in how many samples it is right whether the second text follows.
static void pairs_are_judged_as_transformers_judges_them(void **state) {
    (void)state;
    session x;
    config c;
    st_file f;
    evaluation e;
    char *dir = make_dir(), path[PATH_MAX], val[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/pairs/golden.safetensors", folder());
    snprintf(val, sizeof val, "[data]\nval = %s/pairs.bin\n[batch]\nglobal = 5\nmicro = 5\nlanes = 1\n", folder());
    OK(st_open(&f, path));
    task_open(&x, &c, dir, "pairs", val);
    OK(evaluate(&x.evaluator, x.val, 0, &e));
    assert_string_equal(x.net->metric[0], "accuracy"), assert_string_equal(x.net->metric[1], "masked_loss");
    static const char *const name[] = {"eval_loss", "eval_accuracy", "eval_masked"};
    const double found[] = {e.loss, e.metric[0], e.metric[1]};
    for (int i = 0; i < 3; i++) {
        int64_t n;
        double *want = golden(&f, name[i], &n);
        if (!(fabs(found[i] - *want) <= 1e-6 * *want)) fail_msg("%s is %.9f, expected %.9f", name[i], found[i], *want);
        free(want);
    }
    st_close(&f), session_close(&x);
    drop_dir(dir);
}

// --- correlations ----------------------------------------------------------------------------------------------------

// The last round has fewer samples.
static void numbers_go_with_the_right_ones_as_scipy_says(void **state) {
    (void)state;
    session x;
    config c;
    st_file f;
    evaluation e;
    int64_t n;
    char *dir = make_dir(), path[PATH_MAX], val[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/regress/golden.safetensors", folder());
    snprintf(val, sizeof val, "[data]\nval = %s/data-train*.bin\n[batch]\nglobal = 5\nmicro = 5\nlanes = 1\n", dir);
    OK(st_open(&f, path));
    task_open(&x, &c, dir, "regress", val);
    double *want = golden(&f, "correlations", &n);
    OK(evaluate(&x.evaluator, x.val, 0, &e));
    assert_int_equal(e.samples, 36);
    assert_string_equal(x.net->metric[0], "pearson"), assert_string_equal(x.net->metric[1], "spearman");
    for (int i = 0; i < 2; i++)
        if (!(fabs(e.metric[i] - want[i]) <= (i ? 1e-14 : 1e-6)))
            fail_msg("%s is %.15f, expected %.15f", x.net->metric[i], e.metric[i], want[i]);
    free(want);
    st_close(&f), session_close(&x);
    drop_dir(dir);
}

// What is right is of scipy 1.17.1.
static void correlations_of_ties_and_of_what_has_none(void **state) {
    (void)state;
    static const double x[] = {2, -1, 2, 3.5, 2, 0, 3.5, 1e6}, y[] = {0, 1, 5, 4, 4, -2, 3, 9},
                        big[] = {3e38, -3e38, 1, 2, 3, 4, 5, 6}, same[] = {4, 4, 4, 4, 4, 4, 4, 4};
    double p, s;
    OK(correlate(x, y, 8, &p, &s));
    assert_true(fabs(p - 0.7171390523506668) < 1e-14 && fabs(s - 0.66069525864647) < 1e-14);
    OK(correlate(big, y, 8, &p, &s));
    assert_true(fabs(p - -0.0790569415042095) < 1e-12 && fabs(s - -0.13173888881045848) < 1e-14);
    OK(correlate(y + 3, x, 2, &p, &s));
    assert_true(isnan(p) && isnan(s));  // two that are equal
    OK(correlate(y, big + 4, 2, &p, &s));
    assert_true(fabs(p - 1) < 1e-15 && fabs(s - 1) < 1e-15);
    OK(correlate(x, same, 8, &p, &s));
    assert_true(isnan(p) && isnan(s));
    OK(correlate(x, y, 1, &p, &s));
    assert_true(isnan(p) && isnan(s));
    OK(correlate((double[]){1, NAN, 3}, y, 3, &p, &s));
    assert_true(isnan(p) && isnan(s));
    OK(correlate(y, (double[]){1, INFINITY, 3}, 3, &p, &s));
    assert_true(isnan(p) && isnan(s));
}

// --- masks -----------------------------------------------------------------------------------------------------------

// Which positions of a sample are masked follows from the seed and the position in the run, so another epoch has
// others; without training it is always the same.
static void masks_are_drawn_anew_each_epoch(void **state) {
    enum { TOKENS = 34, MASKS = 5 };
    static const source_draw draws[] = {{.seed = 11, .train = true},
                                        {.seed = 11, .train = true, .epoch = 1},
                                        {.seed = 12, .train = true},
                                        {.seed = 11, .sample = 0},
                                        {.seed = 12, .sample = 0, .epoch = 1}};
    tensor_spec wanted[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {TOKENS, 1, 1}, .limit = 400},
                            {.name = "targets", .type = INT32, .dims = 1, .size = {MASKS, 1, 1}, .limit = 400},
                            {.name = "places", .type = INT32, .dims = 1, .size = {MASKS, 1, 1}, .limit = TOKENS},
                            {.name = "types", .type = INT32, .dims = 1, .size = {TOKENS, 1, 1}, .limit = 2}};
    int32_t tokens[TOKENS], targets[MASKS], types[TOKENS], places[5][MASKS], again[MASKS];
    source *s;
    (void)state;
    OK(source_open(&s, &(source_options){.files = "test/golden/bert/tokens.bin",
                                         .format = FORMAT_RAW16,
                                         .wanted = wanted,
                                         .inputs = 4,
                                         .mask = 4,
                                         .begin = 2,
                                         .end = 3}));
    for (int i = 0; i < 5; i++) {
        source_draw d = draws[i];
        d.n = d.epoch * source_about(s).samples;
        OK(source_read(s, &d, (void *[]){tokens, targets, places[i], types}));
        OK(source_read(s, &d, (void *[]){tokens, targets, again, types}));
        assert_memory_equal(places[i], again, sizeof again);
    }
    for (int i = 1; i < 3; i++) assert_memory_not_equal(places[0], places[i], sizeof again);
    assert_memory_equal(places[3], places[4], sizeof again);
    source_close(s);
    source_options o = {.files = "test/golden/bert/tokens.bin",
                        .format = FORMAT_RAW16,
                        .wanted = wanted,
                        .inputs = 4,
                        .mask = 4,
                        .begin = 2,
                        .end = 3};
    for (int i = 0; i < 2; i++) {
        o.answers = i == 0, o.ignores = i == 1;
        assert_int_equal(source_open(&s, &o), ERR_CONFIG);
        assert_non_null(strstr(err_last()->text, "leave out [data] answers and ignore"));
    }
}

// --- names -----------------------------------------------------------------------------------------------------------

// As TensorFlow's weights of norms were called, and without the prefix.
static void older(char *name) {
    static const char *const pairs[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    if (strncmp(name, "bert.", 5) == 0) memmove(name, name + 5, strlen(name + 5) + 1);
    for (int i = 0; i < 2; i++) {
        char *at = strstr(name, pairs[i][0]);
        if (at) strcpy(at, pairs[i][1]);
    }
}

// The model of masked tokens as an older file has it, without tensor `left` (-1: with all), and with more that this
// model does not read.
static void write_older(const char *dir, const st_file *from, int left) {
    static const char *const more[] = {"embeddings.position_ids", "cls.predictions.decoder.bias", "pooler.dense.weight",
                                       "cls.seq_relationship.bias", "classifier.weight"};
    enum { MORE = sizeof more / sizeof *more };
    st_tensor *table = calloc((size_t)from->count + MORE, sizeof *table);
    char path[PATH_MAX];
    st_writer w;
    int n = 0;
    for (int i = 0; i < from->count; i++) {
        if (i == left) continue;
        table[n] = from->tensors[i];
        older(table[n++].name);
    }
    for (int i = 0; i < MORE; i++) {
        table[n] = (st_tensor){.type = ST_F32, .dims = 1, .size = {3}};
        strcpy(table[n].name, more[i]);
        assert_null(st_count_bytes(&table[n++]));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    OK(st_create(&w, path, table, n, NULL, NULL));
    for (int i = 0; i < from->count; i++) {
        void *bytes = malloc((size_t)from->tensors[i].bytes);
        OK(st_read(from, &from->tensors[i], bytes));
        if (i != left) OK(st_put(&w, bytes, (size_t)from->tensors[i].bytes));
        free(bytes);
    }
    for (int i = 0; i < MORE; i++) OK(st_put(&w, (float[3]){0}, sizeof(float[3])));
    OK(st_finish(&w, NULL));
    free(table);
}

static err_t match(const char *path, const model *m, unsigned lenient, weights_map **map, weights **w) {
    OK(weights_open(w, path));
    err_t rc = weights_match(map, *w, m, m->options, lenient);
    if (rc != ERR_OK) weights_close(*w);
    return rc;
}

// Values of all parameters but `new`, which starts as in a new model.
static void expect_same_values(const model *m, const weights_map *a, const weights_map *b, int new) {
    for (int i = 0; i < m->params; i++) {
        int64_t n = shape_count(m->param[i].dims, m->param[i].size);
        float *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
        if (m->param[i].tied < 0) OK(weights_read(a, i, 0, n, 7, x));
        if (m->param[i].tied < 0) OK(weights_read(b, i, 0, n, 7, y));
        if (i == new) model_init(m, i, 7, 0, n, x);
        if (memcmp(x, y, (size_t)n * sizeof *x) != 0) fail_msg("%s has other values", m->param[i].name);
        free(x), free(y);
    }
}

static void older_files_are_read(void **state) {
    (void)state;
    char *dir = make_dir(), path[PATH_MAX];
    weights *w, *old;
    weights_map *map, *mapped;
    st_file f;
    model *m;
    const model_type *type;
    void *options;
    OK(weights_open(&w, "test/golden/bert/mlm"));
    OK(foreign_options(&type, &options, w->config, w->path));
    OK(model_open(&m, type, options));
    OK(weights_match(&map, w, m, m->options, 0));
    OK(st_open(&f, "test/golden/bert/mlm/model.safetensors"));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_older(dir, &f, -1);
    OK(match(path, m, 0, &mapped, &old));
    expect_same_values(m, map, mapped, -1);
    weights_map_close(mapped), weights_close(old);
    // one that is missing is named, unless it may be new; a matrix of three that lacks one is no new one
    int bias = 0, key = 0;
    while (strcmp(f.tensors[bias].name, "cls.predictions.bias") != 0) bias++;
    while (strcmp(f.tensors[key].name, "bert.encoder.layer.1.attention.self.key.weight") != 0) key++;
    write_older(dir, &f, bias);
    assert_int_equal(match(path, m, 0, &mapped, &old), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "cls.predictions.bias is missing"));
    OK(match(path, m, WEIGHTS_MISSING, &mapped, &old));
    expect_same_values(m, map, mapped, model_find(m, "cls.predictions.bias"));
    weights_map_close(mapped), weights_close(old);
    write_older(dir, &f, key);
    assert_int_equal(match(path, m, WEIGHTS_MISSING, &mapped, &old), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "encoder.layer.1.attention.self.key.weight is missing"));
    // and a file of another model is no body
    assert_int_equal(match("test/golden/gpt-weights.safetensors", m, WEIGHTS_MISSING, &mapped, &old), ERR_DATA);
    assert_non_null(strstr(err_last()->text, "init_missing = yes is for a new head"));
    st_close(&f);
    weights_map_close(map), weights_close(w), model_close(m);
    free(options);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_tokens_as_transformers_learns_them),
        cmocka_unit_test(pairs_as_transformers_learns_them),
        cmocka_unit_test(pairs_are_judged_as_transformers_judges_them),
        cmocka_unit_test(classes_as_transformers_learns_them),
        cmocka_unit_test(numbers_as_transformers_learns_them),
        cmocka_unit_test(numbers_go_with_the_right_ones_as_scipy_says),
        cmocka_unit_test(correlations_of_ties_and_of_what_has_none),
        cmocka_unit_test(masks_are_drawn_anew_each_epoch),
        cmocka_unit_test(older_files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
