// data/text/to_text.c: see data/text/to_text.h.
#include "data/text/to_text.h"

#include "data/text/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct filling {
    spool *s;
    const to_text_options *o;
    to_text_spooled *done;
    encoder *e;  // NULL: a token is a byte
    id_list a, b, answer;
    uint8_t *row;
    int64_t used;  // tokens of the row
} filling;

static err_t encode(const filling *f, const field *x, int how, id_list *to) {
    const int32_t *ids;
    int64_t n = x->n;
    to->n = 0;
    if (!x->at) return ERR_OK;
    if (f->e) TRY(encoder_encode(f->e, x->at, x->n, how, &ids, &n));
    ROOM_FOR(to, n + 1);
    for (int64_t i = 0; i < n; i++) to->at[i] = f->e ? ids[i] : (uint8_t)x->at[i];
    to->n = n;
    return ERR_OK;
}

static void put_token(filling *f, int32_t token, bool mark) {
    int width = f->s->token_bytes;
    uint32_t bits = (uint32_t)token | (mark ? UINT32_C(1) << (8 * width - 1) : 0);
    for (int k = 0; k < width; k++) f->row[f->used * width + k] = (uint8_t)(bits >> 8 * k);
    f->used++;
}

// A text and its end.
static void put_text(filling *f, const id_list *x, bool mark) {
    for (int64_t i = 0; i < x->n; i++) put_token(f, x->at[i], mark);
    put_token(f, f->o->end, mark);
}

static bool cut_answer(filling *f) {
    int64_t most = f->o->says - 1;
    if (f->answer.n <= most) return false;
    f->answer.n = most;
    return true;
}

static err_t write_row(filling *f, bool pair) {
    int64_t row = f->o->reads + f->o->says;
    size_t bytes = (size_t)(row * f->s->token_bytes);
    memset(f->row, 0, bytes);
    f->used = 0;
    put_text(f, &f->a, false);
    if (pair) put_text(f, &f->b, false);
    put_text(f, &f->answer, true);
    if (fwrite(f->row, 1, bytes, f->s->file) != bytes) return err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
    f->s->tokens += row, f->s->documents++;
    return ERR_OK;
}

static err_t put_sample(void *ctx, const field *x) {
    filling *f = ctx;
    bool pair = x[FIELD_TEXT_B].at != NULL;
    if (!x[FIELD_TEXT].at || !x[FIELD_LABEL].at)
        return err_set(ERR_DATA,
                       "it has no %s: expected what is read and what is said of it, such as {\"prompt\": \"2+2?\", "
                       "\"response\": \"4\"} or {\"text\": \"well done\", \"label\": \"good\"}",
                       x[FIELD_TEXT].at ? "response or label" : "prompt or text");
    // a prompt is encoded as `sample` encodes one
    TRY(encode(f, &x[FIELD_TEXT], ENCODE_TEXT | ENCODE_BEGIN, &f->a));
    TRY(encode(f, &x[FIELD_TEXT_B], ENCODE_TEXT, &f->b));
    TRY(encode(f, &x[FIELD_LABEL], ENCODE_TEXT, &f->answer));
    if (f->answer.n == 0)
        return err_set(ERR_DATA, "its response or label is empty: there is nothing to learn from it; leave the sample "
                                 "out");
    bool cut = fields_cut(&f->a, &f->b, f->o->reads - (pair ? 2 : 1));
    if (cut_answer(f)) cut = true;
    f->done->cut += cut, f->done->answers += f->answer.n + 1;
    f->s->bytes += x[FIELD_TEXT].n + x[FIELD_TEXT_B].n + x[FIELD_LABEL].n;
    return write_row(f, pair);
}

// What ends a text must be what the model ends one with.
static err_t open_words(filling *f) {
    int32_t end = f->o->words ? tokenizer_about(f->o->words).end_of_text : -1;
    if (end >= 0 && end != f->o->end)
        return err_set(ERR_CONFIG,
                       "[pack] tokenizer ends a text with token %d, and the model with [model] end_token = %d: set "
                       "end_token = %d",
                       end, f->o->end, end);
    return f->o->words ? encoder_open(&f->e, f->o->words) : ERR_OK;
}

static err_t fill(filling *f, const char *const *files, int64_t count) {
    const to_text_options *o = f->o;
    int64_t vocab = o->words ? tokenizer_about(o->words).vocab : 256;
    fields_reader r = {.answers = true,
                       .numbers = FIELD_WHOLE,
                       .put = put_sample,
                       .progress = o->progress,
                       .ctx = f,
                       .progress_ctx = o->ctx};
    TRY(open_words(f));
    f->s->token_bytes = vocab > 32768 || o->end >= 32768 ? 4 : 2;  // ids that leave room for the mark in 2 bytes
    f->row = malloc((size_t)((o->reads + o->says) * f->s->token_bytes));
    if (!f->row) return err_set(ERR_INTERNAL, "no memory for a row of %" PRId64 " tokens", o->reads + o->says);
    for (int64_t i = 0; i < count; i++) TRY(fields_read(&r, files[i]));
    return fflush(f->s->file) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
}

err_t to_text_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const to_text_options *o,
                         to_text_spooled *done) {
    *s = (spool){.path = strdup(path), .file = fopen(path, "w+be")};
    *done = (to_text_spooled){0};
    if (!s->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (!s->file) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    filling f = {.s = s, .o = o, .done = done};
    err_t rc = fill(&f, files, count);
    if (f.e) encoder_close(f.e);
    free(f.a.at), free(f.b.at), free(f.answer.at), free(f.row);
    return rc;
}
