// trainer/step/schedule.c: see trainer/step/schedule.h. Double arithmetic and our own cosine: the same rates on every
// machine.
#include "trainer/step/schedule.h"

#include "base/fmath.h"

static const double PI = 3.141592653589793, WSD_STABLE = 0.8;

// 0 at step `from`, 1 at step `to` and after
static double progress(double step, double from, double to) {
    if (step >= to) return 1;
    return step <= from ? 0 : (step - from) / (to - from);
}

double schedule_lr(const config *c, int64_t step) {
    double lr = c->optimizer.lr, low = c->schedule.final_fraction, at = (double)step;
    double warmup = c->resolved.warmup > 0 ? (double)c->resolved.warmup : 0, end = (double)c->resolved.decay_steps;
    if (at < warmup) return lr * at / warmup;
    switch (c->schedule.type) {
    case SCHEDULE_LINEAR: return lr * (1 - (1 - low) * progress(at, warmup, end));
    case SCHEDULE_COSINE: return lr * (low + (1 - low) * 0.5 * (1 + fm_cos(PI * progress(at, warmup, end))));
    case SCHEDULE_WSD: {
        double decay = WSD_STABLE * end;
        return lr * (1 - (1 - low) * progress(at, decay > warmup ? decay : warmup, end));
    }
    default: return lr;
    }
}
