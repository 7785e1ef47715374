// data/text/document.c: see data/text/document.h.
#include "data/text/document.h"

#include "data/text/inflate.h"
#include "data/text/stories.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER = 1 << 18 };

struct document_reader {
    char *path;
    const char *key;
    inflater *file;
    bool lines;          // JSONL
    int64_t line;        // that was read last
    bytes pending;       // of a JSONL file: what was read; lines before `from` are done
    int64_t from, done;  // done: bytes of the line that document_line gave last
    bool over, begun;
    stories *stories;      // not NULL: there is no file
    int64_t told, wanted;  // bytes of stories so far, and in all
};

static bool ends_with(const char *name, size_t n, const char *end) {
    size_t e = strlen(end);
    return n >= e && strncmp(name + n - e, end, e) == 0;
}

// By its name, with or without the end that says how it is compressed.
bool document_names_jsonl(const char *path) {
    static const char *const packed[] = {".gz", ".zst"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (ends_with(path, n, packed[i])) {
            n -= strlen(packed[i]);
            break;
        }
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson");
}

err_t document_open(document_reader **out, const char *path, const char *key) {
    document_reader *d = *out = calloc(1, sizeof *d);
    bool tells = false;
    uint64_t seed = 0;
    err_t rc = ERR_OK;
    if (d) *d = (document_reader){.path = strdup(path), .key = key, .lines = key && document_names_jsonl(path)};
    if (!d || !d->path) TRY_GOTO(err_set(ERR_INTERNAL, "%s: no memory to read it", path), out);
    TRY_GOTO(stories_parse(path, &tells, &seed, &d->wanted), out);
    rc = tells ? stories_open(&d->stories, seed) : inflater_open(&d->file, path);
out:
    if (rc != ERR_OK) document_close(d), *out = NULL;
    return rc;
}

void document_close(document_reader *d) {
    if (!d) return;
    inflater_close(d->file);
    stories_close(d->stories);
    free(d->pending.at), free(d->path);
    free(d);
}

bool document_is_jsonl(const document_reader *d) { return d->lines; }

int64_t document_at(const document_reader *d) { return d->stories ? d->told : inflater_at(d->file); }

static err_t tell_some(document_reader *d, uint8_t *to, int64_t most, int64_t *got) {
    int64_t left = d->wanted - d->told;
    *got = most < left ? most : left;
    d->told += *got;
    return stories_read(d->stories, to, *got);
}

// Appends at most `most` bytes of the text, fewer only at its end.
static err_t read_some(document_reader *d, bytes *to, int64_t most) {
    int64_t got;
    ROOM_FOR(to, to->n + most);
    TRY(d->stories ? tell_some(d, to->at + to->n, most, &got) : inflater_read(d->file, to->at + to->n, most, &got));
    to->n += got;
    d->over = got < most;
    return ERR_OK;
}

// --- JSONL -----------------------------------------------------------------------------------------------------------

static err_t bad_line(const document_reader *d, const char *what) {
    return err_set(ERR_DATA, "%s: line %" PRId64 ": %s; expected an object such as {\"%s\": \"...\"}", d->path, d->line,
                   what, d->key);
}

static err_t take_text(const document_reader *d, const json_t *value, bytes *to) {
    if (!json_is_object(value)) return bad_line(d, "not an object");
    const json_t *text = json_object_get(value, d->key);
    if (!json_is_string(text)) return bad_line(d, text ? "its text is not a string" : "it has no such member");
    int64_t n = (int64_t)json_string_length(text);
    ROOM_FOR(to, to->n + n);
    if (n) memcpy(to->at + to->n, json_string_value(text), (size_t)n);
    to->n += n;
    return ERR_OK;
}

// A parsed value takes up to a hundred bytes where its text takes three: so they are counted first. Outside of
// strings a comma or an opening bracket comes before each but the first.
static int64_t count_values(const uint8_t *at, int64_t n) {
    int64_t count = 1;
    bool inside = false;
    for (int64_t i = 0; i < n; i++) {
        if (inside && at[i] == '\\') i++;
        else if (at[i] == '"') inside = !inside;
        else if (!inside) count += at[i] == ',' || at[i] == '[' || at[i] == '{';
    }
    return count;
}

json_t *document_parse(const uint8_t *line, int64_t n, char why[200]) {
    json_error_t e;
    if (count_values(line, n) > DOCUMENT_VALUES)
        return snprintf(why, 200, "more than %d values of JSON", DOCUMENT_VALUES), NULL;
    json_t *value = json_loadb((const char *)line, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!value) snprintf(why, 200, "not valid JSON: %.150s", e.text);
    return value;
}

static err_t parse_line(document_reader *d, int64_t n, bytes *to) {
    char why[200];
    json_t *value = document_parse(d->pending.at + d->from, n, why);
    if (!value) return bad_line(d, why);
    err_t rc = take_text(d, value, to);
    json_decref(value);
    return rc;
}

static bool is_blank(const uint8_t *at, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (at[i] != ' ' && at[i] != '\t' && at[i] != '\r') return false;
    return true;
}

// Moves what is left to the front, and reads more.
static err_t read_more(document_reader *d) {
    int64_t left = d->pending.n - d->from;
    if (left > DOCUMENT_LINE)
        return err_set(ERR_DATA, "%s: line %" PRId64 " is longer than %d MiB", d->path, d->line + 1,
                       DOCUMENT_LINE >> 20);
    if (d->from) memmove(d->pending.at, d->pending.at + d->from, (size_t)left);
    d->pending.n = left, d->from = 0;
    int64_t most = left < DOCUMENT_LINE / 2 ? left : DOCUMENT_LINE - left;
    return read_some(d, &d->pending, most > BUFFER ? most : BUFFER);
}

// Reads until a line is whole. *n = its bytes without the line end, *whole with it; both 0 at the end of the file.
static err_t next_line(document_reader *d, int64_t *n, int64_t *whole) {
    for (int64_t looked = 0;;) {
        int64_t there = d->pending.n - d->from;
        const uint8_t *line = d->pending.at + d->from,
                      *end = there > looked ? memchr(line + looked, '\n', (size_t)(there - looked)) : NULL;
        if (end) return *n = end - line, *whole = *n + 1, ERR_OK;
        if (d->over) return *n = *whole = there, ERR_OK;
        looked = there;
        TRY(read_more(d));
    }
}

err_t document_line(document_reader *d, const uint8_t **line, int64_t *n, bool *more) {
    int64_t whole;
    d->from += d->done, d->done = 0;
    TRY(next_line(d, n, &whole));
    *more = whole > 0;
    *line = d->pending.at + d->from;
    d->done = whole;
    d->line += *more;
    return ERR_OK;
}

// Blank lines are no documents.
static err_t read_line(document_reader *d, bytes *to, bool *more) {
    for (bool blank = true; blank;) {
        int64_t n, whole;
        TRY(next_line(d, &n, &whole));
        *more = whole > 0;
        if (!*more) return ERR_OK;
        d->line++;
        blank = is_blank(d->pending.at + d->from, n);
        if (!blank) TRY(parse_line(d, n, to));
        d->from += whole;
    }
    return ERR_OK;
}

// The last story is cut so that all of them, with the empty lines between, have exactly the bytes that were asked for.
static err_t read_story(document_reader *d, bytes *to, bool *more) {
    int64_t from = to->n;
    *more = d->told < d->wanted;
    if (!*more) return ERR_OK;
    TRY(stories_next(d->stories, to));
    int64_t left = d->wanted - d->told, n = to->n - from;
    d->told += n < left ? n : left;
    if (n > left) to->n = from + left;
    while (to->n > from && to->at[to->n - 1] == '\n') to->n--;
    return ERR_OK;
}

err_t document_read(document_reader *d, bytes *to, int64_t most, bool *ends, bool *more) {
    *ends = true;
    if (d->stories) return read_story(d, to, more);
    if (d->lines) return read_line(d, to, more);
    *more = !d->over || !d->begun;
    if (!*more) return ERR_OK;
    d->begun = true;
    TRY(read_some(d, to, most));
    *ends = d->over;
    return ERR_OK;
}
