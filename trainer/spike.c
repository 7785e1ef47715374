// trainer/spike.c: see trainer/spike.h.
#include "trainer/spike.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of two in the middle the smaller one.
double spike_median(const run_progress *at) {
    double sorted[PROGRESS_LOSSES];
    size_t n = (size_t)at->losses;
    if (at->losses < SPIKE_LEAST) return NAN;
    memcpy(sorted, at->lately, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    return sorted[(n - 1) / 2];
}

static void remember(run_progress *at, double loss) {
    if (at->losses == PROGRESS_LOSSES) memmove(at->lately, at->lately + 1, (size_t)--at->losses * sizeof *at->lately);
    at->lately[at->losses++] = loss;
}

bool spike_step(run_progress *at, double times, double loss) {
    if (times == 0) return false;
    double median = spike_median(at);
    bool far = !isnan(median) && !(loss <= times * median);  // also where the loss is not a number
    at->spiking = far ? at->spiking + 1 : 0;
    if (!far && isfinite(loss)) remember(at, loss);
    return at->spiking == SPIKE_STEPS;
}

void spike_leave_out(run_progress *at, const run_progress *was, int64_t last) {
    memcpy(at->left_out, was->left_out, sizeof at->left_out);
    at->rollbacks = was->rollbacks;
    at->left_out[at->rollbacks++] = (step_range){last - SPIKE_STEPS + 1, last};
    at->spiking = 0;
}

int64_t spike_skips(const run_progress *at, int64_t step) {
    for (int i = 0; i < at->rollbacks; i++)
        if (step >= at->left_out[i].first && step <= at->left_out[i].last) return at->left_out[i].last;
    return 0;
}
