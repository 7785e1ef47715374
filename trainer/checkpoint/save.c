// trainer/checkpoint/save.c: the ranks write a checkpoint together. Nodes share no disk, and any process may be killed
// at any instant. The order of steps makes the result whole; after each step all ranks agree that it succeeded:
//
//   1  a node's first rank makes .tmp-step-N
//   2  each rank writes and fsyncs its files there; digests are gathered; each file is read back
//   3  each file is copied to the next node, fsynced and read back there
//   4  a node's first rank writes the manifest, the same on all nodes, and fsyncs the directory
//   5  a node's first rank renames .tmp-step-N to step-N; an earlier step-N is set aside as .old-step-N
//   6  a node's first rank removes .old-step-N and older checkpoints
//
// Once a manifest exists anywhere, every file is on its node's disk and on the next node's. From then on the nodes
// together have the whole checkpoint, under whatever names, and the next start may finish it (nodes.c). Nothing older
// is removed before all nodes have renamed: until then the previous checkpoint is complete too.
//
// When a rank fails, all learn of it at the next agreement, and every node undoes what it did. When ranks are lost, the
// others can't know how far those got, and no node undoes anything: it could remove the only copy of files that another
// node has just renamed.
#include "trainer/checkpoint/save.h"

#include "model/safetensors.h"
#include "trainer/checkpoint/away.h"
#include "trainer/checkpoint/copy.h"
#include "trainer/checkpoint/describe.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/read.h"
#include "trainer/checkpoint/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef ckpt_saving save;

// What a rank reports of the files that it wrote.
typedef struct record {
    int64_t bytes;
    uint8_t header[CKPT_DIGEST];
} record;

// --- this rank's files -----------------------------------------------------------------------------------------------

// Where ranks are lost the rest is of no use to anybody.
static err_t put_group(st_writer *to, ckpt_work *w, int group, const ckpt_tensor *t) {
    uint8_t *chunk = w->mine[group];
    for (int i = 0; i < w->params; i++) {
        TRY(ckpt_query(w->of));
        for (int64_t k = 0, n; k < t[i].count; k += n) {
            const float *x;
            n = order_piece(&w->order[i], t[i].first + k, t[i].first + t[i].count);
            TRY(away_get(&t[i], k, n, &x));
            chunk = chunk_digests(&w->order[i], t[i].first + k, n, x, chunk);
            TRY(st_put(to, x, (size_t)n * 4));
            ckpt_beat(&w->of->pulse);
        }
    }
    return ERR_OK;
}

// Fills in the header's entries for this rank's parts in file f. Returns how many.
static int declare(const save *x, int f, st_tensor *table) {
    int count = 0;
    for (int i = 0; i < x->m.groups * x->m.params; i++) {
        const manifest_tensor *t = &x->m.tensor[i];
        for (const manifest_part *p = x->m.part + t->part; p < x->m.part + t->part + t->parts; p++) {
            if (p->file != f) continue;
            st_tensor *to = &table[count++];
            *to = (st_tensor){.type = ST_F32, .dims = 1, .size = {p->count}};
            manifest_part_name(to->name, t, p);
            if (strcmp(to->name, t->name) != 0) continue;
            to->dims = t->dims;
            memcpy(to->size, t->size, sizeof to->size);
        }
    }
    return count;
}

// Digests the bytes in memory, never the file's: an error of the disk must not become what the manifest expects.
static void digest_header(const st_writer *w, uint8_t out[CKPT_DIGEST]) {
    digest d;
    size_t n;
    const char *head = st_head(w, &n);
    digest_begin(&d);
    digest_put(&d, head, n);
    digest_end(&d, out);
}

// Groups first to end - 1 into file f.
static err_t write_file(save *x, int f, int first, int end) {
    // what other readers look for: plain arrays, row by row
    static const char *const metadata[] = {"format", "pt", NULL};
    manifest_file *say = &x->m.file[f];
    char path[IO_PATH];
    st_writer w;
    TRY(io_path(path, "%s/%s", x->tmp, say->name));
    st_tensor *table = calloc((size_t)manifest_parts_in(&x->m, f), sizeof *table);
    if (!table) return err_set(ERR_INTERNAL, "%s: no memory for its table of tensors", path);
    int count = declare(x, f, table), level = x->s->compress;
    err_t rc = level ? st_create_blocks(&w, path, table, count, metadata, level, x->faults)
                     : st_create(&w, path, table, count, metadata, x->faults);
    free(table);
    TRY(rc);
    for (int g = first; g < end && rc == ERR_OK; g++) rc = put_group(&w, x->w, g, x->s->group[g].tensor);
    if (rc == ERR_OK) {
        digest_header(&w, say->header);
        return st_finish(&w, &say->bytes);
    }
    st_abort(&w);
    return rc;
}

static err_t write_rows(save *x) {
    int file = manifest_find_file(&x->m, FILE_TABLE, x->w->rank);
    char path[IO_PATH];
    if (file < 0) return ERR_OK;
    TRY(io_path(path, "%s/%s", x->tmp, x->m.file[file].name));
    return ckpt_rows_write(&x->m, x->s, path, file, x->faults);
}

static err_t write_files(save *x) {
    int model = manifest_find_file(&x->m, FILE_MODEL, x->w->rank),
        optimizer = manifest_find_file(&x->m, FILE_OPTIMIZER, x->w->rank);
    if (model >= 0) TRY(write_file(x, model, GROUP_MASTER, GROUP_OPTIMIZER));
    if (optimizer >= 0) TRY(write_file(x, optimizer, GROUP_OPTIMIZER, x->m.groups));
    return write_rows(x);
}

static err_t verify_files(const save *x) {
    for (int f = 0; f < x->m.files; f++) {
        char path[IO_PATH];
        if (x->m.file[f].rank != x->w->rank) continue;
        TRY(io_path(path, "%s/%s", x->tmp, x->m.file[f].name));
        err_t rc = ckpt_verify_file(path, &x->m, f);
        if (rc != ERR_OK) err_prefix("the new checkpoint can't be read back and is not used");
        TRY(rc);
    }
    return ERR_OK;
}

// --- the manifest ----------------------------------------------------------------------------------------------------

static err_t gather_records(save *x) {
    record mine[FILE_KINDS] = {0};
    void *all;
    size_t *cut;
    for (int kind = 0; kind < FILE_KINDS; kind++) {
        int f = manifest_find_file(&x->m, kind, x->w->rank);
        if (f < 0) continue;
        mine[kind].bytes = x->m.file[f].bytes;
        memcpy(mine[kind].header, x->m.file[f].header, CKPT_DIGEST);
    }
    err_t rc = ckpt_gather(x->s, mine, sizeof mine, &all, &cut);
    for (int f = 0; f < x->m.files && rc == ERR_OK; f++) {
        const record *r = (const record *)all + x->m.file[f].rank * FILE_KINDS + x->m.file[f].kind;
        x->m.file[f].bytes = r->bytes;
        memcpy(x->m.file[f].header, r->header, CKPT_DIGEST);
    }
    free(all), free(cut);
    return rc;
}

// Of rows on demand: the parts, and what is added to the state's and the masters' digests.
static err_t gather_rows(save *x, state_digest *d, uint8_t masters[CKPT_DIGEST]) {
    uint8_t rows[2][CKPT_DIGEST];
    manifest_rows *m = &x->m.rows;
    TRY(ckpt_rows_digest(x->s));
    for (manifest_rows_part *p = m->part; p < m->part + m->parts; p++)
        rows_part_digest(x->s->row_digests, p->first, p->buckets, p->digest);
    rows_table_digest(x->s->row_digests, m->name, m->width, rows);
    for (int k = 0; k < 2; k++) state_digest_put(d, rows[k]);
    rows_hash(rows[ROWS_VALUES], rows[ROWS_SUMS], m->digest);
    rows_hash(masters, rows[ROWS_VALUES], masters);
    return ERR_OK;
}

// Digests of all parts, tensors and groups, the same as one rank would compute.
static err_t gather_digests(save *x) {
    uint8_t group[CKPT_DIGEST], state[CKPT_DIGEST], masters[CKPT_DIGEST];
    state_digest d;
    state_digest_begin(&d);
    for (int g = 0; g < x->w->groups; g++) {
        TRY(work_gather(x->w, g));
        work_group_digest(x->w, x->s->group[g].tensor, group);
        state_digest_put(&d, group);
        if (g == GROUP_MASTER) memcpy(masters, group, sizeof masters);
        for (int i = 0; i < x->m.params; i++) {
            manifest_tensor *t = &x->m.tensor[g * x->m.params + i];
            work_part_digest(x->w, i, 0, shape_count(t->dims, t->size), t->digest);
            for (manifest_part *p = x->m.part + t->part; p < x->m.part + t->part + t->parts; p++)
                work_part_digest(x->w, i, manifest_part_first(t, p), p->count, p->digest);
        }
    }
    if (x->s->rows) TRY(gather_rows(x, &d, masters));
    digest_hex(x->m.hash, masters, 8);
    for (int k = 0; k < x->m.scalars; k++) state_digest_scalar(&d, x->m.scalar[k].name, x->m.scalar[k].value);
    state_digest_end(&d, x->at, state);
    digest_hex(x->m.state_hash, state, 8);
    return ERR_OK;
}

static err_t put_manifest(const save *x, const char *text, size_t size) {
    char path[IO_PATH], *again;
    uint8_t digest[CKPT_DIGEST];
    size_t n;
    TRY(io_path(path, "%s/manifest.json", x->tmp));
    TRY(io_write_file(path, text, size, x->faults));  // also fsyncs the directory
    TRY(manifest_text(x->tmp, &again, &n, digest));
    bool same = n == size && memcmp(again, text, n) == 0;
    free(again);
    return same ? ERR_OK : err_set(ERR_DATA, "%s: reads back with other bytes than were written: not used", path);
}

// All nodes write rank 0's text: the manifests must be identical.
static err_t write_manifest(save *x) {
    char *text = NULL;
    size_t size = 0;
    err_t rc = ckpt_agree(x->s, x->w->rank == 0 ? manifest_print(&x->m, &text, &size) : ERR_OK);
    if (rc == ERR_OK && !ckpt_alone(x->s)) rc = ckpt_broadcast_text(x->s, &text, &size, 0);
    if (rc == ERR_OK) rc = ckpt_agree(x->s, ckpt_leads(x->s) ? put_manifest(x, text, size) : ERR_OK);
    free(text);
    return rc;
}

// --- all of it -------------------------------------------------------------------------------------------------------

static err_t make_directory(const save *x) {
    TRY(ckpt_open_directory(x->run_dir, x->faults));
    TRY(ckpt_clean_node(x->run_dir));
    if (mkdir(x->tmp, 0755) != 0) return err_set(ERR_IO, "%s: mkdir: %s", x->tmp, strerror(errno));
    return ERR_OK;
}

static err_t write_all(save *x) {
    TRY(ckpt_agree(x->s, x->why.code ? err_restore(&x->why) : ERR_OK));
    if (x->s->rows) TRY(ckpt_rows_describe(&x->m, x->s));
    fault_kill(x->faults, FAULT_SAVE);
    TRY(ckpt_agree(x->s, ckpt_leads(x->s) ? make_directory(x) : ERR_OK));
    TRY(ckpt_agree(x->s, write_files(x)));
    fault_kill(x->faults, FAULT_SAVE);
    TRY(gather_records(x));
    TRY(gather_digests(x));
    TRY(ckpt_agree(x->s, verify_files(x)));
    if (ckpt_nodes(x->s) > 1) TRY(ckpt_copy_to_buddies(x->tmp, &x->m, x->s, x->faults));
    TRY(write_manifest(x));
    fault_kill(x->faults, FAULT_SAVE);
    x->renaming = true;
    TRY(ckpt_agree(x->s, ckpt_leads(x->s) ? ckpt_commit_node(x->run_dir, x->at->step, x->faults) : ERR_OK));
    fault_kill(x->faults, FAULT_SAVE);
    return ERR_OK;
}

static void undo(const save *x) {
    if (ckpt_cut_off(x->s) || !ckpt_leads(x->s)) return;
    if (x->renaming) ckpt_undo_node(x->run_dir, x->at->step);
    io_remove_tree(x->tmp);
}

static err_t remove_older(const save *x, int keep) {
    char old[IO_PATH];
    TRY(ckpt_path(old, x->run_dir, KIND_OLD, x->at->step));
    TRY(io_remove_tree(old));
    return ckpt_prune_node(x->run_dir, x->at->step, x->at->step - x->at->bad_steps, keep);
}

static err_t begin(save *x) {
    TRY(ckpt_path(x->tmp, x->run_dir, KIND_TMP, x->at->step));
    TRY(work_open(&x->w, x->s));
    return manifest_open(&x->m, x->s, x->at, x->w);
}

void saving_open(ckpt_saving *x, const char *run_dir, const ckpt_state *s, const run_progress *at, fault_list *faults) {
    *x = (ckpt_saving){.run_dir = run_dir, .s = s, .at = at, .faults = faults};
    if (begin(x) != ERR_OK) x->why = *err_last();
}

void saving_close(ckpt_saving *x) {
    if (x->w) work_close_own(x->w, x->s);
    manifest_close(&x->m);
    x->w = NULL;
}

err_t saving_write(ckpt_saving *x, int keep) {
    err_t rc = write_all(x);
    if (rc != ERR_OK) {
        err_record why = *err_last();
        undo(x);
        return err_restore(&why);
    }
    rc = ckpt_agree(x->s, ckpt_leads(x->s) ? remove_older(x, keep) : ERR_OK);
    if (rc != ERR_OK) err_prefix("step %" PRId64 " is saved, but what it replaces can't be removed", x->at->step);
    return rc;
}

err_t ckpt_save(const char *run_dir, const ckpt_state *s, const run_progress *at, int keep, fault_list *faults) {
    save x;
    saving_open(&x, run_dir, s, at, faults);
    err_t rc = saving_write(&x, keep);
    saving_close(&x);
    return rc;
}
