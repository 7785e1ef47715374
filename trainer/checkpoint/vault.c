// trainer/checkpoint/vault.c: see trainer/checkpoint/vault.h.
#include "trainer/checkpoint/vault_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int adopted_keys(const ckpt_state *s) {
    int n = 0;
    for (int i = 0; i < s->keys; i++) n += s->key[i].adopted;
    return n;
}

// The head of a generation of s, but for its step.
static vault_head describe(const ckpt_state *s) {
    vault_head h = {.parts = s->groups * s->params, .scalars = s->scalars, .keys = adopted_keys(s)};
    h.bytes = (int64_t)vault_values(&h);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) h.bytes += (int64_t)vault_aligned((size_t)s->group[g].tensor[i].count * 4);
    return h;
}

int64_t vault_bytes(int64_t values) { return GENERATIONS * values * (int64_t)sizeof(float); }

// --- opening ---------------------------------------------------------------------------------------------------------

int vault_make(void) {
    struct rlimit most;
    off_t bytes = GENERATIONS * VAULT_ROOM * VAULT_PLACES;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < (rlim_t)bytes)
        return err_set(
                   ERR_UNAVAILABLE,
                   "a limit of file sizes (ulimit -f, LimitFSIZE) forbids the file of memory that snapshots need: raise it, or set "
                   "[snapshot] every = 0"),
               -1;
    int fd = memfd_create("lockstep vault", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, bytes) == 0) return fd;
    err_set(ERR_UNAVAILABLE, "no file of memory for snapshots: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

void vault_open(vault *v, int fd, int local) { *v = (vault){.fd = fd, .local = local}; }

void vault_unmap(vault_area *a) {
    if (a->at) munmap(a->at, a->bytes);
    *a = (vault_area){0};
}

void vault_close(vault *v) {
    for (int g = 0; g < GENERATIONS; g++) vault_unmap(&v->own[g]);
    for (int i = 0; i < v->copies * GENERATIONS; i++) vault_unmap(&v->copy[i]);
    free(v->copy);
    *v = (vault){.fd = -1};
}

static off_t place(int of, int generation) { return (of * GENERATIONS + generation) * VAULT_ROOM; }

static err_t map(vault_area *a, const vault *v, int of, int generation, size_t bytes, int protection) {
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, v->fd, place(of, generation));
    if (at == MAP_FAILED)
        return err_set(ERR_UNAVAILABLE, "no %.1f MB of addresses for a snapshot: %s", (double)bytes / 1e6,
                       strerror(errno));
    *a = (vault_area){at, bytes};
    return ERR_OK;
}

// --- writing ---------------------------------------------------------------------------------------------------------

// A file that was never written is zeros.
err_t vault_look(vault_area *a, const vault *v, int of, int g) {
    if (a->at) return ERR_OK;
    TRY(map(a, v, of, g, sizeof(vault_head), PROT_READ));
    size_t bytes = (size_t)vault_head_of(a)->bytes;
    vault_unmap(a);
    return map(a, v, of, g, bytes ? bytes : sizeof(vault_head), PROT_READ | PROT_WRITE);
}

err_t vault_make_room(vault_area *a, const vault *v, int of, int g, size_t bytes) {
    if (a->bytes == bytes) return ERR_OK;
    vault_unmap(a);
    if (fallocate(v->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, place(of, g), VAULT_ROOM) != 0)
        return err_set(ERR_UNAVAILABLE, "a snapshot's memory can't be given back: %s", strerror(errno));
    return map(a, v, of, g, bytes, PROT_READ | PROT_WRITE);
}

static void write_values(vault_head *h, const ckpt_state *s) {
    size_t at = vault_values(h);
    vault_part *p = vault_parts(h);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++, p++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            *p = (vault_part){g, i, t->first, t->count, (int64_t)at};
            if (t->count) memcpy((char *)h + at, t->data, (size_t)t->count * 4);
            at += vault_aligned((size_t)t->count * 4);
        }
}

static void write_rest(vault_head *h, const ckpt_state *s) {
    ckpt_key *k = vault_keys(h);
    for (int i = 0; i < s->scalars; i++) vault_scalars(h)[i] = *s->scalar[i].value;
    for (int i = 0; i < s->keys; i++)
        if (s->key[i].adopted) *k++ = s->key[i];
}

static int64_t step_of(const vault_area *a) { return a->at ? atomic_load(&vault_head_of(a)->step) : -1; }

int vault_to_overwrite(const vault_area is[GENERATIONS], int64_t step) {
    int64_t a = step_of(&is[0]), b = step_of(&is[1]);
    if (a >= step) return 0;
    return b < step && b > a ? 0 : 1;
}

err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved) {
    vault_head now = describe(s);
    for (int g = 0; g < GENERATIONS; g++) TRY(vault_look(&v->own[g], v, v->local, g));
    int g = vault_to_overwrite(v->own, at->step);
    TRY(vault_make_room(&v->own[g], v, v->local, g, (size_t)now.bytes));
    vault_head *h = vault_head_of(&v->own[g]);
    atomic_store(&h->step, -1);
    h->bytes = now.bytes, h->saved = saved, h->at = *at;
    h->parts = now.parts, h->scalars = now.scalars, h->keys = now.keys;
    write_values(h, s);
    write_rest(h, s);
    atomic_store(&h->step, at->step);
    return ERR_OK;
}

// --- reading ---------------------------------------------------------------------------------------------------------

void vault_close_set(vault_set *x) {
    for (int i = 0; i < x->count; i++) vault_unmap(&x->area[i]);
    free(x->area);
    *x = (vault_set){0};
}

static err_t add_to_set(vault_set *x, const vault *v, int of, int g, int64_t below) {
    vault_area a = {0};
    TRY(map(&a, v, of, g, sizeof(vault_head), PROT_READ));
    int64_t step = atomic_load(&vault_head_of(&a)->step);
    size_t bytes = (size_t)vault_head_of(&a)->bytes;
    vault_unmap(&a);
    if (!bytes || step < 0 || step >= below) return ERR_OK;
    if (x->count == x->room) {
        int room = x->room ? 2 * x->room : 16;
        vault_area *more = realloc(x->area, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for the list of %d snapshots", room);
        x->area = more, x->room = room;
    }
    TRY(map(&x->area[x->count], v, of, g, bytes, PROT_READ));
    x->count++;
    if (step > x->newest) x->newest = step;
    return ERR_OK;
}

// Holes are skipped: to read one would fill it.
err_t vault_open_set(vault_set *x, const vault *v, int64_t below) {
    *x = (vault_set){.newest = -1};
    off_t at = 0;
    while ((at = lseek(v->fd, at, SEEK_DATA)) >= 0) {
        int index = (int)(at / VAULT_ROOM);
        TRY(add_to_set(x, v, index / GENERATIONS, index % GENERATIONS, below));
        at = (index + 1) * VAULT_ROOM;
    }
    return ERR_OK;
}

// Where the values of an element, and of as many that follow it as possible, are. NULL: nowhere.
static const float *find(const vault_set *x, int64_t step, int group, int tensor, int64_t first, int64_t *count) {
    for (int i = 0; i < x->count; i++) {
        vault_head *h = vault_head_at(x, i);
        if (atomic_load(&h->step) != step) continue;
        for (const vault_part *p = vault_parts(h), *end = p + h->parts; p < end; p++) {
            if (p->group != group || p->tensor != tensor || first < p->first || first >= p->first + p->count) continue;
            *count = p->first + p->count - first;
            return (const float *)(const void *)((const char *)h + p->offset) + (first - p->first);
        }
    }
    return NULL;
}

// Copies what is there, into t or, if copies is false, nowhere. Is it all?
static bool read_tensor(const vault_set *x, int64_t step, int group, int tensor, const ckpt_tensor *t, bool copies) {
    for (int64_t done = 0, n; done < t->count; done += n) {
        const float *from = find(x, step, group, tensor, t->first + done, &n);
        if (!from) return false;
        if (n > t->count - done) n = t->count - done;
        if (copies) memcpy(t->data + done, from, (size_t)n * 4);
    }
    return true;
}

static bool read_all(const vault_set *x, int64_t step, const ckpt_state *s, bool copies) {
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++)
            if (!read_tensor(x, step, g, i, &s->group[g].tensor[i], copies)) return false;
    return true;
}

int64_t vault_newest(const vault *v, const ckpt_state *s, int64_t below) {
    vault_set x;
    int64_t found = -1;
    err_record before = *err_last();
    while (found < 0 && vault_open_set(&x, v, below) == ERR_OK && (below = x.newest) >= 0) {
        if (read_all(&x, below, s, false)) found = below;
        vault_close_set(&x);
    }
    vault_close_set(&x);
    err_restore(&before);
    return found;
}

void vault_read_rest(vault_head *h, ckpt_state *s, run_progress *at, int64_t *saved) {
    *at = h->at;
    *saved = h->saved;
    for (int i = 0; i < s->scalars && i < h->scalars; i++) *s->scalar[i].value = vault_scalars(h)[i];
    for (int k = 0; k < h->keys; k++)
        for (int i = 0; i < s->keys; i++)
            if (strcmp(s->key[i].key, vault_keys(h)[k].key) == 0) {
                memcpy(s->key[i].value, vault_keys(h)[k].value, CKPT_VALUE);
                s->key[i].adopted = true;
            }
}

err_t vault_load(const vault *v, ckpt_state *s, int64_t step, run_progress *at, int64_t *saved) {
    vault_set x;
    err_t rc = vault_open_set(&x, v, step + 1);
    if (rc == ERR_OK && !read_all(&x, step, s, true))
        rc = err_set(ERR_DATA, "the snapshot of step %" PRId64 " is not whole in memory", step);
    for (int i = 0; rc == ERR_OK && i < x.count; i++)
        if (atomic_load(&vault_head_at(&x, i)->step) == step) {
            vault_read_rest(vault_head_at(&x, i), s, at, saved);
            break;
        }
    vault_close_set(&x);
    return rc;
}
