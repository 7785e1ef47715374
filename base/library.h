// base/library.h: a shared library that is opened only when it is needed, so that the binary starts where it is not
// installed. Keeps the list of the places that were tried.
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include "base/err.h"

#include <stddef.h>

enum { LIBRARY_PATH = 256 };

typedef struct library {
    void *handle;
    char path[LIBRARY_PATH];  // what the dynamic linker found
    // after library_open: the places that were tried; then: the names that are missing; comma between
    char text[ERR_TEXT / 2];
    int missing;  // how many
} library;

// Opens the first of these that can be loaded, with RTLD_LOCAL; a name without a slash is searched for where the
// dynamic linker searches. False: none could be loaded, and `text` names them, each existing one with the reason.
bool library_open(library *lib, const char *const places[], size_t count);

// The same for names without a slash, each searched for in turn: where the dynamic linker searches, in the folders of
// CUDA (CUDA_HOME, CUDA_PATH, /usr/local/cuda*, newest first) and of the distribution, and in Python environments
// (nvidia/*/lib of VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH, the system's, the user's and those in /opt): a
// machine that trains with PyTorch has NVIDIA's libraries there and nowhere else. False: `text` says what was found and
// why it could not be loaded, and where nothing was.
bool library_search(library *lib, const char *const names[], size_t count);

// *(function pointer of any type *)to = the function of that name, or NULL. If it is `needed`, NULL is noted in `text`
// and `missing`.
void library_find(library *lib, const char *name, bool needed, void *to);

void library_close(library *lib);

#endif
