// trainer/node/yard.h: what a supervisor and one of its ranks say to each other between two worlds. A pair of sockets
// for each process of a rank, made before it is forked:
//
//   rank -> supervisor    LEFT     it has left its world, and waits
//   supervisor -> rank    ENTER    the next one, whose launch follows (comm/team/handover.h)
//                         END      there is none: how to end
//
// The supervisor sleeps until a signal comes; so a rank that says LEFT wakes it by a SIGCHLD.
#ifndef TRAINER_NODE_YARD_H
#define TRAINER_NODE_YARD_H

#include "base/fault.h"
#include "comm/team/team.h"

enum { YARD_WHY = 256 };

// Why there is another world. Seconds of clock_now.
typedef struct yard_news {
    // When the one before failed, as exactly as this machine can know; when a rank here that lives knew it; and when
    // the last one was out.
    double failed_at, lost_at, left_at;
    int64_t high;        // the highest step that the ranks have finished
    char why[YARD_WHY];  // what ended it; of the last one, why there is no other; "": this world is the first
    bool evicted;        // it ended because of a slow rank, without which this world begins
    bool last;           // what the ranks hold is saved in this world, and nothing is trained
} yard_news;

// A rank's end.
typedef struct yard {
    int fd;
    int vault;           // what outlives the ranks of the node (trainer/checkpoint/vault.h); -1: nothing does
    fault_list *faults;  // the rank's; NULL: none
    uint64_t data;       // stands for the content of its datasets, for other nodes; 0: unknown
    launch *at;          // what the rank has been given, replaced by yard_next
    yard_news news;
} yard;

// pair[0] is the supervisor's. Both close on exec.
err_t yard_open(int pair[2]);

// --- of a rank -------------------------------------------------------------------------------------------------------

// After the world was left: closes *at, waits for the next launch, and puts it there; at->yard->news says what
// happened. Where none follows: *over, and ERR_OK if the others have finished the run, or how this rank is to end; or
// the error that ended the last world, `why`.
err_t yard_next(const launch *at, const err_record *why, bool *over);

// --- of the supervisor -----------------------------------------------------------------------------------------------

// Has the rank said LEFT? Never waits. *data (=) as yard.data.
bool yard_heard(int fd, uint64_t *data);

// ERR_UNAVAILABLE: the rank takes nothing.
err_t yard_enter(int fd, const launch *l, int local, const yard_news *news);

// code: ERR_UNAVAILABLE: end with your own error.
void yard_end(int fd, err_t code);

#endif
