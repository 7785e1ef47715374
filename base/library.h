// base/library.h: a shared library that is no part of the binary: it is looked for when it is needed, so that the binary starts where there
// is none, and every place that was looked at can be said.
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include "base/err.h"

#include <stddef.h>

enum { LIBRARY_PATH = 256 };

typedef struct library {
    void *handle;
    char path[LIBRARY_PATH];     // what the dynamic linker found
    char text[ERR_TEXT / 2];     // after library_open: the places that were tried; then: the names that are missing; comma between
    int missing;                 // how many
} library;

// Opens the first of these that can be loaded, by itself and for nobody else (RTLD_LOCAL); a name without a slash is looked for wherever the
// dynamic linker does. False: none, and `text` names them; one that is there and cannot be loaded is followed by the reason.
bool library_open(library *lib, const char *const places[], size_t count);

// *(function pointer of any type *)to = the function of that name, or NULL, which is noted in `text` and `missing` where it is needed.
void library_find(library *lib, const char *name, bool needed, void *to);

void library_close(library *lib);

#endif
