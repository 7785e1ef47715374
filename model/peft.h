// model/peft.h: adapters in PEFT's files: how tensors are called, and what adapter_config.json says of them.
#ifndef MODEL_PEFT_H
#define MODEL_PEFT_H

#include "model/foreign.h"
#include "model/rule.h"

struct json_t;

// What the names of all tensors begin with.
#define PEFT_PREFIX "base_model.model."

// The name of a part of an adapter's matrix in these files.
void peft_name(char *dst, size_t room, const model *m, const weight_part *part);

// Do the files at `path`, with this adapter_config.json, hold adapters of this rank and alpha, of the plain form?
// ERR_CONFIG: a setting of [lora] differs, with both values. ERR_DATA: adapters of another form.
err_t peft_agrees(const struct json_t *config, const char *path, const model_adapters *is);

#endif
