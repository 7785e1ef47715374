// base/shell.c: see base/shell.h.
#include "base/shell.h"

#include <stdio.h>
#include <string.h>

const char *shell_path(char dst[SHELL_PATH], const char *path) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    const char *end = path + strnlen(path, IO_PATH), *dash = *path == '-' ? "./" : "";
    if (*path && !path[strspn(path, plain)])
        return snprintf(dst, SHELL_PATH, "%s%.*s", dash, (int)(end - path), path), dst;
    size_t n = (size_t)snprintf(dst, SHELL_PATH, "%s'", dash);
    for (; path < end; path++) n += (size_t)snprintf(dst + n, SHELL_PATH - n, *path == '\'' ? "'\\''" : "%c", *path);
    snprintf(dst + n, SHELL_PATH - n, "'");
    return dst;
}
