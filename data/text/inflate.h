// data/text/inflate.h: a file of text as one stream of bytes, whether it is plain, gzip (RFC 1952) or zstd (RFC 8878).
// A compressed file may be many members or frames, one after the other. Memory does not depend on the file's size.
#ifndef DATA_TEXT_INFLATE_H
#define DATA_TEXT_INFLATE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD, PACKING_XZ, PACKING_BZIP2 } packing;

enum { PACKING_HEAD = 10 };  // so many bytes say it

// How a file that begins with these n bytes is compressed. Names play no part.
packing packing_of(const void *head, size_t n);

typedef struct inflater inflater;

// ERR_IO: it can't be read. ERR_DATA: it is compressed in a way that is not read here; the message names a program that
// unpacks it.
err_t inflater_open(inflater **out, const char *path);
void inflater_close(inflater *x);

// The next n bytes, fewer only where the text ends: *got of them. ERR_DATA: the file is damaged, or cut off inside of a
// member or frame. A cut between two of them can't be seen: such a file is whole.
err_t inflater_read(inflater *x, void *dst, int64_t n, int64_t *got);

// Bytes of the file, as it is stored, that were read so far.
int64_t inflater_at(const inflater *x);

#endif
