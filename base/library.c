// base/library.c: see base/library.h.
#include "base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(library *lib, const char *what, const char *why) {
    size_t at = strlen(lib->text);
    snprintf(lib->text + at, sizeof lib->text - at, "%s%s%s%s%s", at ? ", " : "", what, why ? " (" : "", why ? why : "",
             why ? ")" : "");
}

static bool loaded(library *lib) {
    struct link_map *map = NULL;
    lib->text[0] = 0;
    if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        snprintf(lib->path, sizeof lib->path, "%s", map->l_name);
    return true;
}

bool library_open(library *lib, const char *const places[], size_t count) {
    *lib = (library){0};
    for (size_t i = 0; i < count && !lib->handle; i++) {
        lib->handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = lib->handle ? NULL : dlerror();
        if (!lib->handle) note(lib, places[i], why && !strstr(why, "No such file") ? why : NULL);
    }
    return lib->handle && loaded(lib);
}

// --- searching -------------------------------------------------------------------------------------------------------

#define PACKAGES "/lib/python3*/*-packages/nvidia/*/lib"

// A word with $ is the value of that variable; a folder with an unset one is left out. $PYTHON: see python_prefix.
static const char *const folders[] = {
    "$CUDA_HOME/lib64",
    "$CUDA_PATH/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "$VIRTUAL_ENV" PACKAGES,
    "$CONDA_PREFIX/lib",
    "$CONDA_PREFIX" PACKAGES,
    "$PYTHON" PACKAGES,
    "$PYTHON_ITSELF" PACKAGES,
    "/usr" PACKAGES,
    "/usr/local" PACKAGES,
    "$HOME/.local" PACKAGES,
    "/opt/*" PACKAGES,
    "/opt/*/.venv" PACKAGES,
};

// The folder above that of the first python3 on PATH: of an environment, where the file is often a link, or,
// `resolved`, of what it links to.
static bool python_prefix(bool resolved, char dst[LIBRARY_PATH]) {
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        char file[PATH_MAX], real[PATH_MAX];
        snprintf(file, sizeof file, "%.*s/python3", (int)strcspn(at, ":"), at);
        if (access(file, X_OK) != 0) continue;
        if (resolved && !realpath(file, real)) return false;
        char *from = resolved ? real : file, *slash = strrchr(from, '/');
        *slash = 0;
        slash = strrchr(from, '/');
        if (!slash) return false;
        *slash = 0;
        return (size_t)snprintf(dst, LIBRARY_PATH, "%s", from) < LIBRARY_PATH;
    }
    return false;
}

// The pattern for a name in a folder. False: a variable of it is not set, or it is too long.
static bool pattern_of(const char *folder, const char *name, char dst[2 * LIBRARY_PATH]) {
    char word[32], prefix[LIBRARY_PATH] = "";
    size_t n = *folder == '$' ? strcspn(folder, "/") : 0;
    snprintf(word, sizeof word, "%.*s", (int)n, folder);
    if (strncmp(word, "$PYTHON", 7) == 0 && !python_prefix(strcmp(word, "$PYTHON_ITSELF") == 0, prefix)) return false;
    const char *value = !n ? "" : *prefix ? prefix : getenv(word + 1);
    if (!value || (n && !*value)) return false;
    return snprintf(dst, 2 * LIBRARY_PATH, "%s%s/%s", value, folder + n, name) < 2 * LIBRARY_PATH;
}

// Loads the last match first: of several versions of CUDA that is the newest.
static void load_matches(library *lib, const char *pattern) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = found.gl_pathc; i-- > 0 && !lib->handle;) {
        lib->handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        if (!lib->handle) note(lib, found.gl_pathv[i], dlerror());
    }
    globfree(&found);
}

bool library_search(library *lib, const char *const names[], size_t count) {
    char pattern[2 * LIBRARY_PATH];
    *lib = (library){0};
    for (size_t i = 0; i < count && !lib->handle; i++) {
        lib->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = lib->handle ? NULL : dlerror();
        if (!lib->handle) note(lib, names[i], why && !strstr(why, "No such file") ? why : NULL);
        for (size_t k = 0; k < sizeof folders / sizeof *folders && !lib->handle; k++)
            if (pattern_of(folders[k], names[i], pattern)) load_matches(lib, pattern);
    }
    if (lib->handle) return loaded(lib);
    note(
        lib,
        "in the dynamic linker's folders, in CUDA's (CUDA_HOME, /usr/local/cuda*), the distribution's and Python's (nvidia/*/lib)",
        NULL);
    return false;
}

// ISO C has no conversion from an object's address to a function's; POSIX promises that they have the same
// representation.
void library_find(library *lib, const char *name, bool needed, void *to) {
    void *symbol = dlsym(lib->handle, name);
    memcpy(to, &symbol, sizeof symbol);
    if (symbol || !needed) return;
    note(lib, name, NULL);
    lib->missing++;
}

void library_close(library *lib) {
    if (lib->handle) dlclose(lib->handle);
    lib->handle = NULL;
}
