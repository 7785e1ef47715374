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
    err_t failed;   // of sending them
} text_sink;

static bool others_listen(const session *x) { return x->ranks->world > 1 && !x->state.shards.weights; }

static err_t signal_life(session *x) {
    comm *host = x->ranks->host;
    char token = 0;
    host->phase.what = "sample", host->phase.step = x->step, host->phase.number = 0;
    return host->table->broadcast(host, &token, sizeof token, 0, x->s);
}

// Bytes are written unchanged, except NUL, which would end the text and becomes U+FFFD. Larger tokens are shown by
// number.
static void put_token(void *ctx, int32_t token) {
    text_sink *t = ctx;
    char word[16];
    if (others_listen(t->x) && t->failed == ERR_OK) t->failed = signal_life(t->x), t->signs++;
    if (token > 0 && token < 256) snprintf(word, sizeof word, "%c", token);
    else if (token == 0) snprintf(word, sizeof word, "\xEF\xBF\xBD");
    else snprintf(word, sizeof word, "<%d>", token);
    size_t n = strlen(word);
    if (t->n + n + 1 > t->room) return;
    memcpy(t->text + t->n, word, n + 1);
    t->n += n;
}

// The others wait for a sign of life for every token, also for those that could not be generated.
static err_t signal_rest(text_sink *t, err_t rc) {
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    for (; others_listen(t->x) && t->failed == ERR_OK && t->signs < t->x->cfg->sample.tokens; t->signs++) t->failed = signal_life(t->x);
    return rc == ERR_OK ? t->failed : err_restore(&why);
}

err_t session_sample(session *x, const char *prompt, char **out) {
    const config *c = x->cfg;
    text_sink t = {.x = x, .room = (size_t)c->sample.tokens * 13 + 1};  // the longest is "<2147483647>"
    *out = NULL;
    t.text = calloc(1, t.room);
    if (!t.text) return signal_rest(&t, err_set(ERR_INTERNAL, "no memory for a sample of %" PRId64 " tokens", c->sample.tokens));
    predict_options o = {.prompt = prompt,
                         .tokens = c->sample.tokens,
                         .temperature = c->sample.temperature,
                         .top_k = c->sample.top_k,
                         .seed = (uint64_t)c->run.seed,
                         .step = x->step,
                         .put = put_token,
                         .ctx = &t};
    err_t rc = signal_rest(&t, evaluator_predict(&x->evaluator, &o));
    if (rc == ERR_OK) *out = t.text;
    else free(t.text);
    return rc;
}

err_t session_hear_sample(session *x) {
    for (int64_t i = 0; i < x->cfg->sample.tokens; i++) TRY(signal_life(x));
    return ERR_OK;
}
