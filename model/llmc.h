// model/llmc.h: checkpoints of llm.c (GPT-2, versions 3 and 5): a header of 256 numbers, then all tensors in a fixed
// order.
#ifndef MODEL_LLMC_H
#define MODEL_LLMC_H

#include "model/weights.h"

// By the file's first number; false also if it can't be read.
bool llmc_is(const char *path);

// w->path as weights of one file, with the settings that a config.json would have. ERR_DATA, ERR_IO: what is wrong. The
// caller closes w in any case.
err_t llmc_open(weights *w);

#endif
