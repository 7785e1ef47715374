// trainer/watch/alarms.h: what a person should be woken for, as pure functions of successive watch_states. Nothing here
// reads a clock or a file; nothing is ever killed. A rule begins an alarm, the alarm lasts, and ends: three different
// things, so that what flickers does not ring each time.
//
//            begins                                             within               ends
//   hang     no step for max(hang_s, hang_p99 x p99) while      that time, and a     at the next step, or when
//            all local ranks are stepping                       look                 steps are not expected
//   dead     a rank's process is gone, the run is not over      dead_s, and a look   with the run
//   stopped  a rank's process is stopped (SIGSTOP, debugger)    stopped_s, a look    when it goes on
//   bad      the loss or the gradient of bad_limit steps  a look               at the first finite
//   steps    in a row was not finite (trainer/diverged.h)                       step
//   reader   of the last reader_s of stepping, reader_share     reader_s, and a      below reader_well, and no more
//            was waiting for data, and reads are why: p99 of    look                 retries for reader_s
//            them at least reader_read of a step, or a wait of
//            a second; or reader_retries reads were tried
//            again in that time
//   throttled  heat, a power brake or the hardware holds the    throttled_s of it,   after throttled_s without
//            clock down; or it is below clock_share of its      less than half of
//            own median while the device is busy                it interrupted
//   disk     full: less than disk_least (or 2 % of a small      a look               at twice that
//            disk), or than the last checkpoint took
//            filling: full within disk_ahead_s at the rate of   disk_look_s to an    when there are twice
//            the last hour, and at both halves' alike           hour                 disk_ahead_s
//
// What does not ring: evaluations, checkpoints, samples and starts, however long (a rank that is stopped, or gone,
// rings then too); a first step of up to first_s; steps that vary, as p99 knows; a loader that waits for a processor; a
// power cap, which is how GPUs work; a device that waits for others; a disk that fills by the first checkpoints, which
// later ones replace.
//
// The suspect of a hang is the rank that the others wait for: one that is stopped, waits for a disk or for data, or
// computes while the others wait in communication; of a device that was given nothing to do (utilisation near 0, where
// the others spin at 100 %); or one that is behind. Where all local ranks wait for others and there are more nodes, it
// is on another.
#ifndef TRAINER_WATCH_ALARMS_H
#define TRAINER_WATCH_ALARMS_H

#include "base/err.h"
#include "trainer/watch/state.h"

// Seconds, shares from 0 to 1.
typedef struct watch_limits {
    double hang_s, hang_p99;  // 30, 5: and times the 99th percentile of step times
    double first_s;           // 300: in place of hang_s for the first ALARM_FIRST steps of a process
    // 10: a device below half its median watts for so long waits, and does not compute
    double waits_s;
    double dead_s, stopped_s;                    // 2, 10
    double reader_s, reader_share, reader_well;  // 30, 1/3, 1/6; of at most ALARM_LOOKS looks
    // 0.01: where reads are quicker, their thread was not let run, and no disk is to blame
    double reader_read;
    int64_t reader_retries;            // 5
    double throttled_s, clock_share;   // 30, 0.75
    double disk_ahead_s, disk_look_s;  // 86400, 600
    int64_t disk_least;                // 1e9 bytes
    // [checkpoint] keep, and one more where the best is kept; until there are so many, a disk may fill
    int checkpoints_kept;
} watch_limits;

enum { ALARM_FIRST = 10, ALARM_LOOKS = 128 };

watch_limits watch_limits_default(void);

// What began or ended in one call. Each alarm begins once and ends once; what finds no room comes with the next call.
typedef struct alarm_change {
    alarm_kind kind;
    bool began;  // else it ended
    int rank;    // of the world; -1: the node
    char text[ALARM_TEXT];
} alarm_change;

typedef struct alarm_news {
    int count;
    alarm_change change[WATCH_ALARMS];
} alarm_news;

typedef struct alarms alarms;

// The memory of the rules, for `locals` ranks: of fixed size, all of it taken here. ERR_INTERNAL: there is none.
err_t alarms_open(alarms **out, const watch_limits *l, int locals);
void alarms_close(alarms *a);

// Once a second or so, with a newer state each time: fills in s->alarm and s->alarms from the rest of *s, gravest
// first. Text is printable and whole at ALARM_TEXT. When the run has ended, all alarms are forgotten without news.
void alarms_judge(alarms *a, watch_state *s, alarm_news *news);

// The kind of the event with which it begins, which is also the alarm's name in status.json: hang, stopped,
// slow_reader, throttled, disk_full, dead, bad_steps; and of the one with which it ends: unhang, continued,
// reader_well, unthrottled, disk_well, alive, good_steps.
const char *alarm_event(alarm_kind kind, bool began);

#endif
