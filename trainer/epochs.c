// trainer/epochs.c: see trainer/epochs.h.
#include "trainer/epochs.h"

#include "trainer/session/machine.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

static err_t count_samples(const config *c, int64_t *samples) {
    session x;
    int parts = 0;
    err_t rc = session_data(&x, c);
    if (rc == ERR_OK) {
        source_parts(x.train, &parts);
        *samples = source_about(x.train).samples;
    }
    err_record why = rc == ERR_OK ? (err_record){0} : *err_last();
    session_close(&x);
    if (rc != ERR_OK) {
        err_restore(&why);
        return err_prefix("[run] epochs counts the samples of the training data");
    }
    if (parts <= 1) return ERR_OK;
    err_set(
        ERR_CONFIG,
        "[data] train is a mix of %d parts with weights, which has no end and so no epochs: say how many [run] steps",
        parts);
    return config_blame(c, "run", "epochs");
}

// Rounded up. A product that is a whole number but for its rounding is that number.
static double steps_of(double epochs, int64_t samples, int64_t global) {
    return ceil(epochs * (double)samples / (double)global * (1 - 4 * DBL_EPSILON));
}

err_t epochs_settle(config *c) {
    int64_t samples = 0;
    if (c->run.epochs == 0) return ERR_OK;
    TRY(count_samples(c, &samples));
    double steps = steps_of(c->run.epochs, samples, c->batch.global);
    if (steps > 1e12) {
        err_set(ERR_CONFIG, "%g epochs of %" PRId64 " samples are more than 10^12 steps of [batch] global = %" PRId64,
                c->run.epochs, samples, c->batch.global);
        return config_blame(c, "run", "epochs");
    }
    return config_settle(c, (int64_t)steps, (double)samples / (double)c->batch.global);
}
