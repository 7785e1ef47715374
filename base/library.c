// base/library.c: see base/library.h.
#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static void note(library *lib, const char *what, const char *why) {
    size_t at = strlen(lib->text);
    snprintf(lib->text + at, sizeof lib->text - at, "%s%s%s%s%s", at ? ", " : "", what, why ? " (" : "", why ? why : "", why ? ")" : "");
}

bool library_open(library *lib, const char *const places[], size_t count) {
    struct link_map *map = NULL;
    *lib = (library){0};
    for (size_t i = 0; i < count && !lib->handle; i++) {
        lib->handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = lib->handle ? NULL : dlerror();
        if (!lib->handle) note(lib, places[i], why && !strstr(why, "No such file") ? why : NULL);
    }
    if (!lib->handle) return false;
    lib->text[0] = 0;
    if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) == 0 && map) snprintf(lib->path, sizeof lib->path, "%s", map->l_name);
    return true;
}

// ISO C has no conversion from an object's address to a function's; POSIX promises that they have the same representation.
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
