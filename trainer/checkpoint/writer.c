// trainer/checkpoint/writer.c: see trainer/checkpoint/writer.h.
#include "trainer/checkpoint/writer.h"

#include "base/clock.h"
#include "base/thread.h"
#include "trainer/checkpoint/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// NOTHING -> WRITING -> WRITTEN -> NOTHING; the thread ends in LEAVING. The main thread begins and finishes.
typedef enum writer_stage { NOTHING, WRITING, WRITTEN, LEAVING } writer_stage;

struct ckpt_writer {
    const char *run_dir;
    fault_list *faults;
    ckpt_state s;  // of the copy
    char *copy;
    size_t bytes;
    double *value;  // of the scalars
    run_progress at;
    device *dev;  // orders the communicator's calls
    ckpt_saving saving;
    ckpt_written said;
    err_record why;
    double began;
    bool locks, runs;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    writer_stage stage;
};

// --- the copy --------------------------------------------------------------------------------------------------------

static size_t aligned(int64_t count) { return ((size_t)count * sizeof(float) + 63) / 64 * 64; }

// The same tensors as those of s, in memory of their own. It is touched now, not while steps wait for a copy.
static err_t make_copy(ckpt_writer *w, const ckpt_state *s) {
    size_t n = (size_t)s->groups * (size_t)s->params;
    w->s = *s;
    w->s.group = calloc((size_t)s->groups + 1, sizeof *w->s.group);
    ckpt_tensor *t = calloc(n + 1, sizeof *t);
    w->s.scalar = calloc((size_t)s->scalars + 1, sizeof *w->s.scalar);
    w->value = calloc((size_t)s->scalars + 1, sizeof *w->value);
    if (w->s.group) w->s.group[0].tensor = t;
    if (!w->s.group || !t || !w->s.scalar || !w->value)
        return err_set(ERR_INTERNAL, "no memory for the tables of a copy of %zu tensors", n);
    for (int g = 0; g < s->groups; g++) {
        w->s.group[g] = (ckpt_group){s->group[g].name, t + g * s->params};
        memcpy(w->s.group[g].tensor, s->group[g].tensor, (size_t)s->params * sizeof *t);
    }
    for (int i = 0; i < s->scalars; i++) w->s.scalar[i] = (ckpt_scalar){s->scalar[i].name, &w->value[i]};
    for (size_t i = 0; i < n; i++) w->bytes += aligned(t[i].count);
    if (!w->bytes) return ERR_OK;
    w->copy = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (w->copy == MAP_FAILED) w->copy = NULL;
    if (!w->copy)
        return err_set(ERR_CONFIG, "%.1f MB for a copy of the state can't be had: %s; set [checkpoint] async = no",
                       (double)w->bytes / 1e6, strerror(errno));
    char *at = w->copy;
    for (size_t i = 0; i < n; at += aligned(t[i++].count)) t[i].data = (float *)(void *)at;
    return ERR_OK;
}

static void take_copy(ckpt_writer *w, const ckpt_state *s) {
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) {
            const ckpt_tensor *from = &s->group[g].tensor[i], *to = &w->s.group[g].tensor[i];
            if (from->count) memcpy(to->data, from->data, (size_t)from->count * sizeof *to->data);
        }
    for (int i = 0; i < s->scalars; i++) w->value[i] = *s->scalar[i].value;
    memcpy(w->s.key, s->key, sizeof w->s.key);
    w->s.keys = s->keys;
    w->s.origin = s->origin;
    w->s.pulse = s->pulse;
}

// --- the thread ------------------------------------------------------------------------------------------------------

// A checkpoint stores how long the log is. A log that can't be synced is none of its business: whoever writes the log
// says so.
static void sync_log(const char *run_dir) {
    char path[IO_PATH];
    int fd = io_path(path, "%s/log.jsonl", run_dir) == ERR_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) fdatasync(fd), close(fd);
}

static void write_it(ckpt_writer *w) {
    if (ckpt_leads(&w->s)) sync_log(w->run_dir);
    w->why = (err_record){0};
    if (saving_write(&w->saving, 0) != ERR_OK) w->why = *err_last();
    memcpy(w->said.hash, w->saving.m.hash, sizeof w->said.hash);
    w->said.write_ms = 1e3 * (clock_now() - w->began);
}

static void *be_writer(void *ctx) {
    ckpt_writer *w = ctx;
    pthread_mutex_lock(&w->mutex);
    while (w->stage != LEAVING) {
        if (w->stage == WRITING) {
            pthread_mutex_unlock(&w->mutex);
            write_it(w);
            pthread_mutex_lock(&w->mutex);
            w->stage = WRITTEN;
            pthread_cond_broadcast(&w->changed);
        } else pthread_cond_wait(&w->changed, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void go_to(ckpt_writer *w, writer_stage stage) {
    pthread_mutex_lock(&w->mutex);
    while (w->stage == WRITING) pthread_cond_wait(&w->changed, &w->mutex);
    w->stage = stage;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

// --- opening ---------------------------------------------------------------------------------------------------------

static err_t open_own(ckpt_writer *w, const ckpt_state *s, comm *beside) {
    w->locks = pthread_mutex_init(&w->mutex, NULL) == 0 && pthread_cond_init(&w->changed, NULL) == 0;
    if (!w->locks) return err_set(ERR_INTERNAL, "no lock for the writer of checkpoints");
    TRY(make_copy(w, s));
    w->s.ranks = beside, w->s.s = NULL, w->s.work = NULL;
    if (beside) {
        comm_be_patient(beside, true);  // for the slowest disk
        TRY(device_open(&w->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
        TRY(stream_open(w->dev, &w->s.s));
    }
    return ERR_OK;
}

err_t ckpt_writer_open(ckpt_writer **out, const char *run_dir, const ckpt_state *s, comm *beside, fault_list *faults) {
    ckpt_writer *w = *out = calloc(1, sizeof *w);
    err_t rc = w ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a writer of checkpoints");
    if (w) {
        w->run_dir = run_dir, w->faults = faults;
        rc = open_own(w, s, beside);
    }
    TRY(ckpt_agree(s, rc));
    TRY(ckpt_prepare(&w->s));
    rc = thread_start(&w->thread, "checkpoint", be_writer, w);
    w->runs = rc == ERR_OK;
    return ckpt_agree(s, rc);
}

void ckpt_writer_close(ckpt_writer *w) {
    if (!w) return;
    ckpt_written none;
    err_record keep = *err_last();
    if (w->runs) {
        ckpt_writer_finish(w, &none);
        go_to(w, LEAVING);
        pthread_join(w->thread, NULL);
    }
    err_restore(&keep);
    ckpt_release(&w->s);
    if (w->s.s && w->dev) stream_close(w->s.s);
    if (w->dev) device_close(w->dev);
    if (w->copy) munmap(w->copy, w->bytes);
    if (w->s.group) free(w->s.group[0].tensor);
    free(w->s.group), free(w->s.scalar), free(w->value);
    if (w->locks) pthread_mutex_destroy(&w->mutex), pthread_cond_destroy(&w->changed);
    free(w);
}

// --- of the main thread ----------------------------------------------------------------------------------------------

// The manifest is filled in here: it asks the device for the plans of its products, which steps may add to.
void ckpt_writer_begin(ckpt_writer *w, const ckpt_state *s, const run_progress *at) {
    double start = clock_now();
    take_copy(w, s);
    w->at = *at;
    saving_open(&w->saving, w->run_dir, &w->s, &w->at, w->faults);
    if (w->s.ranks) w->s.ranks->phase = (comm_phase){"checkpoint", at->step, 0};
    w->began = clock_now();
    w->said = (ckpt_written){.at = *at, .copy_ms = 1e3 * (w->began - start)};
    go_to(w, WRITING);
}

// `stage` is WRITTEN or NOTHING by the main thread's own doing but for one change, which needs the lock to be seen.
static writer_stage stage_of(ckpt_writer *w) {
    pthread_mutex_lock(&w->mutex);
    writer_stage stage = w->stage;
    pthread_mutex_unlock(&w->mutex);
    return stage;
}

bool ckpt_writer_busy(const ckpt_writer *w) { return w && w->saving.run_dir; }
const run_progress *ckpt_writer_at(const ckpt_writer *w) { return &w->at; }
bool ckpt_writer_ended(ckpt_writer *w) { return ckpt_writer_busy(w) && stage_of(w) == WRITTEN; }

err_t ckpt_writer_finish(ckpt_writer *w, ckpt_written *out) {
    *out = (ckpt_written){0};
    if (!ckpt_writer_busy(w)) return ERR_OK;
    go_to(w, NOTHING);
    *out = w->said;
    saving_close(&w->saving);
    w->saving = (ckpt_saving){0};
    return w->why.code ? err_restore(&w->why) : ERR_OK;
}
