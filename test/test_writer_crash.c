// test/test_writer_crash.c: what test_checkpoint_crash.c asks of a save, asked of one that is written beside the steps:
// the same failures, kills and full disks, at the same points.
#include "test/support/checkpoint_ranks.h"
#include "test/support/save_beside.h"

#define ckpt_save save_beside
#include "test/test_checkpoint_crash.c"
