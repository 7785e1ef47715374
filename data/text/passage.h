// data/text/passage.h: texts of which every token is asked once, each with as much of its text before it as a window
// holds: for bits per byte.
//
//   prefix t1 t2 ... tT              asks t1 .. tT
//          tT ... t2T                asks the next T, and so on
//   the last T + 1 tokens            asks those that are left
//
// So the rolling likelihood of lm-evaluation-harness (get_rolling_token_windows, a context of one token) is computed on
// the same rows.
#ifndef DATA_TEXT_PASSAGE_H
#define DATA_TEXT_PASSAGE_H

#include "data/text/rows.h"

typedef struct passage {
    source *from;
    int64_t documents, bytes, tokens;  // those that are not empty; bytes and tokens that are asked
    // before each document; -1: nothing. Then its first token is not asked, and its bytes are not counted
    int32_t prefix;
} passage;

// A file is a document, and so is member `key` of each line of a JSONL file (data/text/document.h). ERR_DATA: damaged,
// or there is nothing to ask.
err_t passage_open(passage *p, const rows_from *o, const char *key);
void passage_close(passage *p);

#endif
