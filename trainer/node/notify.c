// trainer/node/notify.c: sd_notify(3) without libsystemd. The protocol is guaranteed to be stable, and a page of code
// is less than a library.
#include "trainer/node/notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static const double status_every_s = 1;

// A path, or with '@' a name in Linux's abstract space.
static int connect_to(const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    if ((*name != '/' && *name != '@') || n < 2 || n >= sizeof to.sun_path) return -1;
    memcpy(to.sun_path, name, n);
    if (*name == '@') to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    // A listener with a full queue blocks us no longer than this; what could not be sent is sent later.
    struct timeval patience = {.tv_usec = 200000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*name == '/'))) ==
        0)
        return fd;
    close(fd);
    return -1;
}

static double watchdog_seconds(void) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtol(pid, NULL, 10) != getpid())) return 0;
    char *end;
    double value = strtod(usec, &end);
    return *usec && !*end && value > 0 ? value * 1e-6 : 0;
}

void notify_open(notify *n, int locals, int64_t steps, double start_s, double now) {
    const char *name = getenv("NOTIFY_SOCKET");
    *n = (notify){.fd = name ? connect_to(name) : -1, .locals = locals, .steps = steps, .start_s = start_s};
    n->watchdog_s = watchdog_seconds();
    n->opened = n->alive_at = now;
    n->shown_at = now - status_every_s;
}

void notify_close(notify *n) {
    if (n->fd >= 0) close(n->fd);
    n->fd = -1;
}

void notify_again(notify *n, double now) { n->opened = now; }

void notify_forget(void) {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

static bool put(notify *n, const char *message) { return send(n->fd, message, strlen(message), MSG_NOSIGNAL) >= 0; }

static void send_status(notify *n, const notify_news *news) {
    char text[sizeof n->shown];
    if (news->now - n->shown_at < status_every_s) return;
    if (news->ready < n->locals && news->waits && *news->waits)
        snprintf(text, sizeof text, "STATUS=%.170s", news->waits);
    else if (news->ready < n->locals)
        snprintf(text, sizeof text, "STATUS=%d of %d ranks are ready", news->ready, n->locals);
    else if (news->step == 0) snprintf(text, sizeof text, "STATUS=ready, step 0/%" PRId64, n->steps);
    else snprintf(text, sizeof text, "STATUS=step %" PRId64 "/%" PRId64 " loss %.4f", news->step, n->steps, news->loss);
    if (strcmp(text, n->shown) == 0 || !put(n, text)) return;
    n->shown_at = news->now;
    memcpy(n->shown, text, sizeof text);
}

static void send_alive(notify *n, const notify_news *news) {
    if (!n->watchdog_s || news->now - n->alive_at < n->watchdog_s / 4) return;
    bool starting = news->ready < n->locals && news->now - n->opened < n->start_s;
    bool working = news->looking && news->work != n->alive_work;
    if (!starting && !working && news->step == n->alive_step) return;
    if (!put(n, "WATCHDOG=1")) return;
    n->alive_at = news->now;
    n->alive_step = news->step;
    n->alive_work = news->work;
}

void notify_send(notify *n, const notify_news *news) {
    if (n->fd < 0) return;
    if (!n->ready && news->ready >= n->locals) n->ready = put(n, "READY=1");
    if (!n->stopping && news->stopping) n->stopping = put(n, "STOPPING=1");
    send_status(n, news);
    send_alive(n, news);
}

double notify_period(const notify *n) {
    if (n->fd < 0) return 1;
    double period = n->watchdog_s ? n->watchdog_s / 8 : 0.25;
    return period > 0.25 ? 0.25 : period < 0.01 ? 0.01 : period;
}

void notify_end(notify *n, bool well, const char *why) {
    if (n->fd < 0) return;
    char text[256];
    if (well && !n->ready) n->ready = put(n, "READY=1");
    snprintf(text, sizeof text, "STATUS=%.200s", why);
    put(n, text);
    if (!n->stopping) n->stopping = put(n, "STOPPING=1");
}
