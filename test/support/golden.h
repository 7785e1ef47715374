// test/support/golden.h: ten steps that PyTorch took (test/golden/make_gpt.py, make_sgd.py), for whichever device.
#ifndef TEST_SUPPORT_GOLDEN_H
#define TEST_SUPPORT_GOLDEN_H

#include "test/support/run.h"

#include "model/safetensors.h"
#include "trainer/session/restore.h"

#include <math.h>

// The run of the golden file, up to its first step. more: further INI lines.
static inline void golden_open(session *x, config *c, const char *dir, const char *more) {
    load_config(
        c, dir,
        "[data]\ntrain = test/golden/gpt-tokens.bin\nval =\nformat = raw16\nshuffle = no\n"
        "[model]\nlayers = 2\nheads = 4\nembed = 48\ncontext = 32\nvocab = 131\ninit_from = test/golden/gpt-weights.safetensors\n"
        "[batch]\nglobal = 6\nmicro = 6\nlanes = 1\n"
        "[optimizer]\nlr = 1e-3\nbeta1 = 0.9\nbeta2 = 0.99\neps = 1e-8\nweight_decay = 0.1\ngrad_clip = 1\n"
        "[schedule]\ntype = constant\nwarmup = -1\n",
        more);
    OK(session_open(x, c, SESSION_TRAIN, NULL));
    OK(session_init(x));
    OK(session_feed(x, 10));
}

static inline void golden_read(const char *file, const char *name, int64_t count, double *out) {
    st_file f;
    OK(st_open(&f, file));
    const st_tensor *t = st_find(&f, name);
    assert_non_null(t);
    assert_int_equal(t->type, ST_F64);
    assert_int_equal(t->bytes, 8 * count);
    OK(st_read(&f, t, out));
    st_close(&f);
}

// Losses and norms of ten steps, and the loss of the first batch after them. kind: before their names in the file.
static inline void golden_losses_of(session *x, const char *file, const char *kind) {
    double losses[10], norms[10], last, *to[] = {losses, norms, &last};
    static const char *const names[] = {"losses", "norms", "final_loss"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", kind, names[i]);
        golden_read(file, name, i < 2 ? 10 : 1, to[i]);
    }
    step_result s;
    for (int i = 0; i < 10; i++) {
        OK(session_step(x, &s));
        if (!(fabs(s.loss - losses[i]) <= 1e-5 * losses[i]))
            fail_msg("step %d: loss %.9f, PyTorch %.9f", i + 1, s.loss, losses[i]);
        if (!(fabs(s.grad_norm - norms[i]) <= 1e-5 * norms[i]))
            fail_msg("step %d: norm %.9f, PyTorch %.9f", i + 1, s.grad_norm, norms[i]);
    }
    x->progress.step = 0;  // the first batch once more, with the weights after ten updates
    OK(session_feed(x, 1));
    OK(session_step(x, &s));
    if (!(fabs(s.loss - last) <= 1e-5 * last)) fail_msg("after ten updates: loss %.9f, PyTorch %.9f", s.loss, last);
}

static inline void golden_losses(session *x) { golden_losses_of(x, "test/golden/gpt-golden.safetensors", ""); }

#endif
