// data/text/megatron.h: the index of a file of tokens as Megatron-LM writes them: of which type the tokens are, and
// where each sequence begins. Knows nothing of shards: it reads two files, and says what the index gives.
#ifndef DATA_TEXT_MEGATRON_H
#define DATA_TEXT_MEGATRON_H

#include "data/reader.h"

#include <stdbool.h>

// Sequences that are read at a time, and the bytes of scratch memory which that takes.
enum { MEGATRON_PIECE = 1 << 14, MEGATRON_STAGE = 12 * MEGATRON_PIECE };

// Tokens from number `token` on, up to those of the next stretch, are in one piece at this offset.
typedef struct token_stretch {
    int64_t token, offset;
} token_stretch;

typedef struct token_index {
    int token_bytes;
    bool is_signed;
    int64_t tokens;          // in all
    token_stretch *stretch;  // (stretches), in the order of tokens; the caller frees it
    int64_t stretches;
} token_index;

// *found: NAME.idx, beside the NAME.bin that `path` is, begins as an index of Megatron-LM. An error: it can't be read.
err_t megatron_beside(reader *r, const char *path, bool *found);

// Reads and checks the index beside the file of tokens. stage: MEGATRON_STAGE bytes. ERR_DATA names file and offset;
// *out is then empty.
err_t megatron_open(token_index *out, reader *r, const data_file *tokens, uint8_t *stage);

#endif
