// data/mix.c: draws samples of several sources in the proportion of weights. Which sample comes at a position is
// computed, as for a single source.
//
// Positions are divided into blocks of M = c_0 + c_1 + ... places, where c_k is the weight of part k as a whole number.
// A block has exactly c_k places of part k. So for weights of 0.5, 0.3 and 0.2 (M = 10, c = 5 3 2), where a letter is a
// part and the number counts its places in the block:
//
//   place      0   1   2   3   4   5   6   7   8   9
//   sample of  a0  b0  a1  c0  a2  b1  a3  c1  b2  a4      in this order without shuffling, else in another one for
//              each block
//
// Sample j of part k in block i is draw q = i * c_k + j of that part, and draws of a part are like positions of a run
// on that part alone: draw q is sample perm(seed of the part, q / W_k)[q % W_k] of its W_k. So each part has epochs of
// its own, and a window comes once in each.
#include "data/mix.h"

#include "base/philox.h"
#include "data/sampler.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    int part, ordinal;
} place;

typedef struct mix {
    source head;
    source **part;      // (parts)
    source_part *info;  // (parts)
    int64_t *first;     // (parts) number of a part's first sample
    int64_t *count;     // (parts) c_k
    place *table;       // (M) of the block's places, when not shuffled
    int64_t places;     // M
} mix;

// --- order -----------------------------------------------------------------------------------------------------------

// What the order of draws of part `which` is keyed by; -1: the order of places in a block.
static uint64_t key_of(uint64_t seed, int which) {
    uint32_t r[4];
    philox4x32(r, seed, (uint32_t)(which + 1), SITE_MIX, 0, 0);
    return (uint64_t)r[1] << 32 | r[0];
}

static void mix_at(const source *s, source_draw *d, bool shuffle) {
    const mix *x = (const mix *)s;
    const place *p = &x->table[sampler_at(key_of(d->seed, -1), d->n, x->places, shuffle)];
    int64_t draw = d->n / x->places * x->count[p->part] + p->ordinal, samples = x->info[p->part].about.samples;
    d->sample = x->first[p->part] + sampler_at(key_of(d->seed, p->part), draw, samples, shuffle);
    d->epoch = draw / samples;
}

// Spreads the places so that after t of them every part has had its share of t, c_k t / M, rounded up or down: the
// count is off by less than one, at every t. Of the parts whose next place would not come too early, that one is taken
// whose next place must come first (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980, theorem
// 1 and its proof). In integers: all is multiplied by M (2 parts - 2).
static err_t fill_table(mix *x) {
    int parts = x->head.parts;
    int64_t D = 2 * (int64_t)parts - 2, *had = calloc((size_t)parts, sizeof *had);
    if (!had) return err_set(ERR_INTERNAL, "no memory for a mix of %d parts", parts);
    for (int64_t t = 0; t < x->places; t++) {
        int next = -1;
        for (int k = 0; k < parts; k++) {
            if (D * (x->count[k] * (t + 1) - had[k] * x->places) < x->places) continue;
            if (next < 0 || (D * (had[k] + 1) - 1) * x->count[next] < (D * (had[next] + 1) - 1) * x->count[k]) next = k;
        }
        x->table[t] = (place){next, (int)had[next]};
        had[next]++;
    }
    free(had);
    return ERR_OK;
}

// --- the source ------------------------------------------------------------------------------------------------------

static int part_with(const mix *x, int64_t sample) {
    int k = x->head.parts - 1;
    while (x->first[k] > sample) k--;
    return k;
}

static err_t mix_read(source *s, const source_draw *d, void *const *out) {
    mix *x = (mix *)s;
    source_draw of_part = *d;
    int k = part_with(x, d->sample);
    of_part.sample -= x->first[k];
    return source_read(x->part[k], &of_part, out);
}

static err_t mix_picture(source *s, int64_t sample, uint8_t *out) {
    mix *x = (mix *)s;
    int k = part_with(x, sample);
    return source_picture(x->part[k], sample - x->first[k], out);
}

// The model knows a class by its number alone: the first part that has a name for it names it.
static const char *mix_class(const source *s, int64_t label) {
    const char *name = NULL;
    for (int k = 0; !name && k < s->parts; k++) name = source_class(((const mix *)s)->part[k], label);
    return name;
}

// All parts, whatever is wrong with those before.
static err_t mix_verify(source *s, void (*report)(void *ctx, const char *text), void *ctx) {
    mix *x = (mix *)s;
    int bad = 0;
    for (int k = 0; k < s->parts; k++) {
        err_t rc = source_verify(x->part[k], report, ctx);
        if (rc != ERR_OK && rc != ERR_DATA) return rc;
        bad += rc != ERR_OK;
    }
    return bad ? err_set(ERR_DATA, "faults in %d of %d parts: copy or pack these files again", bad, s->parts) : ERR_OK;
}

static void mix_cancel(source *s, bool cancelled) {
    for (int k = 0; k < s->parts; k++) source_cancel(((mix *)s)->part[k], cancelled);
}

static void mix_counts(const source *s, int64_t *retries, int64_t *read) {
    *retries = *read = 0;
    for (int k = 0; k < s->parts; k++) {
        source_info part = source_about(((const mix *)s)->part[k]);
        *retries += part.retries;
        *read += part.read;
    }
}

static void mix_close(source *s) {
    mix *x = (mix *)s;
    for (int k = 0; x->part && k < s->parts; k++) source_close(x->part[k]);
    for (int k = 0; x->info && k < s->parts; k++) free(x->info[k].text);
    free(x->part);
    free(x->info);
    free(x->first);
    free(x->count);
    free(x->table);
    free(x);
}

static const source_type type = {.read = mix_read,
                                 .at = mix_at,
                                 .verify = mix_verify,
                                 .cancel = mix_cancel,
                                 .counts = mix_counts,
                                 .close = mix_close,
                                 .picture = mix_picture,
                                 .class = mix_class};

// --- opening ---------------------------------------------------------------------------------------------------------

// The hash is of the parts' contents and weights, in order: any other mix is other data.
static void hash_parts(mix *x) {
    crypto_generichash_state state;
    uint8_t digest[32];
    crypto_generichash_init(&state, NULL, 0, sizeof digest);
    for (int k = 0; k < x->head.parts; k++) {
        uint8_t count[8];
        for (int i = 0; i < 8; i++) count[i] = (uint8_t)(x->count[k] >> 8 * i);
        crypto_generichash_update(&state, count, sizeof count);
        crypto_generichash_update(&state, (const uint8_t *)x->info[k].about.hash, 16);
    }
    crypto_generichash_final(&state, digest, sizeof digest);
    sodium_bin2hex(x->head.about.hash, sizeof x->head.about.hash, digest, 8);
}

// A mix has pictures if all its parts have, in one shape.
static void describe_picture(mix *x) {
    source *s = &x->head;
    memcpy(s->picture, x->part[0]->picture, sizeof s->picture);
    for (int k = 1; k < s->parts; k++)
        if (memcmp(s->picture, x->part[k]->picture, sizeof s->picture) != 0) memset(s->picture, 0, sizeof s->picture);
}

// Samples have what the model reads, in its order: source_read of a part brings them into it.
static void describe(mix *x, const source_options *o) {
    source *s = &x->head;
    s->part = x->info;
    s->tensors = s->inputs = o->inputs;
    for (int i = 0; i < o->inputs; i++) s->tensor[i] = o->wanted[i], s->place[i] = i;
    s->about.unit = x->info[0].about.unit;
    s->about.units_per_sample = x->info[0].about.units_per_sample;
    for (int k = 0; k < s->parts; k++)
        if (k == 0 || x->part[k]->readers < s->readers) s->readers = x->part[k]->readers;
    describe_picture(x);
    hash_parts(x);
}

static err_t open_part(mix *x, int k, const source_options *o, const weighted *w,
                       err_t (*open)(source **out, const source_options *o)) {
    source_info *all = &x->head.about;
    source_options of = *o;
    of.files = w->files;
    of.shared_by = x->head.parts;
    if (open(&x->part[k], &of) != ERR_OK) return err_prefix("%s", w->text);
    source_info about = source_about(x->part[k]);
    if (about.samples > INT64_MAX / 2 - all->samples || about.units > INT64_MAX / 2 - all->units)
        return err_set(ERR_DATA, "%s: more than 2^62 samples in all", w->text);
    x->info[k] = (source_part){.text = strdup(w->text), .share = (double)w->count / (double)x->places, .about = about};
    x->count[k] = w->count;
    x->first[k] = all->samples;
    all->samples += about.samples;
    all->units += about.units;
    all->files += about.files;
    return x->info[k].text ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a list of files");
}

static err_t open_parts(mix *x, const source_options *o, const weights *w,
                        err_t (*open)(source **out, const source_options *o)) {
    size_t parts = (size_t)w->parts;
    x->head.parts = w->parts;
    x->places = w->places;
    x->part = calloc(parts, sizeof *x->part);
    x->info = calloc(parts, sizeof *x->info);
    x->first = calloc(parts, sizeof *x->first);
    x->count = calloc(parts, sizeof *x->count);
    x->table = calloc((size_t)w->places, sizeof *x->table);
    if (!x->part || !x->info || !x->first || !x->count || !x->table)
        return err_set(ERR_INTERNAL, "no memory for a mix of %d parts", w->parts);
    for (int k = 0; k < w->parts; k++) TRY(open_part(x, k, o, &w->part[k], open));
    describe(x, o);
    return fill_table(x);
}

err_t mix_open(source **out, const source_options *o, const weights *w,
               err_t (*open)(source **out, const source_options *o)) {
    if (sodium_init() < 0) return err_set(ERR_INTERNAL, "libsodium does not start");
    mix *x = calloc(1, sizeof *x);
    if (!x) return err_set(ERR_INTERNAL, "no memory for a mix");
    x->head.type = &type;
    err_t rc = open_parts(x, o, w, open);
    if (rc != ERR_OK) mix_close(&x->head);
    else *out = &x->head;
    return rc;
}
