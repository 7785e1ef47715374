// model/weights_map.c: which tensors of files a model's parameters are, and their elements: see model/weights.h.
#include "model/weights.h"

#include "base/text.h"
#include "model/families.h"
#include "model/peft.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- matching --------------------------------------------------------------------------------------------------------

typedef struct source {
    int parts;
    weight_part part[WEIGHT_PARTS];
    const st_file *file[WEIGHT_PARTS];
    const st_tensor *tensor[WEIGHT_PARTS];
} source;

struct weights_map {
    const model *m;
    source *at;  // one for each parameter
};

// What is wrong with the tensors, in the order in which it was found: as much of it as an error's text holds.
typedef struct faults {
    char text[ERR_TEXT - 200];
    int count;
} faults;

static void fault(faults *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fault(faults *f, const char *format, ...) {
    size_t n = strlen(f->text);
    va_list args;
    va_start(args, format);
    f->count++;
    if (n + 128 < sizeof f->text) {
        n += (size_t)snprintf(f->text + n, sizeof f->text - n, "\n  ");
        vsnprintf(f->text + n, sizeof f->text - n, format, args);
    }
    va_end(args);
}

static int64_t columns(const param *p) { return p->dims > 1 ? shape_count(p->dims - 1, p->size + 1) : 1; }

int weight_part_shape(const weight_part *part, const param *p, int64_t rows, int64_t size[TENSOR_DIMS]) {
    int64_t plain[TENSOR_DIMS] = {rows, p->size[1], p->size[2], p->size[3]};
    memcpy(size, plain, sizeof plain);
    if (part->transposed) size[0] = p->size[1], size[1] = rows;
    if (part->filters) size[1] = p->size[3], size[2] = p->size[1], size[3] = p->size[2];
    return p->dims;
}

int64_t weight_part_element(const weight_part *part, const param *p, int64_t at) {
    int64_t cols = columns(p), C = p->size[3], taps = cols / C, in = at % cols;
    if (part->transposed) return at % part->rows * cols + at / part->rows;
    return part->filters ? at - in + in % taps * C + in / taps : at;
}

// What TensorFlow's weights of norms were called: LayerNorm.gamma, LayerNorm.beta. false: it is none of these.
static bool older_name(char *name) {
    char *weight = strstr(name, "LayerNorm.weight"), *bias = strstr(name, "LayerNorm.bias");
    if (weight) memcpy(weight + strlen("LayerNorm."), "gamma", sizeof "gamma");
    else if (bias) memcpy(bias + strlen("LayerNorm."), "beta", sizeof "beta");
    return weight || bias;
}

// Finds a part under its name in these files: with the prefix or without.
static const st_tensor *find_part(const weights *w, const model *m, const weight_part *part, const st_file **file) {
    char name[2 * MODEL_NAME];
    if (w->adapters) {
        peft_name(name, sizeof name, m, part);
        return weights_find(w, name, file);
    }
    snprintf(name, sizeof name, "%s%s", m->type->prefix ? m->type->prefix : "", part->name);
    const st_tensor *t = part->prefixed ? weights_find(w, name, file) : NULL;
    if (!t) t = weights_find(w, part->name, file);
    if (!t && part->prefixed && older_name(name)) t = weights_find(w, name, file);
    snprintf(name, sizeof name, "%s", part->name);
    return !t && older_name(name) ? weights_find(w, name, file) : t;
}

static bool shape_is(const st_tensor *t, const param *p, const weight_part *part, int64_t rows) {
    int64_t size[TENSOR_DIMS];
    int dims = weight_part_shape(part, p, rows, size);
    return t->dims == dims && memcmp(t->size, size, (size_t)dims * sizeof *size) == 0;
}

static void check_part(source *at, int k, const param *p, bool resize, faults *f) {
    const weight_part *part = &at->part[k];
    const st_tensor *t = at->tensor[k];
    char found[64], wanted[64];
    if (!st_floating(t->type)) fault(f, "%s holds %s, expected numbers", t->name, st_type_name(t->type));
    if (shape_is(t, p, part, part->rows)) return;
    bool other_rows = part->table && t->dims == p->dims && t->size[0] > 0 && shape_is(t, p, part, t->size[0]);
    if (other_rows && resize) return;
    text_shape(found, sizeof found, t->dims, t->size);
    int64_t size[TENSOR_DIMS];
    text_shape(wanted, sizeof wanted, weight_part_shape(part, p, part->rows, size), size);
    fault(f, "%s is %s, expected %s%s", t->name, found, wanted,
          other_rows ? "; [model] init_resize = yes takes the rows that there are" : "");
}

// Whether a parameter has a row for each token or position.
static bool is_table(const model *m, int param) {
    weight_part part[WEIGHT_PARTS];
    return m->type->parts && m->type->parts(m->options, &m->param[param], part) == 1 && part[0].table;
}

// One tensor of its own name.
static int own_part(const param *p, weight_part *part) {
    *part = (weight_part){.rows = p->size[0]};
    snprintf(part->name, sizeof part->name, "%s", p->name);
    return 1;
}

// Weights to which adapters are added come without them, and these by themselves.
static bool is_read(const weights *w, const model *m, const param *p) {
    return p->tied < 0 && (!model_adapts(m)->rank || param_is_frozen(p) == !w->adapters);
}

// The parameter as one tensor of its own name, as our own files have it.
static bool match_own(const weights *w, const model *m, weights_map *map) {
    for (int i = 0; i < m->params; i++) {
        const param *p = &m->param[i];
        source *at = &map->at[i];
        *at = (source){0};
        if (!is_read(w, m, p)) continue;
        at->parts = own_part(p, at->part);
        at->part[0].table = is_table(m, i);
        at->tensor[0] = weights_find(w, p->name, &at->file[0]);
        const st_tensor *t = at->tensor[0];
        if (!t || !shape_is(t, p, &at->part[0], at->part[0].table && t->size[0] > 0 ? t->size[0] : p->size[0]))
            return false;
    }
    return true;
}

// The prefix of names in these files, so that errors name a missing tensor as the file would.
static const char *prefix_in(const weights *w, const model *m) {
    size_t n = m->type->prefix ? strlen(m->type->prefix) : 0;
    for (int i = 0; n && i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++)
            if (strncmp(w->file[i].tensors[k].name, m->type->prefix, n) == 0) return m->type->prefix;
    return "";
}

static void say_missing(const weights *w, const model *m, const weight_part *part, const char *prefix, faults *f) {
    char name[2 * MODEL_NAME];
    if (w->adapters) peft_name(name, sizeof name, m, part);
    else snprintf(name, sizeof name, "%s%s", part->prefixed ? prefix : "", part->name);
    fault(f, "%s is missing", name);
}

// A parameter of which nothing is there may start as a new one, if something of the others is there.
static void match_foreign(const weights *w, const model *m, weights_map *map, bool missing, faults *f) {
    const char *prefix = prefix_in(w, m);
    int read = 0, absent = 0;
    for (int i = 0; i < m->params; i++) {
        source *at = &map->at[i];
        *at = (source){0};
        if (!is_read(w, m, &m->param[i])) continue;
        at->parts =
            m->type->parts ? m->type->parts(m->options, &m->param[i], at->part) : own_part(&m->param[i], at->part);
        int found = 0;
        for (int k = 0; k < at->parts; k++) {
            at->tensor[k] = find_part(w, m, &at->part[k], &at->file[k]);
            found += at->tensor[k] != NULL;
        }
        read += found > 0, absent += found == 0;
        if (!found && missing) at->parts = 0;
        for (int k = 0; k < at->parts; k++)
            if (!at->tensor[k]) say_missing(w, m, &at->part[k], prefix, f);
    }
    if (missing && absent > read)
        fault(f, "%d parameters are missing, more than are there: [model] init_missing = yes is for a new head",
              absent);
}

static bool used(const weights_map *map, const st_tensor *t) {
    for (int i = 0; i < map->m->params; i++)
        for (int k = 0; k < map->at[i].parts; k++)
            if (map->at[i].tensor[k] == t) return true;
    return false;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

// Buffers that some versions of transformers wrote: they follow from the settings. And PyTorch's count of the batches
// that a batch norm has seen, which has no effect with a fixed momentum.
static bool is_buffer(const char *name) {
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, "rotary_emb.inv_freq") || ends_with(name, ".num_batches_tracked");
}

enum { COMPARED = 1 << 16 };

// A tied head that is in the file nevertheless must be the embedding.
static err_t check_tied(const weights_map *map, const st_file *file, const st_tensor *t, int embedding, faults *f) {
    const source *e = &map->at[embedding];
    int64_t n = 1;
    bool same = e->parts == 1 && t->bytes == e->tensor[0]->bytes && t->type == e->tensor[0]->type;
    for (int d = 0; d < t->dims; d++) n *= t->size[d];
    float *a = malloc(COMPARED * sizeof *a), *b = malloc(COMPARED * sizeof *b);
    err_t rc = a && b ? ERR_OK : err_set(ERR_INTERNAL, "no memory to compare %s", t->name);
    for (int64_t i = 0; same && rc == ERR_OK && i < n; i += COMPARED) {
        int64_t some = n - i < COMPARED ? n - i : COMPARED;
        rc = st_read_f32_part(file, t, i, some, a);
        if (rc == ERR_OK) rc = st_read_f32_part(e->file[0], e->tensor[0], i, some, b);
        same = rc == ERR_OK && memcmp(a, b, (size_t)some * sizeof *a) == 0;
    }
    free(a), free(b);
    if (rc == ERR_OK && !same)
        fault(f, "%s is not the embedding, which the model's head shares: [model] tied = no reads it", t->name);
    return rc;
}

static err_t check_unused(const weights *w, const weights_map *map, faults *f) {
    const model *m = map->m;
    for (int i = 0; i < w->files; i++)
        for (int k = 0; k < w->file[i].count; k++) {
            const st_tensor *t = &w->file[i].tensors[k];
            int tied = -1;
            if (used(map, t) || is_buffer(t->name)) continue;
            if (m->type->ignores && m->type->ignores(m->options, t->name)) continue;
            for (int p = 0; p < m->params; p++)
                if (m->param[p].tied >= 0 && strcmp(m->param[p].name, t->name) == 0) tied = m->param[p].tied;
            if (tied >= 0) TRY(check_tied(map, &w->file[i], t, tied, f));
            else fault(f, "%s is not of this model", t->name);
        }
    return ERR_OK;
}

static err_t check_kind(const weights *w, bool adapters) {
    if (adapters && !w->adapters)
        return err_set(
            ERR_CONFIG,
            "%s: expected adapters as PEFT saves them, and there is no adapter_config.json: whole weights are "
            "for [model] init_from",
            w->path);
    if (!adapters && w->adapters)
        return err_set(
            ERR_CONFIG,
            "%s holds adapters alone: they are for [lora] init_from, and the weights beside them for [model] "
            "init_from",
            w->path);
    return ERR_OK;
}

static err_t match(weights_map *map, const weights *w, const void *options, unsigned lenient) {
    const model *m = map->m;
    faults f = {0};
    TRY(check_kind(w, lenient & WEIGHTS_ADAPTERS));
    if (w->config) TRY(foreign_agrees(m->type, options, w->config, w->path));
    if (w->adapters) TRY(peft_agrees(w->adapters, w->path, model_adapts(m)));
    if (w->adapters || !match_own(w, m, map)) match_foreign(w, m, map, lenient & WEIGHTS_MISSING, &f);
    if (f.count == 0)
        for (int i = 0; i < m->params; i++)
            for (int k = 0; k < map->at[i].parts; k++)
                check_part(&map->at[i], k, &m->param[i], lenient & WEIGHTS_RESIZE, &f);
    if (f.count == 0) TRY(check_unused(w, map, &f));
    if (f.count == 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: %d of its tensors are not those of %s:%s", w->path, f.count,
                   w->adapters ? "the [model] section with [lora] targets" : "the [model] section", f.text);
}

err_t weights_match(weights_map **out, const weights *w, const model *m, const void *options, unsigned lenient) {
    weights_map *map = *out = calloc(1, sizeof *map);
    if (map) *map = (weights_map){m, calloc((size_t)m->params, sizeof *map->at)};
    err_t rc = map && map->at ? match(map, w, options, lenient)
                              : err_set(ERR_INTERNAL, "no memory for a map of %d tensors", m->params);
    if (rc != ERR_OK) weights_map_close(map), *out = NULL;
    return rc;
}

void weights_map_close(weights_map *map) {
    if (!map) return;
    free(map->at);
    free(map);
}

// --- reading ---------------------------------------------------------------------------------------------------------

// Elements first .. first+count-1 of a part that is stored as (columns, rows): of each column the rows that are wanted
// lie side by side.
static err_t read_transposed(const st_file *file, const st_tensor *t, int64_t first, int64_t count, float *dst) {
    int64_t cols = t->size[0], rows = t->size[1], from = first / cols, n = (first + count - 1) / cols + 1 - from;
    float *run = malloc((size_t)n * sizeof *run);
    if (!run) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " rows of %s", n, t->name);
    err_t rc = ERR_OK;
    for (int64_t c = 0; c < cols && rc == ERR_OK; c++) {
        rc = st_read_f32_part(file, t, c * rows + from, n, run);
        for (int64_t r = 0; r < n && rc == ERR_OK; r++) {
            int64_t at = (from + r) * cols + c - first;
            if (at >= 0 && at < count) dst[at] = run[r];
        }
    }
    free(run);
    return rc;
}

// The same of filters, whose elements stay with their filter.
static err_t read_filters(const source *at, int k, const param *p, int64_t first, int64_t count, float *dst) {
    int64_t cols = columns(p), from = first / cols * cols, n = (first + count - 1) / cols * cols + cols - from;
    float *whole = malloc((size_t)n * sizeof *whole);
    if (!whole) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " filters of %s", n / cols, at->tensor[k]->name);
    err_t rc = st_read_f32_part(at->file[k], at->tensor[k], from, n, whole);
    for (int64_t i = 0; i < n && rc == ERR_OK; i++) {
        int64_t to = weight_part_element(&at->part[k], p, from + i) - first;
        if (to >= 0 && to < count) dst[to] = whole[i];
    }
    free(whole);
    return rc;
}

static err_t read_part(const source *at, int k, const param *p, int64_t first, int64_t count, float *dst) {
    if (at->part[k].filters) return read_filters(at, k, p, first, count, dst);
    return at->part[k].transposed ? read_transposed(at->file[k], at->tensor[k], first, count, dst)
                                  : st_read_f32_part(at->file[k], at->tensor[k], first, count, dst);
}

err_t weights_read(const weights_map *map, int param, int64_t first, int64_t count, uint64_t seed, float *dst) {
    const source *at = &map->at[param];
    int64_t cols = columns(&map->m->param[param]), begin = 0;
    if (!at->parts) model_init(map->m, param, seed, first, count, dst);  // the file lacks it
    for (int k = 0; k < at->parts; k++) {
        const st_tensor *t = at->tensor[k];
        int64_t rows = at->part[k].rows,
                there = at->part[k].transposed ? rows
                        : t->size[0] < rows    ? t->size[0]
                                               : rows,
                end = begin + rows * cols;
        int64_t have = begin + there * cols, from = first > begin ? first : begin,
                to = first + count < end ? first + count : end;
        int64_t read = to < have ? to : have;
        if (from < read) TRY(read_part(at, k, &map->m->param[param], from - begin, read - from, dst + (from - first)));
        if (from < have) from = have;
        // rows of a table that the file lacks
        if (from < to) model_init(map->m, param, seed, from, to - from, dst + (from - first));
        begin = end;
    }
    return ERR_OK;
}
