// trainer/costs/costs_file.c: see trainer/costs/costs.h: the file, read and written.
#include "base/io.h"
#include "base/text.h"
#include "trainer/costs/costs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// 2: an all_to_all sends none of a rank's own part, and moves what no cache holds; `merge`, `beside`.
#define VERSION 2
enum { FILE_MOST = 16 << 20, LINE = 512, WORDS = 12 };

typedef struct reader {
    const char *name;
    const char *at;
    int number;
    char line[LINE];  // as it stands
    char split[LINE], *word[WORDS];
    int words;
} reader;

static err_t wrong(const reader *r, const char *expected) {
    return err_set(ERR_DATA, "%s:%d: expected `%s`, found `%.100s`", r->name, r->number, expected, r->line);
}

static bool read_line(reader *r) {
    size_t n = strcspn(r->at, "\n"), kept = n < LINE - 1 ? n : LINE - 1;
    if (!*r->at) return false;
    memcpy(r->line, r->at, kept), r->line[kept] = 0;
    r->at += n + (r->at[n] == '\n');
    r->number++, r->words = 0;
    strcpy(r->split, r->line);
    char *rest = NULL;
    for (char *w = strtok_r(r->split, " ", &rest); w && r->words < WORDS; w = strtok_r(NULL, " ", &rest))
        r->word[r->words++] = w;
    return true;
}

// A finite number, at least `least`.
static bool number(const char *word, double least, double *out) {
    char *end;
    *out = strtod(word, &end);
    return end != word && !*end && isfinite(*out) && *out >= least;
}

static bool whole(const char *word, int64_t least, int64_t most, int64_t *out) {
    char *end;
    *out = strtoll(word, &end, 10);
    return end != word && !*end && *out >= least && *out <= most;
}

// The line ends with these words at `from`; "#" stands for a number.
static bool ends(const reader *r, int from, const char *const *words, int n) {
    if (r->words != from + n) return false;
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], "#") != 0 && strcmp(r->word[from + i], words[i]) != 0) return false;
    return true;
}
#define ENDS(r, from, ...) \
    ends(r, from, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static int index_of(const char *word, const char *const *names, int n) {
    int i = 0;
    while (i < n && strcmp(names[i], word) != 0) i++;
    return i < n ? i : -1;
}

static int type_of(const char *word) {
    int t = 0;
    while (t <= UINT8 && strcmp(dtype_name((dtype)t), word) != 0) t++;
    return t <= UINT8 ? t : -1;
}

// --- lines -----------------------------------------------------------------------------------------------------------

static const double LEAST = 1e-30;

// "NUMBER UNIT SPREAD spread" at `from`.
static bool figure(const reader *r, int from, const char *unit, double scale, costs_figure *out) {
    if (!ENDS(r, from, "#", unit, "#", "spread")) return false;
    bool good = number(r->word[from], LEAST, &out->is) && number(r->word[from + 2], 0, &out->spread);
    out->is *= scale;
    return good;
}

static err_t take_memory(costs *c, const reader *r) {
    bool good = ENDS(r, 1, "#", "bytes") && number(r->word[1], 1, &c->memory);
    return good ? ERR_OK : wrong(r, "memory BYTES bytes");
}

static err_t take_host_memory(costs *c, const reader *r) {
    bool good = ENDS(r, 1, "#", "bytes") && number(r->word[1], 1, &c->host_memory);
    return good ? ERR_OK : wrong(r, "host_memory BYTES bytes");
}

static err_t take_host_link(costs *c, const reader *r) {
    return figure(r, 1, "bytes/s", 1, &c->host_link) ? ERR_OK : wrong(r, "host_link NUMBER bytes/s SPREAD spread");
}

static err_t take_host_copy(costs *c, const reader *r) {
    return figure(r, 1, "bytes/s", 1, &c->host_copy) ? ERR_OK : wrong(r, "host_copy NUMBER bytes/s SPREAD spread");
}

static err_t take_disk(costs *c, const reader *r) {
    bool good = ENDS(r, 1, "#", "bytes") && number(r->word[1], 1, &c->disk);
    return good ? ERR_OK : wrong(r, "disk BYTES bytes");
}

static err_t take_disk_copy(costs *c, const reader *r) {
    return figure(r, 1, "bytes/s", 1, &c->disk_copy) ? ERR_OK : wrong(r, "disk_copy NUMBER bytes/s SPREAD spread");
}

static err_t take_peak(costs *c, const reader *r) {
    int type = r->words > 1 ? type_of(r->word[1]) : -1;
    if (type >= 0 && type < INT32 && figure(r, 2, "flop/s", 1, &c->peak[type])) return ERR_OK;
    return wrong(r, "peak fp32|bf16|fp16 NUMBER flop/s SPREAD spread");
}

static err_t take_copy(costs *c, const reader *r) {
    return figure(r, 1, "bytes/s", 1, &c->copy) ? ERR_OK : wrong(r, "copy NUMBER bytes/s SPREAD spread");
}

static err_t take_launch(costs *c, const reader *r) {
    return figure(r, 1, "us", 1e-6, &c->launch) ? ERR_OK : wrong(r, "launch NUMBER us SPREAD spread");
}

static err_t take_beside(costs *c, const reader *r) {
    bool good = ENDS(r, 1, "#", "#", "spread") && number(r->word[1], 0, &c->beside.is) &&
                number(r->word[2], 0, &c->beside.spread);
    return good ? ERR_OK : wrong(r, "beside NUMBER SPREAD spread");
}

static err_t take_tiles(costs *c, const reader *r) {
    int *to[] = {&c->tiles.processors, &c->tiles.rows, &c->tiles.columns, &c->tiles.lost};
    bool good = r->words == 5;
    for (int i = 0; i < 4 && good; i++) {
        int64_t n;
        good = whole(r->word[i + 1], i < 3, 1 << 20, &n);
        *to[i] = (int)n;
    }
    return good ? ERR_OK : wrong(r, "tiles PROCESSORS ROWS COLUMNS LOST");
}

static err_t no_memory(void) { return err_set(ERR_INTERNAL, "no memory for a table of costs"); }

static err_t take_reach(costs *c, const reader *r) {
    costs_reach x = {0};
    bool good = ENDS(r, 1, "#", "#", "#", "spread") && strlen(r->word[1]) < COSTS_NAME &&
                number(r->word[2], LEAST, &x.share.is) && number(r->word[3], 0, &x.share.spread);
    if (!good) return wrong(r, "reach OPERATION SHARE SPREAD spread");
    snprintf(x.name, sizeof x.name, "%s", r->word[1]);
    costs_reach *more = realloc(c->reach, (size_t)(c->reaches + 1) * sizeof *more);
    if (!more) return no_memory();
    c->reach = more, c->reach[c->reaches++] = x;
    return ERR_OK;
}

static err_t take_link(costs *c, const reader *r) {
    int level = r->words > 1 ? index_of(r->word[1], costs_level_name, COSTS_LEVELS) : -1;
    costs_figure rate;
    double us;
    bool good = level >= 0 && ENDS(r, 2, "#", "bytes/s", "#", "us", "#", "spread") &&
                number(r->word[2], LEAST, &rate.is) && number(r->word[4], 0, &us) &&
                number(r->word[6], 0, &rate.spread);
    if (!good) return wrong(r, "link node|rack|spine NUMBER bytes/s NUMBER us SPREAD spread");
    c->link[level].rate = rate, c->link[level].s = 1e-6 * us;
    return ERR_OK;
}

static err_t take_op(costs *c, const reader *r) {
    costs_op x = {0};
    int type = r->words > 2 ? type_of(r->word[2]) : -1;
    bool good = type >= 0 && ENDS(r, 5, "#", "ms", "#", "spread", "#", "calls") && strlen(r->word[1]) < COSTS_NAME &&
                cost_size(r->word[3], x.size) && cost_options(r->word[4], &x.options) &&
                number(r->word[5], LEAST, &x.s.is) && number(r->word[7], 0, &x.s.spread) &&
                whole(r->word[9], 1, INT64_MAX, &x.calls);
    if (!good) return wrong(r, "op NAME TYPE SIZES OPTIONS NUMBER ms SPREAD spread NUMBER calls");
    snprintf(x.name, sizeof x.name, "%s", r->word[1]);
    x.type = (dtype)type, x.s.is *= 1e-3;
    return costs_set_op(c, &x);
}

static err_t take_comm(costs *c, const reader *r) {
    int call = r->words > 1 ? index_of(r->word[1], costs_call_name, CALLS) : -1,
        level = r->words > 2 ? index_of(r->word[2], costs_level_name, COSTS_LEVELS) : -1;
    costs_comm x = {.call = (costs_call)call, .level = (costs_level)level};
    int64_t ranks;
    bool good = call >= 0 && level >= 0 && r->words > 4 && whole(r->word[3], 2, 1 << 24, &ranks) &&
                number(r->word[4], 1, &x.bytes) && figure(r, 5, "us", 1e-6, &x.s);
    if (!good)
        return wrong(r,
                     "comm all_reduce|reduce_scatter|all_gather|all_to_all|merge|message node|rack|spine RANKS BYTES "
                     "NUMBER us SPREAD spread");
    x.ranks = (int)ranks;
    return costs_set_comm(c, &x);
}

static const struct {
    const char *word;
    err_t (*take)(costs *c, const reader *r);
} kinds[] = {{"memory", take_memory},       {"peak", take_peak},
             {"copy", take_copy},           {"launch", take_launch},
             {"tiles", take_tiles},         {"reach", take_reach},
             {"link", take_link},           {"op", take_op},
             {"comm", take_comm},           {"host_memory", take_host_memory},
             {"host_link", take_host_link}, {"host_copy", take_host_copy},
             {"disk", take_disk},           {"disk_copy", take_disk_copy},
             {"beside", take_beside}};
enum { KINDS = sizeof kinds / sizeof *kinds };

// --- a file ----------------------------------------------------------------------------------------------------------

static err_t take_head(costs *c, reader *r) {
    int64_t version;
    if (!read_line(r) || r->words != 3 || strcmp(r->word[0], "lockstep") || strcmp(r->word[1], "costs"))
        return wrong(r, "lockstep costs 2");
    if (!whole(r->word[2], VERSION, VERSION, &version))
        return err_set(ERR_CONFIG,
                       "%s:1: version %.20s, and this build knows %d: measure again, with `lockstep bench step --save` "
                       "and `bench comm --save`, into another file",
                       r->name, r->word[2], VERSION);
    if (!read_line(r) || strncmp(r->line, "device ", 7) != 0 || strlen(r->line + 7) >= COSTS_DEVICE)
        return wrong(r, "device NAME");
    snprintf(c->device, sizeof c->device, "%s", r->line + 7);
    return ERR_OK;
}

// *last: the line with `end` was there.
static err_t take_line(costs *c, reader *r, int64_t *lines, bool *last) {
    int64_t told;
    if (*last) return wrong(r, "nothing after `end`");
    if (!r->words || *r->word[0] == '#') return ERR_OK;
    if (strcmp(r->word[0], "end") == 0) {
        *last = true;
        if (r->words != 2 || !whole(r->word[1], 0, INT64_MAX, &told)) return wrong(r, "end NUMBER");
        if (told == *lines) return ERR_OK;
        return err_set(ERR_DATA, "%s:%d: says that there are %" PRId64 " lines, found %" PRId64 ": it is not whole",
                       r->name, r->number, told, *lines);
    }
    ++*lines;
    if (strcmp(r->line, "sheet") == 0) return c->sheet = true, ERR_OK;
    for (int k = 0; k < KINDS; k++)
        if (strcmp(kinds[k].word, r->word[0]) == 0) return kinds[k].take(c, r);
    return wrong(
        r, "memory, peak, copy, launch, beside, host_memory, host_link, host_copy, disk, disk_copy, tiles, reach, "
           "link, op, comm, sheet or end");
}

err_t costs_parse(costs *out, const char *name, const char *text) {
    reader r = {.name = name, .at = text};
    int64_t lines = 0;
    bool last = false;
    *out = (costs){0};
    err_t rc = take_head(out, &r);
    while (rc == ERR_OK && read_line(&r)) rc = take_line(out, &r, &lines, &last);
    if (rc == ERR_OK && !last)
        rc = err_set(ERR_DATA, "%s:%d: expected a last line `end %" PRId64 "`, found the end: it is not whole", name,
                     r.number, lines);
    if (rc != ERR_OK) costs_free(out);
    return rc;
}

err_t costs_load(costs *out, const char *path) {
    char *text;
    size_t n;
    *out = (costs){0};
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    err_t rc = strlen(text) == n ? costs_parse(out, path, text)
                                 : err_set(ERR_DATA, "%s: expected text, found a byte of zero", path);
    free(text);
    return rc;
}

err_t costs_begin(costs *out, const char *path, const char *device) {
    struct stat st;
    *out = (costs){0};
    if (stat(path, &st) != 0) return snprintf(out->device, sizeof out->device, "%s", device), ERR_OK;
    TRY(costs_load(out, path));
    bool other = out->sheet || strcmp(out->device, device) != 0;
    if (!other) return ERR_OK;
    err_t rc = err_set(ERR_CONFIG, "%s: has %s \"%s\", and this device is \"%s\": save into a file of its own", path,
                       out->sheet ? "a sheet of" : "costs of", out->device, device);
    costs_free(out);
    return rc;
}

err_t costs_set_op(costs *c, const costs_op *x) {
    for (int i = 0; i < c->ops; i++) {
        costs_op *o = &c->op[i];
        if (o->type != x->type || o->options != x->options || strcmp(o->name, x->name) != 0 ||
            memcmp(o->size, x->size, sizeof o->size) != 0)
            continue;
        *o = *x;
        return ERR_OK;
    }
    costs_op *more = realloc(c->op, (size_t)(c->ops + 1) * sizeof *more);
    if (!more) return no_memory();
    c->op = more, c->op[c->ops++] = *x;
    return ERR_OK;
}

err_t costs_set_comm(costs *c, const costs_comm *x) {
    for (int i = 0; i < c->comms; i++) {
        costs_comm *k = &c->comm[i];
        if (k->call != x->call || k->level != x->level || k->ranks != x->ranks || k->bytes != x->bytes) continue;
        *k = *x;
        return ERR_OK;
    }
    costs_comm *more = realloc(c->comm, (size_t)(c->comms + 1) * sizeof *more);
    if (!more) return no_memory();
    c->comm = more, c->comm[c->comms++] = *x;
    return ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

static void put_figure(text *t, int *lines, const char *what, const costs_figure *x, double scale, const char *unit) {
    if (x->is <= 0) return;
    text_put(t, "%s %.6g %s %.4g spread\n", what, x->is * scale, unit, x->spread);
    ++*lines;
}

static void put_machine(text *t, const costs *c, int *lines) {
    char what[COSTS_NAME];
    if (c->sheet) text_put(t, "sheet\n"), ++*lines;
    if (c->memory > 0) text_put(t, "memory %.9g bytes\n", c->memory), ++*lines;
    for (int k = 0; k < INT32; k++) {
        snprintf(what, sizeof what, "peak %s", dtype_name((dtype)k));
        put_figure(t, lines, what, &c->peak[k], 1, "flop/s");
    }
    put_figure(t, lines, "copy", &c->copy, 1, "bytes/s");
    put_figure(t, lines, "launch", &c->launch, 1e6, "us");
    if (c->beside.is > 0) text_put(t, "beside %.4g %.4g spread\n", c->beside.is, c->beside.spread), ++*lines;
    if (c->host_memory > 0) text_put(t, "host_memory %.9g bytes\n", c->host_memory), ++*lines;
    put_figure(t, lines, "host_link", &c->host_link, 1, "bytes/s");
    put_figure(t, lines, "host_copy", &c->host_copy, 1, "bytes/s");
    if (c->disk > 0) text_put(t, "disk %.9g bytes\n", c->disk), ++*lines;
    put_figure(t, lines, "disk_copy", &c->disk_copy, 1, "bytes/s");
    if (c->tiles.processors)
        text_put(t, "tiles %d %d %d %d\n", c->tiles.processors, c->tiles.rows, c->tiles.columns, c->tiles.lost),
            ++*lines;
    for (int i = 0; i < c->reaches; i++, ++*lines)
        text_put(t, "reach %s %.4g %.4g spread\n", c->reach[i].name, c->reach[i].share.is, c->reach[i].share.spread);
    for (int k = 0; k < COSTS_LEVELS; k++)
        if (c->link[k].rate.is > 0)
            text_put(t, "link %s %.6g bytes/s %.4g us %.4g spread\n", costs_level_name[k], c->link[k].rate.is,
                     1e6 * c->link[k].s, c->link[k].rate.spread),
                ++*lines;
}

err_t costs_save(const costs *c, const char *path) {
    text t = {0};
    int lines = 0;
    text_put(&t, "lockstep costs %d\ndevice %s\n", VERSION, c->device);
    put_machine(&t, c, &lines);
    for (int i = 0; i < c->ops; i++, lines++) {
        const costs_op *o = &c->op[i];
        char sizes[COST_SIZES], words[COST_WORDS];
        text_put(&t, "op %s %s %s %s %.6g ms %.4g spread %" PRId64 " calls\n", o->name, dtype_name(o->type),
                 cost_sizes(o->size, sizes), cost_words(o->options, words), 1e3 * o->s.is, o->s.spread, o->calls);
    }
    for (int i = 0; i < c->comms; i++, lines++) {
        const costs_comm *k = &c->comm[i];
        text_put(&t, "comm %s %s %d %.9g %.6g us %.4g spread\n", costs_call_name[k->call], costs_level_name[k->level],
                 k->ranks, k->bytes, 1e6 * k->s.is, k->s.spread);
    }
    text_put(&t, "end %d\n", lines);
    err_t rc = t.full ? no_memory() : io_write_file(path, t.at, t.n, NULL);
    text_free(&t);
    return rc;
}
