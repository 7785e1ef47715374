// trainer/node/notify.h: what a service manager is told, in the protocol of sd_notify(3): datagrams of NAME=value lines to a socket that the
// environment names. Ready, what the run is doing, that it is alive, that it is about to end.
//
// The watchdog is the promise that steps advance. A supervisor that is well while its ranks hang must not keep it quiet: so a sign of life is
// given only for a step that was finished since the last one, for work between steps that says so, and for a start that is within its time.
#ifndef TRAINER_NODE_NOTIFY_H
#define TRAINER_NODE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct notify {
    int fd;               // -1: nobody listens
    double watchdog_s;    // a sign of life is due this often, 0: never
    int locals;           // ranks of this node
    int64_t steps;        // of the whole run
    double start_s;       // a start may take so long
    // what was told
    bool ready, stopping;
    int shown_ready;
    int64_t shown_step, alive_step;
    double opened, shown_at, alive_at;
} notify;

// What there is to tell. Times are seconds of any clock that does not go back.
typedef struct notify_news {
    double now, loss;
    int ready;       // ranks
    int64_t step;
    bool looking, stopping;
} notify_news;

// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Never fails: without a listener everything below does nothing.
void notify_open(notify *n, int locals, int64_t steps, double start_s, double now);
void notify_close(notify *n);

// Tells what is new, at a bounded rate. To be called every notify_period() seconds.
void notify_tell(notify *n, const notify_news *news);
double notify_period(const notify *n);

// All ranks have ended: the last words. well: a service that was asked for READY and ends well must have said it.
void notify_end(notify *n, bool well, const char *why);

// Takes the variables from the environment: children must not speak for their parent.
void notify_forget(void);

#endif
