// model/types.h: the architectures there are. One more is a line in MODELS and a file of options, beside its own folder.
#ifndef MODEL_TYPES_H
#define MODEL_TYPES_H

#include "model/gemma/gemma.h"
#include "model/gpt/gpt.h"
#include "model/llama/llama.h"
#include "model/mlp/mlp.h"
#include "model/model.h"

#define MODELS(X) X(gpt) X(mlp) X(llama) X(gemma)

// The options of whichever is chosen.
typedef union model_options {
#define MODEL_OPTIONS(name) name##_options name;
    MODELS(MODEL_OPTIONS)
#undef MODEL_OPTIONS
} model_options;

#define MODEL_DECLARATION(name) extern const model_type model_##name;
MODELS(MODEL_DECLARATION)
#undef MODEL_DECLARATION

enum {
#define MODEL_INDEX(name) MODEL_##name,
    MODELS(MODEL_INDEX)
#undef MODEL_INDEX
        MODEL_TYPES
};

// In the order of MODELS, which is that of the words of [model] type.
extern const model_type *const model_types[MODEL_TYPES];
#define MODEL_WORD(name) " " #name
#define MODEL_WORDS MODELS(MODEL_WORD)  // " gpt mlp llama gemma"
#define MODEL_DEFAULT "gpt"             // the first

#endif
