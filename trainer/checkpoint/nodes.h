// trainer/checkpoint/nodes.h: what the nodes have of a step, and of one checkpoint of it. nodes.c cleans it up,
// resume.c loads from it.
#ifndef TRAINER_CHECKPOINT_NODES_H
#define TRAINER_CHECKPOINT_NODES_H

#include "base/io.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"

// One directory of one node, with a manifest that is whole or not.
typedef struct ckpt_version {
    int64_t step;
    int32_t kind, node, whole;
    int32_t unread;               // the manifest is there, and the system refused to read it: it may be whole
    uint8_t digest[CKPT_DIGEST];  // of the manifest, where it is whole
} ckpt_version;

// Collective. All directories of all nodes, newest step first, then by node and kind. The caller frees *list, also
// after a failure.
err_t ckpt_versions(const char *run_dir, const ckpt_state *s, ckpt_version **list, int *count);
// Collective. Brings every node's directories to final names: see nodes.c.
err_t ckpt_settle(const char *run_dir, const ckpt_state *s);

// All directories of one step.
typedef struct remains {
    const char *run_dir;
    const ckpt_state *s;
    int64_t step;
    const ckpt_version *v;
    int count;
} remains;

remains remains_at(const char *run_dir, const ckpt_state *s, const ckpt_version *list, int count, int first);
bool remains_is(const ckpt_version *v, const uint8_t *digest);
const ckpt_version *remains_find(const remains *r, int node, int kind);
// The directory in which a node may have files of this checkpoint: the one with its manifest, or else step-N if its
// manifest can't be read. NULL: the node has nothing of it.
const ckpt_version *remains_place(const remains *r, const uint8_t *digest, int node);
// Removes this node's directory of that kind.
err_t remains_remove(const remains *r, ckpt_kind kind);

// One checkpoint, on all nodes.
typedef struct shared {
    remains r;
    uint8_t digest[CKPT_DIGEST];
    char final[IO_PATH];  // step-N on this node
    char *text;           // of the manifest
    size_t size;
    manifest m;
    int32_t *have;  // [node][file]: 1: the node has it
    bool *absent;   // [file]: no node has it
} shared;

// Collective. All ranks get the manifest from the first node that has it. shared_close() afterwards, also after a
// failure.
err_t shared_open(shared *x, const remains *r, const ckpt_version *of);
void shared_close(shared *x);
// Collective. Finds which node has which file: with the right length and header, or, with `deep`, with every byte
// right. *damage: a file that is there and can't be used, the same on all ranks; one that could not be read (ERR_IO)
// rather than one that is damaged.
err_t shared_inventory(shared *x, bool deep, err_record *damage);
// Is every file on some node?
bool shared_complete(const shared *x);

#endif
