// trainer/checkpoint/manifest.h: manifest.json, the description of a checkpoint: counters, bits keys, the device that
// computed it, its files and which rank wrote each. For each tensor: its shape, the digest of its bytes, and its parts,
// each with a digest of its own, so that damage is found by tensor and by file, whichever rank reads which elements.
// Files have a digest of their header only: every other byte belongs to a part. The last member is the digest of all
// text before it: nothing in a manifest is used before every byte of it is verified. It also distinguishes two
// checkpoints of the same step.
//
// "device" holds what the bits depend on besides the keys: the device's arithmetic, and its plans (gpu/gpu.h), which
// are opaque here; and the revision of our own arithmetic (gpu/revision.h) of that kind of device and the run's
// compute type. "build" and "sources" say which build wrote it (base/version.h), for people.
//
// Builds before "revision" did not store it. Theirs is 1, except that of 16 bits and of GPUs, which is 2 if
// "device.plans" is one of the bits keys: that key came shortly before those bits changed, and the builds in between
// are known by name.
//
// A sliced tensor (ckpt_tensor.slices) also has "axis" and "slices", and its parts a "slice", in which "first" counts;
// where slices are no equal shares of the axis, "padded" or "rows" (ckpt_split).
// Only a manifest with one is of version 4: without, it is of version 3, which older builds read.
//
// Files in blocks (model/blocks.h) have ".blocks" after their names. Only a manifest with one is of version 5. Their
// header is all that stands before the blocks.
//
// "table" is there where rows are made on demand (trainer/checkpoint/rows.h): its parts are files, each with some
// buckets. Only a manifest with one is of version 6.
//
// "scalars" is there where the optimizer keeps any that do not follow from its settings and "counters".
//
// "forked_from" is there in a run that began with a checkpoint of another one (ckpt_origin).
//
// Older versions are still read. Version 2 had no "device", but "device.kind" among the bits keys: cpu or cuda. Version
// 1 had one rank: files without rank and host, tensors with "file" instead of parts.
#ifndef TRAINER_CHECKPOINT_MANIFEST_H
#define TRAINER_CHECKPOINT_MANIFEST_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/order.h"

enum { MANIFEST_VERSION = 6, MANIFEST_FILE_NAME = 48, MANIFEST_WORLD_MAX = 99999, MANIFEST_PLANS_MAX = 4096 };
enum { FILE_MODEL, FILE_OPTIMIZER, FILE_TABLE, FILE_KINDS };
enum { GROUP_MASTER, GROUP_OPTIMIZER };  // the first group of each kind of file

typedef struct manifest_file {
    char name[MANIFEST_FILE_NAME];
    bool blocks;
    int kind, rank;        // rank that wrote it
    char host[COMM_HOST];  // that rank's host; empty: not known
    int64_t bytes;
    uint8_t header[CKPT_DIGEST];  // of the bytes before the first tensor
} manifest_file;

typedef struct manifest_part {
    int file, slice;
    int64_t first, count;         // elements of the slice
    uint8_t digest[CKPT_DIGEST];  // of its chunks' digests
} manifest_part;

typedef struct manifest_tensor {
    char name[CKPT_NAME];  // in its file: "m/wte.weight"
    int dims;
    int64_t size[CKPT_DIMS];
    int axis, slices;  // 1 slice: not sliced
    ckpt_split split;
    int part, parts;  // manifest.part[part .. part + parts), as they are stored, without gap or overlap
    uint8_t digest[CKPT_DIGEST];
} manifest_tensor;

// The rows of these buckets; those of others, in no part, have none.
typedef struct manifest_rows_part {
    int file, first, buckets;
    int64_t rows;
    uint8_t digest[CKPT_DIGEST];
} manifest_rows_part;

typedef struct manifest_rows {
    char name[CKPT_NAME];
    int64_t width, rows;  // width 0: there are none
    int parts;
    manifest_rows_part *part;
    uint8_t digest[CKPT_DIGEST];  // of the values' and the sums'
} manifest_rows;

typedef struct manifest_scalar {
    char name[CKPT_GROUP_NAME];
    double value;
} manifest_scalar;

typedef struct manifest {
    run_progress at;
    int keys;
    ckpt_key *key;
    char data_hash[17], build[64], hash[17], state_hash[17];
    char sources[CKPT_SOURCES];          // empty: an older build, which did not know its own
    char arithmetic[DEVICE_ARITHMETIC];  // empty: not known
    int revision;                        // 0: not known
    bool assumed;                        // it was not stored, and follows from the age of the build
    int plans;
    char (*plan)[DEVICE_PLAN];
    ckpt_origin origin;
    int world;  // ranks that wrote it
    int files;  // first the model's, then the optimizer's, then the table's, each in order of rank
    manifest_file *file;
    int params;                      // tensors of each group
    int groups;                      // the masters, then what the optimizer kept
    char (*group)[CKPT_GROUP_NAME];  // [groups] their names: "", "m", "v"
    manifest_tensor *tensor;         // groups * params of them, group after group, each in name-table order
    int scalars;
    manifest_scalar *scalar;  // [scalars]
    int parts;
    manifest_part *part;
    manifest_rows rows;
    uint8_t digest[CKPT_DIGEST];  // its own, after reading
    ckpt_pulse pulse;             // of the state that is saved
} manifest;

static inline void ckpt_beat(const ckpt_pulse *p) {
    if (p->beat) p->beat(p->ctx);
}

// Frees the tables.
void manifest_close(manifest *m);

void manifest_file_name(char name[MANIFEST_FILE_NAME], int kind, int rank, int world, bool blocks);
// The name in its file of the tensor that belongs to parameter `name`. Returns its length, which may be CKPT_NAME or
// more: then the name was cut.
int manifest_tensor_name(char to[CKPT_NAME], const char *group, const char *name);
// Is the part all of its tensor?
bool manifest_part_is_whole(const manifest_tensor *t, const manifest_part *p);
// The number of a part's first element in the tensor, as it is stored (order.h).
int64_t manifest_part_first(const manifest_tensor *t, const manifest_part *p);
ckpt_order manifest_order(const manifest_tensor *t);
// The tensors of the group of this name, [params]; NULL: there is no such group.
manifest_tensor *manifest_group(const manifest *m, const char *name);
const double *manifest_scalar_of(const manifest *m, const char *name);  // NULL: there is none
// The name of a tensor's part in its file.
void manifest_part_name(char name[CKPT_NAME], const manifest_tensor *t, const manifest_part *p);
// Parts in a file.
int manifest_parts_in(const manifest *m, int file);
// The file of this kind that this rank wrote; -1: it had nothing to write.
int manifest_find_file(const manifest *m, int kind, int rank);

// Its text. The caller frees *text.
err_t manifest_print(const manifest *m, char **text, size_t *size);

// The text of DIR/manifest.json and its digest, which has been checked. ERR_DATA: missing or damaged. The caller frees
// *text.
err_t manifest_text(const char *dir, char **text, size_t *size, uint8_t digest[CKPT_DIGEST]);

// Parses a manifest's text; `path` is for messages. ERR_DATA: damaged; ERR_CONFIG: written by a newer build. Call
// manifest_close() afterwards, also after a failure.
err_t manifest_parse(manifest *m, const char *path, const char *text, size_t size);

// The revision of this build's arithmetic for what arithmetic and keys describe; 0: they don't say. *type: what has
// it, the compute type or "bf16-pairs"; *kind: "cpu", "cuda".
int manifest_revision_now(const char *arithmetic, const ckpt_key *key, int keys, const char **type, const char **kind);

// manifest_text and manifest_parse of DIR/manifest.json.
err_t manifest_read(manifest *m, const char *dir);

#endif
