// trainer/manifest.h: manifest.json, what a checkpoint says of itself: counters, bits keys, and for each tensor its shape, its
// file and the digest of its bytes. Files have a digest of their header only: every other byte of them belongs to a tensor. The
// last member is the digest of all the text before it, so that nothing in a manifest is believed before every byte of it is known
// to be as written.
#ifndef TRAINER_MANIFEST_H
#define TRAINER_MANIFEST_H

#include "trainer/checkpoint.h"

enum { MANIFEST_VERSION = 1, MANIFEST_FILES = 2, MANIFEST_FILE_NAME = 32 };
enum { FILE_MODEL, FILE_OPTIMIZER };
enum { GROUP_MASTER, GROUP_M, GROUP_V, GROUPS };

typedef struct manifest_file {
    char name[MANIFEST_FILE_NAME];
    int64_t bytes;
    uint8_t header[CKPT_DIGEST];  // of the bytes before the first tensor
} manifest_file;

typedef struct manifest_tensor {
    char name[CKPT_NAME];  // as in the file: "m/wte.weight"
    int file, dims;
    int64_t size[4];
    uint8_t digest[CKPT_DIGEST];
} manifest_tensor;

typedef struct manifest {
    ckpt_counters at;
    int keys;
    ckpt_key *key;
    char data_hash[17], build[64], hash[17], state_hash[17];
    int files;   // 1: model only; 2: model and optimizer
    manifest_file file[MANIFEST_FILES];
    int params;  // tensors of each group
    int groups;  // 1: masters only; 3: masters, m, v
    manifest_tensor *tensor;  // groups * params of them, group after group, each in name-table order
} manifest;

extern const char *const manifest_file_names[MANIFEST_FILES];
extern const char *const manifest_prefix[GROUPS];  // of a group's names in the file: "", "m/", "v/"

// Tables for what *s holds, names and shapes filled in. ERR_INTERNAL when *s can't be written: a name too long, a key twice.
err_t manifest_open(manifest *m, const ckpt_state *s);
void manifest_close(manifest *m);

// Writes DIR/manifest.json (temporary file, fsync, rename, fsync of DIR).
err_t manifest_write(const manifest *m, const char *dir, fault_list *faults);

// Reads and checks DIR/manifest.json against itself. ERR_DATA: missing or damaged; ERR_CONFIG: written by a newer build.
// manifest_close() afterwards, also after a failure.
err_t manifest_read(manifest *m, const char *dir);

#endif
