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
    X(FORMAT_IDX, "idx")
typedef enum { SOURCE_FORMATS(WORD_ENUM) } source_format;

#endif
