// data/tokenizer/unicode.c: the ranges of unicode_tables.c, spread out so that a character's class is one look-up.
#include "data/tokenizer/unicode.h"

#include <stdbool.h>
#include <stdlib.h>

// of Hangul: computed, in no table
enum { VOWEL_FIRST = 0x1161, VOWEL_LAST = 0x1175, FINAL_FIRST = 0x11A8, FINAL_LAST = 0x11C2 };

static void mark(uint8_t *table, uint32_t first, uint32_t last, uint8_t bits) {
    for (uint32_t c = first; c <= last; c++) table[c] |= bits;
}

uint8_t *unicode_table(void) {
    uint8_t *table = calloc(UNICODE_POINTS, 1);
    if (!table) return NULL;
    for (const unicode_range *r = unicode_classes; r < unicode_classes + unicode_classes_count; r++)
        mark(table, r->first, r->last, r->value);
    for (const unicode_range *r = unicode_combining; r < unicode_combining + unicode_combining_count; r++)
        mark(table, r->first, r->last, CLASS_MOVES);
    for (const unicode_pair *p = unicode_decompositions; p < unicode_decompositions + unicode_decompositions_count;
         p++) {
        if (!p->composes) table[p->point] |= CLASS_MOVES;
        else table[p->b] |= CLASS_MOVES;
    }
    mark(table, VOWEL_FIRST, VOWEL_LAST, CLASS_MOVES);
    mark(table, FINAL_FIRST, FINAL_LAST, CLASS_MOVES);
    return table;
}

uint8_t *unicode_word_table(void) {
    uint8_t *table = calloc(UNICODE_POINTS, 1);
    if (!table) return NULL;
    for (const unicode_range *r = unicode_words; r < unicode_words + unicode_words_count; r++)
        mark(table, r->first, r->last, r->value);
    return table;
}

const unicode_range *unicode_find(const unicode_range *ranges, int count, uint32_t c) {
    int low = 0, high = count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (ranges[mid].last < c) low = mid + 1;
        else high = mid;
    }
    return low < count && ranges[low].first <= c ? &ranges[low] : NULL;
}

uint32_t unicode_to_lower(uint32_t c) {
    int low = 0, high = unicode_lower_count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (unicode_lower[mid].last < c) low = mid + 1;
        else high = mid;
    }
    const unicode_shift *s = &unicode_lower[low];
    bool has = low < unicode_lower_count && s->first <= c && (c - s->first) % s->step == 0;
    return has ? c + (uint32_t)s->difference : c;
}
