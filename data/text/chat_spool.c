// data/text/chat_spool.c: see data/text/chat_spool.h.
#include "data/text/chat_spool.h"

#include "data/text/document.h"
#include "data/text/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

// A row that is not written yet.
typedef struct open_row {
    uint8_t *at;
    int64_t used, number;  // tokens; which one it is of all
} open_row;

// Rows that wait for more samples: so many, or fewer if they are long.
enum { OPEN_ROWS = 256, OPEN_BYTES = 1 << 26 };

typedef struct filling {
    spool *s;
    const chat_spool_options *o;
    chat_spooled *done;
    open_row row[OPEN_ROWS];
    int rows, most;   // that are open; that may be
    int64_t opened;   // of all
    uint8_t *memory;  // of the rows
    int64_t before;   // stored bytes of files that are done
} filling;

static int64_t bytes_of(const filling *f) { return f->o->row_tokens * f->s->token_bytes; }

static err_t open_rows(filling *f) {
    int64_t fit = f->o->documents ? OPEN_BYTES / bytes_of(f) : 1;
    f->most = fit < 1 ? 1 : fit < OPEN_ROWS ? (int)fit : OPEN_ROWS;
    f->memory = malloc((size_t)(f->most * bytes_of(f)));
    if (!f->memory)
        return err_set(ERR_INTERNAL, "no memory for %d rows of %" PRId64 " tokens", f->most, f->o->row_tokens);
    for (int i = 0; i < f->most; i++) f->row[i].at = f->memory + i * bytes_of(f);
    return ERR_OK;
}

static void put_token(const filling *f, open_row *r, int64_t token, int marks) {
    int width = f->s->token_bytes;
    uint32_t answer = UINT32_C(1) << (8 * width - 1), bits = (uint32_t)token;
    if (marks & MARK_ANSWER) bits |= answer;
    if (marks & MARK_BEGIN && f->o->documents) bits |= answer / 2;
    for (int k = 0; k < width; k++) r->at[r->used * width + k] = (uint8_t)(bits >> 8 * k);
    r->used++;
}

// Fills the row up, writes it, and closes it.
static err_t write_row(filling *f, open_row *r) {
    size_t bytes = (size_t)bytes_of(f);
    open_row done = *r;
    for (bool first = true; r->used < f->o->row_tokens; first = false) put_token(f, r, 0, first ? MARK_BEGIN : 0);
    if (fwrite(r->at, 1, bytes, f->s->file) != bytes) return err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
    f->s->tokens += f->o->row_tokens;
    *r = f->row[--f->rows], f->row[f->rows] = done;
    return ERR_OK;
}

// Is a fuller than b, or as full and older?
static bool is_before(const open_row *a, const open_row *b) {
    return a->used != b->used ? a->used > b->used : a->number < b->number;
}

// The fullest row with room for n tokens: an open one, or else a new one, for which the fullest of all is closed where
// there are many.
static err_t find_row(filling *f, int64_t n, open_row **out) {
    open_row *best = NULL, *fullest = NULL;
    for (open_row *r = f->row; r < f->row + f->rows; r++) {
        if (!fullest || is_before(r, fullest)) fullest = r;
        if (r->used + n <= f->o->row_tokens && f->o->documents && (!best || is_before(r, best))) best = r;
    }
    if (!best && f->rows == f->most) TRY(write_row(f, fullest));
    if (!best) best = &f->row[f->rows++], best->used = 0, best->number = f->opened++;
    *out = best;
    return ERR_OK;
}

// In the order in which they were opened.
static err_t write_rows(filling *f) {
    while (f->rows) {
        open_row *first = f->row;
        for (int i = 1; i < f->rows; i++)
            if (f->row[i].number < first->number) first = &f->row[i];
        TRY(write_row(f, first));
    }
    return ERR_OK;
}

static err_t put_sample(filling *f, const json_t *sample) {
    chat_tokens t;
    open_row *r;
    int64_t answers = 0;
    TRY(chat_encode(f->o->chat, sample, &t));
    int64_t n = t.count < f->o->row_tokens ? t.count : f->o->row_tokens;
    for (int64_t i = 1; i < n; i++) answers += t.marks[i];  // those that can be a target
    if (answers == 0) return f->done->left_out++, ERR_OK;
    TRY(find_row(f, n, &r));
    for (int64_t i = 0; i < n; i++) put_token(f, r, t.ids[i], i == 0 ? MARK_BEGIN : t.marks[i] ? MARK_ANSWER : 0);
    f->done->cut += t.count > n;
    f->done->answers += answers;
    f->done->filled += n;
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
    int64_t most = o->documents ? 16384 : 32768;  // ids that leave room for the marks in 2 bytes
    *s = (spool){.token_bytes = o->vocab > most ? 4 : 2, .path = strdup(path), .file = fopen(path, "w+be")};
    *done = (chat_spooled){0};
    if (!s->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (!s->file) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    filling *f = calloc(1, sizeof *f);
    if (!f) return err_set(ERR_INTERNAL, "no memory to fill rows");
    *f = (filling){.s = s, .o = o, .done = done};
    err_t rc = open_rows(f);
    for (int64_t i = 0; i < count && rc == ERR_OK; i++) rc = put_file(f, files[i]);
    if (rc == ERR_OK) rc = write_rows(f);
    free(f->memory), free(f);
    TRY(rc);
    return fflush(s->file) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", s->path, strerror(errno));
}
