// trainer/report/report.h: a run as one page: pictures, tables, no script, no request to anywhere, at most 1 MB however
// long the run was.
#ifndef TRAINER_REPORT_REPORT_H
#define TRAINER_REPORT_REPORT_H

#include "trainer/report/runlog.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { REPORT_RUNS = 16 };

// The page of n runs, 1 to REPORT_RUNS, side by side, after a runlog_poll of each. live: it asks the browser to load it
// anew every few seconds. *html ends with a NUL that *bytes doesn't count; the caller frees it. ERR_INTERNAL: no
// memory; ERR_IO: logs that are compared can't be read.
err_t report_render(runlog *const *runs, int n, bool live, char **html, size_t *bytes);

// Reads what is new of the run, and writes its page to DIR/report.html: all of it or nothing.
err_t report_write(runlog *run, const char *dir);

// The verbs, with what follows them on the command line. ERR_USAGE, ERR_DATA (no run's directory), ERR_IO.
err_t verb_report(int argc, char **argv, FILE *out);   // RUN_DIR... [--out FILE]
err_t verb_compare(int argc, char **argv, FILE *out);  // RUN_DIR...

#endif
