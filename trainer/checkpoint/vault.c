// trainer/checkpoint/vault.c: see trainer/checkpoint/vault.h.
#include "trainer/checkpoint/vault_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

static int adopted_keys(const ckpt_state *s) {
    int n = 0;
    for (int i = 0; i < s->keys; i++) n += s->key[i].adopted;
    return n;
}

static size_t bytes_of_range(const ckpt_state *s, const vault_range *r) {
    return r->group == VAULT_ROWS ? (size_t)vault_rows_bytes(s) : (size_t)r->count * sizeof(float);
}
static size_t room_of(const ckpt_state *s, const vault_range *r) {
    return vault_aligned(r->group == VAULT_ROWS ? (size_t)vault_rows_room(s) : bytes_of_range(s, r));
}

// The head of a generation of these parts, but for its step.
static vault_head describe(const ckpt_state *s, const vault_range *range, int n) {
    vault_head h = {.parts = n, .scalars = s->scalars, .keys = adopted_keys(s)};
    h.bytes = (int64_t)vault_values(&h);
    for (int i = 0; i < n; i++) h.bytes += (int64_t)room_of(s, &range[i]);
    return h;
}

int64_t vault_bytes(int64_t values, int64_t live) {
    return GENERATIONS * (live > values ? live : values) * (int64_t)sizeof(float);
}

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

// Of a generation, as its head has it; of the head alone, where that is more than there is room for: a bit has flipped,
// and the checksum says so.
static size_t bytes_of(const vault_head *h) {
    size_t bytes = (size_t)h->bytes;
    return bytes > (size_t)VAULT_ROOM ? sizeof *h : bytes;
}

// A file that was never written is zeros.
err_t vault_look(vault_area *a, const vault *v, int of, int g) {
    if (a->at) return ERR_OK;
    TRY(map(a, v, of, g, sizeof(vault_head), PROT_READ));
    size_t bytes = bytes_of(vault_head_of(a));
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

static uint32_t crc_of(const void *x, size_t bytes) { return bytes ? (uint32_t)crc32_z(0, x, bytes) : 0; }

// The counts are sound.
static uint32_t crc_of_head(vault_head *h) {
    enum { FROM = offsetof(vault_head, bytes), TO = offsetof(vault_head, crc) };
    const uint8_t *at = (const uint8_t *)h, *rest = (const uint8_t *)vault_parts(h);
    return (uint32_t)crc32_z(crc32_z(0, at + FROM, TO - FROM), rest, (size_t)(at + vault_values(h) - rest));
}

static err_t copy_values(char *to, const ckpt_state *s, const vault_range *r, stream *from) {
    size_t bytes = bytes_of_range(s, r);
    if (r->group == VAULT_ROWS) return vault_rows_write(s, to);
    if (!r->count) return ERR_OK;
    if (!from) return memcpy(to, r->data, bytes), ERR_OK;
    TRY(stream_copy(from, to, r->data, bytes));
    return stream_wait(from);
}

static err_t write_values(vault *v, vault_head *h, const ckpt_state *s, const vault_range *range, stream *from) {
    size_t at = vault_values(h);
    for (int i = 0; i < h->parts; i++) {
        const vault_range *r = &range[i];
        fault_kill(v->faults, h->live ? FAULT_KEEP : FAULT_SNAPSHOT);
        char *to = (char *)h + at;
        const size_t bytes = bytes_of_range(s, r);
        TRY(copy_values(to, s, r, from));
        vault_parts(h)[i] = (vault_part){.group = r->group,
                                         .tensor = r->tensor,
                                         .first = r->first,
                                         .count = r->count,
                                         .offset = (int64_t)at,
                                         .bytes = (int64_t)bytes,
                                         .of = r->of,
                                         .sum = r->sum,
                                         .crc = crc_of(from || !r->data ? to : (const void *)r->data, bytes)};
        at += room_of(s, r);
    }
    return ERR_OK;
}

static void write_rest(vault_head *h, const ckpt_state *s) {
    ckpt_key *k = vault_keys(h);
    for (int i = 0; i < s->scalars; i++) vault_scalars(h)[i] = *s->scalar[i].value;
    for (int i = 0; i < s->keys; i++)
        if (s->key[i].adopted) *k++ = s->key[i];
}

static int64_t step_of(const vault_area *a) { return a->at ? atomic_load(&vault_head_of(a)->step) : -1; }

int vault_to_overwrite(const vault_area is[GENERATIONS], int64_t step) {
    return vault_overwrites((const int64_t[GENERATIONS]){step_of(&is[0]), step_of(&is[1])}, step);
}

// from: NULL: the host reads what is to be written.
static err_t save(vault *v, const ckpt_state *s, const vault_range *range, int n, const vault_head *rest,
                  stream *from) {
    vault_head now = describe(s, range, n);
    int g = vault_to_overwrite(v->own, rest->at.step);
    TRY(vault_make_room(&v->own[g], v, v->local, g, (size_t)now.bytes));
    vault_head *h = vault_head_of(&v->own[g]);
    atomic_store(&h->step, -1);
    h->bytes = now.bytes, h->saved = rest->saved, h->at = rest->at, h->live = rest->live;
    h->parts = now.parts, h->scalars = now.scalars, h->keys = now.keys;
    TRY(write_values(v, h, s, range, from));
    write_rest(h, s);
    h->crc = crc_of_head(h);
    atomic_store(&h->step, rest->at.step);
    v->newest = g;
    return ERR_OK;
}

err_t vault_save(vault *v, const ckpt_state *s, const run_progress *at, int64_t saved) {
    int n = 0;
    vault_range *range = calloc((size_t)(s->groups * s->params) + 2, sizeof *range);
    if (!range) return err_set(ERR_INTERNAL, "no memory for a list of %d tensors", s->groups * s->params);
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            range[n++] = (vault_range){.group = g, .tensor = i, .first = t->first, .count = t->count, .data = t->data};
        }
    if (vault_rows_owns(s)) range[n++] = vault_rows_range(s);
    err_t rc = ERR_OK;
    for (int g = 0; rc == ERR_OK && g < GENERATIONS; g++) rc = vault_look(&v->own[g], v, v->local, g);
    if (rc == ERR_OK) rc = save(v, s, range, n, &(vault_head){.saved = saved, .at = *at}, NULL);
    free(range);
    return rc;
}

// The older generation may be all that the ranks have in common with one that was lost while it wrote the newer one. It
// is not, once a later step than that has ended on all of them.
err_t vault_save_live(vault *v, const ckpt_state *s, const vault_range *range, int n, const run_progress *at,
                      int64_t saved, stream *from) {
    for (int g = 0; g < GENERATIONS; g++) {
        TRY(vault_look(&v->own[g], v, v->local, g));
        if (step_of(&v->own[g]) >= at->step) return ERR_OK;
    }
    return save(v, s, range, n, &(vault_head){.saved = saved, .at = *at, .live = 1}, from);
}

// --- is it as it was written -----------------------------------------------------------------------------------------

static void note_damage(err_record *damage, const vault_head *h, const char *what, uint32_t is, uint32_t should) {
    err_record before = *err_last();
    err_set(ERR_DATA,
            "memory: the snapshot of step %" PRId64 ": %s has checksum %08" PRIx32 ", it was %08" PRIx32
            " when it was written: not used. Look for a memory that fails (edac, dmesg)",
            h->at.step, what, is, should);
    if (damage) *damage = *err_last();
    err_restore(&before);
}

bool vault_head_is_sound(const vault_area *a, err_record *damage) {
    vault_head *h = vault_head_of(a);
    enum { MANY = 1 << 28 };
    int64_t step = atomic_load(&h->step);
    bool fits = h->bytes == (int64_t)a->bytes && h->parts >= 0 && h->parts < MANY && h->scalars >= 0 &&
                h->scalars < MANY && h->keys >= 0 && h->keys <= CKPT_KEYS_MAX && vault_values(h) <= a->bytes &&
                (step < 0 || step == h->at.step);
    uint32_t is = fits ? crc_of_head(h) : ~h->crc;
    if (is != h->crc) note_damage(damage, h, "its table", is, h->crc);
    return is == h->crc;
}

bool vault_part_is_sound(const vault_area *a, int part, err_record *damage) {
    vault_head *h = vault_head_of(a);
    const vault_part *p = vault_parts(h) + part;
    char what[96];
    uint32_t is = crc_of(a->at + p->offset, (size_t)p->bytes);
    const int64_t last = p->first + p->count - 1;
    if (is == p->crc) return true;
    if (p->group == VAULT_ROWS)
        snprintf(what, sizeof what, "rows on demand, buckets %" PRId64 " to %" PRId64, p->first, last);
    else
        snprintf(what, sizeof what, "group %d, tensor %d, elements %" PRId64 " to %" PRId64, p->group, p->tensor,
                 p->first, last);
    note_damage(damage, h, what, is, p->crc);
    return false;
}

bool vault_is_sound(const vault_area *a, err_record *damage) {
    if (!vault_head_is_sound(a, damage)) return false;
    for (int i = 0; i < vault_head_of(a)->parts; i++)
        if (!vault_part_is_sound(a, i, damage)) return false;
    return true;
}

// --- reading ---------------------------------------------------------------------------------------------------------

void vault_close_set(vault_set *x) {
    for (int i = 0; i < x->count; i++) vault_unmap(&x->area[i]);
    free(x->area);
    *x = (vault_set){0};
}

// The next generation that was ever written, at *at or behind it. Holes are skipped: to read one would fill it.
static bool next_written(const vault *v, off_t *at, int *of, int *g) {
    *at = lseek(v->fd, *at, SEEK_DATA);
    if (*at < 0) return false;
    int index = (int)(*at / VAULT_ROOM);
    *of = index / GENERATIONS, *g = index % GENERATIONS;
    *at = (index + 1) * VAULT_ROOM;
    return true;
}

static err_t add_to_set(vault_set *x, const vault *v, int of, int g) {
    vault_area a = {0};
    TRY(map(&a, v, of, g, sizeof(vault_head), PROT_READ));
    int64_t step = atomic_load(&vault_head_of(&a)->step);
    size_t bytes = bytes_of(vault_head_of(&a));
    vault_unmap(&a);
    if (!bytes || step < 0) return ERR_OK;
    if (x->count == x->room) {
        int room = x->room ? 2 * x->room : 16;
        vault_area *more = realloc(x->area, (size_t)room * sizeof *more);
        if (!more) return err_set(ERR_INTERNAL, "no memory for the list of %d snapshots", room);
        x->area = more, x->room = room;
    }
    vault_area *to = &x->area[x->count];
    *to = (vault_area){0};
    TRY(map(to, v, of, g, bytes, PROT_READ));
    if (!vault_head_is_sound(to, v->damage)) return vault_unmap(to), ERR_OK;
    x->count++;
    return ERR_OK;
}

err_t vault_open_set(vault_set *x, const vault *v) {
    int of, g;
    *x = (vault_set){0};
    for (off_t at = 0; next_written(v, &at, &of, &g);) TRY(add_to_set(x, v, of, g));
    return ERR_OK;
}

err_t vault_forget(const vault *v, int64_t after) {
    int of, g;
    for (off_t at = 0; next_written(v, &at, &of, &g);) {
        vault_area a;
        TRY(map(&a, v, of, g, sizeof(vault_head), PROT_READ | PROT_WRITE));
        vault_head *h = vault_head_of(&a);
        if (atomic_load(&h->step) > after) atomic_store(&h->step, -1);
        vault_unmap(&a);
    }
    return ERR_OK;
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
