// model/gpt/gpt.h: the options of GPT, for model/types.h.
#ifndef MODEL_GPT_GPT_H
#define MODEL_GPT_GPT_H

#include <stdint.h>

typedef struct gpt_options {
    int64_t layers, heads, embed, vocab, context;
    int64_t head_chunks;  // 0 in the file: chosen by resolve
    double dropout;
} gpt_options;

#endif
