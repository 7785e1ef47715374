// trainer/checkpoint_read.c: reading one checkpoint directory; see trainer/checkpoint.h. One pass over each tensor reads it,
// straight to where it belongs, and digests it. Every byte of a checkpoint is under some digest: the manifest's own, a file's
// header's, or a tensor's.
#include "base/io.h"
#include "model/safetensors.h"
#include "trainer/manifest.h"
#include "trainer/state_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 16 * CKPT_CHUNK };  // elements, 1 MiB: large enough for any disk, small enough to be digested from the cache

// --- a file against its manifest -----------------------------------------------------------------------------------------------

static err_t check_header(const st_file *f, const manifest_file *say) {
    size_t n = (size_t)(f->count ? f->tensors[0].offset : f->file_bytes);
    char *text = malloc(n);
    if (!text) return err_set(ERR_INTERNAL, "%s: no memory for a header of %zu bytes", f->path, n);
    err_t rc = io_read_at(f->fd, f->path, 0, text, n);
    digest d;
    uint8_t found[CKPT_DIGEST];
    digest_begin(&d);
    digest_put(&d, text, n);
    digest_end(&d, found);
    free(text);
    TRY(rc);
    if (memcmp(found, say->header, sizeof found) != 0)
        return err_set(ERR_DATA,
                       "%s: its header (%zu bytes from offset 0) is not what the manifest recorded: the file is damaged", f->path,
                       n);
    return ERR_OK;
}

static err_t check_tensor(const st_file *f, const manifest_tensor *t) {
    const st_tensor *found = st_find(f, t->name);
    if (!found) return err_set(ERR_DATA, "%s: tensor %s is missing; the manifest lists it", f->path, t->name);
    if (found->type != ST_F32 || found->dims != t->dims || memcmp(found->size, t->size, sizeof t->size) != 0)
        return err_set(ERR_DATA, "%s: tensor %s has another type or shape than the manifest says", f->path, t->name);
    return ERR_OK;
}

static err_t check_file(const st_file *f, const manifest *m, int file) {
    const manifest_file *say = &m->file[file];
    int first = file == FILE_MODEL ? 0 : m->params, count = file == FILE_MODEL ? m->params : 2 * m->params;
    if (f->file_bytes != say->bytes)
        return err_set(ERR_DATA, "%s: has %lld bytes, the manifest says %lld", f->path, (long long)f->file_bytes,
                       (long long)say->bytes);
    if (f->count != count) return err_set(ERR_DATA, "%s: has %d tensors, the manifest says %d", f->path, f->count, count);
    for (int i = first; i < first + count; i++) TRY(check_tensor(f, &m->tensor[i]));
    return check_header(f, say);
}

static err_t open_file(st_file *f, const char *dir, const manifest *m, int file) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/%s", dir, m->file[file].name));
    if (access(path, F_OK) != 0 && errno == ENOENT) return err_set(ERR_DATA, "%s: is missing; the manifest lists it", path);
    TRY(st_open(f, path));
    err_t rc = check_file(f, m, file);
    if (rc != ERR_OK) st_close(f);
    return rc;
}

// --- tensors -------------------------------------------------------------------------------------------------------------------

// Into `to`, or, where that is NULL, piece by piece into `scratch`.
static err_t read_tensor(const st_file *f, const manifest_tensor *t, float *to, float *scratch, digest *group) {
    const st_tensor *at = st_find(f, t->name);
    digest tensor;
    uint8_t found[CKPT_DIGEST];
    int64_t count = ckpt_elements(t->dims, t->size);
    digest_begin(&tensor);
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        float *x = to ? to + i : scratch;
        err_t rc = io_read_at(f->fd, f->path, at->offset + i * 4, x, (size_t)n * 4);
        if (rc != ERR_OK) err_prefix("tensor %s", t->name);
        TRY(rc);
        group_chunks(group, &tensor, x, n);
    }
    digest_end(&tensor, found);
    if (memcmp(found, t->digest, sizeof found) == 0) return ERR_OK;
    char is[17], should[17];
    digest_hex(is, found, 8);
    digest_hex(should, t->digest, 8);
    return err_set(ERR_DATA, "%s: tensor %s (%lld bytes at offset %lld) has digest %s..., the manifest says %s...: it is damaged",
                   f->path, t->name, (long long)at->bytes, (long long)at->offset, is, should);
}

static err_t read_group(const st_file *f, const manifest *m, int group, const ckpt_tensor *to, float *scratch,
                        uint8_t out[CKPT_DIGEST]) {
    digest d;
    size_t prefix = strlen(manifest_prefix[group]);
    digest_begin(&d);
    for (int i = 0; i < m->params; i++) {
        const manifest_tensor *t = &m->tensor[group * m->params + i];
        group_tensor(&d, t->name + prefix, t->dims, t->size);
        TRY(read_tensor(f, t, to ? to[i].data : NULL, scratch, &d));
    }
    digest_end(&d, out);
    return ERR_OK;
}

static err_t compare_hash(const char *dir, const char *what, const uint8_t found[CKPT_DIGEST], const char *recorded) {
    char hex[17];
    digest_hex(hex, found, 8);
    if (strcmp(hex, recorded) == 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: %s is %s, the manifest says %s: manifest.json does not belong to these tensors", dir, what, hex,
                   recorded);
}

// Reads the masters and, when `all`, m and v, into to[group] or nowhere, and compares everything with the manifest.
static err_t read_groups(const char *dir, const manifest *m, ckpt_tensor *const to[GROUPS], bool all, float *scratch) {
    uint8_t group[GROUPS][CKPT_DIGEST], state[CKPT_DIGEST];
    st_file f;
    TRY(open_file(&f, dir, m, FILE_MODEL));
    err_t rc = read_group(&f, m, GROUP_MASTER, to[GROUP_MASTER], scratch, group[GROUP_MASTER]);
    st_close(&f);
    TRY(rc);
    TRY(compare_hash(dir, "hash", group[GROUP_MASTER], m->hash));
    if (!all) return ERR_OK;
    if (m->groups == 1) {
        group_digest(NULL, 0, group[GROUP_M]);
        group_digest(NULL, 0, group[GROUP_V]);
    } else {
        TRY(open_file(&f, dir, m, FILE_OPTIMIZER));
        for (int g = GROUP_M; g <= GROUP_V && rc == ERR_OK; g++) rc = read_group(&f, m, g, to[g], scratch, group[g]);
        st_close(&f);
        TRY(rc);
    }
    state_digest(group, &m->at, state);
    return compare_hash(dir, "state_hash", state, m->state_hash);
}

// --- does it fit ---------------------------------------------------------------------------------------------------------------

static const char *find_value(const ckpt_key *key, int keys, const char *name) {
    for (int i = 0; i < keys; i++)
        if (strcmp(key[i].key, name) == 0) return key[i].value;
    return NULL;
}

static err_t compare_keys(const char *dir, const manifest *m, const ckpt_state *s) {
    for (int i = 0; i < s->keys; i++) {
        const char *name = s->key[i].key, *now = s->key[i].value, *then = find_value(m->key, m->keys, name);
        if (!then)
            return err_set(
                ERR_CONFIG,
                "%s: %s = %.200s is not known to this checkpoint, which build %s wrote: continue with that build, or start "
                "another [run] name",
                dir, name, now, m->build);
        if (strcmp(then, now) != 0)
            return err_set(
                ERR_CONFIG,
                "%s: %s is %.200s in the checkpoint and %.200s now, and the bits depend on it: put %.200s back, or start "
                "another [run] name",
                dir, name, then, now, then);
    }
    for (int i = 0; i < m->keys; i++)
        if (!find_value(s->key, s->keys, m->key[i].key))
            return err_set(
                ERR_CONFIG,
                "%s: %s = %.200s is in the checkpoint, which build %s wrote, and not known to this build: continue with that "
                "build, or start another [run] name",
                dir, m->key[i].key, m->key[i].value, m->build);
    if (s->data_hash[0] && strcmp(s->data_hash, m->data_hash) != 0)
        return err_set(
            ERR_CONFIG,
            "%s: the training dataset was %s when the checkpoint was written and is %s now: restore the files of [data] train, "
            "or start another [run] name",
            dir, m->data_hash, s->data_hash);
    return ERR_OK;
}

static void shape_text(char *to, size_t room, int dims, const int64_t *size) {
    size_t n = (size_t)snprintf(to, room, "(");
    for (int d = 0; d < dims; d++) n += (size_t)snprintf(to + n, room - n, "%s%lld", d ? "," : "", (long long)size[d]);
    snprintf(to + n, room - n, ")");
}

static err_t compare_tensors(const char *dir, const manifest *m, const ckpt_state *s) {
    for (int i = 0; i < s->params || i < m->params; i++) {
        const manifest_tensor *then = i < m->params ? &m->tensor[i] : NULL;
        const ckpt_tensor *now = i < s->params ? &s->master[i] : NULL;
        if (!then || !now || strcmp(then->name, now->name) != 0)
            return err_set(
                ERR_CONFIG,
                "%s: tensor %d of %d is %s in the checkpoint, and of this model's %d it is %s: [model] describes another model",
                dir, i + 1, m->params, then ? then->name : "absent", s->params, now ? now->name : "absent");
        if (then->dims == now->dims && memcmp(then->size, now->size, (size_t)now->dims * sizeof *now->size) == 0) continue;
        char is[96], should[96];
        shape_text(is, sizeof is, then->dims, then->size);
        shape_text(should, sizeof should, now->dims, now->size);
        return err_set(ERR_CONFIG, "%s: tensor %s is %s in the checkpoint and %s in this model: [model] describes another model",
                       dir, now->name, is, should);
    }
    if (s->m && m->groups == 1)
        return err_set(
            ERR_CONFIG,
            "%s: holds no optimizer state, training can't continue from it: use its model.safetensors as [model] init_from", dir);
    return ERR_OK;
}

static err_t load(const char *dir, const manifest *m, ckpt_state *s, bool foreign) {
    if (!foreign) TRY(compare_keys(dir, m, s));
    TRY(compare_tensors(dir, m, s));
    ckpt_tensor *const to[GROUPS] = {s->master, s->m, s->v};
    TRY(read_groups(dir, m, to, s->m && s->v, NULL));
    s->at = m->at;
    return ERR_OK;
}

err_t ckpt_load(const char *ckpt_dir, ckpt_state *s, bool foreign) {
    manifest m;
    err_t rc = manifest_read(&m, ckpt_dir);
    if (rc == ERR_OK) rc = load(ckpt_dir, &m, s, foreign);
    manifest_close(&m);
    return rc;
}

err_t ckpt_peek(const char *ckpt_dir, ckpt_state *s) {
    manifest m;
    memset(s, 0, sizeof *s);
    err_t rc = manifest_read(&m, ckpt_dir);
    if (rc == ERR_OK) {
        s->at = m.at;
        s->keys = m.keys;
        memcpy(s->key, m.key, (size_t)m.keys * sizeof *m.key);
        memcpy(s->data_hash, m.data_hash, sizeof s->data_hash);
        memcpy(s->build, m.build, sizeof s->build);
    }
    manifest_close(&m);
    return rc;
}

err_t ckpt_hash_dir(const char *ckpt_dir, char hash[17], char state_hash[17]) {
    static ckpt_tensor *const nowhere[GROUPS];
    manifest m;
    err_t rc = manifest_read(&m, ckpt_dir);
    float *scratch = malloc(PIECE * sizeof *scratch);
    if (rc == ERR_OK && !scratch) rc = err_set(ERR_INTERNAL, "%s: no memory to read it", ckpt_dir);
    if (rc == ERR_OK) rc = read_groups(ckpt_dir, &m, nowhere, true, scratch);
    if (rc == ERR_OK) {
        memcpy(hash, m.hash, sizeof m.hash);
        memcpy(state_hash, m.state_hash, sizeof m.state_hash);
    }
    free(scratch);
    manifest_close(&m);
    return rc;
}
