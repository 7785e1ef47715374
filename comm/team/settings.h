// comm/team/settings.h: in what two nodes differ, by name. A hello has only a hash of the settings; when it differs,
// rank 0 asks the rank, which has proven itself, for their text: lines "section.key=value". Internal to comm/.
#ifndef COMM_TEAM_SETTINGS_H
#define COMM_TEAM_SETTINGS_H

#include "comm/team/control.h"

enum { SETTINGS_MAX = 64 << 10 };  // bytes that are sent and taken, with the NUL at the end

// The keys whose values differ, with both values, in the order of `theirs`: "[optimizer] lr = 0.01 and 0.001; [run]
// seed = 2 and 1337; and 3 more". Any bytes will do. False: nothing differs as far as both go, and dst is empty.
bool settings_differ(char *dst, size_t room, const char *theirs, const char *ours);

// Of rank 0: asks at the other end of c. theirs: SETTINGS_MAX bytes. False: they did not come within a few seconds.
bool settings_ask(conn *c, char *theirs);

// Of the other rank, when it is asked. What is not taken in time is lost: then rank 0 has only the hash.
void settings_tell(conn *c, const char *ours);

#endif
