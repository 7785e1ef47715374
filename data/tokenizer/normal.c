// data/tokenizer/normal.c: each step reads one buffer and writes the other. Most take character by character.
#include "data/tokenizer/normal.h"

#include <string.h>

enum { CAPITAL_I_DOT = 0x130, DOT_ABOVE = 0x307, REPLACEMENT = 0xFFFD, MOST_POINTS = 3 };

typedef struct tables {
    const nfc_pairs *pairs;
    const uint8_t *classes, *words;
} tables;

static err_t put(bytes *out, const uint8_t *text, int64_t n) {
    ROOM_FOR(out, out->n + n + 1);
    if (n) memcpy(out->at + out->n, text, (size_t)n);
    out->n += n;
    return ERR_OK;
}

// --- character by character ------------------------------------------------------------------------------------------

// Nmt's own list.
static int nmt(uint32_t c, uint32_t out[MOST_POINTS]) {
    bool control = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == REPLACEMENT;
    if (control) return 0;
    out[0] = space ? ' ' : c;
    return 1;
}

// What c becomes: how many characters, at most MOST_POINTS.
static int change(const tables *t, normal_kind kind, uint32_t c, uint32_t out[MOST_POINTS]) {
    uint8_t word = t->words[c];
    out[0] = c;
    switch (kind) {
    case NORMAL_CLEAN:
        if (word & WORD_GONE) return 0;
        if (t->classes[c] & CLASS_SPACE) out[0] = ' ';
        return 1;
    case NORMAL_CHINESE:
        if (!(word & WORD_CHINESE)) return 1;
        out[0] = ' ', out[1] = c, out[2] = ' ';
        return 3;
    case NORMAL_BERT_ACCENTS: return !(word & WORD_ACCENT);
    case NORMAL_ACCENTS: return !(word & WORD_MARK);
    case NORMAL_LOWER:
        if (c == CAPITAL_I_DOT) return out[0] = 'i', out[1] = DOT_ABOVE, 2;
        if (word & WORD_UPPER) out[0] = unicode_to_lower(c);
        return 1;
    default: return nmt(c, out);
    }
}

static err_t change_all(const tables *t, normal_kind kind, const bytes *from, bytes *to) {
    uint32_t c, out[MOST_POINTS];
    for (int64_t i = 0, k; i < from->n; i += k) {
        k = utf8_next(from->at + i, from->n - i, &c);
        if (!k) k = 1;
        ROOM_FOR(to, to->n + 4 * MOST_POINTS);
        for (int j = 0, count = change(t, kind, c, out); j < count; j++) to->n += utf8_put(to->at + to->n, out[j]);
    }
    return ERR_OK;
}

// --- strings ---------------------------------------------------------------------------------------------------------

static err_t replace(const normal_step *s, const bytes *from, bytes *to) {
    int64_t at = 0;
    for (const uint8_t *found; at < from->n; at = found + s->from_n - from->at) {
        found = memmem(from->at + at, (size_t)(from->n - at), s->from, (size_t)s->from_n);
        if (!found) break;
        TRY(put(to, from->at + at, found - (from->at + at)));
        TRY(put(to, s->to, s->to_n));
    }
    return put(to, from->at + at, from->n - at);
}

static err_t replace_spaces(const normal_step *s, const bytes *from, bytes *to) {
    for (int64_t i = 0, end; i < from->n; i = end) {
        bool spaces = from->at[i] == ' ';
        for (end = i + 1; end < from->n && (from->at[end] == ' ') == spaces; end++) continue;
        TRY(spaces && end - i > 1 ? put(to, s->to, s->to_n) : put(to, from->at + i, end - i));
    }
    return ERR_OK;
}

static err_t strip(const tables *t, const normal_step *s, const bytes *from, bytes *to) {
    int64_t begin = 0, end = from->n;
    int k;
    while (s->left && begin < end && class_at(t->classes, from->at + begin, end - begin, &k) & CLASS_SPACE) begin += k;
    while (s->right && end > begin) {
        int64_t at = end - 1;
        while (at > begin && (from->at[at] & 0xC0) == 0x80) at--;
        if (!(class_at(t->classes, from->at + at, end - at, &k) & CLASS_SPACE)) break;
        end = at;
    }
    return put(to, from->at + begin, end - begin);
}

// --- all of them -----------------------------------------------------------------------------------------------------

static err_t step(const tables *t, const normal_step *s, nfc_points *points, const bytes *from, bytes *to) {
    switch (s->kind) {
    case NORMAL_FORM: return nfc_form_apply(t->pairs, s->form, from->at, from->n, points, to);
    case NORMAL_REPLACE: return replace(s, from, to);
    case NORMAL_SPACES: return replace_spaces(s, from, to);
    case NORMAL_STRIP: return strip(t, s, from, to);
    case NORMAL_CHARSMAP: return charsmap_apply(&s->map, from->at, from->n, to);
    default: return change_all(t, s->kind, from, to);
    }
}

static err_t valid(const uint8_t *text, int64_t n, bytes *out) {
    uint32_t c;
    int64_t kept = 0;
    for (int64_t i = 0, k; i < n; i += k) {
        uint8_t point[4];
        if ((k = utf8_next(text + i, n - i, &c))) continue;
        k = 1;
        TRY(put(out, text + kept, i - kept));
        TRY(put(out, point, utf8_put(point, REPLACEMENT)));
        kept = i + 1;
    }
    return put(out, text + kept, n - kept);
}

err_t normal_apply(const normal_steps *steps, const nfc_pairs *pairs, const uint8_t *classes, const uint8_t *words,
                   const uint8_t *text, int64_t n, normal_work *work, const uint8_t **out, int64_t *out_n) {
    tables t = {pairs, classes, words};
    work->from.n = 0;
    TRY(valid(text, n, &work->from));
    for (int64_t i = 0; i < steps->n; i++) {
        work->to.n = 0;
        TRY(step(&t, &steps->at[i], &work->points, &work->from, &work->to));
        bytes swap = work->from;
        work->from = work->to;
        work->to = swap;
    }
    *out = work->from.at;
    *out_n = work->from.n;
    return ERR_OK;
}

void normal_steps_free(normal_steps *steps) {
    for (int64_t i = 0; i < steps->n; i++) {
        free(steps->at[i].from);
        free(steps->at[i].to);
        charsmap_free(&steps->at[i].map);
    }
    free(steps->at);
}

void normal_work_free(normal_work *work) {
    free(work->points.at);
    free(work->from.at);
    free(work->to.at);
}
