// trainer/checkpoint/manifest.c: see trainer/checkpoint/manifest.h. What is printed is in manifest_print.c.
#include "trainer/checkpoint/manifest_form.h"

#include "comm/server/rows.h"

#include "base/io.h"
#include "gpu/revision.h"
#include "trainer/checkpoint/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const manifest_kinds[FILE_KINDS] = {"model", "optimizer", "table"};
static const size_t MANIFEST_MAX = 64 << 20;

void manifest_tail(char tail[TAIL + 1], const char *text, size_t n) {
    digest d;
    uint8_t bytes[CKPT_DIGEST];
    char hex[MANIFEST_HEX + 1];
    digest_begin(&d);
    digest_put(&d, text, n);
    digest_end(&d, bytes);
    digest_hex(hex, bytes, sizeof bytes);
    snprintf(tail, TAIL + 1, "%s%s%s", TAIL_BEGIN, hex, TAIL_END);
}

void manifest_file_name(char name[MANIFEST_FILE_NAME], int kind, int rank, int world, bool blocks) {
    const char *end = blocks ? ".safetensors.blocks" : ".safetensors";
    if (world == 1) snprintf(name, MANIFEST_FILE_NAME, "%s%s", manifest_kinds[kind], end);
    else snprintf(name, MANIFEST_FILE_NAME, "%s-%05d-of-%05d%s", manifest_kinds[kind], rank, world, end);
}

int manifest_tensor_name(char to[CKPT_NAME], const char *group, const char *name) {
    return snprintf(to, CKPT_NAME, "%s%s%s", group, *group ? "/" : "", name);
}

bool manifest_part_is_whole(const manifest_tensor *t, const manifest_part *p) {
    return p->first == 0 && p->count == shape_count(t->dims, t->size);
}

ckpt_order manifest_order(const manifest_tensor *t) {
    return order_of(t->dims, t->size, t->axis, t->slices, &t->split);
}

int64_t manifest_part_first(const manifest_tensor *t, const manifest_part *p) {
    return p->slice * manifest_order(t).each + p->first;
}

void manifest_part_name(char name[CKPT_NAME], const manifest_tensor *t, const manifest_part *p) {
    if (manifest_part_is_whole(t, p)) snprintf(name, CKPT_NAME, "%s", t->name);
    else if (t->slices > 1) snprintf(name, CKPT_NAME, "%s@%d:%" PRId64, t->name, p->slice, p->first);
    else snprintf(name, CKPT_NAME, "%s@%" PRId64, t->name, p->first);
}

manifest_tensor *manifest_group(const manifest *m, const char *name) {
    for (int g = 0; g < m->groups; g++)
        if (strcmp(m->group[g], name) == 0) return m->tensor + (size_t)g * (size_t)m->params;
    return NULL;
}

const double *manifest_scalar_of(const manifest *m, const char *name) {
    for (int k = 0; k < m->scalars; k++)
        if (strcmp(m->scalar[k].name, name) == 0) return &m->scalar[k].value;
    return NULL;
}

int manifest_parts_in(const manifest *m, int file) {
    int count = 0;
    for (int p = 0; p < m->parts; p++) count += m->part[p].file == file;
    return count;
}

int manifest_find_file(const manifest *m, int kind, int rank) {
    for (int f = 0; f < m->files; f++)
        if (m->file[f].kind == kind && m->file[f].rank == rank) return f;
    return -1;
}

void manifest_close(manifest *m) {
    free(m->key);
    free(m->plan);
    free(m->file);
    free(m->group);
    free(m->tensor);
    free(m->scalar);
    free(m->part);
    free(m->rows.part);
    *m = (manifest){0};
}

// --- reading ---------------------------------------------------------------------------------------------------------
// The digest has already shown that the text is as it was written. The checks below keep a faulty or forged manifest
// from causing reads out of bounds; their messages name the member.

typedef struct reader {
    manifest *m;
    char path[IO_PATH];
    const json_t *root;
    int64_t version;
    int room;  // for parts
} reader;

static err_t wrong(const reader *r, const char *member, const char *expected) {
    return err_set(ERR_DATA, "%s: member \"%s\": expected %s", r->path, member, expected);
}

static err_t get_text(const reader *r, const json_t *from, const char *member, char *to, size_t room) {
    const char *text = json_string_value(json_object_get(from, member));
    if (!text || strlen(text) >= room)
        return err_set(ERR_DATA, "%s: member \"%s\": expected a text of at most %zu bytes", r->path, member, room - 1);
    memcpy(to, text, strlen(text) + 1);
    return ERR_OK;
}

static err_t get_count(const reader *r, const json_t *from, const char *member, int64_t *to) {
    const json_t *n = json_object_get(from, member);
    *to = json_integer_value(n);
    return json_is_integer(n) && *to >= 0 ? ERR_OK : wrong(r, member, "a whole number of 0 or more");
}

static err_t get_digest(const reader *r, const json_t *from, const char *member, uint8_t to[CKPT_DIGEST]) {
    char hex[MANIFEST_HEX + 1];
    size_t n = 0;
    TRY(get_text(r, from, member, hex, sizeof hex));
    if (sodium_hex2bin(to, CKPT_DIGEST, hex, strlen(hex), NULL, &n, NULL) != 0 || n != CKPT_DIGEST)
        return wrong(r, member, "64 hex digits");
    return ERR_OK;
}

static err_t read_spikes(const reader *r, const json_t *from, run_progress *at) {
    const json_t *lately = json_object_get(from, "lately"), *out = json_object_get(from, "left_out");
    size_t losses = json_array_size(lately), ranges = json_array_size(out);
    if (losses > PROGRESS_LOSSES || (lately && !losses)) return wrong(r, "lately", "1 to 32 numbers");
    if (ranges > PROGRESS_ROLLBACKS || (out && !ranges)) return wrong(r, "left_out", "1 to 5 ranges of steps");
    at->losses = (int64_t)losses, at->rollbacks = (int64_t)ranges;
    for (size_t i = 0; i < losses; i++) {
        if (!json_is_number(json_array_get(lately, i))) return wrong(r, "lately", "1 to 32 numbers");
        at->lately[i] = json_number_value(json_array_get(lately, i));
    }
    for (size_t i = 0; i < ranges; i++) {
        const json_t *range = json_array_get(out, i);
        step_range *to = &at->left_out[i];
        *to = (step_range){json_integer_value(json_array_get(range, 0)), json_integer_value(json_array_get(range, 1))};
        if (to->first < 1 || to->last < to->first) return wrong(r, "left_out", "ranges of steps, [first, last]");
    }
    return ERR_OK;
}

static err_t read_counters(reader *r) {
    const json_t *from = json_object_get(r->root, "counters"), *best = json_object_get(from, "best_loss");
    run_progress *at = &r->m->at;
    const struct {
        const char *member;
        int64_t *to;
    } counts[] = {
        {"step", &at->step},           {"adam_t", &at->updates},
        {"skipped", &at->skipped},     {"good_steps", &at->good_steps},
        {"best_step", &at->best_step}, {"log_bytes", &at->log_bytes},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TRY(get_count(r, from, counts[i].member, counts[i].to));
    if (!json_is_number(json_object_get(from, "loss_scale"))) return wrong(r, "loss_scale", "a number");
    at->loss_scale = json_number_value(json_object_get(from, "loss_scale"));
    if (!json_is_number(best) && !json_is_null(best)) return wrong(r, "best_loss", "a number or null");
    at->best_loss = json_is_null(best) ? INFINITY : json_number_value(best);
    if (json_object_get(from, "bad_steps")) TRY(get_count(r, from, "bad_steps", &at->bad_steps));
    const json_t *loss = json_object_get(from, "loss"), *least = json_object_get(from, "least_loss");
    at->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    at->least_loss = json_is_number(least) ? json_number_value(least) : INFINITY;
    if (json_object_get(from, "norms")) TRY(get_count(r, from, "norms", &at->norms));
    if (json_object_get(from, "no_better")) TRY(get_count(r, from, "no_better", &at->no_better));
    const char *best_of = json_string_value(json_object_get(from, "best_of"));
    snprintf(at->best_of, sizeof at->best_of, "%s", best_of ? best_of : "");
    at->norm_mean = at->norms ? json_number_value(json_object_get(from, "norm_mean")) : 0;
    at->sound_step = -1;
    if (json_is_integer(json_object_get(from, "sound_step"))) TRY(get_count(r, from, "sound_step", &at->sound_step));
    return read_spikes(r, from, at);
}

static err_t read_scalars(reader *r) {
    const json_t *from = json_object_get(r->root, "scalars");
    const char *name;
    json_t *value;
    if (from && !json_is_object(from)) return wrong(r, "scalars", "an object of numbers");
    r->m->scalar = calloc(json_object_size(from) + 1, sizeof *r->m->scalar);
    if (!r->m->scalar) return err_set(ERR_INTERNAL, "%s: no memory for its scalars", r->path);
    json_object_foreach((json_t *)from, name, value) {
        manifest_scalar *to = &r->m->scalar[r->m->scalars++];
        if (!*name || strlen(name) >= CKPT_GROUP_NAME || !json_is_number(value))
            return wrong(r, "scalars", "numbers with names of 1 to 15 bytes");
        memcpy(to->name, name, strlen(name) + 1);
        to->value = json_number_value(value);
    }
    return ERR_OK;
}

// Older builds wrote 0 for no warm-up. Today 0 leaves the choice open, and the chosen value is never 0.
static void recall_warmup(ckpt_key *key) {
    if (strcmp(key->key, "schedule.warmup") == 0 && strcmp(key->value, "0") == 0) strcpy(key->value, "-1");
}

static err_t read_keys(reader *r) {
    const json_t *from = json_object_get(r->root, "bits");
    if (!json_is_object(from) || json_object_size(from) > CKPT_KEYS_MAX)
        return wrong(r, "bits", "an object of at most 64 keys");
    r->m->key = calloc(CKPT_KEYS_MAX, sizeof *r->m->key);
    if (!r->m->key) return err_set(ERR_INTERNAL, "%s: no memory for its keys", r->path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value) {
        ckpt_key *to = &r->m->key[r->m->keys++];
        if (strlen(key) >= CKPT_KEY) return wrong(r, "bits", "keys of at most 63 bytes");
        memcpy(to->key, key, strlen(key) + 1);
        TRY(get_text(r, from, key, to->value, CKPT_VALUE));
        recall_warmup(to);
    }
    return ERR_OK;
}

// "device.kind" is the whole arithmetic of a CPU, but only the kind of a GPU.
static void recall_device(manifest *m) {
    for (int i = 0; i < m->keys; i++) {
        if (strcmp(m->key[i].key, "device.kind") != 0) continue;
        snprintf(m->arithmetic, sizeof m->arithmetic, "%.32s", m->key[i].value);
        m->key[i] = m->key[--m->keys];
        return;
    }
}

// Is it one line of printable ASCII?
static bool is_line(const char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~') return false;
    return true;
}

static const char *find_key(const ckpt_key *key, int keys, const char *name) {
    for (int i = 0; i < keys; i++)
        if (strcmp(key[i].key, name) == 0) return key[i].value;
    return NULL;
}

int manifest_revision_now(const char *arithmetic, const ckpt_key *key, int keys, const char **type, const char **kind) {
    bool cuda = strncmp(arithmetic, "cuda", 4) == 0;
    const char *compute = find_key(key, keys, "precision.compute"), *word = find_key(key, keys, "precision.products");
    products multiplied =
        word && strcmp(word, products_name(PRODUCTS_BF16_PAIRS)) == 0 ? PRODUCTS_BF16_PAIRS : PRODUCTS_FP32;
    *kind = cuda ? "cuda" : "cpu";
    *type = multiplied == PRODUCTS_BF16_PAIRS ? word : compute ? compute : "";
    for (dtype t = FP32; compute && *arithmetic && t <= FP16; t++)
        if (strcmp(compute, dtype_name(t)) == 0)
            return arithmetic_revision(cuda ? DEVICE_CUDA : DEVICE_CPU, t, multiplied);
    return 0;
}

// What builds computed that stored no revision (manifest.h).
static void recall_revision(manifest *m) {
    // These have the key device.plans already, and still the old bits; the first of them only on GPUs.
    static const char *const between[] = {"7eca9e8", "e3f1396", "24adc9d", "1ca4eb2"};
    const char *type, *kind;
    m->assumed = true;
    m->revision = manifest_revision_now(m->arithmetic, m->key, m->keys, &type, &kind) ? 1 : 0;
    bool cuda = strcmp(kind, "cuda") == 0;
    if (!m->revision || (strcmp(type, "fp32") == 0 && !cuda) || !find_key(m->key, m->keys, "device.plans")) return;
    m->revision = 2;
    for (size_t i = !cuda; i < sizeof between / sizeof *between; i++)
        if (strstr(m->build, between[i])) m->revision = 1;
}

static err_t read_revision(reader *r) {
    const json_t *stored = json_object_get(json_object_get(r->root, "device"), "revision"),
                 *sources = json_object_get(r->root, "sources");
    int64_t revision = 0;
    if (sources) TRY(get_text(r, r->root, "sources", r->m->sources, sizeof r->m->sources));
    if (!stored) {
        recall_revision(r->m);
        return ERR_OK;
    }
    TRY(get_count(r, json_object_get(r->root, "device"), "revision", &revision));
    if (revision < 1 || revision > INT32_MAX) return wrong(r, "revision", "a whole number of 1 or more");
    r->m->revision = (int)revision;
    return ERR_OK;
}

static err_t read_device(reader *r) {
    const json_t *from = json_object_get(r->root, "device"), *plans = json_object_get(from, "plans");
    manifest *m = r->m;
    if (r->version < 3) {
        recall_device(m);
        return ERR_OK;
    }
    TRY(get_text(r, from, "arithmetic", m->arithmetic, sizeof m->arithmetic));
    if (!is_line(m->arithmetic)) return wrong(r, "arithmetic", "a line of ASCII");
    if (!json_is_array(plans) || json_array_size(plans) > MANIFEST_PLANS_MAX)
        return wrong(r, "plans", "a list of at most 4096 lines");
    m->plan = calloc(json_array_size(plans) + 1, sizeof *m->plan);
    if (!m->plan) return err_set(ERR_INTERNAL, "%s: no memory for %zu plans", r->path, json_array_size(plans));
    for (; m->plans < (int)json_array_size(plans); m->plans++) {
        const char *text = json_string_value(json_array_get(plans, (size_t)m->plans));
        if (!text || strlen(text) >= DEVICE_PLAN || !is_line(text))
            return wrong(r, "plans", "lines of at most 1023 bytes of ASCII");
        memcpy(m->plan[m->plans], text, strlen(text) + 1);
    }
    return ERR_OK;
}

// A file's name must be the one that a build makes from kind and rank: a manifest can't make us open any other file.
static err_t name_file(reader *r, manifest_file *f) {
    for (int form = 0; form < 2 * FILE_KINDS; form++) {
        char expected[MANIFEST_FILE_NAME];
        f->kind = form / 2, f->blocks = form % 2;
        manifest_file_name(expected, f->kind, f->rank, r->m->world, f->blocks);
        if (strcmp(f->name, expected) == 0 && (!f->blocks || r->version > 4)) return ERR_OK;
    }
    return wrong(r, "files", "names like model.safetensors or optimizer-00001-of-00002.safetensors");
}

static err_t read_file(reader *r, const json_t *entry, manifest_file *f) {
    int64_t rank = 0;
    TRY(get_text(r, entry, "name", f->name, sizeof f->name));
    if (r->version > 1) {
        TRY(get_count(r, entry, "rank", &rank));
        if (rank >= r->m->world) return wrong(r, "rank", "a rank of this world");
        TRY(get_text(r, entry, "host", f->host, sizeof f->host));
    }
    f->rank = (int)rank;
    TRY(name_file(r, f));
    TRY(get_count(r, entry, "bytes", &f->bytes));
    return get_digest(r, entry, "header_blake2b", f->header);
}

static err_t read_files(reader *r) {
    const json_t *from = json_object_get(r->root, "files");
    manifest *m = r->m;
    int64_t world = 1;
    if (r->version > 1) TRY(get_count(r, r->root, "world", &world));
    if (world < 1 || world > MANIFEST_WORLD_MAX) return wrong(r, "world", "1 to 99999 ranks");
    m->world = (int)world;
    if (json_array_size(from) < 1 || json_array_size(from) > FILE_KINDS * (size_t)world)
        return wrong(r, "files", "one to three files a rank");
    m->file = calloc(json_array_size(from), sizeof *m->file);
    if (!m->file) return err_set(ERR_INTERNAL, "%s: no memory for %zu files", r->path, json_array_size(from));
    while (m->files < (int)json_array_size(from)) {
        manifest_file *f = &m->file[m->files], *before = m->files ? f - 1 : NULL;
        TRY(read_file(r, json_array_get(from, (size_t)m->files++), f));
        bool later = before ? f->kind > before->kind || (f->kind == before->kind && f->rank > before->rank)
                            : f->kind == FILE_MODEL;
        if (!later)
            return wrong(r, "files", "the model's, then the optimizer's and the table's, each in order of rank");
    }
    return ERR_OK;
}

static err_t read_split(reader *r, manifest_tensor *t, const json_t *entry) {
    const json_t *rows = json_object_get(entry, "rows");
    if (json_object_get(entry, "padded")) TRY(get_count(r, entry, "padded", &t->split.padded));
    if (rows && (!json_is_array(rows) || json_array_size(rows) > CKPT_SHARES))
        return wrong(r, "rows", "a list of at most 3 numbers");
    for (size_t k = 0; k < json_array_size(rows); k++) t->split.rows[k] = json_integer_value(json_array_get(rows, k));
    return ERR_OK;
}

static err_t read_slices(reader *r, manifest_tensor *t, const json_t *entry) {
    int64_t axis = 0, slices = 1;
    if (r->version > 3 && json_object_get(entry, "slices")) {
        TRY(get_count(r, entry, "axis", &axis));
        TRY(get_count(r, entry, "slices", &slices));
        TRY(read_split(r, t, entry));
    }
    if (axis >= CKPT_DIMS || slices < 1 || slices > INT32_MAX ||
        !order_is_possible(t->dims, t->size, (int)axis, (int)slices, &t->split))
        return wrong(r, "slices", "a number that divides the size of \"axis\"");
    t->axis = (int)axis, t->slices = (int)slices;
    return ERR_OK;
}

static err_t read_shape(reader *r, manifest_tensor *t, const json_t *shape) {
    t->dims = (int)json_array_size(shape);
    int64_t elements = 1;
    if (!json_is_array(shape) || json_array_size(shape) > 4) return wrong(r, "shape", "a list of at most 4 sizes");
    for (int d = 0; d < t->dims; d++) {
        t->size[d] = json_integer_value(json_array_get(shape, (size_t)d));
        if (t->size[d] < 1 || __builtin_mul_overflow(elements, t->size[d], &elements) || elements > INT64_MAX / 4)
            return wrong(r, "shape", "sizes of 1 or more whose product is a possible size");
    }
    return ERR_OK;
}

// A group's name is what stands before the first master's name in the name of its first tensor.
static err_t name_group(reader *r, int g) {
    manifest *m = r->m;
    const char *name = m->tensor[g * m->params].name, *of = m->tensor[0].name;
    size_t n = strlen(name), tail = strlen(of) + 1;
    if (n <= tail || n - tail >= CKPT_GROUP_NAME || name[n - tail] != '/' || strcmp(name + n - tail + 1, of) != 0)
        return err_set(ERR_DATA, "%s: tensor %s does not match the name of %s", r->path, name, of);
    memcpy(m->group[g], name, n - tail);
    for (int k = 0; k < g; k++)
        if (strcmp(m->group[k], m->group[g]) == 0) return wrong(r, "tensors", "each of the optimizer's arrays once");
    return ERR_OK;
}

// What the optimizer kept repeats the masters' names, after the group's, and the masters' shapes.
static err_t check_group(reader *r, int i) {
    const manifest *m = r->m;
    const manifest_tensor *t = &m->tensor[i], *master = &m->tensor[i % m->params];
    char name[CKPT_NAME];
    if (t == master) return t->name[0] ? ERR_OK : wrong(r, "tensors", "names");
    if (i % m->params == 0) TRY(name_group(r, i / m->params));
    int n = manifest_tensor_name(name, m->group[i / m->params], master->name);
    bool same = n < CKPT_NAME && strcmp(t->name, name) == 0 && t->dims == master->dims && t->axis == master->axis &&
                t->slices == master->slices && memcmp(&t->split, &master->split, sizeof t->split) == 0;
    if (!same || memcmp(t->size, master->size, sizeof t->size) != 0)
        return err_set(ERR_DATA, "%s: tensor %s does not match the name and shape of %s", r->path, t->name, name);
    return ERR_OK;
}

// The file of this name and kind; -1 when there is none. Neighbouring tensors are in neighbouring files, so the search
// begins at `hint`.
static int find_file(const manifest *m, const char *name, int kind, int hint) {
    for (int i = 0; i < m->files; i++) {
        int f = (hint + i) % m->files;
        if (m->file[f].kind == kind && strcmp(m->file[f].name, name) == 0) return f;
    }
    return -1;
}

static err_t add_part(reader *r, manifest_part **p) {
    manifest *m = r->m;
    if (m->parts == r->room) {
        int room = r->room ? 2 * r->room : 64;
        manifest_part *more = realloc(m->part, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "%s: no memory for its parts", r->path);
        m->part = more;
        r->room = room;
    }
    *p = &m->part[m->parts++];
    **p = (manifest_part){0};
    return ERR_OK;
}

// `expected` is where it begins in the tensor.
static err_t read_part(reader *r, const manifest_tensor *t, const json_t *entry, int64_t expected) {
    const ckpt_order o = manifest_order(t);
    int64_t slice = 0;
    char file[MANIFEST_FILE_NAME];
    manifest_part *p;
    TRY(add_part(r, &p));
    TRY(get_text(r, entry, "file", file, sizeof file));
    p->file = find_file(r->m, file, t < r->m->tensor + r->m->params ? FILE_MODEL : FILE_OPTIMIZER,
                        r->m->parts > 1 ? p[-1].file : 0);
    if (p->file < 0) return wrong(r, "file", "one of \"files\", of the kind that the tensor belongs to");
    if (r->version == 1) {
        p->count = o.each;
        memcpy(p->digest, t->digest, sizeof p->digest);
        return ERR_OK;
    }
    if (o.slices > 1) TRY(get_count(r, entry, "slice", &slice));
    TRY(get_count(r, entry, "first", &p->first));
    TRY(get_count(r, entry, "count", &p->count));
    bool fits = slice == expected / o.each && p->first == expected % o.each && p->count >= 1 && expected < o.all &&
                p->count <= order_left(&o, expected);
    if (!fits || (p->count < order_left(&o, expected) && p->count % CHUNK != 0))
        return wrong(r, "parts", "whole chunks, one part after the other");
    p->slice = (int)slice;
    return get_digest(r, entry, "blake2b", p->digest);
}

static err_t read_parts(reader *r, manifest_tensor *t, const json_t *entry) {
    const json_t *parts = json_object_get(entry, "parts");
    int64_t covered = 0;
    t->part = r->m->parts;
    t->parts = r->version == 1 ? 1 : (int)json_array_size(parts);
    for (int i = 0; i < t->parts; i++) {
        TRY(read_part(r, t, r->version == 1 ? entry : json_array_get(parts, (size_t)i), covered));
        covered += r->m->part[r->m->parts - 1].count;
    }
    return covered == shape_count(t->dims, t->size) ? ERR_OK : wrong(r, "parts", "parts that make up the tensor");
}

static bool is_in_model_file(const reader *r, const json_t *entry) {
    const json_t *part = r->version == 1 ? entry : json_array_get(json_object_get(entry, "parts"), 0);
    const char *file = json_string_value(json_object_get(part, "file"));
    return file && find_file(r->m, file, FILE_MODEL, 0) >= 0;
}

// The masters come first, and are what is in the model's files; each array of the optimizer has as many tensors.
static err_t read_tensors(reader *r) {
    const json_t *from = json_object_get(r->root, "tensors");
    manifest *m = r->m;
    size_t count = json_array_size(from), masters = 0;
    bool more = false;
    for (int f = 0; f < m->files; f++) more |= m->file[f].kind == FILE_OPTIMIZER;
    while (masters < count && is_in_model_file(r, json_array_get(from, masters))) masters++;
    if (masters == 0 || count % masters != 0 || count > INT32_MAX || more != (count > masters))
        return wrong(r, "tensors", "as many tensors in each of the optimizer's arrays as parameters");
    m->params = (int)masters;
    m->groups = (int)(count / masters);
    m->group = calloc(count / masters, sizeof *m->group);
    m->tensor = calloc(count, sizeof *m->tensor);
    if (!m->group || !m->tensor) return err_set(ERR_INTERNAL, "%s: no memory for %zu tensors", r->path, count);
    for (int i = 0; i < (int)count; i++) {
        const json_t *entry = json_array_get(from, (size_t)i);
        manifest_tensor *t = &m->tensor[i];
        TRY(get_text(r, entry, "name", t->name, sizeof t->name));
        TRY(read_shape(r, t, json_object_get(entry, "shape")));
        TRY(read_slices(r, t, entry));
        TRY(get_digest(r, entry, "blake2b", t->digest));
        TRY(check_group(r, i));
        TRY(read_parts(r, t, entry));
    }
    return ERR_OK;
}

// Parts follow each other, and each has rows: a bucket has at most one place.
static err_t read_rows_part(reader *r, const json_t *entry, manifest_rows_part *p, int after) {
    char file[MANIFEST_FILE_NAME];
    int64_t first = 0, buckets = 0;
    TRY(get_text(r, entry, "file", file, sizeof file));
    TRY(get_count(r, entry, "first", &first));
    TRY(get_count(r, entry, "buckets", &buckets));
    TRY(get_count(r, entry, "rows", &p->rows));
    p->file = find_file(r->m, file, FILE_TABLE, 0);
    if (p->file < 0) return wrong(r, "file", "one of \"files\", of the kind that has rows");
    if (first < after || first >= ROW_BUCKETS || buckets < 1 || buckets > ROW_BUCKETS - first || p->rows < 1)
        return wrong(r, "parts", "buckets, one part after the other, and at least one row in each");
    p->first = (int)first, p->buckets = (int)buckets;
    return get_digest(r, entry, "blake2b", p->digest);
}

static err_t read_rows(reader *r) {
    enum { WIDTH_MAX = 4096 };
    const json_t *from = json_object_get(r->root, "table"), *parts = json_object_get(from, "parts");
    manifest *m = r->m;
    manifest_rows *x = &m->rows;
    int files = 0;
    int64_t rows = 0;
    for (int f = 0; f < m->files; f++) files += m->file[f].kind == FILE_TABLE;
    if (!from && !files) return ERR_OK;
    TRY(get_text(r, from, "name", x->name, sizeof x->name));
    TRY(get_count(r, from, "width", &x->width));
    TRY(get_count(r, from, "rows", &x->rows));
    TRY(get_digest(r, from, "blake2b", x->digest));
    if (x->width < 1 || x->width > WIDTH_MAX) return wrong(r, "width", "1 to 4096");
    if (strlen(x->name) + sizeof ".table" > sizeof x->name || json_array_size(parts) != (size_t)files)
        return wrong(r, "parts", "as many as there are files of rows, of a name of at most 89 letters");
    x->part = calloc((size_t)files + 1, sizeof *x->part);
    if (!x->part) return err_set(ERR_INTERNAL, "%s: no memory for %d parts of rows", r->path, files);
    for (; x->parts < files; x->parts++) {
        const manifest_rows_part *before = x->parts ? &x->part[x->parts - 1] : NULL;
        TRY(read_rows_part(r, json_array_get(parts, (size_t)x->parts), &x->part[x->parts],
                           before ? before->first + before->buckets : 0));
        rows += x->part[x->parts].rows;
    }
    return rows == x->rows ? ERR_OK : wrong(r, "rows", "the sum of the parts' rows");
}

static err_t read_origin(reader *r) {
    const json_t *from = json_object_get(r->root, "forked_from");
    ckpt_origin *o = &r->m->origin;
    if (!from) return ERR_OK;
    TRY(get_text(r, from, "run", o->run, sizeof o->run));
    TRY(get_count(r, from, "step", &o->step));
    return get_text(r, from, "hash", o->hash, sizeof o->hash);
}

static err_t read_members(reader *r) {
    const json_t *version = json_object_get(r->root, "version");
    char format[sizeof MANIFEST_FORMAT];
    TRY(get_text(r, r->root, "format", format, sizeof format));
    if (strcmp(format, MANIFEST_FORMAT) != 0) return wrong(r, "format", "\"lockstep checkpoint\"");
    if (!json_is_integer(version)) return wrong(r, "version", "a whole number");
    r->version = json_integer_value(version);
    if (r->version < 1 || r->version > MANIFEST_VERSION)
        return err_set(ERR_CONFIG, "%s: version %" PRId64 ", this build reads 1 to %d: use the build that wrote it",
                       r->path, r->version, MANIFEST_VERSION);
    TRY(get_text(r, r->root, "build", r->m->build, sizeof r->m->build));
    TRY(get_text(r, r->root, "data_hash", r->m->data_hash, sizeof r->m->data_hash));
    TRY(get_text(r, r->root, "hash", r->m->hash, sizeof r->m->hash));
    TRY(get_text(r, r->root, "state_hash", r->m->state_hash, sizeof r->m->state_hash));
    TRY(read_origin(r));
    TRY(read_counters(r));
    TRY(read_scalars(r));
    TRY(read_keys(r));
    TRY(read_device(r));
    TRY(read_revision(r));
    TRY(read_files(r));
    TRY(read_tensors(r));
    return read_rows(r);
}

// The digest in a tail that was checked.
static void read_tail(const char *text, size_t n, uint8_t out[CKPT_DIGEST]) {
    const char *hex = text + n - TAIL + sizeof TAIL_BEGIN - 1;
    sodium_hex2bin(out, CKPT_DIGEST, hex, MANIFEST_HEX, NULL, NULL, NULL);
}

static err_t check_tail(const char *path, const char *text, size_t n) {
    char tail[TAIL + 1];
    const size_t begin = sizeof TAIL_BEGIN - 1;
    if (n <= TAIL || memcmp(text + n - TAIL, TAIL_BEGIN, begin) != 0)
        return err_set(ERR_DATA, "%s: has %zu bytes and does not end in a digest: truncated, or not a manifest", path,
                       n);
    manifest_tail(tail, text, n - TAIL);
    if (memcmp(tail, text + n - TAIL, TAIL) != 0)
        return err_set(ERR_DATA, "%s: its digest is %.16s..., it says %.16s...: the manifest is damaged", path,
                       tail + begin, text + n - TAIL + begin);
    return ERR_OK;
}

err_t manifest_parse(manifest *m, const char *path, const char *text, size_t n) {
    json_error_t why;
    *m = (manifest){0};
    TRY(check_tail(path, text, n));
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return err_set(ERR_DATA, "%s: offset %d: not valid JSON: %s", path, why.position, why.text);
    reader r = {.m = m, .root = root};
    err_t rc = io_path(r.path, "%s", path);
    if (rc == ERR_OK) rc = read_members(&r);
    json_decref(root);
    if (rc == ERR_OK) read_tail(text, n, m->digest);
    return rc;
}

err_t manifest_text(const char *dir, char **text, size_t *n, uint8_t digest[CKPT_DIGEST]) {
    char path[IO_PATH];
    *text = NULL;
    TRY(io_path(path, "%s/manifest.json", dir));
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: is missing: %s is not a whole checkpoint", path, dir);
    TRY(io_read_file(path, MANIFEST_MAX, text, n));
    err_t rc = check_tail(path, *text, *n);
    if (rc == ERR_OK) {
        read_tail(*text, *n, digest);
        return ERR_OK;
    }
    free(*text);
    *text = NULL;
    return rc;
}

err_t manifest_read(manifest *m, const char *dir) {
    char path[IO_PATH], *text;
    size_t n;
    uint8_t digest[CKPT_DIGEST];
    *m = (manifest){0};
    TRY(io_path(path, "%s/manifest.json", dir));
    TRY(manifest_text(dir, &text, &n, digest));
    err_t rc = manifest_parse(m, path, text, n);
    free(text);
    return rc;
}
