// data/tokenizer/normal.h: what is done to a text before it is divided into words: a list of steps, each over the whole
// text.
#ifndef DATA_TOKENIZER_NORMAL_H
#define DATA_TOKENIZER_NORMAL_H

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/nfc.h"

typedef enum normal_kind {
    NORMAL_CLEAN,         // BertNormalizer: clean_text
    NORMAL_CHINESE,       // BertNormalizer: handle_chinese_chars
    NORMAL_BERT_ACCENTS,  // BertNormalizer: strip_accents, after NFD
    NORMAL_ACCENTS,       // StripAccents
    NORMAL_LOWER,         // Lowercase
    NORMAL_NMT,           // Nmt: control characters go, other white space becomes spaces
    NORMAL_FORM,          // NFC, NFD, NFKC, NFKD
    NORMAL_REPLACE,       // Replace: a string
    NORMAL_SPACES,        // Replace: two or more spaces
    NORMAL_STRIP,         // Strip: white space at the ends
    NORMAL_CHARSMAP,      // Precompiled
} normal_kind;

typedef struct normal_step {
    normal_kind kind;
    nfc_form form;
    bool left, right;    // of NORMAL_STRIP
    uint8_t *from, *to;  // of NORMAL_REPLACE and NORMAL_SPACES
    int64_t from_n, to_n;
    charsmap map;
} normal_step;

typedef struct normal_steps {
    normal_step *at;
    int64_t n, room;
} normal_steps;

// A thread's room.
typedef struct normal_work {
    nfc_points points;
    bytes from, to;
} normal_work;

// The text after all steps, in `work` until its next use. n bytes, of which those that are no UTF-8 become U+FFFD
// first. classes, words: of unicode_table and unicode_word_table. ERR_INTERNAL: no memory.
err_t normal_apply(const normal_steps *steps, const nfc_pairs *pairs, const uint8_t *classes, const uint8_t *words,
                   const uint8_t *text, int64_t n, normal_work *work, const uint8_t **out, int64_t *out_n);

void normal_steps_free(normal_steps *steps);
void normal_work_free(normal_work *work);

#endif
