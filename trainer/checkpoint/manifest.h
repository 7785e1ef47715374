// trainer/checkpoint/manifest.h: manifest.json, what a checkpoint says of itself: counters, bits keys, what it was computed on, its files and
// who wrote them, and for each tensor its shape, the digest of its bytes, and the parts that it lies in, each with a digest of its own, so that
// damage is found by tensor and by file whoever reads which elements. Files have a digest of their header only: every other byte of them
// belongs to a part. The last member is the digest of all the text before it, so that nothing in a manifest is believed before every byte of it
// is known to be as written; it also tells two checkpoints of the same step apart.
//
// "device" is what the bits depend on beside the keys: the arithmetic of the device, and its plans (gpu/gpu.h), which nothing looks into here.
//
// Older versions are still read. 2 had no "device", but "device.kind" among the bits keys: cpu or cuda. 1 knew one rank: files without rank and
// host, tensors with "file" in the place of parts.
#ifndef TRAINER_CHECKPOINT_MANIFEST_H
#define TRAINER_CHECKPOINT_MANIFEST_H

#include "trainer/checkpoint/checkpoint.h"

enum { MANIFEST_VERSION = 3, MANIFEST_FILE_NAME = 48, MANIFEST_WORLD_MAX = 99999, MANIFEST_PLANS_MAX = 4096 };
enum { FILE_MODEL, FILE_OPTIMIZER, FILE_KINDS };
enum { GROUP_MASTER, GROUP_M, GROUP_V, GROUPS };

typedef struct manifest_file {
    char name[MANIFEST_FILE_NAME];
    int kind, rank;               // rank that wrote it
    char host[COMM_HOST];         // and where that was; empty: not known
    int64_t bytes;
    uint8_t header[CKPT_DIGEST];  // of the bytes before the first tensor
} manifest_file;

typedef struct manifest_part {
    int file;
    int64_t first, count;
    uint8_t digest[CKPT_DIGEST];  // of its chunks' digests
} manifest_part;

typedef struct manifest_tensor {
    char name[CKPT_NAME];  // "m/wte.weight"
    int dims;
    int64_t size[4];
    int part, parts;       // manifest.part[part .. part + parts), in order of `first`, without gap or overlap
    uint8_t digest[CKPT_DIGEST];
} manifest_tensor;

typedef struct manifest {
    ckpt_counters at;
    int keys;
    ckpt_key *key;
    char data_hash[17], build[64], hash[17], state_hash[17];
    char arithmetic[DEVICE_ARITHMETIC];  // empty: not known
    int plans;
    char (*plan)[DEVICE_PLAN];
    int world;   // ranks that wrote it
    int files;   // first those of the model, then those of the optimizer, each in order of rank
    manifest_file *file;
    int params;  // tensors of each group
    int groups;  // 1: masters only; 3: masters, m, v
    manifest_tensor *tensor;  // groups * params of them, group after group, each in name-table order
    int parts;
    manifest_part *part;
    uint8_t digest[CKPT_DIGEST];  // its own, after reading
} manifest;

extern const char *const manifest_prefix[GROUPS];  // of a group's names in the file: "", "m/", "v/"

// Frees the tables.
void manifest_close(manifest *m);

void manifest_file_name(char name[MANIFEST_FILE_NAME], int kind, int rank, int world);
// Is the part all of its tensor?
bool manifest_part_is_whole(const manifest_tensor *t, const manifest_part *p);
// The name under which a part of a tensor lies in its file.
void manifest_part_name(char name[CKPT_NAME], const manifest_tensor *t, const manifest_part *p);
// The file of this kind that this rank wrote; -1: it had nothing to write.
int manifest_find_file(const manifest *m, int kind, int rank);

// Its text. The caller frees *text.
err_t manifest_print(const manifest *m, char **text, size_t *size);

// The text of DIR/manifest.json and its digest, which has been checked. ERR_DATA: missing or damaged. The caller frees *text.
err_t manifest_text(const char *dir, char **text, size_t *size, uint8_t digest[CKPT_DIGEST]);

// A manifest of its text; `path` is for messages. ERR_DATA: damaged; ERR_CONFIG: written by a newer build. manifest_close() afterwards,
// also after a failure.
err_t manifest_parse(manifest *m, const char *path, const char *text, size_t size);

// Both, of DIR/manifest.json.
err_t manifest_read(manifest *m, const char *dir);

#endif
