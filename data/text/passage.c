// data/text/passage.c: see data/text/passage.h. A text is read and encoded piece by piece, cut where both sides have
// the tokens that they would have together.
#include "data/text/passage.h"

#include "data/text/document.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 1 << 20 };

typedef struct maker {
    const rows_from *o;
    passage *p;
    rows *rows;
    document_reader *in;
    encoder *e;
    bytes text;   // of the document: read and not encoded
    id_list ids;  // of the document: the context's last tokens that are done, and those after them
    int64_t done;
} maker;

// The first token of a document without a prefix is only context.
static err_t begin_document(maker *m, const int32_t *ids, int64_t count) {
    const uint8_t *text;
    int64_t n;
    if (m->p->prefix >= 0) return ids_add(&m->ids, m->p->prefix);
    if (count < 1) return ERR_OK;
    TRY(tokenizer_piece(m->o->words, ids[0], &text, &n));
    m->p->bytes -= n;
    return ERR_OK;
}

static err_t put_ids(maker *m, const int32_t *ids, int64_t count) {
    int64_t T = m->o->context;
    if (m->ids.n == 0) TRY(begin_document(m, ids, count));
    ROOM_FOR(&m->ids, m->ids.n + count);
    if (count) memcpy(m->ids.at + m->ids.n, ids, (size_t)count * sizeof *ids);
    m->ids.n += count;
    for (; m->ids.n - m->done > T; m->done += T) {
        TRY(rows_add(m->rows, m->ids.at + m->done, T + 1, T, NULL));
        m->p->tokens += T;
    }
    int64_t old = m->done - T;
    if (old <= 0) return ERR_OK;
    memmove(m->ids.at, m->ids.at + old, (size_t)(m->ids.n - old) * sizeof *ids);
    m->ids.n -= old;
    m->done -= old;
    return ERR_OK;
}

static err_t end_document(maker *m, int64_t bytes_of) {
    int64_t left = m->ids.n - m->done - 1;
    if (left > 0) TRY(rows_add(m->rows, m->ids.at, m->ids.n, left, NULL));
    if (left > 0) m->p->tokens += left;
    m->p->documents += bytes_of > 0;
    m->ids.n = m->done = 0;
    return ERR_OK;
}

// The text up to n, which goes from the buffer.
static err_t encode_some(maker *m, int64_t n) {
    const int32_t *ids;
    int64_t count;
    TRY(encoder_encode(m->e, m->text.at, n, ENCODE_TEXT, &ids, &count));
    TRY(put_ids(m, ids, count));
    m->p->bytes += n;
    m->text.n -= n;
    memmove(m->text.at, m->text.at + n, (size_t)m->text.n);
    return ERR_OK;
}

// Reads until `want` bytes are there or the document ends. *more = false: there is no document.
static err_t read_some(maker *m, int64_t want, bool *ends, bool *more) {
    bool any = m->text.n > 0;
    *ends = false;
    while (m->text.n < want && !*ends) {
        TRY(document_read(m->in, &m->text, want - m->text.n, ends, more));
        if (!*more) return *more = any, *ends = true, ERR_OK;
        any = true;
    }
    return ERR_OK;
}

static err_t named(const maker *m, err_t rc) { return rc == ERR_OK ? rc : err_prefix("%s", m->o->path); }

static err_t take_document(maker *m, bool *more) {
    int64_t want = PIECE, bytes_of = 0;
    for (bool ends = false; !ends;) {
        TRY(read_some(m, want, &ends, more));
        if (!*more && bytes_of == 0) return ERR_OK;
        int64_t cut = ends ? m->text.n : tokenizer_cut(m->o->words, m->text.at, m->text.n, ENCODE_TEXT);
        if (cut == 0 && !ends && want >= TOKENIZER_UNCUT)
            return err_set(ERR_DATA, "%s: %d MiB without a place where tokens certainly end", m->o->path,
                           TOKENIZER_UNCUT >> 20);
        if (cut == 0 && !ends) {
            want *= 2;
            continue;
        }
        if (cut > 0) TRY(named(m, encode_some(m, cut)));
        bytes_of += cut;
        want = m->text.n < PIECE / 2 ? PIECE : 2 * m->text.n < TOKENIZER_UNCUT ? 2 * m->text.n : TOKENIZER_UNCUT;
    }
    *more = true;
    return named(m, end_document(m, bytes_of));
}

static err_t take_all(maker *m, const char *key) {
    TRY(document_open(&m->in, m->o->path, key));
    for (bool more = true; more;) TRY(take_document(m, &more));
    if (m->p->tokens > 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: %" PRId64 " documents, and no token whose likelihood could be asked%s", m->o->path,
                   m->p->documents,
                   m->p->documents && m->p->prefix < 0
                       ? ": each has one token, and the tokenizer has none that begins a text"
                       : "");
}

err_t passage_open(passage *p, const rows_from *o, const char *key) {
    maker m = {.o = o, .p = p};
    *p = (passage){.prefix = rows_prefix(o->words)};
    TRY(rows_open(&m.rows, o));
    err_t rc = encoder_open(&m.e, o->words);
    if (rc == ERR_OK) rc = take_all(&m, key);
    if (rc == ERR_OK) p->from = rows_done(m.rows, 1);
    else rows_close(m.rows);
    document_close(m.in);
    if (m.e) encoder_close(m.e);
    free(m.text.at), free(m.ids.at);
    return rc;
}

void passage_close(passage *p) {
    if (p->from) source_close(p->from);
    *p = (passage){0};
}
