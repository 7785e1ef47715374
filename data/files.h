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

// What to say where a pattern matches nothing.
typedef struct files_hint {
    const char *prefix;  // `text` is for names that are PREFIX-...; "": for all; NULL: for none
    const char *text;
} files_hint;

// *out = all files that match: files and globs, space between. ERR_CONFIG when a pattern matches nothing: where it was
// looked for, and the hint. *out must be zero; files_free() it in any case.
err_t files_expand(file_list *out, const char *patterns, files_hint hint);
void files_free(file_list *l);

#endif
