// trainer/log/fields.c: see trainer/log/fields.h.
#include "trainer/log/fields.h"

#include <stddef.h>

const field_about step_about[STEP_COUNT] = {
#define ABOUT(name, curve, board, member, key, as, nth, tag, value, at, metric, per, help) \
    {key, tag, FIELD_##as, metric, help, per},
    STEP_FIELDS(ABOUT)
#undef ABOUT
};

const step_field step_nth[STEP_COUNT] = {
#define NTH(name, curve, board, member, key, as, nth, ...) [nth] = STEP_##name,
    STEP_FIELDS(NTH)
#undef NTH
};

const step_field step_metric[STEP_COUNT] = {
#define METRIC(name, curve, board, member, key, as, nth, tag, value, at, ...) [at] = STEP_##name,
    STEP_FIELDS(METRIC)
#undef METRIC
};

double step_value(const step_record *r, step_field f) {
    switch (f) {
#define VALUE(name, curve, board, member, key, as, nth, tag, value, ...) \
    case STEP_##name: return value;
        STEP_FIELDS(VALUE)
#undef VALUE
    case STEP_COUNT: break;
    }
    return NAN;
}
