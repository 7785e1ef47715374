// test/test_answers.c: what a model of classes says of its validation data (trainer/answers.h). Classes, certainties
// and counts are those that this test finds in another way; pictures come out of the file as they went into the data.
#include "test/support/idx.h"
#include "test/support/run.h"

#include "data/image/decode.h"
#include "data/image/encode.h"
#include "data/image/shard.h"
#include "trainer/answers.h"
#include "trainer/figures.h"
#include "trainer/report/report.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sodium.h>

// --- rigs ------------------------------------------------------------------------------------------------------------

typedef struct rig {
    char *dir;
    config c;
    session x;
    evaluation e;
    json_t *all;  // answers.json
} rig;

// Trains and evaluates on what was put into the directory, and writes the answers.
static void rig_answer(rig *r, const char *run, const char *more, int64_t steps) {
    char path[1024];
    json_error_t why;
    figures f = {0};
    step_result s;
    load_config(&r->c, r->dir, run, more);
    OK(session_open(&r->x, &r->c, SESSION_TRAIN, NULL));
    OK(session_init(&r->x));
    OK(session_feed(&r->x, steps));
    while (r->x.progress.step < steps) OK(session_step(&r->x, &s));
    OK(session_settle(&r->x));
    OK(figures_measure(&r->x, &r->e, &f));
    OK(answers_write(&r->x, &r->e, r->dir));
    snprintf(path, sizeof path, "%s/answers.json", r->dir);
    r->all = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!r->all) fail_msg("answers.json, line %d: %s", why.line, why.text);
}

static void rig_close(rig *r) {
    json_decref(r->all);
    session_close(&r->x);
    drop_dir(r->dir);
}

static int64_t whole(const json_t *of, const char *name) {
    const json_t *v = json_object_get(of, name);
    if (!json_is_integer(v)) fail_msg("no whole number `%s`", name);
    return json_integer_value(v);
}

static const json_t *list(const rig *r, const char *name) {
    const json_t *v = json_object_get(r->all, name);
    assert_true(json_is_array(v));
    return v;
}

// *p = the picture of an example, as a decoder of PNG files finds it: in RGB.
static void decode(picture *p, const json_t *sample) {
    const char *base64 = json_string_value(json_object_get(sample, "png"));
    size_t n;
    assert_non_null(base64);
    uint8_t *bytes = malloc(strlen(base64));
    assert_int_equal(sodium_base642bin(bytes, strlen(base64), base64, strlen(base64), NULL, &n, NULL,
                                       sodium_base64_VARIANT_ORIGINAL),
                     0);
    OK(picture_decode(p, bytes, n));
    free(bytes);
}

// --- a perceptron on grey images -------------------------------------------------------------------------------------

enum { N = 50, H = 6, W = 7, PIXELS = H * W, CLASSES = 7, MICRO = 4 };

static const char grey_run[] =
    "[model]\ntype = mlp\ninputs = 42\nhidden =\nclasses = 7\n[batch]\nglobal = 8\nmicro = 4\nlanes = 2\n"
    "[optimizer]\nlr = 3e-3\n[schedule]\ntype = constant\n[device]\nthreads = 1\n[eval]\nbatches = 0\n";

static uint8_t pixel(int n, int i) { return (uint8_t)(n * 37 + i * i * 11 + (i / 6 == n * 5 % CLASSES) * 90); }

static void put_grey(const char *dir, int images, int h, int w, int classes, char data[4096]) {
    uint8_t *pixels = malloc((size_t)images * (size_t)(h * w)), *labels = malloc((size_t)images);
    char path[1024];
    assert_true(pixels && labels);
    for (int n = 0; n < images; n++) {
        labels[n] = (uint8_t)(n * 5 % classes);
        for (int i = 0; i < h * w; i++) pixels[n * h * w + i] = pixel(n, i);
    }
    snprintf(path, sizeof path, "%s/images", dir);
    write_idx(path, 3, (uint32_t[]){(uint32_t)images, (uint32_t)h, (uint32_t)w}, pixels, false);
    snprintf(path, sizeof path, "%s/labels", dir);
    write_idx(path, 1, (uint32_t[]){(uint32_t)images}, labels, false);
    snprintf(data, 4096, "[data]\ntrain = %s/images %s/labels\nval = %s/images %s/labels\n", dir, dir, dir, dir);
    free(pixels), free(labels);
}

static rig open_grey(int64_t steps, const char *more) {
    char data[4096];
    rig r = {.dir = make_dir()};
    put_grey(r.dir, N, H, W, CLASSES, data);
    snprintf(data + strlen(data), sizeof data - strlen(data), "%s", more);
    rig_answer(&r, grey_run, data, steps);
    return r;
}

// What the run's weights say of image n, in double: its class, and how sure of it they are.
static int own_answer(const session *x, int n, double *sure) {
    const float *w = x->state.master[model_find(x->net, "fc.0.weight")].data,
                *b = x->state.master[model_find(x->net, "fc.0.bias")].data;
    double logit[CLASSES], total = 0;
    int best = 0;
    for (int c = 0; c < CLASSES; c++) {
        logit[c] = b[c];
        for (int i = 0; i < PIXELS; i++) logit[c] += (double)w[c * PIXELS + i] * pixel(n, i) / 255;
        if (logit[c] > logit[best]) best = c;
    }
    for (int c = 0; c < CLASSES; c++) total += exp(logit[c] - logit[best]);
    *sure = 1 / total;
    return best;
}

static void answers_are_those_of_the_weights(void **state) {
    (void)state;
    for (int half = 0; half < 2; half++) {  // all samples, and the first 10 batches of them
        rig r = open_grey(12, half ? "[eval]\nbatches = 10\n" : "");
        int64_t right = 0, samples = half ? 10 * MICRO : N;
        double sure;
        assert_int_equal(r.e.samples, samples);
        for (int n = 0; n < samples; n++) {
            int class = own_answer(&r.x, n, &sure);
            right += class == n * 5 % CLASSES;
            assert_int_equal(r.x.answers[n].class, class);
            if (!(fabs(r.x.answers[n].sure - sure) < 1e-6))
                fail_msg("image %d: sure to %.9f, expected %.9f", n, r.x.answers[n].sure, sure);
        }
        if (right < 5 || right > samples - 5) fail_msg("%d of %d are right: nothing to tell", (int)right, (int)samples);
        assert_true(fabs(r.e.metric[0] - (double)right / (double)samples) < 1e-12);
        assert_int_equal(whole(r.all, "right"), right);
        assert_int_equal(whole(r.all, "samples"), samples);
        assert_int_equal(whole(r.all, "step"), 12);
        assert_int_equal(whole(r.all, "of_classes"), CLASSES);
        rig_close(&r);
    }
}

// The table, counted here.
static void counts_are_those_of_the_answers(void **state) {
    int64_t table[CLASSES][CLASSES] = {{0}}, before = INT64_MAX, pairs = 0;
    double sure;
    (void)state;
    rig r = open_grey(12, "");
    for (int n = 0; n < N; n++) table[n * 5 % CLASSES][own_answer(&r.x, n, &sure)]++;
    const json_t *classes = list(&r, "classes"), *found = list(&r, "pairs");
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *k = json_array_get(classes, i);
        int64_t c = whole(k, "label"), of = 0, said = 0;
        assert_true(c >= 0 && c < CLASSES && json_is_null(json_object_get(k, "name")));
        for (int o = 0; o < CLASSES; o++) of += table[c][o], said += table[o][c];
        assert_true(of + said > 0 && whole(k, "of") == of && whole(k, "said") == said);
        assert_int_equal(whole(k, "right"), table[c][c]);
        for (int o = 0; o < CLASSES; o++) pairs += o != c && table[c][o] > 0;
    }
    assert_int_equal(json_array_size(classes), CLASSES);
    assert_int_equal(json_array_size(found), pairs);
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *p = json_array_get(found, i);
        int64_t label = whole(p, "label"), answer = whole(p, "answer"), count = whole(p, "count");
        assert_true(label != answer && count == table[label][answer] && count > 0 && count <= before);
        before = count;
    }
    rig_close(&r);
}

static void is_sample(const rig *r, const json_t *sample) {
    picture p = {0};
    int64_t n = whole(sample, "sample");
    assert_true(n >= 0 && n < N);
    assert_int_equal(whole(sample, "label"), n * 5 % CLASSES);
    assert_int_equal(whole(sample, "answer"), r->x.answers[n].class);
    assert_true(fabs(json_real_value(json_object_get(sample, "sure")) - r->x.answers[n].sure) < 1e-8);
    decode(&p, sample);
    assert_true(p.h == H && p.w == W && p.c == 3);
    for (int i = 0; i < 3 * PIXELS; i++) assert_int_equal(p.at[i], pixel((int)n, i / 3));
    picture_free(&p);
}

// Examples lie evenly among the samples; mistakes are the wrong ones of which it is surest.
static void examples_and_mistakes(void **state) {
    (void)state;
    rig r = open_grey(12, "");
    const json_t *examples = list(&r, "examples"), *mistakes = list(&r, "mistakes");
    int64_t wrong = N - whole(r.all, "right");
    assert_int_equal(json_array_size(examples), ANSWERS_PICTURES);
    for (int64_t i = 0; i < ANSWERS_PICTURES; i++) {
        is_sample(&r, json_array_get(examples, (size_t)i));
        assert_int_equal(whole(json_array_get(examples, (size_t)i), "sample"), i * N / ANSWERS_PICTURES);
    }
    assert_int_equal(json_array_size(mistakes), wrong < ANSWERS_PICTURES ? wrong : ANSWERS_PICTURES);
    double least = 1;
    for (size_t i = 0; i < json_array_size(mistakes); i++) {
        const json_t *m = json_array_get(mistakes, i);
        double sure = json_real_value(json_object_get(m, "sure"));
        is_sample(&r, m);
        assert_true(whole(m, "label") != whole(m, "answer") && sure <= least);
        least = sure;
    }
    for (int n = 0, surer = 0; n < N; n++) {
        surer += r.x.answers[n].class != n * 5 % CLASSES && r.x.answers[n].sure > least + 1e-8;
        if (surer >= ANSWERS_PICTURES) fail_msg("%d mistakes are surer than the last one that is listed", surer);
    }
    rig_close(&r);
}

// Of a run on text there are no answers, and no file.
static void a_text_has_none(void **state) {
    char path[1024];
    figures f = {0};
    (void)state;
    rig r = {.dir = data_dir()};
    load_config(&r.c, r.dir, SMALL_GPT(1, 1, 8, 16, 128) SMALL_BATCH(4, 2, 1), "[sample]\ntokens = 0\n");
    OK(session_open(&r.x, &r.c, SESSION_TRAIN, NULL));
    OK(session_init(&r.x));
    OK(figures_measure(&r.x, &r.e, &f));
    assert_null(r.x.answers);
    OK(answers_write(&r.x, &r.e, r.dir));
    snprintf(path, sizeof path, "%s/answers.json", r.dir);
    assert_int_equal(access(path, F_OK), -1);
    rig_close(&r);
}

// What can't be read or written is named, and the file of before stays.
static void failures_are_named(void **state) {
    char path[1024], *before, *after;
    size_t n, m;
    (void)state;
    rig r = open_grey(2, "");
    snprintf(path, sizeof path, "%s/answers.json", r.dir);
    OK(io_read_file(path, 1 << 20, &before, &n));
    assert_int_equal(answers_write(&r.x, &r.e, "/nowhere/at/all"), ERR_IO);
    assert_non_null(strstr(err_last()->text, "/nowhere/at/all"));
    snprintf(path, sizeof path, "%s/images", r.dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(answers_write(&r.x, &r.e, r.dir), ERR_DATA);
    assert_non_null(strstr(err_last()->text, path));
    snprintf(path, sizeof path, "%s/answers.json", r.dir);
    OK(io_read_file(path, 1 << 20, &after, &m));
    assert_true(n == m && memcmp(before, after, n) == 0);
    free(before), free(after);
    rig_close(&r);
}

// --- answers that are put there --------------------------------------------------------------------------------------

// A run on grey images of so many classes, of which the model has `classes`; its answers are replaced.
static void open_many(rig *r, int images, int h, int w, int labels, int classes) {
    char data[4096];
    *r = (rig){.dir = make_dir()};
    put_grey(r->dir, images, h, w, labels, data);
    snprintf(data + strlen(data), sizeof data - strlen(data), "[model]\ninputs = %d\nclasses = %d\n", h * w, classes);
    rig_answer(r, grey_run, data, 1);
    assert_int_equal(r->e.samples, images);
}

static void write_again(rig *r) {
    char path[1024];
    OK(answers_write(&r->x, &r->e, r->dir));
    snprintf(path, sizeof path, "%s/answers.json", r->dir);
    json_decref(r->all);
    assert_non_null(r->all = json_load_file(path, JSON_REJECT_DUPLICATES, NULL));
}

// More pairs than are listed, each once: in the order of their classes. Of mistakes that are as sure the first samples;
// what is no number is not sure.
static void equal_ones_are_in_order(void **state) {
    (void)state;
    enum { IMAGES = 1100, MANY = 37 };
    rig r;
    open_many(&r, IMAGES, H, W, MANY, MANY);
    for (int n = 0; n < IMAGES; n++)
        r.x.answers[n] = (class_answer){(n * 5 + 1 + n / MANY) % MANY, n % 3 == 0 ? NAN : n < 900 ? 0.25 : 0.5};
    write_again(&r);
    assert_int_equal(whole(r.all, "right"), 0);
    const json_t *pairs = list(&r, "pairs"), *mistakes = list(&r, "mistakes");
    assert_int_equal(json_array_size(pairs), ANSWERS_PAIRS);
    for (size_t i = 0, before = 0; i < ANSWERS_PAIRS; i++) {
        const json_t *p = json_array_get(pairs, i);
        size_t place = (size_t)(whole(p, "label") * MANY + whole(p, "answer"));
        assert_true(whole(p, "count") == 1 && (!i || place > before));
        before = place;
    }
    for (int i = 0, n = 900; i < ANSWERS_PICTURES; i++, n++) {
        if (n % 3 == 0) n++;
        assert_int_equal(whole(json_array_get(mistakes, (size_t)i), "sample"), n);
    }
    for (int n = 0; n < IMAGES; n++)
        if (n != 3 && n != 6 && n != 1095) r.x.answers[n].class = n * 5 % MANY;
    r.x.answers[1095].sure = 1e-9;
    write_again(&r);
    static const int64_t wrong[] = {1095, 3, 6};
    assert_int_equal(json_array_size(list(&r, "mistakes")), 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(whole(json_array_get(list(&r, "mistakes"), i), "sample"), wrong[i]);
    rig_close(&r);
}

// Over the classes that were seen or said: one that is only said counts, and one that is neither does not.
static void f1_is_of_classes_that_occur(void **state) {
    (void)state;
    double f1, want = 0, of[CLASSES] = {0}, right[CLASSES] = {0}, said[CLASSES] = {0};
    rig r;
    open_many(&r, N, H, W, 4, CLASSES);
    for (int n = 0; n < N; n++) {
        int label = n * 5 % 4, class = n % 7 == 0 ? 5 : n % 3;
        r.x.answers[n] = (class_answer){class, 0.5};
        of[label]++, said[class]++, right[label] += label == class;
    }
    OK(answers_f1(&r.x, &r.e, &f1));
    for (int k = 0; k < CLASSES; k++) want += of[k] + said[k] > 0 ? 2 * right[k] / (of[k] + said[k]) : 0;
    int seen = 0;
    for (int k = 0; k < CLASSES; k++) seen += of[k] + said[k] > 0;
    assert_true(seen < CLASSES && said[5] > 0 && of[5] == 0 && right[0] > 0);
    if (!(fabs(f1 - want / seen) < 1e-12)) fail_msg("F1 %.9f, expected %.9f", f1, want / seen);
    rig_close(&r);
}

// A picture is reduced from ANSWERS_SIDE + 1 on.
static void small_ones_stay(void **state) {
    (void)state;
    for (int side = ANSWERS_SIDE; side <= ANSWERS_SIDE + 2; side++)
        for (int tall = 0; tall < 2; tall++) {
            picture p = {0};
            rig r;
            open_many(&r, N, tall ? side : 3, tall ? 3 : side, CLASSES, CLASSES);
            decode(&p, json_array_get(list(&r, "examples"), 0));
            bool same = side == ANSWERS_SIDE;
            assert_int_equal(tall ? p.h : p.w, ANSWERS_SIDE);
            assert_int_equal(tall ? p.w : p.h, same ? 3 : 3 * ANSWERS_SIDE / side);
            picture_free(&p);
            rig_close(&r);
        }
}

// Logits that are all the same: the first class, as sure as of each. Those that are no numbers: sure of nothing.
static void equal_logits_are_the_first_class(void **state) {
    (void)state;
    rig r;
    open_many(&r, N, H, W, CLASSES, CLASSES);
    for (int k = 0; k < 2; k++) {
        evaluation e;
        for (int i = 0; i < r.x.net->params; i++) {
            float *w = r.x.state.w[i].data;
            for (int64_t j = 0; j < tensor_count(&r.x.state.w[i]); j++) w[j] = k ? NAN : 0;
        }
        OK(evaluate_classes(&r.x.evaluator, r.x.val, 0, r.x.answers, &e));
        for (int n = 0; n < N; n++) {
            double sure = r.x.answers[n].sure;
            assert_int_equal(r.x.answers[n].class, 0);
            assert_true(k ? isnan(sure) : fabs(sure - 1.0 / CLASSES) < 1e-12);
        }
        assert_true(k ? isnan(e.loss) && !signbit(e.loss) : fabs(e.loss - log(CLASSES)) < 1e-6);
    }
    rig_close(&r);
}

// --- large pictures, many classes ------------------------------------------------------------------------------------

// The page of the directory, with a log that says that it is a run's.
static char *page_of(const rig *r, size_t *bytes) {
    runlog *run;
    char *page;
    write_text(r->dir, "log.jsonl", "{\"t\":\"step\",\"step\":1,\"loss\":2,\"samples\":8,\"ms\":1}\n");
    OK(runlog_open(&run, r->dir));
    OK(runlog_poll(run));
    OK(report_render(&run, 1, false, &page, bytes));
    runlog_close(run);
    return page;
}

static void large_ones_are_reduced(void **state) {
    char data[4096], *page;
    picture p = {0};
    size_t n;
    (void)state;
    rig r = {.dir = make_dir()};
    put_grey(r.dir, 60, 200, 90, 26, data);
    strcat(data, "[model]\ninputs = 18000\nclasses = 26\n");
    rig_answer(&r, grey_run, data, 2);
    assert_int_equal(json_array_size(list(&r, "examples")), ANSWERS_PICTURES);
    decode(&p, json_array_get(list(&r, "examples"), 1));
    assert_true(p.h == ANSWERS_SIDE && p.w == 90 * ANSWERS_SIDE / 200);
    page = page_of(&r, &n);
    assert_non_null(strstr(page, "Taken for each other most often"));
    assert_non_null(strstr(page, "<img width=\"36\" height=\"80\" alt=\"sample 2, 10\""));
    free(page);
    picture_free(&p);
    rig_close(&r);
}

// --- shards with names -----------------------------------------------------------------------------------------------

enum { SIDE = 16, ACROSS = 20, DOWN = 18, SHARD_IMAGES = 36, KINDS = 3 };
static const char names[] = "<b>cat</b>\0\"d&g\"\0owl";

static uint8_t value_of(int n, int64_t i) { return (uint8_t)(n * 37 + i * 11 + i / 5 * n); }

static void put_shard(const char *path, int h, int w, int noise) {
    image_writer *out;
    picture image = {0};
    image_sums sums = {0};
    uint32_t x = 1;
    image_about about = {.channels = 3, .size = 0, .classes = KINDS, .names = names, .name_bytes = sizeof names};
    OK(image_write_open(&out, path, &about));
    for (int k = 0; k < SHARD_IMAGES; k++) {
        OK(picture_make(&image, h, w, 3));
        for (int64_t i = 0; i < picture_bytes(&image); i++) {
            x = x * 1664525u + 1013904223u;
            image.at[i] = noise ? (uint8_t)(x >> 24) : value_of(k, i);
        }
        image_sums_add(&sums, &image);
        OK(image_write(out, &image, k % KINDS));
    }
    OK(image_write_seal(out));
    OK(image_write_finish(out, &sums));
    image_write_close(out);
    picture_free(&image);
}

static const char shard_run[] =
    "[model]\ntype = resnet20\nunits = 1 1 1\nwidth = 6\nimage = 16\nclasses = 3\n[batch]\nglobal = 6\nmicro = 6\n"
    "[optimizer]\ntype = sgd\nlr = 0.05\nweight_decay = 0\n[schedule]\ntype = constant\n[device]\nthreads = 1\n"
    "[eval]\nbatches = 0\n";

static rig open_shards(const char *run, int h, int w, int noise, int64_t steps) {
    char data[4096], path[1024];
    rig r = {.dir = make_dir()};
    snprintf(path, sizeof path, "%s/shard.bin", r.dir);
    put_shard(path, h, w, noise);
    snprintf(data, sizeof data, "[data]\ntrain = %s\nval = %s\n", path, path);
    rig_answer(&r, run, data, steps);
    return r;
}

// The model sees the middle; that is what is shown. Names of classes are words of strangers.
static void shards_have_names_and_a_middle(void **state) {
    static const char *const words[] = {"<b>cat</b>", "\"d&g\"", "owl"};
    (void)state;
    rig r = open_shards(shard_run, DOWN, ACROSS, 0, 4);
    const json_t *examples = list(&r, "examples"), *classes = list(&r, "classes");
    assert_true(fabs(r.e.metric[0] * SHARD_IMAGES - (double)whole(r.all, "right")) < 1e-9);
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *k = json_array_get(classes, i);
        assert_string_equal(json_string_value(json_object_get(k, "name")), words[whole(k, "label")]);
    }
    for (size_t i = 0; i < json_array_size(examples); i++) {
        picture p = {0};
        const json_t *s = json_array_get(examples, i);
        int n = (int)whole(s, "sample");
        assert_int_equal(whole(s, "label"), n % KINDS);
        decode(&p, s);
        assert_true(p.h == SIDE && p.w == SIDE && p.c == 3);
        for (int y = 0; y < SIDE; y++)
            for (int v = 0; v < SIDE * 3; v++)
                assert_int_equal(p.at[y * SIDE * 3 + v], value_of(n, ((y + 1) * ACROSS + 2) * 3 + v));
        picture_free(&p);
    }
    size_t n;
    char *page = page_of(&r, &n);
    assert_null(strstr(page, "<b>cat"));
    assert_null(strstr(page, "\"d&g\""));
    assert_non_null(strstr(page, "<th scope=\"col\">&lt;b&gt;cat&lt;/b&gt;</th>"));
    assert_non_null(strstr(page, "alt=\"sample 1, &quot;d&amp;g&quot;\""));
    assert_non_null(strstr(page, "img-src data:"));
    free(page);
    rig_close(&r);
}

// However little its pictures can be compressed, a page stays below 1 MB.
static void pages_stay_small(void **state) {
    static const char wide_run[] =
        "[model]\ntype = mlp\ninputs = 43200\nhidden =\nclasses = 3\n[batch]\nglobal = 6\nmicro = 6\n"
        "[device]\nthreads = 1\n[eval]\nbatches = 0\n";
    (void)state;
    rig r = open_shards(wide_run, 120, 120, 1, 1);
    size_t n;
    char *page = page_of(&r, &n);
    assert_int_equal(json_array_size(list(&r, "examples")), ANSWERS_PIXELS / (ANSWERS_SIDE * ANSWERS_SIDE * 3));
    assert_true(json_array_size(list(&r, "mistakes")) > 10);
    if (n > 700000) fail_msg("%zu bytes", n);
    free(page);
    rig_close(&r);
}

// A picture of two channels is none that a PNG file could hold.
static void only_grey_and_colour_are_written(void **state) {
    picture p = {0};
    text out = {0};
    (void)state;
    OK(picture_make(&p, 2, 2, 2));
    assert_int_equal(png_encode(&out, &p), ERR_CONFIG);
    picture_free(&p);
    text_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_the_weights),
        cmocka_unit_test(counts_are_those_of_the_answers),
        cmocka_unit_test(examples_and_mistakes),
        cmocka_unit_test(a_text_has_none),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(equal_ones_are_in_order),
        cmocka_unit_test(f1_is_of_classes_that_occur),
        cmocka_unit_test(small_ones_stay),
        cmocka_unit_test(equal_logits_are_the_first_class),
        cmocka_unit_test(large_ones_are_reduced),
        cmocka_unit_test(shards_have_names_and_a_middle),
        cmocka_unit_test(pages_stay_small),
        cmocka_unit_test(only_grey_and_colour_are_written),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
