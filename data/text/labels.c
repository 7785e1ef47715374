// data/text/labels.c: see data/text/labels.h. The files are read twice: only when all labels are known have their names
// numbers.
#include "data/text/labels.h"

#include "base/io.h"
#include "data/text/fields.h"
#include "data/text/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_MOST = 32768 };

typedef struct name_list {
    char **at;
    int64_t n, room;
} name_list;

typedef struct filling {
    spool *s;
    const labels_options *o;
    labels_spooled *done;
    encoder *e;
    int32_t begin, end;  // [CLS], [SEP]
    name_list names;     // different labels, sorted once all are known
    bool numbers;        // all are whole numbers
    bool names_only;     // the first time
    id_list a, b;
    uint8_t *row;
} filling;

// --- labels ----------------------------------------------------------------------------------------------------------

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_number(const char *text) {
    size_t n = strspn(text, "0123456789");
    return n > 0 && n < 6 && text[n] == 0 && (n == 1 || text[0] != '0');
}

static err_t add_name(filling *f, const field *label) {
    if (memchr(label->at, 0, (size_t)label->n)) return err_set(ERR_DATA, "its label holds a NUL");
    for (int64_t i = 0; i < f->names.n; i++)
        if (strlen(f->names.at[i]) == (size_t)label->n && memcmp(f->names.at[i], label->at, (size_t)label->n) == 0)
            return ERR_OK;
    if (f->names.n == CLASSES_MOST)
        return err_set(ERR_DATA, "more than %d different labels: expected those of classes", CLASSES_MOST);
    ROOM_FOR(&f->names, f->names.n + 1);
    char *name = f->names.at[f->names.n] = strndup(label->at, (size_t)label->n);
    if (!name) return err_set(ERR_INTERNAL, "no memory for the name of a label");
    f->names.n++;
    f->numbers &= is_number(name);
    return ERR_OK;
}

static int64_t class_of(const filling *f, const field *label) {
    char *name = strndup(label->at, (size_t)label->n), **found;
    found = name ? bsearch(&name, f->names.at, (size_t)f->names.n, sizeof *f->names.at, by_bytes) : NULL;
    int64_t class = !found ? -1 : f->numbers ? strtoll(name, NULL, 10) : found - f->names.at;
    free(name);
    return class;
}

static int64_t classes(const filling *f) {
    int64_t most = 0;
    for (int64_t i = 0; f->numbers && i < f->names.n; i++) {
        int64_t k = strtoll(f->names.at[i], NULL, 10);
        if (k > most) most = k;
    }
    return f->numbers ? most + 1 : f->names.n;
}

static err_t write_names(const filling *f) {
    json_t *list = json_array();
    for (int64_t k = 0; k < f->done->classes; k++) {
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, k);
        json_array_append_new(list, json_string(f->numbers ? number : f->names.at[k]));
    }
    char *text = list ? json_dumps(list, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    err_t rc = text ? io_write_file(f->o->names, text, strlen(text), NULL)
                    : err_set(ERR_DATA, "a label is not valid UTF-8: its name can't be written to %s", f->o->names);
    free(text);
    json_decref(list);
    return rc;
}

// --- a row -----------------------------------------------------------------------------------------------------------

static err_t encode(filling *f, const field *x, id_list *to) {
    const int32_t *ids;
    int64_t n;
    to->n = 0;
    if (!x->at) return ERR_OK;
    TRY(encoder_encode(f->e, x->at, x->n, ENCODE_TEXT, &ids, &n));
    ROOM_FOR(to, n + 1);
    if (n) memcpy(to->at, ids, (size_t)n * sizeof *ids);
    to->n = n;
    return ERR_OK;
}

// Decimals only: no hexadecimal ones, infinity or NaN, which strtod knows too.
static err_t number_of(const field *label, float *out) {
    char text[64], *end = text;
    if ((size_t)label->n < sizeof text) {
        memcpy(text, label->at, (size_t)label->n);
        text[label->n] = 0;
        if (strspn(text, "+-.0123456789eE") == (size_t)label->n) *out = (float)strtod(text, &end);
    }
    if (end == text || *end) return err_set(ERR_DATA, "its label is not a number such as 3.8");
    return isfinite(*out) ? ERR_OK : err_set(ERR_DATA, "its label, %s, is beyond the numbers of FP32", text);
}

static void put_number(filling *f, int64_t at, int64_t number, bool mark) {
    int width = f->s->token_bytes;
    uint32_t token = (uint32_t)number | (mark ? UINT32_C(1) << (8 * width - 1) : 0);
    for (int k = 0; k < width; k++) f->row[at * width + k] = (uint8_t)(token >> 8 * k);
}

static int64_t put_text(filling *f, int64_t at, const id_list *x, bool second) {
    for (int64_t i = 0; i < x->n; i++) put_number(f, at++, x->at[i], second);
    put_number(f, at++, f->end, second);
    return at;
}

// The highest bit is that of marks: the sign of a number.
static err_t put_label(filling *f, const field *label) {
    int64_t T = f->o->context;
    float x;
    uint32_t bits;
    if (!f->o->numbers) return put_number(f, T + 1, class_of(f, label), false), ERR_OK;
    TRY(number_of(label, &x));
    memcpy(&bits, &x, sizeof bits);
    put_number(f, T + 1, bits & INT32_MAX, bits >> 31);
    return ERR_OK;
}

static err_t put_row(filling *f, const field *x) {
    int64_t T = f->o->context, row = T + LABEL_ROW, bytes = row * f->s->token_bytes, at = 0;
    TRY(encode(f, &x[FIELD_TEXT], &f->a));
    TRY(encode(f, &x[FIELD_TEXT_B], &f->b));
    bool pair = x[FIELD_TEXT_B].at != NULL;
    f->done->cut += fields_cut(&f->a, &f->b, T - (pair ? 3 : 2));
    memset(f->row, 0, (size_t)bytes);
    put_number(f, at++, f->begin, false);
    at = put_text(f, at, &f->a, false);
    if (pair) at = put_text(f, at, &f->b, true);
    put_number(f, T, at, false);
    TRY(put_label(f, &x[FIELD_LABEL]));
    if (fwrite(f->row, 1, (size_t)bytes, f->s->file) != (size_t)bytes)
        return err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
    f->s->tokens += row, f->s->documents++;
    f->s->bytes += x[FIELD_TEXT].n + x[FIELD_TEXT_B].n;
    return ERR_OK;
}

static err_t put_sample(void *ctx, const field *x) {
    filling *f = ctx;
    if (!x[FIELD_TEXT].at || !x[FIELD_LABEL].at || x[FIELD_LABEL].n == 0)
        return err_set(ERR_DATA,
                       "it has no %s: expected a text and a label, such as {\"text\": \"well done\", "
                       "\"label\": \"good\"}",
                       x[FIELD_TEXT].at ? "label" : "text");
    return f->names_only ? add_name(f, &x[FIELD_LABEL]) : put_row(f, x);
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t open_words(filling *f) {
    f->begin = tokenizer_special(f->o->words, "[CLS]"), f->end = tokenizer_special(f->o->words, "[SEP]");
    if (f->begin < 0 || f->end < 0)
        return err_set(ERR_CONFIG,
                       "[pack] tokenizer has no token %s, which stands at the %s of a text with a label: "
                       "expected one like BERT's",
                       f->begin < 0 ? "[CLS]" : "[SEP]", f->begin < 0 ? "beginning" : "end");
    return encoder_open(&f->e, f->o->words);
}

static err_t fill(filling *f, const char *const *files, int64_t count) {
    fields_reader r = {.numbers = f->o->numbers ? FIELD_NUMBER : FIELD_WHOLE, .put = put_sample, .ctx = f};
    TRY(open_words(f));
    for (int64_t i = 0; i < count && !f->o->numbers; i++) TRY(fields_read(&r, files[i]));
    if (f->names.n) qsort(f->names.at, (size_t)f->names.n, sizeof *f->names.at, by_bytes);
    f->done->classes = f->o->numbers ? 0 : classes(f), f->names_only = false;
    int64_t vocab = tokenizer_about(f->o->words).vocab;
    bool wide = f->o->numbers || vocab > 32768 || f->o->context >= 32768 || f->done->classes > 32768;
    f->s->token_bytes = wide ? 4 : 2;
    f->row = malloc((size_t)((f->o->context + LABEL_ROW) * f->s->token_bytes));
    if (!f->row) return err_set(ERR_INTERNAL, "no memory for a row of %" PRId64 " tokens", f->o->context);
    r.progress = f->o->progress, r.progress_ctx = f->o->ctx;
    for (int64_t i = 0; i < count; i++) TRY(fields_read(&r, files[i]));
    if (!f->o->numbers) TRY(write_names(f));
    return fflush(f->s->file) == 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", f->s->path, strerror(errno));
}

err_t labels_spool_fill(spool *s, const char *path, const char *const *files, int64_t count, const labels_options *o,
                        labels_spooled *done) {
    *s = (spool){.path = strdup(path), .file = fopen(path, "w+be")};
    *done = (labels_spooled){0};
    if (!s->path) return err_set(ERR_INTERNAL, "%s: no memory", path);
    if (!s->file) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    filling f = {.s = s, .o = o, .done = done, .numbers = true, .names_only = true};
    err_t rc = fill(&f, files, count);
    if (f.e) encoder_close(f.e);
    for (int64_t i = 0; i < f.names.n; i++) free(f.names.at[i]);
    free(f.names.at), free(f.a.at), free(f.b.at), free(f.row);
    return rc;
}
