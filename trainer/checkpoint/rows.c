// trainer/checkpoint/rows.c: see trainer/checkpoint/rows.h.
#include "trainer/checkpoint/rows.h"

#include "base/io.h"
#include "model/safetensors.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4096 };  // rows that are read or written at once

// --- digests ---------------------------------------------------------------------------------------------------------

// Of the bucket that is read or walked.
typedef struct bucket_digest {
    digest values, sums;
} bucket_digest;

static void begin_bucket(bucket_digest *b) {
    digest_begin(&b->values);
    digest_begin(&b->sums);
}

static void put_row(bucket_digest *b, row_key k, const float *row, float sum, int64_t width) {
    const uint64_t name[2] = {row_id(k), k.table};
    digest_put(&b->values, name, sizeof name);
    digest_put(&b->values, row, (size_t)width * sizeof *row);
    digest_put(&b->sums, &sum, sizeof sum);
}

static void end_bucket(bucket_digest *b, uint8_t out[2][CKPT_DIGEST]) {
    digest_end(&b->values, out[ROWS_VALUES]);
    digest_end(&b->sums, out[ROWS_SUMS]);
}

row_digests *row_digests_open(void) {
    row_digests *x = malloc(sizeof *x);
    bucket_digest none;
    begin_bucket(&none);
    if (x) end_bucket(&none, x->of[0]);
    for (int k = 1; x && k < ROW_BUCKETS; k++) memcpy(x->of[k], x->of[0], sizeof x->of[k]);
    return x;
}

void rows_part_digest(const row_digests *x, int first, int buckets, uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    digest_put(&d, x->of[first], (size_t)buckets * sizeof *x->of);
    digest_end(&d, out);
}

void rows_table_digest(const row_digests *x, const char *name, int64_t width, uint8_t out[2][CKPT_DIGEST]) {
    int64_t length = (int64_t)strlen(name);
    for (int which = 0; which < 2; which++) {
        digest d;
        digest_begin(&d);
        digest_put(&d, &length, sizeof length);
        digest_put(&d, name, (size_t)length);
        digest_put(&d, &width, sizeof width);
        for (int k = 0; k < ROW_BUCKETS; k++) digest_put(&d, x->of[k][which], CKPT_DIGEST);
        digest_end(&d, out[which]);
    }
}

void rows_hash(const uint8_t masters[CKPT_DIGEST], const uint8_t values[CKPT_DIGEST], uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    digest_put(&d, masters, CKPT_DIGEST);
    digest_put(&d, values, CKPT_DIGEST);
    digest_end(&d, out);
}

// A walk over buckets that follow each other begins once.
static err_t digest_changed(row_table *t, row_digests *x) {
    const row_options *o = row_table_about(t);
    bool *changed = row_table_changed(t), more = false;
    row_walk w = {.rc = ERR_OK};
    for (int b = o->first, at = -1; b < o->first + o->buckets; b++) {
        bucket_digest d;
        if (!changed[b]) continue;
        if (at != b) {
            row_table_begin(t, b, &w);
            more = row_table_next(t, &w);
        }
        begin_bucket(&d);
        for (; more && row_bucket(w.key) == b; more = row_table_next(t, &w))
            put_row(&d, w.key, w.row, *w.sum, o->width);
        if (w.rc != ERR_OK) return w.rc;
        end_bucket(&d, x->of[b]);
        changed[b] = false, at = b + 1;
    }
    return ERR_OK;
}

static err_t gather_digests(const ckpt_state *s) {
    size_t cut[ckpt_world(s) + 1];
    for (int r = 0; r <= ckpt_world(s); r++) cut[r] = (size_t)s->row_cut[r] * sizeof *s->row_digests->of;
    return ckpt_alone(s) ? ERR_OK : ckpt_all_gather(s, s->row_digests->of, cut);
}

err_t ckpt_rows_digest(const ckpt_state *s) {
    TRY(ckpt_agree(s, digest_changed(s->rows, s->row_digests)));
    return gather_digests(s);
}

// --- writing ---------------------------------------------------------------------------------------------------------

err_t ckpt_rows_describe(manifest *m, const ckpt_state *s) {
    int64_t mine = row_table_rows(s->rows);
    void *all = NULL;
    size_t *cut = NULL;
    manifest_rows *x = &m->rows;
    *x = (manifest_rows){.width = row_table_about(s->rows)->width};
    snprintf(x->name, sizeof x->name, "%s", s->rows_name);
    x->part = calloc((size_t)m->world, sizeof *x->part);
    TRY(ckpt_agree(s, x->part ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the parts of %d ranks", m->world)));
    err_t rc = ckpt_gather(s, &mine, sizeof mine, &all, &cut);
    for (int r = 0; r < m->world && rc == ERR_OK; r++) {
        int64_t rows = *(const int64_t *)(const void *)((char *)all + cut[r]);
        if (rows == 0) continue;
        manifest_file *f = &m->file[m->files];
        *f = (manifest_file){.kind = FILE_TABLE, .rank = r};
        manifest_file_name(f->name, FILE_TABLE, r, m->world, false);
        snprintf(f->host, sizeof f->host, "%s", ckpt_alone(s) ? "localhost" : s->ranks->place[r].host);
        x->part[x->parts++] = (manifest_rows_part){
            .file = m->files++, .first = s->row_cut[r], .buckets = s->row_cut[r + 1] - s->row_cut[r], .rows = rows};
        x->rows += rows;
    }
    free(all), free(cut);
    return rc;
}

static void name_tensors(st_tensor t[ROW_TENSORS], const manifest_rows *x, int64_t rows) {
    static const char *const what[ROW_TENSORS] = {"id", "table", "row", "sum"};
    static const st_type type[ROW_TENSORS] = {ST_U64, ST_U32, ST_F32, ST_F32};
    for (int k = 0; k < ROW_TENSORS; k++) {
        t[k] = (st_tensor){.type = type[k], .dims = 1, .size = {rows}};
        snprintf(t[k].name, sizeof t[k].name, "%s.%s", x->name, what[k]);
    }
    t[2].dims = 2, t[2].size[1] = x->width;
}

// One of the tensors, row after row. piece: room for PIECE rows.
static err_t put_tensor(st_writer *w, const ckpt_state *s, int which, char *piece) {
    const row_options *o = row_table_about(s->rows);
    const size_t each[ROW_TENSORS] = {8, 4, (size_t)o->width * sizeof(float), sizeof(float)};
    row_walk at;
    size_t n = 0;
    row_table_begin(s->rows, o->first, &at);
    at.keys_only = which < 2;
    while (row_table_next(s->rows, &at)) {
        const uint64_t id = row_id(at.key);
        const uint32_t table = (uint32_t)at.key.table;
        const void *from[ROW_TENSORS] = {&id, &table, at.row, at.sum};  // of the first two no row is read
        memcpy(piece + n++ * each[which], from[which], each[which]);
        if (n < PIECE) continue;
        TRY(st_put(w, piece, n * each[which]));
        ckpt_beat(&s->pulse);
        n = 0;
    }
    TRY(at.rc);
    return n ? st_put(w, piece, n * each[which]) : ERR_OK;
}

err_t ckpt_rows_write(manifest *m, const ckpt_state *s, const char *path, int file, fault_list *faults) {
    static const char *const metadata[] = {"format", "pt", NULL};
    st_tensor t[ROW_TENSORS];
    st_writer w;
    digest d;
    size_t head;
    char *piece = malloc((size_t)PIECE * ((size_t)m->rows.width * sizeof(float) + 8));
    if (!piece) return err_set(ERR_INTERNAL, "%s: no memory for a piece of it", path);
    name_tensors(t, &m->rows, row_table_rows(s->rows));
    err_t rc = st_create(&w, path, t, ROW_TENSORS, metadata, faults);
    bool begun = rc == ERR_OK;
    for (int k = 0; k < ROW_TENSORS && rc == ERR_OK; k++) rc = put_tensor(&w, s, k, piece);
    free(piece);
    if (rc == ERR_OK) {
        digest_begin(&d);
        const char *text = st_head(&w, &head);
        digest_put(&d, text, head);
        digest_end(&d, m->file[file].header);
        return st_finish(&w, &m->file[file].bytes);
    }
    if (begun) st_abort(&w);
    return rc;
}

// --- reading ---------------------------------------------------------------------------------------------------------

typedef struct part_reader {
    const st_file *f;
    const manifest_rows *of;
    const manifest_rows_part *p;
    const st_tensor *at[ROW_TENSORS];
    uint64_t *id;
    uint32_t *table;
    float *row, *sum;  // of PIECE rows
    row_table *to;
    row_digests *found;  // of the part's buckets
    bucket_digest d;
    int bucket;  // that is digested
    row_key before;
} part_reader;

static err_t find_tensors(part_reader *x) {
    st_tensor is[ROW_TENSORS];
    name_tensors(is, x->of, x->p->rows);
    for (int k = 0; k < ROW_TENSORS; k++) {
        const st_tensor *t = x->at[k] = st_find(x->f, is[k].name);
        if (!t) return err_set(ERR_DATA, "%s: tensor %s is missing", x->f->path, is[k].name);
        if (t->type != is[k].type || t->dims != is[k].dims ||
            memcmp(t->size, is[k].size, sizeof *t->size * (size_t)t->dims))
            return err_set(ERR_DATA, "%s: tensor %s has another type or shape than the manifest says", x->f->path,
                           t->name);
    }
    return ERR_OK;
}

static err_t read_rows(const part_reader *x, int which, int64_t first, int64_t n, void *to) {
    const st_tensor *t = x->at[which];
    int64_t each = t->bytes / x->p->rows;
    return io_read_at(x->f->fd, x->f->path, t->offset + first * each, to, (size_t)(n * each));
}

static err_t damaged(const part_reader *x) {
    return err_set(ERR_DATA,
                   "%s: the rows of buckets %d to %d have another digest than the manifest says: the file is damaged",
                   x->f->path, x->p->first, x->p->first + x->p->buckets - 1);
}

static void end_buckets(part_reader *x, int next) {
    if (next == x->bucket) return;
    if (x->bucket >= 0) end_bucket(&x->d, x->found->of[x->bucket]);
    x->bucket = next;
    begin_bucket(&x->d);
}

// Rows that are damaged may be anywhere: they are looked at before they are used.
static err_t take_row(part_reader *x, int64_t i) {
    row_key k = row_key_of(x->table[i], x->id[i]);
    int b = row_bucket(k);
    bool in = b >= x->p->first && b < x->p->first + x->p->buckets;
    if (!in || (x->bucket >= 0 && !row_less(x->before, k))) return damaged(x);
    end_buckets(x, b);
    put_row(&x->d, k, x->row + i * x->of->width, x->sum[i], x->of->width);
    x->before = k;
    if (!x->to) return ERR_OK;
    const row_options *o = row_table_about(x->to);
    if (b < o->first || b >= o->first + o->buckets) return ERR_OK;
    return row_table_put(x->to, k, x->row + i * o->width, x->sum[i]);
}

static err_t read_all(part_reader *x, const ckpt_pulse *pulse) {
    uint8_t digest[CKPT_DIGEST];
    TRY(find_tensors(x));
    for (int64_t at = 0, n; at < x->p->rows; at += n) {
        n = x->p->rows - at < PIECE ? x->p->rows - at : PIECE;
        TRY(read_rows(x, 0, at, n, x->id));
        TRY(read_rows(x, 1, at, n, x->table));
        TRY(read_rows(x, 2, at, n, x->row));
        TRY(read_rows(x, 3, at, n, x->sum));
        for (int64_t i = 0; i < n; i++) TRY(take_row(x, i));
        ckpt_beat(pulse);
    }
    end_buckets(x, ROW_BUCKETS);
    rows_part_digest(x->found, x->p->first, x->p->buckets, digest);
    return memcmp(digest, x->p->digest, sizeof digest) == 0 ? ERR_OK : damaged(x);
}

static void keep_digests(const part_reader *x, row_digests *to) {
    const row_options *o = x->to ? row_table_about(x->to) : NULL;
    for (int b = x->p->first; to && b < x->p->first + x->p->buckets; b++)
        if (!o || (b >= o->first && b < o->first + o->buckets)) memcpy(to->of[b], x->found->of[b], sizeof *to->of);
}

err_t ckpt_rows_read_part(const st_file *f, const manifest *m, int file, row_table *table, row_digests *to) {
    part_reader x = {.f = f, .of = &m->rows, .p = m->rows.part, .to = table, .bucket = -1};
    size_t D = (size_t)m->rows.width;
    while (x.p->file != file) x.p++;
    x.id = malloc(PIECE * sizeof *x.id), x.table = malloc(PIECE * sizeof *x.table);
    x.row = malloc(PIECE * D * sizeof *x.row), x.sum = malloc(PIECE * sizeof *x.sum);
    x.found = row_digests_open();
    err_t rc = x.id && x.table && x.row && x.sum && x.found
                   ? read_all(&x, &m->pulse)
                   : err_set(ERR_INTERNAL, "%s: no memory to read its rows", f->path);
    if (rc == ERR_OK) keep_digests(&x, to);
    free(x.id), free(x.table), free(x.row), free(x.sum), free(x.found);
    return rc;
}
