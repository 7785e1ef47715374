// trainer/report/runlog.c: files that grow, read line by line (base/follow.h). What a line means is in records.c.
#include "trainer/report/runlog.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// --- open, close -----------------------------------------------------------------------------------------------------

static bool is_there(const char *dir, const char *name) {
    char path[IO_PATH];
    struct stat st;
    if (io_path(path, "%s/%s", dir, name) != ERR_OK) return false;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// The directory's own name, whichever way it was given: "." has one, too.
static void name_of(runlog *r) {
    char full[PATH_MAX];
    const char *path = realpath(r->dir, full) ? full : r->dir, *slash = strrchr(path, '/');
    snprintf(r->name, sizeof r->name, "%s", slash && slash[1] ? slash + 1 : path);
}

static err_t open_file(runlog *r, runlog_file *f, const char *name) {
    char path[IO_PATH];
    TRY(io_path(path, "%s/%s", r->dir, name));
    return follow_begin(&f->of, path, r->chunk, RUNLOG_CHUNK);
}

err_t runlog_open(runlog **out, const char *dir) {
    err_t rc = ERR_OK;
    *out = NULL;
    if (!is_there(dir, "log.jsonl") && !is_there(dir, "config.ini"))
        return err_set(
            ERR_DATA,
            "%s: no run's directory: it has neither log.jsonl nor config.ini (a run's files are in [run] DIR/NAME)",
            dir);
    runlog *r = calloc(1, sizeof *r);
    if (!r) return err_set(ERR_INTERNAL, "no memory for the log of %s", dir);
    TRY_GOTO(io_path(r->dir, "%s", dir), failed);
    TRY_GOTO(sheet_open(&r->steps, CURVES, 1, 1, false), failed);
    TRY_GOTO(sheet_open(&r->early, EARLY_CURVES, 1, 1, true), failed);
    TRY_GOTO(sheet_open(&r->seconds, MACHINE_CURVES, NAN, 1, false), failed);
    TRY_GOTO(spread_open(&r->rate), failed);
    TRY_GOTO(spread_open(&r->mfu), failed);
    r->setting = calloc(RUNLOG_SETTINGS, sizeof *r->setting);
    r->rank_ms = calloc(RUNLOG_RANKS, sizeof *r->rank_ms);
    r->rank_lanes = calloc(RUNLOG_RANKS, sizeof *r->rank_lanes);
    r->chunk = malloc(RUNLOG_CHUNK);
    if (!r->setting || !r->rank_ms || !r->rank_lanes || !r->chunk)
        TRY_GOTO(err_set(ERR_INTERNAL, "no memory for the log of %s", dir), failed);
    TRY_GOTO(open_file(r, &r->log, "log.jsonl"), failed);
    TRY_GOTO(open_file(r, &r->events, "events.jsonl"), failed);
    TRY_GOTO(open_file(r, &r->machine, "machine.jsonl"), failed);
    name_of(r);
    runlog_forget(r);
    *out = r;
    return ERR_OK;
failed:
    runlog_close(r);
    return rc;
}

void runlog_close(runlog *r) {
    if (!r) return;
    sheet_close(&r->steps);
    sheet_close(&r->early);
    sheet_close(&r->seconds);
    spread_close(&r->rate);
    spread_close(&r->mfu);
    free(r->setting);
    free(r->rank_ms), free(r->rank_lanes);
    free(r->chunk);
    free(r);
}

// --- a file that grows -----------------------------------------------------------------------------------------------

// Drops what the file said so far: it is read from its beginning.
static void forget(runlog *r, runlog_file *f) {
    f->lines = f->damaged = 0;
    if (f == &r->log) runlog_forget(r);
    if (f == &r->events) r->events_seen = 0, r->marks = 0, r->forked[0] = 0;
    if (f == &r->machine) sheet_clear(&r->seconds, NAN, 1);
}

// One line. *again: the file has begun a new life, and must be read from its beginning.
static void take(runlog *r, runlog_file *f, const char *line, size_t n, bool fresh, bool *again) {
    bool back = false, well = false;
    if (line && n == 0) return;
    if (!line) well = false;  // too long
    else if (f == &r->log) well = runlog_take_log(r, line, n, &back);
    else well = f == &r->events ? runlog_take_event(r, line, n) : runlog_take_machine(r, line, n);
    f->lines++;
    if (well && !back) return;
    if (back && !fresh) *again = true;
    else f->damaged++;
}

// fresh: from its beginning, so that a step that goes back is damage and no new life.
static err_t read_on(runlog *r, runlog_file *f, bool fresh) {
    const char *line;
    size_t n;
    bool again = false;
    while (!again && follow_next(&f->of, &line, &n)) take(r, f, line, n, fresh, &again);
    if (!again) return f->of.rc;
    forget(r, f);
    follow_seek(&f->of, 0);
    return read_on(r, f, true);
}

static err_t poll_file(runlog *r, runlog_file *f) {
    follow_news news;
    TRY(follow_look(&f->of, &news));
    if (news == FOLLOW_GONE && f->of.at) follow_seek(&f->of, 0), news = FOLLOW_REPLACED;
    if (news != FOLLOW_ON && news != FOLLOW_GONE) forget(r, f);
    err_t rc = read_on(r, f, f->of.at == 0);
    follow_close(&f->of);
    return rc;
}

// --- the small files -------------------------------------------------------------------------------------------------

static err_t poll_settings(runlog *r) {
    enum { LARGEST = 1 << 20 };
    char path[IO_PATH], *text;
    struct stat st;
    size_t n;
    TRY(io_path(path, "%s/config.ini", r->dir));
    if (stat(path, &st) != 0) return ERR_OK;
    int64_t when = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (r->config_size == st.st_size && r->config_time == when) return ERR_OK;
    TRY(io_read_file(path, LARGEST, &text, &n));
    runlog_take_settings(r, text);
    free(text);
    r->config_size = st.st_size, r->config_time = when;
    return ERR_OK;
}

// It is replaced by rename, and may be gone or from another version: what it doesn't say is not known.
static void poll_status(runlog *r) {
    enum { LARGEST = 4 << 20 };
    char path[IO_PATH], *text;
    size_t n;
    if (!is_there(r->dir, "status.json") || io_path(path, "%s/status.json", r->dir) != ERR_OK) return;
    if (io_read_file(path, LARGEST, &text, &n) != ERR_OK) return;
    runlog_take_status(r, text, n);
    free(text);
}

err_t runlog_poll(runlog *r) {
    err_record first;
    runlog_file *const files[] = {&r->log, &r->events, &r->machine};
    err_t rc = poll_settings(r);
    if (rc != ERR_OK) first = *err_last();
    for (int i = 0; i < 3; i++) {
        err_t one = poll_file(r, files[i]);
        if (rc == ERR_OK && one != ERR_OK) first = *err_last(), rc = one;
    }
    runlog_flush_ranks(r);
    poll_status(r);
    return rc == ERR_OK ? rc : err_restore(&first);
}
