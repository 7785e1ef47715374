// data/tokenizer/inside.h: what a tokenizer consists of. For the files of this folder.
#ifndef DATA_TOKENIZER_INSIDE_H
#define DATA_TOKENIZER_INSIDE_H

#include "data/tokenizer/added.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

// A text: added tokens are found -> NFC -> more added tokens are found -> digits are cut off -> pieces by a pattern ->
// merged bytes
struct tokenizer {
    uint8_t *table;  // classes of characters
    vocab v;
    added_token *added;  // (added_count)
    int32_t added_count, longest;
    added_set raw, normal;  // those looked for in the text, and those in the normalized text
    bool nfc;
    nfc_pairs pairs;
    split_digits digits;
    split_pattern pattern;
    id_list before, after;  // of the template
    int32_t end_of_text;
};

// Each fills in a tokenizer that is all zero but for its table.
err_t read_bytes(tokenizer *t);
err_t read_json(tokenizer *t, const char *path, const char *text, int64_t n);
err_t read_gpt2(tokenizer *t, const char *vocab_path, const char *merges_path);

// The character that tokenizer.json writes for a byte (GPT-2's bytes_to_unicode).
uint32_t byte_character(uint8_t byte);

#endif
