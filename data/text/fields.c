// data/text/fields.c: see data/text/fields.h.
#include "data/text/fields.h"

#include "data/text/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- lines of JSON ---------------------------------------------------------------------------------------------------

static err_t take_member(field *to, const json_t *from, const char *name, field_numbers numbers) {
    static const char *const beside[] = {"", " or a whole number", " or a number"};
    const json_t *x = json_object_get(from, name);
    *to = (field){0};
    if (!x || json_is_null(x)) return ERR_OK;
    if (json_is_string(x)) to->at = json_string_value(x), to->n = (int64_t)json_string_length(x);
    else if (numbers && json_is_integer(x))
        to->n = snprintf(to->number, sizeof to->number, "%" JSON_INTEGER_FORMAT, json_integer_value(x)),
        to->at = to->number;
    else if (numbers == FIELD_NUMBER && json_is_real(x))
        to->n = snprintf(to->number, sizeof to->number, "%.17g", json_real_value(x)), to->at = to->number;
    else return err_set(ERR_DATA, "its %s is not a string%s", name, beside[numbers]);
    return ERR_OK;
}

static err_t take_members(const fields_reader *r, const json_t *sample, field *x) {
    const json_t *prompt = json_object_get(sample, "prompt");
    if (r->answers && prompt && !json_is_null(prompt)) {
        x[FIELD_TEXT_B] = (field){0};
        TRY(take_member(&x[FIELD_TEXT], sample, "prompt", FIELD_STRING));
        return take_member(&x[FIELD_LABEL], sample, "response", FIELD_STRING);
    }
    TRY(take_member(&x[FIELD_TEXT], sample, "text", FIELD_STRING));
    TRY(take_member(&x[FIELD_TEXT_B], sample, "text_b", FIELD_STRING));
    return take_member(&x[FIELD_LABEL], sample, "label", r->numbers);
}

static err_t put_json(const fields_reader *r, const uint8_t *line, int64_t n) {
    char why[200];
    field x[FIELDS];
    json_t *sample = document_parse(line, n, why);
    if (!sample) return err_set(ERR_DATA, "%s", why);
    err_t rc = take_members(r, sample, x);
    if (rc == ERR_OK) rc = r->put(r->ctx, x);
    json_decref(sample);
    return rc;
}

// --- lines of a table ------------------------------------------------------------------------------------------------

// Column c of a line; at NULL: it has fewer.
static field column_of(const uint8_t *line, int64_t n, int c) {
    const uint8_t *end = line + n, *at = line;
    for (; c > 0; c--) {
        const uint8_t *tab = memchr(at, '\t', (size_t)(end - at));
        if (!tab) return (field){0};
        at = tab + 1;
    }
    const uint8_t *tab = memchr(at, '\t', (size_t)(end - at));
    return (field){.at = (const char *)at, .n = (tab ? tab : end) - at};
}

static err_t read_header(fields_reader *r, const uint8_t *line, int64_t n) {
    static const struct {
        const char *name;
        int field;
        bool answers;
    } names[] = {{"text", FIELD_TEXT, false},     {"sentence", FIELD_TEXT, false},    {"sentence1", FIELD_TEXT, false},
                 {"text_b", FIELD_TEXT_B, false}, {"sentence2", FIELD_TEXT_B, false}, {"label", FIELD_LABEL, false},
                 {"prompt", FIELD_TEXT, true},    {"response", FIELD_LABEL, true}};
    field x;
    for (int k = 0; k < FIELDS; k++) r->column[k] = -1;
    for (int c = 0; (x = column_of(line, n, c)).at; c++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if ((size_t)x.n == strlen(names[i].name) && memcmp(x.at, names[i].name, (size_t)x.n) == 0 &&
                (r->answers || !names[i].answers))
                r->column[names[i].field] = c;
    if (r->column[FIELD_TEXT] >= 0 && r->column[FIELD_LABEL] >= 0) return ERR_OK;
    return err_set(ERR_DATA,
                   "its header names no column %s: expected text (or sentence, sentence1) and label, and of "
                   "pairs text_b (or sentence2)%s, with tabs between",
                   r->column[FIELD_TEXT] < 0 ? "text" : "label", r->answers ? ", or prompt and response" : "");
}

static err_t put_columns(const fields_reader *r, const uint8_t *line, int64_t n) {
    field x[FIELDS];
    for (int k = 0; k < FIELDS; k++) x[k] = r->column[k] < 0 ? (field){0} : column_of(line, n, r->column[k]);
    return r->put(r->ctx, x);
}

// --- a file ----------------------------------------------------------------------------------------------------------

static bool is_blank(const uint8_t *line, int64_t n) {
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\t')) n--;
    return n == 0;
}

static err_t put_lines(fields_reader *r, document_reader *d, const char *path, bool json) {
    const uint8_t *line;
    int64_t n, number = 0;
    bool headed = json;
    for (bool more = true; more;) {
        TRY(document_line(d, &line, &n, &more));
        if (!more) return ERR_OK;
        if (n > 0 && line[n - 1] == '\r') n--;
        number++;
        if (is_blank(line, n)) continue;
        err_t rc = json ? put_json(r, line, n) : !headed ? read_header(r, line, n) : put_columns(r, line, n);
        headed = true;
        if (rc != ERR_OK) return err_prefix("%s: line %" PRId64, path, number);
        if (r->progress && number % 256 == 0) r->progress(r->progress_ctx, r->before + document_at(d));
    }
    return ERR_OK;
}

static bool names_tsv(const char *path) {
    static const char *const ends[] = {".tsv", ".tsv.gz", ".tsv.zst"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0) return true;
    return false;
}

err_t fields_read(fields_reader *r, const char *path) {
    document_reader *d;
    bool json = document_names_jsonl(path);
    if (!json && !names_tsv(path))
        return err_set(ERR_DATA,
                       "%s: %s are lines of JSON or of a table: expected a name that ends in .jsonl, .ndjson or .tsv, "
                       "or such a one compressed",
                       path, r->answers ? "texts and what is said of them" : "texts with labels");
    TRY(document_open(&d, path, NULL));
    err_t rc = put_lines(r, d, path, json);
    if (r->progress) r->before += document_at(d);
    document_close(d);
    return rc;
}

// As `tokenizers` has it in longest_first.
bool fields_cut(id_list *a, id_list *b, int64_t room) {
    if (a->n + b->n <= room) return false;
    id_list *less = a->n > b->n ? b : a, *more = a->n > b->n ? a : b;
    if (less->n > room / 2) less->n = room / 2;
    more->n = room - less->n;
    return true;
}
