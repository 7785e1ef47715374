// test/test_checkpoint_blocks_crash.c: what test_checkpoint_crash.c asks of a save, asked of one that compresses: the
// same failures, kills and full disks, at the same points.
#define CKPT_COMPRESS 1
#define CKPT_END ".blocks"
#include "test/test_checkpoint_crash.c"
