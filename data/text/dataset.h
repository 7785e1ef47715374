// data/text/dataset.h: tokens in shard files. A dataset is an ordered list of files, seen as one long stream of tokens.
#ifndef DATA_TEXT_DATASET_H
#define DATA_TEXT_DATASET_H

#include "base/err.h"
#include "base/fault.h"
#include "data/format.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dataset dataset;

typedef struct dataset_options {
    const char *files;     // files and globs, space between; the match is sorted by name in byte order
    source_format format;  // FORMAT_AUTO: by magic or by the index beside it, else raw16
    int64_t vocab;         // a token >= vocab is ERR_DATA with file and offset; 0: not checked
    const char *packed;    // [pack] output: `lockstep pack` makes the files whose names begin so; NULL: none
    int retry;             // how often a read that fails with an I/O error is retried, with back-off
    int shared_by;         // so many datasets share this process's descriptors; 0, 1: it is the only one
    fault_list *faults;    // may be NULL
} dataset_options;

typedef struct dataset_info {
    int64_t tokens;
    int files;
    int64_t row_tokens;  // of a sample, where answers are marked (data/text/shard.h); else 0
    bool labels;         // texts have labels: a row ends with its length and its label
    bool numbers;        // these are numbers, FP32
    bool documents;      // rows hold several documents
    int token_bytes;     // that hold the tokens of every file: 1, 2 or 4
    // first 16 hex digits of BLAKE2b-256 over the token counts and the block checksums (foreign formats: the bytes'
    // CRC)
    char hash[17];
} dataset_info;

// Opens every file and checks every header against its size. ERR_DATA names file, offset, expected and found.
err_t dataset_open(dataset **out, const dataset_options *o);
void dataset_close(dataset *d);
dataset_info dataset_about(const dataset *d);

// out[0..n) = tokens first .. first+n of the stream; may cross shard files. One thread at a time.
err_t dataset_read(dataset *d, int64_t first, int64_t n, int32_t *out);

// The same with marks[0..n) = what is marked of the tokens (data/text/shard.h).
err_t dataset_read_marked(dataset *d, int64_t first, int64_t n, int32_t *out, uint8_t *marks);

// Reads everything and checks every checksum. Calls report(ctx, text) for each damaged block; returns ERR_DATA if there
// was one.
err_t dataset_verify(dataset *d, void (*report)(void *ctx, const char *text), void *ctx);

// true: a read that waits for its next retry fails now with ERR_INTERRUPTED, and so do later ones. false: retries work
// again. Any thread.
void dataset_cancel(dataset *d, bool cancelled);

// Reads that failed first and succeeded later, and the bytes that were read. Any thread.
void dataset_counts(const dataset *d, int64_t *retries, int64_t *read);

#endif
