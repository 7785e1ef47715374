// model/predict.c: see model/predict.h.
#include "model/predict.h"

#include "base/fmath.h"
#include "base/philox.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The k-th largest of n values (k >= 1), by selection over a copy.
static float kth_largest(const float *x, int64_t n, int64_t k, float *copy) {
    memcpy(copy, x, (size_t)n * sizeof *x);
    int64_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = copy[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (copy[i] > pivot) i++;
            while (copy[j] < pivot) j--;
            if (i > j) break;
            float t = copy[i];
            copy[i++] = copy[j];
            copy[j--] = t;
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    return copy[k - 1];
}

static int32_t likeliest(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// Nucleus sampling: the least of the fewest largest values, of those from `low` on, whose share is top_p. Sums are
// doubles, in order of size.
static float least_of_share(const float *x, int64_t n, float low, float best, const predict_options *o, float *copy) {
    int64_t count = 0;
    double total = 0, at = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] >= low) copy[count++] = x[i];
    qsort(copy, (size_t)count, sizeof *copy, descending);
    for (int64_t i = 0; i < count; i++) total += fm_exp((copy[i] - best) / o->temperature);
    for (int64_t i = 0; i < count; i++) {
        at += fm_exp((copy[i] - best) / o->temperature);
        if (at >= o->top_p * total) return copy[i];
    }
    return low;
}

// The share of value x; 0 if it is below `low`.
static double share_of(float x, float low, float best, const predict_options *o) {
    double share = x >= low ? fm_exp((x - best) / o->temperature) : 0;
    return share >= o->min_p ? share : 0;
}

// Draws from softmax(x / temperature) over what top_k, top_p and min_p leave; u in [0,1) is the draw. Sums are doubles,
// in order of index.
static int32_t draw(const float *x, int64_t n, const predict_options *o, double u, float *copy) {
    int32_t best = likeliest(x, n);
    if (o->temperature <= 0) return best;
    float low = o->top_k > 0 && o->top_k < n ? kth_largest(x, n, o->top_k, copy) : -INFINITY;
    if (o->top_p > 0 && o->top_p < 1) low = least_of_share(x, n, low, x[best], o, copy);
    double total = 0, at = 0;
    for (int64_t i = 0; i < n; i++) total += share_of(x[i], low, x[best], o);
    for (int64_t i = 0; i < n; i++) {
        at += share_of(x[i], low, x[best], o);
        if (u * total < at) return (int32_t)i;
    }
    return best;
}

// A text that is being continued.
typedef struct growing {
    int number;           // among the texts of the call; -1: the slot is free
    int64_t count, kept;  // tokens of its context; those that were scored before
    int64_t drawn;        // new ones
    int64_t read;         // of a model that reads another text: that one's
} growing;

// What lies before the last `context` tokens is never read.
err_t predict_can(const model *m) {
    if (m->vocab) return ERR_OK;
    return err_set(ERR_CONFIG, "a model of type %s has nothing to sample: it does not continue texts", m->type->name);
}

// Copies the last tokens of a prompt, checked; tokens NULL: only checks. An empty prompt becomes a newline if tokens
// are bytes, else the first token.
static err_t take_prompt(const model *m, const char *prompt, const int32_t *ids, int64_t count, int32_t *tokens,
                         int64_t *taken) {
    static const char hint[] = "choose another [sample] prompt, or [sample] tokens = 0 for no samples";
    if (!ids && !prompt[0]) prompt = "\n";
    int64_t n = ids ? count : (int64_t)strlen(prompt);
    for (int64_t i = n > m->context ? n - m->context : 0; i < n; i++) {
        int32_t token = ids ? ids[i] : (unsigned char)prompt[i];
        if (tokens) tokens[(*taken)++] = token;
        if (token >= 0 && token < m->vocab) continue;
        if (ids)
            return err_set(ERR_CONFIG,
                           "prompt: token %d is none of a vocabulary of %" PRId64
                           ": [sample] tokenizer is not that of the data; %s",
                           token, m->vocab, hint);
        return err_set(ERR_CONFIG,
                       "prompt: byte %d at position %" PRId64 " is no token of a vocabulary of %" PRId64 "; %s", token,
                       i, m->vocab, hint);
    }
    if (tokens && !*taken) tokens[(*taken)++] = 0;
    return ERR_OK;
}

// A text that is read, with its end, and the token that begins what is said of it; in between, and after it, tokens
// that nothing sees.
static err_t take_text(const model *m, const predict_text *text, int32_t *tokens, growing *g) {
    predict_text some = *text;
    int64_t most = m->reads - 1, n = 0;
    for (int64_t i = 0; i < m->context; i++) tokens[i] = (int32_t)m->begin;
    if (text->ids && text->count > most) some.count = most;
    if (text->ids || (int64_t)strlen(text->prompt) <= most)
        TRY(take_prompt(m, some.prompt, some.ids, some.count, tokens, &n));
    else {
        TRY(take_prompt(m, text->prompt, NULL, 0, NULL, NULL));
        for (; n < most; n++) tokens[n] = (unsigned char)text->prompt[n];
    }
    tokens[n++] = (int32_t)m->end;
    g->read = n, g->count = m->reads + 1;
    return ERR_OK;
}

int64_t predict_most(const model *m, int64_t wanted) {
    int64_t room = m->context - m->reads;
    return m->reads && room < wanted ? room : wanted;
}

err_t predict_check(const model *m, const char *prompt, const int32_t *ids, int64_t count) {
    return take_prompt(m, prompt, ids, count, NULL, NULL);
}

// Appends the token to the context. A full context loses its first token, and all positions change.
static void append_token(const model *m, int32_t *tokens, growing *g, int32_t token) {
    g->kept = g->count;
    if (g->count == m->context) {
        memmove(tokens, tokens + 1, (size_t)(--g->count) * sizeof *tokens);
        g->kept = 0;
    }
    tokens[g->count++] = token;
}

typedef struct prediction {
    const model *m;
    const predict_options *o;
    const predict_text *text;
    int texts, next;  // the next one that begins
    const predict_with *w;
    growing *at;       // [kv_slots]
    predict_ask *ask;  // [kv_slots]
} prediction;

static int32_t *tokens_at(const prediction *x, int kv_slot) { return x->w->tokens + kv_slot * x->m->context; }

// Gives free slots to texts that wait. Returns how many are in use.
static err_t fill_slots(prediction *x, int *asks) {
    *asks = 0;
    for (int p = 0; p < x->w->kv_slots; p++) {
        growing *g = &x->at[p];
        if (g->number < 0 && x->next < x->texts) {
            *g = (growing){.number = x->next++};
            const predict_text *text = &x->text[g->number];
            if (x->m->reads) TRY(take_text(x->m, text, tokens_at(x, p), g));
            else TRY(take_prompt(x->m, text->prompt, text->ids, text->count, tokens_at(x, p), &g->count));
        }
        if (g->number < 0) continue;
        x->ask[(*asks)++] = (predict_ask){.kv_slot = p,
                                          .tokens = tokens_at(x, p),
                                          .count = g->count,
                                          .kept = g->kept,
                                          .read = g->read,
                                          .scores = x->w->scores + p * x->m->vocab};
    }
    return ERR_OK;
}

static void take_token(prediction *x, const predict_ask *ask) {
    growing *g = &x->at[ask->kv_slot];
    const predict_text *text = &x->text[g->number];
    uint32_t bits[4];
    philox4x32(bits, x->o->seed, (uint32_t)g->number, SITE_SAMPLE, (uint32_t)x->o->step, (uint32_t)g->drawn++);
    int32_t token = draw(ask->scores, x->m->vocab, x->o, bits[0] * 0x1p-32, x->w->copy);
    bool last = !text->put(text->ctx, token) || g->drawn == predict_most(x->m, x->o->tokens);
    if (!last) append_token(x->m, tokens_at(x, ask->kv_slot), g, token);
    if (last) g->number = -1;
}

err_t predict(const model *m, const predict_options *o, const predict_text *text, int count, const predict_with *w) {
    prediction x = {.m = m, .o = o, .text = text, .texts = o->tokens > 0 ? count : 0, .w = w};
    TRY(predict_can(m));
    x.at = calloc((size_t)w->kv_slots, sizeof *x.at);
    x.ask = calloc((size_t)w->kv_slots, sizeof *x.ask);
    err_t rc = x.at && x.ask ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d texts", w->kv_slots);
    for (int p = 0; rc == ERR_OK && p < w->kv_slots; p++) x.at[p].number = -1;
    for (int asks = 1; rc == ERR_OK && asks > 0;) {
        rc = fill_slots(&x, &asks);
        if (rc == ERR_OK && asks > 0) rc = w->score(w->ctx, x.ask, asks);
        for (int i = 0; rc == ERR_OK && i < asks; i++) take_token(&x, &x.ask[i]);
    }
    free(x.at), free(x.ask);
    return rc;
}
