// trainer/checkpoint/manifest_print.c: a manifest as text (manifest_print of trainer/checkpoint/manifest.h).
#include "trainer/checkpoint/manifest_form.h"

#include "trainer/checkpoint/digest.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *hex_json(const uint8_t d[CKPT_DIGEST]) {
    char hex[MANIFEST_HEX + 1];
    digest_hex(hex, d, CKPT_DIGEST);
    return json_string(hex);
}

// What is there of [optimizer] rollback: "lately": [losses], "left_out": [[first, last], ...].
static void set_spikes(json_t *counters, const run_progress *at) {
    json_t *lately = json_array(), *out = json_array();
    for (int i = 0; i < at->losses; i++) json_array_append_new(lately, json_real(at->lately[i]));
    for (int i = 0; i < at->rollbacks; i++)
        json_array_append_new(out,
                              json_pack("[I, I]", (json_int_t)at->left_out[i].first, (json_int_t)at->left_out[i].last));
    if (at->losses) json_object_set(counters, "lately", lately);
    if (at->rollbacks) json_object_set(counters, "left_out", out);
    json_decref(lately), json_decref(out);
}

static json_t *counters_json(const run_progress *at) {
    json_t *best = isfinite(at->best_loss) ? json_real(at->best_loss) : json_null();
    json_t *loss = isfinite(at->loss) ? json_real(at->loss) : json_null();
    json_t *least = isfinite(at->least_loss) ? json_real(at->least_loss) : json_null();
    json_t *sound = at->sound_step >= 0 ? json_integer((json_int_t)at->sound_step) : json_null();
    json_t *counters =
        json_pack("{s:I, s:I, s:I, s:f, s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)at->step,
                  "adam_t", (json_int_t)at->updates, "skipped", (json_int_t)at->skipped, "loss_scale", at->loss_scale,
                  "good_steps", (json_int_t)at->good_steps, "best_loss", best, "best_step", (json_int_t)at->best_step,
                  "log_bytes", (json_int_t)at->log_bytes, "bad_steps", (json_int_t)at->bad_steps, "loss", loss,
                  "least_loss", least, "sound_step", sound);
    if (at->norms) json_object_set_new(counters, "norm_mean", json_real(at->norm_mean));
    if (at->norms) json_object_set_new(counters, "norms", json_integer((json_int_t)at->norms));
    if (at->no_better) json_object_set_new(counters, "no_better", json_integer((json_int_t)at->no_better));
    if (*at->best_of) json_object_set_new(counters, "best_of", json_string(at->best_of));
    set_spikes(counters, at);
    return counters;
}

static json_t *keys_json(const manifest *m) {
    json_t *keys = json_object();
    for (int i = 0; i < m->keys; i++) {
        if (json_object_set_new(keys, m->key[i].key, json_string(m->key[i].value)) == 0) continue;
        err_set(ERR_CONFIG, "the value of %s is not UTF-8 and can't be recorded in a checkpoint: \"%.200s\"",
                m->key[i].key, m->key[i].value);
        json_decref(keys);
        return NULL;
    }
    return keys;
}

static json_t *device_json(const manifest *m) {
    json_t *plans = json_array();
    for (int i = 0; i < m->plans; i++) json_array_append_new(plans, json_string(m->plan[i]));
    json_t *device = json_pack("{s:s, s:o}", "arithmetic", m->arithmetic, "plans", plans);
    if (device && m->revision) json_object_set_new(device, "revision", json_integer(m->revision));
    return device;
}

static json_t *files_json(const manifest *m) {
    json_t *files = json_array();
    for (int f = 0; f < m->files; f++)
        json_array_append_new(files,
                              json_pack("{s:s, s:i, s:s, s:I, s:o}", "name", m->file[f].name, "rank", m->file[f].rank,
                                        "host", m->file[f].host, "bytes", (json_int_t)m->file[f].bytes,
                                        "header_blake2b", hex_json(m->file[f].header)));
    return files;
}

static json_t *parts_json(const manifest *m, const manifest_tensor *t) {
    json_t *parts = json_array();
    for (const manifest_part *p = m->part + t->part; p < m->part + t->part + t->parts; p++) {
        json_t *part = json_pack("{s:s, s:I, s:I, s:o}", "file", m->file[p->file].name, "first", (json_int_t)p->first,
                                 "count", (json_int_t)p->count, "blake2b", hex_json(p->digest));
        if (t->slices > 1) json_object_set_new(part, "slice", json_integer(p->slice));
        json_array_append_new(parts, part);
    }
    return parts;
}

static json_t *tensor_json(const manifest *m, const manifest_tensor *t) {
    json_t *shape = json_array();
    for (int d = 0; d < t->dims; d++) json_array_append_new(shape, json_integer(t->size[d]));
    json_t *tensor = json_pack("{s:s, s:o, s:o, s:o}", "name", t->name, "shape", shape, "blake2b", hex_json(t->digest),
                               "parts", parts_json(m, t));
    if (t->slices <= 1 || !tensor) return tensor;
    json_object_update_new(tensor, json_pack("{s:i, s:i}", "axis", t->axis, "slices", t->slices));
    if (t->split.padded) json_object_set_new(tensor, "padded", json_integer(t->split.padded));
    if (!t->split.rows[0]) return tensor;
    json_t *rows = json_array();
    for (int k = 0; k < CKPT_SHARES && t->split.rows[k]; k++)
        json_array_append_new(rows, json_integer(t->split.rows[k]));
    json_object_set_new(tensor, "rows", rows);
    return tensor;
}

static json_t *tensors_json(const manifest *m) {
    json_t *tensors = json_array();
    for (int i = 0; i < m->groups * m->params; i++) json_array_append_new(tensors, tensor_json(m, &m->tensor[i]));
    return tensors;
}

static json_t *origin_json(const ckpt_origin *o) {
    return json_pack("{s:s, s:I, s:s}", "run", o->run, "step", (json_int_t)o->step, "hash", o->hash);
}

static json_t *scalars_json(const manifest *m) {
    json_t *scalars = json_object();
    for (int k = 0; k < m->scalars; k++) json_object_set_new(scalars, m->scalar[k].name, json_real(m->scalar[k].value));
    return scalars;
}

static json_t *rows_json(const manifest *m) {
    const manifest_rows *x = &m->rows;
    json_t *parts = json_array();
    for (const manifest_rows_part *p = x->part; p < x->part + x->parts; p++)
        json_array_append_new(parts, json_pack("{s:s, s:i, s:i, s:I, s:o}", "file", m->file[p->file].name, "first",
                                               p->first, "buckets", p->buckets, "rows", (json_int_t)p->rows, "blake2b",
                                               hex_json(p->digest)));
    return json_pack("{s:s, s:I, s:I, s:o, s:o}", "name", x->name, "width", (json_int_t)x->width, "rows",
                     (json_int_t)x->rows, "blake2b", hex_json(x->digest), "parts", parts);
}

// The oldest that has what it needs, for older builds.
static int version_of(const manifest *m) {
    if (m->rows.width) return 6;
    for (int f = 0; f < m->files; f++)
        if (m->file[f].blocks) return 5;
    for (int i = 0; i < m->params; i++)
        if (m->tensor[i].slices > 1) return 4;
    return 3;
}

// Text with its tail. The caller frees *out.
static err_t print_json(const json_t *root, char **out, size_t *size) {
    size_t n = json_dumpb(root, NULL, 0, JSON_INDENT(1));
    char *text = n > 2 ? malloc(n + TAIL + 1) : NULL;
    if (!text) return err_set(ERR_INTERNAL, "no memory for a manifest of %zu bytes", n);
    json_dumpb(root, text, n, JSON_INDENT(1));
    n -= 2;  // without its "\n}": one more member follows
    manifest_tail(text + n, text, n);
    *out = text;
    *size = n + TAIL;
    return ERR_OK;
}

err_t manifest_print(const manifest *m, char **text, size_t *size) {
    *text = NULL;
    json_t *keys = keys_json(m);
    if (!keys) return err_last()->code;
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:o, s:s, s:o, s:o, s:i, s:o, s:o, s:s, s:s}", "format", MANIFEST_FORMAT, "version",
                  version_of(m), "build", m->build, "counters", counters_json(&m->at), "data_hash", m->data_hash,
                  "bits", keys, "device", device_json(m), "world", m->world, "files", files_json(m), "tensors",
                  tensors_json(m), "hash", m->hash, "state_hash", m->state_hash);
    if (!root) return err_set(ERR_INTERNAL, "the manifest can't be made: a name is not UTF-8, or no memory");
    if (m->sources[0]) json_object_set_new(root, "sources", json_string(m->sources));
    if (m->rows.width) json_object_set_new(root, "table", rows_json(m));
    if (m->scalars) json_object_set_new(root, "scalars", scalars_json(m));
    if (m->origin.step) json_object_set_new(root, "forked_from", origin_json(&m->origin));
    err_t rc = print_json(root, text, size);
    json_decref(root);
    return rc;
}
