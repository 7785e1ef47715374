// test/test_likelihood.c: texts and questions by likelihood against lm-evaluation-harness, choice by choice
// (test/golden/likelihood).
//
// One idea: the sum of every choice and of every text is compared, not only how many are right, which would forgive
// much.
#include "test/support/options.h"
#include "test/support/run.h"

#include "model/families.h"
#include "model/foreign.h"
#include "model/weights.h"
#include "trainer/session/restore.h"

#include <math.h>

#define FOLDER "test/golden/likelihood/"
enum { T = 48, TEXTS = 4, ROWS_MOST = 512 };

static const char *const families[] = {"gpt2", "llama3"}, *const protocols[] = {"lm-eval", "llmc"},
                         *const files[] = {"hellaswag.jsonl", "general.jsonl"};

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

// The family's weights and tokenizer, in micro-batches of that many rows.
static void rig_open(rig *r, const char *family, int micro) {
    char path[128], text[2048], section[1024];
    weights *w;
    const model_type *type;
    void *options;
    r->dir = make_dir();
    snprintf(path, sizeof path, FOLDER "%s", family);
    OK(weights_open(&w, path));
    OK(foreign_options(&type, &options, w->config, path));
    int n = snprintf(section, sizeof section, "[model]\ntype = %s\n", type->name);
    for (int i = 0; i < type->keys; i++) {
        char value[SETTING_VALUE];
        setting_value(&type->key[i], options, value);
        if (strcmp(type->key[i].key, "head_chunks") != 0)
            n += snprintf(section + n, sizeof section - (size_t)n, "%s = %s\n", type->key[i].key, value);
    }
    free(options);
    weights_close(w);
    snprintf(text, sizeof text,
             "[data]\nval =\n%sinit_from = %s\n[batch]\nglobal = %d\nmicro = %d\nlanes = 1\n[device]\nthreads = 1\n"
             "[sample]\ntokenizer = test/golden/tokenizer/%s.json\n",
             section, path, micro, micro, family);
    load_config(&r->c, r->dir, text, "");
    OK(session_open(&r->x, &r->c, SESSION_INFERENCE, NULL));
    OK(session_init(&r->x));
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

// Asks the model; the caller closes *e.
static answers ask(rig *r, exam *e, const char *path, question_protocol protocol) {
    answers a;
    config c = r->c;
    snprintf(c.eval.choices, sizeof c.eval.choices, "%s", path);
    c.eval.protocol = protocol;
    OK(exam_open(e, &c, r->x.net));
    OK(exam_questions(e, &r->x.evaluator, &a));
    return a;
}

// --- golden values ---------------------------------------------------------------------------------------------------

typedef struct golden {
    double acc, acc_norm, sum[ROWS_MOST];
    int rows;
} golden;

static void golden_of(golden *g, const char *family, const char *protocol, const char *file) {
    char line[256], start[128], word[2][32];
    FILE *f = fopen(FOLDER "likelihood.txt", "r");
    assert_non_null(f);
    *g = (golden){.acc = -1};
    size_t n = (size_t)snprintf(start, sizeof start, "%s %s %s ", family, protocol, file);
    while (fgets(line, sizeof line, f)) {
        double a, b;
        if (strncmp(line, start, n) != 0) continue;
        if (sscanf(line + n, "%31s %lf %31s %lf", word[0], &a, word[1], &b) == 4) g->acc = a, g->acc_norm = b;
        else if (sscanf(line + n, "%31s %31s %lf", word[0], word[1], &a) == 3) g->sum[g->rows++] = -a;
    }
    fclose(f);
    assert_true(g->acc >= 0 && g->rows > 100);
}

static bool close_to(double found, double wanted) { return fabs(found - wanted) <= 1e-5 * fabs(wanted) + 1e-5; }

static void expect_golden(rig *r, const char *family, question_protocol protocol, const char *file) {
    golden *g = malloc(sizeof *g);
    char path[128];
    exam e;
    assert_non_null(g);
    golden_of(g, family, protocols[protocol], file);
    snprintf(path, sizeof path, FOLDER "%s", file);
    answers a = ask(r, &e, path, protocol);
    assert_int_equal(questions_about(e.questions).rows, g->rows);
    for (int i = 0; i < g->rows; i++)
        if (!close_to(e.sums[i], g->sum[i]))
            fail_msg("%s %s %s, row %d: %.6f, expected %.6f", family, protocols[protocol], file, i, e.sums[i],
                     g->sum[i]);
    if (fabs(exam_acc(&a) - g->acc) > 1e-6 || fabs(exam_acc_norm(&a) - g->acc_norm) > 1e-6)
        fail_msg("%s %s %s: acc %f acc_norm %f, expected %f %f", family, protocols[protocol], file, exam_acc(&a),
                 exam_acc_norm(&a), g->acc, g->acc_norm);
    exam_close(&e);
    free(g);
}

static void choices_agree_with_others(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig r;
        rig_open(&r, families[f], 4);
        for (int p = 0; p < 2; p++)
            for (int k = 0; k < 2; k++) expect_golden(&r, families[f], (question_protocol)p, files[k]);
        rig_close(&r);
    }
}

// Line `number`, counted from 0, of the file of texts, as a file of its own.
static void one_text(const rig *r, int number, char path[1100]) {
    char *text, *line;
    size_t n;
    OK(io_read_file(FOLDER "texts.jsonl", 1 << 20, &text, &n));
    line = strtok(text, "\n");
    for (int i = 0; i < number; i++) line = strtok(NULL, "\n");
    snprintf(path, 1100, "%s/one.jsonl", r->dir);
    OK(io_write_file(path, line, strlen(line), NULL));
    free(text);
}

static void expect_text(rig *r, const char *path, double bytes, double log_likelihood) {
    config c = r->c;
    exam e;
    text_marks m;
    snprintf(c.eval.text, sizeof c.eval.text, "%s", path);
    OK(exam_open(&e, &c, r->x.net));
    OK(exam_text(&e, &r->x.evaluator, &m));
    double bits = -log_likelihood / M_LN2 / bytes;
    assert_true(e.text.bytes == (int64_t)bytes);
    if (!close_to(m.bits_per_byte, bits))
        fail_msg("%s: %.8f bits per byte, expected %.8f", path, m.bits_per_byte, bits);
    if (!close_to(m.loss * (double)e.text.tokens, -log_likelihood))
        fail_msg("%s: loss %.8f of %d tokens", path, m.loss, (int)e.text.tokens);
    exam_close(&e);
}

// Each alone, and all together.
static void texts_agree_with_others(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        rig r;
        char line[256], start[64], path[1100];
        double bytes, value, all = 0, all_bytes = 0;
        int number, seen = 0;
        rig_open(&r, families[f], 4);
        snprintf(start, sizeof start, "%s rolling", families[f]);
        FILE *in = fopen(FOLDER "likelihood.txt", "r");
        assert_non_null(in);
        while (fgets(line, sizeof line, in)) {
            if (strncmp(line, start, strlen(start)) != 0) continue;
            assert_int_equal(sscanf(line + strlen(start), "%d %lf %lf", &number, &bytes, &value), 3);
            one_text(&r, number, path);
            expect_text(&r, path, bytes, value);
            all += value, all_bytes += bytes, seen++;
        }
        fclose(in);
        assert_int_equal(seen, TEXTS);
        expect_text(&r, FOLDER "texts.jsonl", all_bytes, all);
        rig_close(&r);
    }
}

// A loss says how many bits a byte takes where a token is a byte: of a model that knows no more than those, and whose
// words are read as bytes.
static void bits_are_of_bytes(void **state) {
    (void)state;
    config *c = calloc(1, sizeof *c);
    model net = {.vocab = 256};
    tokenizer *words;
    strcpy(c->sample.tokenizer, "bytes");
    OK(tokenizer_open(&words, "bytes"));
    assert_true(exam_of_bytes(c, NULL, &net));
    assert_false(exam_of_bytes(c, words, &net));
    strcpy(c->sample.tokenizer, "test/golden/tokenizer/gpt2.json");
    assert_false(exam_of_bytes(c, NULL, &net));
    strcpy(c->sample.tokenizer, "bytes");
    net.vocab = 257;
    assert_false(exam_of_bytes(c, NULL, &net));
    net.vocab = 0;
    assert_false(exam_of_bytes(c, NULL, &net));
    tokenizer_close(words);
    free(c);
}

// --- the same numbers ------------------------------------------------------------------------------------------------

// On a CPU no bit depends on what a micro-batch has beside a row.
static void any_micro_batch_gives_the_same(void **state) {
    (void)state;
    static const int micros[] = {1, 3, 8, 64};
    double first[ROWS_MOST];
    for (int i = 0; i < 4; i++) {
        rig r;
        exam e;
        rig_open(&r, "llama3", micros[i]);
        ask(&r, &e, FOLDER "general.jsonl", PROTOCOL_LM_EVAL);
        size_t n = (size_t)questions_about(e.questions).rows * sizeof *first;
        if (i == 0) memcpy(first, e.sums, n);
        assert_memory_equal(first, e.sums, n);
        exam_close(&e);
        rig_close(&r);
    }
}

// Rows that are padded to one tile, and the same rows beside one that fills the context, which is no whole number of
// tiles.
static void padding_changes_no_bit(void **state) {
    (void)state;
    rig r;
    exam few, more;
    char path[1100], text[4096], longer[400] = "";
    const char *two =
        "{\"query\": \"the man\", \"choices\": [\"is\", \"was not there\"], \"gold\": 1}\n{\"query\": \"It is\", \"choices\": [\"so\"], \"gold\": 0}\n";
    rig_open(&r, "gpt2", 2);
    session_close(&r.x);
    options_of(&r.c.model.of)->gpt.context = 150;
    r.c.model.init_resize = true;
    OK(session_open(&r.x, &r.c, SESSION_INFERENCE, NULL));
    OK(session_init(&r.x));
    for (int i = 0; i < 95; i++) strcat(longer, "it ");
    write_text(r.dir, "two.jsonl", two);
    snprintf(path, sizeof path, "%s/two.jsonl", r.dir);
    ask(&r, &few, path, PROTOCOL_LM_EVAL);
    snprintf(text, sizeof text, "%s{\"query\": \"%s\", \"choices\": [\"%s\"], \"gold\": 0}\n", two, longer, longer);
    write_text(r.dir, "three.jsonl", text);
    snprintf(path, sizeof path, "%s/three.jsonl", r.dir);
    ask(&r, &more, path, PROTOCOL_LM_EVAL);
    assert_int_equal(source_about(questions_source(few.questions)).units_per_sample, ROWS_TILE);
    assert_int_equal(source_about(questions_source(more.questions)).units_per_sample, 150);
    // A sum is a mean times T: with the same losses it may differ in the last bit of that.
    for (int i = 0; i < 3; i++)
        if (fabs(few.sums[i] - more.sums[i]) > 4e-16 * few.sums[i])
            fail_msg("row %d: %.17g, padded more %.17g", i, few.sums[i], more.sums[i]);
    exam_close(&few);
    exam_close(&more);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_agree_with_others), cmocka_unit_test(texts_agree_with_others),
        cmocka_unit_test(bits_are_of_bytes),         cmocka_unit_test(any_micro_batch_gives_the_same),
        cmocka_unit_test(padding_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
