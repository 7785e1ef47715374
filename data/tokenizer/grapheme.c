// data/tokenizer/grapheme.c: rules GB3 to GB11, in their order, on what came before and the next character.
#include "data/tokenizer/grapheme.h"
#include "data/tokenizer/unicode.h"

#include <stdbool.h>

// Of Hangul, by the annex: leading consonants, vowels, trailing ones, syllables without one and with one.
typedef enum hangul { HANGUL_NONE, HANGUL_L, HANGUL_V, HANGUL_T, HANGUL_LV, HANGUL_LVT } hangul;

typedef struct cluster {
    uint32_t last;
    grapheme_class class;
    hangul syllable;
    bool consonant, linked;  // since a consonant nothing but extenders; one of them linked
    bool picture, joined;    // a picture and extenders; and then a joiner
} cluster;

static hangul hangul_of(uint32_t c) {
    if (c < 0x1100) return HANGUL_NONE;
    if (c < 0x1160 || (c >= 0xA960 && c <= 0xA97C)) return HANGUL_L;
    if (c < 0x11A8 || (c >= 0xD7B0 && c <= 0xD7C6)) return HANGUL_V;
    if (c < 0x1200 || (c >= 0xD7CB && c <= 0xD7FB)) return HANGUL_T;
    if (c < 0xAC00 || c > 0xD7A3) return HANGUL_NONE;
    return (c - 0xAC00) % 28 ? HANGUL_LVT : HANGUL_LV;
}

static grapheme_class class_of(uint32_t c) {
    if (c >= 0x20 && c < 0x7F) return GRAPHEME_OTHER;
    const unicode_range *r = unicode_find(unicode_graphemes, unicode_graphemes_count, c);
    return r ? (grapheme_class)r->value : GRAPHEME_OTHER;
}

static bool extends(grapheme_class c) {
    return c == GRAPHEME_EXTEND || c == GRAPHEME_EXTEND_ALONE || c == GRAPHEME_LINKER;
}

static bool same_syllable(hangul a, hangul b) {
    if (a == HANGUL_L) return b == HANGUL_L || b == HANGUL_V || b == HANGUL_LV || b == HANGUL_LVT;
    if (a == HANGUL_V || a == HANGUL_LV) return b == HANGUL_V || b == HANGUL_T;
    return (a == HANGUL_T || a == HANGUL_LVT) && b == HANGUL_T;
}

static bool goes_on(const cluster *s, uint32_t c, grapheme_class class) {
    if (s->class == GRAPHEME_CONTROL || class == GRAPHEME_CONTROL) return s->last == '\r' && c == '\n';
    if (extends(class) || class == GRAPHEME_JOINER || class == GRAPHEME_SPACING) return true;
    if (s->class == GRAPHEME_PREPEND || same_syllable(s->syllable, hangul_of(c))) return true;
    if (class == GRAPHEME_CONSONANT) return s->consonant && s->linked;
    return class == GRAPHEME_PICTURE && s->joined;
}

static void take(cluster *s, uint32_t c, grapheme_class class) {
    bool links = class == GRAPHEME_LINKER, keeps = links || class == GRAPHEME_EXTEND || class == GRAPHEME_JOINER;
    s->linked = class != GRAPHEME_CONSONANT && s->consonant && keeps && (s->linked || links);
    s->consonant = class == GRAPHEME_CONSONANT || (s->consonant && keeps);
    s->joined = class == GRAPHEME_JOINER && s->picture;
    s->picture = class == GRAPHEME_PICTURE || (s->picture && extends(class));
    s->syllable = hangul_of(c);
    s->class = class;
    s->last = c;
}

int64_t grapheme_next(const uint8_t *text, int64_t n) {
    cluster s = {0};
    uint32_t c;
    int64_t at = 0;
    while (at < n) {
        int bytes = utf8_next(text + at, n - at, &c);
        grapheme_class class = bytes ? class_of(c) : GRAPHEME_CONTROL;
        if (at > 0 && !goes_on(&s, c, class)) break;
        take(&s, c, class);
        at += bytes ? bytes : 1;
    }
    return at;
}
