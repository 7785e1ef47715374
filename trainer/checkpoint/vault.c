// trainer/checkpoint/vault.c: see trainer/checkpoint/vault.h.
#include "trainer/checkpoint/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// Addresses of a generation: 256 GiB, more than a rank keeps.
enum { GENERATIONS = 2, ALIGNED = 64 };
static const off_t room = (off_t)1 << 38;

// Of a generation. step is written last; -1: the rest is not, or no longer, whole.
typedef struct head {
    _Atomic int64_t step;
    int64_t bytes;  // of all of it
    int64_t saved;
    run_progress at;
    int32_t parts, scalars, keys, unused;
    // after it: parts of `part`, scalars of double, keys of ckpt_key that were adopted, and the values
} head;

typedef struct part {
    int32_t group, tensor;
    int64_t first, count;
    int64_t offset;  // of the values, from the head on
} part;

// --- where everything is ---------------------------------------------------------------------------------------------

static size_t aligned(size_t n) { return (n + ALIGNED - 1) / ALIGNED * ALIGNED; }

static int adopted_keys(const ckpt_state *s) {
    int n = 0;
    for (int i = 0; i < s->keys; i++) n += s->key[i].adopted;
    return n;
}

static part *parts_of(head *h) { return (part *)(void *)((char *)h + aligned(sizeof *h)); }
static double *scalars_of(head *h) { return (double *)(void *)(parts_of(h) + h->parts); }
static ckpt_key *keys_of(head *h) { return (ckpt_key *)(void *)(scalars_of(h) + h->scalars); }
static size_t values_begin(head *h) { return aligned((size_t)((char *)(keys_of(h) + h->keys) - (char *)h)); }

// The head of a generation of s, but for its step.
static head describe(const ckpt_state *s) {
    head h = {.parts = s->groups * s->params, .scalars = s->scalars, .keys = adopted_keys(s)};
    h.bytes = (int64_t)values_begin(&h);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) h.bytes += (int64_t)aligned((size_t)s->group[g].tensor[i].count * 4);
    return h;
}

int64_t vault_bytes(int64_t values) { return GENERATIONS * values * (int64_t)sizeof(float); }

// --- opening ---------------------------------------------------------------------------------------------------------

int vault_make(int locals) {
    struct rlimit most;
    off_t bytes = GENERATIONS * room * locals;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < (rlim_t)bytes)
        return err_set(
                   ERR_UNAVAILABLE,
                   "a limit of file sizes (ulimit -f, LimitFSIZE) forbids the file of memory that snapshots need: raise it, or set "
                   "[snapshot] every = 0"),
               -1;
    int fd = memfd_create("lockstep vault", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, bytes) == 0) return fd;
    err_set(ERR_UNAVAILABLE, "no file of memory for %d ranks: %s", locals, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

void vault_open(vault *v, int fd, int local, int locals) { *v = (vault){.fd = fd, .local = local, .locals = locals}; }

static void unmap(vault_area *a) {
    if (a->at) munmap(a->at, a->bytes);
    *a = (vault_area){0};
}

void vault_close(vault *v) {
    for (int g = 0; g < GENERATIONS; g++) unmap(&v->own[g]);
    v->fd = -1;
}

static off_t place(int local, int generation) { return (local * GENERATIONS + generation) * room; }

static err_t map(vault_area *a, const vault *v, int local, int generation, size_t bytes, int protection) {
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, v->fd, place(local, generation));
    if (at == MAP_FAILED)
        return err_set(ERR_UNAVAILABLE, "no %.1f MB of addresses for a snapshot: %s", (double)bytes / 1e6,
                       strerror(errno));
    *a = (vault_area){at, bytes};
    return ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

static int64_t step_of(const vault *v, int generation) {
    const head *h = (const head *)(const void *)v->own[generation].at;
    return h ? atomic_load(&h->step) : -1;
}

// What another process of this rank has written is found by mapping its head. A file that was never written is zeros.
static err_t look_at_own(vault *v) {
    for (int g = 0; g < GENERATIONS; g++) {
        if (v->own[g].at) continue;
        vault_area a;
        TRY(map(&a, v, v->local, g, sizeof(head), PROT_READ));
        size_t bytes = (size_t)((const head *)(const void *)a.at)->bytes;
        unmap(&a);
        TRY(map(&v->own[g], v, v->local, g, bytes ? bytes : sizeof(head), PROT_READ | PROT_WRITE));
    }
    return ERR_OK;
}

// A generation that was larger gives its memory back.
static err_t make_room(vault *v, int g, size_t bytes) {
    if (v->own[g].bytes == bytes) return ERR_OK;
    unmap(&v->own[g]);
    if (fallocate(v->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place(v->local, g), room) != 0)
        return err_set(ERR_UNAVAILABLE, "a snapshot's memory can't be given back: %s", strerror(errno));
    return map(&v->own[g], v, v->local, g, bytes, PROT_READ | PROT_WRITE);
}

static void write_values(head *h, const ckpt_state *s) {
    size_t at = values_begin(h);
    part *p = parts_of(h);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++, p++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            *p = (part){g, i, t->first, t->count, (int64_t)at};
            if (t->count) memcpy((char *)h + at, t->data, (size_t)t->count * 4);
            at += aligned((size_t)t->count * 4);
        }
}

static void write_rest(head *h, const ckpt_state *s) {
    ckpt_key *k = keys_of(h);
    for (int i = 0; i < s->scalars; i++) scalars_of(h)[i] = *s->scalar[i].value;
    for (int i = 0; i < s->keys; i++)
        if (s->key[i].adopted) *k++ = s->key[i];
}

// The newest generation of an earlier step stays: the ranks may have no other one in common.
static int to_overwrite(const vault *v, int64_t step) {
    int64_t a = step_of(v, 0), b = step_of(v, 1);
    if (a >= step) return 0;
    return b < step && b > a ? 0 : 1;
}

err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved) {
    head now = describe(s);
    TRY(look_at_own(v));
    int g = to_overwrite(v, at->step);
    TRY(make_room(v, g, (size_t)now.bytes));
    head *h = (head *)(void *)v->own[g].at;
    atomic_store(&h->step, -1);
    h->bytes = now.bytes, h->saved = saved, h->at = *at;
    h->parts = now.parts, h->scalars = now.scalars, h->keys = now.keys;
    write_values(h, s);
    write_rest(h, s);
    atomic_store(&h->step, at->step);
    return ERR_OK;
}

// --- reading ---------------------------------------------------------------------------------------------------------

// All generations of a step, by rank; not mapped where a rank has none.
typedef struct set {
    vault_area *area;
    int count;
    int64_t newest;
} set;

static void close_set(set *x) {
    for (int i = 0; i < x->count; i++) unmap(&x->area[i]);
    free(x->area);
    *x = (set){0};
}

// Every generation that is whole, of steps before `below`.
static err_t open_set(set *x, const vault *v, int64_t below) {
    *x = (set){.area = calloc((size_t)v->locals * GENERATIONS, sizeof *x->area), .newest = -1};
    if (!x->area) return err_set(ERR_INTERNAL, "no memory for the snapshots of %d ranks", v->locals);
    for (int i = 0; i < v->locals * GENERATIONS; i++) {
        vault_area a;
        TRY(map(&a, v, i / GENERATIONS, i % GENERATIONS, sizeof(head), PROT_READ));
        const head *h = (const head *)(const void *)a.at;
        int64_t step = atomic_load(&h->step);
        size_t bytes = (size_t)h->bytes;
        unmap(&a);
        if (!bytes || step < 0 || step >= below) continue;
        TRY(map(&x->area[x->count], v, i / GENERATIONS, i % GENERATIONS, bytes, PROT_READ));
        x->count++;
        if (step > x->newest) x->newest = step;
    }
    return ERR_OK;
}

static head *head_at(const set *x, int i) { return (head *)(void *)x->area[i].at; }

// Where the values of an element, and of as many that follow it as possible, are. NULL: nowhere.
static const float *find(const set *x, int64_t step, int group, int tensor, int64_t first, int64_t *count) {
    for (int i = 0; i < x->count; i++) {
        head *h = head_at(x, i);
        if (atomic_load(&h->step) != step) continue;
        for (const part *p = parts_of(h), *end = p + h->parts; p < end; p++) {
            if (p->group != group || p->tensor != tensor || first < p->first || first >= p->first + p->count) continue;
            *count = p->first + p->count - first;
            return (const float *)(const void *)((const char *)h + p->offset) + (first - p->first);
        }
    }
    return NULL;
}

// Copies what is there, into t or, if copies is false, nowhere. Is it all?
static bool read_tensor(const set *x, int64_t step, int group, int tensor, const ckpt_tensor *t, bool copies) {
    for (int64_t done = 0, n; done < t->count; done += n) {
        const float *from = find(x, step, group, tensor, t->first + done, &n);
        if (!from) return false;
        if (n > t->count - done) n = t->count - done;
        if (copies) memcpy(t->data + done, from, (size_t)n * 4);
    }
    return true;
}

static bool read_all(const set *x, int64_t step, const ckpt_state *s, bool copies) {
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++)
            if (!read_tensor(x, step, g, i, &s->group[g].tensor[i], copies)) return false;
    return true;
}

int64_t vault_newest(const vault *v, const ckpt_state *s, int64_t below) {
    set x;
    int64_t found = -1;
    err_record before = *err_last();
    while (found < 0 && open_set(&x, v, below) == ERR_OK && (below = x.newest) >= 0) {
        if (read_all(&x, below, s, false)) found = below;
        close_set(&x);
    }
    close_set(&x);
    err_restore(&before);
    return found;
}

static void read_rest(head *h, ckpt_state *s, run_progress *at, int64_t *saved) {
    *at = h->at;
    *saved = h->saved;
    for (int i = 0; i < s->scalars && i < h->scalars; i++) *s->scalar[i].value = scalars_of(h)[i];
    for (int k = 0; k < h->keys; k++)
        for (int i = 0; i < s->keys; i++)
            if (strcmp(s->key[i].key, keys_of(h)[k].key) == 0) {
                memcpy(s->key[i].value, keys_of(h)[k].value, CKPT_VALUE);
                s->key[i].adopted = true;
            }
}

err_t vault_load(const vault *v, ckpt_state *s, int64_t step, run_progress *at, int64_t *saved) {
    set x;
    err_t rc = open_set(&x, v, step + 1);
    if (rc == ERR_OK && !read_all(&x, step, s, true))
        rc = err_set(ERR_DATA, "the snapshot of step %" PRId64 " is not whole in memory", step);
    for (int i = 0; rc == ERR_OK && i < x.count; i++)
        if (atomic_load(&head_at(&x, i)->step) == step) {
            read_rest(head_at(&x, i), s, at, saved);
            break;
        }
    close_set(&x);
    return rc;
}
