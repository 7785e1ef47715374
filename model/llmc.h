// model/llmc.h: checkpoints of llm.c (GPT-2, versions 3 and 5): a header of 256 numbers, then all tensors in a fixed
// order.
#ifndef MODEL_LLMC_H
#define MODEL_LLMC_H

#include "model/safetensors.h"

struct json_t;

// By the file's first number; false also if it can't be read.
bool llmc_is(const char *path);

// The file as one of weights (st_close, in any case), and the settings that a config.json would have. ERR_DATA, ERR_IO:
// what is wrong.
err_t llmc_open(st_file *f, struct json_t **config, const char *path);

#endif
