// data/tokenizer/nfc.h: Unicode's normal forms, as the tables of unicode.h have them. Invalid bytes stay as they are.
#ifndef DATA_TOKENIZER_NFC_H
#define DATA_TOKENIZER_NFC_H

#include "data/tokenizer/room.h"
#include "data/tokenizer/unicode.h"

// What composes: read by all threads.
typedef struct nfc_pairs {
    uint16_t slot[4096];  // of a hash of (a,b): 1 + index in unicode_decompositions, 0: free
} nfc_pairs;

// Characters of one thread's work, each with its combining class above.
typedef struct nfc_points {
    uint64_t *at;
    int64_t n, room;
} nfc_points;

void nfc_fill(nfc_pairs *pairs);

// Where in n bytes of text the first character is that may change; n: the text is in form C.
int64_t nfc_clean(const uint8_t *table, const uint8_t *text, int64_t n);

// out = the text in form C. table: of unicode_table. ERR_INTERNAL: no memory.
err_t nfc_apply(const nfc_pairs *pairs, const uint8_t *table, const uint8_t *text, int64_t n, nfc_points *work,
                bytes *out);

// The same in any form; of C it is slower.
typedef enum nfc_form { FORM_C, FORM_D, FORM_KC, FORM_KD } nfc_form;
err_t nfc_form_apply(const nfc_pairs *pairs, nfc_form form, const uint8_t *text, int64_t n, nfc_points *work,
                     bytes *out);

#endif
