// data/tokenizer/grapheme.h: what a reader takes for one character (Unicode Standard Annex 29, extended grapheme
// clusters), but for flags, which are taken for two.
#ifndef DATA_TOKENIZER_GRAPHEME_H
#define DATA_TOKENIZER_GRAPHEME_H

#include <stdint.h>

// The bytes of the first one in n > 0 bytes of UTF-8.
int64_t grapheme_next(const uint8_t *text, int64_t n);

#endif
