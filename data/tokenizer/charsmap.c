// data/tokenizer/charsmap.c: a unit of the double array has the label of the byte that leads to it, the distance to its
// children (xor), and whether a key ends here: then its child 0 is the place of a text.
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/grapheme.h"
#include "data/tokenizer/unicode.h"

#include <sodium.h>
#include <string.h>

enum { WHOLE = 6 };  // a grapheme of fewer bytes is looked up as one

static uint64_t distance(uint32_t unit) { return (uint64_t)(unit >> 10) << ((unit & (1u << 9)) >> 6); }
static bool ends_key(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
static uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }

static err_t check_texts(const charsmap *m) {
    uint32_t c;
    if (m->texts_n && m->texts[m->texts_n - 1])
        return err_set(ERR_DATA, "precompiled_charsmap: its last text has no end, expected a zero byte");
    for (int64_t i = 0, k; i < m->texts_n; i += k)
        if (!(k = utf8_next(m->texts + i, m->texts_n - i, &c)))
            return err_set(ERR_DATA, "precompiled_charsmap: byte %lld of its texts is no UTF-8", (long long)i);
    return ERR_OK;
}

static err_t take_parts(charsmap *m, const uint8_t *data, int64_t n) {
    uint32_t size = 0;
    for (int i = 0; i < 4 && n >= 4; i++) size |= (uint32_t)data[i] << 8 * i;
    if (n < 8 || size % 4 || size < 4 || (int64_t)size > n - 4)
        return err_set(ERR_DATA, "precompiled_charsmap: %lld bytes, of which %u are said to be the tree", (long long)n,
                       size);
    m->units = size / 4;
    m->texts_n = n - 4 - (int64_t)size;
    m->unit = malloc(size);
    m->texts = malloc((size_t)m->texts_n + 1);
    if (!m->unit || !m->texts) return err_set(ERR_INTERNAL, "no memory for a precompiled_charsmap");
    for (int64_t i = 0; i < m->units; i++) {
        const uint8_t *b = data + 4 + 4 * i;
        m->unit[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
    memcpy(m->texts, data + 4 + size, (size_t)m->texts_n);
    return check_texts(m);
}

err_t charsmap_read(charsmap *m, const char *base64, int64_t n) {
    size_t most = (size_t)n / 4 * 3 + 3, got = 0;
    const char *end = NULL;
    uint8_t *data = malloc(most);
    if (!data) return err_set(ERR_INTERNAL, "no memory for a precompiled_charsmap");
    err_t rc = ERR_OK;
    if (sodium_base642bin(data, most, base64, (size_t)n, NULL, &got, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        end != base64 + n)
        rc = err_set(ERR_DATA, "precompiled_charsmap: expected base64");
    if (rc == ERR_OK) rc = take_parts(m, data, (int64_t)got);
    free(data);
    return rc;
}

void charsmap_free(charsmap *m) {
    free(m->unit);
    free(m->texts);
}

// The text for the shortest key that text[0..n) begins with; NULL: none.
static const uint8_t *find(const charsmap *m, const uint8_t *text, int64_t n) {
    uint64_t at = distance(m->unit[0]);
    for (int64_t i = 0; i < n && text[i]; i++) {
        at ^= text[i];
        if (at >= (uint64_t)m->units || label(m->unit[at]) != text[i]) return NULL;
        uint32_t unit = m->unit[at];
        at ^= distance(unit);
        if (!ends_key(unit)) continue;
        uint32_t place = at < (uint64_t)m->units ? value(m->unit[at]) : UINT32_MAX;
        return place < m->texts_n ? m->texts + place : NULL;
    }
    return NULL;
}

bool charsmap_has(const charsmap *m, const uint8_t *text, int64_t n) { return find(m, text, n) != NULL; }

static err_t put(bytes *out, const uint8_t *text, int64_t n) {
    ROOM_FOR(out, out->n + n);
    memcpy(out->at + out->n, text, (size_t)n);
    out->n += n;
    return ERR_OK;
}

err_t charsmap_apply(const charsmap *m, const uint8_t *text, int64_t n, bytes *out) {
    for (int64_t i = 0, size; i < n; i += size) {
        uint32_t c;
        size = grapheme_next(text + i, n - i);
        const uint8_t *as = size < WHOLE ? find(m, text + i, size) : NULL;
        if (as) {
            TRY(put(out, as, (int64_t)strlen((const char *)as)));
            continue;
        }
        for (int64_t k = 0, one; k < size; k += one) {
            one = utf8_next(text + i + k, size - k, &c);
            if (!one) one = 1;
            as = find(m, text + i + k, one);
            TRY(as ? put(out, as, (int64_t)strlen((const char *)as)) : put(out, text + i + k, one));
        }
    }
    return ERR_OK;
}
