// comm/flight_view.h: what several ranks were doing at one moment, from their flight recorders (comm/flight.h) or from
// files that were written of them (comm/flight_text.h), and what follows from it. Plain data and pure functions.
#ifndef COMM_FLIGHT_VIEW_H
#define COMM_FLIGHT_VIEW_H

#include "base/text.h"
#include "comm/flight.h"

enum { FLIGHT_TEXT = 96, FLIGHT_NAME = 192, FLIGHT_RUN = 256 };

// A rank.
typedef struct flight_who {
    int rank, node;
    bool failed;              // it knew of a failure, its own or another rank's
    char who[FLIGHT_NAME];    // "rank 2 (10.0.0.2, stage 1)"
    char ended[FLIGHT_TEXT];  // "was killed by signal 9 (Killed)": how its process ended; "": it had not
    char doing[FLIGHT_TEXT];  // "backward 3 of step 41"; "": not known, or it had failed by then
    double doing_s;           // for so long
    int first, lines;         // of its communicators in flight_view.line; set by the view
} flight_who;

// A rank in one of its communicators.
typedef struct flight_line {
    int rank;
    flight_standing at;  // since_ns and what are left out
    double since_s;      // before the moment
    char what[FLIGHT_TEXT];
} flight_line;

typedef struct flight_view {
    char run[FLIGHT_RUN];
    int node, nodes, world;  // of one file: its node
    uint32_t epoch;
    int64_t time;  // seconds since 1970
    int ranks, lines;
    flight_who *who;
    flight_line *line;
    int16_t at[FLIGHT_RANKS];  // place of a rank in who, plus 1; 0: nothing is known of it
} flight_view;

// ERR_DATA: that rank is there already, or is none. ERR_INTERNAL: no memory.
err_t flight_view_rank(flight_view *v, const flight_who *who);
err_t flight_view_line(flight_view *v, const flight_line *line);  // of the last rank
void flight_view_close(flight_view *v);

// A rank, and all its communicators, as of moment_ns of CLOCK_MONOTONIC.
err_t flight_view_take(flight_view *v, const flight_who *who, const flight_rank *f, uint64_t moment_ns);

// Some lines for a person: who has not entered what, who waits for it, and what that one was doing.
void flight_verdict(const flight_view *v, text *out);

// "ranks 0-3, 6", "rank 2"; 0 bits: "no rank".
void flight_put_ranks(text *t, const uint64_t *mask);
// "all_reduce #8123 of ranks 0-3 (reduce gradients 3 of step 41)".
void flight_put_call(text *t, const flight_line *l);
// "reduce gradients 3 of step 41", as far as it is known.
void flight_put_phase(text *t, const char *what, int64_t part, int64_t step);

#endif
