// test/test_checkpoint_blocks.c: what test_checkpoint.c asks of plain files, asked of compressed ones ([checkpoint]
// compress): every bit, every length, files of others, and manifests that were forged.
#define CKPT_COMPRESS 1
#define CKPT_END ".blocks"
#include "test/test_checkpoint.c"
