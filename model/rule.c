// model/rule.c: see model/rule.h.
#include "model/rule.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>

void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value) {
    int n = 0;
    if (*at) return;
    *at = value;
    while (r->chosen[n]) n++;
    r->chosen[n] = key;
}

const char *adapter_target(const char *t, size_t *n) {
    t += strspn(t, " ,");
    *n = strcspn(t, " ,");
    return t;
}

// Samples that a token slice would cut in the middle are refused.
static err_t check_tokens(model_rule *r, int64_t context) {
    if (r->tokens <= 1 || r->micro % r->tokens == 0 || r->tokens % r->micro == 0) return ERR_OK;
    return rule_break(r, KEYS("parallel.token_slices", "batch.micro"),
                      "micro-batches of %" PRId64 " x %" PRId64
                      " positions can't have [parallel] token_slices = %" PRId64
                      ": each has whole samples, or an equal part of one",
                      r->micro, context, r->tokens);
}

static err_t check_rows(model_rule *r, int64_t context) {
    if (r->slices > r->micro * context)
        return rule_break(r, KEYS("context", "batch.micro", "parallel.slices"),
                          "micro-batches of %" PRId64 " x %" PRId64 " positions can't have [parallel] slices = %" PRId64
                          ": each slice has some of the positions",
                          r->micro, context, r->slices);
    return check_tokens(r, context);
}

static err_t check_span(model_rule *r) {
    if (r->span <= 1) return ERR_OK;
    return rule_break(
        r, KEYS("batch.bn_span", "type"),
        "bn_span says which samples batch norms take their moments of, and this model has none: expected 1");
}

bool adapters_freeze(const model_adapters *is, const char *name) {
    char glob[FROZEN_GLOBS];
    for (const char *at = is->frozen; *at;) {
        size_t n = strcspn(at, " ");
        snprintf(glob, sizeof glob, "%.*s", (int)n - 1, at + 1);
        if (fnmatch(glob, name, 0) == 0) return *at == '-';
        at += n, at += strspn(at, " ");
    }
    return false;
}

static bool adapts(const model_rule *r) { return r->adapters && r->adapters->rank > 0; }

// Weights are frozen where text is read.
static err_t check_no_adapters(model_rule *r) {
    if (!adapts(r)) return ERR_OK;
    return rule_break(r, KEYS("lora.rank", "type"),
                      "adapters are for models of text: expected rank = 0, found %" PRId64, r->adapters->rank);
}

err_t rule_divide_texts(model_rule *r, int64_t context, int64_t dropped, model_division *by) {
    TRY(check_span(r));
    TRY(check_rows(r, context));
    *by = (model_division){.slices = r->slices, .tokens = r->tokens, .documents = r->documents};
    if (r->adapters) by->adapters = *r->adapters;
    if ((!r->rows && r->tokens <= 1) || dropped % 4 == 0) return ERR_OK;
    return rule_break(r, KEYS("embed", "dropout", r->rows ? "parallel.sequence" : "parallel.token_slices"),
                      "embed = %" PRId64 " is not a multiple of 4, as dropout wants where [parallel] %s", dropped,
                      r->rows ? "sequence = yes" : "token_slices are more than 1");
}

// Only what continues texts can tell documents apart.
static err_t check_no_documents(model_rule *r) {
    if (!r->documents) return ERR_OK;
    return rule_break(r, KEYS("data.documents", "type"),
                      "documents = yes is for models that continue texts: expected no");
}

// There are no positions that could be divided.
static err_t check_positions(model_rule *r, const char *what) {
    if (!r->rows && r->tokens <= 1) return ERR_OK;
    return rule_break(r, KEYS("type", r->rows ? "parallel.sequence" : "parallel.token_slices"),
                      "a %s has no residual stream to divide, as [parallel] %s would", what,
                      r->rows ? "sequence = yes" : "token_slices of more than 1");
}

err_t rule_divide_layers(model_rule *r, const char *what, model_division *by) {
    *by = (model_division){.slices = r->slices, .tokens = 1};
    if (r->adapters) by->adapters = *r->adapters;
    TRY(check_no_adapters(r));
    TRY(check_no_documents(r));
    TRY(check_span(r));
    return check_positions(r, what);
}

err_t rule_divide_encoder(model_rule *r, const char *what, int64_t rows, model_division *by) {
    *by = (model_division){.slices = r->slices, .tokens = 1};
    if (adapts(r))
        return rule_break(r, KEYS("lora.rank", "type"),
                          "adapters are for models that continue texts: type = %s wants rank = 0, found %" PRId64, what,
                          r->adapters->rank);
    TRY(check_no_documents(r));
    TRY(check_span(r));
    if (r->rows || r->tokens > 1)
        return rule_break(
            r, KEYS(r->rows ? "parallel.sequence" : "parallel.token_slices"),
            "type = %s works on whole samples, whose positions [parallel] %s would divide; tensor divides "
            "its layers",
            what, r->rows ? "sequence = yes" : "token_slices of more than 1");
    if (r->slices <= r->micro * rows) return ERR_OK;
    return rule_break(r, KEYS("parallel.slices", "batch.micro"),
                      "micro-batches of %" PRId64 " samples, of each %" PRId64
                      " rows in the head, can't have [parallel] slices = %" PRId64 ": each slice has some of the rows",
                      r->micro, rows, r->slices);
}

err_t rule_divide_samples(model_rule *r, const char *what, model_division *by) {
    *by = (model_division){.slices = 1, .tokens = r->span};
    if (r->adapters) by->adapters = *r->adapters;
    TRY(check_no_adapters(r));
    TRY(check_no_documents(r));
    TRY(check_positions(r, what));
    if (r->slices <= 1) return ERR_OK;
    return rule_break(r, KEYS("parallel.slices"),
                      "the layers of a %s can't be divided: expected slices = 1, found %" PRId64, what, r->slices);
}
