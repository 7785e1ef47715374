// trainer/watch/facts.h: what the files of a run's directory say, gathered, and what follows from it. The time is an
// argument, so that tests can choose it.
//
//   lock          is there a process?                      status.json   where the ranks are, seconds ago; its alarms
//   log.jsonl     steps and how long they take             events.jsonl  restarts, stops, failures
//   ckpt/         what would be left if it died now        config.ini    how many steps it is to have
#ifndef TRAINER_WATCH_FACTS_H
#define TRAINER_WATCH_FACTS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { FACTS_EVENTS = 3, FACTS_TEXT = 1024 };

typedef enum run_life {
    LIFE_NEVER,     // it has not begun
    LIFE_RUNS,      // a process holds its lock
    LIFE_DONE,      // it has all its steps
    LIFE_STOPPED,   // on request
    LIFE_DIVERGED,  // it stopped itself: its loss was no longer finite
    LIFE_FAILED,    // it said why
    LIFE_DIED,      // it did not
} run_life;

typedef struct fact_event {
    char kind[32], text[FACTS_TEXT];
    int64_t step;
    double age;  // seconds; NaN: not known
} fact_event;

// Seconds and bytes; NaN: not known.
typedef struct facts {
    const char *dir;
    double now;  // seconds since 1970
    bool locked;
    json_t *status;                  // status.json, NULL: there is none
    bool damaged, fresh;             // it can't be read; it is of this moment
    double status_age;               // negative: from the future
    int64_t step, steps;             // steps 0: not known
    double step_age, p50, p99, gap;  // of steps; gap: the longest between the last records of the log
    double loss, rate;
    char unit[16];       // of the rate: "tokens"
    int64_t checkpoint;  // newest, -1: none
    double checkpoint_age;
    char hash[17];        // of its weights, "": not known
    int64_t failed_save;  // step of the last checkpoint that could not be written, -1: none
    int64_t good_step;    // last one in the log whose loss and gradient were finite, -1: none
    fact_event diverged;  // the last event that says so; kind "": none
    fact_event ruined;    // the same of a loss that is finite, and far above what it was
    int restarts;         // in the last 24 hours
    double restart_age;
    int heals;  // ranks were lost and replaced while the run went on, in the last 24 hours
    double heal_age;
    int evictions;                   // the run went on without ranks that stayed slow, in the last 24 hours
    fact_event evicted;              // the last one; kind "": none
    int rollbacks;                   // from spikes of the loss, in the last 24 hours
    fact_event rolled;               // the last one; kind "": none
    int lies;                        // ranks did not hold the same, in the last 24 hours
    fact_event lie;                  // the last event that says who; kind "": none
    fact_event event[FACTS_EVENTS];  // the last ones, newest first
    int events;
    char forked[FACTS_TEXT];  // with which checkpoint of another run it began; "": it did not
    fact_event end;           // the last event that ended or began something: "stop", "resume" ...; kind "": none
    double disk_free, disk_total, disk_left_s;
    double eta_s;
    bool began;  // there is a record, an event, or a checkpoint
} facts;

// ERR_USAGE: dir is no run's directory. facts_release() it in any case.
err_t facts_gather(facts *f, const char *dir, double now);
void facts_release(facts *f);

typedef struct verdict {
    int code;  // exit status: 0 fine, 1 attention, 2 dead
    run_life life;
    // why: the gravest alarm, or what the run said last; may be ""
    char headline[FACTS_TEXT], why[FACTS_TEXT], next[FACTS_TEXT];
    // of status.ranks: who is waited for, NULL: not known
    const json_t *suspect;
} verdict;

verdict facts_judge(const facts *f);

// "12 s", "3 m 20 s", "2 h 10 m", "3 d 4 h", "?" into dst. Returns dst.
enum { FACTS_AGE = 32 };
const char *facts_age(char dst[FACTS_AGE], double s);

#endif
