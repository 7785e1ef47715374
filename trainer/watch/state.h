// trainer/watch/state.h: what a node's watcher knows of its run at one moment, as plain structs. The sampler fills it
// in once a second (trainer/watch/sampler.h); alarms, metrics, /health, status.json and machine.jsonl are functions of
// it.
#ifndef TRAINER_WATCH_STATE_H
#define TRAINER_WATCH_STATE_H

#include "comm/comm.h"
#include "gpu/gpu.h"
#include "trainer/log/board.h"

// Of one rank of this node. NaN, or -1 of whole numbers: not known.
typedef struct watch_rank {
    comm_place place;
    char device[BOARD_DEVICE], uuid[48];
    int pid;
    // as in /proc/PID/stat: R running, S sleeping, D waiting for a disk, T stopped, Z or X ended; 0: not known
    char process;
    board_phase phase;
    const char *what;  // NULL: none
    board_wait waits_for;
    int64_t number, step;
    double what_s, phase_s;  // how long it has been at this
    const char *beside;      // communication beside the computing, as long as it goes on; NULL: none
    int64_t beside_number;   // its bucket, segment or block
    double beside_s;
    double in_phase_s[BOARD_PHASES];  // total, the present phase included
    double cpu;                       // processors it kept busy during the last second
    // part of that second in which its first thread could have run, and others had the processors
    double starved;
    int64_t resident;                                   // bytes of memory
    device_sensors sensors;                             // of its device; of CPUs only where local is 0
    double utilisation;                                 // of its device, 0 to 1
    int64_t lanes;                                      // that it runs in a step
    int64_t device_used, device_total, device_planned;  // bytes
    double limit_watts;                                 // its device's power cap
    double median_watts;                                // of the seconds in which steps went on, the last 1024
    double low_watts_s;                                 // for how long it has drawn less than half of that
    double read_p50_ms, read_p99_ms, read_bytes_per_s;
    int64_t read_bytes, read_retries;
} watch_rank;

typedef enum alarm_kind {
    ALARM_HANG,
    ALARM_STOPPED,
    ALARM_READER,
    ALARM_THROTTLED,
    ALARM_DISK,
    ALARM_DEAD,
    ALARM_BAD_STEPS,
    ALARM_KINDS
} alarm_kind;

// Something that a person should look at, as long as it lasts.
enum { ALARM_TEXT = 384, WATCH_ALARMS = 32 };
typedef struct watch_alarm {
    alarm_kind kind;
    int rank;      // of the world; -1: the node
    double since;  // seconds since 1970
    char text[ALARM_TEXT];
} watch_alarm;

typedef struct watch_state {
    // What does not change. Texts live as long as the state.
    const char *run, *dir, *build;  // NAME, DIR/NAME
    char host[COMM_HOST];           // this node's
    int supervisor;                 // its process
    double every_s;                 // between two of these
    double time;                    // seconds since 1970
    double monotonic;               // seconds of clock_now()
    double began;                   // when the run's processes began, seconds since 1970
    int node, nodes, world, locals;
    bool ready;    // all ranks of this node have joined and loaded
    bool follows;  // rank 0 is on another node, which tells of what concerns the run and no rank here
    bool stopping, ended;
    board_end end;                 // how, when it has ended
    bool has_news;                 // rank 0 is on this node, and its steps have begun
    int64_t step;                  // last finished step, which every rank knows
    int64_t heals, evicted;        // as on the board
    int64_t bad_steps, bad_limit;  // as on the board; bad_limit 0: not known
    int64_t rollbacks;             // as on the board
    board_news news;
    watch_rank *rank;  // locals of them
    // The disk with the run's directory.
    int64_t disk_free, disk_total;  // bytes that we may use
    // how it changes, mean of the last hour or since the start; negative: fills
    double disk_free_per_s;
    double disk_read_per_s, disk_written_per_s;  // by the ranks of this node
    watch_alarm alarm[WATCH_ALARMS];
    int alarms;
} watch_state;

#endif
