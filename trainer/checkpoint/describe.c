// trainer/checkpoint/describe.c: the manifest of a state that is about to be saved.
#include "trainer/checkpoint/describe.h"

#include "trainer/checkpoint/digest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_file(const ckpt_work *w, int kind, int rank) {
    int first = kind == FILE_MODEL ? GROUP_MASTER : GROUP_OPTIMIZER,
        end = kind == FILE_MODEL ? GROUP_OPTIMIZER : w->groups;
    for (int g = first; g < end; g++)
        for (int i = 0; i < w->params; i++)
            if (work_span(w, g, rank, i)->count > 0) return true;
    return false;
}

// Files of rows follow, once all ranks know who has any (trainer/checkpoint/rows.c).
static void fill_files(manifest *m, const ckpt_state *s, const ckpt_work *w) {
    for (int kind = FILE_MODEL; kind <= FILE_OPTIMIZER; kind++)
        for (int r = 0; r < m->world; r++) {
            if (!has_file(w, kind, r)) continue;
            manifest_file *f = &m->file[m->files++];
            *f = (manifest_file){.kind = kind, .rank = r, .blocks = s->compress != 0};
            manifest_file_name(f->name, kind, r, m->world, f->blocks);
            snprintf(f->host, sizeof f->host, "%s", ckpt_alone(s) ? "localhost" : s->ranks->place[r].host);
        }
}

// What a rank has of a tensor, one part of each slice.
static err_t fill_rank_parts(manifest *m, manifest_tensor *t, const ckpt_order *o, int file, const ckpt_span *has) {
    const int suffix = t->slices > 1 ? 31 : 20;  // the longest "@slice:first" and "@first"
    for (int64_t k = has->first, end = has->first + has->count, n; k < end; k += n) {
        manifest_part *p = &m->part[m->parts++];
        n = order_left(o, k) < end - k ? order_left(o, k) : end - k;
        *p = (manifest_part){.file = file, .slice = (int)(k / o->each), .first = k % o->each, .count = n};
        t->parts++;
        if (strlen(t->name) + (manifest_part_is_whole(t, p) ? 0 : (size_t)suffix) >= CKPT_NAME)
            return err_set(ERR_INTERNAL, "tensor %s can't be saved in parts: its name has %zu bytes (at most %d)",
                           t->name, strlen(t->name), CKPT_NAME - 1 - suffix);
    }
    return ERR_OK;
}

static err_t fill_parts(manifest *m, const ckpt_work *w, int group, int i) {
    manifest_tensor *t = &m->tensor[group * m->params + i];
    int turns = work_turns(w, group, i);
    t->part = m->parts;
    for (int k = 0; k < turns; k++) {
        int rank = w->turn[k].rank;
        TRY(fill_rank_parts(m, t, &w->order[i],
                            manifest_find_file(m, group == GROUP_MASTER ? FILE_MODEL : FILE_OPTIMIZER, rank),
                            work_span(w, group, rank, i)));
    }
    return ERR_OK;
}

static err_t fill_group(manifest *m, const ckpt_work *w, int group, const ckpt_group *from) {
    const ckpt_tensor *t = from->tensor;
    size_t length = strlen(from->name);
    if (length >= CKPT_GROUP_NAME || (length == 0) != (group == GROUP_MASTER))
        return err_set(ERR_INTERNAL, "a group of tensors named \"%s\" can't be saved: expected 1 to 15 letters",
                       from->name);
    memcpy(m->group[group], from->name, length + 1);
    for (int i = 0; i < m->params; i++) {
        manifest_tensor *to = &m->tensor[group * m->params + i];
        int n = manifest_tensor_name(to->name, from->name, t[i].name);
        if (n <= 0 || n >= CKPT_NAME)
            return err_set(ERR_INTERNAL, "tensor %s can't be saved: its name has %d bytes (at most %d)", to->name, n,
                           CKPT_NAME - 1);
        to->dims = t[i].dims;
        memcpy(to->size, t[i].size, (size_t)t[i].dims * sizeof *to->size);
        to->axis = t[i].slices > 1 ? t[i].axis : 0;
        to->slices = t[i].slices > 1 ? t[i].slices : 1;
        if (t[i].slices > 1) to->split = t[i].split;
        TRY(fill_parts(m, w, group, i));
    }
    return ERR_OK;
}

static err_t fill_scalars(manifest *m, const ckpt_state *s) {
    m->scalar = calloc((size_t)s->scalars + 1, sizeof *m->scalar);
    if (!m->scalar) return err_set(ERR_INTERNAL, "no memory for the manifest's %d scalars", s->scalars);
    for (; m->scalars < s->scalars; m->scalars++) {
        const ckpt_scalar *from = &s->scalar[m->scalars];
        size_t length = strlen(from->name);
        if (length == 0 || length >= CKPT_GROUP_NAME || manifest_scalar_of(m, from->name) || !isfinite(*from->value))
            return err_set(ERR_INTERNAL,
                           "a scalar named \"%s\", %g, can't be saved: expected 1 to 15 letters, each name once, and a "
                           "finite number",
                           from->name, *from->value);
        memcpy(m->scalar[m->scalars].name, from->name, length + 1);
        m->scalar[m->scalars].value = *from->value;
    }
    return ERR_OK;
}

// How many slices this is part of.
static size_t slices_of(const ckpt_order *o, const ckpt_span *has) {
    return has->count ? (size_t)((has->first + has->count - 1) / o->each - has->first / o->each + 1) : 0;
}

static err_t allocate_tables(manifest *m, const ckpt_work *w) {
    size_t parts = 0;
    for (int g = 0; g < m->groups; g++)
        for (int r = 0; r < m->world; r++)
            for (int i = 0; i < m->params; i++) parts += slices_of(&w->order[i], work_span(w, g, r, i));
    m->key = calloc(CKPT_KEYS_MAX, sizeof *m->key);
    m->file = calloc(FILE_KINDS * (size_t)m->world, sizeof *m->file);
    m->group = calloc((size_t)m->groups, sizeof *m->group);
    m->tensor = calloc((size_t)m->groups * (size_t)m->params, sizeof *m->tensor);
    m->part = calloc(parts + 1, sizeof *m->part);
    if (m->key && m->file && m->group && m->tensor && m->part) return ERR_OK;
    return err_set(ERR_INTERNAL, "no memory for the manifest of %d parameters in %zu parts", m->params, parts);
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

static err_t copy_device(manifest *m, const ckpt_state *s) {
    char text[DEVICE_PLAN];
    int count = 0;
    if (!s->dev) return ERR_OK;
    const char *type, *kind;
    device_arithmetic(s->dev, m->arithmetic, sizeof m->arithmetic);
    m->revision = manifest_revision_now(m->arithmetic, s->key, s->keys, &type, &kind);
    while (count < MANIFEST_PLANS_MAX && device_plans_get(s->dev, count, text)) count++;
    m->plan = calloc((size_t)count + 1, sizeof *m->plan);
    if (!m->plan) return err_set(ERR_INTERNAL, "no memory for %d plans of the device", count);
    while (m->plans < count && device_plans_get(s->dev, m->plans, m->plan[m->plans])) m->plans++;
    return ERR_OK;
}

err_t manifest_open(manifest *m, const ckpt_state *s, const run_progress *at, const ckpt_work *w) {
    *m = (manifest){.at = *at, .world = w->world, .groups = s->groups, .params = s->params, .pulse = s->pulse};
    if (s->params < 1 || at->step < 0 || !isfinite(at->loss_scale))
        return err_set(ERR_INTERNAL, "a state with %d parameters, step %" PRId64 " and loss scale %g can't be saved",
                       s->params, at->step, at->loss_scale);
    TRY(allocate_tables(m, w));
    memcpy(m->data_hash, s->data_hash, sizeof m->data_hash);
    memcpy(m->build, s->build, sizeof m->build);
    memcpy(m->sources, s->sources, sizeof m->sources);
    m->origin = s->origin;
    fill_files(m, s, w);
    TRY(copy_keys(m, s));
    TRY(copy_device(m, s));
    TRY(fill_scalars(m, s));
    for (int g = 0; g < s->groups; g++) TRY(fill_group(m, w, g, &s->group[g]));
    return ERR_OK;
}
