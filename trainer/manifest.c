// trainer/manifest.c: see trainer/manifest.h.
#include "trainer/manifest.h"

#include "base/io.h"
#include "trainer/state_hash.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const manifest_file_names[MANIFEST_FILES] = {"model.safetensors", "optimizer.safetensors"};
const char *const manifest_prefix[GROUPS] = {"", "m/", "v/"};

static const char FORMAT[] = "lockstep checkpoint";
static const size_t MANIFEST_MAX = 64 << 20;
enum { HEX = 2 * CKPT_DIGEST };

// The end of the text: digest of everything before it.
static const char TAIL_BEGIN[] = ",\n \"digest\": \"", TAIL_END[] = "\"\n}\n";
enum { TAIL = sizeof TAIL_BEGIN - 1 + HEX + sizeof TAIL_END - 1 };

static void make_tail(char tail[TAIL + 1], const char *text, size_t n) {
    digest d;
    uint8_t bytes[CKPT_DIGEST];
    char hex[HEX + 1];
    digest_begin(&d);
    digest_put(&d, text, n);
    digest_end(&d, bytes);
    digest_hex(hex, bytes, sizeof bytes);
    snprintf(tail, TAIL + 1, "%s%s%s", TAIL_BEGIN, hex, TAIL_END);
}

// --- writing -------------------------------------------------------------------------------------------------------------------

static err_t fill_group(manifest *m, int group, const ckpt_tensor *t) {
    for (int i = 0; i < m->params; i++) {
        manifest_tensor *to = &m->tensor[group * m->params + i];
        int n = snprintf(to->name, sizeof to->name, "%s%s", manifest_prefix[group], t[i].name);
        if (n <= 0 || n >= CKPT_NAME || t[i].dims < 0 || t[i].dims > 4)
            return err_set(ERR_INTERNAL, "tensor %s%s can't be saved: %d dimensions, name of %d bytes (at most 4, and 95)",
                           manifest_prefix[group], t[i].name, t[i].dims, n);
        to->file = group == GROUP_MASTER ? FILE_MODEL : FILE_OPTIMIZER;
        to->dims = t[i].dims;
        for (int d = 0; d < t[i].dims; d++) {
            to->size[d] = t[i].size[d];
            if (to->size[d] < 1)
                return err_set(ERR_INTERNAL, "tensor %s can't be saved: dimension %d is %lld", to->name, d,
                               (long long)to->size[d]);
        }
    }
    return ERR_OK;
}

static err_t copy_keys(manifest *m, const ckpt_state *s) {
    for (int i = 0; i < s->keys; i++) {
        for (int j = 0; j < i; j++)
            if (strcmp(s->key[i].key, s->key[j].key) == 0)
                return err_set(ERR_INTERNAL, "bits key %s is given twice", s->key[i].key);
        m->key[m->keys++] = s->key[i];
    }
    return ERR_OK;
}

err_t manifest_open(manifest *m, const ckpt_state *s) {
    bool training = s->m && s->v;
    *m = (manifest){.at = s->at, .files = training ? 2 : 1, .groups = training ? GROUPS : 1, .params = s->params};
    if (s->params < 1 || s->at.step < 0 || !isfinite(s->at.loss_scale))
        return err_set(ERR_INTERNAL, "a state with %d parameters, step %lld and loss scale %g can't be saved", s->params,
                       (long long)s->at.step, s->at.loss_scale);
    m->key = calloc(CKPT_KEYS_MAX, sizeof *m->key);
    m->tensor = calloc((size_t)m->groups * (size_t)m->params, sizeof *m->tensor);
    if (!m->key || !m->tensor) return err_set(ERR_INTERNAL, "no memory for the manifest of %d parameters", m->params);
    memcpy(m->data_hash, s->data_hash, sizeof m->data_hash);
    memcpy(m->build, s->build, sizeof m->build);
    for (int f = 0; f < m->files; f++) strcpy(m->file[f].name, manifest_file_names[f]);
    TRY(copy_keys(m, s));
    TRY(fill_group(m, GROUP_MASTER, s->master));
    if (training) TRY(fill_group(m, GROUP_M, s->m));
    return training ? fill_group(m, GROUP_V, s->v) : ERR_OK;
}

void manifest_close(manifest *m) {
    free(m->key);
    free(m->tensor);
    *m = (manifest){0};
}

static json_t *hex_json(const uint8_t d[CKPT_DIGEST]) {
    char hex[HEX + 1];
    digest_hex(hex, d, CKPT_DIGEST);
    return json_string(hex);
}

static json_t *counters_json(const ckpt_counters *at) {
    json_t *best = isfinite(at->best_loss) ? json_real(at->best_loss) : json_null();
    return json_pack("{s:I, s:I, s:I, s:f, s:I, s:o, s:I, s:I}", "step", (json_int_t)at->step, "adam_t", (json_int_t)at->adam_t,
                     "skipped", (json_int_t)at->skipped, "loss_scale", at->loss_scale, "good_steps", (json_int_t)at->good_steps,
                     "best_loss", best, "best_step", (json_int_t)at->best_step, "log_bytes", (json_int_t)at->log_bytes);
}

static json_t *keys_json(const manifest *m) {
    json_t *keys = json_object();
    for (int i = 0; i < m->keys; i++) {
        if (json_object_set_new(keys, m->key[i].key, json_string(m->key[i].value)) == 0) continue;
        err_set(ERR_CONFIG, "the value of %s is not UTF-8 and can't be recorded in a checkpoint: \"%.200s\"", m->key[i].key,
                m->key[i].value);
        json_decref(keys);
        return NULL;
    }
    return keys;
}

static json_t *files_json(const manifest *m) {
    json_t *files = json_array();
    for (int f = 0; f < m->files; f++)
        json_array_append_new(files, json_pack("{s:s, s:I, s:o}", "name", m->file[f].name, "bytes", (json_int_t)m->file[f].bytes,
                                               "header_blake2b", hex_json(m->file[f].header)));
    return files;
}

static json_t *tensors_json(const manifest *m) {
    json_t *tensors = json_array();
    for (int i = 0; i < m->groups * m->params; i++) {
        const manifest_tensor *t = &m->tensor[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->dims; d++) json_array_append_new(shape, json_integer(t->size[d]));
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "file", m->file[t->file].name, "shape",
                                                 shape, "blake2b", hex_json(t->digest)));
    }
    return tensors;
}

// Text with its tail. The caller frees *out.
static err_t print_manifest(const json_t *root, char **out, size_t *size) {
    size_t n = json_dumpb(root, NULL, 0, JSON_INDENT(1));
    char *text = n > 2 ? malloc(n + TAIL + 1) : NULL;
    if (!text) return err_set(ERR_INTERNAL, "no memory for a manifest of %zu bytes", n);
    json_dumpb(root, text, n, JSON_INDENT(1));
    n -= 2;  // its "\n}": one more member follows
    make_tail(text + n, text, n);
    *out = text;
    *size = n + TAIL;
    return ERR_OK;
}

err_t manifest_write(const manifest *m, const char *dir, fault_list *faults) {
    char path[IO_PATH], *text = NULL;
    size_t size = 0;
    TRY(io_path(path, "%s/manifest.json", dir));
    json_t *keys = keys_json(m);
    if (!keys) return err_last()->code;
    json_t *root = json_pack("{s:s, s:i, s:s, s:o, s:s, s:o, s:o, s:o, s:s, s:s}", "format", FORMAT, "version", MANIFEST_VERSION,
                             "build", m->build, "counters", counters_json(&m->at), "data_hash", m->data_hash, "bits", keys,
                             "files", files_json(m), "tensors", tensors_json(m), "hash", m->hash, "state_hash", m->state_hash);
    if (!root) return err_set(ERR_INTERNAL, "%s: can't be made: a name is not UTF-8, or no memory", path);
    err_t rc = print_manifest(root, &text, &size);
    json_decref(root);
    if (rc == ERR_OK) rc = io_write_file(path, text, size, faults);
    free(text);
    return rc;
}

// --- reading -------------------------------------------------------------------------------------------------------------------
// The digest has already proven that this is what some build wrote. The checks below keep a wrong build, or a forger, from making
// this one read out of bounds; their messages name the member.

typedef struct reader {
    manifest *m;
    char path[IO_PATH];
    const json_t *root;
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
    char hex[HEX + 1];
    size_t n = 0;
    TRY(get_text(r, from, member, hex, sizeof hex));
    if (sodium_hex2bin(to, CKPT_DIGEST, hex, strlen(hex), NULL, &n, NULL) != 0 || n != CKPT_DIGEST)
        return wrong(r, member, "64 hex digits");
    return ERR_OK;
}

static err_t read_counters(reader *r) {
    const json_t *from = json_object_get(r->root, "counters"), *best = json_object_get(from, "best_loss");
    ckpt_counters *at = &r->m->at;
    const struct { const char *member; int64_t *to; } counts[] = {
        {"step", &at->step}, {"adam_t", &at->adam_t}, {"skipped", &at->skipped}, {"good_steps", &at->good_steps},
        {"best_step", &at->best_step}, {"log_bytes", &at->log_bytes},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) TRY(get_count(r, from, counts[i].member, counts[i].to));
    if (!json_is_number(json_object_get(from, "loss_scale"))) return wrong(r, "loss_scale", "a number");
    at->loss_scale = json_number_value(json_object_get(from, "loss_scale"));
    if (!json_is_number(best) && !json_is_null(best)) return wrong(r, "best_loss", "a number or null");
    at->best_loss = json_is_null(best) ? INFINITY : json_number_value(best);
    return ERR_OK;
}

static err_t read_keys(reader *r) {
    const json_t *from = json_object_get(r->root, "bits");
    if (!json_is_object(from) || json_object_size(from) > CKPT_KEYS_MAX) return wrong(r, "bits", "an object of at most 64 keys");
    r->m->key = calloc(CKPT_KEYS_MAX, sizeof *r->m->key);
    if (!r->m->key) return err_set(ERR_INTERNAL, "%s: no memory for its keys", r->path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)from, key, value) {
        ckpt_key *to = &r->m->key[r->m->keys++];
        if (strlen(key) >= CKPT_KEY) return wrong(r, "bits", "keys of at most 63 bytes");
        memcpy(to->key, key, strlen(key) + 1);
        TRY(get_text(r, from, key, to->value, CKPT_VALUE));
    }
    return ERR_OK;
}

static err_t read_files(reader *r) {
    const json_t *from = json_object_get(r->root, "files");
    r->m->files = (int)json_array_size(from);
    if (json_array_size(from) < 1 || json_array_size(from) > MANIFEST_FILES) return wrong(r, "files", "one or two files");
    r->m->groups = r->m->files == 1 ? 1 : GROUPS;
    for (int f = 0; f < r->m->files; f++) {
        const json_t *entry = json_array_get(from, (size_t)f);
        manifest_file *to = &r->m->file[f];
        TRY(get_text(r, entry, "name", to->name, sizeof to->name));
        if (strcmp(to->name, manifest_file_names[f]) != 0)
            return wrong(r, "files", "model.safetensors, then optimizer.safetensors");
        TRY(get_count(r, entry, "bytes", &to->bytes));
        TRY(get_digest(r, entry, "header_blake2b", to->header));
    }
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

// m and v repeat the masters' names, behind their prefix, and their shapes.
static err_t check_group(reader *r, int i) {
    const manifest *m = r->m;
    const manifest_tensor *t = &m->tensor[i], *master = &m->tensor[i % m->params];
    const char *prefix = manifest_prefix[i / m->params];
    size_t n = strlen(prefix);
    if (t == master) return t->name[0] ? ERR_OK : wrong(r, "tensors", "names");
    bool same = strncmp(t->name, prefix, n) == 0 && strcmp(t->name + n, master->name) == 0 && t->dims == master->dims;
    if (!same || memcmp(t->size, master->size, sizeof t->size) != 0)
        return err_set(ERR_DATA, "%s: tensor %s does not match the name and shape of %s%s", r->path, t->name, prefix,
                       master->name);
    return ERR_OK;
}

static err_t read_tensors(reader *r) {
    const json_t *from = json_object_get(r->root, "tensors");
    manifest *m = r->m;
    size_t count = json_array_size(from), groups = (size_t)m->groups;
    if (count == 0 || count % groups != 0 || count > INT32_MAX)
        return wrong(r, "tensors", "as many moments m and v as parameters");
    m->params = (int)(count / groups);
    m->tensor = calloc(count, sizeof *m->tensor);
    if (!m->tensor) return err_set(ERR_INTERNAL, "%s: no memory for %zu tensors", r->path, count);
    for (int i = 0; i < (int)count; i++) {
        const json_t *entry = json_array_get(from, (size_t)i);
        manifest_tensor *t = &m->tensor[i];
        char file[MANIFEST_FILE_NAME];
        TRY(get_text(r, entry, "name", t->name, sizeof t->name));
        TRY(get_text(r, entry, "file", file, sizeof file));
        t->file = i < m->params ? FILE_MODEL : FILE_OPTIMIZER;
        if (strcmp(file, m->file[t->file].name) != 0) return wrong(r, "file", "the file that the tensor's group lies in");
        TRY(read_shape(r, t, json_object_get(entry, "shape")));
        TRY(get_digest(r, entry, "blake2b", t->digest));
        TRY(check_group(r, i));
    }
    return ERR_OK;
}

static err_t read_members(reader *r) {
    const json_t *version = json_object_get(r->root, "version");
    char format[sizeof FORMAT];
    TRY(get_text(r, r->root, "format", format, sizeof format));
    if (strcmp(format, FORMAT) != 0) return wrong(r, "format", "\"lockstep checkpoint\"");
    if (!json_is_integer(version)) return wrong(r, "version", "a whole number");
    if (json_integer_value(version) != MANIFEST_VERSION)
        return err_set(ERR_CONFIG, "%s: version %lld, this build reads %d: use the build that wrote it", r->path,
                       (long long)json_integer_value(version), MANIFEST_VERSION);
    TRY(get_text(r, r->root, "build", r->m->build, sizeof r->m->build));
    TRY(get_text(r, r->root, "data_hash", r->m->data_hash, sizeof r->m->data_hash));
    TRY(get_text(r, r->root, "hash", r->m->hash, sizeof r->m->hash));
    TRY(get_text(r, r->root, "state_hash", r->m->state_hash, sizeof r->m->state_hash));
    TRY(read_counters(r));
    TRY(read_keys(r));
    TRY(read_files(r));
    return read_tensors(r);
}

static err_t check_tail(const char *path, const char *text, size_t n) {
    char tail[TAIL + 1];
    const size_t begin = sizeof TAIL_BEGIN - 1;
    if (n <= TAIL || memcmp(text + n - TAIL, TAIL_BEGIN, begin) != 0)
        return err_set(ERR_DATA, "%s: has %zu bytes and does not end in a digest: truncated, or not a manifest", path, n);
    make_tail(tail, text, n - TAIL);
    if (memcmp(tail, text + n - TAIL, TAIL) != 0)
        return err_set(ERR_DATA, "%s: its digest is %.16s..., it says %.16s...: the manifest is damaged", path, tail + begin,
                       text + n - TAIL + begin);
    return ERR_OK;
}

static err_t parse(manifest *m, const char *path, const char *text, size_t n) {
    json_error_t why;
    TRY(check_tail(path, text, n));
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return err_set(ERR_DATA, "%s: offset %d: not valid JSON: %s", path, why.position, why.text);
    reader r = {.m = m, .root = root};
    err_t rc = io_path(r.path, "%s", path);
    if (rc == ERR_OK) rc = read_members(&r);
    json_decref(root);
    return rc;
}

err_t manifest_read(manifest *m, const char *dir) {
    char path[IO_PATH], *text;
    size_t n;
    *m = (manifest){0};
    TRY(io_path(path, "%s/manifest.json", dir));
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return err_set(ERR_DATA, "%s: is missing: %s is not a whole checkpoint", path, dir);
    TRY(io_read_file(path, MANIFEST_MAX, &text, &n));
    err_t rc = parse(m, path, text, n);
    free(text);
    return rc;
}
