// data/text/tools.h: what `lockstep data` does with files of tokens: says what they are, checks them, and writes them
// in another format. FORMAT_AUTO: the first bytes tell.
#ifndef DATA_TEXT_TOOLS_H
#define DATA_TEXT_TOOLS_H

#include "base/err.h"
#include "data/source.h"

#include <stdio.h>

// A line on the file, and one on its samples or tokenizer, where that is known.
err_t text_tools_info(const char *path, source_format from, FILE *out);
// Reads all of it: a line for each fault and ERR_DATA, or one that says that all is right.
err_t text_tools_verify(const char *path, source_format from, FILE *out);
// Writes the tokens of these files, one after the other, to a new file.
err_t text_tools_convert(const char *files, source_format from, source_format format, const char *to, FILE *out);

// The format of --from, or one that can be written, of --to. ERR_USAGE: there is none of this name.
err_t text_tools_format(const char *option, const char *word, source_format *format);

#endif
