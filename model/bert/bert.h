// model/bert/bert.h: the options of BERT, for model/types.h.
#ifndef MODEL_BERT_BERT_H
#define MODEL_BERT_BERT_H

#include "model/rule.h"

#include <stdint.h>

typedef enum { BERT_MLM, BERT_CLASSIFY, BERT_REGRESS } bert_task;

typedef struct bert_options {
    model_division by;
    int task;            // bert_task
    bool next_sentence;  // of BERT_MLM: samples are pairs of texts
    int64_t layers, heads, embed, hidden, vocab, context, types, classes;
    double masked, norm_eps, dropout;
    int64_t mask_token, begin_token, end_token;
    int64_t head_chunks;  // 0 in the file: chosen by resolve
    int64_t places;       // masked positions of a sample
} bert_options;

// bert/foreign.c: for model_type.
struct param;
struct weight_part;
struct foreign_reader;
struct json_t;
int bert_parts(const void *options, const struct param *p, struct weight_part *part);
bool bert_ignores(const void *options, const char *name);
void bert_from_foreign(void *options, struct foreign_reader *r);
err_t bert_to_foreign(const void *options, struct json_t *config);

#endif
