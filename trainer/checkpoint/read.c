// trainer/checkpoint/read.c: reads one checkpoint directory; see trainer/checkpoint/checkpoint.h. Each rank reads its
// elements from the files that hold them straight to their place, and digests the chunks. Then the digests are
// gathered, and every part, tensor and group is compared with the manifest. Every byte of a checkpoint is covered by a
// digest: the manifest's own, a file header's, or a part's. A rank that reads half of a part can't verify it alone; the
// ranks can together.
#include "trainer/checkpoint/read.h"

#include "base/io.h"
#include "base/text.h"
#include "model/blocks.h"
#include "model/safetensors.h"
#include "trainer/checkpoint/away.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/parts.h"
#include "trainer/checkpoint/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --- a file against its manifest -------------------------------------------------------------------------------------

static err_t digest_header(int fd, const char *path, int64_t n, uint8_t out[CKPT_DIGEST]) {
    digest d;
    char piece[4096];
    err_t rc = ERR_OK;
    digest_begin(&d);
    for (int64_t i = 0; i < n && rc == ERR_OK; i += (int64_t)sizeof piece) {
        size_t count = n - i < (int64_t)sizeof piece ? (size_t)(n - i) : sizeof piece;
        rc = io_read_at(fd, path, i, piece, count);
        if (rc == ERR_OK) digest_put(&d, piece, count);
    }
    digest_end(&d, out);
    return rc;
}

static err_t check_header(const st_file *f, const manifest_file *say) {
    uint8_t found[CKPT_DIGEST];
    TRY(digest_header(f->fd, f->path, f->head_bytes, found));
    if (memcmp(found, say->header, sizeof found) == 0) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: its header (%" PRId64
                   " bytes from offset 0) is not what the manifest recorded: the file is damaged",
                   f->path, f->head_bytes);
}

static err_t check_file(const st_file *f, const manifest *m, int file) {
    const manifest_file *say = &m->file[file];
    int count = say->kind == FILE_TABLE ? ROW_TENSORS : manifest_parts_in(m, file);
    if (f->file_bytes != say->bytes)
        return err_set(ERR_DATA, "%s: has %" PRId64 " bytes, the manifest says %" PRId64, f->path, f->file_bytes,
                       say->bytes);
    if ((f->blocks != NULL) != say->blocks)
        return err_set(ERR_DATA, "%s: its data is %s, and by its name it is %s: another file is in its place", f->path,
                       f->blocks ? "compressed" : "as it is", say->blocks ? "compressed" : "as it is");
    if (f->count != count)
        return err_set(ERR_DATA, "%s: has %d tensors, the manifest says %d", f->path, f->count, count);
    return check_header(f, say);
}

static err_t open_file(st_file *f, const char *path, const manifest *m, int file) {
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return err_set(ERR_DATA, "%s: is missing; the manifest lists it", path);
    TRY(st_open(f, path));
    err_t rc = check_file(f, m, file);
    if (rc != ERR_OK) st_close(f);
    return rc;
}

static err_t find_part(const st_file *f, const manifest_tensor *t, const manifest_part *p, const st_tensor **out) {
    char name[CKPT_NAME];
    ckpt_tensor is = {.dims = 1, .size = {p->count}};
    manifest_part_name(name, t, p);
    if (strcmp(name, t->name) == 0) {
        is.dims = t->dims;
        memcpy(is.size, t->size, sizeof is.size);
    }
    const st_tensor *found = *out = st_find(f, name);
    if (!found) return err_set(ERR_DATA, "%s: tensor %s is missing; the manifest lists it", f->path, name);
    if (found->type != ST_F32 || found->dims != is.dims || memcmp(found->size, is.size, sizeof is.size) != 0)
        return err_set(ERR_DATA, "%s: tensor %s has another type or shape than the manifest says", f->path, name);
    return ERR_OK;
}

static err_t damaged(const char *path, const manifest_tensor *t, const manifest_part *p, const st_tensor *at,
                     const uint8_t found[CKPT_DIGEST]) {
    char is[17], should[17], slice[32] = "", elements[96] = "";
    digest_hex(is, found, 8);
    digest_hex(should, p->digest, 8);
    if (t->slices > 1) snprintf(slice, sizeof slice, "slice %d, ", p->slice);
    if (!manifest_part_is_whole(t, p))
        snprintf(elements, sizeof elements, "%selements %" PRId64 " to %" PRId64 ": ", slice, p->first,
                 p->first + p->count - 1);
    return err_set(ERR_DATA,
                   "%s: tensor %s (%s%" PRId64 " bytes at offset %" PRId64
                   ") has digest %s..., the manifest says %s...: it is damaged",
                   path, t->name, elements, at->bytes, at->offset, is, should);
}

// Reads n elements of a part, from its element k on, to x.
static err_t read_piece(const st_file *f, const st_tensor *at, int64_t k, int64_t n, float *x) {
    err_t rc = st_read_f32_part(f, at, k, n, x);
    if (rc != ERR_OK) err_prefix("tensor %s", at->name);
    return rc;
}

// Reads all of a part, compares its digest, and copies what of it belongs there to `to` (NULL: nothing), whose slices
// may be others.
static err_t verify_part(const st_file *f, const manifest *m, const manifest_tensor *t, const manifest_part *p,
                         float *scratch, const ckpt_tensor *to) {
    const ckpt_order o = manifest_order(t);
    const st_tensor *at;
    uint8_t chunk[ORDER_PIECE / CHUNK * CKPT_DIGEST], found[CKPT_DIGEST];
    digest d;
    TRY(find_part(f, t, p, &at));
    digest_begin(&d);
    for (int64_t first = manifest_part_first(t, p), k = first, end = first + p->count, n; k < end; k += n) {
        n = order_piece(&o, k, end);
        TRY(read_piece(f, at, k - first, n, scratch));
        digest_put(&d, chunk, (size_t)(chunk_digests(&o, k, n, scratch, chunk) - chunk));
        if (to) TRY(order_copy(&o, k, n, scratch, to));
        ckpt_beat(&m->pulse);
    }
    digest_end(&d, found);
    return memcmp(found, p->digest, sizeof found) == 0 ? ERR_OK : damaged(f->path, t, p, at, found);
}

err_t ckpt_look_at_file(const char *path, const manifest *m, int file) {
    st_file f;
    TRY(open_file(&f, path, m, file));
    st_close(&f);
    return ERR_OK;
}

err_t ckpt_verify_file(const char *path, const manifest *m, int file) {
    st_file f;
    TRY(open_file(&f, path, m, file));
    // Asks the kernel to drop the pages, so that this reads the disk. If it does not, the cached pages are compared.
    posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED);
    float *scratch = malloc(ORDER_PIECE * sizeof *scratch);
    err_t rc = scratch ? ERR_OK : err_set(ERR_INTERNAL, "%s: no memory to read it", path);
    for (int i = 0; i < m->groups * m->params && rc == ERR_OK; i++)
        for (int k = m->tensor[i].part; k < m->tensor[i].part + m->tensor[i].parts && rc == ERR_OK; k++)
            if (m->part[k].file == file) rc = verify_part(&f, m, &m->tensor[i], &m->part[k], scratch, NULL);
    if (rc == ERR_OK && m->file[file].kind == FILE_TABLE) rc = ckpt_rows_read_part(&f, m, file, NULL, NULL);
    free(scratch);
    st_close(&f);
    return rc;
}

// --- what is missing -------------------------------------------------------------------------------------------------

err_t ckpt_missing(const char *where, const manifest *m, const bool *absent) {
    enum { NAMED = 6 };
    char names[ERR_TEXT] = "";
    int count = 0, first = 0;
    size_t n = 0;
    for (int f = 0; f < m->files; f++) {
        if (!absent[f]) continue;
        if (count++ == 0) first = f;
        if (count > NAMED) continue;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", m->file[f].name);
        if (m->world > 1)
            n += (size_t)snprintf(names + n, sizeof names - n, " (of rank %d, written on %s)", m->file[f].rank,
                                  m->file[f].host);
    }
    if (count == 0) return ERR_OK;
    if (count > 1)
        return err_set(ERR_DATA, "%s: %d of its %d files are missing: %s%s", where, count, m->files, names,
                       count > NAMED ? ", and more" : "");
    const manifest_file *f = &m->file[first];
    if (m->world == 1) return err_set(ERR_DATA, "%s/%s: is missing; the manifest lists it", where, f->name);
    return err_set(ERR_DATA, "%s/%s: is missing; rank %d wrote it on %s", where, f->name, f->rank, f->host);
}

err_t ckpt_all_there(const char *dir, const manifest *m, int groups) {
    bool *absent = calloc((size_t)m->files, sizeof *absent);
    char path[IO_PATH];
    err_t rc = absent ? ERR_OK : err_set(ERR_INTERNAL, "%s: no memory for %d files", dir, m->files);
    for (int f = 0; f < m->files && rc == ERR_OK; f++) {
        if (m->file[f].kind == FILE_OPTIMIZER && groups == 1) continue;
        rc = io_path(path, "%s/%s", dir, m->file[f].name);
        absent[f] = rc == ERR_OK && access(path, F_OK) != 0 && errno == ENOENT;
    }
    if (rc == ERR_OK) rc = ckpt_missing(dir, m, absent);
    free(absent);
    return rc;
}

// --- this rank's parts -----------------------------------------------------------------------------------------------

// Files stay open: each tensor may have a part in every file, and opening a file means parsing its header.
enum { OPEN_FILES = 64 };
typedef struct source {
    const char *dir;
    const manifest *m;
    float *scratch;    // for data that is read only to verify it
    block_room *room;  // for all files in blocks; NULL: there was none yet
    struct {
        st_file f;
        int number;
        bool open;
    } slot[OPEN_FILES];
} source;

static err_t source_file(source *x, int file, const st_file **out) {
    char path[IO_PATH];
    int k = file % OPEN_FILES;
    *out = &x->slot[k].f;
    if (x->slot[k].open && x->slot[k].number == file) return ERR_OK;
    if (x->slot[k].open) st_close(&x->slot[k].f);
    x->slot[k].open = false;
    TRY(io_path(path, "%s/%s", x->dir, x->m->file[file].name));
    if (x->m->file[file].blocks && !x->room) TRY(block_room_open(&x->room));
    TRY(open_file(&x->slot[k].f, path, x->m, file));
    if (x->slot[k].f.blocks) x->slot[k].f.blocks->room = x->room, x->slot[k].f.blocks->lent = true;
    x->slot[k].number = file;
    x->slot[k].open = true;
    return ERR_OK;
}

static void source_close(source *x) {
    for (int k = 0; k < OPEN_FILES; k++)
        if (x->slot[k].open) st_close(&x->slot[k].f);
    block_room_close(x->room);
    free(x->scratch);
}

// Reads elements [from, to) of a tensor, which are in part p, to their places in y, unless it has no room for any. Adds
// the digests of their chunks.
static err_t read_range(source *x, const manifest_tensor *t, const manifest_part *p, int64_t from, int64_t to,
                        const ckpt_tensor *y, uint8_t **chunk) {
    const ckpt_order o = manifest_order(t);
    const st_file *f;
    const st_tensor *at;
    TRY(source_file(x, p->file, &f));
    TRY(find_part(f, t, p, &at));
    for (int64_t k = from, n; k < to; k += n) {
        float *piece = y->data ? y->data + (k - y->first) : x->scratch;
        n = order_piece(&o, k, to);
        TRY(read_piece(f, at, k - manifest_part_first(t, p), n, piece));
        if (y->away) TRY(away_put(y, k - y->first, n, piece));
        *chunk = chunk_digests(&o, k, n, piece, *chunk);
    }
    return ERR_OK;
}

// A tensor that is stored as this rank has it.
static err_t read_tensor(source *x, const manifest_tensor *t, const ckpt_tensor *to, uint8_t **chunk) {
    int64_t first = to->first, end = first + to->count;
    for (const manifest_part *p = x->m->part + t->part; p < x->m->part + t->part + t->parts; p++) {
        int64_t begin = manifest_part_first(t, p);
        int64_t a = first > begin ? first : begin, b = end < begin + p->count ? end : begin + p->count;
        if (a < b) TRY(read_range(x, t, p, a, b, to, chunk));
    }
    return ERR_OK;
}

// A tensor of other slices. Its chunks are not this rank's, so it verifies each part that it needs something of alone.
static err_t convert_tensor(source *x, const manifest_tensor *t, const ckpt_tensor *to, uint8_t **chunk) {
    const ckpt_order o = manifest_order(t);
    for (const manifest_part *p = x->m->part + t->part; p < x->m->part + t->part + t->parts; p++) {
        const st_file *f;
        if (!order_overlaps(&o, manifest_part_first(t, p), p->count, to)) continue;
        TRY(source_file(x, p->file, &f));
        TRY(verify_part(f, x->m, t, p, x->scratch, to));
    }
    return range_digests(to, chunk);
}

static bool is_converted(const manifest_tensor *t, const ckpt_order *now) {
    const ckpt_order o = manifest_order(t);
    return !order_equal(&o, now);
}

static err_t read_group(source *x, const manifest_tensor *from, const ckpt_tensor *to, ckpt_work *w, uint8_t *chunk) {
    for (int i = 0; i < w->params; i++) {
        const manifest_tensor *t = &from[i];
        TRY(is_converted(t, &w->order[i]) ? convert_tensor(x, t, &to[i], &chunk) : read_tensor(x, t, &to[i], &chunk));
    }
    return ERR_OK;
}

// Rows on demand, of which this rank has some buckets; without a table all are read, and none is kept.
static err_t read_rows(source *x, const ckpt_state *s) {
    const row_options *o = s->rows ? row_table_about(s->rows) : NULL;
    int first = o ? o->first : 0, end = o ? o->first + o->buckets : ROW_BUCKETS;
    if (s->rows) TRY(row_table_clear(s->rows));
    for (const manifest_rows_part *p = x->m->rows.part; p < x->m->rows.part + x->m->rows.parts; p++) {
        const st_file *f;
        if (p->first >= end || first >= p->first + p->buckets) continue;
        TRY(source_file(x, p->file, &f));
        TRY(ckpt_rows_read_part(f, x->m, p->file, s->rows, s->rows ? NULL : s->row_digests));
    }
    return ERR_OK;
}

static err_t read_groups(const char *dir, const manifest *m, const ckpt_state *s, ckpt_work *w) {
    TRY(ckpt_all_there(dir, m, w->groups));
    source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "%s: no memory to read it", dir);
    *x = (source){.dir = dir, .m = m, .scratch = malloc(ORDER_PIECE * sizeof(float))};
    err_t rc = x->scratch ? ERR_OK : err_set(ERR_INTERNAL, "%s: no memory to read it", dir);
    for (int g = 0; g < w->groups && rc == ERR_OK; g++)
        rc = read_group(x, manifest_group(m, s->group[g].name), s->group[g].tensor, w, w->mine[g]);
    if (rc == ERR_OK && m->rows.width) rc = read_rows(x, s);
    source_close(x);
    free(x);
    return rc;
}

// --- all parts together ----------------------------------------------------------------------------------------------

static err_t part_damaged(const char *dir, const manifest *m, const manifest_tensor *t, const manifest_part *p,
                          const uint8_t found[CKPT_DIGEST]) {
    char path[IO_PATH];
    st_file f;
    const st_tensor *at;
    TRY(io_path(path, "%s/%s", dir, m->file[p->file].name));
    TRY(open_file(&f, path, m, p->file));
    err_t rc = find_part(&f, t, p, &at);
    if (rc == ERR_OK) rc = damaged(path, t, p, at, found);
    st_close(&f);
    return rc;
}

// Compares a group's digests from work_gather with those of `from`, the group in the manifest. A damaged part is
// reported by the ranks that read it: their node's copy is damaged. *whole = false on all ranks.
static err_t verify_group(const char *dir, const manifest *m, const manifest_tensor *from, const ckpt_work *w,
                          int group, bool *whole) {
    uint8_t found[CKPT_DIGEST];
    err_t rc = ERR_OK;
    for (int i = 0; i < w->params && rc == ERR_OK; i++) {
        const manifest_tensor *t = &from[i];
        const ckpt_span *mine = work_span(w, group, w->rank, i);
        bool parts = true;
        if (is_converted(t, &w->order[i])) continue;  // verified where it was read
        for (const manifest_part *p = m->part + t->part; p < m->part + t->part + t->parts && rc == ERR_OK; p++) {
            int64_t first = manifest_part_first(t, p);
            work_part_digest(w, i, first, p->count, found);
            if (memcmp(found, p->digest, sizeof found) == 0) continue;
            parts = *whole = false;
            if (mine->first < first + p->count && first < mine->first + mine->count)
                rc = part_damaged(dir, m, t, p, found);
        }
        work_part_digest(w, i, 0, shape_count(t->dims, t->size), found);
        if (!parts || memcmp(found, t->digest, sizeof found) == 0) continue;
        *whole = false;
        rc = err_set(
            ERR_DATA,
            "%s: tensor %s has another digest than the manifest says: manifest.json does not belong to its parts", dir,
            t->name);
    }
    return rc;
}

static err_t compare_hash(const char *dir, const char *what, const uint8_t found[CKPT_DIGEST], const char *recorded) {
    char hex[17];
    digest_hex(hex, found, 8);
    if (strcmp(hex, recorded) == 0) return ERR_OK;
    return err_set(ERR_DATA, "%s: %s is %s, the manifest says %s: manifest.json does not belong to these tensors", dir,
                   what, hex, recorded);
}

// The state's group of this name; -1: it has none.
static int find_group(const ckpt_state *s, const char *name) {
    for (int g = 0; g < s->groups; g++)
        if (strcmp(s->group[g].name, name) == 0) return g;
    return -1;
}

// all (=): begun, with the digests of the groups that the state has, in the manifest's order. hash (=) the masters'.
static err_t verify_groups(const char *dir, const manifest *m, const ckpt_state *s, ckpt_work *w, state_digest *all,
                           uint8_t hash[CKPT_DIGEST], bool *whole) {
    err_t rc = ERR_OK;
    state_digest_begin(all);
    for (int k = 0; k < m->groups; k++) {  // also after a failure: the other ranks gather too
        uint8_t group[CKPT_DIGEST];
        int g = find_group(s, m->group[k]);
        if (g < 0) continue;
        TRY(work_gather(w, g));
        if (rc == ERR_OK) rc = verify_group(dir, m, manifest_group(m, m->group[k]), w, g, whole);
        work_group_digest(w, s->group[g].tensor, group);
        state_digest_put(all, group);
        if (k == GROUP_MASTER) memcpy(hash, group, CKPT_DIGEST);
    }
    return rc;
}

// With the scalars of the manifest, and the counters of `at`.
static void end_digest(state_digest *all, const manifest *m, const run_progress *at, uint8_t state[CKPT_DIGEST]) {
    for (int k = 0; k < m->scalars; k++) state_digest_scalar(all, m->scalar[k].name, m->scalar[k].value);
    state_digest_end(all, at, state);
}

// Parts were verified where they were read. hash: of the masters, and then of the rows, too.
static err_t verify_rows(const char *dir, const manifest *m, const ckpt_state *s, state_digest *all,
                         uint8_t hash[CKPT_DIGEST]) {
    uint8_t rows[2][CKPT_DIGEST], table[CKPT_DIGEST];
    rows_table_digest(s->row_digests, m->rows.name, m->rows.width, rows);
    rows_hash(rows[ROWS_VALUES], rows[ROWS_SUMS], table);
    if (memcmp(table, m->rows.digest, sizeof table) != 0)
        return err_set(
            ERR_DATA,
            "%s: the rows of %s have another digest than the manifest says: manifest.json does not belong to "
            "these files",
            dir, m->rows.name);
    for (int k = 0; k < 2; k++) state_digest_put(all, rows[k]);
    rows_hash(hash, rows[ROWS_VALUES], hash);
    return ERR_OK;
}

static err_t verify_state(const char *dir, const manifest *m, const ckpt_state *s, ckpt_work *w, state_digest *all) {
    uint8_t hash[CKPT_DIGEST], state[CKPT_DIGEST];
    bool whole = true;
    err_t rc = verify_groups(dir, m, s, w, all, hash, &whole);
    if (s->rows) TRY(ckpt_rows_digest(s));  // also after a failure, as above
    if (rc == ERR_OK && m->rows.width) rc = verify_rows(dir, m, s, all, hash);
    if (rc != ERR_OK || !whole) return rc;
    for (int i = 0; i < w->params; i++)
        if (is_converted(&m->tensor[i], &w->order[i])) return ERR_OK;  // the checkpoint's hashes are of other chunks
    if (find_group(s, m->group[GROUP_MASTER]) < 0) return ERR_OK;  // another group alone, by its tensors' own digests
    TRY(compare_hash(dir, "hash", hash, m->hash));
    if (w->groups == 1 && m->groups > 1) return ERR_OK;  // what the optimizer kept was not read
    state_digest stored = *all;
    end_digest(&stored, m, &m->at, state);
    return compare_hash(dir, "state_hash", state, m->state_hash);
}

// all (=): as of verify_groups.
static err_t read_and_digest(const char *dir, const manifest *m, ckpt_state *s, state_digest *all) {
    ckpt_work *w;
    TRY(ckpt_agree(s, work_open(&w, s)));
    err_t rc = ckpt_agree(s, read_groups(dir, m, s, w));
    if (rc == ERR_OK) rc = ckpt_agree(s, verify_state(dir, m, s, w, all));
    work_close_own(w, s);
    return rc;
}

err_t ckpt_read(const char *dir, const manifest *m, ckpt_state *s) {
    state_digest all;
    return read_and_digest(dir, m, s, &all);
}

// --- does it fit -----------------------------------------------------------------------------------------------------

static const char *find_value(const ckpt_key *key, int keys, const char *name) {
    for (int i = 0; i < keys; i++)
        if (strcmp(key[i].key, name) == 0) return key[i].value;
    return NULL;
}

// The number of keys that have another value in the checkpoint and must not, and which: a line for each.
static int differing_keys(const manifest *m, const ckpt_state *s, char text[ERR_TEXT - 320]) {
    size_t used = 0, room = ERR_TEXT - 320;
    int n = 0;
    text[0] = 0;
    for (int i = 0; i < s->keys; i++) {
        const ckpt_key *k = &s->key[i];
        const char *then = find_value(m->key, m->keys, k->key);
        if (!then || k->open || strcmp(then, k->value) == 0) continue;
        n++;
        if (used + 96 > room) continue;
        int put = snprintf(text + used, room - used, "\n  %s is %.60s in the checkpoint and %.60s now", k->key, then,
                           k->value);
        used += (size_t)put < room - used ? (size_t)put : room - used - 1;
    }
    return n;
}

// Frozen weights are no setting, but those that init_from names.
static err_t refuse_base(const char *dir, const char *then, const char *now) {
    return err_set(
        ERR_CONFIG,
        "%s: its adapters were trained beside weights with the hash %s, and these have %s (lora.base): set [model] "
        "init_from to what it was, or start another [run] name",
        dir, then, now);
}

static err_t compare_keys(const char *dir, const manifest *m, const ckpt_state *s) {
    char all[ERR_TEXT - 320];
    int differ = differing_keys(m, s, all);
    if (differ > 1)
        return err_set(
            ERR_CONFIG,
            "%s: %d settings that the bits depend on are others than in the checkpoint: put them back, or start another [run] name%s",
            dir, differ, all);
    for (int i = 0; i < s->keys; i++) {
        const char *name = s->key[i].key, *now = s->key[i].value, *then = find_value(m->key, m->keys, name);
        const char *usual = s->key[i].usual;
        if (!then && strcmp(now, usual) == 0) continue;
        if (!then)
            return err_set(
                ERR_CONFIG,
                "%s: %s = %.200s is not known to this checkpoint: build %s, which wrote it, always did what %.200s means: put that, or "
                "start another [run] name",
                dir, name, now, m->build, usual);
        if (strcmp(then, now) != 0 && strcmp(name, "lora.base") == 0) return refuse_base(dir, then, now);
        if (strcmp(then, now) != 0 && !s->key[i].open)
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
            "%s: the training dataset was %s when the checkpoint was written and is %s now: restore the files and weights of [data] train, "
            "or start another [run] name",
            dir, m->data_hash, s->data_hash);
    return ERR_OK;
}

static err_t compare_tensors(const char *dir, const manifest *m, const ckpt_state *s) {
    for (int i = 0; i < s->params || i < m->params; i++) {
        const manifest_tensor *then = i < m->params ? &m->tensor[i] : NULL;
        const ckpt_tensor *now = i < s->params ? &s->group[GROUP_MASTER].tensor[i] : NULL;
        if (!then || !now || strcmp(then->name, now->name) != 0)
            return err_set(
                ERR_CONFIG,
                "%s: tensor %d of %d is %s in the checkpoint, and of this model's %d it is %s: [model] describes another model",
                dir, i + 1, m->params, then ? then->name : "absent", s->params, now ? now->name : "absent");
        if (then->dims == now->dims && memcmp(then->size, now->size, (size_t)now->dims * sizeof *now->size) == 0)
            continue;
        char is[96], should[96];
        text_shape(is, sizeof is, then->dims, then->size);
        text_shape(should, sizeof should, now->dims, now->size);
        return err_set(ERR_CONFIG,
                       "%s: tensor %s is %s in the checkpoint and %s in this model: [model] describes another model",
                       dir, now->name, is, should);
    }
    return ERR_OK;
}

static err_t compare_rows(const char *dir, const manifest *m, const ckpt_state *s) {
    int64_t now = s->rows ? row_table_about(s->rows)->width : 0;
    if (m->rows.width == now && (!now || strcmp(m->rows.name, s->rows_name) == 0)) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: rows on demand have %" PRId64 " numbers each in the checkpoint and %" PRId64
                   " in this model (0: there are none): [model] describes another model",
                   dir, m->rows.width, now);
}

// A state of one group reads that of any checkpoint that has it. Any other needs what its optimizer keeps, and nothing
// else.
static bool keeps_the_same(const manifest *m, const ckpt_state *s) {
    if (s->groups == 1 && s->scalars == 0) return manifest_group(m, s->group[0].name);
    bool same = s->groups == m->groups && s->scalars == m->scalars;
    for (int g = 0; g < s->groups; g++) same = same && manifest_group(m, s->group[g].name);
    for (int k = 0; k < s->scalars; k++) same = same && manifest_scalar_of(m, s->scalar[k].name);
    return same;
}

static err_t compare_kept(const char *dir, const manifest *m, const ckpt_state *s) {
    if (keeps_the_same(m, s)) return ERR_OK;
    if (s->groups == 1 && s->scalars == 0)
        return err_set(ERR_CONFIG, "%s: holds no group \"%s\"", dir, s->group[0].name);
    return err_set(ERR_CONFIG,
                   "%s: holds no optimizer state%s, and training can't continue from it: use its %s as [model] "
                   "init_from",
                   dir, m->groups > 1 || m->scalars ? " of this optimizer" : "", m->file[FILE_MODEL].name);
}

// Builds before version 3 wrote only "cuda" for a GPU. An empty text: not known.
static bool same_arithmetic(const manifest *m, const char *now) {
    return !*m->arithmetic || strcmp(m->arithmetic, now) == 0 ||
           (strcmp(m->arithmetic, "cuda") == 0 && strncmp(now, "cuda ", 5) == 0);
}

static err_t compare_devices(const char *dir, const manifest *m, const ckpt_state *s) {
    char now[DEVICE_ARITHMETIC];
    if (!s->dev || s->any_device) return ERR_OK;
    device_arithmetic(s->dev, now, sizeof now);
    if (same_arithmetic(m, now)) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "%s: the checkpoint was computed on \"%s\", this run computes on \"%s\", and the bits depend on it: continue on a device of "
        "that kind with that library, or set [device] match = no, and the bits will be others from there on",
        dir, m->arithmetic, now);
}

// This build's revision, where the checkpoint was computed by another one on the same kind of device; else 0.
static int other_revision(const manifest *m, const ckpt_state *s, const char **type, const char **kind) {
    char here[DEVICE_ARITHMETIC];
    const char *kind_then;
    if (!s->dev || !m->revision) return 0;
    device_arithmetic(s->dev, here, sizeof here);
    manifest_revision_now(m->arithmetic, m->key, m->keys, type, &kind_then);
    int now = manifest_revision_now(here, s->key, s->keys, type, kind);
    // another kind of device is compare_devices' to judge
    return strcmp(*kind, kind_then) == 0 && now != m->revision ? now : 0;
}

static void say_revision(char to[CKPT_REVISION], const manifest *m, const char *type, const char *kind) {
    snprintf(to, CKPT_REVISION, "revision %d of the arithmetic of %s on %s (build %.63s%s)", m->revision, type, kind,
             m->build, m->assumed ? ", which did not record it: it follows from its age" : "");
}

static err_t compare_revisions(const char *dir, const manifest *m, const ckpt_state *s) {
    const char *type, *kind;
    char then[CKPT_REVISION];
    int now = s->any_bits ? 0 : other_revision(m, s, &type, &kind);
    if (!now) return ERR_OK;
    say_revision(then, m, type, kind);
    return err_set(
        ERR_CONFIG,
        "%s: the checkpoint was computed with %s, this build (%s) has revision %d, and the bits depend on it: continue with that build, or "
        "set [run] resume = other-bits, and the bits will be others from there on, or start another [run] name",
        dir, then, s->build, now);
}

err_t ckpt_fits(const char *dir, const manifest *m, const ckpt_state *s, bool foreign) {
    if (!foreign) TRY(compare_keys(dir, m, s));
    if (!foreign) TRY(compare_devices(dir, m, s));
    if (!foreign) TRY(compare_revisions(dir, m, s));
    TRY(compare_tensors(dir, m, s));
    TRY(compare_rows(dir, m, s));
    return compare_kept(dir, m, s);
}

// On the same arithmetic all these plans worked once: a device that refuses one would compute other bits.
static err_t load_plans(const char *dir, const manifest *m, ckpt_state *s) {
    for (int i = 0; i < m->plans; i++) {
        if (device_plans_set(s->dev, m->plan[i]) == ERR_OK) continue;
        if (!s->any_device)
            return err_prefix(
                "%s: plan %d of %d can't be used, and without it the bits will be others ([device] match = no goes on so)",
                dir, i + 1, m->plans);
        snprintf(s->other, sizeof s->other, "%s (not all of its plans can be used)", m->arithmetic);
    }
    return ERR_OK;
}

// Plans belong to one arithmetic: on another they mean nothing.
static err_t compare_arithmetic(const char *dir, const manifest *m, ckpt_state *s) {
    char now[DEVICE_ARITHMETIC];
    s->other[0] = 0;
    device_arithmetic(s->dev, now, sizeof now);
    if (strcmp(m->arithmetic, now) == 0) return load_plans(dir, m, s);
    if (!same_arithmetic(m, now)) snprintf(s->other, sizeof s->other, "%s", m->arithmetic);
    return ERR_OK;
}

// What the run has to say of the build that wrote the checkpoint.
static void note_build(const manifest *m, ckpt_state *s) {
    const char *type, *kind;
    s->other_bits[0] = s->other_build[0] = 0;
    if (other_revision(m, s, &type, &kind)) say_revision(s->other_bits, m, type, kind);
    if (s->sources[0] && strcmp(m->sources, s->sources) != 0)
        snprintf(s->other_build, sizeof s->other_build, "%s (sources %s)", m->build,
                 m->sources[0] ? m->sources : "not known");
}

// What was left open is what it was.
static void adopt_open_keys(const manifest *m, ckpt_state *s) {
    for (int i = 0; i < s->keys; i++) {
        ckpt_key *k = &s->key[i];
        const char *then = find_value(m->key, m->keys, k->key);
        k->adopted = k->open && then && strcmp(then, k->value) != 0;
        if (k->adopted) snprintf(k->value, sizeof k->value, "%s", then);
    }
}

static void note_keys(const manifest *m, ckpt_state *s) {
    for (int i = 0; i < s->keys; i++) {
        ckpt_key *k = &s->key[i];
        const char *then = find_value(m->key, m->keys, k->key);
        snprintf(k->then, sizeof k->then, "%s", then ? then : k->usual);
    }
}

err_t ckpt_adopt(const char *dir, const manifest *m, ckpt_state *s, run_progress *at, bool foreign) {
    note_build(m, s);
    note_keys(m, s);
    TRY(ckpt_agree(s, s->dev && !foreign ? compare_arithmetic(dir, m, s) : ERR_OK));
    *at = m->at;
    for (int k = 0; k < s->scalars; k++) *s->scalar[k].value = *manifest_scalar_of(m, s->scalar[k].name);
    s->origin = m->origin;
    if (!foreign) adopt_open_keys(m, s);
    return ERR_OK;
}

// --- a directory -----------------------------------------------------------------------------------------------------

// Nodes may hold different checkpoints under the same name.
static err_t same_manifest(const char *dir, const manifest *m, const ckpt_state *s) {
    void *all;
    size_t *cut;
    err_t rc = ckpt_gather(s, m->digest, sizeof m->digest, &all, &cut);
    for (int r = 1; r < ckpt_world(s) && rc == ERR_OK; r++)
        if (memcmp(all, (char *)all + cut[r], CKPT_DIGEST) != 0)
            rc = err_set(ERR_DATA, "%s: rank %d has another checkpoint of this name than rank 0", dir, r);
    free(all), free(cut);
    return rc;
}

err_t ckpt_load(const char *ckpt_dir, ckpt_state *s, run_progress *at, bool foreign) {
    manifest m;
    err_t rc = manifest_read(&m, ckpt_dir);
    if (rc == ERR_OK) rc = ckpt_fits(ckpt_dir, &m, s, foreign);
    rc = ckpt_agree(s, rc);
    if (rc == ERR_OK && !ckpt_alone(s)) rc = same_manifest(ckpt_dir, &m, s);
    if (rc == ERR_OK) rc = ckpt_read(ckpt_dir, &m, s);
    if (rc == ERR_OK) rc = ckpt_adopt(ckpt_dir, &m, s, at, foreign);
    manifest_close(&m);
    return rc;
}

err_t ckpt_peek(const char *ckpt_dir, ckpt_state *s, run_progress *at) {
    manifest m;
    memset(s, 0, sizeof *s);
    err_t rc = manifest_read(&m, ckpt_dir);
    if (rc == ERR_OK) {
        *at = m.at;
        s->keys = m.keys;
        memcpy(s->key, m.key, (size_t)m.keys * sizeof *m.key);
        memcpy(s->data_hash, m.data_hash, sizeof s->data_hash);
        memcpy(s->build, m.build, sizeof s->build);
    }
    manifest_close(&m);
    return rc;
}

// The state that the manifest describes; its tables have no memory to read into.
static void describe_all(ckpt_state *s, const manifest *m, ckpt_tensor *table) {
    s->params = m->params;
    s->groups = m->groups;
    for (int g = 0; g < m->groups; g++) {
        s->group[g] = (ckpt_group){m->group[g], table + (size_t)g * (size_t)m->params};
        for (int i = 0; i < m->params; i++) {
            const manifest_tensor *from = &m->tensor[g * m->params + i];
            ckpt_tensor *t = &s->group[g].tensor[i];
            *t = (ckpt_tensor){.dims = from->dims,
                               .axis = from->axis,
                               .slices = from->slices,
                               .split = from->split,
                               .count = shape_count(from->dims, from->size)};
            memcpy(t->size, from->size, sizeof t->size);
            snprintf(t->name, sizeof t->name, "%s", m->tensor[i].name);  // the parameter's
        }
    }
}

err_t ckpt_digest_dir(const char *dir, const manifest *m, const run_progress *at, uint8_t state[CKPT_DIGEST]) {
    ckpt_state *s = calloc(1, sizeof *s);
    ckpt_group *group = calloc((size_t)m->groups, sizeof *group);
    ckpt_tensor *table = calloc((size_t)m->groups * (size_t)m->params, sizeof *table);
    err_t rc = s && group && table ? ERR_OK : err_set(ERR_INTERNAL, "%s: no memory to read it", dir);
    state_digest all;
    if (rc == ERR_OK) {
        s->group = group;
        describe_all(s, m, table);
        s->row_digests = m->rows.width ? row_digests_open() : NULL;
        if (m->rows.width && !s->row_digests) rc = err_set(ERR_INTERNAL, "%s: no memory to read it", dir);
    }
    if (rc == ERR_OK) { rc = read_and_digest(dir, m, s, &all); }
    if (rc == ERR_OK) end_digest(&all, m, at, state);
    if (s) free(s->row_digests);
    free(s), free(group), free(table);
    return rc;
}

err_t ckpt_hash_dir(const char *ckpt_dir, char hash[17], char state_hash[17]) {
    manifest m;
    uint8_t state[CKPT_DIGEST];
    err_t rc = manifest_read(&m, ckpt_dir);
    if (rc == ERR_OK) rc = ckpt_digest_dir(ckpt_dir, &m, &m.at, state);
    if (rc == ERR_OK) {
        memcpy(hash, m.hash, sizeof m.hash);
        memcpy(state_hash, m.state_hash, sizeof m.state_hash);
    }
    manifest_close(&m);
    return rc;
}
