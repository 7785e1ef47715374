// model/keys.h: the rows of model_type.key. A file of an architecture says whose they are before them:
//
//   #define OPTIONS gpt_options
//   static const setting keys[] = {INT(layers, SHAPE, "4", 1, 1024, "n_layer depth", "number of blocks"), ...
//
// The second column says what the weights would be under another value (key_fork): MAY, SHAPE or MEANING.
#ifndef MODEL_KEYS_H
#define MODEL_KEYS_H

#include "base/key.h"

// clang-format off
#define ROW(key, fork, type, def, min, max, words, also, comment) \
    {"model", #key, type, CLASS_BITS, offsetof(OPTIONS, key), def, min, max, words, also, comment, FORK_##fork}
#define INT(key, fork, def, min, max, also, comment) ROW(key, fork, KEY_INT, def, min, max, NULL, also, comment)
#define REAL(key, fork, def, min, max, also, comment) ROW(key, fork, KEY_REAL, def, min, max, NULL, also, comment)
#define HEAD_CHUNKS \
    INT(head_chunks, MAY, "0", 0, 9007199254740991.0, "loss_chunks", \
        "parts of a micro-batch whose logits are in memory in turn; 0 = at most 20,971,520 logits each, on a GPU at least 8,192 rows")
// clang-format on

#endif
