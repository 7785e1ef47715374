// data/tokenizer/cut.c: where a text may be cut. In every pattern a piece that has letters ends with them, and only
// white space looks at what comes after it; so between a letter and what is none there is a boundary, and nothing
// before it depends on what comes after it:
//
//   ...the cat| sat on|, |...       | may be cut
//
// Unless an added token lies across, or the normalizer joins what was cut.
#include "data/tokenizer/inside.h"

#include <string.h>

enum { NEAR = 8 };  // bytes before the end that are not looked at: a character may go on there, and a mark may follow

// Does token k at text[at..end) make the two sides of a cut at `c` depend on each other?
static bool binds(const tokenizer *t, const added_token *a, const uint8_t *text, int64_t n, int64_t at, int64_t end,
                  int64_t c) {
    int bytes;
    if (at < c && end > c) return true;
    if (a->single_word) return true;
    return a->right && end == c && class_at(t->table, text + c, n - c, &bytes) & CLASS_SPACE;
}

// Is there an added token across the cut, or beside it? Any that may be there counts, whether it is recognised in the
// end or not: a special token that is not recognised still hides what it overlaps.
static bool bound(const tokenizer *t, const uint8_t *text, int64_t n, int64_t c, bool special) {
    int64_t first = c > t->longest ? c - t->longest : 0;
    if (!special && t->raw.plain + t->normal.plain == 0) return false;
    for (int32_t k = 0; k < t->added_count; k++) {
        const added_token *a = &t->added[k];
        for (int64_t at = first; at <= c; at++) {
            int64_t end = at + a->bytes;
            if (end < c || a->bytes == 0) continue;
            if (end <= n && memcmp(text + at, a->text, (size_t)a->bytes) == 0 && binds(t, a, text, n, at, end, c))
                return true;
        }
    }
    return false;
}

// Tokens are looked for in the normalized text: near the cut it must be the text itself.
static bool may_change(const tokenizer *t, const uint8_t *text, int64_t n, int64_t c) {
    if (!t->nfc || t->normal.count == 0) return false;
    int64_t first = c > t->longest ? c - t->longest : 0, last = c + t->longest < n ? c + t->longest : n;
    for (int64_t i = first; i < last; i++)
        if (text[i] >= 0x80) return true;
    return false;
}

static bool may_cut(const tokenizer *t, const uint8_t *text, int64_t n, int64_t c, bool special) {
    int bytes;
    uint8_t after = class_at(t->table, text + c, n - c, &bytes), before = 0;
    if (after & (CLASS_LETTER | CLASS_MOVES)) return false;
    for (int k = 1; k <= 4 && k <= c; k++) {
        uint32_t point;
        if (utf8_next(text + c - k, k, &point) != k) continue;
        before = t->table[point];
        break;
    }
    if (!(before & CLASS_LETTER)) return false;
    return t->longest == 0 || !(may_change(t, text, n, c) || bound(t, text, n, c, special));
}

// A letter that no step of a normalizer joins with its neighbours, takes out, or makes something unforeseen of.
static bool steady(const tokenizer *t, const uint8_t *text, int64_t n) {
    uint32_t p;
    if (!utf8_next(text, n, &p) || !(t->table[p] & CLASS_LETTER) || t->table[p] & CLASS_MOVES) return false;
    if (t->words.table[p] & (WORD_GONE | WORD_ACCENT | WORD_MARK)) return false;
    const unicode_range *r = unicode_find(unicode_graphemes, unicode_graphemes_count, p);
    if (r && r->value != GRAPHEME_CONSONANT) return false;
    for (int64_t i = 0; i < t->words.steps.n; i++) {
        const normal_step *s = &t->words.steps.at[i];
        if (s->kind == NORMAL_CHARSMAP && charsmap_has(&s->map, text, n < 4 ? n : 4)) return false;
    }
    return true;
}

// Words do not depend on their neighbours: before the space, or line end, between two letters.
static bool may_cut_words(const tokenizer *t, const uint8_t *text, int64_t n, int64_t c, bool special) {
    int64_t before = c - 1;
    bool end = text[c] == '\n' && (t->words.by_space || t->words.by_bert);
    if (text[c] != ' ' && !end) return false;
    while (before > 0 && (text[before] & 0xC0) == 0x80) before--;
    if (!steady(t, text + before, c - before) || !steady(t, text + c + 1, n - c - 1)) return false;
    return t->longest == 0 || !bound(t, text, n, c, special);
}

int64_t tokenizer_cut(const tokenizer *t, const void *text, int64_t n, int how) {
    const uint8_t *s = text;
    if (t->pattern == SPLIT_BYTES) return n;
    if (t->kind != KIND_BPE && (t->words.uncut || (t->normal.count && t->words.steps.n))) return 0;
    for (int64_t c = n - NEAR - t->longest; c > 0; c--)
        if ((s[c] & 0xC0) != 0x80 && (t->kind == KIND_BPE ? may_cut : may_cut_words)(t, s, n, c, how & ENCODE_SPECIAL))
            return c;
    return 0;
}
