// model/types.h: the architectures there are. One more is its word in MODELS, beside its own folder.
#ifndef MODEL_TYPES_H
#define MODEL_TYPES_H

#include "model/model.h"

#include <stddef.h>

#define MODELS(X) X(gpt) X(mlp) X(llama) X(gemma) X(resnet) X(bert) X(dlrm) X(t5)

// Room for the options of whichever is chosen (model_type.options).
enum { MODEL_OPTIONS_ROOM = 4096 };
typedef union model_options {
    max_align_t align;
    char bytes[MODEL_OPTIONS_ROOM];
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
#define MODEL_WORDS MODELS(MODEL_WORD)  // " gpt mlp llama gemma resnet bert dlrm t5"
#define MODEL_DEFAULT "gpt"             // the first

#endif
