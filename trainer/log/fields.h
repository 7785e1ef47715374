// trainer/log/fields.h: the numbers of a step, once. What log.jsonl, TensorBoard, the board, the metrics and the report
// have of a step's record is made from this list, so that another number is another row here.
#ifndef TRAINER_LOG_FIELDS_H
#define TRAINER_LOG_FIELDS_H

#include "trainer/log/record.h"

#include <math.h>

// Of what is 0 where it is not known.
static inline double over_0(double x) { return x > 0 ? x : NAN; }

//   X(name, curve, board, member, key, as, nth, tag, value,
//     at, metric, per, help)
//
// curve   does the report draw it?
// board   is it on the board (board_news), as `member`?
// key     in log.jsonl, in this order. %s: the unit that is counted, "token"
// as      how it is printed there (field_kind)
// tag     in TensorBoard; NULL: not there. nth: its place among them, and all others after these
// value   of a step_record `r`; NaN: not known
// metric  among Prometheus' metrics, of a number that is on the board; NULL: not there. at: as nth is
// per     it is the number divided by this
//
// clang-format off
#define STEP_FIELDS(X) \
    X(LOSS,         YES, YES, loss,         "loss",         REAL,  0,  "train/loss",          r->loss, \
      1, "train_loss", 1, "Training loss of the last step.") \
    X(GRAD_NORM,    YES, YES, grad_norm,    "grad_norm",    REAL,  1,  "train/grad_norm",     r->grad_norm, \
      2, "gradient_norm", 1, "Norm of the last step's gradient, before it was clipped.") \
    X(LR,           YES, YES, lr,           "lr",           REAL,  2,  "train/lr",            r->lr, \
      3, "learning_rate", 1, "Learning rate of the last step.") \
    X(UNITS,        NO,  NO,  units,        "%ss",          WHOLE, 17, NULL,                  r->units, \
      8, NULL, 1, NULL) \
    X(MS,           YES, YES, ms,           "ms",           REAL,  6,  "speed/ms",            r->ms, \
      9, NULL, 1, NULL) \
    X(RATE,         NO,  YES, units_per_s,  "%ss_per_s",    REAL,  5,  "speed/%ss_per_s",     r->units_per_s, \
      0, "%ss_per_second", 1, "Training %ss per second, of the last step.") \
    X(MFU,          YES, YES, mfu,          "mfu",          REAL,  9,  "speed/mfu",           over_0(r->mfu), \
      5, "mfu_ratio", 1, "Share of the peak floating-point rate that the model's arithmetic reached in the last step.") \
    X(DATA_MS,      YES, YES, data_wait_ms, "data_wait_ms", REAL,  7,  "speed/data_wait_ms",  r->data_wait_ms, \
      6, "data_wait_seconds", 1e3, "How long the last step waited for data.") \
    X(WAIT_MS,      YES, YES, comm_wait_ms, "comm_wait_ms", REAL,  8,  "speed/comm_wait_ms",  r->comm_wait_ms, \
      7, "communication_wait_seconds", 1e3, "How long the last step waited for other ranks.") \
    X(COMM_MS,      NO,  NO,  comm_ms,      "comm_ms",      REAL,  12, "speed/comm_ms",       r->comm_ms, \
      10, NULL, 1, NULL) \
    X(HIDDEN,       YES, NO,  hidden,       "comm_hidden",  REAL,  13, "speed/comm_hidden",   r->hidden, \
      11, NULL, 1, NULL) \
    X(SLOWEST,      NO,  NO,  slowest,      "slowest_rank", WHOLE, 14, "speed/slowest_rank",  r->slowest, \
      12, NULL, 1, NULL) \
    X(SLOWEST_MS,   NO,  NO,  slowest_ms,   "slowest_compute_ms", REAL, 15, "speed/slowest_compute_ms", r->slowest_ms, \
      13, NULL, 1, NULL) \
    X(MEDIAN_MS,    NO,  NO,  median_ms,    "median_compute_ms", REAL,  16, "speed/median_compute_ms", r->median_ms, \
      14, NULL, 1, NULL) \
    X(LOSS_SCALE,   YES, YES, loss_scale,   "loss_scale",   REAL,  3,  "train/loss_scale",    r->loss_scale, \
      4, "loss_scale", 1, "What the loss is multiplied by, so that small gradients do not vanish in FP16.") \
    X(SKIPPED,      YES, NO,  skipped,      "skipped",      YESNO, 4,  "train/skipped",       r->skipped, \
      15, NULL, 1, NULL) \
    X(TIME,         NO,  NO,  time,         "time",         TIME,  18, NULL,                  over_0(r->time), \
      16, NULL, 1, NULL) \
    X(RESIDENT,     YES, NO,  resident,     "resident",     WHOLE, 10, "memory/resident",     over_0(r->resident), \
      17, NULL, 1, NULL) \
    X(DEVICE_BYTES, YES, NO,  device_bytes, "device_bytes", WHOLE, 11, "memory/device_bytes", over_0(r->device_bytes), \
      18, NULL, 1, NULL) \
    X(STALE,        YES, YES, stale,        "stale",        REAL,  19, "servers/stale",       r->stale, \
      19, "stale_updates", 1, "Updates of others that a gradient of the last step had missed when servers applied it, mean.") \
    X(LATE,         NO,  YES, late,         "late",         WHOLE, 20, "servers/late",        r->late, \
      20, "late_gradients", 1, "Gradients that came too late during the last step, and were dropped.") \
    X(WAITING,      NO,  YES, waiting,      "waiting",      REAL,  21, "servers/waiting",     r->waiting, \
      21, "server_queue", 1, "Questions of other workers that waited when the first server applied a gradient, mean.")
// clang-format on

// IF_##curve(text) is the text or nothing.
#define IF_YES(...) __VA_ARGS__
#define IF_NO(...)

typedef enum step_field {
#define STEP_NAME(name, ...) STEP_##name,
    STEP_FIELDS(STEP_NAME)
#undef STEP_NAME
        STEP_COUNT
} step_field;

// REAL: 9 digits. WHOLE: a whole number. YESNO: true or false. TIME: to the millisecond. All but YESNO: null for NaN.
typedef enum field_kind { FIELD_REAL, FIELD_WHOLE, FIELD_YESNO, FIELD_TIME } field_kind;

typedef struct field_about {
    const char *key, *tag;
    field_kind as;
    const char *metric, *help;
    double per;
} field_about;

extern const field_about step_about[STEP_COUNT];
extern const step_field step_nth[STEP_COUNT];     // in the order of `nth`
extern const step_field step_metric[STEP_COUNT];  // in the order of `at`

double step_value(const step_record *r, step_field f);

// Only of several ranks: between these two. From STALE on: only where servers do not wait for all of a step.
static inline bool step_has(const step_record *r, step_field f) {
    return f >= STEP_STALE ? r->served : r->world > 1 || f < STEP_COMM_MS || f > STEP_MEDIAN_MS;
}

#endif
