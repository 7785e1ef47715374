// trainer/checkpoint/vault_file.h: what is in a vault's file, for the two files that read and write it. Internal to
// trainer/checkpoint/.
#ifndef TRAINER_CHECKPOINT_VAULT_FILE_H
#define TRAINER_CHECKPOINT_VAULT_FILE_H

#include "trainer/checkpoint/vault.h"
#include "trainer/checkpoint/vault_choose.h"

#include <stdatomic.h>
#include <sys/types.h>

// A file has a place of two generations for each rank that a node may have, and as many again for copies of the ranks
// of the node before. What was never written is a hole. Addresses of a generation: 256 GiB, more than a rank keeps.
enum { ALIGNED = 64, VAULT_COPIES = 1024, VAULT_PLACES = 2 * VAULT_COPIES };
#define VAULT_ROOM ((off_t)1 << 38)

// Of a generation. step is written last; -1: the rest is not, or no longer, whole.
typedef struct vault_head {
    _Atomic int64_t step;
    int64_t bytes;  // of all of it
    int64_t saved;
    run_progress at;
    int32_t parts, scalars, keys;
    int32_t live;  // what this rank held when others were lost, not a snapshot of all
    uint32_t crc;  // CRC-32 of all but step and values
    uint32_t unused;
    // after it: parts of `part`, scalars of double, keys of ckpt_key that were adopted, and the values
} vault_head;

// Elements of a tensor, or buckets of rows on demand (trainer/checkpoint/vault_rows.h).
typedef struct vault_part {
    int32_t group, tensor;
    int64_t first, count;
    int64_t offset, bytes;  // of the values, from the head on
    int64_t of;             // of live state, as in vault_range
    uint64_t sum;
    uint32_t crc;  // CRC-32 of the values
    uint32_t unused;
} vault_part;

// --- where everything is ---------------------------------------------------------------------------------------------

static inline size_t vault_aligned(size_t n) { return (n + ALIGNED - 1) / ALIGNED * ALIGNED; }

static inline vault_part *vault_parts(vault_head *h) {
    return (vault_part *)(void *)((char *)h + vault_aligned(sizeof *h));
}
static inline double *vault_scalars(vault_head *h) { return (double *)(void *)(vault_parts(h) + h->parts); }
static inline ckpt_key *vault_keys(vault_head *h) { return (ckpt_key *)(void *)(vault_scalars(h) + h->scalars); }
static inline size_t vault_values(vault_head *h) {
    return vault_aligned((size_t)((char *)(vault_keys(h) + h->keys) - (char *)h));
}

// A generation of a place as it is, or its head alone where it was never written. Does nothing where *a is mapped.
err_t vault_look(vault_area *a, const vault *v, int place, int generation);
// ... for so many bytes. One that was larger gives its memory back.
err_t vault_make_room(vault_area *a, const vault *v, int place, int generation, size_t bytes);
void vault_unmap(vault_area *a);
static inline vault_head *vault_head_of(const vault_area *a) { return (vault_head *)(void *)a->at; }

// Every generation in the node's file that is whole.
typedef struct vault_set {
    vault_area *area;
    int count, room;
} vault_set;
err_t vault_open_set(vault_set *x, const vault *v);
void vault_close_set(vault_set *x);
static inline vault_head *vault_head_at(const vault_set *x, int i) { return vault_head_of(&x->area[i]); }

// The first rank of a node. Nodes are numbered in the order of their ranks; of one more than the last node: the world.
static inline int vault_first_of_node(const comm *c, int node) {
    int low = 0, high = c->world;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (comm_where(c, middle).node < node) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Every generation in the node's file of a later step is as if it had never been written. Nobody else writes meanwhile.
err_t vault_forget(const vault *v, int64_t after);

// What was written there, and nothing else? of: for the message, which is put into *damage.
bool vault_head_is_sound(const vault_area *a, err_record *damage);
bool vault_part_is_sound(const vault_area *a, int part, err_record *damage);
// All of it.
bool vault_is_sound(const vault_area *a, err_record *damage);

// Puts what is not values into s, at and saved.
void vault_read_rest(vault_head *h, ckpt_state *s, run_progress *at, int64_t *saved);

// As vault_overwrites.
int vault_to_overwrite(const vault_area is[GENERATIONS], int64_t step);

#endif
