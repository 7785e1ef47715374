// comm/flight_text.h: a flight recording as a file. For a person from its first line on; and the lines of its last
// part, whose fields are apart by tabs, say all that a verdict needs, so that files of several machines make one.
//
//   lockstep flight recording 1
//   about <tab> node nodes world epoch time run
//   ...                                  for people; not read
//   rank <tab> rank node failed doing_s who ended doing
//   on <tab> rank id world channel calls exchanges op state since_s bytes step part members peers what
#ifndef COMM_FLIGHT_TEXT_H
#define COMM_FLIGHT_TEXT_H

#include "comm/flight_view.h"

// Largest file that is read: FLIGHT_RANKS ranks of one machine fit.
enum { FLIGHT_FILE = 64 << 20 };

// The last calls of a rank, as flight_calls gives them.
typedef struct flight_log {
    int n;
    flight_seen call[FLIGHT_CALLS];
} flight_log;

// log: of v->who, in its order; NULL: no calls are listed. moment_ns: as in flight_view_take.
void flight_write(text *t, const flight_view *v, const flight_log *log, uint64_t moment_ns);

// A part of it: where each rank was, a few lines each.
void flight_put_where(text *t, const flight_view *v);

// Adds what one file says to *v; about it: run to time are set. bytes[n] is NUL. ERR_DATA names path and line.
err_t flight_read(flight_view *v, const char *path, char *bytes, size_t n);

#endif
