// trainer/node/yard.c: see trainer/node/yard.h.
#include "trainer/node/yard.h"

#include "comm/team/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef enum yard_kind { YARD_LEFT = 1, YARD_ENTER, YARD_END } yard_kind;

typedef struct yard_word {
    yard_kind kind;
    err_t code;
    uint64_t data;
    yard_news news;
} yard_word;

static bool say(int fd, const yard_word *w) {
    ssize_t n;
    do n = send(fd, w, sizeof *w, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n == sizeof *w;
}

static bool hear(int fd, yard_word *w, int flags) {
    ssize_t n;
    do n = recv(fd, w, sizeof *w, flags);
    while (n < 0 && errno == EINTR);
    return n == sizeof *w;
}

err_t yard_open(int pair[2]) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "no socket between the supervisor and a rank: %s; raise the limit of open files (LimitNOFILE)",
                   strerror(errno));
}

// --- a rank ----------------------------------------------------------------------------------------------------------

err_t yard_next(const launch *at, const err_record *why, bool *over) {
    yard *y = at->yard;
    yard_word w;
    int slot = at->slot;
    *over = false;
    launch_close(y->at);
    y->at->yard = y, y->at->slot = slot;
    if (!say(y->fd, &(yard_word){.kind = YARD_LEFT, .data = y->data})) return err_restore(why);
    kill(getppid(), SIGCHLD);
    fault_kill(y->faults, FAULT_LEFT);
    if (!hear(y->fd, &w, 0) || (w.kind == YARD_END && w.code == ERR_UNAVAILABLE)) return err_restore(why);
    if (w.kind == YARD_END) return *over = true, w.code == ERR_OK ? ERR_OK : err_set(w.code, "%s", "");
    TRY(launch_take(y->at, y->fd));
    y->at->yard = y, y->at->slot = slot;
    y->news = w.news;
    return ERR_OK;
}

// --- the supervisor --------------------------------------------------------------------------------------------------

bool yard_heard(int fd, uint64_t *data) {
    yard_word w;
    if (!hear(fd, &w, MSG_DONTWAIT) || w.kind != YARD_LEFT) return false;
    *data = w.data;
    return true;
}

err_t yard_enter(int fd, const launch *l, int local, const yard_news *news) {
    yard_word w = {.kind = YARD_ENTER, .news = *news};
    if (!say(fd, &w))
        return err_set(ERR_UNAVAILABLE, "a rank that lives takes no part in the next world: %s", strerror(errno));
    return launch_give(l, local, fd);
}

void yard_end(int fd, err_t code) {
    if (fd >= 0) (void)say(fd, &(yard_word){.kind = YARD_END, .code = code});
}
