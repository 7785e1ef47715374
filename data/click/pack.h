// data/click/pack.h: clicks and ratings become shards.
#ifndef DATA_CLICK_PACK_H
#define DATA_CLICK_PACK_H

#include "base/err.h"
#include "data/clicks.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct click_pack_options {
    click_kind kind;        // not CLICKS_NO
    const char *input;      // files and globs, space between, plain or compressed with gzip or zstd; or planted:...
    const char *val_input;  // files and globs of the validation records; NULL, "": val_fraction of the input
    const char *output;     // prefix: PREFIX-train-00000.bin ..., PREFIX-val-00000.bin
    int64_t shard_records;  // most records in a file
    double val_fraction;    // the chance by which a record goes to the validation files, always the same ones
    int64_t threshold;      // of MovieLens: a rating of at least this is a click
} click_pack_options;

enum { CLICK_TRAIN, CLICK_VAL, CLICK_SPLITS };

typedef struct click_pack_report {
    int64_t records[CLICK_SPLITS];
    double labels[CLICK_SPLITS];   // their sum: of clicks how many there are
    double best[CLICK_SPLITS];     // the planted model's mean loss; 0: there is none
    double entropy[CLICK_SPLITS];  // ... and that of labels that it would draw again: of its chances
    bool rated;
    int dense, tables, shards_out;
} click_pack_report;

// The loss of ratings is the squared error. Writes each file atomically; the old shards of the same prefix are removed
// when the new ones are complete on disk. ERR_DATA: a line that is not of that form, with file and line.
err_t click_pack_run(const click_pack_options *o, click_pack_report *r);

#endif
