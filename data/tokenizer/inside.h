// data/tokenizer/inside.h: what a tokenizer consists of. For the files of this folder.
#ifndef DATA_TOKENIZER_INSIDE_H
#define DATA_TOKENIZER_INSIDE_H

#include "data/tokenizer/added.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/normal.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

typedef enum tokenizer_kind { KIND_BPE, KIND_WORDPIECE, KIND_UNIGRAM } tokenizer_kind;
typedef enum space_before { SPACE_NEVER, SPACE_FIRST, SPACE_ALWAYS } space_before;

// Tokenizers of words. A text: added tokens are found -> normalized, step by step -> more added tokens are found ->
// words -> the ids of each. A word is what white space divides, of BERT also each punctuation mark; or begins with
// where a space was, which is written as a mark.
typedef struct word_parts {
    uint8_t *table;  // of unicode_word_table
    normal_steps steps;
    bool by_space, by_bert, by_mark, split;  // WhitespaceSplit, BertPreTokenizer, Metaspace and its "split"
    space_before before;                     // whether a text begins with a mark that it does not have
    uint8_t mark[4];
    int mark_n;
    piece_model model;
    vocab_token *first;  // (first_room): what a token decodes to that is a text's first
    int64_t first_room;
    bool uncut;  // nothing says where such a text may be cut
} word_parts;

// A text of byte-level BPE: added tokens are found -> NFC -> more added tokens are found -> digits are cut off ->
// pieces by a pattern -> merged bytes
struct tokenizer {
    tokenizer_kind kind;
    uint8_t *table;    // classes of characters
    word_parts words;  // of all kinds but BPE
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
err_t read_bert_vocab(tokenizer *t, const char *path,
                      bool lower);  // BERT's vocab.txt; lower: capital letters are small ones

// The character that tokenizer.json writes for a byte (GPT-2's bytes_to_unicode).
uint32_t byte_character(uint8_t byte);

#endif
