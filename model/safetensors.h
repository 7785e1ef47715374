// model/safetensors.h: tensors in a common file format (github.com/huggingface/safetensors, format of 2022-09):
// 8 bytes little-endian header length, JSON header, then the data without gaps. Also a form of our own in which the
// data is compressed (model/blocks.h): it is read like any other, by one thread at a time.
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ST_NAME = 128, ST_DIMS = 8 };
enum { ST_LENGTH_BYTES = 8, ST_HEADER_MAX = 100000000 };  // of the header; what other readers accept
#define ST_METADATA "__metadata__"                        // no tensor, but pairs of texts

// Every type of the format, and its bits: a file may also have tensors that are not read. The first four can be read as
// FP32.
// clang-format off
#define ST_FORMAT(X) \
    X(F32, 32) X(F16, 16) X(BF16, 16) X(F64, 64) X(I64, 64) X(BOOL, 8) X(U8, 8) X(I8, 8) X(F8_E4M3, 8) X(F8_E5M2, 8) X(F8_E8M0, 8) \
    X(I16, 16) X(U16, 16) X(I32, 32) X(U32, 32) X(U64, 64) X(C64, 64) X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8) X(F4, 4) X(F6_E2M3, 6) X(F6_E3M2, 6)
// clang-format on

typedef enum {
#define ST_MEMBER(name, bits) ST_##name,
    ST_FORMAT(ST_MEMBER)
#undef ST_MEMBER
        ST_TYPES  // how many there are
} st_type;
static inline bool st_floating(st_type t) { return t <= ST_F64; }

typedef struct st_tensor {
    char name[ST_NAME];
    st_type type;
    int dims;
    int64_t size[ST_DIMS];
    int64_t offset;  // of its bytes in the file, from the file's start
    int64_t bytes;
    int64_t block;  // of a file of blocks: the number of its first one, which is at `offset`
} st_tensor;

typedef struct st_file {
    char *path;
    int fd;
    int count;
    st_tensor *tensors;  // in the order of their data
    int64_t file_bytes;
    int64_t head_bytes;     // what stands before the tensors' data
    int64_t plain_bytes;    // of a file of blocks: those of the file that it would be without; else file_bytes
    struct blocks *blocks;  // NULL: it is plain
} st_file;

// Opens the file and checks the header, for consistency and against the file's length: types, shapes, offsets,
// overlaps, gaps, duplicates. ERR_DATA names the file, and the tensor or the offset. Reads no tensor data.
err_t st_open(st_file *f, const char *path);
void st_close(st_file *f);

const char *st_type_name(st_type t);  // "BF16"
// Sets bytes, from type and shape. Returns what is wrong, or NULL.
const char *st_count_bytes(st_tensor *t);

// NULL when there is none of that name.
const st_tensor *st_find(const st_file *f, const char *name);

// Reads the tensor's bytes as they are.
err_t st_read(const st_file *f, const st_tensor *t, void *out);

// Reads as FP32, converting from F16, BF16 and F64; ERR_DATA for other types. `out` holds the tensor's element count of
// floats.
err_t st_read_f32(const st_file *f, const st_tensor *t, float *out);

// The same for elements first .. first+count-1.
err_t st_read_f32_part(const st_file *f, const st_tensor *t, int64_t first, int64_t count, float *out);

// Writer: declare all tensors (their offsets are set by st_create), then put the data in the same order, then finish.
// Not atomic: the caller writes into a directory that it renames. metadata: NULL, or "key", "value", ..., NULL.
typedef struct st_writer {
    int fd;
    char path[1024];
    int64_t left;  // data bytes still to come
    int64_t done;  // bytes of data that were handed to the system
    char *header;  // the header as it was handed to the system, until st_finish or st_abort
    size_t header_bytes;
    struct block_writer *blocks;  // NULL: a plain file
    fault_list *faults;
} st_writer;

err_t st_create(st_writer *w, const char *path, st_tensor *tensors, int count, const char *const *metadata,
                fault_list *faults);
// The same for a file of blocks, of FP32 tensors. level: of zstd, 1 to BLOCK_LEVELS.
err_t st_create_blocks(st_writer *w, const char *path, st_tensor *tensors, int count, const char *const *metadata,
                       int level, fault_list *faults);
err_t st_put(st_writer *w, const void *bytes, size_t n);
// After all data was put: the file's bytes before it, as they were handed to the system, or will be by st_finish.
const char *st_head(const st_writer *w, size_t *n);
err_t st_finish(st_writer *w, int64_t *file_bytes);  // fsync and close. ERR_INTERNAL when data is missing
void st_abort(st_writer *w);                         // close after a failure

#endif
