// data/tokenizer/train.h: a tokenizer made from text: byte-level BPE, merge by merge what BpeTrainer of Hugging Face's
// `tokenizers` makes.
#ifndef DATA_TOKENIZER_TRAIN_H
#define DATA_TOKENIZER_TRAIN_H

#include "base/err.h"

#include <stdint.h>

typedef struct bpe_trainer bpe_trainer;

// kind: gpt2, llama3, qwen2 or smollm: how texts are normalized and split, and which special tokens there are. vocab:
// the most tokens, at least 256 and the special ones. ERR_USAGE: neither.
err_t bpe_trainer_open(bpe_trainer **out, const char *kind, int64_t vocab);
void bpe_trainer_close(bpe_trainer *b);

// A line has to be in memory: one of more bytes is refused where lines are read.
enum { BPE_LINE = 256 << 20 };

// Counts the pieces of a text. Texts are split apart from each other: a line with its end, as `train(files)` takes it,
// or a document.
err_t bpe_trainer_feed(bpe_trainer *b, const void *text, int64_t n);

// Finds the merges. *json is the tokenizer.json, which the caller frees.
err_t bpe_trainer_finish(bpe_trainer *b, char **json);

#endif
