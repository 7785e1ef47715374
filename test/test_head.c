// test/test_head.c: the head in chunks of rows. What a row gives does not depend on the chunk that it is in: losses and
// the gradients of all that lies before the head have the bits of one chunk. Only the head's own weight gradient is
// another sum. And that gradient with the embedding's, whose weight is the same: apart, or one on top of the other.
// (Ranks: test_ranks.c; GPUs: test_device.c.)
#include "test/support/run.h"
#include "test/support/square.h"

#include "model/head.h"
#include "trainer/session/evaluate.h"
#include "trainer/plan/plan.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

#include <math.h>

// 50 rows: in three chunks 17, 17 and 16. The vocabulary has 256 rows in memory.
static const char small_model[] = SMALL_GPT(2, 3, 36, 25, 131)
    SMALL_BATCH(8, 2, 2) "[optimizer]\nlr = 3e-3\n[schedule]\nwarmup = 4\n[sample]\ntokens = 12\nprompt = 7 bottles\n";

enum { STEPS = 4, ROWS = 50, VOCAB_ROWS = 256, MOST = 64 };

static void in_chunks(char *more, size_t room, int chunks, const char *rest) {
    snprintf(more, room, "[model]\nhead_chunks = %d\n%s", chunks, rest);
}

// --- the rule --------------------------------------------------------------------------------------------------------

static void chunks_cover_all_rows_and_hold_what_they_may(void **state) {
    (void)state;
    static const int64_t vocab[] = {2, 256, 16384, 50257, 131072, 131073, 1 << 20, 1 << 24};
    for (int v = 0; v < 8; v++)
        for (int64_t rows = 1; rows < 20000; rows = rows * 5 / 4 + 1) {
            int64_t wide = head_rows_in_memory(vocab[v], 1), chunks = head_chunks(rows, vocab[v], false),
                    each = head_rows(rows, chunks);
            assert_true(each >= 1 && each <= rows && each * chunks >= rows);
            assert_true(each * wide <= HEAD_LOGITS || each == 1);
            assert_true(each < HEAD_TILE || each % HEAD_TILE == 0 || each == rows);
            if (chunks > 1) assert_true(head_rows(rows, chunks - 1) * wide > HEAD_LOGITS);
            int64_t large = head_rows(rows, head_chunks(rows, vocab[v], true));  // on a GPU
            assert_true(large >= each && (large * wide <= HEAD_LOGITS || large <= HEAD_ROWS_GPU));
            assert_true(large == rows || large * wide > HEAD_LOGITS / 2 || large > HEAD_ROWS_GPU / 2);
        }
    assert_int_equal(head_rows(65536, head_chunks(65536, 50257, true)), HEAD_ROWS_GPU);
    assert_int_equal(head_chunks(65536, 256, true), 1);
    assert_int_equal(head_rows(50, 3), 17);
    assert_int_equal(head_rows(50, 1000), 1);
    assert_int_equal(head_rows(1000, 3), 384);
}

// --- one step --------------------------------------------------------------------------------------------------------

typedef struct step_found {
    double loss[8];
    int params;
    float *grad[MOST];
    int64_t count[MOST];
    int wte;
} step_found;

static step_found first_step(const char *dir, const char *more) {
    config c;
    session x;
    step_found f = {0};
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, 1));
    OK(step_gradient(&x.runner, x.data, 1));
    memcpy(f.loss, x.runner.results.sample_loss.data, sizeof f.loss);
    f.params = x.net->params;
    assert_true(f.params <= MOST);
    f.wte = model_find(x.net, "wte.weight");
    for (int i = 0; i < f.params; i++) {
        const tensor *grad = &x.state.grad[x.state.sum_buffer * f.params + i];
        if (x.net->param[i].tied >= 0) continue;  // its sum is in the other one's
        f.count[i] = tensor_count(grad);
        f.grad[i] = malloc((size_t)f.count[i] * sizeof(float));
        memcpy(f.grad[i], grad->data, (size_t)f.count[i] * sizeof(float));
    }
    session_close(&x);
    return f;
}

static void free_step(step_found *f) {
    for (int i = 0; i < f->params; i++) free(f->grad[i]);
}

static double distance(const float *a, const float *b, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) diff += square((double)a[i] - b[i]), norm += square(b[i]);
    return sqrt(diff / norm);
}

static void only_the_heads_weight_is_another_sum(void **state) {
    (void)state;
    static const char *const kinds[] = {"", "dropout = 0.1\n[precision]\ncompute = bf16\n",
                                        "[precision]\ncompute = fp16\n[device]\nsimd = portable\n"};
    static const int chunks[] = {3, 7, ROWS};
    char *dir = data_dir(), more[256];
    for (int k = 0; k < 3; k++) {
        in_chunks(more, sizeof more, 1, kinds[k]);
        step_found one = first_step(dir, more);
        for (int n = 0; n < 3; n++) {
            in_chunks(more, sizeof more, chunks[n], kinds[k]);
            step_found f = first_step(dir, more);
            assert_memory_equal(f.loss, one.loss, sizeof one.loss);
            for (int i = 0; i < f.params; i++)
                if (f.grad[i] && i != f.wte)
                    assert_memory_equal(f.grad[i], one.grad[i], (size_t)f.count[i] * sizeof(float));
            double off = distance(f.grad[f.wte], one.grad[f.wte], f.count[f.wte]);
            if (!(off > 0 && off < 1e-6))
                fail_msg("kind %d, %d chunks: the embedding's gradient is off by %g in relative L2", k, chunks[n], off);
            free_step(&f);
        }
        free_step(&one);
    }
    drop_dir(dir);
}

// --- runs ------------------------------------------------------------------------------------------------------------

typedef struct course {
    double eval[2];
    char text[2][64], hash[17];
} course;

// An evaluation and a sample before the first step and after the last.
static course train(const char *dir, const char *more) {
    config c;
    session x;
    course k = {0};
    step_result s;
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    OK(session_init(&x));
    OK(session_feed(&x, STEPS));
    for (int i = 0; i < 2; i++) {
        int64_t windows;
        char *text;
        for (int step = 0; i && step < STEPS; step++) OK(session_step(&x, &s));
        OK(eval_loss(&x, 0, &k.eval[i], &windows));  // the last round has fewer rows
        OK(session_sample(&x, c.sample.prompt, &text));
        snprintf(k.text[i], sizeof k.text[i], "%s", text);
        free(text);
    }
    OK(session_fetch(&x));
    OK(ckpt_hash(&x.state.ckpt, k.hash));
    session_close(&x);
    return k;
}

// Open is one chunk here, which is what there was before there were chunks. The weights are other ones soon, and no
// others before.
static void a_run_sees_how_many_there_are(void **state) {
    (void)state;
    char *dir = data_dir(), more[128];
    course open = train(dir, ""), three;
    for (int chunks = 1; chunks <= 3; chunks += 2) {
        in_chunks(more, sizeof more, chunks, "");
        three = train(dir, more);
        assert_true(three.eval[0] == open.eval[0]);
        assert_string_equal(three.text[0], open.text[0]);
        if (chunks == 1) assert_memory_equal(&three, &open, sizeof open);
    }
    assert_string_not_equal(three.hash, open.hash);
    assert_true(fabs(three.eval[1] - open.eval[1]) < 1e-4 * open.eval[1]);
    drop_dir(dir);
}

// What does not decide the bits of one chunk does not decide those of three; the hashes are those of the first build
// that had chunks.
static void three_chunks_have_the_same_bits_everywhere(void **state) {
    (void)state;
    static const struct {
        const char *compute, *hash;
    } types[] = {{"fp32", "9077cd005782df9f"}, {"bf16", "f37f38b5ffaf75f5"}, {"fp16", "d67aa5b7c052ceae"}};
    static const char *const others[] = {"[device]\nthreads = 1\nsimd = auto\n",
                                         "[device]\nthreads = 4\nsimd = auto\n",
                                         "[device]\nthreads = 2\nsimd = portable\n",
                                         "[parallel]\nrecompute = selective\n",
                                         "[parallel]\nrecompute = block\n",
                                         "[parallel]\noffload = yes\n",
                                         "[parallel]\nzero = 3\n"};
    char *dir = data_dir(), more[256];
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 7; i++) {
            snprintf(more, sizeof more, "[model]\nhead_chunks = 3\ndropout = 0.1\n[precision]\ncompute = %s\n%s",
                     types[t].compute, others[i]);
            course k = train(dir, more);
            if (strcmp(k.hash, types[t].hash) != 0)
                fail_msg("%s, %s: hash %s, expected %s", types[t].compute, others[i], k.hash, types[t].hash);
        }
    drop_dir(dir);
}

// --- the tied weight -------------------------------------------------------------------------------------------------

// Where a step is one micro-batch of one lane, the embedding's gradient is added to where the head's is. The hashes are
// those of the last build that kept the two apart and added them at the end; in 16 bits with dropout, without which the
// residual stream is rounded less often since then.
static void one_micro_batch_adds_to_the_heads_gradient(void **state) {
    (void)state;
    static const struct {
        const char *more, *hash;
    } runs[] = {
        {"[model]\nhead_chunks = 1\n", "408cf785ac18046c"},
        {"[model]\nhead_chunks = 3\n", "7e3d3fa58075cd91"},
        {"[model]\nhead_chunks = 3\ndropout = 0.1\n[precision]\ncompute = bf16\n[parallel]\nrecompute = block\n",
         "d8c6fd4290d3d96d"},
        {"[model]\nhead_chunks = 1\ndropout = 0.1\n[precision]\ncompute = fp16\n[parallel]\noffload = yes\n[device]\nsimd = portable\nthreads = 3\n",
         "b30bfbab70aedd5a"},
    };
    char *dir = data_dir(), more[256];
    for (int i = 0; i < 4; i++) {
        snprintf(more, sizeof more, "[batch]\nglobal = 4\nmicro = 4\nlanes = 1\n%s", runs[i].more);
        course k = train(dir, more);
        if (strcmp(k.hash, runs[i].hash) != 0) fail_msg("run %d: hash %s, expected %s", i, k.hash, runs[i].hash);
    }
    drop_dir(dir);
}

// --- memory ----------------------------------------------------------------------------------------------------------

static size_t activations(const char *dir, int chunks) {
    config c;
    session x;
    plan_rank p;
    comm_place here = {.host = "here"};
    char more[64];
    in_chunks(more, sizeof more, chunks, "");
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    size_t bytes = x.runner.memory.bytes;
    session_close(&x);
    OK(plan_one(&c, 0, 1, &here, &p));
    assert_int_equal(p.activations, bytes);
    return bytes;
}

static void memory_holds_the_logits_of_one_chunk(void **state) {
    (void)state;
    char *dir = data_dir();
    size_t row = VOCAB_ROWS * sizeof(float), one = activations(dir, 1);
    assert_int_equal(one - activations(dir, 3), (ROWS - 17) * row);
    assert_int_equal(one - activations(dir, ROWS), (ROWS - 1) * row);
    drop_dir(dir);
}

// Of a buffer, beside those of the values.
static int64_t gradient_floats(const char *dir, const char *more) {
    config c;
    session x;
    load_config(&c, dir, small_model, more);
    OK(session_open(&x, &c, SESSION_TRAIN, NULL));
    int64_t beyond = tensor_count(&x.state.slab[0]) - (int64_t)x.state.zero.values;
    session_close(&x);
    return beyond;
}

static void memory_holds_the_tied_gradient_once_where_it_can(void **state) {
    (void)state;
    char *dir = data_dir();
    assert_int_equal(gradient_floats(dir, "[batch]\nglobal = 2\nmicro = 2\nlanes = 1\n"), 0);
    assert_int_equal(gradient_floats(dir, "[batch]\nglobal = 4\nmicro = 2\nlanes = 1\n"), VOCAB_ROWS * 36);
    assert_int_equal(gradient_floats(dir, "[batch]\nglobal = 4\nmicro = 2\nlanes = 2\n"), VOCAB_ROWS * 36);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_all_rows_and_hold_what_they_may),
        cmocka_unit_test(only_the_heads_weight_is_another_sum),
        cmocka_unit_test(a_run_sees_how_many_there_are),
        cmocka_unit_test(three_chunks_have_the_same_bits_everywhere),
        cmocka_unit_test(one_micro_batch_adds_to_the_heads_gradient),
        cmocka_unit_test(memory_holds_the_logits_of_one_chunk),
        cmocka_unit_test(memory_holds_the_tied_gradient_once_where_it_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
