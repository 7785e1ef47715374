// trainer/report/report.c: report.html in a run's directory, and the verb `report`.
#include "trainer/report/report.h"

#include <stdlib.h>
#include <string.h>

static err_t open_runs(runlog **runs, char *const *dirs, int n) {
    for (int i = 0; i < n; i++) {
        TRY(runlog_open(&runs[i], dirs[i]));
        TRY(runlog_poll(runs[i]));
    }
    return ERR_OK;
}

// path: NULL for DIR/report.html of the first.
static err_t write_page(char *const *dirs, int n, const char *path, size_t *bytes) {
    runlog *runs[REPORT_RUNS] = {0};
    char own[IO_PATH], *page = NULL;
    err_t rc = path ? ERR_OK : io_path(own, "%s/report.html", dirs[0]);
    if (rc == ERR_OK) rc = open_runs(runs, dirs, n);
    if (rc == ERR_OK) rc = report_render(runs, n, false, &page, bytes);
    if (rc == ERR_OK) rc = io_write_file(path ? path : own, page, *bytes, NULL);
    free(page);
    for (int i = 0; i < n; i++) runlog_close(runs[i]);
    return rc;
}

err_t report_write(runlog *run, const char *dir) {
    char path[IO_PATH], *page;
    size_t bytes;
    TRY(io_path(path, "%s/report.html", dir));
    TRY(runlog_poll(run));
    TRY(report_render(&run, 1, false, &page, &bytes));
    err_t rc = io_write_file(path, page, bytes, NULL);
    free(page);
    return rc;
}

err_t verb_report(int argc, char **argv, FILE *out) {
    char *dirs[REPORT_RUNS];
    const char *path = NULL;
    int n = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--out") == 0) {
            if (++i == argc) return err_set(ERR_USAGE, "--out: expected a file after it");
            path = argv[i];
        } else if (strncmp(argv[i], "--", 2) == 0)
            return err_set(ERR_USAGE, "%s: no such option here; lockstep report RUN_DIR... [--out FILE]", argv[i]);
        else if (n == REPORT_RUNS) return err_set(ERR_USAGE, "more than %d runs", REPORT_RUNS);
        else dirs[n++] = argv[i];
    }
    if (n == 0)
        return err_set(ERR_USAGE, "lockstep report: expected a run's directory, e.g. lockstep report runs/default");
    if (n > 1 && !path) path = "report.html";
    size_t bytes;
    TRY(write_page(dirs, n, path, &bytes));
    if (path) fprintf(out, "%s: %zu bytes\n", path, bytes);
    else fprintf(out, "%s/report.html: %zu bytes\n", dirs[0], bytes);
    return ERR_OK;
}
