// data/text/about.h: what `lockstep pack` knows of its shards and their format has no room for: with which tokenizer
// they were made, and how low a loss on them can be. It is in PREFIX-about.json beside PREFIX-train-00000.bin, ...:
// shards are read without it, by older builds too. It names each shard's header checksum, which covers all tokens, so
// that it is never believed of shards that were packed later, or elsewhere.
//
//      {"tokenizer": "datasets/s-tokenizer.json", "vocabulary": "5be9...", "best_loss": 0.925,
//       "shards": {"s-train-00000.bin": "0a1b2c3d", ...}}
#ifndef DATA_TEXT_ABOUT_H
#define DATA_TEXT_ABOUT_H

#include "base/io.h"
#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct about {
    bool known;               // the rest is known, and the same of all files
    char tokenizer[IO_PATH];  // "bytes", or where its file was when the shards were packed
    char vocabulary[17];      // tokenizer_hash; "" for bytes
    double best_loss;         // of a token, for a reader who has read all before it; 0: not known
    char beside[IO_PATH];     // the directory of the shards
} about;

// Of the files and globs of [data], with or without weights. What can't be found is not known, and no error. ERR_DATA:
// files were made with different tokenizers, or an about.json is damaged.
err_t about_find(about *a, const char *files);

// Opens a->tokenizer, there or beside the shards, where a copy would be: `at`, which may be NULL, says where it was.
// ERR_CONFIG: neither is there with that vocabulary.
err_t about_tokenizer(const about *a, tokenizer **out, char at[IO_PATH]);

// --- for data/text/pack.c

typedef struct about_writer about_writer;
err_t about_write_open(about_writer **out);
void about_write_shard(about_writer *w, const char *name, uint32_t header_crc);
err_t about_write(about_writer *w, const char *prefix, const about *a);  // to PREFIX-about.json, at once or not at all
void about_write_close(about_writer *w);

#endif
