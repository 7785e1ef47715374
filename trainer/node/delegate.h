// trainer/node/delegate.h: the process of a node that sits in the council of nodes (comm/team/council.h), where a run
// of several nodes heals. It hears the other councils, votes, and says what was decided; its supervisor carries that
// out. Names are looked up and bytes of others are read here, where it may take its time and may be killed: votes and
// records are in memory that the supervisor holds, and the next one goes on with them.
//
//   supervisor -> delegate   node_facts   when they change
//   delegate -> supervisor   node_ruling  when it changes, with a SIGCHLD
#ifndef TRAINER_NODE_DELEGATE_H
#define TRAINER_NODE_DELEGATE_H

#include "comm/team/council.h"
#include "comm/team/council_net.h"
#include "trainer/config/cluster_parse.h"
#include "trainer/config/config.h"
#include "trainer/log/board.h"
#include "trainer/node/bodies.h"

#include <signal.h>
#include <sys/types.h>

// What the ranks of this node do, as its supervisor knows.
typedef struct node_facts {
    uint64_t entered;  // the epoch whose world they were given last; 0: none
    int seats;         // ... to so many of them
    int slots;         // ranks that the node can carry
    uint64_t data;     // as yard.data
    int64_t high;      // the highest step that was finished
    bool inside;       // some have not left that world
    bool ready;        // all wait for the next one
    bool failed;       // one of them has ended or left since
    bool leaving;      // the node was asked to stop
    int slow;          // tenths: a rank of it stays so many times as slow as the others, 0: none
    bool over;         // they have ended: it says so, and ends
} node_facts;

typedef struct node_ruling {
    council_action action;
    err_t code;  // of COUNCIL_STOP and COUNCIL_END: how the node ends
    bool has_record;
    council_record record;  // the newest
    double silent_s;        // for how long a node had not been heard that it puts out; 0: it puts out none
    char why[COUNCIL_NET_WHY];
} node_ruling;

// The supervisor's side.
typedef struct delegate {
    pid_t pid;      // 0: there is none now
    int fd;         // to it; -1: none
    uint8_t *page;  // vote_page_write's memory; NULL: the run has no council
    uint64_t life;  // of this supervisor
    double started_at;
    bool told;  // `facts` is what it knows
    node_facts facts;
} delegate;

err_t delegate_open(delegate *d);
void delegate_close(delegate *d);   // ends the process: in its own time, if it was told that all is over
void delegate_forget(delegate *d);  // in a process that was forked beside it

// Starts it if there is none. true in the new process, where *fd is its end.
bool delegate_start(delegate *d, double now, int *fd);
void delegate_reap(delegate *d);

void delegate_tell(delegate *d, const node_facts *f);
bool delegate_hear(delegate *d, node_ruling *out);  // the newest ruling that has come since; never waits

// Its life: in the new process. Returns when the supervisor is gone, or an error that it has told as a ruling to end.
typedef struct delegate_life {
    const config *c;
    const cluster *cl;
    board *b;
    world_check fits;
    uint8_t *page;
    uint64_t life;
    int fd;
} delegate_life;
err_t delegate_live(const delegate_life *of);

#endif
