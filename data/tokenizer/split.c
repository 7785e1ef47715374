// data/tokenizer/split.c: the patterns, by hand. Each alternative of a regular expression is a few lines, tried in its
// order; a look at the first character or two rules out most.
#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

enum { LN = CLASS_LETTER | CLASS_NUMBER, LNS = LN | CLASS_SPACE };

const char split_names[] = "GPT-2's, Llama 3's, Qwen 2's";

static const struct {
    split_pattern pattern;
    const char *regex;
} known[] = {
    {SPLIT_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {SPLIT_LLAMA3,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {SPLIT_QWEN2,
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

split_pattern split_find(const char *regex) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(regex, known[i].regex) == 0) return known[i].pattern;
    return SPLIT_WHOLE;
}

const char *split_regex(split_pattern pattern) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (pattern == known[i].pattern) return known[i].regex;
    return NULL;
}

// The end of the run of characters at p whose class, under the mask, is `want`.
static inline const uint8_t *run(const uint8_t *table, const uint8_t *p, const uint8_t *end, uint8_t mask,
                                 uint8_t want) {
    int bytes;
    while (p < end && (class_at(table, p, end - p, &bytes) & mask) == want) p += bytes;
    return p;
}

// White space at p: all of it if it ends the text; else without its last character, which goes with what follows,
// unless it is the only one.
static const uint8_t *spaces(const uint8_t *table, const uint8_t *p, const uint8_t *end) {
    const uint8_t *at = p, *last = p;
    int bytes;
    while (at < end && class_at(table, at, end - at, &bytes) & CLASS_SPACE) last = at, at += bytes;
    return at == end || last == p ? at : last;
}

// 's 't 're 've 'm 'll 'd: their bytes, or 0. With `any_case`, as Unicode folds it, U+017F is an s too.
static int contraction(const uint8_t *p, int64_t n, bool any_case) {
    if (n < 2 || p[0] != '\'') return 0;
    uint8_t fold = any_case ? 0x20 : 0, a = p[1] | fold, b = n > 2 ? p[2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return any_case && n > 2 && p[1] == 0xC5 && p[2] == 0xBF ? 3 : 0;
}

static const uint8_t *gpt2(const uint8_t *table, const uint8_t *p, const uint8_t *end) {
    int bytes = contraction(p, end - p, false);
    if (bytes) return p + bytes;
    const uint8_t *q = p + (*p == ' ');
    uint8_t class = q < end ? class_at(table, q, end - q, &bytes) : CLASS_SPACE;
    if (class & CLASS_LETTER) return run(table, q + bytes, end, CLASS_LETTER, CLASS_LETTER);
    if (class & CLASS_NUMBER) return run(table, q + bytes, end, CLASS_NUMBER, CLASS_NUMBER);
    if (!(class & CLASS_SPACE)) return run(table, q + bytes, end, LNS, 0);
    return spaces(table, p, end);
}

// \s*[\r\n]+: white space up to its last line end; NULL: it has none.
static const uint8_t *lines(const uint8_t *table, const uint8_t *p, const uint8_t *end) {
    const uint8_t *after = NULL;
    int bytes;
    for (; p < end && class_at(table, p, end - p, &bytes) & CLASS_SPACE; p += bytes)
        if (*p == '\r' || *p == '\n') after = p + 1;
    return after;
}

static const uint8_t *numbers(const uint8_t *table, const uint8_t *p, const uint8_t *end, int most) {
    int bytes;
    for (int i = 0; i < most && p < end && class_at(table, p, end - p, &bytes) & CLASS_NUMBER; i++) p += bytes;
    return p;
}

static const uint8_t *llama3(const uint8_t *table, const uint8_t *p, const uint8_t *end, int most_numbers) {
    int bytes = contraction(p, end - p, true), second;
    if (bytes) return p + bytes;
    uint8_t class = class_at(table, p, end - p, &bytes);
    if (class & CLASS_LETTER) return run(table, p + bytes, end, CLASS_LETTER, CLASS_LETTER);
    if (class & CLASS_NUMBER) return numbers(table, p, end, most_numbers);
    const uint8_t *q = p + bytes;
    if (*p != '\r' && *p != '\n' && q < end && class_at(table, q, end - q, &second) & CLASS_LETTER)
        return run(table, q + second, end, CLASS_LETTER, CLASS_LETTER);
    q = p + (*p == ' ');
    if (q < end && !(class_at(table, q, end - q, &second) & LNS)) {
        q = run(table, q + second, end, LNS, 0);
        while (q < end && (*q == '\r' || *q == '\n')) q++;
        return q;
    }
    q = lines(table, p, end);
    return q ? q : spaces(table, p, end);
}

int64_t split_piece(const uint8_t *table, split_pattern pattern, const uint8_t *text, int64_t n) {
    switch (pattern) {
    case SPLIT_GPT2: return gpt2(table, text, text + n) - text;
    case SPLIT_LLAMA3: return llama3(table, text, text + n, 3) - text;
    case SPLIT_QWEN2: return llama3(table, text, text + n, 1) - text;
    case SPLIT_BYTES: return 1;
    default: return n;
    }
}

int64_t split_digit_piece(const uint8_t *table, split_digits digits, const uint8_t *text, int64_t n) {
    int bytes;
    if (digits == DIGITS_ANY) return n;
    uint8_t class = class_at(table, text, n, &bytes) & CLASS_DIGIT;
    if (class && digits == DIGITS_EACH) return bytes;
    return run(table, text + bytes, text + n, CLASS_DIGIT, class) - text;
}
