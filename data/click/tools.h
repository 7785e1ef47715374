// data/click/tools.h: what `lockstep data info` and `verify` do with shards of clicks.
#ifndef DATA_CLICK_TOOLS_H
#define DATA_CLICK_TOOLS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

// Does the file begin like a shard of clicks? false where it can't be read.
bool click_tools_know(const char *path);

// One line on the file, and one on what its labels say.
err_t click_tools_info(const char *path, FILE *out);
// Reads all records: a line for each fault, ERR_DATA, or one that says that all is right.
err_t click_tools_verify(const char *path, FILE *out);

#endif
