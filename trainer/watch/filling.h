// trainer/watch/filling.h: when a disk will be full. Two rates add up, because a run writes in two ways:
//
//   between checkpoints   logs, and whatever else uses the disk: the mean of the last hour, in minutes; only what both
//                         halves of that time agree on, so that one large file is no trend
//   by checkpoints        what is used from before one to after it, the removal of old ones included, by the time
//                         between two. The first ones, which nothing replaces yet, do not count
#ifndef TRAINER_WATCH_FILLING_H
#define TRAINER_WATCH_FILLING_H

#include <stdbool.h>
#include <stdint.h>

enum { FILLING_MINUTES = 60 };

typedef struct filling_minute {
    double watched, used;
} filling_minute;

typedef struct filling {
    int kept;  // checkpoints that replace none
    bool began;
    double at;             // of the last look, seconds
    int64_t free;          // bytes then
    double watched, used;  // between checkpoints: seconds, bytes
    int64_t minutes;       // whole ones of that
    // `watched` and `used` when minute k was over, at k modulo the length; of 0 at the start
    filling_minute minute[FILLING_MINUTES + 1];

    int64_t saves;          // that have begun
    bool saving;            // the last of them goes on
    double save_at;         // when it began, seconds
    int64_t before, least;  // free bytes then, and the least while it went on
    int64_t after;          // free bytes when it was over
    // of the one before: bytes that it used in the end, and seconds from its beginning to the next; 0: not known
    double save_used, save_s;
    int64_t save_bytes;  // what the last one needed while it went on; 0: not known
} filling;

// free: bytes, now. saving: a checkpoint is being written.
void filling_look(filling *f, double now, int64_t free, bool saving);

// Bytes a second by which the disk fills; 0: it does not, or less than look_s were watched.
double filling_rate(const filling *f, double look_s);

#endif
