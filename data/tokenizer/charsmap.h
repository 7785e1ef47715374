// data/tokenizer/charsmap.h: sentencepiece's precompiled_charsmap: what its normalizer replaces, as a double array
// (Aoe 1989, in the form of Darts-clone) whose leaves are places in a list of texts.
#ifndef DATA_TOKENIZER_CHARSMAP_H
#define DATA_TOKENIZER_CHARSMAP_H

#include "data/tokenizer/room.h"

#include <stdbool.h>

typedef struct charsmap {
    uint32_t *unit;  // (units)
    int64_t units;
    uint8_t *texts;  // each ends with a zero
    int64_t texts_n;
} charsmap;

// ERR_DATA: it is damaged; the message says how, without a name. The map is the caller's to free in either case.
err_t charsmap_read(charsmap *m, const char *base64, int64_t n);
void charsmap_free(charsmap *m);

// Is there a key in it that n bytes begin with?
bool charsmap_has(const charsmap *m, const uint8_t *text, int64_t n);

// out += what n bytes of UTF-8 become, as the package `tokenizers` does it: a grapheme of less than 6 bytes is replaced
// as a whole by what its shortest beginning in the map stands for, and of others each character is.
err_t charsmap_apply(const charsmap *m, const uint8_t *text, int64_t n, bytes *out);

#endif
