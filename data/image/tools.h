// data/image/tools.h: what `lockstep data info` and `verify` do with shards of images.
#ifndef DATA_IMAGE_TOOLS_H
#define DATA_IMAGE_TOOLS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

// Does the file begin like a shard of images? false where it can't be read.
bool image_tools_know(const char *path);

// One line on the file, and one on its classes and values.
err_t image_tools_info(const char *path, FILE *out);
// Reads all images: a line for each that is damaged, ERR_DATA, or one that says that all is right.
err_t image_tools_verify(const char *path, FILE *out);

#endif
