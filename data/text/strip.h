// data/text/strip.h: text without the white space around it, as Python's str.strip and Jinja's trim have it.
#ifndef DATA_TEXT_STRIP_H
#define DATA_TEXT_STRIP_H

#include "data/tokenizer/room.h"

// The bytes before the white space at the end.
int64_t strip_end(const bytes *x);

// Takes it away on both sides.
void strip_both(bytes *x);

#endif
