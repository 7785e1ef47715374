// trainer/node/crew.h: the processes that a supervisor has started, and how they went. Internal to trainer/node/.
#ifndef TRAINER_NODE_CREW_H
#define TRAINER_NODE_CREW_H

#include "base/io.h"
#include "trainer/node/delegate.h"
#include "trainer/node/healing.h"
#include "trainer/node/notify.h"
#include "trainer/node/bodies.h"
#include "trainer/node/yard.h"

#include <sys/types.h>

// How a rank's last process ended.
typedef struct crew_exit {
    bool ended, ours;  // we killed it
    int status;        // as of wait(2)
} crew_exit;

// How the run ends on this node, once its ranks have saved what they hold; why: `hopeless`.
typedef struct crew_last {
    err_t code;
    int slot, status;  // the cause, where there is no council; -1: none alone
} crew_last;

typedef struct crew {
    board *b;
    notify voice;
    launch at;  // of the world that is open; closed once the ranks have it
    int locals, world, node, nodes;
    comm_place *place;  // locals of them, for messages after `at` was closed
    world_check fits;
    pid_t *pid;       // locals of them; 0: not started, or ended
    int left;         // ranks that have not ended
    bool began;       // all of them have been ready once
    crew_exit *exit;  // locals of them
    // Healing.
    healing *h;           // NULL: a lost rank ends the run
    int *yard;            // locals of them, our ends; -1: none
    int own_yard;         // in a rank: its end; -1: none
    int seats;            // ranks of the world that is open, or was; in places that are not retired, in order
    char lost[YARD_WHY];  // how ranks have ended since it was opened
    yard_news news;       // of the world that is open
    uint32_t epoch;       // and its number
    int vault;            // as yard.vault
    fault_list faults;    // the supervisor's
    double due;           // when to choose again; 0: when something happens
    crew_last last;       // h->last_at: how the run ends after its last world
    int leaves;           // the place for a rank without which the next world begins, since it is slow; -1: none
    // Several nodes that heal (trainer/node/follow.c).
    cluster *cl;          // NULL: one node, or a run that does not heal
    delegate d;           // without a page there is none
    int own_delegate;     // in the delegate: its end
    node_ruling *ruling;  // the council's newest
    uint64_t entered;     // the epoch whose world the ranks were given last; 0: none
    uint64_t data;        // as yard.data of the rank that was heard last
    int over;             // ends that world; -1: there is none
    double alive_at;      // when the node was heard last whose silence has ended that world; 0: none
    double turn_at;       // when they were told to leave it at a step that all agree on; 0: they were not
    err_t told;           // how this node's part ends, where no rank of it is the cause; ERR_OK: one is
    // How it went.
    int root;                        // local rank whose end was the cause, -1: none
    int root_status;                 // as of wait(2)
    char hopeless[COUNCIL_NET_WHY];  // why no other world was opened, beside the cause
    bool stopped;                    // some rank ended with ERR_INTERRUPTED
    bool forced;                     // we killed them on request
    int asked;                       // requests to stop
    int sent;                        // the last signal sent to all ranks, 0: none
    double failed_at, asked_at;
    // The flight recording.
    bool records;
    pid_t scribe;             // writes one now; 0: nobody does
    char recording[IO_PATH];  // the newest one's path, "": there is none
    // The watcher.
    pid_t watcher;      // 0: there is none now
    int starts, ended;  // how often it was started; how the last one ended, as of wait(2)
    double started_at;
} crew;

// --- trainer/node/crew.c ---------------------------------------------------------------------------------------------

err_t crew_open(crew *w, const config *c, const supervised *of);
void crew_close(crew *w);

// w->at (=) with the ranks that [cluster] nodes lists. Where nodes heal, its ranks wait for the first world.
err_t crew_name_ranks(crew *w, const cluster *cl);

// Makes the channels that the layout needs in w->at.
err_t crew_channels(crew *w, const config *c);

// Forks a rank. 0 in the new process; -1: there is none, see errno.
pid_t crew_fork_one(crew *w, int local);
err_t crew_no_process(const crew *w, int local, int why);  // why: as errno. Returns the error

// Forks all ranks. Local rank that this process has become, or w->locals in the parent; -1: a fork failed.
int crew_fork(crew *w);
// After -1: ends those that were started. Returns the error.
err_t crew_no_fork(crew *w);

int crew_seat(const crew *w, int slot);  // which rank of the node the place has; as many as there are, or more: none

void crew_signal(crew *w, int signal);
void crew_reap(crew *w, double now);

// A rank that ends because another was lost returns ERR_UNAVAILABLE: it is the cause only if there is no better one.
bool crew_is_cause(int status);

// What of the parent's a forked process has no use for.
void crew_forget(crew *w);

// "rank 2 (localhost) was killed by signal 9 (Killed)": how a process ended. Returns dst.
enum { CREW_END = 256 };
const char *crew_end_text(const crew *w, int local, int status, char dst[CREW_END]);

// --- trainer/node/next.c ---------------------------------------------------------------------------------------------

// Looks after a run that heals: to be called after each look at the ranks. Local rank that this process has become, or
// w->locals in the parent.
int crew_heal(crew *w, const config *c, double now);

// Its parts.
void crew_hear_yards(crew *w, double now);
void crew_describe(crew *w);  // adds to w->lost how ranks of this node have ended
// healing_choose, after places that it retires are left out. Where no world fits without one it is an END.
healing_choice crew_choose(crew *w, const config *c, double now);
yard_news crew_news(const crew *w, double now);  // of the world that is being left, but for why
void crew_clear_board(crew *w);                  // while nobody is in a world
// Local rank that this process has become, or w->locals in the parent, where each lost rank has a process again; -1:
// one of them has none.
int crew_fork_lost(crew *w);
void crew_kill_the_rest(crew *w);
void crew_seat_all(crew *w);  // the world was given: who has a place in it, and who waits
// From here on a lost rank ends the run.
void crew_stop_healing(crew *w, const healing_choice *x, double now);
// A world of this node's ranks alone, with memory and sockets of its own. Who ended and has no place in it stays away.
// ERR_UNAVAILABLE: no layout of the run is that narrow.
err_t crew_open_alone(crew *w, const config *c);
// Do they hold a state that only they may have? Then the next world is the last, in which they save it, and this
// node's part ends after it as `how` and `why` say. False: nothing has changed.
bool crew_saves_first(crew *w, const crew_last *how, const char *why, double now);

// --- trainer/node/follow.c -------------------------------------------------------------------------------------------

// The same with several nodes.
int crew_follow(crew *w, const config *c, double now);

void crew_say_over(crew *w);  // to the other nodes: the ranks of this one have finished

// --- trainer/node/scribe.c -------------------------------------------------------------------------------------------

// What all ranks of this node last did is written to a file in the run's directory, by a process of its own, as of
// failed_at (clock_now) or of the first rank that failed before. Nothing waits for it: a disk may hang.
void scribe_start(crew *w, const config *c, double failed_at);
void scribe_reap(crew *w);
// Waits for it, for some seconds at most. Path of the file, NULL: there is none.
const char *scribe_end(crew *w);

// --- trainer/node/beside.c -------------------------------------------------------------------------------------------

bool watcher_start(crew *w, double now);  // true in the new process
bool watcher_is_due(const crew *w);       // it has ended, and is to be started again
void watcher_reap(crew *w);
void watcher_end(crew *w, const sigset_t *set);
err_t watcher_live(crew *w, pid_t parent, const config *c, watch_body body);

#endif
