// trainer/node/notify.h: reports to a service manager in the protocol of sd_notify(3): datagrams of NAME=value lines to
// a socket that the environment names. Reported are: ready, status, alive, about to end.
//
// The watchdog checks that steps advance. A healthy supervisor whose ranks hang must not satisfy it: so a sign of life
// is sent only if a step was finished since the last one, while the work marked as between steps goes forward (windows
// are evaluated, bytes of a checkpoint written, on this node or on one that it waits for), and during a start that is
// within its time.
#ifndef TRAINER_NODE_NOTIFY_H
#define TRAINER_NODE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct notify {
    int fd;             // -1: no listener
    double watchdog_s;  // a sign of life is due this often, 0: never
    int locals;         // ranks of this node
    int64_t steps;      // of the whole run
    double start_s;     // the longest that a start may take
    // what was sent
    bool ready, stopping;
    char shown[192];  // the last status
    int64_t alive_step, alive_work;
    double opened, shown_at, alive_at;
} notify;

// The current state. Times are seconds of any monotonic clock.
typedef struct notify_news {
    double now, loss;
    int ready;  // ranks
    int64_t step;
    int64_t work;  // changes as long as what is done between steps goes forward
    bool looking, stopping;
    const char *waits;  // for what, before all ranks have met; NULL or "": for nothing
} notify_news;

// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Never fails: without a listener everything below does nothing.
void notify_open(notify *n, int locals, int64_t steps, double start_s, double now);
void notify_close(notify *n);

// The ranks meet once more: they have the time of a start.
void notify_again(notify *n, double now);

// Sends what is new, at a bounded rate. To be called every notify_period() seconds.
void notify_send(notify *n, const notify_news *news);
double notify_period(const notify *n);

// The last message, after all ranks have ended. well: sends READY first if it was not sent: a service that ends well
// must have sent it.
void notify_end(notify *n, bool well, const char *why);

// Removes the variables from the environment: children must not report in their parent's name.
void notify_forget(void);

#endif
