// test/support/watch_state.h: a node's state as a watcher would have it, without a run: two ranks with GPUs at step 120
// of 600, nothing wrong. A test changes what it asks about.
#ifndef TEST_SUPPORT_WATCH_STATE_H
#define TEST_SUPPORT_WATCH_STATE_H

#include "trainer/watch/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static inline watch_rank state_rank(int local) {
    watch_rank r = {
        .place = {.node = 0, .local = local, .rank = local, .host = "10.0.0.1"},
        .pid = 4000 + local,
        .process = 'R',
        .phase = PHASE_STEPPING,
        .what = "reduce bucket",
        .number = 3,
        .step = 121,
        .what_s = 0.25,
        .phase_s = 60,
        .in_phase_s = {12.5, 240.25, 8, 0, 1.75, 0},
        .cpu = 1.5,
        .resident = 1234567890,
        .sensors = {.watts = 512.5, .celsius = 61, .mhz = 1755, .joules = 123456.5, .limited = LIMITED_POWER},
        .utilisation = 0.97,
        .device_used = 6000000000,
        .device_total = 85899345920,
        .device_planned = 5368709120,
        .lanes = 8,
        .median_watts = 500,
        .limit_watts = 700,
        .read_p50_ms = 1.5,
        .read_p99_ms = 12,
        .read_bytes_per_s = 2e6,
        .read_bytes = 987654321,
        .read_retries = 2,
    };
    snprintf(r.device, sizeof r.device, "0000:%d7:00.0", local + 1);
    snprintf(r.uuid, sizeof r.uuid, "GPU-5f0ba5e5-0000-4000-8000-00000000000%d", local);
    return r;
}

// rank: room for `locals` ranks, at most 9.
static inline watch_state state_make(watch_rank *rank, int locals) {
    for (int i = 0; i < locals; i++) rank[i] = state_rank(i);
    watch_state s = {
        .time = 1795521600.5,
        .monotonic = 1000,
        .began = 1795521300,
        .nodes = 1,
        .world = locals,
        .locals = locals,
        .ready = true,
        .run = "made-up",
        .dir = "runs/made-up",
        .build = "0.1.0",
        .host = "10.0.0.1",
        .supervisor = 3999,
        .every_s = 1,
        .step = 120,
        .has_news = true,
        .news = {.step = 120,
                 .steps = 600,
                 .units = 120 * 65536,
                 .began_step = 20,
                 .skipped = 1,
                 .loss = 2.5,
                 .grad_norm = 0.75,
                 .lr = 3e-4,
                 .loss_scale = 65536,
                 .ms = 400,
                 .units_per_s = 163840,
                 .mfu = 0.41,
                 .stale = NAN,
                 .late = NAN,
                 .waiting = NAN,
                 .data_wait_ms = 1.5,
                 .comm_wait_ms = 12,
                 .step_time = 1795521600.125,
                 .eval_loss = 2.625,
                 .eval_accuracy = NAN,
                 .eval_auc = NAN,
                 .eval_rmse = NAN,
                 .eval_pearson = NAN,
                 .eval_spearman = NAN,
                 .best = 2.625,
                 .eval_step = 100,
                 .best_step = 100,
                 .checkpoint_step = 100,
                 .checkpoint_time = 1795521590,
                 .checkpoint_ms = 1500,
                 .hash = "0123456789abcdef",
                 .unit = "token",
                 .timed = 100,
                 .timed_s = 40.5,
                 .bucket = {0, 0, 0, 0, 0, 0, 0, 1, 97, 1, 0, 0, 0, 1},
                 .p50_ns = 400000000,
                 .p99_ns = 900000000},
        .rank = rank,
        .disk_free = 500000000000,
        .disk_total = 1000000000000,
        .disk_read_per_s = 1048576,
        .disk_written_per_s = 0,
    };
    return s;
}

// The same without GPUs, without what is known of them, and without rank 0.
static inline watch_state state_make_bare(watch_rank *rank) {
    watch_state s = state_make(rank, 1);
    s.has_news = false;
    rank->device[0] = rank->uuid[0] = 0;
    rank->sensors = (device_sensors){NAN, NAN, NAN, NAN, LIMITED_UNKNOWN};
    rank->utilisation = rank->limit_watts = rank->median_watts = rank->cpu = rank->read_p50_ms = rank->read_p99_ms =
        NAN;
    rank->lanes = rank->device_used = rank->device_total = rank->device_planned = rank->resident = rank->read_bytes =
        rank->read_retries = -1;
    s.disk_free = s.disk_total = -1;
    s.disk_read_per_s = s.disk_written_per_s = NAN;
    return s;
}

static inline void state_alarm(watch_state *s, alarm_kind kind, int rank, const char *text) {
    watch_alarm *a = &s->alarm[s->alarms++];
    *a = (watch_alarm){.kind = kind, .rank = rank, .since = s->time - 10};
    snprintf(a->text, sizeof a->text, "%s", text);
}

#endif
