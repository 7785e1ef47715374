// model/types.c: the architectures there are.
#include "model/model.h"

const model_type *const model_types[] = {&model_gpt};
