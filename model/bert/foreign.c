// model/bert/foreign.c: BERT as Hugging Face has it. Queries, keys and values are matrices of their own; names of the
// body may have a prefix, those of heads have none.
#include "model/foreign.h"
#include "model/bert/bert.h"

#include <stdio.h>
#include <string.h>

static const char REGRESSION[] = "regression", CLASSES[] = "single_label_classification";

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

static bool of_head(const char *name) { return begins(name, "cls.") || begins(name, "classifier."); }

int bert_parts(const void *options, const param *p, weight_part *part) {
    static const char *const of[] = {"query", "key", "value"};
    const char *qkv = strstr(p->name, ".qkv.");
    bool table = strcmp(p->name, "embeddings.word_embeddings.weight") == 0 ||
                 strcmp(p->name, "embeddings.position_embeddings.weight") == 0 ||
                 strcmp(p->name, "cls.predictions.bias") == 0;
    (void)options;
    for (int k = 0; k < (qkv ? 3 : 1); k++) {
        part[k] = (weight_part){.prefixed = !of_head(p->name), .table = table, .rows = p->size[0] / (qkv ? 3 : 1)};
        if (qkv)
            snprintf(part[k].name, sizeof part[k].name, "%.*s.%s.%s", (int)(qkv - p->name), p->name, of[k], qkv + 5);
        else memcpy(part[k].name, p->name, sizeof part[k].name);
    }
    return qkv ? 3 : 1;
}

// A buffer, copies of the embedding and the bias, and what belongs to the heads of other tasks.
bool bert_ignores(const void *options, const char *name) {
    const bert_options *o = options;
    if (begins(name, "bert.")) name += strlen("bert.");
    if (strcmp(name, "embeddings.position_ids") == 0 || strcmp(name, "cls.predictions.decoder.bias") == 0) return true;
    if (o->task != BERT_MLM) return begins(name, "cls.");
    if (begins(name, "pooler.") || begins(name, "cls.seq_relationship.")) return !o->next_sentence;
    return begins(name, "classifier.");
}

static void read_task(bert_options *o, foreign_reader *r) {
    const char *class = json_string_value(json_array_get(json_object_get(r->at, "architectures"), 0));
    const json_t *labels = json_object_get(r->at, "id2label");
    int64_t outputs = foreign_int(r, "num_labels", json_is_object(labels) ? (int64_t)json_object_size(labels) : 2);
    const char *problem = foreign_text(r, "problem_type", outputs == 1 ? REGRESSION : CLASSES);
    o->task = BERT_MLM, o->next_sentence = class && strcmp(class, "BertForPreTraining") == 0;
    if (!class || strcmp(class, "BertForSequenceClassification") != 0) return;
    o->task = outputs == 1 ? BERT_REGRESS : BERT_CLASSIFY;
    if (outputs > 1) o->classes = outputs;
    if (strcmp(problem, outputs == 1 ? REGRESSION : CLASSES) != 0)
        foreign_refuse(r, "problem_type",
                       outputs == 1 ? "expected regression, as there is one label"
                                    : "expected single_label_classification");
}

void bert_from_foreign(void *options, foreign_reader *r) {
    bert_options *o = options;
    o->layers = foreign_int(r, "num_hidden_layers", 12);
    o->heads = foreign_int(r, "num_attention_heads", 12);
    o->embed = foreign_int(r, "hidden_size", 768);
    o->hidden = foreign_int(r, "intermediate_size", 3072);
    o->vocab = foreign_int(r, "vocab_size", 30522);
    o->context = foreign_int(r, "max_position_embeddings", 512);
    o->types = foreign_int(r, "type_vocab_size", 2);
    o->norm_eps = foreign_real(r, "layer_norm_eps", 1e-12);
    if (o->vocab > 2 && o->mask_token >= o->vocab)  // those of the published models are not in it
        o->mask_token = o->vocab - 1, o->begin_token = o->vocab - 3, o->end_token = o->vocab - 2;
    read_task(o, r);
    if (strcmp(foreign_text(r, "hidden_act", "gelu"), "gelu") != 0)
        foreign_refuse(r, "hidden_act", "expected gelu, its form with erf");
    if (strcmp(foreign_text(r, "position_embedding_type", "absolute"), "absolute") != 0)
        foreign_refuse(r, "position_embedding_type", "expected absolute: others are not known here");
    if (foreign_bool(r, "is_decoder", false)) foreign_refuse(r, "is_decoder", "expected false");
    if (foreign_bool(r, "add_cross_attention", false)) foreign_refuse(r, "add_cross_attention", "expected false");
    if (o->task == BERT_MLM && !foreign_bool(r, "tie_word_embeddings", true))
        foreign_refuse(r, "tie_word_embeddings", "expected true: the decoder of masked tokens is the embedding");
}

// Classes are called by their numbers.
static int add_labels(json_t *config, int64_t classes) {
    json_t *names = json_object(), *numbers = json_object();
    int failed = 0;
    for (int64_t i = 0; i < classes; i++) {
        char number[32], name[32];
        snprintf(number, sizeof number, "%lld", (long long)i), snprintf(name, sizeof name, "LABEL_%lld", (long long)i);
        failed |= json_object_set_new(names, number, json_string(name));
        failed |= json_object_set_new(numbers, name, json_integer((json_int_t)i));
    }
    failed |= json_object_set_new(config, "id2label", names);
    return failed | json_object_set_new(config, "label2id", numbers);
}

err_t bert_to_foreign(const void *options, json_t *config) {
    const bert_options *o = options;
    const char *class = o->task != BERT_MLM ? "BertForSequenceClassification"
                        : o->next_sentence  ? "BertForPreTraining"
                                            : "BertForMaskedLM";
    json_t *all =
        json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s, s:f, s:f, s:f, s:b}", "architectures",
                  class, "model_type", "bert", "num_hidden_layers", (json_int_t)o->layers, "num_attention_heads",
                  (json_int_t)o->heads, "hidden_size", (json_int_t)o->embed, "intermediate_size", (json_int_t)o->hidden,
                  "vocab_size", (json_int_t)o->vocab, "max_position_embeddings", (json_int_t)o->context,
                  "type_vocab_size", (json_int_t)o->types, "layer_norm_eps", o->norm_eps, "hidden_act", "gelu",
                  "position_embedding_type", "absolute", "initializer_range", 0.02, "hidden_dropout_prob", o->dropout,
                  "attention_probs_dropout_prob", o->dropout, "tie_word_embeddings", 1);
    int failed = json_object_update_new(config, all);
    if (o->task == BERT_CLASSIFY) failed |= add_labels(config, o->classes);
    if (o->task == BERT_REGRESS)
        failed |= add_labels(config, 1) | json_object_set_new(config, "problem_type", json_string(REGRESSION));
    return failed ? err_set(ERR_INTERNAL, "no memory for config.json") : ERR_OK;
}
