// data/text/pack.h: text becomes shards of tokens.
#ifndef DATA_TEXT_PACK_H
#define DATA_TEXT_PACK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

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
