// test/test_sample.c: what is written after a prompt: logits, distributions and draws against PyTorch and numpy
// (test/golden/make_look.py), and that draws of one stream say nothing of those of another.
#include "test/support/look.h"
#include "trainer/session/evaluate.h"
#include "trainer/session/restore.h"
#include "trainer/sample.h"

enum { DRAWS = 20000, TOKENS = 80, CLASSES = 8 };

// The first so many bytes of it are the prompts.
static const char text[] = "The lanes are added by one fixed binary tree over the lane index.";

typedef struct rig {
    char *dir;
    config c;
    session x;
} rig;

static void rig_close(rig *r) {
    session_close(&r->x);
    drop_dir(r->dir);
}

static bool collect(void *ctx, int32_t token) {
    int32_t **next = ctx;
    *(*next)++ = token;
    return true;
}

// Draws o->tokens after the first `length` bytes of the text.
static void draw(rig *r, int length, predict_options o, int32_t *out) {
    char prompt[sizeof text];
    snprintf(prompt, sizeof prompt, "%.*s", length, text);
    OK(evaluator_predict(&r->x.evaluator, &o, &(predict_text){.prompt = prompt, .put = collect, .ctx = &out}, 1));
}

// --- against what was computed elsewhere -----------------------------------------------------------------------------

// Prompts of one token, of some, of as many as the context holds, and of more: then the last ones count.
static void logits_agree_with_pytorch(void **state) {
    (void)state;
    static const int lengths[] = {1, 7, 32, 45};
    rig r = {.dir = make_dir()};
    double theirs[LOOK_VOCAB];
    int32_t token;
    look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE, "");
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "logits/%d", lengths[i]);
        golden_read(LOOK_GOLDEN, name, LOOK_VOCAB, theirs);
        draw(&r, lengths[i], (predict_options){.tokens = 1}, &token);
        const float *ours = r.x.evaluator.host_scores.data;
        for (int v = 0; v < LOOK_VOCAB; v++)
            if (!(fabs(ours[v] - theirs[v]) <= 2e-5))
                fail_msg("prompt of %d bytes, token %d: logit %.7f, PyTorch %.7f", lengths[i], v, ours[v], theirs[v]);
    }
    rig_close(&r);
}

// The recipe's list. 80 tokens after prompts of up to 45: the context of 32 fills up and moves on.
static void tokens_agree_with_numpy(void **state) {
    (void)state;
    static const struct {
        predict_options o;
        int length;
    } list[] = {
        {{.seed = 1337, .step = 0, .temperature = 1.0, .top_k = 0}, 7},
        {{.seed = 1337, .step = 1, .temperature = 1.0, .top_k = 0}, 7},
        {{.seed = 1338, .step = 0, .temperature = 1.0, .top_k = 0}, 7},
        {{.seed = 6, .step = 300, .temperature = 0.6, .top_k = 0}, 45},
        {{.seed = (UINT64_C(1) << 40) + 9, .step = 7, .temperature = 1.3, .top_k = 12}, 32},
        {{.seed = 1, .step = 1, .temperature = 0, .top_k = 0}, 1},
    };
    rig r = {.dir = make_dir()};
    double theirs[TOKENS];
    int32_t ours[TOKENS];
    look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE, "");
    for (int i = 0; i < (int)(sizeof list / sizeof *list); i++) {
        char name[32];
        predict_options o = list[i].o;
        snprintf(name, sizeof name, "draws/%d", i);
        golden_read(LOOK_GOLDEN, name, TOKENS, theirs);
        o.tokens = TOKENS;
        draw(&r, list[i].length, o, ours);
        for (int n = 0; n < TOKENS; n++)
            if (ours[n] != (int32_t)theirs[n])
                fail_msg("list %d, token %d: %d, numpy %d", i, n, ours[n], (int)theirs[n]);
    }
    rig_close(&r);
}

// A run writes with its own seed and step: the same tokens as the recipe's list.
static void a_session_writes_with_its_seed_and_step(void **state) {
    (void)state;
    rig r = {.dir = make_dir()};
    double theirs[TOKENS];
    char *written, expected[TOKENS + 1] = "";
    look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE,
              "[run]\nseed = 1337\n[sample]\ntokens = 80\ntemperature = 1\ntop_k = 0\n");
    r.x.progress.step = 1;
    golden_read(LOOK_GOLDEN, "draws/1", TOKENS, theirs);
    for (int n = 0, at = 0; n < TOKENS; n++) {
        assert_true(theirs[n] > 0);  // a NUL would be written as three bytes
        expected[at++] = (char)theirs[n];
    }
    OK(session_sample(&r.x, "The lan", &written));
    assert_string_equal(written, expected);
    free(written);
    rig_close(&r);
}

// Each of the settings reaches the draw: tokens are those that the same options give, and those of no other row.
static void settings_are_those_of_the_run(void **state) {
    (void)state;
    enum { ROWS = 6 };
    static const predict_options list[ROWS] = {{.temperature = 1},
                                               {.temperature = 1.9},
                                               {.temperature = 1, .top_k = 3},
                                               {.temperature = 1, .top_p = 0.6},
                                               {.temperature = 1, .min_p = 0.2},
                                               {.temperature = 0}};
    char written[ROWS][TOKENS + 1];
    for (int i = 0; i < ROWS; i++) {
        rig r = {.dir = make_dir()};
        char keys[200], *own;
        int32_t tokens[TOKENS];
        predict_options o = list[i];
        snprintf(keys, sizeof keys,
                 "[run]\nseed = 9\n[sample]\ntokens = %d\ntemperature = %g\ntop_k = %d\ntop_p = %g\nmin_p = %g\n",
                 TOKENS, o.temperature, (int)o.top_k, o.top_p, o.min_p);
        look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE, keys);
        o.tokens = TOKENS, o.seed = 9, o.step = r.x.progress.step = 3;
        draw(&r, 7, o, tokens);
        OK(session_sample(&r.x, "The lan", &own));
        for (int n = 0; n < TOKENS; n++) written[i][n] = (char)tokens[n];
        written[i][TOKENS] = 0;
        assert_string_equal(own, written[i]);
        for (int k = 0; k < i; k++) assert_string_not_equal(written[i], written[k]);
        free(own);
        rig_close(&r);
    }
}

// A prompt without tokens is continued as the first token is; one without bytes as a new line is.
static void nothing_is_continued_too(void **state) {
    (void)state;
    enum { FEW = 12 };
    rig r = {.dir = make_dir()};
    const predict_options o = {.tokens = FEW, .temperature = 1, .seed = 4};
    static const int32_t first = 0, line = '\n';
    int32_t found[4][FEW];
    look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE, "");
    for (int i = 0; i < 4; i++) {
        int32_t *next = found[i];
        predict_text one = {.prompt = "",
                            .ids = i == 0   ? NULL
                                   : i == 1 ? &line
                                            : &first,
                            .count = i == 1 || i == 3,
                            .put = collect,
                            .ctx = &next};
        OK(evaluator_predict(&r.x.evaluator, &o, &one, 1));
    }
    assert_memory_equal(found[0], found[1], sizeof found[0]);
    assert_memory_equal(found[2], found[3], sizeof found[0]);
    assert_memory_not_equal(found[0], found[2], sizeof found[0]);
    rig_close(&r);
}

// --- frequencies -----------------------------------------------------------------------------------------------------

// Pearson's statistic of `cells` counts that add up to n, those expected less than 5 times as one cell; as a normal
// deviate (Wilson and Hilferty 1931). Beyond 5 lies chance in 3 of 10 million cases; seeds are fixed, so that it is the
// same case each time.
static double deviate(const int64_t *seen, const double *probability, int cells, int64_t n) {
    double sum = 0, rest_seen = 0, rest = 0, freedom = -1;
    for (int i = 0; i <= cells; i++) {
        double expected = i < cells ? probability[i] * (double)n : rest;
        double found = i < cells ? (double)seen[i] : rest_seen;
        if (i < cells && expected < 5) {
            rest += expected, rest_seen += found;
            continue;
        }
        if (expected == 0 && found > 0) return INFINITY;  // what can't happen
        if (expected == 0) continue;
        sum += (found - expected) * (found - expected) / expected, freedom++;
    }
    if (freedom < 1) return 0;  // one cell, which has all
    double share = 2 / (9 * freedom);
    return (cbrt(sum / freedom) - (1 - share)) / sqrt(share);
}

static void expect_frequencies(const char *what, const int32_t *tokens, const double *probability) {
    int64_t seen[LOOK_VOCAB] = {0};
    for (int i = 0; i < DRAWS; i++) {
        assert_in_range(tokens[i], 0, LOOK_VOCAB - 1);
        if (probability[tokens[i]] == 0) fail_msg("%s: draw %d is token %d, which can't be", what, i, tokens[i]);
        seen[tokens[i]]++;
    }
    double z = deviate(seen, probability, LOOK_VOCAB, DRAWS);
    if (!(z < 5)) fail_msg("%s: frequencies of %d draws are %.1f deviations from what they should be", what, DRAWS, z);
}

// The first token after a prompt, with 20,000 seeds.
static void frequencies_agree_with_pytorch(void **state) {
    (void)state;
    static const struct {
        double temperature;
        int64_t top_k;
    } list[] = {{0.7, 0}, {1.5, 0}, {1.0, 10}};
    rig r = {.dir = make_dir()};
    double theirs[LOOK_VOCAB];
    int32_t *tokens = malloc(DRAWS * sizeof *tokens);
    assert_non_null(tokens);
    look_open(&r.x, &r.c, r.dir, SESSION_INFERENCE, "");
    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "distribution/%d", k);
        golden_read(LOOK_GOLDEN, name, LOOK_VOCAB, theirs);
        for (int i = 0; i < DRAWS; i++)
            draw(&r, 7,
                 (predict_options){
                     .tokens = 1, .seed = (uint64_t)i, .temperature = list[k].temperature, .top_k = list[k].top_k},
                 &tokens[i]);
        expect_frequencies(name, tokens, theirs);
    }
    free(tokens);
    rig_close(&r);
}

// --- streams ---------------------------------------------------------------------------------------------------------

// A model of one layer and a context of one that says the same after any token: its last norm is its bias alone. Logits
// are wte * bias.
static void open_forgetful(rig *r, double logits[LOOK_VOCAB]) {
    enum { C = 8 };
    r->dir = make_dir();
    load_config(&r->c, r->dir, "[data]\nval =\n[device]\nthreads = 1\n[batch]\nglobal = 1\nmicro = 1\n",
                "[model]\nlayers = 1\nheads = 1\nembed = 8\ncontext = 1\nvocab = 128\n");
    OK(session_open(&r->x, &r->c, SESSION_INFERENCE, NULL));
    OK(session_init(&r->x));
    float *wte = r->x.state.w[model_find(r->x.net, "wte.weight")].data;
    float *scale = r->x.state.w[model_find(r->x.net, "ln_f.weight")].data;
    float *bias = r->x.state.w[model_find(r->x.net, "ln_f.bias")].data;
    for (int c = 0; c < C; c++) scale[c] = 0, bias[c] = c % 2 ? 25.0f : -15.0f;  // times weights of std 0.02
    for (int v = 0; v < LOOK_VOCAB; v++) {
        logits[v] = 0;
        for (int c = 0; c < C; c++) logits[v] += (double)wte[v * C + c] * bias[c];
    }
}

static void softmax(double *probability, const double *logits, double temperature) {
    double sum = 0;
    for (int v = 0; v < LOOK_VOCAB; v++) sum += probability[v] = exp(logits[v] / temperature);
    for (int v = 0; v < LOOK_VOCAB; v++) probability[v] /= sum;
}

// Tokens fall into classes of about equal probability; pairs of classes must be as frequent as the product says.
static void expect_independent(const char *what, const int32_t *a, const int32_t *b, int n, const double *probability) {
    int class[LOOK_VOCAB];
    double share[CLASSES] = {0}, both[CLASSES * CLASSES], sum = 0;
    int64_t seen[CLASSES * CLASSES] = {0};
    for (int v = 0; v < LOOK_VOCAB; v++) {
        class[v] = (int)((sum + probability[v] / 2) * CLASSES);
        sum += probability[v];
        share[class[v]] += probability[v];
    }
    for (int i = 0; i < CLASSES * CLASSES; i++) both[i] = share[i / CLASSES] * share[i % CLASSES];
    for (int i = 0; i < n; i++) seen[class[a[i]] * CLASSES + class[b[i]]]++;
    double z = deviate(seen, both, CLASSES * CLASSES, n);
    if (!(z < 5)) fail_msg("%s: draws are %.1f deviations from being independent", what, z);
}

// Streams of a seed and a step, its neighbours, and those with the same sum of the two.
static void tokens_steps_and_seeds_are_streams_of_their_own(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        int64_t step;
    } list[] = {{7, 10}, {7, 11}, {8, 10}, {8, 9}, {6, 11}};
    enum { STREAMS = sizeof list / sizeof *list };
    rig r;
    char what[64];
    double logits[LOOK_VOCAB], probability[LOOK_VOCAB];
    int32_t *at[STREAMS];
    open_forgetful(&r, logits);
    softmax(probability, logits, 1.5);
    for (int i = 0; i < STREAMS; i++) {
        at[i] = malloc(DRAWS * sizeof *at[i]);
        assert_non_null(at[i]);
        predict_options o = {.tokens = DRAWS, .seed = list[i].seed, .step = list[i].step, .temperature = 1.5};
        draw(&r, 1, o, at[i]);
        snprintf(what, sizeof what, "seed %d, step %d", (int)list[i].seed, (int)list[i].step);
        expect_frequencies(what, at[i], probability);
        for (int lag = 1; lag <= 3; lag++) expect_independent(what, at[i], at[i] + lag, DRAWS - lag, probability);
    }
    for (int i = 0; i < STREAMS; i++)
        for (int k = 0; k < i; k++) {
            snprintf(what, sizeof what, "streams %d and %d", k, i);
            for (int lag = 0; lag <= 1; lag++) {
                expect_independent(what, at[i], at[k] + lag, DRAWS - lag, probability);
                expect_independent(what, at[i] + lag, at[k], DRAWS - lag, probability);
            }
        }
    for (int i = 0; i < STREAMS; i++) free(at[i]);
    rig_close(&r);
}

// What is left by top_k, the likeliest ones (0: all), then by top_p, the fewest of these that together have this share
// of them, and then by min_p, a share of the likeliest.
static void keep(double *probability, int top_k, double top_p, double min_p) {
    double left = 0, most = 0, all = 0, candidates = 0;
    bool kept[LOOK_VOCAB] = {false};
    int order[LOOK_VOCAB], count = top_k ? top_k : LOOK_VOCAB;
    for (int v = 0; v < LOOK_VOCAB; v++) {
        int at = v;
        for (; at > 0 && probability[v] > probability[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = v;
    }
    for (int i = 0; i < count; i++) candidates += probability[order[i]];
    for (int i = 0; i < count && left < top_p * candidates; i++) kept[order[i]] = true, left += probability[order[i]];
    most = probability[order[0]];
    for (int v = 0; v < LOOK_VOCAB; v++)
        all += probability[v] = kept[v] && probability[v] >= min_p * most ? probability[v] : 0;
    for (int v = 0; v < LOOK_VOCAB; v++) probability[v] /= all;
}

static void shares_of_the_likeliest(void **state) {
    (void)state;
    static const struct {
        int top_k;
        double top_p, min_p;
    } list[] = {{0, 0.5, 0},  {0, 0.9, 0}, {0, 0, 0.02}, {0, 0, 0.3},  {0, 0.8, 0.05},
                {0, 1e-9, 0}, {0, 0, 1},   {12, 0.5, 0}, {40, 0.8, 0}, {30, 0.5, 0.05}};
    rig r;
    double logits[LOOK_VOCAB], expected[LOOK_VOCAB];
    int32_t *tokens = malloc(DRAWS * sizeof *tokens);
    assert_non_null(tokens);
    open_forgetful(&r, logits);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char what[64];
        double top_p = list[i].top_p, min_p = list[i].min_p;
        snprintf(what, sizeof what, "top_k %d, top_p %g, min_p %g", list[i].top_k, top_p, min_p);
        softmax(expected, logits, 1.3);
        keep(expected, list[i].top_k, top_p > 0 ? top_p : 2, min_p);
        predict_options o = {
            .tokens = DRAWS, .seed = 5, .temperature = 1.3, .top_k = list[i].top_k, .top_p = top_p, .min_p = min_p};
        draw(&r, 1, o, tokens);
        expect_frequencies(what, tokens, expected);
    }
    free(tokens);
    rig_close(&r);
}

// --- words -----------------------------------------------------------------------------------------------------------

#define WORDS "test/golden/tokenizer/gpt2.json"

static void words_open(rig *r, const char *more) {
    r->dir = make_dir();
    load_config(
        &r->c, r->dir,
        "[data]\nval =\n[device]\nthreads = 1\n[batch]\nglobal = 1\nmicro = 1\n[model]\nlayers = 1\nheads = 1\nembed = 8\ncontext = 6\nvocab = 1000\n"
        "[sample]\ntokens = 40\ntemperature = 5\ntokenizer = " WORDS "\n",
        more);
    OK(session_open(&r->x, &r->c, SESSION_INFERENCE, NULL));
    OK(session_init(&r->x));
}

// The prompt is encoded, and what is drawn is decoded, up to the end of a text.
static void samples_are_written_in_words(void **state) {
    (void)state;
    rig r;
    int32_t ids[40], *next = ids;
    char *written, expected[4096] = "";
    const int32_t *prompt;
    int64_t count;
    encoder *e;
    words_open(&r, "");
    OK(encoder_open(&e, r.x.words));
    OK(encoder_encode(e, "don't stop", 10, ENCODE_TEXT, &prompt, &count));
    OK(evaluator_predict(
        &r.x.evaluator, &(predict_options){.tokens = 40, .temperature = 5, .top_k = 40, .seed = (uint64_t)r.c.run.seed},
        &(predict_text){.ids = prompt, .count = count, .put = collect, .ctx = &next}, 1));
    for (int i = 0; i < 40 && ids[i] != tokenizer_about(r.x.words).end_of_text; i++) {
        const uint8_t *piece;
        int64_t n;
        char number[16];
        size_t at = strlen(expected);
        if (tokenizer_piece(r.x.words, ids[i], &piece, &n) != ERR_OK)
            piece = (uint8_t *)number, n = snprintf(number, sizeof number, "<%d>", ids[i]);
        for (int64_t k = 0; k < n; k++)
            at += (size_t)snprintf(expected + at, sizeof expected - at, piece[k] ? "%c" : "\xEF\xBF\xBD", piece[k]);
    }
    OK(session_sample(&r.x, "don't stop", &written));
    assert_string_equal(written, expected);
    assert_true(strlen(written) > 40);
    char middle[4] = "", more[64];
    memcpy(middle, written + 20, 3);
    bool plain = true;
    for (int i = 0; i < 3; i++)
        plain = plain && middle[i] > ' ' && middle[i] < 127 && middle[i] != '"' && middle[i] != '\'' &&
                middle[i] != ';' && middle[i] != '\\';
    free(written);
    encoder_close(e);
    rig_close(&r);
    if (!plain) return;
    snprintf(more, sizeof more, "[sample]\nstop = \"%s\"\n", middle);
    words_open(&r, more);
    OK(session_sample(&r.x, "don't stop", &written));
    *strstr(expected, middle) = 0;
    assert_string_equal(written, expected);
    free(written);
    rig_close(&r);
}

// The model goes on from the prompt's tokens, after the one that begins texts where the tokenizer has such a one; and
// so many are counted.
static void prompts_are_encoded_as_texts_are(void **state) {
    (void)state;
    static const char *const tokenizers[] = {WORDS, "test/golden/tokenizer/llama3.json"}, *const prompts[] = {
                                                                                              "don't stop", "go on"};
    enum { TOKENS_EACH = 6 };
    for (int k = 0; k < 2; k++) {
        rig r;
        char more[256];
        sample_text texts[2] = {{.prompt = prompts[0]}, {.prompt = prompts[1]}};
        encoder *e;
        snprintf(more, sizeof more, "[sample]\ntemperature = 0\ntokens = %d\ntokenizer = %s\n", TOKENS_EACH,
                 tokenizers[k]);
        words_open(&r, more);
        OK(session_samples(&r.x, texts, 2, NULL));
        OK(encoder_open(&e, r.x.words));
        for (int i = 0; i < 2; i++) {
            const int32_t *ids;
            int64_t count;
            int32_t drawn[TOKENS_EACH], *next = drawn;
            char expected[1024] = "";
            OK(encoder_encode(e, prompts[i], (int64_t)strlen(prompts[i]), ENCODE_TEXT | ENCODE_BEGIN, &ids, &count));
            if (k) assert_true(count > 0 && ids[0] >= 0 && ids[0] == tokenizer_about(r.x.words).bos);
            assert_int_equal(texts[i].prompt_tokens, count);
            OK(evaluator_predict(&r.x.evaluator, &(predict_options){.tokens = TOKENS_EACH},
                                 &(predict_text){.ids = ids, .count = count, .put = collect, .ctx = &next}, 1));
            for (int n = 0; n < texts[i].tokens; n++) {
                const uint8_t *piece;
                int64_t bytes;
                size_t at = strlen(expected);
                if (tokenizer_piece(r.x.words, drawn[n], &piece, &bytes) == ERR_OK)
                    snprintf(expected + at, sizeof expected - at, "%.*s", (int)bytes, (const char *)piece);
                else snprintf(expected + at, sizeof expected - at, "<%d>", drawn[n]);
            }
            assert_string_equal(texts[i].text, expected);
            free(texts[i].text);
        }
        encoder_close(e);
        rig_close(&r);
    }
}

// --- a text as it grows, and where it stops --------------------------------------------------------------------------

typedef struct heard {
    char text[8192];
    size_t n;
    int calls, ends;
    const sample_text *of;
    const char *stops[4];  // NULL after the last one
} heard;

// How many bytes of a text can't be taken back: at its end may stand the beginning of a character, or of a text to stop
// at.
static size_t sure_of(const char *text, size_t n, const char *const *stops) {
    size_t back = 0;
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)text[n - k];
        size_t length = c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 1;
        bool follows = true;
        for (size_t i = 1; i < k; i++) follows = follows && (text[n - k + i] & 0xC0) == 0x80;
        if (length > k && follows) back = k;
    }
    for (; *stops; stops++)
        for (size_t k = back + 1; k < strlen(*stops) && k <= n; k++)
            if (memcmp(text + n - k, *stops, k) == 0) back = k;
    return n - back;
}

// All that is sure is told, and nothing else.
static void hear(void *ctx, int number, const char *bytes, size_t n) {
    heard *h = ctx;
    assert_int_equal(number, 0);
    assert_true(h->n + n < sizeof h->text);
    memcpy(h->text + h->n, bytes, n);
    h->n += n, h->text[h->n] = 0;
    h->calls++;
    size_t all = strlen(h->of->text);
    if (h->of->ended) h->ends++;
    else assert_true(n > 0);
    assert_int_equal(h->n, h->of->ended ? all : sure_of(h->of->text, all, h->stops));
    assert_memory_equal(h->text, h->of->text, h->n);
}

// The text with these [sample] keys; what was told of it on the way is the same.
static void written_with(const char *keys, const char *const *stops, const char *prompt, char text[8192],
                         char ended[16]) {
    rig r;
    heard h = {.n = 0};
    for (int i = 0; stops && stops[i]; i++) h.stops[i] = stops[i];
    sample_text one = {.prompt = prompt};
    words_open(&r, keys);
    h.of = &one;
    OK(session_samples(&r.x, &one, 1, &(sample_listener){hear, &h}));
    assert_string_equal(h.text, one.text);
    assert_int_equal(h.ends, 1);
    snprintf(text, 8192, "%s", one.text);
    snprintf(ended, 16, "%s", one.ended);
    free(one.text);
    rig_close(&r);
}

static void a_text_is_told_as_it_grows(void **state) {
    (void)state;
    char whole[8192], cut[8192], ended[16], keys[256];
    written_with("[sample]\ntokens = 40\n", NULL, "don't stop", whole, ended);
    assert_string_equal(ended, strlen(whole) ? "length" : ended);
    // every plain pair of bytes of the text, and the second of two, as a text to stop at
    int tried = 0;
    for (size_t i = 0; i + 6 < strlen(whole) && tried < 12; i++) {
        bool plain = true;
        for (int k = 0; k < 6; k++)
            plain = plain && whole[i + k] > ' ' && whole[i + k] < 127 && !strchr("\"';\\|#", whole[i + k]);
        if (!plain) continue;
        tried++;
        char first[3] = {whole[i], whole[i + 1]}, second[3] = {whole[i + 3], whole[i + 4]};
        snprintf(keys, sizeof keys, "[sample]\nstop = \"never written|%s|%s\"\n", second, first);
        written_with(keys, (const char *const[]){"never written", second, first, NULL}, "don't stop", cut, ended);
        size_t at = (size_t)(strstr(whole, first) - whole), other = (size_t)(strstr(whole, second) - whole),
               want = at < other ? at : other;
        assert_string_equal(ended, "stop");
        assert_int_equal(strlen(cut), want);
        assert_memory_equal(cut, whole, want);
    }
    assert_true(tried > 0);
}

// "||" is a bar; a bar at an end, or nothing between two, stops nothing.
static void bars_part_texts_to_stop_at(void **state) {
    (void)state;
    char whole[8192], text[8192], ended[16];
    written_with("", NULL, "don't stop", whole, ended);
    const char *nothing[] = {"[sample]\nstop = \"|\"\n", "[sample]\nstop = \"never||there|\"\n",
                             "[sample]\nstop = \"|never\"\n"};
    const char *const stops[][2] = {{NULL}, {"never|there", NULL}, {"never", NULL}};
    for (int i = 0; i < 3; i++) {
        written_with(nothing[i], stops[i], "don't stop", text, ended);
        assert_string_equal(text, whole);
    }
}

static void words_must_fit_the_model(void **state) {
    (void)state;
    rig r = {.dir = make_dir()};
    load_config(&r.c, r.dir, "[data]\nval =\n[model]\nvocab = 300\n[sample]\ntokenizer = " WORDS "\n", "");
    assert_int_equal(session_open(&r.x, &r.c, SESSION_INFERENCE, NULL), ERR_CONFIG);
    assert_non_null(strstr(err_last()->text, "the model knows 300 tokens"));
    rig_close(&r);
}

// Two tokens are likelier than 126 equals: the third of the top three is each of the equals.
static void equals_of_the_last_are_kept(void **state) {
    (void)state;
    rig r;
    double logits[LOOK_VOCAB], expected[LOOK_VOCAB];
    int32_t *tokens = malloc(DRAWS * sizeof *tokens);
    assert_non_null(tokens);
    open_forgetful(&r, logits);
    float *wte = r.x.state.w[model_find(r.x.net, "wte.weight")].data;
    for (int v = 0; v < LOOK_VOCAB; v++)
        for (int c = 0; c < 8; c++) wte[v * 8 + c] = v < 2 ? 0.01f * (float)(c % 2) : 0;  // times 25, four times: 1
    for (int v = 0; v < LOOK_VOCAB; v++) logits[v] = v < 2 ? 1 : 0;
    softmax(expected, logits, 0.5);
    draw(&r, 1, (predict_options){.tokens = DRAWS, .seed = 3, .temperature = 0.5, .top_k = 3}, tokens);
    expect_frequencies("two and their equals", tokens, expected);
    for (int v = 0; v < LOOK_VOCAB; v++) expected[v] = v < 2 ? 0.5 : 0;
    draw(&r, 1, (predict_options){.tokens = DRAWS, .seed = 3, .temperature = 0.5, .top_k = 2}, tokens);
    expect_frequencies("two", tokens, expected);
    draw(&r, 1, (predict_options){.tokens = DRAWS, .seed = 3, .temperature = 0.5, .min_p = 1}, tokens);
    expect_frequencies("two, both the likeliest", tokens, expected);
    free(tokens);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_agree_with_pytorch),
        cmocka_unit_test(tokens_agree_with_numpy),
        cmocka_unit_test(a_session_writes_with_its_seed_and_step),
        cmocka_unit_test(settings_are_those_of_the_run),
        cmocka_unit_test(nothing_is_continued_too),
        cmocka_unit_test(frequencies_agree_with_pytorch),
        cmocka_unit_test(tokens_steps_and_seeds_are_streams_of_their_own),
        cmocka_unit_test(equals_of_the_last_are_kept),
        cmocka_unit_test(shares_of_the_likeliest),
        cmocka_unit_test(samples_are_written_in_words),
        cmocka_unit_test(prompts_are_encoded_as_texts_are),
        cmocka_unit_test(a_text_is_told_as_it_grows),
        cmocka_unit_test(bars_part_texts_to_stop_at),
        cmocka_unit_test(words_must_fit_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
