// data/data.h: the input of tokens. A dataset is an ordered list of shard files, seen as one long stream of tokens. The
// order of windows is computed, never stored. A loader thread fills a ring of batch buffers ahead of the trainer.
//
// Alphabet  B samples of a micro-batch  T tokens of a window  W windows of the dataset  G samples of a step
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { SHARD_AUTO, SHARD_LOCKSTEP, SHARD_LLMC, SHARD_RAW16, SHARD_RAW32 } shard_format;

typedef struct dataset dataset;

typedef struct dataset_options {
    const char *files;    // files and globs, space between; the match is sorted by name in byte order
    shard_format format;  // SHARD_AUTO: by magic, else raw16
    int64_t vocab;        // a token >= vocab is ERR_DATA with file and offset; 0: not checked
    int retry;            // how often a read that fails with an I/O error is retried, with back-off
    fault_list *faults;   // may be NULL
} dataset_options;

typedef struct dataset_info {
    int64_t tokens;
    int files;
    int token_bytes;     // widest token of any file: 1, 2 or 4
    char hash[17];       // first 16 hex digits of BLAKE2b-256 over the token counts and the block checksums (foreign formats: the bytes' CRC)
} dataset_info;

// Opens every file and checks every header against its size. ERR_DATA names file, offset, expected and found.
err_t dataset_open(dataset **out, const dataset_options *o);
void dataset_close(dataset *d);
dataset_info dataset_about(const dataset *d);

// out[0..n) = tokens first .. first+n of the stream; may cross shard files. One thread at a time.
err_t dataset_read(dataset *d, int64_t first, int64_t n, int32_t *out);

// Reads everything and checks every checksum. Calls report(ctx, text) for each damaged block; returns ERR_DATA if there was one.
err_t dataset_verify(dataset *d, void (*report)(void *ctx, const char *text), void *ctx);

// --- order: data/sampler.c -------------------------------------------------------------------------------------------------

// How many windows of T tokens the stream holds, (tokens - 1) / T: the token after a window is its last target.
int64_t sampler_windows(int64_t tokens, int64_t T);

// Window of sample n (from 0): perm(seed, n / W)[n % W], a keyed permutation of [0,W) per epoch, evaluated by a Feistel
// network with cycle walking; n % W itself when not shuffled.
int64_t sampler_window(uint64_t seed, int64_t n, int64_t W, bool shuffle);

// --- loader: data/loader.c -------------------------------------------------------------------------------------------------

typedef struct loader loader;

typedef struct loader_options {
    uint64_t seed;
    bool shuffle;
    int64_t T;
    int64_t global, micro, lanes;     // G, B, L: lane l of a step is samples [l*G/L, (l+1)*G/L) in micro-batches of B
    int64_t first_lane, lane_count, lane_stride;  // the lanes of this rank, in the order in which it runs them: first, first + stride, ...
    int64_t first_step, last_step;    // steps to deliver, from 1, both included
    int depth;                        // most batches in the ring
    void *memory;                     // loader_bytes() bytes, page-aligned (pinned on a GPU); the caller's, outlives the loader
} loader_options;

typedef struct batch {
    int64_t step, lane, micro;  // micro: number of the micro-batch in its lane
    int64_t first;              // index within the step, 0..G-1, of its first sample
    int32_t *tokens;            // (B,T)
    int32_t *targets;           // (B,T)  the token that follows each
} batch;

typedef struct loader_stats {
    double wait_s;   // total time that the trainer has waited for batches
    int depth;       // batches that the loader now reads ahead: grows when the trainer had to wait, shrinks when it never does
    int64_t retries; // reads that failed first and succeeded later
} loader_stats;

int64_t loader_bytes(const loader_options *o);

// Starts the thread. The options are copied; the dataset and the memory stay the caller's.
err_t loader_open(loader **out, dataset *d, const loader_options *o);

// The next micro-batch, in order of step, lane and micro; waits until it is read. Valid until the next call. Returns
// the error of a read whose retries all failed, with file and offset. ERR_DATA past last_step.
err_t loader_next(loader *l, batch *out);

loader_stats loader_about(loader *l);
void loader_close(loader *l);

// --- pack: data/pack.c -----------------------------------------------------------------------------------------------------

typedef struct pack_options {
    const char *input;     // files, directories and globs, space between
    const char *output;    // prefix: PREFIX-train-00000.bin ..., PREFIX-val-00000.bin
    int64_t shard_tokens;  // most tokens in a file
    double val_fraction;   // share of the tokens, at the end of the stream, that goes to the validation files
    bool compress;         // zlib blocks
} pack_options;

typedef struct pack_report {
    int64_t files_in, files_skipped, bytes_in, train_tokens, val_tokens;
    int shards_out;
} pack_report;

// Tokenises (bytes) and writes shards, each atomically. A file that two patterns name is packed twice. Old shards of
// the same prefix are removed when the new ones are complete on disk, just before these get their names.
err_t pack_run(const pack_options *o, pack_report *r);

#endif
