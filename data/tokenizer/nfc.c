// data/tokenizer/nfc.c: normal form C (Unicode Standard Annex 15). Most text is in it. Only characters that are marked
// CLASS_MOVES can be a change, and a change reaches back to the last character before them that is not marked: this
// stretch is decomposed, ordered and composed.
//
//   a  b  e  ́  ̣  c          b stays, [e  ́  ̣] becomes [ẹ  ́], c stays
//            ^ marked
#include "data/tokenizer/nfc.h"

#include <string.h>

// Hangul: syllable = FIRST + (lead * 21 + vowel) * 28 + final
enum {
    SYLLABLES = 0xAC00,
    LEADS = 0x1100,
    VOWELS = 0x1161,
    FINALS = 0x11A7,
    LEAD_COUNT = 19,
    VOWEL_COUNT = 21,
    FINAL_COUNT = 28
};
enum { INVALID = UNICODE_POINTS, SMALL = 32 };  // an invalid byte b is the "character" INVALID + b

// A character of the work: class << 56 | place << 24 | code point. The place keeps equal classes in order.
static uint64_t pack(uint32_t point, uint32_t class, int64_t place) {
    return (uint64_t) class << 56 | (uint64_t)(uint32_t)place << 24 | point;
}
static uint32_t point_of(uint64_t c) { return c & 0xFFFFFF; }
static int class_of(uint64_t c) { return (int)(c >> 56); }

static uint32_t pair_hash(uint32_t a, uint32_t b) {
    return (uint32_t)((a * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu) >> 32) * 0x9E3779B1u >> 20;
}

void nfc_fill(nfc_pairs *pairs) {
    memset(pairs, 0, sizeof *pairs);
    for (int i = 0; i < unicode_decompositions_count; i++) {
        const unicode_pair *p = &unicode_decompositions[i];
        if (!p->composes) continue;
        uint32_t h = pair_hash(p->a, p->b);
        while (pairs->slot[h]) h = (h + 1) % 4096;
        pairs->slot[h] = (uint16_t)(i + 1);
    }
}

// a and b as one character, or 0.
static uint32_t compose(const nfc_pairs *pairs, uint32_t a, uint32_t b) {
    if (a - LEADS < LEAD_COUNT && b - VOWELS < VOWEL_COUNT)
        return SYLLABLES + ((a - LEADS) * VOWEL_COUNT + b - VOWELS) * FINAL_COUNT;
    if (a - SYLLABLES < LEAD_COUNT * VOWEL_COUNT * FINAL_COUNT && (a - SYLLABLES) % FINAL_COUNT == 0 && b > FINALS &&
        b - FINALS < FINAL_COUNT)
        return a + b - FINALS;
    for (uint32_t h = pair_hash(a, b); pairs->slot[h]; h = (h + 1) % 4096) {
        const unicode_pair *p = &unicode_decompositions[pairs->slot[h] - 1];
        if (p->a == a && p->b == b) return p->point;
    }
    return 0;
}

static uint32_t combining(uint32_t c) {
    const unicode_range *r = unicode_find(unicode_combining, unicode_combining_count, c);
    return r ? r->value : 0;
}

static const unicode_pair *decomposition(uint32_t c) {
    int low = 0, high = unicode_decompositions_count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (unicode_decompositions[mid].point < c) low = mid + 1;
        else high = mid;
    }
    return low < unicode_decompositions_count && unicode_decompositions[low].point == c ? &unicode_decompositions[low]
                                                                                        : NULL;
}

static err_t add_point(nfc_points *w, uint32_t c) {
    ROOM_FOR(w, w->n + 1);
    w->at[w->n] = pack(c, c < INVALID ? combining(c) : 0, w->n);
    w->n++;
    return ERR_OK;
}

// Adds what c consists of: at most 4 characters.
static err_t add_decomposed(nfc_points *w, uint32_t c) {
    uint32_t tail[8];
    int n = 0;
    const unicode_pair *p;
    while (n < 8 && (p = decomposition(c))) {
        if (p->b) tail[n++] = p->b;
        c = p->a;
    }
    uint32_t s = c - SYLLABLES;
    if (s < LEAD_COUNT * VOWEL_COUNT * FINAL_COUNT) {
        TRY(add_point(w, LEADS + s / (VOWEL_COUNT * FINAL_COUNT)));
        TRY(add_point(w, VOWELS + s / FINAL_COUNT % VOWEL_COUNT));
        return s % FINAL_COUNT ? add_point(w, FINALS + s % FINAL_COUNT) : ERR_OK;
    }
    TRY(add_point(w, c));
    while (n > 0) TRY(add_point(w, tail[--n]));  // the parts of b are b alone: no second half decomposes further
    return ERR_OK;
}

// Adds what c is compatible with, if that is something else. False: it is not.
static err_t add_compatible(nfc_points *w, uint32_t c, bool *added) {
    int low = 0, high = unicode_compat_count - 1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (unicode_compat[mid].point < c) low = mid + 1;
        else high = mid;
    }
    const unicode_long *row = &unicode_compat[low];
    *added = row->point == c && c < UNICODE_POINTS;
    for (int32_t i = row->at; *added && i < row[1].at; i++) TRY(add_point(w, unicode_compat_points[i]));
    return ERR_OK;
}

static int by_class(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Sorts each run of marks by class, equal ones as they stood.
static void order(nfc_points *w) {
    for (int64_t i = 0, end; i < w->n; i = end + 1) {
        for (end = i; end < w->n && class_of(w->at[end]); end++) continue;
        if (end - i > SMALL) qsort(w->at + i, (size_t)(end - i), sizeof *w->at, by_class);
        else
            for (int64_t k = i + 1; k < end; k++)
                for (int64_t j = k; j > i && w->at[j - 1] > w->at[j]; j--) {
                    uint64_t swap = w->at[j];
                    w->at[j] = w->at[j - 1];
                    w->at[j - 1] = swap;
                }
    }
}

// Joins each mark with the starter before it, unless one between them stands in the way.
static void join(const nfc_pairs *pairs, nfc_points *w) {
    int64_t starter = -1, n = 0;
    int last = -1;  // class of the last character kept after the starter; -1: none
    for (int64_t i = 0; i < w->n; i++) {
        uint64_t c = w->at[i];
        int class = class_of(c);
        uint32_t whole = starter >= 0 && last < class ? compose(pairs, point_of(w->at[starter]), point_of(c)) : 0;
        if (whole) {
            w->at[starter] = pack(whole, 0, 0);
            continue;
        }
        if (class == 0) starter = n, last = -1;
        else last = class;
        w->at[n++] = c;
    }
    w->n = n;
}

static err_t put_points(const nfc_points *w, bytes *out) {
    ROOM_FOR(out, out->n + 4 * w->n);
    for (int64_t i = 0; i < w->n; i++) {
        uint32_t c = point_of(w->at[i]);
        if (c >= INVALID) out->at[out->n++] = (uint8_t)(c - INVALID);
        else out->n += utf8_put(out->at + out->n, c);
    }
    return ERR_OK;
}

static err_t put_text(const uint8_t *text, int64_t n, bytes *out) {
    if (n == 0) return ERR_OK;
    ROOM_FOR(out, out->n + n);
    memcpy(out->at + out->n, text, (size_t)n);
    out->n += n;
    return ERR_OK;
}

int64_t nfc_clean(const uint8_t *table, const uint8_t *text, int64_t n) {
    int bytes;
    for (int64_t i = 0; i < n; i += bytes)
        if (class_at(table, text + i, n - i, &bytes) & CLASS_MOVES) return i;
    return n;
}

// A stretch of characters that are not ASCII, and the one before it. ASCII never changes, and begins anew.
static err_t apply_stretch(const nfc_pairs *pairs, const uint8_t *text, int64_t n, nfc_form form, nfc_points *work,
                           bytes *out) {
    int bytes;
    work->n = 0;
    for (int64_t i = 0; i < n; i += bytes) {
        uint32_t c;
        bool added = false;
        bytes = utf8_next(text + i, n - i, &c);
        if (!bytes) {
            bytes = 1;
            TRY(add_point(work, INVALID + text[i]));
            continue;
        }
        if (form == FORM_KD || form == FORM_KC) TRY(add_compatible(work, c, &added));
        if (!added) TRY(add_decomposed(work, c));
    }
    order(work);
    if (form == FORM_C || form == FORM_KC) join(pairs, work);
    return put_points(work, out);
}

err_t nfc_form_apply(const nfc_pairs *pairs, nfc_form form, const uint8_t *text, int64_t n, nfc_points *work,
                     bytes *out) {
    out->n = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && text[end] < 0x80; end++) continue;
        if (end < n && end > i) end--;
        TRY(put_text(text + i, end - i, out));
        int64_t from = end;
        if (end < n && text[end] < 0x80) end++;
        while (end < n && text[end] >= 0x80) end++;
        if (end > from) TRY(apply_stretch(pairs, text + from, end - from, form, work, out));
    }
    return ERR_OK;
}

err_t nfc_apply(const nfc_pairs *pairs, const uint8_t *table, const uint8_t *text, int64_t n, nfc_points *work,
                bytes *out) {
    int64_t kept = 0, start = 0, i = 0;  // text[start] is the last character that is not marked
    int bytes;
    out->n = 0;
    while (i < n) {
        if (!(class_at(table, text + i, n - i, &bytes) & CLASS_MOVES)) {
            start = i;
            i += bytes;
            continue;
        }
        TRY(put_text(text + kept, start - kept, out));
        work->n = 0;
        for (i = start; i < n; i += bytes) {
            uint32_t c;
            uint8_t class = class_at(table, text + i, n - i, &bytes);
            if (i > start && !(class & CLASS_MOVES)) break;
            if (!utf8_next(text + i, n - i, &c)) TRY(add_point(work, INVALID + text[i]));
            else TRY(add_decomposed(work, c));
        }
        order(work);
        join(pairs, work);
        TRY(put_points(work, out));
        kept = start = i;
    }
    return put_text(text + kept, n - kept, out);
}
