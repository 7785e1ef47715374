// data/tokenizer/encode.c: a text to ids. Most pieces of a text have occurred before, so each encoder keeps the ids of
// short pieces in a table of one cache line each, where a later piece with the same hash takes the place of the earlier
// one.
#include "data/tokenizer/inside.h"

#include <string.h>

enum { CACHE_BITS = 15, KEY = 24, VALUES = 9 };

typedef struct cached {
    uint64_t key[KEY / 8];  // the piece, then zeros
    int32_t id[VALUES];
    uint8_t bytes, count;  // of the piece; 0: free
} cached;
_Static_assert(sizeof(cached) == 64, "one cache line");

struct encoder {
    const tokenizer *t;
    cached *cache;  // (2^CACHE_BITS)
    merge_work work;
    path_work path;
    nfc_points points;
    bytes normal;
    normal_work words;
    bytes marked;          // words, with marks for spaces
    const uint8_t *begin;  // of the text
    bool at_begin;         // what is encoded stands there
    id_list out;
};

err_t encoder_open(encoder **out, const tokenizer *t) {
    size_t size = sizeof(cached) << CACHE_BITS;
    encoder *e = calloc(1, sizeof *e);
    *out = NULL;
    if (e) e->cache = aligned_alloc(64, size);
    if (!e || !e->cache) {
        free(e);
        return err_set(ERR_INTERNAL, "no memory for an encoder");
    }
    memset(e->cache, 0, size);
    e->t = t;
    *out = e;
    return ERR_OK;
}

void encoder_close(encoder *e) {
    if (!e) return;
    free(e->cache);
    merge_work_free(&e->work);
    free(e->path.at);
    free(e->marked.at);
    normal_work_free(&e->words);
    free(e->points.at);
    free(e->normal.at);
    free(e->out.at);
    free(e);
}

// A piece of at most KEY bytes, of which `readable` may be read, as numbers.
static inline void load_key(uint64_t key[3], const uint8_t *text, int64_t n, int64_t readable) {
    key[0] = key[1] = key[2] = 0;
    if (readable < KEY) {
        memcpy(key, text, (size_t)n);
        return;
    }
    memcpy(key, text, KEY);
    for (int i = 0; i < 3; i++) {
        int64_t left = n - 8 * i;
        key[i] &= left >= 8 ? UINT64_MAX : left <= 0 ? 0 : UINT64_MAX >> (64 - 8 * left);
    }
}

static err_t encode_by_model(encoder *e, const uint8_t *text, int64_t n) {
    const piece_model *m = &e->t->words.model;
    switch (e->t->kind) {
    case KIND_WORDPIECE: return wordpiece_encode(m, text, n, &e->out);
    case KIND_UNIGRAM: return unigram_encode(m, text, n, &e->path, &e->out);
    default: return vocab_encode(&e->t->v, text, n, &e->work, &e->out);
    }
}

static err_t encode_piece(encoder *e, const uint8_t *text, int64_t n, int64_t readable) {
    uint64_t key[3];
    if (n > KEY) return encode_by_model(e, text, n);
    load_key(key, text, n, readable);
    uint64_t h = hash_mix(hash_mix(key[0], key[1]), key[2] ^ (uint64_t)n);
    cached *c = &e->cache[h >> (64 - CACHE_BITS)];
    ROOM_FOR(&e->out, e->out.n + KEY);
    int32_t *to = e->out.at + e->out.n;
    if (c->key[0] == key[0] && c->key[1] == key[1] && c->key[2] == key[2] && c->bytes == n) {
        memcpy(to, c->id, sizeof c->id);
        e->out.n += c->count;
        return ERR_OK;
    }
    int64_t before = e->out.n;
    TRY(encode_by_model(e, text, n));
    if (e->out.n - before > VALUES) return ERR_OK;
    memcpy(c->key, key, sizeof key);
    memcpy(c->id, e->out.at + before, (size_t)(e->out.n - before) * sizeof *c->id);
    c->bytes = (uint8_t)n;
    c->count = (uint8_t)(e->out.n - before);
    return ERR_OK;
}

// Words that begin with a mark where there was a space, or the whole of them.
static err_t encode_marked(encoder *e, const uint8_t *text, int64_t n, bool begins) {
    const word_parts *w = &e->t->words;
    bytes *to = &e->marked;
    int64_t at = 0, next;
    bool has = n >= w->mark_n && memcmp(text, w->mark, (size_t)w->mark_n) == 0;
    ROOM_FOR(to, n * w->mark_n + w->mark_n);
    to->n = 0;
    if (!has && text[0] != ' ' && (w->before == SPACE_ALWAYS || (w->before == SPACE_FIRST && begins))) {
        memcpy(to->at, w->mark, (size_t)w->mark_n);
        to->n = w->mark_n;
    }
    for (int64_t i = 0; i < n; i++) {
        if (text[i] != ' ') {
            to->at[to->n++] = text[i];
            continue;
        }
        memcpy(to->at + to->n, w->mark, (size_t)w->mark_n);
        to->n += w->mark_n;
    }
    for (; at < to->n; at = next) {
        const uint8_t *found = w->split && to->n - at > 1
                                   ? memmem(to->at + at + 1, (size_t)(to->n - at - 1), w->mark, (size_t)w->mark_n)
                                   : NULL;
        next = found ? found - to->at : to->n;
        TRY(encode_piece(e, to->at + at, next - at, to->n - at));
    }
    return ERR_OK;
}

// Does the character at text[0] divide words? Its bytes. White space goes; a punctuation mark is a word.
static int divider(const tokenizer *t, const uint8_t *text, int64_t n, bool *space) {
    uint32_t c;
    int bytes = utf8_next(text, n, &c);
    if (!bytes) return *space = false, 0;
    *space = t->table[c] & CLASS_SPACE;
    return *space || (t->words.by_bert && t->words.table[c] & WORD_PUNCTUATION) ? bytes : 0;
}

static err_t encode_word(encoder *e, const uint8_t *text, int64_t n, int64_t readable) {
    return e->t->words.by_mark ? encode_marked(e, text, n, false) : encode_piece(e, text, n, readable);
}

// Text without added tokens, normalized, of a tokenizer of words.
static err_t encode_words(encoder *e, const uint8_t *text, int64_t n, bool begins) {
    const word_parts *w = &e->t->words;
    int64_t from = 0;
    bool space;
    if (n == 0) return ERR_OK;
    if (!w->by_space && !w->by_bert)
        return w->by_mark ? encode_marked(e, text, n, begins) : encode_piece(e, text, n, n);
    for (int64_t i = 0; i < n;) {
        int bytes = divider(e->t, text + i, n - i, &space);
        if (!bytes) {
            i++;
            continue;
        }
        if (i > from) TRY(encode_word(e, text + from, i - from, n - from));
        if (!space) TRY(encode_word(e, text + i, bytes, n - i));
        from = i += bytes;
    }
    return n > from ? encode_word(e, text + from, n - from, n - from) : ERR_OK;
}

// Text without added tokens, normalized.
static err_t encode_plain(encoder *e, const uint8_t *text, int64_t n) {
    const tokenizer *t = e->t;
    while (n > 0) {
        int64_t part = split_digit_piece(t->table, t->digits, text, n);
        n -= part;
        while (part > 0) {
            int64_t piece = split_piece(t->table, t->pattern, text, part);
            TRY(encode_piece(e, text, piece, part + n));
            text += piece;
            part -= piece;
        }
    }
    return ERR_OK;
}

// With the added tokens of one set found, what is between them goes to `rest`.
static err_t encode_added(encoder *e, const added_set *set, const uint8_t *text, int64_t n, int how,
                          err_t (*rest)(encoder *e, const uint8_t *text, int64_t n, int how)) {
    bool special = how & ENCODE_SPECIAL;
    int64_t scan = 0, from = 0;
    if (special ? set->count == 0 : set->plain == 0) return rest(e, text, n, how);
    while (from < n || scan < n) {
        added_match m = added_next(set, e->t->table, text, n, special, &scan, from);
        if (m.begin > from) TRY(rest(e, text + from, m.begin - from, how));
        if (m.token >= 0) TRY(ids_add(&e->out, set->token[m.token].id));
        from = m.end;
    }
    return ERR_OK;
}

static err_t encode_normal(encoder *e, const uint8_t *text, int64_t n, int how) {
    (void)how;
    if (e->t->kind == KIND_BPE) return encode_plain(e, text, n);
    return encode_words(e, text, n, e->at_begin && text == e->words.from.at);
}

static err_t encode_raw_words(encoder *e, const uint8_t *text, int64_t n, int how) {
    const tokenizer *t = e->t;
    e->at_begin = text == e->begin;
    TRY(normal_apply(&t->words.steps, &t->pairs, t->table, t->words.table, text, n, &e->words, &text, &n));
    return encode_added(e, &t->normal, text, n, how, encode_normal);
}

static err_t encode_raw(encoder *e, const uint8_t *text, int64_t n, int how) {
    const tokenizer *t = e->t;
    if (t->nfc && nfc_clean(t->table, text, n) < n) {
        TRY(nfc_apply(&t->pairs, t->table, text, n, &e->points, &e->normal));
        text = e->normal.at;
        n = e->normal.n;
    }
    return encode_added(e, &t->normal, text, n, how, encode_normal);
}

static err_t add_all(id_list *out, const id_list *more) {
    for (int64_t i = 0; i < more->n; i++) TRY(ids_add(out, more->at[i]));
    return ERR_OK;
}

err_t encoder_encode(encoder *e, const void *text, int64_t n, int how, const int32_t **ids, int64_t *count) {
    const tokenizer *t = e->t;
    e->out.n = 0;
    if (how & ENCODE_BEGIN) TRY(add_all(&e->out, &t->before));
    e->begin = text;
    TRY(encode_added(e, &t->raw, text, n, how, t->kind == KIND_BPE ? encode_raw : encode_raw_words));
    if (how & ENCODE_END) TRY(add_all(&e->out, &t->after));
    *ids = e->out.at;
    *count = e->out.n;
    return ERR_OK;
}
