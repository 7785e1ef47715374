// data/text/pack_files.h: which files `lockstep pack` reads: what [pack] input names, without empty and binary files.
#ifndef DATA_TEXT_PACK_FILES_H
#define DATA_TEXT_PACK_FILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum pack_kind { PACK_PLAIN, PACK_JSONL, PACK_STORIES } pack_kind;

typedef struct pack_file {
    char *path;
    int64_t size;  // of what it adds to the stream: of a JSONL file that is known when all of it was read
    pack_kind kind;
    bool line_open;  // may not end in a line end
} pack_file;

typedef struct pack_files {
    pack_file *at;
    int64_t count, room, skipped;
    bool t_wanted;  // with a tokenizer files may be compressed
} pack_files;

// In the order of `input`; the files of a glob or a directory in byte order of their names. ERR_CONFIG: a name or a
// pattern that nothing has, or no text in all of it. pack_files_free() in any case.
err_t pack_files_find(pack_files *p, const char *input, bool t_wanted);
void pack_files_free(pack_files *p);

#endif
