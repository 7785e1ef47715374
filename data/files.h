// data/files.h: the files that a key of the INI names.
#ifndef DATA_FILES_H
#define DATA_FILES_H

#include "base/err.h"

#include <glob.h>

typedef struct file_list {
    char **path;  // (count), sorted by name in byte order, each once
    int count;
    glob_t found;
} file_list;

// *out = all files that match: files and globs, space between. ERR_CONFIG when a pattern matches nothing, which ends with `hint`. *out must be
// zero; files_free() it in any case.
err_t files_expand(file_list *out, const char *patterns, const char *hint);
void files_free(file_list *l);

#endif
