// comm/team/team.h: the ranks of a run find each other and notice when one is lost.
//
// A node's supervisor forks its ranks and gives each a `launch`. On one node that is all: memory was mapped and socket
// pairs were made before the fork, so no port is opened and no secret is needed. With several nodes every rank outside
// rank 0's node connects to rank 0's host and port, both prove that they know the secret, and all learn where the
// others are.
//
// Afterwards a watcher thread serves the control connections: heartbeats, and the news that a rank is lost. A failure
// of the team is recorded in this one place; transports check the record and are woken by it.
#ifndef COMM_TEAM_TEAM_H
#define COMM_TEAM_TEAM_H

#include "base/err.h"
#include "comm/team/place.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEAM_RANKS_MAX = 1024, TEAM_NODES_MAX = 256, TEAM_KEY = 32, TEAM_TEXT = 64, TEAM_WAIT_TEXT = 600 };

// Channels beyond channel 0 (comm/comm.h, split). The same on all nodes.
typedef struct channel_plan {
    int channels;  // 1 .. channels can be used; 0: none
    int seats;     // how many communicators of these channels one rank has open at the same time, at most
    // Do ranks a and b, a < b, communicate on channel k? Where they do not, nothing is mapped or opened for them. NULL:
    // all pairs do, on all.
    bool (*needs)(const void *ctx, int k, int a, int b);
    // What a rank does, for messages that name it (comm_place.role). NULL: all do the same.
    void (*role)(const void *ctx, int rank, char dst[COMM_ROLE]);
    const void *ctx;  // of both functions; launch_channels copies it
    size_t ctx_bytes;
} channel_plan;

// What a supervisor gives to each rank of its node, for one world. Memory and descriptors are made before the fork and
// inherited, or given to a process that lives already (comm/team/handover.h).
typedef struct launch {
    int rank, world;
    uint32_t epoch;     // counts the worlds of a run, from 0: ranks of another one are strangers
    int node, nodes;    // this rank's node
    int local, locals;  // this rank among those of its node
    int slot;           // the place for a rank that its process has for life, and with it a device
    comm_place *place;  // world of them
    void *area;         // memory that the node's ranks share, zero-filled; NULL when locals = 1
    size_t area_bytes;
    int area_fd;    // names that memory for a handover; -1 in a rank. Not set where area is NULL
    int *doorbell;  // locals of them: an eventfd that wakes this rank of the node; NULL when locals = 1
    // node 0 only: socket pairs between rank 0 and its neighbours. control[i] is rank 0's end, control[locals + i] that
    // of local
    int *control;
    // rank i; -1 for i = 0 and, after launch_become, for what is not this rank's. NULL on other nodes
    // of launch_channels
    channel_plan plan;
    void *ctx;   // plan.ctx
    void *more;  // as area, for the further channels; NULL where the node's ranks share nothing there
    size_t more_bytes;
    int more_fd;
    int *bell;  // plan.seats * locals of them: an eventfd for each communicator of a rank that can wait; NULL with more
    int *ring;  // plan.channels * locals * locals: which ring of `more` leads from one local rank to another, -1: none
    int *over;  // an eventfd, which becomes readable when the world is over; NULL: the launch has none
    bool fenced;  // the team's keys come from secret and fence: ranks of other worlds are strangers
    uint8_t fence[TEAM_KEY];
    bool waits;         // it names the ranks only: the world comes with the next one
    struct yard *yard;  // where the next world's launch comes from (trainer/node/yard.h); NULL: there is none
} launch;

// Makes everything for the ranks of `node`. ranks[nodes]: how many each node has; hosts[nodes]: their names (NULL:
// "localhost"). Nodes' ranks are numbered one node after the other.
err_t launch_open(launch *l, int nodes, const int *ranks, const char *const *hosts, int node);

// After launch_open: the rack of each node, by any numbers. Neighbours of one number are a rack. Without it all nodes
// are in one.
void launch_racks(launch *l, const int *rack);

// After launch_open: of each node that has a multiple of so many ranks, so many neighbours are joined. 0: none are.
void launch_joined(launch *l, int each);

// After launch_open, before the fork: makes the further channels. The memory is only address space until it is used.
// launch_close frees what was made, also after a failure.
err_t launch_channels(launch *l, const channel_plan *plan);

// After launch_open: adds `over`.
err_t launch_watch(launch *l);

// Have ranks a and b, in any order, a connection on channel k? Channel 0 connects all.
bool launch_connects(const launch *l, int k, int a, int b);

// In a forked process: this is local rank `local`; the descriptors of others are closed.
void launch_become(launch *l, int local);

// Frees and closes this process's part of it.
void launch_close(launch *l);

// Bytes of shared memory for the ranks of a node (comm/team/shm.c knows what for), and for further channels with so
// many rings.
size_t team_area_bytes(int locals);
size_t team_more_bytes(int locals, int seats, int rings);

// While ranks meet, this is called four times a second at most, by the thread that joins: what it waits for, "waiting
// for 10.0.0.2 (1 of 2 nodes are here)" (TEAM_WAIT_TEXT bytes at most), and for how long it has. An error ends the
// meeting, on the ranks that have joined too, with that error.
typedef struct team_waiting {
    err_t (*call)(void *ctx, double waited_s, const char *text);  // NULL: not called
    void *ctx;
    uint32_t *pulse;  // team_pulse is put there, atomically, too, as long as the team lives; NULL: nowhere
} team_waiting;

typedef struct team_options {
    const launch *at;  // outlives the team
    // rank 0's node listens here; a rank's data connections come to port + 1 + local on its node's host
    int port;
    int star_port;    // rank 0 listens here instead; 0: it does not
    bool has_secret;  // needed with several nodes
    uint8_t secret[TEAM_KEY];
    double timeout_s;  // to find each other, and for a rank to show signs of life
    double heartbeat_s;
    team_waiting waiting;
    // open data connections to the ranks of other nodes, one for each channel (at->plan) that connects the two
    bool links;
    // Must be the same on all ranks; a rank that differs is refused, with both values. build: of what decides the
    // bits, so any text that differs where they may (base/version.h).
    char job[TEAM_TEXT], build[TEAM_TEXT], config_hash[TEAM_TEXT], data_hash[TEAM_TEXT];
    uint32_t epoch;
    // What config_hash is of, as lines "section.key=value": where it differs, the keys are named with both values.
    // NULL: only the hashes are.
    const char *settings;
} team_options;

// A data connection to a rank of another node: connected, authenticated, non-blocking.
typedef struct team_link {
    // the team's, which closes it. -1: none (own rank, ranks of this node)
    int fd;
    uint8_t send_key[TEAM_KEY], recv_key[TEAM_KEY];  // of this connection, one for each direction
    bool taken;                                      // the team's own note; false in what it gives
} team_link;

typedef struct team team;

// Collective. ERR_CONFIG: refused, with both values; ERR_UNAVAILABLE: the port is taken, or not all ranks came within
// the timeout (names the missing ones); ERR_AUTH: there is no secret, or who answered in rank 0's place until the
// timeout does not know it, or we don't. What answers wrongly is called again until then: a stranger may have the
// port for a while, and a bit may be changed on the way.
err_t team_join(team **out, const team_options *o);

// Says good-bye: a connection that ends after that is no failure. All ranks are expected to leave. Rank 0 goes on
// passing news to the others until all have said good-bye, for 10 s or the timeout at most; the others wait 1 s at
// most. Closes the links.
void team_leave(team *t);

const launch *team_at(const team *t);

// The data connection of a channel to a rank, with its keys, which the team then forgets. Its user numbers frames from
// 0 and uses each number once; a second user would repeat one-time keys, and lose what the first has read ahead. So it
// is given once: ERR_INTERNAL after that.
err_t team_take_link(team *t, int channel, int rank, team_link *out);

// --- failure ---------------------------------------------------------------------------------------------------------

// ERR_OK, or the record of the first failure, ours or another rank's. Any thread, never waits; costs one load while all
// is well.
err_t team_query(team *t);

// Once team_query fails: when this rank knew it, and when who is lost was alive for certain: earlier, where only its
// silence gave it away; 0: the nodes have ended this world, and know that. Seconds of clock_now.
void team_failed_at(const team *t, double *known, double *alive);

// Records a failure found by a transport or by the trainer, and reports it to all ranks. The first one wins. Returns
// ERR_UNAVAILABLE (or the first one's code).
err_t team_fail(team *t, const char *why);

// The same, found by who is in this phase; team_fail takes the rank's last one, which may be another thread's.
err_t team_fail_in(team *t, const char *why, const comm_phase *phase);

// Becomes readable when team_query starts to fail: for poll().
int team_fd(const team *t);

// What this rank is doing now: heartbeats carry it, so that the last phase of a lost rank can be reported.
void team_progress(team *t, const char *what, int64_t step, int64_t number);

// This rank is making progress, whatever it is doing.
void team_alive(team *t);

// A number that changes while any rank of the team makes progress: a wait during which it changes is for a busy rank,
// not for a stuck one. It changes with the heartbeats.
uint32_t team_pulse(const team *t);

// Bytes that the team's own connections wrote so far.
int64_t team_wire(const team *t);

#endif
