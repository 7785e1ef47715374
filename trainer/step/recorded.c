// trainer/step/recorded.c: see trainer/step/recorded.h.
#include "trainer/step/recorded.h"

#include <stdlib.h>

err_t recorded_open(recordings *x, int count, int slots) {
    *x = (recordings){.count = count, .slots = slots};
    x->run = calloc(2 * (size_t)count * (size_t)slots + 1, sizeof *x->run);
    return x->run ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %d recordings", count);
}

void recorded_close(recordings *x) {
    for (int i = 0; x->run && i < 2 * x->count * x->slots; i++) replay_close(&x->run[i].calls);
    free(x->run);
    *x = (recordings){0};
}

err_t recorded_play(recorded_run *x, model_held *held, bool finds, stream *s, replay_calls calls, void *ctx) {
    model_held before = *held;
    if (!finds) held->block = RECORDED_NOTHING;
    if (x->ran) {
        TRY(replay_run(&x->calls, s, calls, ctx));
    } else {
        TRY(calls(ctx));
        x->ran = true, x->left = *held;
    }
    *held = x->left.block == RECORDED_NOTHING ? before : x->left;
    return ERR_OK;
}
