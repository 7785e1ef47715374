// trainer/watch/watcher.c: see trainer/watch/watcher.h.
#include "trainer/watch/watcher.h"

#include "base/clock.h"
#include "base/io.h"
#include "trainer/log/monitor.h"
#include "trainer/report/report.h"
#include "trainer/watch/alarms.h"
#include "trainer/watch/machine.h"
#include "trainer/watch/metrics.h"
#include "trainer/watch/pages.h"
#include "trainer/watch/sampler.h"
#include "trainer/watch/status_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const double EVERY_S = 1, READY_S = 0.1;  // between two looks; between two while the ranks are not ready
static const double LISTEN_S = 0.1;              // between two looks for the end, while pages are shown

// What it writes: status.json at each look, the others now and then.
typedef enum { FILE_STATUS, FILE_MACHINE, FILE_METRICS, FILE_REPORT, FILES } watch_file;

typedef struct watcher {
    const config *c;
    const watch_start *at;
    char dir[IO_PATH], status_path[IO_PATH], machine_path[IO_PATH];
    monitor m;  // events.jsonl alone: the ranks' process has the terminal
    sampler *look;
    alarms *alarms;
    alarm_news news;
    machine *lines;
    int machine_fd;
    char *status;
    size_t room, status_bytes;
    pages show;
    http *server;         // NULL: nothing is shown
    runlog *run;          // what the run has logged, read as it grows; NULL: not asked for yet
    char *page;           // shown last
    bool failing[FILES];  // could not be written when it last was to be
    bool complained;      // of sensors that can't be read
    int64_t reported;     // step of the checkpoint after which the last report was written
} watcher;

// --- what it makes of a look -----------------------------------------------------------------------------------------

// Fills in s->alarm (alarms.h), and logs those that begin or end.
static void judge(watcher *w, watch_state *s) {
    alarms_judge(w->alarms, s, &w->news);
    for (int i = 0; i < w->news.count; i++) {
        const alarm_change *c = &w->news.change[i];
        monitor_event(&w->m, alarm_event(c->kind, c->began), s->step, c->text);
    }
}

static err_t status_of(void *ctx, const char **text, size_t *bytes) {
    const watcher *w = ctx;
    *text = w->status, *bytes = w->status_bytes;
    return ERR_OK;
}

// The first reading of a long log takes seconds, later ones only what is new.
static err_t open_run(watcher *w) { return w->run ? ERR_OK : runlog_open(&w->run, w->dir); }

static err_t report_of(void *ctx, const char **text, size_t *bytes) {
    watcher *w = ctx;
    TRY(open_run(w));
    TRY(runlog_poll(w->run));
    free(w->page);
    w->page = NULL;
    TRY(report_render(&w->run, 1, true, &w->page, bytes));
    *text = w->page;
    return ERR_OK;
}

// Begins to show the pages of [log] http. Where it can't, one event says so, and the run goes on without them.
static void open_pages(watcher *w, const watch_state *s) {
    if (!*w->c->log.http) return;
    w->show = (pages){.state = s, .report = w->at->node == 0 ? report_of : NULL, .status = status_of, .ctx = w};
    if (pages_open(&w->show) != ERR_OK || pages_listen(&w->server, &w->show, w->c) != ERR_OK)
        monitor_event(&w->m, "watch_failed", s->step, err_last()->text);
}

// report.html is written after each checkpoint and at the end, where rank 0 and its log are.
static bool owes_report(const watcher *w, const watch_state *s, bool last) {
    return w->c->log.report && s->has_news && (last || s->news.checkpoint_step != w->reported);
}

static err_t write_report(watcher *w, const watch_state *s) {
    w->reported = s->news.checkpoint_step;
    TRY(open_run(w));
    return report_write(w->run, w->dir);
}

// Answers requests until then; true: the run is over.
static bool serve(watcher *w, double until) {
    if (!w->server) return w->at->over(until);
    for (double now; (now = clock_now()) < until;) {
        err_t rc = http_serve(w->server, now + LISTEN_S < until ? now + LISTEN_S : until);
        if (rc != ERR_OK) return w->at->over(until);
        if (w->at->over(0)) return true;
    }
    return w->at->over(0);
}

// --- files -----------------------------------------------------------------------------------------------------------

// A full disk is one event, which may find no room either: none of the other files is named while status.json can't be
// written, and none again before it could be. true: it is written.
static bool note(watcher *w, watch_file f, err_t rc, int64_t step) {
    bool told = w->failing[f] || w->failing[FILE_STATUS];
    if (rc != ERR_OK && !told) monitor_event(&w->m, "watch_failed", step, err_last()->text);
    w->failing[f] = rc != ERR_OK;
    return rc == ERR_OK;
}

static err_t write_status(watcher *w, const watch_state *s) {
    size_t n = status_json(s, w->status, w->room);
    w->status_bytes = n;
    if (n == 0) return err_set(ERR_INTERNAL, "%s needs more than %zu bytes", w->status_path, w->room);
    return io_replace_file(w->status_path, w->status, n);
}

static bool write_machine(watcher *w, const watch_state *s, bool last) {
    const char *line;
    size_t n;
    machine_add(w->lines, s, last, &line, &n);
    if (!line) return true;
    off_t end = lseek(w->machine_fd, 0, SEEK_END);
    err_t rc = io_write(w->machine_fd, w->machine_path, line, n, NULL);
    if (rc != ERR_OK) (void)!ftruncate(w->machine_fd, end);  // half a line would spoil the next one
    return note(w, FILE_MACHINE, rc, s->step);
}

// The last line of a watcher that was killed may be half there.
static err_t open_machine(watcher *w) {
    char end;
    TRY(io_open(w->machine_path, O_RDWR | O_CREAT | O_APPEND, &w->machine_fd));
    off_t size = lseek(w->machine_fd, 0, SEEK_END);
    if (size > 0 && pread(w->machine_fd, &end, 1, size - 1) == 1 && end != '\n')
        return io_write(w->machine_fd, w->machine_path, "\n", 1, NULL);
    return ERR_OK;
}

// --- looking ---------------------------------------------------------------------------------------------------------

static void complain_once(watcher *w, int64_t step) {
    if (w->complained || !*sampler_complaint(w->look)) return;
    w->complained = true;
    monitor_event(&w->m, "watch_sensors", step, sampler_complaint(w->look));
}

static err_t write_metrics(const watcher *w, const watch_state *s) {
    return *w->c->log.prom_file ? metrics_file(s, w->c->log.prom_file) : ERR_OK;
}

static const watch_state *look(watcher *w, bool last) {
    watch_state *s = sampler_look(w->look, clock_now(), clock_wall());
    judge(w, s);
    bool well = note(w, FILE_STATUS, write_status(w, s), s->step);
    well = write_machine(w, s, last) && well;
    well = well && note(w, FILE_METRICS, write_metrics(w, s), s->step);
    if (well && owes_report(w, s, last)) note(w, FILE_REPORT, write_report(w, s), s->step);
    complain_once(w, s->step);
    return s;
}

static void look_until_over(watcher *w, bool over) {
    bool shown = false;
    for (double next = clock_now(); !over;) {
        const watch_state *s = look(w, false);
        if (!shown) open_pages(w, s);
        shown = true;
        next += EVERY_S;
        if (next < clock_now()) next = clock_now();  // a slow disk: looks that are missed are not made up for
        over = serve(w, next);
    }
    look(w, true);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static bool is_ready(const watch_start *at) { return board_ready(at->b); }

// false: it is over before the ranks were ready. *over: it is over, which may come soon after they were.
static bool await_ready(const watch_start *at, bool *over) {
    for (*over = false; !*over && !is_ready(at);) *over = at->over(clock_now() + READY_S);
    return is_ready(at);
}

static void say_restarted(watcher *w) {
    int how = w->at->ended;
    char why[64], text[256];
    if (w->at->starts < 2) return;
    if (WIFSIGNALED(how)) snprintf(why, sizeof why, "was killed by signal %d", WTERMSIG(how));
    else snprintf(why, sizeof why, "ended with code %d", WEXITSTATUS(how));
    snprintf(
        text, sizeof text,
        "the process that watches the run on node %d %s, and is started again (start %d); the run is not concerned",
        w->at->node, why, w->at->starts);
    monitor_event(&w->m, "watch_restarted", atomic_load(&w->at->b->step), text);
}

static err_t watcher_open(watcher *w) {
    static const sink *const events[] = {&sink_events, NULL};
    TRY(io_path(w->dir, "%s/%s", w->c->run.dir, w->c->run.name));
    TRY(io_path(w->status_path, "%s/status.json", w->dir));
    TRY(io_path(w->machine_path, "%s/machine.jsonl", w->dir));
    TRY(monitor_open_list(&w->m, &(log_setup){.dir = w->dir, .c = w->c, .quiet = true}, events));
    say_restarted(w);
    TRY(open_machine(w));
    TRY(sampler_open(&w->look, &(sampler_options){.c = w->c, .at = w->at, .root = "", .every_s = EVERY_S}));
    TRY(machine_open(&w->lines, w->at->b->locals, (double)w->c->log.machine_every));
    watch_limits limits = watch_limits_default();
    limits.checkpoints_kept = (int)w->c->checkpoint.keep + w->c->checkpoint.keep_best;
    TRY(alarms_open(&w->alarms, &limits, w->at->b->locals));
    w->room = status_json_room(w->at->b->locals);
    w->status = malloc(w->room);
    return w->status ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %zu bytes of status", w->room);
}

static void watcher_close(watcher *w) {
    http_close(w->server);
    pages_close(&w->show);
    free(w->status), free(w->page);
    runlog_close(w->run);
    machine_close(w->lines);
    alarms_close(w->alarms);
    sampler_close(w->look);
    if (w->machine_fd >= 0) close(w->machine_fd);
    monitor_close(&w->m);
}

err_t watch_run(const config *c, const watch_start *at) {
    bool over;
    if (!await_ready(at, &over)) return ERR_OK;
    watcher *w = calloc(1, sizeof *w);
    if (!w) return err_set(ERR_INTERNAL, "no memory for a watcher");
    *w = (watcher){.c = c, .at = at, .machine_fd = -1};
    err_t rc = watcher_open(w);
    if (rc == ERR_OK) look_until_over(w, over);
    else monitor_event(&w->m, "watch_failed", atomic_load(&at->b->step), err_last()->text);
    err_record why = *err_last();
    watcher_close(w);
    free(w);
    return rc == ERR_OK ? rc : err_restore(&why);
}
