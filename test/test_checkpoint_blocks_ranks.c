// test/test_checkpoint_blocks_ranks.c: what test_checkpoint_ranks.c asks of plain files, asked of compressed ones: any
// world size reads the parts of any other, and nodes mend what they have lost from each other's copies.
#define CKPT_COMPRESS 1
#define CKPT_END ".blocks"
#include "test/test_checkpoint_ranks.c"
