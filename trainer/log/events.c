// trainer/log/events.c: events.jsonl, what went wrong and what interrupted the run. It is only appended to.
#include "base/io.h"
#include "trainer/log/json.h"
#include "trainer/log/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct events {
    int fd;
} events;

static err_t events_open(void *self, const log_setup *run) {
    events *e = self;
    char path[IO_PATH];
    e->fd = -1;
    TRY(io_path(path, "%s/events.jsonl", run->dir));
    return io_open(path, O_WRONLY | O_CREAT | O_APPEND, &e->fd);
}

static void events_close(void *self) {
    events *e = self;
    if (e->fd >= 0) close(e->fd);
}

static err_t take_event(void *self, const record *r) {
    events *e = self;
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"event\",\"at\":\"%s\",\"kind\":\"%s\",\"step\":%" PRId64, when, r->event.kind,
             r->event.step);
    for (int i = 0; i < r->event.figures; i++) json_put_real(&j, r->event.figure[i], r->event.value[i]);
    json_put_text(&j, "text", r->event.text);
    off_t end = lseek(e->fd, 0, SEEK_END);
    err_t rc = json_write(&j, e->fd, "events.jsonl");
    if (rc != ERR_OK) (void)!ftruncate(e->fd, end);  // half a record would spoil the next one
    return rc;
}

const sink sink_events = {
    .name = "events.jsonl",
    .bytes = sizeof(events),
    .open = events_open,
    .close = events_close,
    .take = {[RECORD_EVENT] = take_event},
};
