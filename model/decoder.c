// model/decoder.c: see model/decoder.h.
#include "model/decoder.h"

#include "model/foreign.h"
#include "model/head.h"

#include <inttypes.h>
#include <stdio.h>

void decoder_describe(const void *options, char *dst, size_t room) {
    const decoder *d = options;
    snprintf(dst, room, "%" PRId64 " layers %" PRId64 " channels %" PRId64 "/%" PRId64 " heads", d->layers, d->embed,
             d->heads, d->kv_heads);
}

// --- rules -----------------------------------------------------------------------------------------------------------

static err_t check_heads(model_rule *r, int64_t embed, int64_t heads, int64_t *kv_heads, int64_t *head_dim) {
    rule_choose(r, "kv_heads", kv_heads, heads);
    if (heads % *kv_heads)
        return rule_break(r, KEYS("kv_heads", "heads"), "heads = %" PRId64 " is not a multiple of kv_heads = %" PRId64,
                          heads, *kv_heads);
    bool open = !*head_dim;
    if (open && embed % heads)
        return rule_break(r, KEYS("heads", "embed", "head_dim"),
                          "embed = %" PRId64 " is not a multiple of heads = %" PRId64 ", and head_dim is left open",
                          embed, heads);
    rule_choose(r, "head_dim", head_dim, embed / heads);
    if (*head_dim % 2 == 0) return ERR_OK;
    return rule_break(r, KEYS("head_dim", open ? "embed" : NULL, open ? "heads" : NULL),
                      "heads of %" PRId64 " elements can't be turned in pairs: expected an even number", *head_dim);
}

err_t decoder_resolve(void *options, model_rule *r) {
    decoder *d = options;
    TRY(check_heads(r, d->embed, d->heads, &d->kv_heads, &d->head_dim));
    rule_choose(r, "hidden", &d->hidden, (d->embed * 8 / 3 + 63) / 64 * 64);
    TRY(rule_divide_texts(r, d->context, 0, &d->by));
    r->divided[0] = "heads", r->value[0] = d->heads;
    r->divided[1] = "kv_heads", r->value[1] = d->kv_heads;
    r->divided[2] = "hidden", r->value[2] = d->hidden;
    r->blocks = (int)d->layers + 2;
    r->tied = true;  // unless the architecture says otherwise
    rule_choose(r, "head_chunks", &d->head_chunks, head_chunks(r->micro * d->context, d->vocab, r->gpu));
    return ERR_OK;
}

// --- files of others -------------------------------------------------------------------------------------------------

// name is "layers.N.group.both_proj.weight": one part for each of `names`, in its place.
static int split(const char *name, const char *both, const char *const *names, const int64_t *rows, int count,
                 weight_part *part) {
    const char *at = strstr(name, both);
    for (int k = 0; k < count; k++) {
        part[k] = (weight_part){.prefixed = true, .rows = rows[k]};
        snprintf(part[k].name, sizeof part[k].name, "%.*s%s%s", (int)(at - name), name, names[k], at + strlen(both));
    }
    return count;
}

int decoder_parts(const void *options, const param *p, weight_part *part) {
    static const char *const qkv[] = {"q_proj", "k_proj", "v_proj"}, *const in[] = {"gate_proj", "up_proj"};
    const decoder *d = options;
    int64_t Q = d->heads * d->head_dim, K = d->kv_heads * d->head_dim, F = d->hidden;
    if (strstr(p->name, "qkv_proj")) return split(p->name, "qkv_proj", qkv, (const int64_t[]){Q, K, K}, 3, part);
    if (strstr(p->name, "gate_up_proj")) return split(p->name, "gate_up_proj", in, (const int64_t[]){F, F}, 2, part);
    bool head = strcmp(p->name, "lm_head.weight") == 0, table = head || strcmp(p->name, "embed_tokens.weight") == 0;
    part[0] = (weight_part){.prefixed = !head, .table = table, .rows = p->size[0]};
    snprintf(part[0].name, sizeof part[0].name, "%s", p->name);
    return 1;
}

static const struct {
    const char *name;
    size_t at;
} sizes[DECODER_SIZES] = {
    {"num_hidden_layers", offsetof(decoder, layers)},
    {"num_attention_heads", offsetof(decoder, heads)},
    {"num_key_value_heads", offsetof(decoder, kv_heads)},
    {"hidden_size", offsetof(decoder, embed)},
    {"intermediate_size", offsetof(decoder, hidden)},
    {"head_dim", offsetof(decoder, head_dim)},
    {"vocab_size", offsetof(decoder, vocab)},
    {"max_position_embeddings", offsetof(decoder, context)},
};

void decoder_from_foreign(decoder *d, foreign_reader *r, const int64_t unsaid[DECODER_SIZES]) {
    for (int i = 0; i < DECODER_SIZES; i++)
        *(int64_t *)((char *)d + sizes[i].at) = foreign_int(r, sizes[i].name, unsaid[i]);
    if (d->context > ROPE_MOST) d->context = ROPE_MOST;
    d->norm_eps = foreign_real(r, "rms_norm_eps", 1e-6);
}

int decoder_to_foreign(const decoder *d, json_t *config, const char *class, const char *type) {
    int failed = json_object_update_new(config, json_pack("{s:[s], s:s}", "architectures", class, "model_type", type));
    for (int i = 0; i < DECODER_SIZES; i++)
        failed |=
            json_object_set_new(config, sizes[i].name, json_integer(*(const int64_t *)((const char *)d + sizes[i].at)));
    return failed | json_object_set_new(config, "rms_norm_eps", json_real(d->norm_eps));
}
