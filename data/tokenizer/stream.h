// data/tokenizer/stream.h: text to ids, and back, and to a tokenizer, from one stream to another, in bounded memory.
#ifndef DATA_TOKENIZER_STREAM_H
#define DATA_TOKENIZER_STREAM_H

#include "data/tokenizer/tokenizer.h"

#include <stdio.h>

// The ids of what `in` has, one a line. how: ENCODE_... of the whole text. ERR_DATA: the text has a piece of more than
// 1 GiB that can't be cut.
err_t tokenize_stream(const tokenizer *t, int how, FILE *in, FILE *out);

// The text of ids with white space between them. ERR_DATA names the first that is none.
err_t detokenize_stream(const tokenizer *t, FILE *in, FILE *out);

// A tokenizer.json made from text: bpe_trainer (train.h), line by line.
err_t train_stream(const char *kind, int64_t vocab, FILE *in, FILE *out);

// The verb: `lockstep tokenize [--special | --decode] TOKENIZER`, or `lockstep tokenize --train SIZE KIND`, standard
// input to `out`.
err_t verb_tokenize(int argc, char **argv, FILE *out);

#endif
