// test/test_past.c: texts that grow over keys and values that are kept: the same bits as without them, whatever else
// grows at the same time. `test_past cuda` runs on a GPU, where a whole text goes through the same operation: positions
// one by one, or all at once. `test_past cuda K` is a third of it, K from 0 to 2: every model in one type.
//
// Of T5 what grows is said of a text that was read before. Nothing is kept of either for what it is compared with.
#include "test/support/run.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

enum { T = 70, V = 97, TEXTS = 5, LONG = 66, ROOM = 2 * T };

typedef struct kind {
    const char *name, *model;
    int slices;
} kind;

#define QWEN \
    "type = llama\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_dim = 10\nembed = 24\nhidden = 40\nqk_norm = yes\nbias = all\nwindow = 21\n"

#define GEMMA \
    "type = gemma\nlayers = 3\nheads = 4\nkv_heads = 2\nhead_dim = 10\nembed = 24\nhidden = 40\npattern = 2\nwindow = 21\nrope_factor = 8\n"

// With room for as many tokens as it reads.
#define T5 \
    "type = t5\nlayers = 2\ndecoder_layers = 3\nheads = 4\nhead_dim = 6\nembed = 20\nhidden = 28\nbuckets = 8\nmax_distance = 20\nnoise = 0.5\nspan = 2\nsentinel_token = 96\n"

// Odd heads; shared keys, norms of queries and keys, biases, a window; shared keys, stretched wavelengths; heads that
// lie slice after slice; a window in some of the layers, with angles of its own; two texts.
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
    {"t5", T5, 1},
    {"t5 1.0, slices", T5 "activation = relu\ntied = yes\n", 2},
};
static const char *const types[] = {"fp32", "bf16", "fp16"};

// What is asked for: where, and which third, or -1 for all.
typedef struct part {
    const char *device;
    int third;
} part;

static bool has(const part *p, size_t kind, int type) { return p->third < 0 || ((int)kind + type) % 3 == p->third; }

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
    for (int i = 0; i < ROOM; i++) tokens[i] = (i * 31 + seed * 17 + i * i * seed) % V;
}

static void expect_same(const kind *k, const char *type, int text, int64_t count, const float *got,
                        const float *expected) {
    for (int v = 0; v < V; v++)
        if (memcmp(&got[v], &expected[v], sizeof *got))
            fail_msg("%s %s: text %d, after %d tokens, score %d: %.9g, expected %.9g", k->name, type, text, (int)count,
                     v, got[v], expected[v]);
}

// Texts that grow: what follows the first `count` tokens of each, of which the first `kept` were there before. read: of
// the text that each is said of.
typedef struct growing {
    int32_t tokens[TEXTS][ROOM];
    int64_t count[TEXTS], kept[TEXTS], read[TEXTS];
    float scores[TEXTS][V];
} growing;

static predict_ask ask_for(const rig *r, growing *g, int i) {
    int64_t reads = r->x.net->reads;
    return (predict_ask){.kv_slot = i,
                         .tokens = g->tokens[i],
                         .count = reads + g->count[i],
                         .kept = g->kept[i] ? reads + g->kept[i] : 0,
                         .read = reads ? g->read[i] : 0,
                         .scores = g->scores[i]};
}

static void ask_all(rig *r, growing *g) {
    predict_ask ask[TEXTS];
    for (int i = 0; i < TEXTS; i++) ask[i] = ask_for(r, g, i);
    OK(evaluator_ask(&r->x.evaluator, ask, TEXTS));
}

// Whole texts, in a KV slot that no text has: on a CPU by attention_forward, which training uses; on a GPU by
// attention_past, all positions at once. Two texts as training has them.
static void ask_whole(rig *r, growing *g, int i, float *scores) {
    predict_ask whole = ask_for(r, g, i);
    whole.kv_slot = TEXTS, whole.kept = 0, whole.scores = scores;
    if (device_about(r->x.dev)->kind == DEVICE_CPU || r->x.net->reads) OK(evaluator_scores(&r->x.evaluator, &whole));
    else OK(evaluator_ask(&r->x.evaluator, &whole, 1));
}

// Whether text i is compared after this round. A key or value that is wrong stays wrong for the rounds that follow. So
// on a simulated GPU, where a whole text takes a while, and two texts longer, fewer rounds say as much.
static bool asks(const rig *r, int round, int i) {
    return device_about(r->x.dev)->kind == DEVICE_CPU || (round + i) % (r->x.net->reads ? 5 : 2) == 1;
}

// Texts of several lengths grow together, a token at a time, some in jumps; one begins anew halfway.
static void grow(rig *r, const kind *k, const char *type) {
    static growing g;
    float expected[V];
    g = (growing){.count = {1, 7, 30, 2, 50}, .read = {T, 1, 64, 9, 65}};
    for (int i = 0; i < TEXTS; i++) fill(g.tokens[i], i + 1);
    for (int round = 0; round < 16; round++) {
        ask_all(r, &g);
        for (int i = 0; i < TEXTS; i++) {
            if (!asks(r, round, i)) continue;
            ask_whole(r, &g, i, expected);
            expect_same(k, type, i, g.count[i], g.scores[i], expected);
        }
        for (int i = 0; i < TEXTS; i++) g.kept[i] = g.count[i], g.count[i] += round % 5 == i ? 3 : 1;
        if (round == 8) g.kept[2] = 0, g.count[2] = 11, g.read[2] = 33;
        for (int i = 0; i < TEXTS; i++)
            if (g.count[i] > LONG) g.kept[i] = 0, g.count[i] = 1;
    }
}

static void scores_do_not_depend_on_what_is_kept(void **state) {
    const part *p = *state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int t = 0; t < 3; t++) {
            rig r;
            if (!has(p, k, t)) continue;
            rig_open(&r, &kinds[k], types[t], SESSION_INFERENCE, TEXTS + 1, p->device);
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
        bool whole = strcmp(texts[i].ended, "length") == 0;
        assert_true(whole || (x->net->reads && strcmp(texts[i].ended, "end of text") == 0));
        if (whole) assert_int_equal(texts[i].tokens, 12);
        assert_int_equal(texts[i].prompt_tokens, strlen(prompts[i]));
        out[i] = texts[i].text;
    }
}

// More prompts than KV slots, beyond the context: five at a time or one, in a run that trains or not, the same texts.
static void texts_do_not_depend_on_their_company(void **state) {
    static const char *const prompts[] = {
        "A", "HGFEDCBA", "", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJK", "1234", "B", "A"};
    enum { COUNT = sizeof prompts / sizeof *prompts };
    const part *p = *state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!has(p, k, 0)) continue;
        char *together[COUNT], *one[COUNT], *training[COUNT];
        rig r;
        rig_open(&r, &kinds[k], "fp32", SESSION_INFERENCE, TEXTS, p->device);
        write_samples(&r.x, prompts, 2, together);  // its slots are used again
        free(together[0]), free(together[1]);
        write_samples(&r.x, prompts, COUNT, together);
        rig_close(&r);
        rig_open(&r, &kinds[k], "fp32", SESSION_INFERENCE, 1, p->device);
        write_samples(&r.x, prompts, COUNT, one);
        rig_close(&r);
        rig_open(&r, &kinds[k], "fp32", SESSION_TRAIN, TEXTS, p->device);
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
    bool cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    part all = {cuda ? "[device]\nbackend = cuda\n" : "[device]\nbackend = cpu\n", argc > 2 ? atoi(argv[2]) : -1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(scores_do_not_depend_on_what_is_kept, &all),
        cmocka_unit_test_prestate(texts_do_not_depend_on_their_company, &all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
