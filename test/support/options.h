// test/support/options.h: the options of every architecture, for tables of models.
#ifndef TEST_SUPPORT_OPTIONS_H
#define TEST_SUPPORT_OPTIONS_H

#include "model/bert/bert.h"
#include "model/gemma/gemma.h"
#include "model/gpt/gpt.h"
#include "model/llama/llama.h"
#include "model/mlp/mlp.h"
#include "model/t5/t5.h"
#include "model/types.h"

typedef union any_options {
    gpt_options gpt;
    llama_options llama;
    gemma_options gemma;
    mlp_options mlp;
    bert_options bert;
    t5_options t5;
} any_options;

// Those of a configuration.
static inline any_options *options_of(const model_options *o) { return (any_options *)o; }

#endif
