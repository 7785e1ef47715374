// model/types.c: see model/types.h.
#include "model/types.h"

#define MODEL_ENTRY(name) &model_##name,
const model_type *const model_types[MODEL_TYPES] = {MODELS(MODEL_ENTRY)};
