// data/tokenizer/unicode.h: what tokenizers know of characters. The tables are made by unicode.py, which also says
// which versions of Unicode they are: those that Hugging Face's `tokenizers` has, one for patterns, another for digits,
// a third for normal forms.
#ifndef DATA_TOKENIZER_UNICODE_H
#define DATA_TOKENIZER_UNICODE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { UNICODE_POINTS = 0x110000 };

// Of a character. What has none of the first three, an invalid byte too, is "other": punctuation, symbols, marks.
enum {
    CLASS_LETTER = 1,  // \p{L}
    CLASS_NUMBER = 2,  // \p{N}
    CLASS_SPACE = 4,   // \s
    CLASS_DIGIT = 8,   // what the pre-tokenizer Digits isolates: numbers of a later Unicode
    CLASS_WORD = 16,   // \w: beside it a single_word token is none
    CLASS_MOVES = 32,  // NFC may change or move it, or join it with what stands before it
};

// Of a character, for the tokenizers of words: a table apart.
enum {
    WORD_GONE = 1,         // BertNormalizer's clean_text takes it out
    WORD_PUNCTUATION = 2,  // BertPreTokenizer makes it a piece of its own
    WORD_ACCENT = 4,       // BertNormalizer's strip_accents takes it out, after NFD
    WORD_MARK = 8,         // StripAccents takes it out
    WORD_CHINESE = 16,     // BertNormalizer puts a space on either side
    WORD_UPPER = 32,       // it has a lower case
    WORD_COMPAT = 64,      // NFKD makes something else of it than NFD
};

// How it joins its neighbours (Unicode Standard Annex 29). An extender that is "alone" does not keep a conjunct
// together.
typedef enum grapheme_class {
    GRAPHEME_OTHER,
    GRAPHEME_CONTROL,
    GRAPHEME_PREPEND,
    GRAPHEME_EXTEND,
    GRAPHEME_EXTEND_ALONE,
    GRAPHEME_LINKER,
    GRAPHEME_JOINER,
    GRAPHEME_SPACING,
    GRAPHEME_CONSONANT,
    GRAPHEME_PICTURE
} grapheme_class;

typedef struct unicode_range {
    uint32_t first : 24, value : 8, last;
} unicode_range;

typedef struct unicode_pair {
    uint32_t point, a, b;  // point becomes a b; b = 0: a alone
    uint8_t composes;      // and a b becomes point
} unicode_pair;

typedef struct unicode_shift {
    uint32_t first, last, step;  // of first, first + step, ..., last
    int32_t difference;          // what is added
} unicode_shift;

typedef struct unicode_long {
    uint32_t point;
    int32_t at;  // the first of what it becomes; the next row says where that ends
} unicode_long;

// values: bits WORD_...; a grapheme_class. Lower case of all but U+0130, which becomes two. What NFKD makes of a
// character, all of it; the last row is an end.
extern const unicode_range unicode_words[], unicode_graphemes[];
extern const unicode_shift unicode_lower[];
extern const unicode_long unicode_compat[];
extern const uint32_t unicode_compat_points[];
extern const int unicode_words_count, unicode_graphemes_count, unicode_lower_count, unicode_compat_count,
    unicode_compat_points_count;

// values: bits CLASS_LETTER to CLASS_WORD; combining class
extern const unicode_range unicode_classes[], unicode_combining[];
extern const unicode_pair unicode_decompositions[];
extern const int unicode_classes_count, unicode_combining_count, unicode_decompositions_count;

// The first character of n > 0 bytes at s. Returns its bytes, or 0 if they are no UTF-8: then point is the first byte.
static inline int utf8_next(const uint8_t *s, int64_t n, uint32_t *point) {
    uint32_t c = *point = s[0];
    if (c < 0x80) return 1;
    if (c < 0xC2 || n < 2 || (s[1] & 0xC0) != 0x80) return 0;
    if (c < 0xE0) return *point = (c & 0x1F) << 6 | (s[1] & 0x3F), 2;
    if (n < 3 || (s[2] & 0xC0) != 0x80) return 0;
    if (c < 0xF0) {
        c = (c & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3F);
        return c < 0x800 || (c >= 0xD800 && c < 0xE000) ? 0 : (*point = c, 3);
    }
    if (c > 0xF4 || n < 4 || (s[3] & 0xC0) != 0x80) return 0;
    c = (c & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3F);
    return c < 0x10000 || c >= UNICODE_POINTS ? 0 : (*point = c, 4);
}

// Writes a character as UTF-8. Returns its bytes, 1 to 4.
static inline int utf8_put(uint8_t *s, uint32_t c) {
    if (c < 0x80) return s[0] = (uint8_t)c, 1;
    if (c < 0x800) return s[0] = (uint8_t)(0xC0 | c >> 6), s[1] = (uint8_t)(0x80 | (c & 0x3F)), 2;
    if (c < 0x10000)
        return s[0] = (uint8_t)(0xE0 | c >> 12), s[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F)),
               s[2] = (uint8_t)(0x80 | (c & 0x3F)), 3;
    s[0] = (uint8_t)(0xF0 | c >> 18), s[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    return s[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F)), s[3] = (uint8_t)(0x80 | (c & 0x3F)), 4;
}

// A table of the class of each character, which the caller frees; NULL: no memory. The second is of WORD_...
uint8_t *unicode_table(void);
uint8_t *unicode_word_table(void);

// The range that has c, of `count` in rising order; NULL: none.
const unicode_range *unicode_find(const unicode_range *ranges, int count, uint32_t c);

// The lower case of a character but U+0130.
uint32_t unicode_to_lower(uint32_t c);

// The class of the character at s, of n > 0 bytes, and how many bytes it has: an invalid byte is one, of class 0.
static inline uint8_t class_at(const uint8_t *table, const uint8_t *s, int64_t n, int *bytes) {
    uint32_t c;
    if (s[0] < 0x80) return *bytes = 1, table[s[0]];
    int k = utf8_next(s, n, &c);
    return k ? (*bytes = k, table[c]) : (*bytes = 1, 0);
}

#endif
