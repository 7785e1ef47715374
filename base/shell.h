// base/shell.h: a path as a person pastes it into a shell.
#ifndef BASE_SHELL_H
#define BASE_SHELL_H

#include "base/io.h"

// Room for any path: each ' becomes four bytes.
enum { SHELL_PATH = 4 * IO_PATH + 8 };

// dst = the path, in quotes if it has to be; one that begins with a dash gets "./" before it, so that no program takes
// it for an option. What is longer than IO_PATH is cut. Returns dst.
const char *shell_path(char dst[SHELL_PATH], const char *path);

#endif
