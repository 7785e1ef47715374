// trainer/checkpoint/digest.c: see trainer/checkpoint/digest.h.
#include "trainer/checkpoint/digest.h"

#include "trainer/checkpoint/away.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers enter the digests as they lie in memory, little-endian");
_Static_assert(CKPT_DIGEST == crypto_generichash_BYTES, "BLAKE2b-256 is what crypto_generichash computes by default");

void digest_begin(digest *d) {
    // Picks the fast implementation, once, under libsodium's own lock. If it fails, the portable one gives the same
    // digests.
    int picked = sodium_init();
    (void)picked;
    crypto_generichash_init(&d->state, NULL, 0, CKPT_DIGEST);
}

void digest_put(digest *d, const void *bytes, size_t n) { crypto_generichash_update(&d->state, bytes, n); }

void digest_end(digest *d, uint8_t out[CKPT_DIGEST]) { crypto_generichash_final(&d->state, out, CKPT_DIGEST); }

void digest_hex(char *hex, const uint8_t *d, size_t n) { sodium_bin2hex(hex, 2 * n + 1, d, n); }

// Each name and shape follows its length, so that no two tables of tensors give the same bytes. The length of a sliced
// one's shape is negative, and how it is sliced follows; a negative axis announces its split.
void group_tensor(digest *group, const ckpt_tensor *t) {
    bool sliced = t->slices > 1;
    int64_t length = (int64_t)strlen(t->name), rank = sliced ? -t->dims : t->dims, slices[] = {t->axis, t->slices};
    bool split = t->split.padded || t->split.rows[0];
    if (split) slices[0] = -1;
    digest_put(group, &length, sizeof length);
    digest_put(group, t->name, (size_t)length);
    digest_put(group, &rank, sizeof rank);
    digest_put(group, t->size, (size_t)t->dims * sizeof *t->size);
    if (sliced) digest_put(group, slices, sizeof slices);
    if (sliced && split) digest_put(group, &t->split, sizeof t->split);
}

static void chunk_digest(const float *x, int64_t n, uint8_t out[CKPT_DIGEST]) {
    crypto_generichash(out, CKPT_DIGEST, (const void *)x, (size_t)n * sizeof *x, NULL, 0);
}

uint8_t *chunk_digests(const ckpt_order *o, int64_t first, int64_t count, const float *x, uint8_t *out) {
    for (int64_t k = 0; k < count; k += order_chunk_size(o, first + k), out += CKPT_DIGEST)
        chunk_digest(x + k, order_chunk_size(o, first + k), out);
    return out;
}

err_t range_digests(const ckpt_tensor *t, uint8_t **out) {
    ckpt_order o = ckpt_order_of(t);
    const float *x;
    for (int64_t k = 0, n; k < t->count; k += n) {
        n = order_piece(&o, t->first + k, t->first + t->count);
        TRY(away_get(t, k, n, &x));
        *out = chunk_digests(&o, t->first + k, n, x, *out);
    }
    return ERR_OK;
}

err_t group_digest(const ckpt_tensor *t, int n, uint8_t out[CKPT_DIGEST]) {
    digest group;
    digest_begin(&group);
    for (int i = 0; i < n; i++) {
        ckpt_order o = ckpt_order_of(&t[i]);
        const float *x;
        group_tensor(&group, &t[i]);
        for (int64_t k = 0, size; k < t[i].count; k += size) {
            uint8_t chunk[ORDER_PIECE / CHUNK * CKPT_DIGEST];
            size = order_piece(&o, k, t[i].count);
            TRY(away_get(&t[i], k, size, &x));
            digest_put(&group, chunk, (size_t)(chunk_digests(&o, k, size, x, chunk) - chunk));
        }
    }
    digest_end(&group, out);
    return ERR_OK;
}

void state_digest_begin(state_digest *x) {
    digest_begin(&x->d);
    x->groups = 0;
}

void state_digest_put(state_digest *x, const uint8_t group[CKPT_DIGEST]) {
    digest_put(&x->d, group, CKPT_DIGEST);
    x->groups++;
}

// What is missing of three groups.
static void put_missing(state_digest *x) {
    enum { LEAST = 3 };
    uint8_t none[CKPT_DIGEST];
    digest group;
    digest_begin(&group);
    digest_end(&group, none);
    while (x->groups < LEAST) state_digest_put(x, none);
}

void state_digest_scalar(state_digest *x, const char *name, double value) {
    int64_t length = (int64_t)strlen(name);
    put_missing(x);
    digest_put(&x->d, &length, sizeof length);
    digest_put(&x->d, name, (size_t)length);
    digest_put(&x->d, &value, sizeof value);
}

void state_digest_end(state_digest *x, const run_progress *at, uint8_t out[CKPT_DIGEST]) {
    int64_t counters[] = {at->step, at->updates, at->skipped, at->good_steps};
    put_missing(x);
    digest_put(&x->d, counters, sizeof counters);
    digest_put(&x->d, &at->loss_scale, sizeof at->loss_scale);
    if (at->norms)
        digest_put(&x->d, &at->norm_mean, sizeof at->norm_mean), digest_put(&x->d, &at->norms, sizeof at->norms);
    digest_put(&x->d, at->lately, (size_t)at->losses * sizeof *at->lately);
    digest_put(&x->d, at->left_out, (size_t)at->rollbacks * sizeof *at->left_out);
    digest_end(&x->d, out);
}
