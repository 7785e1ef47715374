// trainer/checkpoint/parts.c: see trainer/checkpoint/parts.h. Each rank digests the chunks that it has, and sends 32
// bytes for each 64 KB. Then all ranks have all chunk digests in order of tensors, and compute everything above them as
// one rank would.
#include "trainer/checkpoint/parts.h"

#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void close_work(ckpt_work *w) {
    if (!w) return;
    for (int g = 0; w->mine && g < w->groups; g++) free(w->mine[g]);
    free(w->mine), free(w->order), free(w->span), free(w->turn), free(w->base), free(w->cut), free(w->gathered),
        free(w->chunk);
    free(w);
}

// Each group's tensors are shaped and sliced as the masters are.
static err_t set_orders(ckpt_work *w, const ckpt_state *s) {
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            if (!order_is_possible(t->dims, t->size, t->axis, t->slices, &t->split))
                return err_set(
                    ERR_INTERNAL,
                    "tensor %s of group \"%s\" can't be saved: expected at most %d dimensions of 1 or more, %d of them, in %d slices that divide "
                    "dimension %d",
                    t->name, s->group[g].name, CKPT_DIMS, t->dims, t->slices, t->axis);
            ckpt_order o = ckpt_order_of(t);
            if (g == GROUP_MASTER) w->order[i] = o;
            if (!order_equal(&o, &w->order[i]))
                return err_set(ERR_INTERNAL,
                               "tensor %s of group \"%s\" can't be saved: it is not shaped and sliced as its master",
                               t->name, s->group[g].name);
        }
    for (int i = 0; i < w->params; i++) w->base[i + 1] = w->base[i] + order_chunk(&w->order[i], w->order[i].all);
    return ERR_OK;
}

static size_t spans_each(const ckpt_work *w) { return (size_t)w->groups * (size_t)w->params; }

static err_t new_work(ckpt_work **out, const ckpt_state *s) {
    ckpt_work *w = *out = calloc(1, sizeof *w);
    if (!w) return err_set(ERR_INTERNAL, "no memory for a checkpoint's table");
    *w = (ckpt_work){.of = s, .rank = ckpt_rank(s), .world = ckpt_world(s), .groups = s->groups, .params = s->params};
    w->order = calloc((size_t)w->params + 1, sizeof *w->order);
    w->span = calloc(spans_each(w) * (size_t)w->world + 1, sizeof *w->span);
    w->turn = calloc((size_t)w->world, sizeof *w->turn);
    w->base = calloc((size_t)w->params + 1, sizeof *w->base);
    w->cut = calloc((size_t)w->groups * ((size_t)w->world + 1), sizeof *w->cut);
    w->mine = calloc((size_t)w->groups, sizeof *w->mine);
    if (!w->order || !w->span || !w->turn || !w->base || !w->cut || !w->mine)
        return err_set(ERR_INTERNAL, "no memory for the parts of %d tensors on %d ranks", w->params, w->world);
    TRY(set_orders(w, s));
    for (int g = 0; g < w->groups; g++)
        for (int i = 0; i < w->params; i++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            *(ckpt_span *)work_span(w, g, w->rank, i) = (ckpt_span){t->count ? t->first : 0, t->count};
        }
    return ERR_OK;
}

// A digest of the tables' names, shapes and slices, which must be the same on all ranks.
static void digest_tables(const ckpt_state *s, int groups, uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    for (int g = 0; g < groups; g++) {
        digest_put(&d, s->group[g].name, strlen(s->group[g].name) + 1);
        for (int i = 0; i < s->params; i++) group_tensor(&d, &s->group[g].tensor[i]);
    }
    digest_end(&d, out);
}

static err_t gather_spans(ckpt_work *w, const ckpt_state *s) {
    size_t bytes = spans_each(w) * sizeof *w->span, each = bytes + CKPT_DIGEST;
    uint8_t *mine = malloc(each);
    void *all = NULL;
    size_t *cut = NULL;
    err_t rc = ckpt_agree(s, mine ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the parts of %d tensors", w->params));
    if (rc == ERR_OK) {
        for (int g = 0; g < w->groups; g++)
            memcpy(mine + (size_t)g * (size_t)w->params * sizeof *w->span, work_span(w, g, w->rank, 0),
                   (size_t)w->params * sizeof *w->span);
        digest_tables(s, w->groups, mine + bytes);
        rc = ckpt_gather(s, mine, each, &all, &cut);
    }
    for (int r = 0; r < w->world && rc == ERR_OK; r++) {
        const uint8_t *theirs = (uint8_t *)all + cut[r];
        if (cut[r + 1] - cut[r] != each || memcmp(theirs + bytes, (uint8_t *)all + cut[0] + bytes, CKPT_DIGEST) != 0)
            rc = err_set(ERR_INTERNAL, "rank %d and rank 0 don't have the same tensors", r);
        for (int g = 0; g < w->groups && rc == ERR_OK; g++)
            memcpy((void *)work_span(w, g, r, 0), theirs + (size_t)g * (size_t)w->params * sizeof *w->span,
                   (size_t)w->params * sizeof *w->span);
    }
    free(mine), free(all), free(cut);
    return rc;
}

static int compare_turns(const void *a, const void *b) {
    const ckpt_turn *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->rank > y->rank) - (x->rank < y->rank);
}

int work_turns(const ckpt_work *w, int group, int param) {
    int n = 0;
    for (int r = 0; r < w->world; r++)
        if (work_span(w, group, r, param)->count != 0)
            w->turn[n++] = (ckpt_turn){work_span(w, group, r, param)->first, r};
    qsort(w->turn, (size_t)n, sizeof *w->turn, compare_turns);
    return n;
}

// Checks that what the ranks have of a tensor makes it up.
static err_t check_tensor(const ckpt_work *w, int group, int i, const char *name) {
    const ckpt_order *o = &w->order[i];
    int64_t elements = o->all, at = 0;
    int turns = work_turns(w, group, i);
    for (int k = 0; k < turns; k++) {
        const ckpt_span *p = work_span(w, group, w->turn[k].rank, i);
        if (p->first != at || p->count < 0 || p->count > elements - at || !order_may_cut(o, at + p->count))
            return err_set(ERR_INTERNAL,
                           "tensor %s: rank %d has %" PRId64 " elements from %" PRId64 " of %" PRId64
                           ", expected whole chunks of %d from %" PRId64 ": it can't be saved",
                           name, w->turn[k].rank, p->count, p->first, elements, CHUNK, at);
        at += p->count;
    }
    if (at == elements) return ERR_OK;
    return err_set(ERR_INTERNAL, "tensor %s: the ranks have %" PRId64 " of its %" PRId64 " elements: it can't be saved",
                   name, at, elements);
}

static err_t check_spans(const ckpt_work *w, const ckpt_state *s) {
    for (int g = 0; g < w->groups; g++)
        for (int i = 0; i < w->params; i++) {
            char name[CKPT_NAME];
            manifest_tensor_name(name, s->group[g].name, s->group[g].tensor[i].name);
            TRY(check_tensor(w, g, i, name));
        }
    return ERR_OK;
}

// The digests of a range's chunks, in bytes.
static size_t digest_bytes(const ckpt_order *o, const ckpt_span *p) {
    return (size_t)(order_chunk(o, p->first + p->count) - order_chunk(o, p->first)) * CKPT_DIGEST;
}

static err_t allocate_digests(ckpt_work *w) {
    for (int g = 0; g < w->groups; g++) {
        size_t *cut = w->cut + (size_t)g * ((size_t)w->world + 1);
        for (int r = 0; r < w->world; r++) {
            cut[r + 1] = cut[r];
            for (int i = 0; i < w->params; i++) cut[r + 1] += digest_bytes(&w->order[i], work_span(w, g, r, i));
        }
        w->mine[g] = malloc(cut[w->rank + 1] - cut[w->rank] + 1);
        if (!w->mine[g])
            return err_set(ERR_INTERNAL, "no memory for the digests of %" PRId64 " chunks", w->base[w->params]);
    }
    size_t bytes = (size_t)w->base[w->params] * CKPT_DIGEST;
    w->chunk = malloc(bytes + 1);
    w->gathered = w->world > 1 ? malloc(bytes + 1) : NULL;
    if (!w->chunk || (w->world > 1 && !w->gathered))
        return err_set(ERR_INTERNAL, "no memory for the digests of %" PRId64 " chunks", w->base[w->params]);
    return ERR_OK;
}

static err_t make_work(ckpt_work **out, const ckpt_state *s) {
    err_t rc = ckpt_agree(s, new_work(out, s));
    if (rc == ERR_OK && !ckpt_alone(s)) rc = gather_spans(*out, s);
    if (rc == ERR_OK) rc = check_spans(*out, s);
    if (rc == ERR_OK) rc = allocate_digests(*out);
    rc = ckpt_agree(s, rc);
    if (rc == ERR_OK) return ERR_OK;
    close_work(*out);
    *out = NULL;
    return rc;
}

err_t ckpt_prepare(ckpt_state *s) {
    s->work = NULL;
    s->row_digests = s->rows ? row_digests_open() : NULL;
    TRY(ckpt_agree(s,
                   s->rows && !s->row_digests ? err_set(ERR_INTERNAL, "no memory for the digests of rows") : ERR_OK));
    return ckpt_alone(s) ? ERR_OK : make_work(&s->work, s);
}

void ckpt_release(ckpt_state *s) {
    close_work(s->work);
    free(s->row_digests);
    s->work = NULL, s->row_digests = NULL;
}

err_t work_open(ckpt_work **w, const ckpt_state *s) {
    *w = s->work;
    if (ckpt_alone(s)) return make_work(w, s);
    if (!*w) return err_set(ERR_INTERNAL, "a checkpoint of %d ranks is asked for before ckpt_prepare", s->ranks->world);
    (*w)->of = s;
    return ERR_OK;
}

void work_close_own(ckpt_work *w, const ckpt_state *s) {
    if (ckpt_alone(s)) close_work(w);
}

// --- digests ---------------------------------------------------------------------------------------------------------

err_t work_digest(ckpt_work *w, int group, const ckpt_tensor *t) {
    uint8_t *to = w->mine[group];
    for (int i = 0; i < w->params; i++) TRY(range_digests(&t[i], &to));
    return ERR_OK;
}

err_t work_gather(ckpt_work *w, int group) {
    const size_t *cut = w->cut + (size_t)group * ((size_t)w->world + 1);
    const uint8_t *from = w->mine[group];
    if (w->world > 1) {
        memcpy(w->gathered + cut[w->rank], from, cut[w->rank + 1] - cut[w->rank]);
        TRY(ckpt_all_gather(w->of, w->gathered, cut));
        from = w->gathered;
    }
    for (int r = 0; r < w->world; r++)
        for (int i = 0; i < w->params; i++) {
            const ckpt_span *p = work_span(w, group, r, i);
            size_t bytes = digest_bytes(&w->order[i], p);
            memcpy(w->chunk + (size_t)(w->base[i] + order_chunk(&w->order[i], p->first)) * CKPT_DIGEST, from, bytes);
            from += bytes;
        }
    return ERR_OK;
}

void work_part_digest(const ckpt_work *w, int i, int64_t first, int64_t count, uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    digest_put(&d, w->chunk + (size_t)(w->base[i] + order_chunk(&w->order[i], first)) * CKPT_DIGEST,
               digest_bytes(&w->order[i], &(ckpt_span){first, count}));
    digest_end(&d, out);
}

void work_group_digest(const ckpt_work *w, const ckpt_tensor *t, uint8_t out[CKPT_DIGEST]) {
    digest d;
    digest_begin(&d);
    for (int i = 0; i < w->params; i++) {
        group_tensor(&d, &t[i]);
        digest_put(&d, w->chunk + (size_t)w->base[i] * CKPT_DIGEST,
                   (size_t)(w->base[i + 1] - w->base[i]) * CKPT_DIGEST);
    }
    digest_end(&d, out);
}
