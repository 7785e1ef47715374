// test/support/runlog.h: logs that tests of trainer/report write, and read as the report does.
#ifndef TEST_SUPPORT_RUNLOG_H
#define TEST_SUPPORT_RUNLOG_H

#include "test/support/run.h"

#include "trainer/report/runlog.h"

#include <math.h>

static inline void append(const char *dir, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static inline const char *step_line(int64_t step, double loss) {
    static char text[256];
    snprintf(
        text, sizeof text,
        "{\"t\":\"step\",\"step\":%lld,\"loss\":%.9g,\"tokens\":%lld,\"ms\":10,\"tokens_per_s\":%.9g,\"mfu\":%.9g}\n",
        (long long)step, loss, (long long)step * 64, 1000.0 + (double)(step % 100),
        0.25 + 0.0025 * (double)(step % 100));
    return text;
}

static inline void cut(const char *dir, const char *name, int64_t n) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(truncate(path, n), 0);
}

static inline runlog *open_log(const char *dir) {
    runlog *r;
    OK(runlog_open(&r, dir));
    OK(runlog_poll(r));
    return r;
}

static inline double mean_at(const runlog *r, curve c, int i) {
    const bucket *b = sheet_bucket(&r->steps, c, i);
    return b->n ? b->sum / (double)b->n : NAN;
}

#endif
