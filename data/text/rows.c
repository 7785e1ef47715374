// data/text/rows.c: see data/text/rows.h. Rows are kept one after the other, without their padding.
#include "data/text/rows.h"

#include "data/text/shard.h"
#include "data/tokenizer/room.h"
#include "data/hash.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    int64_t at, count, asked;  // first token, tokens, how many of them are asked
} row;

typedef struct row_list {
    row *at;
    int64_t n, room;
} row_list;

// What is asked is kept in memory: at most half a gigabyte of ids, and as much of rows.
enum { IDS_MOST = 1 << 27, ROWS_MOST = 1 << 24 };

struct rows {
    source head;
    int64_t context, vocab, longest;
    bool places;
    id_list ids;
    row_list row;
};

enum { TOKENS, PLACES };  // targets come last

static err_t rows_read(source *s, const source_draw *d, void *const *out) {
    const rows *r = (const rows *)s;
    const row *x = &r->row.at[d->sample];
    const int32_t *ids = r->ids.at + x->at;
    int targets = s->tensors - 1;
    int64_t T = s->about.units_per_sample, read = x->count - 1, first = read - x->asked;
    if (out[TOKENS]) {
        int32_t *to = out[TOKENS];
        memcpy(to, ids, (size_t)read * sizeof *to);
        memset(to + read, 0, (size_t)(T - read) * sizeof *to);
    }
    if (r->places && out[PLACES])
        for (int64_t t = 0; t < T; t++) ((int32_t *)out[PLACES])[t] = (int32_t)t;
    if (out[targets]) {
        int32_t *to = out[targets];
        for (int64_t t = 0; t < T; t++) to[t] = t >= first && t < read ? ids[t + 1] : -1;
    }
    return ERR_OK;
}

static err_t rows_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    return (void)s, (void)report, (void)ctx, ERR_OK;
}
static void rows_cancel(source *s, bool cancelled) { (void)s, (void)cancelled; }
static void rows_free(source *s) { rows_close((rows *)s); }

static const source_type type = {.read = rows_read, .verify = rows_verify, .cancel = rows_cancel, .close = rows_free};

err_t rows_open(rows **out, const rows_from *o) {
    rows *r = *out = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for rows of tokens");
    *r = (rows){.head = {.type = &type}, .context = o->context, .vocab = o->vocab, .places = o->places};
    return ERR_OK;
}

void rows_close(rows *r) {
    if (!r) return;
    free(r->ids.at), free(r->row.at);
    free(r);
}

static err_t check(const rows *r, const int32_t *ids, int64_t count, int64_t asked) {
    if (asked < 1) return err_set(ERR_DATA, "there is no token whose likelihood could be asked");
    if (asked > r->context)
        return err_set(ERR_DATA,
                       "%" PRId64 " tokens are asked, and the model reads %" PRId64 " at once ([model] context)", asked,
                       r->context);
    if (asked >= count) return err_set(ERR_DATA, "there is no token before the first one that is asked");
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= r->vocab)
            return err_set(ERR_DATA,
                           "token %d, and the model knows %" PRId64
                           " tokens: it was trained with another tokenizer than [sample] tokenizer",
                           ids[i], r->vocab);
    return ERR_OK;
}

err_t rows_add(rows *r, const int32_t *ids, int64_t count, int64_t asked, bool *cut) {
    int64_t kept = count > r->context + 1 ? r->context + 1 : count;
    if (r->ids.n + kept > IDS_MOST || r->row.n == ROWS_MOST)
        return err_set(ERR_DATA, "more than %d tokens or %d rows, which are kept in memory: ask for a part of it",
                       IDS_MOST, ROWS_MOST);
    TRY(check(r, ids + count - kept, kept, asked));
    ROOM_FOR(&r->ids, r->ids.n + kept);
    ROOM_FOR(&r->row, r->row.n + 1);
    memcpy(r->ids.at + r->ids.n, ids + count - kept, (size_t)kept * sizeof *ids);
    r->row.at[r->row.n++] = (row){r->ids.n, kept, asked};
    r->ids.n += kept;
    if (kept - 1 > r->longest) r->longest = kept - 1;
    if (cut) *cut = kept < count;
    return ERR_OK;
}

static void hash_rows(const rows *r, char hex[17]) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, 32);
    for (int64_t k = 0; k < r->row.n; k++) {
        const row *x = &r->row.at[k];
        hash_number(&state, x->count), hash_number(&state, x->asked);
        for (int64_t i = 0; i < x->count; i++) hash_number(&state, r->ids.at[x->at + i]);
    }
    hash_text(&state, hex);
}

source *rows_done(rows *r, int files) {
    int64_t T = (r->longest + ROWS_TILE - 1) / ROWS_TILE * ROWS_TILE;
    if (T > r->context) T = r->context;
    source *s = &r->head;
    s->about =
        (source_info){.samples = r->row.n, .units = r->ids.n, .units_per_sample = T, .unit = "tokens", .files = files};
    hash_rows(r, s->about.hash);
    s->tensors = s->inputs = r->places ? 3 : 2;
    for (int k = 0; k < s->inputs; k++) {
        s->tensor[k] = (tensor_spec){.name = "tokens", .type = INT32, .dims = 1, .size = {T, 1, 1}, .limit = r->vocab};
        s->place[k] = k;
    }
    if (r->places) strcpy(s->tensor[PLACES].name, "positions");
    strcpy(s->tensor[s->tensors - 1].name, "targets");
    return s;
}
