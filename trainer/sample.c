// trainer/sample.c: generates text with a session's model. With several ranks, rank 0 generates and sends the others a
// sign of life after every token, so that they don't take a long sample for a lost rank. With ZeRO stage 3 all ranks
// must compute, and all generate the same text.
//
// The listener is given a text as it grows, but not its last bytes while they are not final: they may begin a text to
// stop at, or a character that the next token completes.
#include "trainer/sample.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "trainer/session/machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_sink {
    session *x;
    sample_text *of;
    int number;
    const sample_listener *listener;
    size_t n, room;
    size_t told;    // bytes that the listener has
    int64_t signs;  // signs of life sent, one for each token
    err_t failed;   // of sending them, or of keeping the text
} text_sink;

bool session_samples_on_all(const session *x) {
    return x->state.shards.weights || x->runner.pipelined || step_shares(&x->runner);
}

static bool others_listen(const session *x) { return x->ranks->world > 1 && !session_samples_on_all(x); }

static err_t signal_life(session *x) {
    comm *host = x->ranks->host;
    char token = 0;
    host->phase.what = "sample", host->phase.step = x->progress.step, host->phase.number = 0;
    return host->table->broadcast(host, &token, sizeof token, 0, x->s);
}

// --- bytes -----------------------------------------------------------------------------------------------------------

// Bytes are written unchanged, except NUL, which would end the text and becomes U+FFFD.
static err_t append(text_sink *t, const uint8_t *bytes, int64_t n) {
    size_t most = t->n + 3 * (size_t)n + 1;
    if (most > t->room) {
        char *more = realloc(t->of->text, 2 * most);
        if (!more) return err_set(ERR_INTERNAL, "no memory for a sample of %zu bytes", 2 * most);
        t->of->text = more, t->room = 2 * most;
    }
    char *text = t->of->text;
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i]) text[t->n++] = (char)bytes[i];
        else memcpy(text + t->n, "\xEF\xBF\xBD", 3), t->n += 3;
    }
    text[t->n] = 0;
    return ERR_OK;
}

// Without a tokenizer a token below 256 is a byte, and a larger one is shown by its number.
static err_t append_token(text_sink *t, int32_t token) {
    const uint8_t *piece;
    int64_t n;
    char word[16];
    uint8_t byte = (uint8_t)token;
    if (t->x->words && tokenizer_piece(t->x->words, token, &piece, &n) == ERR_OK) return append(t, piece, n);
    if (!t->x->words && token < 256) return append(t, &byte, 1);
    snprintf(word, sizeof word, "<%d>", token);
    return append(t, (const uint8_t *)word, (int64_t)strlen(word));
}

// --- where it ends ---------------------------------------------------------------------------------------------------

// The next text to stop at, of those in *list, without the bars between them. false: there is none.
static bool next_stop(const char **list, char stop[CONFIG_TEXT]) {
    size_t n = 0;
    const char *c = *list;
    for (; *c && (c[0] != '|' || c[1] == '|'); c++) {
        if (*c == '|') c++;
        stop[n++] = *c;
    }
    stop[n] = 0;
    *list = *c ? c + 1 : c;
    return n > 0 || *c;
}

// Whether one of x->stop is in the text, of which the first `before` bytes were looked at before; the text then
// ends where the first one begins.
static bool stops(text_sink *t, size_t before) {
    const char *list = t->x->stop;
    char stop[CONFIG_TEXT], *first = NULL;
    while (next_stop(&list, stop)) {
        size_t length = strlen(stop), from = before > length ? before - length : 0;
        char *at = length ? strstr(t->of->text + from, stop) : NULL;
        if (at && (!first || at < first)) first = at;
    }
    if (first) *first = 0, t->n = (size_t)(first - t->of->text);
    return first != NULL;
}

// Bytes at the end that are not final.
static size_t unsure(const text_sink *t) {
    const char *list = t->x->stop, *end = t->of->text + t->n;
    char stop[CONFIG_TEXT];
    size_t most = utf8_begun(t->of->text, t->n);
    while (next_stop(&list, stop))
        for (size_t k = strlen(stop); k > most; k--)
            if (k <= t->n && memcmp(end - k, stop, k) == 0) most = k;
    return most;
}

static void tell(text_sink *t) {
    size_t sure = t->of->ended ? t->n : t->n - unsure(t);
    if (!t->listener || (sure <= t->told && !t->of->ended)) return;
    t->listener->grown(t->listener->ctx, t->number, t->of->text + t->told, sure > t->told ? sure - t->told : 0);
    t->told = sure;
}

// What a model says of a text that it has read ends with a token of its own.
static bool ends_text(const text_sink *t, int32_t token) {
    if (t->x->net->reads && token == t->x->net->end) return true;
    return t->x->words && token == tokenizer_about(t->x->words).end_of_text;
}

static bool put_token(void *ctx, int32_t token) {
    text_sink *t = ctx;
    sample_text *of = t->of;
    size_t before = t->n;
    if (others_listen(t->x) && t->failed == ERR_OK) t->failed = signal_life(t->x), t->signs++;
    of->last_s = clock_now();
    if (of->tokens++ == 0) of->first_s = of->last_s;
    if (ends_text(t, token)) of->ended = "end of text";
    else {
        err_t rc = append_token(t, token);
        if (t->failed == ERR_OK) t->failed = rc;
        if (rc != ERR_OK) return false;
        if (stops(t, before)) of->ended = "stop";
        else if (of->tokens == predict_most(t->x->net, t->x->cfg->sample.tokens)) of->ended = "length";
    }
    tell(t);
    return !of->ended;
}

// The others wait for a sign of life for every token, also for those that could not be generated.
static err_t signal_rest(text_sink *t, err_t rc) {
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    for (; others_listen(t->x) && t->failed == ERR_OK && t->signs < t->x->cfg->sample.tokens; t->signs++)
        t->failed = signal_life(t->x);
    return rc == ERR_OK ? t->failed : err_restore(&why);
}

// --- texts -----------------------------------------------------------------------------------------------------------

typedef struct texts {
    session *x;
    text_sink *sink;
    predict_text *text;  // with ids that are ours
    int count;
} texts;

static void texts_close(texts *t) {
    for (int i = 0; t->text && i < t->count; i++) free((void *)t->text[i].ids);
    free(t->sink), free(t->text);
}

static err_t texts_open(texts *t, session *x, sample_text *of, int count, const sample_listener *listener) {
    *t = (texts){.x = x,
                 .sink = calloc((size_t)count, sizeof *t->sink),
                 .text = calloc((size_t)count, sizeof *t->text),
                 .count = count};
    if (!t->sink || !t->text) return err_set(ERR_INTERNAL, "no memory for %d samples", count);
    for (int i = 0; i < count; i++) {
        t->sink[i] = (text_sink){.x = x, .of = &of[i], .number = i, .listener = listener, .room = 1};
        t->text[i] = (predict_text){
            .prompt = of[i].prompt, .count = (int64_t)strlen(of[i].prompt), .put = put_token, .ctx = &t->sink[i]};
        if (!(of[i].text = calloc(1, 1))) return err_set(ERR_INTERNAL, "no memory for a sample");
    }
    return ERR_OK;
}

// Each has its own encoding: the encoder's memory serves the next one.
static err_t encode(texts *t) {
    encoder *e = NULL;
    if (t->x->words) TRY(encoder_open(&e, t->x->words));
    err_t rc = ERR_OK;
    for (int i = 0; i < t->count && rc == ERR_OK; i++) {
        predict_text *p = &t->text[i];
        const int32_t *ids;
        rc = session_encode(t->x, e, p->prompt, &ids, &p->count);
        if (rc != ERR_OK || !ids) continue;
        int32_t *own = malloc((size_t)(p->count + 1) * sizeof *own);
        if (!own) rc = err_set(ERR_INTERNAL, "no memory for a prompt of %" PRId64 " tokens", p->count);
        else p->ids = memcpy(own, ids, (size_t)p->count * sizeof *own);
    }
    if (e) encoder_close(e);
    return rc;
}

static err_t predict_texts(texts *t) {
    const config *c = t->x->cfg;
    predict_options o = {.tokens = c->sample.tokens,
                         .temperature = c->sample.temperature,
                         .top_k = c->sample.top_k,
                         .top_p = c->sample.top_p,
                         .min_p = c->sample.min_p,
                         .seed = (uint64_t)c->run.seed,
                         .step = t->x->progress.step};
    TRY(encode(t));
    for (int i = 0; i < t->count; i++) t->sink[i].of->prompt_tokens = t->text[i].count;
    TRY(evaluator_predict(&t->x->evaluator, &o, t->text, t->count));
    for (int i = 0; i < t->count; i++)
        if (t->sink[i].failed != ERR_OK) return t->sink[i].failed;
    return ERR_OK;
}

err_t session_samples(session *x, sample_text *of, int count, const sample_listener *listener) {
    texts t;
    text_sink alone = {.x = x};  // where not even the first one could be made
    err_t rc = texts_open(&t, x, of, count, listener);
    if (rc == ERR_OK) rc = predict_texts(&t);
    rc = signal_rest(t.sink ? &t.sink[0] : &alone, rc);
    texts_close(&t);
    return rc;
}

err_t session_sample(session *x, const char *prompt, char **out) {
    sample_text one = {.prompt = prompt};
    err_t rc = session_samples(x, &one, 1, NULL);
    if (rc != ERR_OK) free(one.text);
    *out = rc == ERR_OK ? one.text : NULL;
    return rc;
}

err_t session_await_sample(session *x) {
    for (int64_t i = 0; i < x->cfg->sample.tokens; i++) TRY(signal_life(x));
    return ERR_OK;
}
