// test/support/facts.h: what test_facts and test_facts_said share: a run's directory at a fixed time.
#ifndef TEST_SUPPORT_FACTS_H
#define TEST_SUPPORT_FACTS_H

#include "test/support/run.h"
#include "trainer/watch/facts.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const double NOW = 1795522000;  // 2026-11-24 12:06:40Z

static inline facts gathered(const char *dir) {
    facts f;
    OK(facts_gather(&f, dir, NOW));
    return f;
}

static inline void put_status(const char *dir, const char *format, double a, double b) {
    char text[1024];
    snprintf(text, sizeof text, format, a, b);
    write_text(dir, "status.json", text);
}

#endif
