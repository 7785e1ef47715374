// data/tokenizer/reader.h: what those who read parts of a tokenizer.json share.
#ifndef DATA_TOKENIZER_READER_H
#define DATA_TOKENIZER_READER_H

#include "data/tokenizer/inside.h"

#include <jansson.h>

typedef struct reader {
    tokenizer *t;
    const char *path;
    json_t *vocab;           // an object of tokens and their ids
    json_t *names;           // that of a vocabulary that is an array; the reader's own
    int16_t byte_of[0x180];  // of a character that stands for a byte; -1: it is none
    bool level;              // a ByteLevel pre-tokenizer was there
    bool cleanup,
        joined;  // of the decoder of words: " ." becomes "."; there is none, so that tokens are joined by spaces
    uint8_t prefix[32], mark[4];  // of tokens that go on in a word; of a space
    int prefix_n, mark_n;
    enum { FIRST_SAME, FIRST_SPACE, FIRST_SPACES } first;  // what a text's first token loses
    bool byte_tokens;                                      // "<0x0A>" decodes to a byte
} reader;

// "PATH: WHAT: {...} is not implemented: WHY". ERR_DATA.
err_t reader_refuse(const reader *r, const char *what, const json_t *value, const char *why);
bool node_is(const json_t *node, const char *type);
bool node_given(const json_t *value);                  // neither absent nor null
int32_t reader_id(const reader *r, const char *text);  // of a token of the vocabulary; -1: it has none

// Normalizer, pre-tokenizer, decoder and model of the kinds WordPiece and Unigram; then an added token that is not in
// the vocabulary, of n bytes.
err_t read_words(reader *r, const json_t *root);
err_t read_words_added(reader *r, int32_t id, const char *text, size_t n);

#endif
