// trainer/log/board.h: what the processes of a node know of each other while a run goes on. Shared memory, made by the
// supervisor before it forks: ranks write, the supervisor and the watcher (trainer/watch/watcher.h) read.
//
//   rank[0 .. locals-1]  each rank writes its own, with relaxed stores: it never waits for a reader
//   news                 a copy of the last records, written by the sink `board` of rank 0 alone, under a sequence lock
//   said                 a line of the node's first rank for the service manager, under a sequence lock too
//   stop                 written by the supervisor, and by a rank that is asked to stop
//
// Texts of operations are constants of the binary, and all processes of a node are forks of its supervisor: a pointer
// to one is valid in each of them.
//
// What a rank is doing is what its computing thread is doing, whose time a step takes. The communication beside it has
// a field of its own (`beside`), so that it never hides what the rank really waits for. On a GPU both say what the host
// is queueing, or what it waits for.
#ifndef TRAINER_LOG_BOARD_H
#define TRAINER_LOG_BOARD_H

#include "base/fault.h"
#include "comm/flight.h"
#include "trainer/log/fields.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a rank is busy with. Only in STEPPING are steps expected to advance.
typedef enum board_phase {
    PHASE_STARTING,
    PHASE_STEPPING,
    PHASE_EVALUATING,
    PHASE_SAMPLING,
    PHASE_SAVING,
    PHASE_ENDED,
    BOARD_PHASES
} board_phase;

const char *board_phase_name(board_phase p);  // "starting", "step", "evaluate", "sample", "save", "ended"

// Who decides how long an operation takes, if not the rank itself.
// DEVICE: what the host has queued there
typedef enum board_wait { WAIT_NONE, WAIT_DATA, WAIT_RANKS, WAIT_DEVICE } board_wait;

// How a run went, as far as this node knows. DIVERGED: it has stopped itself ([run] bad_steps).
typedef enum board_end { RUN_GOES_ON, RUN_DONE, RUN_STOPPED, RUN_FAILED, RUN_DIVERGED } board_end;

enum {
    BOARD_DEVICE = 32,
    BOARD_HASH = 17,
    BOARD_UNIT = 16,
    BOARD_BUCKETS = 14,
    BOARD_SAID = 160,
    BOARD_FIGURES = 32,
    BOARD_FIGURE = 48
};

// One rank's, alone in its cache lines. A reader may see `what` of one operation and `number` of the next for an
// instant; of an operation that lasts, and only these matter, all is right.
typedef struct board_rank {
    _Alignas(128) _Atomic int pid;  // 0: not started yet
    _Atomic int phase;              // board_phase
    // the operation: "forward", "backward", "reduce gradients" ...; NULL: none
    _Atomic(const char *) what;
    _Atomic int waits_for;                      // board_wait
    _Atomic int64_t number;                     // of it: micro-batch, bucket ..., -1: none
    _Atomic int64_t step;                       // it belongs to
    _Atomic int64_t since_ns, phase_ns;         // when operation and phase began, CLOCK_MONOTONIC
    _Atomic int64_t in_phase_ns[BOARD_PHASES];  // total time in phases that are over
    // the last communication begun beside the computing, as long as it goes on; NULL: none
    _Atomic(const char *) beside;
    _Atomic int64_t beside_number, beside_ns;  // of it; when it began
    _Atomic int64_t device_bytes;              // planned for its device: all arenas
    _Atomic int64_t lanes;                     // that it runs in a step
    _Atomic double lane_ms;                    // that one took lately, by [parallel] balance; 0: not known
    // The loader's, copied after each step.
    _Atomic int64_t read_bytes, read_retries;
    _Atomic int64_t read_p50_ns, read_p99_ns;  // of reading one micro-batch, lately; 0: not known
    // What is done between steps, by any thread of it: blocks computed, pieces of checkpoints written or read. And that
    // of all ranks, as its team has heard (team_pulse).
    _Atomic int64_t work;
    uint32_t pulse;                    // read and written atomically
    atomic_long faults[FAULT_POINTS];  // [run] faults that its processes have passed
    _Atomic int named;                 // the next line is set, for good
    char device[BOARD_DEVICE];         // PCI bus id of its GPU, "" of a CPU
    flight_rank flight;                // its last calls to other ranks, and phases
} board_rank;

// Upper bounds of the histogram of step times, seconds; the last bucket has no bound.
extern const double board_bucket_s[BOARD_BUCKETS - 1];

// Figures of an evaluation beside its loss that only some models have, by their names in the log.
#define BOARD_MEASURES(X) \
    X(accuracy, "Share of the validation samples of which the model says what is right") \
    X(auc, "Area under the ROC curve") \
    X(rmse, "Root of the mean squared error on the validation data") \
    X(pearson, "Pearson's correlation of what the model says and what is right") \
    X(spearman, "Spearman's correlation of what the model says and what is right")

// Copies of rank 0's last records. What was not yet: NaN, or 0 of whole numbers. Whole words, so that it is copied by
// them.
typedef struct board_news {
    int64_t step, steps;  // last finished step, and how many the run has
    int64_t units;        // tokens, or whatever is counted, since the run began
    int64_t began_step;   // after which this process began
    int64_t skipped;      // steps that were skipped since this process began
    int64_t rows;         // on demand, that there are; 0: none
    int64_t cold_rows;    // of them, in files alone
#define BOARD_MEMBER(name, curve, board, member, ...) IF_##board(double member;)
    STEP_FIELDS(BOARD_MEMBER)
#undef BOARD_MEMBER
    double step_time;  // when the last step was finished, seconds since 1970
    double eval_loss, best;
#define BOARD_MEASURE(name, help) double eval_##name;  // NaN: the last evaluation had none
    BOARD_MEASURES(BOARD_MEASURE)
#undef BOARD_MEASURE
    int64_t eval_step, best_step;
    // figures of named sets ([eval] sets), as "code.loss"
    int64_t figures;
    char figure[BOARD_FIGURES][BOARD_FIGURE];
    double figure_value[BOARD_FIGURES];
    int64_t checkpoint_step;  // of the newest one, that it went on from or wrote; 0: none
    double checkpoint_time;   // seconds since 1970; NaN: an earlier process wrote it
    double checkpoint_ms;
    char hash[24];          // of the newest checkpoint (BOARD_HASH bytes)
    char unit[BOARD_UNIT];  // "token"
    int64_t timed;          // steps in the histogram
    double timed_s;         // and their sum
    int64_t bucket[BOARD_BUCKETS];
    int64_t p50_ns, p99_ns;  // of the last steps' times (at most 1024), 0: not known
} board_news;
enum { BOARD_WORDS = sizeof(board_news) / sizeof(uint64_t) };

// Too many bad steps in a row ([run] bad_steps); too many checkpoints that could not be written ([checkpoint] misses).
typedef enum board_why { BOARD_DIVERGED = 1, BOARD_NO_DISK } board_why;

typedef struct board {
    atomic_int stop;  // finish the step, save, leave
    // set by the supervisor: a rank of this node has ended, so that no run will come of those who still wait to meet
    atomic_int failed;
    atomic_int ready;      // ranks that have joined and loaded
    _Atomic int64_t step;  // last finished step
    _Atomic double loss;   // and its loss
    // Steps in a row, up to that one, whose loss or gradient was not finite; from how many on a person should know.
    // Each rank writes the same.
    _Atomic int64_t bad_steps, bad_limit;
    // Of the world that is being left, seconds of clock_now: when the first rank of this node knew that another one was
    // lost, and when that one was alive for certain. 0: no rank has said so, or only the nodes know.
    _Atomic double lost_at, alive_at;
    _Atomic int64_t rollbacks;  // how often the run went back from a spike of its loss ([optimizer] rollback)
    atomic_int heals;  // worlds that ended with a loss, and were followed by another one: set by the supervisor
    // [cluster] evict_slow. slow: the rank of this node, in this world and counted from 1, without which the run is to
    // go on, 0: none; slow_times: as slow as the others. Each rank of the node writes the same. evicted: ranks or nodes
    // without which it went on: set by the supervisor.
    atomic_int slow;
    _Atomic double slow_times;
    atomic_int evicted;
    atomic_int gave_up;  // why the ranks end by themselves before the last step (board_why); 0: they don't
    atomic_int looking;  // evaluating, sampling or saving: no step finishes now, and none is expected
    atomic_int end;      // how the run ended: board_end, set by the supervisor when all ranks of the node have
    // Of a run of several nodes that heals. turn: leave after the next step that all agree on, and save it: set by the
    // supervisor. sealed: the step from which this world can go on after a loss, -1: none yet; each rank writes the
    // same.
    atomic_int turn;
    _Atomic int64_t sealed;
    // Of log.jsonl, where this node keeps one: the newest step that has been logged, if it was to be.
    _Atomic int64_t logged;
    atomic_long faults[FAULT_POINTS];  // [run] faults that the node's councils have passed
    // Of the world that is open: how many ranks of this node are in it, set by the supervisor; is rank 0 one of them?
    atomic_int seats, first;
    int drains;  // a request to stop is the supervisor's alone; set before it forks, as is locals
    int locals;
    atomic_uint saying;  // odd: said is being written
    _Atomic uint64_t said[BOARD_SAID / sizeof(uint64_t)];
    atomic_uint sequence;  // odd: news is being written; 0: there is none yet
    _Atomic uint64_t news[BOARD_WORDS];
    board_rank rank[];  // locals of them
} board;

static inline size_t board_bytes(int locals) { return sizeof(board) + (size_t)locals * sizeof(board_rank); }

// Of memory that is all zero: every rank is starting, now.
void board_init(board *b, int locals);

// Have all ranks that this node has in the world joined and loaded?
static inline bool board_ready(const board *b) {
    int seats = atomic_load(&b->seats);
    return seats > 0 && atomic_load(&b->ready) >= seats;
}

// Of the node's rank `local`; NULL where the board has no place for it.
static inline board_rank *board_place(board *b, int local) { return b && local < b->locals ? &b->rank[local] : NULL; }

// While its process has ended: another one is to begin.
void board_restart(board_rank *r);

// In a rank that has lost another one: of the ranks of a node the earliest counts. alive_at 0: only the nodes know.
void board_lost(board *b, double lost_at, double alive_at);

// Its device: the rank says it once; others see "" until then.
void board_name_device(board_rank *r, const char *bus_id);
const char *board_device(const board_rank *r);

// --- of a rank, about itself: from its main thread. r = NULL: nothing is done ----------------------------------------

// A phase begins, and with it no operation: a few stores and one reading of the clock.
void board_enter(board_rank *r, board_phase phase, int64_t step);

typedef struct board_task {
    const char *what;  // a constant text
    board_wait waits_for;
    int64_t number, step;
} board_task;

// An operation begins. Returns what was under way, for board_resume: the caller's operation goes on, as if it began
// now.
board_task board_doing(board_rank *r, const char *what, int64_t number, int64_t step);
board_task board_waiting(board_rank *r, board_wait waits_for, const char *what, int64_t number, int64_t step);
void board_resume(board_rank *r, board_task before);

// Some of what is done between steps is done. Any thread.
static inline void board_worked(board_rank *r) {
    if (r) atomic_fetch_add_explicit(&r->work, 1, memory_order_relaxed);
}

// A number that changes while the ranks of the node, or those that they hear of, do such work.
int64_t board_work(const board *b);

// Of the thread of a side stream: a call begins, and has ended.
void board_beside(board_rank *r, const char *what, int64_t number);

// --- of the node's first rank: what it waits for, before all ranks have met ------------------------------------------

void board_say(board *b, const char *text);  // at most BOARD_SAID - 1 bytes of it
// "": it waits for nothing.
void board_said(const board *b, char text[BOARD_SAID]);

// --- rank 0's news ---------------------------------------------------------------------------------------------------

void board_publish(board *b, const board_news *news);
// false: there is none yet, or rank 0 was writing again and again; *out is as before.
bool board_read(const board *b, board_news *out);

// --- the watcher -----------------------------------------------------------------------------------------------------

// What the process beside the ranks is given when it begins (trainer/node/supervisor.h: watch_body). It may read the
// board and not write it.
typedef struct watch_start {
    board *b;
    const comm_place *place;  // of this node's ranks, b->locals of them
    int node, nodes, world;
    int starts, ended;           // it is the starts-th one; how the one before ended, as of wait(2)
    bool (*over)(double until);  // waits until `until` (clock_now), or until it is to end: then true
} watch_start;

#endif
