// comm/team/handover.h: gives a launch to a process that was forked before it was made. A rank that lost its world gets
// the next one so.
//
// Both ends are forks of one program, so that functions and constant texts have the same addresses in them. They are
// connected by a pair of SOCK_SEQPACKET: one packet says what follows, the next ones carry descriptors. Places, layout
// and table of rings travel in a file without a name, which is one of these.
#ifndef COMM_TEAM_HANDOVER_H
#define COMM_TEAM_HANDOVER_H

#include "comm/team/team.h"

// To the process at the other end of `to`, which becomes local rank `local` of it. The launch stays the caller's.
// ERR_UNAVAILABLE: there is nobody, or it takes nothing for HANDOVER_S seconds.
enum { HANDOVER_S = 5 };
err_t launch_give(const launch *l, int local, int to);

// Waits for one. *l is as after launch_become; launch_close it. ERR_UNAVAILABLE: who gives it is gone.
err_t launch_take(launch *l, int from);

#endif
