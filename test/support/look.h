// test/support/look.h: the small GPT whose evaluation and samples were computed elsewhere (test/golden/make_look.py).
#ifndef TEST_SUPPORT_LOOK_H
#define TEST_SUPPORT_LOOK_H

#include "test/support/golden.h"

#include "trainer/session/evaluate.h"

#define LOOK_GOLDEN "test/golden/look-golden.safetensors"
#define LOOK_VOCAB 128

// With the golden weights, before the first step. more: further INI lines.
static inline void look_open(session *x, config *c, const char *dir, session_kind kind, const char *more) {
    load_config(c, dir,
                "[data]\ntrain = test/golden/look-val.bin\nval = test/golden/look-val.bin\nformat = raw16\n"
                "[model]\nlayers = 2\nheads = 2\nembed = 32\ncontext = 32\nvocab = 128\n"
                "init_from = test/golden/look-weights.safetensors\n[batch]\nglobal = 8\nmicro = 4\nlanes = 1\n"
                "[device]\nthreads = 1\n",
                more);
    OK(session_open(x, c, kind, NULL));
    OK(session_init(x));
}

#endif
