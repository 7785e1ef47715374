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

// The least value of the fewest largest ones, of those from `low` on, that together have the share top_p. Sums are doubles, in order of size.
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

// Draws from softmax(x / temperature) over what top_k, top_p and min_p leave; u in [0,1) is the draw. Sums are doubles, in order of index.
static int32_t draw(const float *x, int64_t n, const predict_options *o, double u, float *copy) {
    int32_t best = likeliest(x, n);
    if (o->temperature <= 0) return best;
    float low = o->top_k > 0 && o->top_k < n ? kth_largest(x, n, o->top_k, copy) : -INFINITY;
    if (o->top_p > 0 && o->top_p < 1) low = least_of_share(x, n, low, x[best], o, copy);
    double total = 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= low)) continue;
        double share = fm_exp((x[i] - x[best]) / o->temperature);
        if (share >= o->min_p) total += share;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= low)) continue;
        double share = fm_exp((x[i] - x[best]) / o->temperature);
        if (share < o->min_p) continue;
        at += share;
        if (u * total < at) return (int32_t)i;
    }
    return best;
}

static err_t next_token(const model *m, const predict_options *o, const predict_with *w, int64_t count, int64_t n, int32_t *out) {
    uint32_t bits[4];
    TRY(w->score(w->ctx, w->context, count, w->scores));
    philox4x32(bits, o->seed, 0, SITE_SAMPLE, (uint32_t)o->step, (uint32_t)n);
    *out = draw(w->scores, m->vocab, o, bits[0] * 0x1p-32, w->copy);
    return ERR_OK;
}

// The prompt's last bytes as tokens; an empty one starts with a newline.
static err_t set_prompt(const model *m, const char *prompt, const predict_with *w, int64_t *count) {
    size_t length = strlen(prompt), skip = length > (size_t)m->context ? length - (size_t)m->context : 0;
    *count = 0;
    for (const char *c = length ? prompt + skip : "\n"; *c; c++) {
        if ((unsigned char)*c >= m->vocab)
            return err_set(ERR_CONFIG, "prompt: byte %d at position %d is no token of a vocabulary of %" PRId64 "; choose another [sample] prompt",
                           (unsigned char)*c, (int)(c - prompt), m->vocab);
        w->context[(*count)++] = (unsigned char)*c;
    }
    return ERR_OK;
}

// The last tokens of a prompt; an empty one starts with the first token.
static err_t set_ids(const model *m, const predict_options *o, const predict_with *w, int64_t *count) {
    int64_t skip = o->count > m->context ? o->count - m->context : 0;
    *count = 0;
    for (int64_t i = skip; i < o->count; i++) {
        if (o->ids[i] < 0 || o->ids[i] >= m->vocab)
            return err_set(ERR_CONFIG, "prompt: token %d is none of a vocabulary of %" PRId64 ": [sample] tokenizer is not that of the data",
                           o->ids[i], m->vocab);
        w->context[(*count)++] = o->ids[i];
    }
    if (*count == 0) w->context[(*count)++] = 0;
    return ERR_OK;
}

err_t predict(const model *m, const predict_options *o, const predict_with *w) {
    int64_t count;
    int32_t *tokens = w->context, token;
    if (!m->vocab) return err_set(ERR_CONFIG, "a model of type %s has nothing to sample: it does not continue texts", m->type->name);
    TRY(o->ids ? set_ids(m, o, w, &count) : set_prompt(m, o->prompt, w, &count));
    for (int64_t n = 0; n < o->tokens; n++) {
        TRY(next_token(m, o, w, count, n, &token));
        if (!o->put(o->ctx, token)) return ERR_OK;
        if (count == m->context) memmove(tokens, tokens + 1, (size_t)(--count) * sizeof *tokens);
        tokens[count++] = token;
    }
    return ERR_OK;
}

// The rule of set_prompt and set_ids: what lies before the last `context` tokens is never read.
err_t predict_check(const model *m, const char *prompt, const int32_t *ids, int64_t count) {
    static const char hint[] = "choose another [sample] prompt, or [sample] tokens = 0 for no samples";
    if (!ids && !prompt[0]) prompt = "\n";
    int64_t n = ids ? count : (int64_t)strlen(prompt);
    for (int64_t i = n > m->context ? n - m->context : 0; i < n; i++) {
        int32_t token = ids ? ids[i] : (unsigned char)prompt[i];
        if (token >= 0 && token < m->vocab) continue;
        if (ids)
            return err_set(ERR_CONFIG, "prompt: token %d is none of a vocabulary of %" PRId64 ": [sample] tokenizer is not that of the data; %s",
                           token, m->vocab, hint);
        return err_set(ERR_CONFIG, "prompt: byte %d at position %" PRId64 " is no token of a vocabulary of %" PRId64 "; %s", token, i, m->vocab,
                       hint);
    }
    return ERR_OK;
}
