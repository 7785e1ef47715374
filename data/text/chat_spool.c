// data/text/chat_spool.c: see data/text/chat_spool.h.
#include "data/text/chat_spool.h"

#include "data/text/document.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct filling {
    spool *s;
    const chat_spool_options *o;
    chat_spooled *done;
    uint8_t *row;
    int64_t before;  // stored bytes of files that are done
} filling;

// A row of the tokens. *answers = those of an answer in it that can be a target.
static void make_row(const filling *f, const chat_tokens *t, int64_t *answers) {
    int width = f->s->token_bytes;
    int64_t row = f->o->row_tokens, n = t->count < row ? t->count : row;
    *answers = 0;
    memset(f->row, 0, (size_t)(row * width));
    for (int64_t i = 0; i < n; i++) {
        bool answer = t->marks[i] && i > 0;
        uint32_t token = (uint32_t)t->ids[i] | (answer ? UINT32_C(1) << (8 * width - 1) : 0);
        for (int k = 0; k < width; k++) f->row[i * width + k] = (uint8_t)(token >> 8 * k);
        *answers += answer;
    }
}

static err_t put_sample(filling *f, const json_t *sample) {
    chat_tokens t;
    int64_t answers, bytes = f->o->row_tokens * f->s->token_bytes;
    TRY(chat_encode(f->o->chat, sample, &t));
    make_row(f, &t, &answers);
    if (answers == 0) return f->done->left_out++, ERR_OK;
    if (fwrite(f->row, 1, (size_t)bytes, f->s->file) != (size_t)bytes)
        return err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
    f->done->cut += t.count > f->o->row_tokens;
    f->done->answers += answers;
    f->s->tokens += f->o->row_tokens;
    f->s->documents++;
    f->s->bytes += t.bytes;
    return ERR_OK;
}

static bool is_blank(const uint8_t *line, int64_t n) {
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t' || line[n - 1] == '\r')) n--;
    return n == 0;
}

static err_t put_line(filling *f, const uint8_t *line, int64_t n) {
    char why[200];
    if (is_blank(line, n)) return ERR_OK;
    json_t *sample = document_parse(line, n, why);
    if (!sample) return err_set(ERR_DATA, "%s", why);
    err_t rc = put_sample(f, sample);
    json_decref(sample);
    return rc;
}

static err_t put_lines(filling *f, document_reader *d, const char *path) {
    const uint8_t *line;
    int64_t n, number = 0;
    for (bool more = true; more;) {
        TRY(document_line(d, &line, &n, &more));
        if (!more) return ERR_OK;
        number++;
        if (put_line(f, line, n) != ERR_OK) return err_prefix("%s: line %" PRId64, path, number);
        if (f->o->progress && number % 256 == 0) f->o->progress(f->o->ctx, f->before + document_at(d));
    }
    return ERR_OK;
}

static err_t put_file(filling *f, const char *path) {
    document_reader *d;
    if (!document_names_jsonl(path))
        return err_set(ERR_DATA,
                       "%s: with a template, a file is lines of JSON: expected a name that ends in .jsonl or .ndjson, "
                       "or such a one compressed",
                       path);
    TRY(document_open(&d, path, NULL));
    err_t rc = put_lines(f, d, path);
    f->before += document_at(d);
    document_close(d);
    return rc;
}

err_t chat_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const chat_spool_options *o,
                      chat_spooled *done) {
    *s = (spool){.token_bytes = o->vocab > 32768 ? 4 : 2, .path = strdup(path), .file = fopen(path, "w+be")};
    *done = (chat_spooled){0};
    if (!s->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (!s->file) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    filling f = {.s = s, .o = o, .done = done, .row = malloc((size_t)(o->row_tokens * s->token_bytes))};
    err_t rc = f.row ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a row of %" PRId64 " tokens", o->row_tokens);
    for (int64_t i = 0; i < count && rc == ERR_OK; i++) rc = put_file(&f, files[i]);
    free(f.row);
    TRY(rc);
    return fflush(s->file) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", s->path, strerror(errno));
}
