// trainer/watch/suspect.h: of a run that hangs, the rank that the others wait for, and what to do about it. Pure
// functions of one watch_state.
#ifndef TRAINER_WATCH_SUSPECT_H
#define TRAINER_WATCH_SUSPECT_H

#include "trainer/watch/state.h"

typedef enum suspect_why {
    SUSPECT_STOPPED,    // its process is stopped
    SUSPECT_DISK,       // it sleeps in the kernel, mostly for a disk or a network file system
    SUSPECT_DATA,       // it waits for its loader
    SUSPECT_COMPUTES,   // it is not in communication, and the others are; or there are no others
    SUSPECT_IDLE,       // its device was given nothing to do
    SUSPECT_BEHIND,     // it is behind the others
    SUSPECT_ELSEWHERE,  // all local ranks wait for others: it is on another node
    SUSPECT_UNKNOWN,    // all ranks of the run wait for others
} suspect_why;

typedef struct suspect {
    int local;  // index in watch_state.rank; of SUSPECT_ELSEWHERE and SUSPECT_UNKNOWN the rank that has waited longest
    suspect_why why;
} suspect;

suspect suspect_find(const watch_state *s);

// "rank 1 (10.0.0.2), GPU 0000:41:00.0" into dst. Returns dst.
enum { SUSPECT_NAME = COMM_NAME + BOARD_DEVICE + 8 };
const char *suspect_name(const watch_rank *r, char dst[SUSPECT_NAME]);

// The text of an alarm: no step for quiet_s after `step` (-1: none). waits_s as in watch_limits.
void suspect_text(char *dst, size_t room, const watch_state *s, suspect who, int64_t step, double quiet_s,
                  double waits_s);

#endif
