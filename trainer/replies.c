// trainer/replies.c: see trainer/replies.h.
#include "trainer/replies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reply_count {
    int64_t of, right, said;
} reply_count;

typedef struct tally {
    const session *x;
    int64_t T;        // tokens of an answer, after which there is -1
    int64_t answers;  // that occur so far
    int32_t *own;     // (T) of a sample
    int32_t *tokens;  // (REPLIES_MOST,T) of each answer
    int32_t *which;   // (samples) the answer of each
    reply_count count[REPLIES_MOST];
} tally;

static err_t tally_open(tally *t, const session *x, int64_t samples) {
    size_t T = (size_t)x->net->losses;
    *t = (tally){.x = x, .T = x->net->losses};
    t->own = malloc(T * sizeof *t->own);
    t->tokens = malloc(REPLIES_MOST * T * sizeof *t->tokens);
    t->which = malloc((size_t)samples * sizeof *t->which);
    if (t->own && t->tokens && t->which) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory to count %" PRId64 " answers", samples);
}

static void tally_close(tally *t) { free(t->own), free(t->tokens), free(t->which); }

static const int32_t *answer_at(const tally *t, int64_t k) { return t->tokens + k * t->T; }

// Which answer t->own is; a new one is added, unless there are too many: then REPLIES_MOST.
static int64_t find_answer(tally *t) {
    size_t bytes = (size_t)t->T * sizeof *t->own;
    for (int64_t k = 0; k < t->answers; k++)
        if (memcmp(answer_at(t, k), t->own, bytes) == 0) return k;
    if (t->answers == REPLIES_MOST) return REPLIES_MOST;
    memcpy(t->tokens + t->answers * t->T, t->own, bytes);
    return t->answers++;
}

// What all samples' answers are. *known as in replies_f1.
static err_t find_answers(tally *t, int64_t samples, bool *known) {
    void *to[MODEL_INPUTS] = {0};
    to[t->x->net->targets] = t->own;
    *known = true;
    for (int64_t i = 0; i < samples && *known; i++) {
        TRY(source_look(t->x->val, i, to));
        int64_t k = find_answer(t);
        t->which[i] = (int32_t)k, *known = k < REPLIES_MOST;
    }
    return ERR_OK;
}

// The one answer that begins as `own` does and goes on as the model; -1: none, or several.
static int64_t answer_said(const tally *t, const int32_t *own, const text_answer *said) {
    int64_t found = -1;
    for (int64_t k = 0; k < t->answers; k++) {
        const int32_t *other = answer_at(t, k);
        if (other[said->at] != said->token || memcmp(other, own, (size_t)said->at * sizeof *own) != 0) continue;
        if (found >= 0) return -1;
        found = k;
    }
    return found;
}

static void count_sample(tally *t, int64_t which, const text_answer *said) {
    int64_t k = said->at < 0 ? which : answer_said(t, answer_at(t, which), said);
    t->count[which].of++;
    t->count[which].right += said->at < 0;
    if (k >= 0) t->count[k].said++;
}

err_t replies_f1(const session *x, const evaluation *e, double *f1, bool *known) {
    tally t;
    *f1 = 0, *known = false;
    if (!x->replies) return err_set(ERR_INTERNAL, "no answers were kept");
    err_t rc = tally_open(&t, x, e->samples);
    if (rc == ERR_OK) rc = find_answers(&t, e->samples, known);
    for (int64_t i = 0; rc == ERR_OK && *known && i < e->samples; i++) count_sample(&t, t.which[i], &x->replies[i]);
    for (int64_t k = 0; rc == ERR_OK && *known && k < t.answers; k++)
        *f1 += 2 * (double)t.count[k].right / (double)(t.count[k].of + t.count[k].said);
    if (rc == ERR_OK && *known && t.answers) *f1 /= (double)t.answers;
    tally_close(&t);
    return rc;
}
