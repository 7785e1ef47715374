// trainer/sample.c: generates text with a session's model. With several ranks, rank 0 generates and sends the others a
// sign of life after every token, so that they don't take a long sample for a lost rank. With ZeRO stage 3 all ranks
// must compute, and all generate the same text.
#include "trainer/evaluate.h"
#include "trainer/train.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_sink {
    session *x;
    char *text;
    size_t n, room;
    int64_t signs;  // signs of life sent, one for each token
    err_t failed;   // of sending them, or of keeping the text
} text_sink;

static bool others_listen(const session *x) { return x->ranks->world > 1 && !x->state.shards.weights; }

static err_t signal_life(session *x) {
    comm *host = x->ranks->host;
    char token = 0;
    host->phase.what = "sample", host->phase.step = x->step, host->phase.number = 0;
    return host->table->broadcast(host, &token, sizeof token, 0, x->s);
}

// Bytes are written unchanged, except NUL, which would end the text and becomes U+FFFD.
static err_t append(text_sink *t, const uint8_t *bytes, int64_t n) {
    size_t most = t->n + 3 * (size_t)n + 1;
    if (most > t->room) {
        char *more = realloc(t->text, 2 * most);
        if (!more) return err_set(ERR_INTERNAL, "no memory for a sample of %zu bytes", 2 * most);
        t->text = more, t->room = 2 * most;
    }
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i]) t->text[t->n++] = (char)bytes[i];
        else memcpy(t->text + t->n, "\xEF\xBF\xBD", 3), t->n += 3;
    }
    t->text[t->n] = 0;
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

// Whether the text ends with [sample] stop, which is then taken off.
static bool stops(text_sink *t, size_t before) {
    const char *stop = t->x->cfg->sample.stop;
    size_t length = strlen(stop), from = before > length ? before - length : 0;
    char *at = length ? strstr(t->text + from, stop) : NULL;
    if (at) *at = 0, t->n = (size_t)(at - t->text);
    return at != NULL;
}

static bool put_token(void *ctx, int32_t token) {
    text_sink *t = ctx;
    size_t before = t->n;
    if (others_listen(t->x) && t->failed == ERR_OK) t->failed = signal_life(t->x), t->signs++;
    if (t->x->words && token == tokenizer_about(t->x->words).end_of_text) return false;
    err_t rc = append_token(t, token);
    if (t->failed == ERR_OK) t->failed = rc;
    return rc == ERR_OK && !stops(t, before);
}

// The others wait for a sign of life for every token, also for those that could not be generated.
static err_t signal_rest(text_sink *t, err_t rc) {
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    for (; others_listen(t->x) && t->failed == ERR_OK && t->signs < t->x->cfg->sample.tokens; t->signs++) t->failed = signal_life(t->x);
    return rc == ERR_OK ? t->failed : err_restore(&why);
}

static err_t predict_text(text_sink *t, const char *prompt) {
    session *x = t->x;
    const config *c = x->cfg;
    predict_options o = {.prompt = prompt,
                         .tokens = c->sample.tokens,
                         .temperature = c->sample.temperature,
                         .top_k = c->sample.top_k,
                         .top_p = c->sample.top_p,
                         .min_p = c->sample.min_p,
                         .seed = (uint64_t)c->run.seed,
                         .step = x->step,
                         .put = put_token,
                         .ctx = t};
    encoder *e = NULL;
    if (x->words) TRY(encoder_open(&e, x->words));
    err_t rc = e ? encoder_encode(e, prompt, (int64_t)strlen(prompt), ENCODE_TEXT | ENCODE_BEGIN, &o.ids, &o.count) : ERR_OK;
    if (rc == ERR_OK) rc = evaluator_predict(&x->evaluator, &o);
    if (e) encoder_close(e);
    return rc;
}

err_t session_sample(session *x, const char *prompt, char **out) {
    text_sink t = {.x = x, .room = 1};
    *out = NULL;
    t.text = calloc(1, t.room);
    if (!t.text) return signal_rest(&t, err_set(ERR_INTERNAL, "no memory for a sample"));
    err_t rc = signal_rest(&t, predict_text(&t, prompt));
    if (rc == ERR_OK) *out = t.text;
    else free(t.text);
    return rc;
}

err_t session_hear_sample(session *x) {
    for (int64_t i = 0; i < x->cfg->sample.tokens; i++) TRY(signal_life(x));
    return ERR_OK;
}
