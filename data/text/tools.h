// data/text/tools.h: the verb `lockstep data`: says what files of tokens, images or clicks are, checks them, and writes
// tokens in another format.
#ifndef DATA_TEXT_TOOLS_H
#define DATA_TEXT_TOOLS_H

#include "base/err.h"

#include <stdio.h>

// `lockstep data info FILE...`, `verify FILE...`, `convert [--to FORMAT] FILE... OUT`, each with --from FORMAT where
// the first bytes do not tell: what comes after `data`. ERR_DATA of verify: at least one file is damaged; all faults
// were printed.
err_t verb_data(int argc, char **argv, FILE *out);

#endif
