// trainer/log/fields.c: see trainer/log/fields.h.
#include "trainer/log/fields.h"

#include <stddef.h>

const field_about step_about[STEP_COUNT] = {
#define ABOUT(name, curve, board, member, key, as, nth, tag, value) {key, tag, FIELD_##as},
    STEP_FIELDS(ABOUT)
#undef ABOUT
};

const step_field step_nth[STEP_COUNT] = {
#define NTH(name, curve, board, member, key, as, nth, tag, value) [nth] = STEP_##name,
    STEP_FIELDS(NTH)
#undef NTH
};

double step_value(const step_record *r, step_field f) {
    switch (f) {
#define VALUE(name, curve, board, member, key, as, nth, tag, value) \
    case STEP_##name: return value;
        STEP_FIELDS(VALUE)
#undef VALUE
    case STEP_COUNT: break;
    }
    return NAN;
}
