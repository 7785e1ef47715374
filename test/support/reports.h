// test/support/reports.h: what source_verify reports: how often, and the last of it.
#ifndef TEST_SUPPORT_REPORTS_H
#define TEST_SUPPORT_REPORTS_H

#include "base/err.h"

#include <stdio.h>

typedef struct reports {
    int count;
    char last[ERR_TEXT];
} reports;

static inline void keep_report(void *ctx, const char *text) {
    reports *r = ctx;
    r->count++;
    snprintf(r->last, sizeof r->last, "%s", text);
}

#endif
