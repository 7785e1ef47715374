// data/shard_set.h: the files that `lockstep pack` leaves, PREFIX-train-00000.bin ..., PREFIX-val-00000.bin ..., and
// how a new set takes the place of an old one. All files are written as *.tmp and are on disk first; then the old ones
// are removed, and the new ones get their names, so that a crash leaves too few files, never a mixture. What a pack
// that died has left, the next one removes.
#ifndef DATA_SHARD_SET_H
#define DATA_SHARD_SET_H

#include "base/io.h"

#include <stdbool.h>

// five digits, so that byte order is the order of the numbers
enum { SHARDS_MAX = 100000, SPLIT_TRAIN = 0, SPLIT_VAL, SPLITS };

typedef struct shard_set {
    const char *output;     // the prefix
    int shards[SPLITS];     // that are sealed
    void **sealed[SPLITS];  // [shards] their writers, which still need what is known at the end
    int64_t room[SPLITS];
} shard_set;

// suffix: "" or ".tmp".
err_t shard_set_path(const shard_set *s, char path[IO_PATH], int split, int shard, const char *suffix);

// One more is sealed.
err_t shard_set_keep(shard_set *s, int split, void *writer);

// What is left of a pack that failed: temporary files, of the sealed ones and of those that are open.
void shard_set_drop(const shard_set *s, const bool open[SPLITS]);

// Makes the directory of the output.
err_t shard_set_begin(const shard_set *s);

// Removes files of an older set of this prefix: all shards of it, or only those that are not part of this one, and
// temporary files.
err_t shard_set_clear(const shard_set *s, bool all);

// Gives the new files their names; *renamed += their number. The training files come last: until they exist, an
// incomplete set cannot be taken for a whole one.
err_t shard_set_rename(const shard_set *s, int *renamed);

#endif
