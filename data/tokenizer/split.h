// data/tokenizer/split.h: where a text is cut before its pieces are merged, by the patterns that tokenizers of the
// GPT-2 kind use.
#ifndef DATA_TOKENIZER_SPLIT_H
#define DATA_TOKENIZER_SPLIT_H

#include <stdint.h>

typedef enum split_pattern {
    SPLIT_WHOLE,  // not at all
    SPLIT_GPT2,   // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
    // ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    SPLIT_LLAMA3,
    SPLIT_QWEN2,  // the same with \p{N} for \p{N}{1,3}
    SPLIT_BYTES,  // each byte
} split_pattern;

// runs: digits are cut from what is none
typedef enum split_digits { DIGITS_ANY, DIGITS_EACH, DIGITS_RUNS } split_digits;

// Which of them a regular expression is, compared character by character; SPLIT_WHOLE: none.
split_pattern split_find(const char *regex);
const char *split_regex(split_pattern pattern);  // NULL: it is none

// "GPT-2's, ...": for messages.
extern const char split_names[];

// The bytes of the first piece of n > 0 bytes of text, 1 to n. table: of unicode_table.
int64_t split_digit_piece(const uint8_t *table, split_digits digits, const uint8_t *text, int64_t n);
int64_t split_piece(const uint8_t *table, split_pattern pattern, const uint8_t *text, int64_t n);

#endif
