// comm/team/council_net.h: the connections between the councils of a run's nodes: one for each two nodes, made by the
// higher one, again and again, until the process ends. Who calls proves that it knows the run's secret; messages are
// sealed as the team's are (comm/team/control.h). One thread, one poll(), no waiting but in council_net_turn.
//
// A message that finds no room is dropped, and one whose connection ends may be lost: every message carries the
// sender's newest record, and reports come again. A node has one connection at a time, so nothing of an earlier life
// comes after the first message of a later one.
#ifndef COMM_TEAM_COUNCIL_NET_H
#define COMM_TEAM_COUNCIL_NET_H

#include "comm/team/council_wire.h"

enum { COUNCIL_NET_WHY = 600 };
#define COUNCIL_SILENT_S 3.0  // a connection on which nothing has come for so long is made anew

typedef struct council_net_options {
    int node, nodes;
    const char (*host)[COMM_HOST];  // nodes of them; outlive the net
    int port;                       // on which every node's council listens
    uint8_t secret[TEAM_KEY];
    // As in team_options: who differs is no part of the run.
    char job[TEAM_TEXT], build[TEAM_TEXT], config_hash[TEAM_TEXT];
    // Lines "section.key=value", of which config_hash is the hash; outlives the net. NULL: where they differ, only the
    // hashes are said.
    const char *settings;
} council_net_options;

typedef struct council_net council_net;

// ERR_UNAVAILABLE: the port is taken, or is not this machine's.
err_t council_net_open(council_net **out, const council_net_options *o);
void council_net_close(council_net *n);

// Moves what can be moved, makes and takes calls, until something has come, `wake` is readable, or it is `until`. Bytes
// that wait already are read even when `until` has passed.
err_t council_net_turn(council_net *n, int wake, double until);

// The next message that has come, from the node that it names; its records stand in `room`. Never waits. false: none.
bool council_net_next(council_net *n, council_message *m, council_room *room);

// to: a node, or -1 for all others.
void council_net_send(council_net *n, int to, const council_message *m);

// The last node that knows the secret but runs something else, with both values and what to do; NULL: there is none.
const char *council_net_differs(const council_net *n);

#endif
