// data/dataset.c: many shards as one stream of tokens. Token k of the stream is in the last file that starts at or
// before k. A read that reaches the end of a file goes on in the next, so a window may cross files.
#include "data/shard.h"

#include <glob.h>
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

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// *g = all files that the patterns match.
static err_t expand(const char *files, glob_t *g) {
    const char *p = files ? files : "";
    for (;;) {
        p += strspn(p, " \t");
        size_t n = strcspn(p, " \t");
        if (n == 0) break;
        char *pattern = strndup(p, n);
        if (!pattern) return err_set(ERR_INTERNAL, "no memory for a list of files");
        int rc = glob(pattern, g->gl_pathc ? GLOB_APPEND : 0, NULL, g);
        free(pattern);
        if (rc == GLOB_NOSPACE) return err_set(ERR_INTERNAL, "no memory for a list of files");
        if (rc == GLOB_ABORTED) return err_set(ERR_IO, "%.*s: a directory in it can't be read", (int)n, p);
        if (rc == GLOB_NOMATCH)
            return err_set(ERR_CONFIG, "no file matches \"%.*s\". `lockstep pack CONFIG.ini` makes shards "
                           "from text", (int)n, p);
        p += n;
    }
    if (g->gl_pathc == 0) return err_set(ERR_CONFIG, "[data] train, val: empty, expected the names of shards");
    if (g->gl_pathc > INT32_MAX) return err_set(ERR_CONFIG, "[data] train, val: more than %d files", INT32_MAX);
    return ERR_OK;
}

// Sorted by name in byte order, each once: two patterns may match the same file.
static int sort_unique(glob_t *g) {
    size_t kept = 0;
    qsort(g->gl_pathv, g->gl_pathc, sizeof *g->gl_pathv, by_bytes);
    for (size_t i = 0; i < g->gl_pathc; i++) {
        char *path = g->gl_pathv[i];
        if (kept > 0 && strcmp(g->gl_pathv[kept - 1], path) == 0) continue;
        g->gl_pathv[i] = g->gl_pathv[kept];  // swapped, so that globfree() still finds all
        g->gl_pathv[kept++] = path;
    }
    return (int)kept;
}

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
        if (s->format != SHARD_LOCKSTEP) crypto_generichash_update(&state, b, 4);
        for (int64_t k = 0; k < s->blocks; k++) {
            le32_put(b, s->table[k].raw_crc);
            crypto_generichash_update(&state, b, 4);
        }
    }
    crypto_generichash_final(&state, digest, sizeof digest);
    sodium_bin2hex(d->info.hash, sizeof d->info.hash, digest, 8);
}

static err_t open_all(dataset *d, glob_t *g, const dataset_options *o) {
    d->shards = calloc(g->gl_pathc, sizeof *d->shards);
    d->start = calloc(g->gl_pathc + 1, sizeof *d->start);
    if (!d->shards || !d->start) return err_set(ERR_INTERNAL, "no memory for %zu files", g->gl_pathc);
    int count = sort_unique(g);
    for (int i = 0; i < count; i++) {
        shard *s = &d->shards[i];
        d->count = i + 1;
        TRY(shard_open(s, &d->io, g->gl_pathv[i], o->format));
        if (s->tokens > INT64_MAX / 2 - d->start[i]) return err_set(ERR_DATA, "%s: more than 2^62 tokens in all", s->path);
        d->start[i + 1] = d->start[i] + s->tokens;
        if (s->token_bytes > d->info.token_bytes) d->info.token_bytes = s->token_bytes;
    }
    d->info.files = count;
    d->info.tokens = d->start[count];
    hash_tokens(d);
    return shard_io_reserve(&d->io, d->shards, count);
}

err_t dataset_open(dataset **out, const dataset_options *o) {
    glob_t g = {0};
    err_t rc = ERR_OK;
    dataset *d = *out = NULL;
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    if (!(d = calloc(1, sizeof *d))) return err_set(ERR_INTERNAL, "no memory for a dataset");
    TRY_GOTO(shard_io_open(&d->io, o), fail);
    TRY_GOTO(expand(o->files, &g), fail);
    TRY_GOTO(open_all(d, &g, o), fail);
    globfree(&g);
    *out = d;
    return ERR_OK;
fail:
    globfree(&g);
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
void dataset_cancel(dataset *d, bool cancelled) { shard_io_cancel(&d->io, cancelled); }
int64_t dataset_retries(const dataset *d) { return atomic_load(&d->io.retries); }

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
    if (first < 0 || n < 0 || first > d->info.tokens || n > d->info.tokens - first)
        return err_set(ERR_INTERNAL, "tokens %lld .. +%lld asked of a dataset of %lld", (long long)first, (long long)n,
                       (long long)d->info.tokens);
    for (int i = shard_of(d, first); n > 0; i++) {
        int64_t left = d->start[i + 1] - first, some = n < left ? n : left;
        TRY(shard_read(&d->shards[i], &d->io, first - d->start[i], some, out));
        first += some;
        out += some;
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
    return err_set(ERR_DATA, "%lld faults in %d of %d shards: copy or pack these files again", (long long)faults, bad, d->count);
}
