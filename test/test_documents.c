// test/test_documents.c: samples that are several documents. Beside a model that reads them stands one that reads each
// document in a row of its own: losses and gradients must be the same, to the bit where a document begins with a tile
// of attention. And where documents begin: in windows of tokens, after the token that ends one; in rows of
// conversations, where `pack` has put as many into each as fit.
#include "data/text/chat_spool.h"
#include "data/text/pack.h"
#include "test/support/expect.h"
#include "test/support/models.h"
#include "test/support/place.h"
#include "test/support/square.h"

#undef OK
#define OK(call) \
    do { \
        if ((call) != ERR_OK) fail_msg("%s: %s", #call, err_last()->text); \
    } while (0)

enum { T = 140, VOCAB = 37, ROWS = 4 };

// --- models ----------------------------------------------------------------------------------------------------------

typedef struct kind {
    const char *name;
    int type;
    any_options o;
} kind;

static const kind kinds[] = {
    {"gpt", MODEL_gpt, {.gpt = {GPT_OPTIONS(2, 2, 24, VOCAB, T, 2)}}},
    {"llama", MODEL_llama, {.llama = {LLAMA_OPTIONS(2, T, 1)}}},
    {"llama, with a window", MODEL_llama, {.llama = {LLAMA_OPTIONS(2, T, 2), .window = 37, .qk_norm = true}}},
    {"gemma", MODEL_gemma, {.gemma = {GEMMA_OPTIONS(2)}}},
};

typedef struct rig {
    net net;
    tensor in[1][MODEL_INPUTS], w[MOST], dw[MOST];
} rig;

static void rig_open(rig *r, const kind *k, bool documents, int64_t B, recomputation recompute) {
    any_options o = k->o;
    if (k->type == MODEL_gemma) o.gemma.context = T;
    *r = (rig){0};
    net_open(&r->net, k->type, &o, &(model_rule){.micro = B, .documents = documents},
             (model_plan){.compute = FP32, .B = B, .recompute = recompute}, 1, 2);
    for (int i = 0; i < r->net.m->params; i++) {
        const param *p = &r->net.m->param[i];
        int64_t rows = p->rows_in_memory ? p->rows_in_memory : p->size[0];
        OK(arena_tensor(&r->net.memory, &r->w[i], FP32, p->dims, rows, p->size[1], 1, 1));
        OK(arena_tensor(&r->net.memory, &r->dw[i], FP32, p->dims, rows, p->size[1], 1, 1));
    }
    declare_inputs(&r->net, r->in, 1, B);
    net_commit(&r->net, 0);
    ((step_state *)r->net.step.data)->loss_scale = 1;
    for (int i = 0; i < r->net.m->params; i++) {
        r->w[i].size[0] = r->net.m->param[i].size[0], r->dw[i].size[0] = r->net.m->param[i].size[0];
        fill_param(&r->net, i, &r->w[i]);
    }
}

static int32_t *input(rig *r, const char *name) {
    for (int i = 0; i < r->net.m->inputs; i++)
        if (strcmp(r->net.m->input[i].name, name) == 0) return r->in[0][i].data;
    fail_msg("%s reads no %s", r->net.m->type->name, name);
    return NULL;
}

static void train(rig *r, int64_t B) {
    pass p = {.ops = device_ops(r->net.dev),
              .s = r->net.s,
              .B = B,
              .w = r->w,
              .dw = r->dw,
              .state = r->net.step.data,
              .loss_factor = 0.01f,
              .losses = r->net.losses};
    memcpy(p.in, r->in[0], sizeof p.in);
    flow_use(&r->net.flow, &p);
    OK(model_forward(r->net.m, &p));
    OK(model_backward(r->net.m, &p));
    OK(stream_wait(r->net.s));
}

// Document k begins at begin[k]; the last one ends with the row.
static void fill(rig *r, const int *begin, int n, bool together) {
    int32_t *tokens = input(r, "tokens"), *targets = input(r, "targets");
    for (int64_t i = 0; i < (together ? 1 : n) * T; i++) tokens[i] = 7, targets[i] = -1;
    for (int k = 0; k < n; k++) {
        int end = k + 1 < n ? begin[k + 1] : T;
        for (int t = begin[k]; t < end; t++) {
            int at = together ? t : k * T + t - begin[k];
            tokens[at] = (t * 29 + t / 7) % VOCAB;
            targets[at] = t + 1 < end ? (t * 29 + 29 + (t + 1) / 7) % VOCAB : -1;
            if (together) input(r, "positions")[at] = t - begin[k];
        }
    }
}

static void expect_losses(const kind *k, const rig *all, const rig *alone, const int *begin, int n) {
    const float *a = all->net.losses.data, *b = alone->net.losses.data;
    for (int d = 0; d < n; d++)
        for (int t = begin[d]; t < (d + 1 < n ? begin[d + 1] : T); t++) {
            float x = a[t], y = b[d * T + t - begin[d]];
            bool same = begin[d] % 64 == 0 ? memcmp(&x, &y, 4) == 0 : fabsf(x - y) < 2e-6f * (1 + fabsf(y));
            if (!same)
                fail_msg("%s: document at %d, position %d: loss %.9g, and %.9g alone", k->name, begin[d], t, x, y);
        }
}

static void expect_gradients(const kind *k, const rig *all, const rig *alone) {
    for (int i = 0; i < all->net.m->params; i++) {
        const float *a = all->dw[i].data, *b = alone->dw[i].data;
        double error = 0, power = 0;
        for (int64_t e = 0; e < tensor_count(&all->dw[i]); e++)
            error += square((double)a[e] - (double)b[e]), power += square((double)b[e]);
        if (!(error <= 1e-10 * power + 1e-18))
            fail_msg("%s: the gradient of %s: nmse %.3g", k->name, all->net.m->param[i].name, error / power);
    }
}

static void packed_samples_are_those_alone(void **state) {
    (void)state;
    static const int begins[][ROWS] = {{0, 64, 128}, {0, 13, 14, 77}, {0, 64, 65, 139}, {0}};
    static const int count[] = {3, 4, 4, 1};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int c = 0; c < 4; c++) {
            rig all, alone;
            rig_open(&all, &kinds[i], true, 1, c == 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE);
            rig_open(&alone, &kinds[i], false, count[c], RECOMPUTE_NONE);
            fill(&all, begins[c], count[c], true), fill(&alone, begins[c], count[c], false);
            train(&all, 1), train(&alone, count[c]);
            expect_losses(&kinds[i], &all, &alone, begins[c], count[c]);
            expect_gradients(&kinds[i], &all, &alone);
            net_close(&all.net), net_close(&alone.net);
        }
}

// A text that is being continued is one document, without places. So [data] documents does not change what follows it.
static void a_text_that_is_continued_is_one(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        float scores[2][VOCAB];
        for (int documents = 0; documents < 2; documents++) {
            rig r;
            rig_open(&r, &kinds[i], documents, 1, RECOMPUTE_NONE);
            fill(&r, (const int[]){0, 3, 77}, documents ? 3 : 1, documents);
            for (int t = 0; t < T; t++) input(&r, "tokens")[t] = t * t % VOCAB;
            pass p = {.ops = device_ops(r.net.dev), .s = r.net.s, .B = 1, .w = r.w, .losses = r.net.losses};
            p.predict = true, p.scores = (tensor){scores[documents], FP32, 2, {1, VOCAB, 1, 1}};
            memcpy(p.in, r.in[0], sizeof p.in);
            flow_use(&r.net.flow, &p);
            OK(model_forward(r.net.m, &p));
            OK(stream_wait(r.net.s));
            net_close(&r.net);
        }
        assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    }
}

// --- windows of tokens -----------------------------------------------------------------------------------------------

enum { W = 10 };
static const tensor_spec wanted[] = {{.name = "tokens", .type = INT32, .dims = 1, .size = {W, 1, 1}, .limit = 127},
                                     {.name = "positions", .type = INT32, .dims = 1, .size = {W, 1, 1}, .limit = W},
                                     {.name = "targets", .type = INT32, .dims = 1, .size = {W, 1, 1}, .limit = 127}};

static source_options wants_of(const char *files, source_format format, int64_t end) {
    return (source_options){.files = files,
                            .format = format,
                            .wanted = wanted,
                            .inputs = 3,
                            .documents = true,
                            .document_end = end,
                            .answers = end < 0};
}

static void expect_sample(source *s, int64_t k, const int32_t want[3][W]) {
    static const char *const what[] = {"tokens", "positions", "targets"};
    int32_t got[3][W];
    OK(source_look(s, k, (void *const[]){got[0], got[1], got[2]}));
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < W; t++)
            if (got[i][t] != want[i][t])
                fail_msg("sample %d: %s[%d] is %d, expected %d", (int)k, what[i], t, got[i][t], want[i][t]);
}

// 9 ends a document, also one that has nothing else.
static void a_token_ends_documents(void **state) {
    static const uint16_t tokens[] = {1, 2, 9, 3, 4, 5, 6, 9, 9, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    source *s;
    OK(io_write_file(at(*state, "tokens.bin"), tokens, sizeof tokens, NULL));
    source_options o = wants_of(at(*state, "tokens.bin"), FORMAT_RAW16, 9);
    OK(source_open(&s, &o));
    assert_int_equal(source_about(s).samples, 2);
    expect_sample(s, 0,
                  (const int32_t[3][W]){{1, 2, 9, 3, 4, 5, 6, 9, 9, 7},
                                        {0, 1, 2, 0, 1, 2, 3, 4, 0, 0},
                                        {2, 9, -1, 4, 5, 6, 9, -1, -1, 8}});
    expect_sample(s, 1,
                  (const int32_t[3][W]){{8, 9, 10, 11, 12, 13, 14, 15, 16, 17},
                                        {0, 1, 0, 1, 2, 3, 4, 5, 6, 7},
                                        {9, -1, 11, 12, 13, 14, 15, 16, 17, 18}});
    source_close(s);
    o.ignores = true, o.ignored = 5;
    OK(source_open(&s, &o));
    expect_sample(s, 0,
                  (const int32_t[3][W]){{1, 2, 9, 3, 4, 5, 6, 9, 9, 7},
                                        {0, 1, 2, 0, 1, 2, 3, 4, 0, 0},
                                        {2, 9, -1, 4, -1, 6, 9, -1, -1, 8}});
    source_close(s);
    o.document_end = -1;
    assert_error(source_open(&s, &o), ERR_CONFIG, "set document_end to the token that ends one");
}

// --- rows of conversations -------------------------------------------------------------------------------------------

// A conversation of n bytes: a letter and a line's end, and as the answer another letter, n - 3 times, with one.
static int put_chat(char *to, char prompt, char answer, int n) {
    int at = sprintf(to, "{\"prompt\": \"%c\", \"response\": \"", prompt);
    for (int i = 0; i < n - 3; i++) to[at++] = answer;
    return at + sprintf(to + at, "\"}\n");
}

// _ is what fills the row up, and a target that does not count.
static void expect_row(source *s, int64_t k, const char *text, const char *places, const char *targets) {
    int32_t want[3][W];
    for (int t = 0; t < W; t++)
        want[0][t] = text[t] == '_' ? 0 : text[t], want[1][t] = places[t] - '0',
        want[2][t] = targets[t] == '_' ? -1 : targets[t];
    expect_sample(s, k, (const int32_t(*)[W])want);
}

// Rows of 11 tokens: of two with room the fuller one takes the third; the fourth fills the other; what is too long is
// cut, and what fits nowhere begins a row.
static void rows_are_filled(void **state) {
    char text[512];
    const char answer[] = "ABCDEF";
    const int length[] = {5, 7, 4, 6, 15, 4};
    int n = 0;
    pack_report r;
    source *s;
    char shards[IO_PATH], prefix[IO_PATH];
    for (int k = 0; k < 6; k++) n += put_chat(text + n, (char)('a' + k), answer[k], length[k]);
    OK(io_write_file(at(*state, "chats.jsonl"), text, (size_t)n, NULL));
    OK(io_path(prefix, "%s", at(*state, "rows")));
    OK(io_path(shards, "%s-train-*.bin", prefix));
    pack_options o = {.input = at(*state, "chats.jsonl"),
                      .output = prefix,
                      .shard_tokens = 1000,
                      .template = CHAT_PLAIN,
                      .context = W,
                      .documents = true};
    OK(pack_run(&o, &r));
    assert_int_equal(r.documents, 6), assert_int_equal(r.rows, 4), assert_int_equal(r.cut, 1);
    assert_int_equal(r.filled, 11 + 11 + 11 + 4), assert_int_equal(r.answers, 3 + 5 + 2 + 4 + 9 + 2);
    source_options from = wants_of(shards, FORMAT_AUTO, -1);
    OK(source_open(&s, &from));
    assert_int_equal(source_about(s).samples, 4);
    expect_row(s, 0, "a\nAA\nd\nDDD", "0123401234", "_AA\n__DDD\n");
    expect_row(s, 1, "b\nBBBB\nc\nC", "0123456012", "_BBBB\n__C\n");
    expect_row(s, 2, "e\nEEEEEEEE", "0123456789", "_EEEEEEEEE");
    expect_row(s, 3, "f\nF\n______", "0123012345", "_F\n_______");
    source_close(s);
    from.documents = false;
    assert_error(source_open(&s, &from), ERR_CONFIG, "set [data] documents = yes");
    from.documents = true, from.document_end = 3;
    assert_error(source_open(&s, &from), ERR_CONFIG, "set [data] document_end = -1");
    o.template = CHAT_LABELS;
    assert_error(pack_run(&o, &r), ERR_CONFIG, "expected template = auto, chatml, llama3 or plain");
}

// A row for each word of `want`, in which a sample is its number and dots, and _ fills up.
static void expect_deal(place *p, const int *length, int samples, const char *want) {
    char text[4096], prefix[IO_PATH], shards[IO_PATH], found[512] = "";
    int n = 0;
    pack_report r;
    source *s;
    for (int k = 0; k < samples; k++) n += put_chat(text + n, (char)('0' + k), '.', length[k]);
    OK(io_write_file(at(p, "deal.jsonl"), text, (size_t)n, NULL));
    OK(io_path(prefix, "%s", at(p, "deal")));
    OK(io_path(shards, "%s-train-*.bin", prefix));
    OK(pack_run(&(pack_options){.input = at(p, "deal.jsonl"),
                                .output = prefix,
                                .shard_tokens = 1000,
                                .template = CHAT_PLAIN,
                                .context = W,
                                .documents = true},
                &r));
    source_options from = wants_of(shards, FORMAT_AUTO, -1);
    OK(source_open(&s, &from));
    for (int64_t k = 0; k < source_about(s).samples; k++) {
        int32_t tokens[W], places[W], targets[W];
        size_t end = strlen(found);
        OK(source_look(s, k, (void *[]){tokens, targets, places}));
        for (int t = 0; t < W; t++)
            found[end + (size_t)t] = tokens[t] == 0 ? '_' : tokens[t] == '\n' ? '.' : (char)tokens[t];
        found[end + W] = ' ', found[end + W + 1] = 0;
    }
    source_close(s);
    if (strcmp(found, want) != 0) fail_msg("rows are \"%s\", expected \"%s\"", found, want);
}

// Of rows that are as full the older one is taken, of others the fuller one, however long it has waited. (A row has 11
// tokens, and the model reads ten of them.)
static void rows_wait_for_what_fits(void **state) {
    expect_deal(*state, (const int[]){6, 6, 4, 4}, 4, "0.....2... 1.....3... ");
    expect_deal(*state, (const int[]){6, 7, 7, 4}, 4, "0.....____ 1......3.. 2......___ ");
    expect_deal(*state, (const int[]){7, 6, 6, 6, 6, 4}, 6, "0......5.. 1.....____ 2.....____ 3.....____ 4.....____ ");
    expect_deal(*state, (const int[]){6, 7, 6, 7, 6, 4, 5, 4}, 8,
                "0.....6... 1......5.. 2.....____ 3......7.. 4.....____ ");
}

// So many rows wait: one more closes the fullest of them, the oldest of those.
static void so_many_rows_wait(void **state) {
    enum { ROWS = 256 };
    for (int more = 0; more < 2; more++) {
        place *p = *state;
        char *text = malloc((ROWS + 8) * 64), prefix[IO_PATH], shards[IO_PATH];
        int n = 0;
        pack_report r;
        source *s;
        int32_t tokens[W], places[W], targets[W];
        for (int k = 0; k < ROWS + more; k++) n += put_chat(text + n, 'a', 'b', k == 3 || k == 5 ? 7 : 6);
        for (int k = 0; k < 2; k++) n += put_chat(text + n, 'c', 'd', 4);
        OK(io_write_file(at(p, "wait.jsonl"), text, (size_t)n, NULL));
        free(text);
        OK(io_path(prefix, "%s", at(p, "wait")));
        OK(io_path(shards, "%s-train-*.bin", prefix));
        OK(pack_run(&(pack_options){.input = at(p, "wait.jsonl"),
                                    .output = prefix,
                                    .shard_tokens = 100000,
                                    .template = CHAT_PLAIN,
                                    .context = W,
                                    .documents = true},
                    &r));
        assert_int_equal(r.rows, ROWS + more);
        source_options from = wants_of(shards, FORMAT_AUTO, -1);
        OK(source_open(&s, &from));
        // the fourth was closed when there was one more, and so is first; the sixth has the first of the last two
        int held = 0, full[2] = {-1, -1};
        for (int64_t k = 0; k < r.rows; k++) {
            OK(source_look(s, k, (void *[]){tokens, targets, places}));
            for (int t = 0; t < W && held < 2; t++)
                if (tokens[t] == 'c') full[held++] = (int)k;
        }
        assert_int_equal(held, 2);
        assert_int_equal(full[0], more ? 1 : 3);
        assert_int_equal(full[1], 5);
        source_close(s);
    }
}

// In 2 bytes two bits are marks where rows hold several documents, else one.
static void marks_have_room(void **state) {
    static const struct {
        int64_t vocab;
        bool documents;
        int bytes;
    } rows[] = {{16384, true, 2}, {16385, true, 4}, {32768, false, 2}, {32769, false, 4}};
    const char *file = at(*state, "chat.jsonl");
    char text[100], tokens[IO_PATH];
    OK(io_path(tokens, "%s.tokens", file));
    OK(io_write_file(file, text, (size_t)put_chat(text, 'a', 'A', 6), NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        chat_spool_options o = {.vocab = rows[i].vocab, .row_tokens = 11, .documents = rows[i].documents};
        chat_spooled done;
        spool s;
        OK(chat_open(&o.chat, CHAT_PLAIN, "bytes", NULL));
        OK(chat_spool_fill(&s, tokens, &file, 1, &o, &done));
        if (s.token_bytes != rows[i].bytes)
            fail_msg("%d tokens: %d bytes each, expected %d", (int)rows[i].vocab, s.token_bytes, rows[i].bytes);
        spool_close(&s);
        chat_close(o.chat);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_samples_are_those_alone),
        cmocka_unit_test(a_text_that_is_continued_is_one),
        cmocka_unit_test_setup_teardown(a_token_ends_documents, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(rows_are_filled, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(rows_wait_for_what_fits, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(so_many_rows_wait, place_enter, place_leave),
        cmocka_unit_test_setup_teardown(marks_have_room, place_enter, place_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
