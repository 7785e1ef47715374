// data/click/clicks.c: shards of clicks or of ratings as a source. Sample k is record k of all shards, in order of
// their names: its label, its numbers, and of each table the row that the record's id has there, as a row of all tables
// one below the other. Where records have no numbers, there is `one` in their place, which is 1 in all samples.
#include "data/click/shard.h"
#include "data/files.h"
#include "data/hash.h"
#include "data/source.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL, DENSE, IDS, TENSORS };
// Samples come in an order of chance, and each is read with its block. So blocks stay in memory where all fit into
// this. Of more only the last one does: the next sample would hardly ever be in one that was kept.
enum { KEPT_BYTES = 32 << 20 };

typedef struct click_source {
    source head;
    reader reader;
    click_shard *shard;  // (shards)
    int shards;
    click_form form;
    int64_t rows;    // of a table
    bool whole;      // ids have all of their 64 bits, as two numbers, low bits first
    int64_t places;  // for blocks: block b of all is in place b % places
    int64_t *held;   // (places) which block is there; -1: none
    uint8_t *bytes;  // (places, CLICK_BLOCK records)
    click now;
} click_source;

bool clicks_begin(const uint8_t *head, int64_t n) {
    int same = 0;
    for (int64_t i = 0; i < n && i < CLICKS_MAGIC_BYTES; i++) same += head[i] == clicks_magic[i];
    return same >= 6;  // of other shards fewer are the same
}

static int shard_of(const click_source *x, int64_t sample) {
    int low = 0, high = x->shards;  // shard[low].start <= sample < shard[high].start
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (x->shard[middle].start <= sample) low = middle;
        else high = middle;
    }
    return low;
}

// The sample, to x->now.
static err_t read_record(click_source *x, int64_t sample) {
    click_shard *s = &x->shard[shard_of(x, sample)];
    int64_t number = sample - s->start, block = number / CLICK_BLOCK, wanted = s->first + block;
    int64_t place = wanted % x->places;
    uint8_t *bytes = x->bytes + place * CLICK_BLOCK * click_bytes(x->form);
    int records;
    if (x->held[place] != wanted) {
        x->held[place] = -1;
        TRY(click_shard_block(s, &x->reader, block, bytes, &records));
        x->held[place] = wanted;
    }
    return click_take(s, bytes, (int)(number % CLICK_BLOCK), number, &x->now);
}

static err_t clicks_read(source *s, const source_draw *d, void *const *out) {
    click_source *x = (click_source *)s;
    TRY(read_record(x, d->sample));
    if (out[LABEL] && x->form.rated) *(float *)out[LABEL] = x->now.label;
    else if (out[LABEL]) *(int32_t *)out[LABEL] = (int32_t)x->now.label;
    if (out[DENSE] && !x->form.dense) *(float *)out[DENSE] = 1;
    else if (out[DENSE]) memcpy(out[DENSE], x->now.dense, (size_t)x->form.dense * sizeof *x->now.dense);
    if (out[IDS] && x->whole) memcpy(out[IDS], x->now.id, (size_t)x->form.tables * sizeof *x->now.id);
    for (int k = 0; out[IDS] && !x->whole && k < x->form.tables; k++)
        ((int32_t *)out[IDS])[k] = (int32_t)(k * x->rows + click_row(x->now.id[k], k, x->rows));
    return ERR_OK;
}

static err_t clicks_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    click_source *x = (click_source *)s;
    int64_t bad = 0;
    for (int k = 0; k < x->shards; k++) TRY(click_shard_verify(&x->shard[k], &x->reader, report, ctx, &bad));
    return bad ? err_set(ERR_DATA, "%" PRId64 " fault%s in %d files: copy or pack these files again", bad,
                         bad == 1 ? "" : "s", x->shards)
               : ERR_OK;
}

static void clicks_cancel(source *s, bool cancelled) { reader_cancel(&((click_source *)s)->reader, cancelled); }
static void clicks_counts(const source *s, int64_t *retries, int64_t *read) {
    reader_counts(&((const click_source *)s)->reader, retries, read);
}

static void clicks_close(source *s) {
    click_source *x = (click_source *)s;
    for (int k = 0; k < x->shards; k++) click_shard_close(&x->shard[k], &x->reader);
    reader_close(&x->reader);
    free(x->shard), free(x->held), free(x->bytes);
    free(x);
}

static const source_type type = {.read = clicks_read,
                                 .verify = clicks_verify,
                                 .cancel = clicks_cancel,
                                 .counts = clicks_counts,
                                 .close = clicks_close};

// --- opening ---------------------------------------------------------------------------------------------------------

// Checksums of blocks stand for their records.
static void hash_records(click_source *x) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, 32);
    hash_number(&state, (uint64_t)x->form.rated << 63 | (uint64_t)x->form.dense << 32 | (uint32_t)x->form.tables);
    for (int k = 0; k < x->shards; k++) {
        hash_number(&state, (uint64_t)x->shard[k].records);
        for (int64_t i = 0; i < click_blocks(x->shard[k].records); i++) hash_number(&state, x->shard[k].crc[i]);
    }
    hash_text(&state, x->head.about.hash);
}

static bool wants_whole_ids(const click_source *x, const tensor_spec *ids) {
    return ids && !ids->limit && ids->size[0] == 2 * x->form.tables;
}

// What the model has of tables: their rows, from the limit of its ids. Without such a model as many as numbers allow.
static void describe(click_source *x, const source_options *o) {
    const tensor_spec *ids = source_wants(o, "ids"), *label = source_wants(o, "label");
    source *s = &x->head;
    x->rows = ids && ids->limit >= x->form.tables ? ids->limit / x->form.tables : INT32_MAX / x->form.tables;
    s->about.units = s->about.samples;
    s->about.units_per_sample = 1;
    s->about.unit = "samples";
    s->about.files = x->shards;
    s->about.best = x->shard->best;
    for (int k = 1; k < x->shards; k++)
        if (x->shard[k].best != s->about.best) s->about.best = 0;  // they were not packed together
    s->tensors = TENSORS;
    s->tensor[LABEL] =
        (tensor_spec){.name = "label", .type = INT32, .size = {1, 1, 1}, .limit = label ? label->limit : 2};
    if (x->form.rated) s->tensor[LABEL].type = FP32, s->tensor[LABEL].limit = 0;
    s->tensor[DENSE] = (tensor_spec){.name = "dense", .type = FP32, .dims = 1, .size = {x->form.dense, 1, 1}};
    if (!x->form.dense) s->tensor[DENSE] = (tensor_spec){.name = "one", .type = FP32, .dims = 1, .size = {1, 1, 1}};
    s->tensor[IDS] = (tensor_spec){
        .name = "ids", .type = INT32, .dims = 1, .size = {x->form.tables, 1, 1}, .limit = x->rows * x->form.tables};
    x->whole = wants_whole_ids(x, ids);
    if (x->whole) s->tensor[IDS].size[0] = 2 * x->form.tables, s->tensor[IDS].limit = 0;
    hash_records(x);
}

static err_t check_kin(const click_shard *first, const click_shard *s) {
    click_form a = first->form, b = s->form;
    if (b.rated != a.rated)
        return err_set(ERR_DATA, "%s has ratings, and %s clicks: expected the same of all",
                       b.rated ? s->file.path : first->file.path, b.rated ? first->file.path : s->file.path);
    if (b.dense == a.dense && b.tables == a.tables) return ERR_OK;
    return err_set(ERR_DATA, "%s has %d numbers and %d ids a record, and %s has %d and %d: expected the same of all",
                   s->file.path, b.dense, b.tables, first->file.path, a.dense, a.tables);
}

static err_t open_places(click_source *x, int64_t blocks) {
    int64_t bytes = CLICK_BLOCK * click_bytes(x->form);
    x->places = blocks * bytes <= KEPT_BYTES ? blocks : 1;
    x->held = malloc((size_t)x->places * sizeof *x->held);
    x->bytes = malloc((size_t)(x->places * bytes));
    if (!x->held || !x->bytes) return err_set(ERR_INTERNAL, "no memory for %" PRId64 " blocks of records", x->places);
    for (int64_t k = 0; k < x->places; k++) x->held[k] = -1;
    return ERR_OK;
}

static err_t open_shards(click_source *x, const file_list *files) {
    int64_t blocks = 0;
    if (!(x->shard = calloc((size_t)files->count, sizeof *x->shard)))
        return err_set(ERR_INTERNAL, "no memory for %d files", files->count);
    while (x->shards < files->count) {
        click_shard *s = &x->shard[x->shards++];
        s->file.fd = -1;
        TRY(click_shard_open(s, &x->reader, files->path[x->shards - 1]));
        TRY(check_kin(x->shard, s));
        s->start = x->head.about.samples, s->first = blocks;
        blocks += click_blocks(s->records);
        x->head.about.samples += s->records;
        reader_drop(&x->reader, &s->file);
    }
    x->form = x->shard->form;
    return open_places(x, blocks);
}

static err_t check_labels(const click_source *x, const source_options *o) {
    const tensor_spec *label = source_wants(o, "label");
    if (!label || (label->type == FP32) == x->form.rated) return ERR_OK;
    if (x->form.rated)
        return err_set(ERR_CONFIG,
                       "the model says whether a record is clicked, and %s has ratings: set [model] task = regress, or "
                       "pack clicks",
                       x->shard->file.path);
    return err_set(
        ERR_CONFIG,
        "the model says the rating of a record, and %s has clicks: set [model] task = classify, or pack them "
        "with [pack] clicks = ratings",
        x->shard->file.path);
}

// Said here in the words of the model's keys.
static err_t check_model(const click_source *x, const source_options *o) {
    const tensor_spec *dense = source_wants(o, "dense"), *one = source_wants(o, "one"), *ids = source_wants(o, "ids");
    if ((!dense && !one) || !ids) return ERR_OK;
    TRY(check_labels(x, o));
    int64_t numbers = dense ? dense->size[0] : 0;
    int64_t tables = ids->limit ? ids->size[0] : ids->size[0] / 2;  // without a limit: whole ids, two numbers each
    if (numbers == x->form.dense && tables == x->form.tables) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "the model reads %" PRId64 " numbers and %" PRId64
                   " ids a record, and %s has %d and %d: set [model] "
                   "dense = %d and tables = %d",
                   numbers, tables, x->shard->file.path, x->form.dense, x->form.tables, x->form.dense, x->form.tables);
}

static err_t open_all(click_source *x, const source_options *o) {
    file_list files = {0};
    err_t rc =
        files_expand(&files, o->files, (files_hint){o->packed, "`lockstep pack` makes them, with [pack] clicks set"});
    if (rc == ERR_OK) rc = open_shards(x, &files);
    files_free(&files);
    TRY(rc);
    TRY(check_model(x, o));
    describe(x, o);
    return ERR_OK;
}

err_t clicks_open(source **out, const source_options *o) {
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    click_source *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a source of clicks");
    x->head.type = &type;
    reader_open(&x->reader, o->retry, o->faults);
    reader_share(&x->reader, o->shared_by);
    err_t rc = open_all(x, o);
    if (rc != ERR_OK) clicks_close(&x->head);
    else *out = &x->head;
    return rc;
}
