// trainer/data_files.h: the verb `lockstep data`: says what files of tokens, images or clicks are, checks them, and
// writes tokens in another format.
#ifndef TRAINER_DATA_FILES_H
#define TRAINER_DATA_FILES_H

#include "base/err.h"

#include <stdio.h>

// `lockstep data info FILE...`, `verify FILE...`, `convert [--to FORMAT] FILE... OUT`, each with --from FORMAT where
// the first bytes do not tell: what comes after `data`. ERR_DATA of verify: at least one file is damaged; all faults
// were printed.
err_t verb_data(int argc, char **argv, FILE *out);

#endif
