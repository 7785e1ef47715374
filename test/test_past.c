// test/test_past.c: texts that grow over keys and values that are kept: the same bits as without them, whatever else
// grows at the same time. `test_past cuda` runs on a GPU, where a whole text goes through the same operation: positions
// one by one, or all at once.
#include "test/support/run.h"
#include "trainer/restore.h"
#include "trainer/sample.h"

enum { T = 70, V = 97, TEXTS = 5, LONG = 66 };

typedef struct kind {
    const char *name, *model;
    int slices;
} kind;

#define QWEN \
    "type = llama\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_dim = 10\nembed = 24\nhidden = 40\nqk_norm = yes\nbias = all\nwindow = 21\n"

#define GEMMA \
    "type = gemma\nlayers = 3\nheads = 4\nkv_heads = 2\nhead_dim = 10\nembed = 24\nhidden = 40\npattern = 2\nwindow = 21\nrope_factor = 8\n"

// Odd heads; shared keys, norms of queries and keys, biases, a window; shared keys, stretched wavelengths; heads that
// lie slice after slice; a window in some of the layers, with angles of its own.
static const kind kinds[] = {
    {"gpt", "type = gpt\nlayers = 2\nheads = 3\nembed = 33\n", 1},
    {"qwen", QWEN, 1},
    {"llama",
     "type = llama\nlayers = 2\nheads = 4\nkv_heads = 1\nembed = 32\ntied = yes\nrope_scaling = llama3\nrope_original = 16\n",
     1},
    {"gpt, slices", "type = gpt\nlayers = 2\nheads = 4\nembed = 32\n", 4},
    {"qwen, slices", QWEN, 2},
    {"gemma", GEMMA, 1},
    {"gemma, slices", GEMMA, 2},
};
static const char *const types[] = {"fp32", "bf16", "fp16"};

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

static void rig_open(rig *r, const kind *k, const char *type, session_kind what, int batch, const char *device) {
    char model[1024], more[256];
    r->dir = make_dir();
    write_tokens(r->dir, "text.bin", 4000);
    snprintf(model, sizeof model,
             "[data]\nval =\n[model]\n%scontext = %d\nvocab = %d\n[batch]\nglobal = 2\nmicro = 2\n", k->model, T, V);
    snprintf(more, sizeof more,
             "[precision]\ncompute = %s\n[parallel]\nslices = %d\n[sample]\nbatch = %d\ntokens = 12\nprompt = A\n%s",
             type, k->slices, batch, device);
    load_config(&r->c, r->dir, model, more);
    OK(session_open(&r->x, &r->c, what, NULL));
    OK(session_init(&r->x));
}

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

static void fill(int32_t *tokens, int seed) {
    for (int i = 0; i < T; i++) tokens[i] = (i * 31 + seed * 17 + i * i * seed) % V;
}

static void expect_same(const kind *k, const char *type, int text, int64_t count, const float *got,
                        const float *expected) {
    for (int v = 0; v < V; v++)
        if (memcmp(&got[v], &expected[v], sizeof *got))
            fail_msg("%s %s: text %d, after %d tokens, score %d: %.9g, expected %.9g", k->name, type, text, (int)count,
                     v, got[v], expected[v]);
}

// What follows the first `count` tokens of each text, of which the first `kept` were there before.
static void ask_all(rig *r, int32_t tokens[][T], const int64_t *count, const int64_t *kept, int texts,
                    float scores[][V]) {
    predict_ask ask[TEXTS];
    for (int i = 0; i < texts; i++)
        ask[i] = (predict_ask){
            .kv_slot = i, .tokens = tokens[i], .count = count[i], .kept = kept ? kept[i] : 0, .scores = scores[i]};
    OK(evaluator_ask(&r->x.evaluator, ask, texts));
}

// Whole texts, in a KV slot that no text has: on a CPU by attention_forward, which training uses; on a GPU by
// attention_past, all positions at once.
static void ask_whole(rig *r, int32_t *tokens, int64_t count, float *scores) {
    predict_ask whole = {.kv_slot = TEXTS, .tokens = tokens, .count = count, .scores = scores};
    if (device_about(r->x.dev)->kind == DEVICE_CPU) OK(evaluator_scores(&r->x.evaluator, tokens, count, scores));
    else OK(evaluator_ask(&r->x.evaluator, &whole, 1));
}

// Whether text i is compared after this round. A key or value that is wrong stays wrong for the rounds that follow. So
// on a simulated GPU, where a whole text takes a while, every second round says as much.
static bool asks(const rig *r, int round, int i) {
    return device_about(r->x.dev)->kind == DEVICE_CPU || (round + i) % 2 == 1;
}

// Texts of several lengths grow together, a token at a time, some in jumps; one begins anew halfway.
static void grow(rig *r, const kind *k, const char *type) {
    static int32_t tokens[TEXTS][T];
    static float scores[TEXTS][V];
    float expected[V];
    int64_t count[TEXTS] = {1, 7, 30, 2, 50}, kept[TEXTS] = {0};
    for (int i = 0; i < TEXTS; i++) fill(tokens[i], i + 1);
    for (int round = 0; round < 16; round++) {
        ask_all(r, tokens, count, kept, TEXTS, scores);
        for (int i = 0; i < TEXTS; i++) {
            if (!asks(r, round, i)) continue;
            ask_whole(r, tokens[i], count[i], expected);
            expect_same(k, type, i, count[i], scores[i], expected);
        }
        for (int i = 0; i < TEXTS; i++) kept[i] = count[i], count[i] += round % 5 == i ? 3 : 1;
        if (round == 8) kept[2] = 0, count[2] = 11;
        for (int i = 0; i < TEXTS; i++)
            if (count[i] > LONG) kept[i] = count[i] = 1, kept[i] = 0;
    }
}

static void scores_do_not_depend_on_what_is_kept(void **state) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int t = 0; t < 3; t++) {
            rig r;
            rig_open(&r, &kinds[k], types[t], SESSION_INFERENCE, TEXTS + 1, *state);
            grow(&r, &kinds[k], types[t]);
            rig_close(&r);
        }
}

// --- texts -----------------------------------------------------------------------------------------------------------

static void write_samples(session *x, const char *const *prompts, int count, char **out) {
    sample_text texts[8] = {{0}};
    for (int i = 0; i < count; i++) texts[i].prompt = prompts[i];
    OK(session_samples(x, texts, count, NULL));
    for (int i = 0; i < count; i++) {
        assert_string_equal(texts[i].ended, "length");
        assert_int_equal(texts[i].tokens, 12);
        assert_int_equal(texts[i].prompt_tokens, strlen(prompts[i]));
        out[i] = texts[i].text;
    }
}

// More prompts than KV slots, beyond the context: five at a time or one, in a run that trains or not, the same texts.
static void texts_do_not_depend_on_their_company(void **state) {
    static const char *const prompts[] = {
        "A", "HGFEDCBA", "", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJK", "1234", "B", "A"};
    enum { COUNT = sizeof prompts / sizeof *prompts };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char *together[COUNT], *one[COUNT], *training[COUNT];
        rig r;
        rig_open(&r, &kinds[k], "fp32", SESSION_INFERENCE, TEXTS, *state);
        write_samples(&r.x, prompts, 2, together);  // its slots are used again
        free(together[0]), free(together[1]);
        write_samples(&r.x, prompts, COUNT, together);
        rig_close(&r);
        rig_open(&r, &kinds[k], "fp32", SESSION_INFERENCE, 1, *state);
        write_samples(&r.x, prompts, COUNT, one);
        rig_close(&r);
        rig_open(&r, &kinds[k], "fp32", SESSION_TRAIN, TEXTS, *state);
        write_samples(&r.x, prompts, COUNT, training);
        rig_close(&r);
        for (int i = 0; i < COUNT; i++) {
            assert_string_equal(one[i], together[i]);
            assert_string_equal(training[i], together[i]);
        }
        assert_string_not_equal(together[0], together[6]);  // each has draws of its own
        for (int i = 0; i < COUNT; i++) free(together[i]), free(one[i]), free(training[i]);
    }
}

int main(int argc, char **argv) {
    char *device =
        argc > 1 && strcmp(argv[1], "cuda") == 0 ? "[device]\nbackend = cuda\n" : "[device]\nbackend = cpu\n";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(scores_do_not_depend_on_what_is_kept, device),
        cmocka_unit_test_prestate(texts_do_not_depend_on_their_company, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
