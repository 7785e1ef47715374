// model/rule.c: see model/rule.h.
#include "model/rule.h"

#include <inttypes.h>
#include <string.h>

void rule_break(model_rule *r, const char *a, const char *b, const char *c, const char *d) {
    const char *const keys[RULE_KEYS] = {a, b, c, d};
    memcpy(r->broken, keys, sizeof keys);
}

void rule_choose(model_rule *r, const char *key, int64_t *at, int64_t value) {
    int n = 0;
    if (*at) return;
    *at = value;
    while (r->chosen[n]) n++;
    r->chosen[n] = key;
}

// Samples that a token slice would cut in the middle are refused.
static err_t check_tokens(model_rule *r, int64_t context) {
    if (r->tokens <= 1 || r->micro % r->tokens == 0 || r->tokens % r->micro == 0) return ERR_OK;
    rule_break(r, "parallel.token_slices", "batch.micro", NULL, NULL);
    return err_set(ERR_CONFIG,
                   "micro-batches of %" PRId64 " x %" PRId64 " positions can't have [parallel] token_slices = %" PRId64
                   ": each has whole samples, or an equal part of one",
                   r->micro, context, r->tokens);
}

static err_t check_rows(model_rule *r, int64_t context) {
    if (r->slices > r->micro * context) {
        rule_break(r, "context", "batch.micro", "parallel.slices", NULL);
        return err_set(ERR_CONFIG,
                       "micro-batches of %" PRId64 " x %" PRId64 " positions can't have [parallel] slices = %" PRId64
                       ": each slice has some of the positions",
                       r->micro, context, r->slices);
    }
    return check_tokens(r, context);
}

err_t rule_divide_texts(model_rule *r, int64_t context, int64_t dropped, model_division *by) {
    TRY(check_rows(r, context));
    *by = (model_division){r->slices, r->tokens};
    if ((!r->rows && r->tokens <= 1) || dropped % 4 == 0) return ERR_OK;
    rule_break(r, "embed", "dropout", r->rows ? "parallel.sequence" : "parallel.token_slices", NULL);
    return err_set(ERR_CONFIG, "embed = %" PRId64 " is not a multiple of 4, as dropout wants where [parallel] %s", dropped,
                   r->rows ? "sequence = yes" : "token_slices are more than 1");
}

static err_t check_heads(model_rule *r, int64_t embed, int64_t heads, int64_t *kv_heads, int64_t *head_dim) {
    rule_choose(r, "kv_heads", kv_heads, heads);
    if (heads % *kv_heads) {
        rule_break(r, "kv_heads", "heads", NULL, NULL);
        return err_set(ERR_CONFIG, "heads = %" PRId64 " is not a multiple of kv_heads = %" PRId64, heads, *kv_heads);
    }
    bool open = !*head_dim;
    if (open && embed % heads) {
        rule_break(r, "heads", "embed", "head_dim", NULL);
        return err_set(ERR_CONFIG, "embed = %" PRId64 " is not a multiple of heads = %" PRId64 ", and head_dim is left open", embed, heads);
    }
    rule_choose(r, "head_dim", head_dim, embed / heads);
    if (*head_dim % 2 == 0) return ERR_OK;
    rule_break(r, "head_dim", open ? "embed" : NULL, open ? "heads" : NULL, NULL);
    return err_set(ERR_CONFIG, "heads of %" PRId64 " elements can't be turned in pairs: expected an even number", *head_dim);
}

err_t rule_decoder(model_rule *r, const decoder_sizes *x, model_division *by) {
    TRY(check_heads(r, x->embed, x->heads, x->kv_heads, x->head_dim));
    rule_choose(r, "hidden", x->hidden, (x->embed * 8 / 3 + 63) / 64 * 64);
    TRY(rule_divide_texts(r, x->context, 0, by));
    r->divided[0] = "heads", r->value[0] = x->heads;
    r->divided[1] = "kv_heads", r->value[1] = *x->kv_heads;
    r->divided[2] = "hidden", r->value[2] = *x->hidden;
    r->blocks = (int)x->layers + 2;
    return ERR_OK;
}

err_t rule_divide_layers(model_rule *r, const char *what, model_division *by) {
    *by = (model_division){r->slices, 1};
    if (!r->rows && r->tokens <= 1) return ERR_OK;
    rule_break(r, "type", r->rows ? "parallel.sequence" : "parallel.token_slices", NULL, NULL);
    return err_set(ERR_CONFIG, "a %s has no residual stream to divide, as [parallel] %s would", what,
                   r->rows ? "sequence = yes" : "token_slices of more than 1");
}
