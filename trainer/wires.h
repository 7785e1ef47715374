// trainer/wires.h: `lockstep bench links`: how much each link between the ranks of a run carries, and which is slower
// than its equals. A rank each; rank 0 prints.
//
// Links inside machines are measured first, in all machines at the same time, then those between machines, by the first
// rank of each. In a round every rank has one partner at most (a tournament), so no card serves two links at once.
#ifndef TRAINER_WIRES_H
#define TRAINER_WIRES_H

#include "comm/team/team.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"

#include <stdbool.h>
#include <stdio.h>

err_t wires_rank(const config *c, const launch *at, board *b);

// The partner of player `me` of n in a round, 0 .. wires_rounds(n)-1; -1: it has none. Each two meet once.
int wires_partner(int me, int round, int n);
int wires_rounds(int n);

enum { WIRES_NAME = COMM_HOST + 16 };

// The links of one kind: of n players, by name; bytes_s and seconds are (n, n), filled above the diagonal.
typedef struct wires {
    const char *what;  // "machines"
    int n;
    const char *(*name)(const void *of, int player, char to[WIRES_NAME]);  // returns `to`
    const void *of;
    const double *bytes_s, *seconds;  // each way while both send; of a message of 8 bytes
} wires;

// What a link of its kind should carry: a quarter of them carry so much or more. Slow is less than 0.7 of it.
double wires_equal(const wires *w);

void wires_print(FILE *out, const wires *w);

#endif
