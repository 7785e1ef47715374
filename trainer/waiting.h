// trainer/waiting.h: what a person sees while the ranks of a run meet, and a request to stop that comes before they
// have.
#ifndef TRAINER_WAITING_H
#define TRAINER_WAITING_H

#include "trainer/session/session.h"

// session_enter, which may take as long as the slowest node. Until all have met: ERR_INTERRUPTED once the run is to
// stop (b->stop), where no world was before this one, and ERR_UNAVAILABLE once another rank of this node has ended.
// says: the first rank of a node prints what it waits for, after 2 s, when that changes, and every 30 s; and on a node
// that is not the first, that it has joined. The service manager gets the same text.
err_t waiting_enter(session *x, const launch *at, board *b, bool says);

// What was said last, and after how many seconds of waiting.
typedef struct waiting_said {
    char text[TEAM_WAIT_TEXT];
    double at_s;
} waiting_said;

// Is the text to be said after so many seconds? Then it is what was said last.
bool waiting_says(waiting_said *last, double waited_s, const char *text);

#endif
