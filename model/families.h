// model/families.h: which architecture weights of others are of, and whether its settings are those of a run.
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include "model/model.h"

#include <jansson.h>

// The architecture that reads this config.json, and its options, which the caller frees. ERR_DATA: none does, or a
// value that it can't take.
err_t foreign_options(const model_type **type, void **options, const json_t *config, const char *path);

// ERR_CONFIG lists the keys in which config.json differs from `options`, with both values. The context, the
// vocabulary's size (shapes tell it), dropout and chunks may differ: they do not belong to the weights.
err_t foreign_agrees(const model_type *type, const void *options, const json_t *config, const char *path);

// For weights without a config.json: what names and shapes of their tensors tell. *options, which the caller frees, is
// NULL if they are of no model.
struct tensor_shapes;
err_t foreign_guess(const model_type **type, void **options, const struct tensor_shapes *t);

#endif
