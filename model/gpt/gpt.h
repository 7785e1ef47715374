// model/gpt/gpt.h: the options of GPT, for model/types.h.
#ifndef MODEL_GPT_GPT_H
#define MODEL_GPT_GPT_H

#include "model/rule.h"

#include <stdint.h>

typedef struct gpt_options {
    model_division by;
    int64_t layers, heads, embed, vocab, context;
    int64_t head_chunks;  // 0 in the file: chosen by resolve
    double dropout;
} gpt_options;

// gpt/foreign.c: for model_type.
struct param;
struct weight_part;
struct foreign_reader;
struct json_t;
int gpt_parts(const void *options, const struct param *p, struct weight_part *part);
void gpt_from_foreign(void *options, struct foreign_reader *r);
err_t gpt_to_foreign(const void *options, struct json_t *config);

#endif
