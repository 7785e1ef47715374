// data/text/dataset.c: many shards as one stream of tokens. Token k of the stream is in the last file that starts at or
// before k. A read that reaches the end of a file goes on in the next, so a window may cross files.
#include "data/text/dataset.h"

#include "data/files.h"
#include "data/text/shard.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct dataset {
    shard_io io;
    shard *shards;
    int64_t *start;  // of each shard in the stream; start[count] = tokens in all
    int count;
    dataset_info info;
};

// The hash depends on the tokens, not on the files' names or compression. It also depends on how the tokens are divided
// into files, because checksums are made file by file.
static void hash_tokens(dataset *d) {
    crypto_generichash_state state;
    uint8_t digest[32], b[8];
    crypto_generichash_init(&state, NULL, 0, sizeof digest);
    for (int i = 0; i < d->count; i++) {
        const shard *s = &d->shards[i];
        le64_put(b, (uint64_t)s->tokens);
        crypto_generichash_update(&state, b, 8);
        le32_put(b, s->crc);
        if (s->format != FORMAT_LOCKSTEP) crypto_generichash_update(&state, b, 4);
        le32_put(b, (uint32_t)s->row_tokens);
        if (s->row_tokens) crypto_generichash_update(&state, b, 4);
        if (s->labels) crypto_generichash_update(&state, b, 4);
        if (s->numbers) crypto_generichash_update(&state, b, 4);
        if (s->documents) crypto_generichash_update(&state, b, 4);
        for (int64_t k = 0; k < s->blocks; k++) {
            le32_put(b, s->table[k].raw_crc);
            crypto_generichash_update(&state, b, 4);
        }
    }
    crypto_generichash_final(&state, digest, sizeof digest);
    sodium_bin2hex(d->info.hash, sizeof d->info.hash, digest, 8);
}

// Of all files answers are marked, in rows of one length, or of none.
static err_t check_rows(const dataset *d, const shard *s) {
    const shard *first = &d->shards[0];
    if (s->labels != first->labels)
        return err_set(ERR_DATA, "%s: its texts have labels, and those of %s have none: expected the same of all files",
                       s->labels ? s->file.path : first->file.path, s->labels ? first->file.path : s->file.path);
    if (s->numbers != first->numbers)
        return err_set(ERR_DATA,
                       "%s: its labels are numbers, and those of %s are classes: expected the same of all files",
                       s->numbers ? s->file.path : first->file.path, s->numbers ? first->file.path : s->file.path);
    if (s->documents != first->documents)
        return err_set(ERR_DATA,
                       "%s: its rows hold several documents, and those of %s one each: expected the same of all files",
                       s->documents ? s->file.path : first->file.path, s->documents ? first->file.path : s->file.path);
    if (s->row_tokens == first->row_tokens) return ERR_OK;
    if (!s->row_tokens || !first->row_tokens)
        return err_set(ERR_DATA, "%s: answers are marked in it, and not in %s: expected the same of all files",
                       s->row_tokens ? s->file.path : first->file.path,
                       s->row_tokens ? first->file.path : s->file.path);
    return err_set(ERR_DATA,
                   "%s: its samples have %" PRId64 " tokens, and those of %s %" PRId64
                   ": expected one length. Pack one of them again",
                   s->file.path, s->row_tokens, first->file.path, first->row_tokens);
}

static err_t open_all(dataset *d, const file_list *files, const dataset_options *o) {
    int count = files->count;
    d->shards = calloc((size_t)count, sizeof *d->shards);
    d->start = calloc((size_t)count + 1, sizeof *d->start);
    if (!d->shards || !d->start) return err_set(ERR_INTERNAL, "no memory for %d files", count);
    for (int i = 0; i < count; i++) {
        shard *s = &d->shards[i];
        d->count = i + 1;
        TRY(shard_open(s, &d->io, files->path[i], o->format));
        TRY(check_rows(d, s));
        if (s->tokens > INT64_MAX / 2 - d->start[i])
            return err_set(ERR_DATA, "%s: more than 2^62 tokens in all", s->file.path);
        d->start[i + 1] = d->start[i] + s->tokens;
        int bytes = s->token_bytes < 4 ? s->token_bytes : 4;  // a token is below 2^31, whatever holds it
        if (bytes > d->info.token_bytes) d->info.token_bytes = bytes;
    }
    d->info.files = count;
    d->info.row_tokens = d->shards[0].row_tokens, d->info.labels = d->shards[0].labels;
    d->info.numbers = d->shards[0].numbers, d->info.documents = d->shards[0].documents;
    d->info.tokens = d->start[count];
    hash_tokens(d);
    return shard_io_reserve(&d->io, d->shards, count);
}

err_t dataset_open(dataset **out, const dataset_options *o) {
    file_list files = {0};
    err_t rc = ERR_OK;
    dataset *d = *out = NULL;
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    if (!(d = calloc(1, sizeof *d))) return err_set(ERR_INTERNAL, "no memory for a dataset");
    TRY_GOTO(shard_io_open(&d->io, o->vocab, o->retry, o->shared_by, o->faults), fail);
    TRY_GOTO(files_expand(&files, o->files,
                          (files_hint){o->packed, "`lockstep pack CONFIG.ini` makes these shards of [pack] input"}),
             fail);
    TRY_GOTO(open_all(d, &files, o), fail);
    files_free(&files);
    *out = d;
    return ERR_OK;
fail:
    files_free(&files);
    dataset_close(d);
    return rc;
}

void dataset_close(dataset *d) {
    if (!d) return;
    for (int i = 0; i < d->count; i++) shard_close(&d->shards[i], &d->io);
    shard_io_close(&d->io);
    free(d->shards);
    free(d->start);
    free(d);
}

dataset_info dataset_about(const dataset *d) { return d->info; }
void dataset_cancel(dataset *d, bool cancelled) { reader_cancel(&d->io.reader, cancelled); }
void dataset_counts(const dataset *d, int64_t *retries, int64_t *read) { reader_counts(&d->io.reader, retries, read); }

// The shard that holds token k, by bisection.
static int shard_of(const dataset *d, int64_t k) {
    int low = 0, high = d->count;  // start[low] <= k < start[high]
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (d->start[middle] <= k) low = middle;
        else high = middle;
    }
    return low;
}

err_t dataset_read(dataset *d, int64_t first, int64_t n, int32_t *out) {
    return dataset_read_marked(d, first, n, out, NULL);
}

err_t dataset_read_marked(dataset *d, int64_t first, int64_t n, int32_t *out, uint8_t *marks) {
    if (first < 0 || n < 0 || first > d->info.tokens || n > d->info.tokens - first)
        return err_set(ERR_INTERNAL, "tokens %" PRId64 " .. +%" PRId64 " asked of a dataset of %" PRId64, first, n,
                       d->info.tokens);
    for (int i = shard_of(d, first); n > 0; i++) {
        int64_t left = d->start[i + 1] - first, some = n < left ? n : left;
        TRY(shard_read(&d->shards[i], &d->io, first - d->start[i], some, out, marks));
        first += some;
        out += some;
        if (marks) marks += some;
        n -= some;
    }
    return ERR_OK;
}

err_t dataset_verify(dataset *d, void (*report)(void *ctx, const char *text), void *ctx) {
    int64_t faults = 0;
    int bad = 0;
    for (int i = 0; i < d->count; i++) {
        int64_t before = faults;
        shard_verify(&d->shards[i], &d->io, report, ctx, &faults);
        bad += faults > before;
    }
    if (faults == 0) return ERR_OK;
    return err_set(ERR_DATA, "%" PRId64 " fault%s in %d of %d shard%s: copy or pack these files again", faults,
                   faults == 1 ? "" : "s", bad, d->count, d->count == 1 ? "" : "s");
}
