// data/text/document.h: texts to encode, one document after the other: a plain file is a document, and so is the text of each line of a JSONL file.
// Either may be compressed with gzip or zstd.
#ifndef DATA_TEXT_DOCUMENT_H
#define DATA_TEXT_DOCUMENT_H

#include "data/tokenizer/room.h"

#include <stdbool.h>

typedef struct document_reader document_reader;

// key: the member of a line's object that has its text; NULL: a JSONL file too is one document, as it is. ERR_DATA: compressed in a way that is not read here.
err_t document_open(document_reader **out, const char *path, const char *key);
void document_close(document_reader *d);

// Appends up to `most` bytes of the open document to *to, or, of a JSONL file, one whole document. *ends: the document ends here. *more = false:
// there was none left, and nothing is appended. ERR_DATA names file and line.
err_t document_read(document_reader *d, bytes *to, int64_t most, bool *ends, bool *more);

bool document_is_jsonl(const document_reader *d);

// Bytes of the file, as it is stored, that were read so far.
int64_t document_at(const document_reader *d);

#endif
