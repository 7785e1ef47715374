// data/text/document.h: texts to encode, one document after the other: a plain file is a document, and so is the text
// of each line of a JSONL file. Either may be compressed with gzip or zstd. `stories:SEED` is documents too
// (data/text/stories.h): a story each, without the empty line after it.
#ifndef DATA_TEXT_DOCUMENT_H
#define DATA_TEXT_DOCUMENT_H

#include "data/tokenizer/room.h"

#include <jansson.h>
#include <stdbool.h>

// What a line may have, so that memory does not depend on the size of its file: bytes, and values of JSON.
enum { DOCUMENT_LINE = 64 << 20, DOCUMENT_VALUES = 1 << 20 };

typedef struct document_reader document_reader;

// key: the member of a line's object that has its text; NULL: a JSONL file too is one document, as it is. ERR_DATA:
// compressed in a way that is not read here.
err_t document_open(document_reader **out, const char *path, const char *key);
void document_close(document_reader *d);

// Appends up to `most` bytes of the open document to *to, or, of a JSONL file, one whole document. *ends: the document
// ends here. *more = false: there was none left, and nothing is appended. ERR_DATA names file and line.
err_t document_read(document_reader *d, bytes *to, int64_t most, bool *ends, bool *more);

// The next line of a file that is not read as JSONL, or of stories, without its end, valid until the next call. *more =
// false: there is none left. ERR_DATA, with the line's number: it is longer than DOCUMENT_LINE.
err_t document_line(document_reader *d, const uint8_t **line, int64_t *n, bool *more);

// A line as JSON; NULL: it is not valid, or has more than DOCUMENT_VALUES values, as `why` says. The caller releases
// it.
json_t *document_parse(const uint8_t *line, int64_t n, char why[200]);

bool document_is_jsonl(const document_reader *d);

// Whether a file of that name is JSONL: .jsonl or .ndjson, or one of them compressed.
bool document_names_jsonl(const char *path);

// Bytes of the file, as it is stored, that were read so far.
int64_t document_at(const document_reader *d);

#endif
