// test/support/rate.h: the learning rate of a step as trainer/step/schedule.h describes it, by another hand and with
// libm's cosine.
#ifndef TEST_SUPPORT_RATE_H
#define TEST_SUPPORT_RATE_H

#include <math.h>

static const char *const rate_types[] = {"cosine", "linear", "constant", "wsd"};

typedef struct rate {
    double lr, warmup, end, final;
} rate;

static inline double rate_at(const rate *r, int type, double step) {
    double low = r->lr * r->final, since = (step - r->warmup) / (r->end - r->warmup), stable = 0.8 * r->end;
    if (step < r->warmup) return r->lr * step / r->warmup;
    if (type == 2) return r->lr;
    if (step >= r->end) return low;
    if (type == 0) return low + (r->lr - low) * (1 + cos(M_PI * since)) / 2;
    if (type == 1) return r->lr + (low - r->lr) * since;
    if (step <= stable) return r->lr;  // stable: after the warm-up
    return r->lr + (low - r->lr) * (step - stable) / (r->end - stable);
}

#endif
