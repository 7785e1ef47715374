// data/format.h: the formats of files of samples.
#ifndef DATA_FORMAT_H
#define DATA_FORMAT_H

#include "base/words.h"

// The words of [data] format. Those of shards are formats of text.
#define SHARD_FORMATS(X) \
    X(FORMAT_LOCKSTEP, "lockstep") \
    X(FORMAT_LLMC, "llmc") \
    X(FORMAT_RAW16, "raw16") \
    X(FORMAT_RAW32, "raw32") \
    X(FORMAT_MEGATRON, "megatron")
#define SOURCE_FORMATS(X) \
    X(FORMAT_AUTO, "auto") \
    SHARD_FORMATS(X) \
    X(FORMAT_IDX, "idx") \
    X(FORMAT_IMAGES, "images") \
    X(FORMAT_CLICKS, "clicks")
typedef enum { SOURCE_FORMATS(WORD_ENUM) } source_format;

// The words of [data] flip: which images training sees mirrored, left to right. `alternating`: half of them in one
// epoch and the other half in the next (Jordan 2024, arXiv 2404.00498, section 3.6).
#define FLIP_WORDS(X) \
    X(FLIP_NO, "no") \
    X(FLIP_RANDOM, "random") \
    X(FLIP_ALTERNATING, "alternating")
typedef enum { FLIP_WORDS(WORD_ENUM) } flip_mode;

#endif
