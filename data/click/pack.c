// data/click/pack.c: see data/click/pack.h.
#include "data/click/pack.h"

#include "base/fmath.h"
#include "base/philox.h"
#include "data/click/lines.h"
#include "data/click/planted.h"
#include "data/click/rated.h"
#include "data/click/shard.h"
#include "data/files.h"
#include "data/shard_set.h"
#include "data/text/document.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define SPLIT_SEED 20090612  // any number: which records are for validation never changes

_Static_assert((int)CLICK_TRAIN == (int)SPLIT_TRAIN && (int)CLICK_VAL == (int)SPLIT_VAL, "splits");

typedef struct pack {
    const click_pack_options *o;
    click_pack_report *r;
    int split;                     // of what is read; SPLITS: by chance
    click_writer *writer[SPLITS];  // NULL: none open
    int64_t in_shard[SPLITS];
    double loss[SPLITS], entropy[SPLITS];  // sums
    shard_set set;
} pack;

// --- shards ----------------------------------------------------------------------------------------------------------

static err_t seal(pack *p, int split) {
    if (!p->writer[split]) return ERR_OK;
    TRY(click_write_seal(p->writer[split]));
    TRY(shard_set_keep(&p->set, split, p->writer[split]));
    p->writer[split] = NULL;
    p->in_shard[split] = 0;
    return ERR_OK;
}

static int split_of(const pack *p, int64_t n) {
    uint32_t bits[4];
    if (p->split < SPLITS) return p->split;
    philox4x32(bits, SPLIT_SEED, (uint32_t)n, SITE_CLICKS, (uint32_t)(n >> 32), 0);
    return (double)bits[0] * 0x1p-32 < p->o->val_fraction ? SPLIT_VAL : SPLIT_TRAIN;
}

static err_t put(pack *p, const click *c) {
    char path[IO_PATH];
    int s = split_of(p, p->r->records[0] + p->r->records[1]);
    if (!p->writer[s]) {
        if (p->set.shards[s] == SHARDS_MAX)
            return err_set(ERR_CONFIG, "[pack] shard_records = %" PRId64 " makes more than %d shards: raise it",
                           p->o->shard_records, SHARDS_MAX);
        TRY(shard_set_path(&p->set, path, s, p->set.shards[s], ".tmp"));
        TRY(click_write_open(&p->writer[s], path, (click_form){p->r->dense, p->r->tables, p->r->rated}));
    }
    TRY(click_write(p->writer[s], c));
    p->r->records[s]++, p->r->labels[s] += (double)c->label;
    return ++p->in_shard[s] == p->o->shard_records ? seal(p, s) : ERR_OK;
}

// --- what comes in ---------------------------------------------------------------------------------------------------

static err_t put_line(pack *p, const uint8_t *line, int64_t n) {
    click c;
    int64_t threshold = p->r->rated ? 0 : p->o->threshold;
    TRY(p->o->kind == CLICKS_CRITEO ? criteo_line(&c, line, n) : movielens_line(&c, line, n, threshold));
    return put(p, &c);
}

static err_t put_file(pack *p, const char *path) {
    document_reader *d;
    const uint8_t *line;
    int64_t n, number = 0;
    TRY(document_open(&d, path, NULL));
    err_t rc = ERR_OK;
    for (bool more = true; rc == ERR_OK && more;) {
        rc = document_line(d, &line, &n, &more);
        if (rc != ERR_OK || !more) break;
        number++;
        if (n > 0 && line[n - 1] == '\r') n--;
        if (number == 1 && p->o->kind != CLICKS_CRITEO && movielens_header(line, n)) continue;
        if ((rc = put_line(p, line, n)) == ERR_DATA) rc = err_prefix("%s: line %" PRId64, path, number);
    }
    document_close(d);
    return rc;
}

static err_t put_files(pack *p, const char *input) {
    file_list files = {0};
    err_t rc =
        files_expand(&files, input, (files_hint){"", "[pack] input and val_input name files of clicks or ratings"});
    for (int i = 0; rc == ERR_OK && i < files.count; i++) rc = put_file(p, files.path[i]);
    files_free(&files);
    return rc;
}

static double entropy_of(double chance) {
    return chance <= 0 || chance >= 1 ? 0 : -chance * fm_log(chance) - (1 - chance) * fm_log(1 - chance);
}

static err_t put_planted(pack *p) {
    uint64_t seed;
    int64_t records, ids;
    planted *from;
    click c;
    double chance;
    TRY(planted_parse(p->o->input, &seed, &records, &ids));
    TRY(planted_open(&from, seed, ids));
    err_t rc = ERR_OK;
    for (int64_t n = 0; rc == ERR_OK && n < records; n++) {
        int s = split_of(p, n);
        planted_record(from, n, &c, &chance);
        p->loss[s] -= fm_log(c.label ? chance : 1 - chance), p->entropy[s] += entropy_of(chance);
        rc = put(p, &c);
    }
    planted_close(from);
    return rc;
}

static err_t put_rated(pack *p) {
    rated_shape shape;
    rated *from;
    click c;
    double mean, variance;
    TRY(rated_parse(p->o->input, &shape));
    TRY(rated_open(&from, &shape));
    err_t rc = ERR_OK;
    for (int64_t n = 0; rc == ERR_OK && n < shape.records; n++) {
        int s = split_of(p, n);
        rated_record(from, n, &c, &mean, &variance);
        double off = (double)c.label - mean;
        p->loss[s] += off * off, p->entropy[s] += variance;
        rc = put(p, &c);
    }
    rated_close(from);
    return rc;
}

// --- all of it -------------------------------------------------------------------------------------------------------

static bool has_val(const click_pack_options *o) { return o->val_input && *o->val_input; }

static bool made_up(const click_pack_options *o) {
    return o->kind == CLICKS_PLANTED || (o->kind == CLICKS_RATINGS && rated_begins(o->input));
}

static err_t check(const click_pack_options *o) {
    if (!o->input || !*o->input || !o->output || !*o->output)
        return err_set(ERR_CONFIG, "[pack] input and output: expected both");
    if (o->shard_records < 1)
        return err_set(ERR_CONFIG, "[pack] shard_records = %" PRId64 ", expected at least 1", o->shard_records);
    if (made_up(o) && has_val(o))
        return err_set(ERR_CONFIG,
                       "[pack] val_input = %s: of made-up records val_fraction is for validation: leave it out",
                       o->val_input);
    if (o->val_fraction >= 0 && o->val_fraction < 1) return ERR_OK;
    return err_set(ERR_CONFIG, "[pack] val_fraction = %g, expected 0 to less than 1", o->val_fraction);
}

static err_t finish(pack *p) {
    for (int s = 0; s < SPLITS; s++) TRY(seal(p, s));
    if (p->r->records[SPLIT_TRAIN] == 0)
        return err_set(ERR_DATA, "[pack] input = %s: no record is left for training: %" PRId64 " are for validation",
                       p->o->input, p->r->records[SPLIT_VAL]);
    for (int s = 0; s < SPLITS; s++) {
        double n = p->r->records[s] ? (double)p->r->records[s] : 1;
        p->r->best[s] = p->loss[s] / n, p->r->entropy[s] = p->entropy[s] / n;
        for (int k = 0; k < p->set.shards[s]; k++) TRY(click_write_finish(p->set.sealed[s][k], p->r->best[s]));
    }
    // all new files are on disk: a crash from here on leaves too few files, never a mixture
    TRY(shard_set_clear(&p->set, true));
    TRY(shard_set_rename(&p->set, &p->r->shards_out));
    return shard_set_clear(&p->set, false);
}

// The time of a rating is left out: what is learnt is who likes what.
static void size_up(pack *p) {
    bool movies = p->o->kind == CLICKS_MOVIELENS;
    p->r->rated = p->o->kind == CLICKS_RATINGS;
    p->r->dense = p->r->rated ? 0 : movies ? MOVIELENS_DENSE : CRITEO_DENSE;
    p->r->tables = p->r->rated || movies ? MOVIELENS_TABLES : CRITEO_TABLES;
    p->split = has_val(p->o) ? SPLIT_TRAIN : SPLITS;
}

static err_t put_all_files(pack *p) {
    TRY(put_files(p, p->o->input));
    if (!has_val(p->o)) return ERR_OK;
    p->split = SPLIT_VAL;
    return put_files(p, p->o->val_input);
}

static err_t run(pack *p) {
    TRY(check(p->o));
    size_up(p);
    TRY(shard_set_begin(&p->set));
    if (made_up(p->o)) TRY(p->r->rated ? put_rated(p) : put_planted(p));
    else TRY(put_all_files(p));
    return finish(p);
}

err_t click_pack_run(const click_pack_options *o, click_pack_report *r) {
    pack p = {.o = o, .r = r, .set.output = o->output};
    *r = (click_pack_report){0};
    err_t rc = run(&p);
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    if (rc != ERR_OK) shard_set_drop(&p.set, (bool[SPLITS]){p.writer[0] != NULL, p.writer[1] != NULL});
    for (int s = 0; s < SPLITS; s++) {
        for (int k = 0; k < p.set.shards[s]; k++) click_write_close(p.set.sealed[s][k]);
        click_write_close(p.writer[s]);
        free(p.set.sealed[s]);
    }
    return rc == ERR_OK ? ERR_OK : err_restore(&why);
}
