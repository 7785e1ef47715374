// trainer/log/jsonl.c: log.jsonl, for programs. It reads as if the run had never been interrupted: a run that continues
// truncates it to the length that its checkpoint stores.
#include "base/io.h"
#include "gpu/gpu.h"
#include "trainer/log/fields.h"
#include "trainer/log/json.h"
#include "trainer/log/report.h"
#include "trainer/log/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct jsonl {
    int fd;
    char path[IO_PATH];
    int64_t bytes;  // of whole records
    const char *unit;
} jsonl;

static bool jsonl_wanted(const config *c) { return c->log.jsonl; }

// A file that is shorter than log_bytes stays as it is: the monitor compares.
static err_t jsonl_open(void *self, const log_setup *run) {
    jsonl *l = self;
    struct stat st;
    l->fd = -1;
    l->unit = run->unit;
    TRY(io_path(l->path, "%s/log.jsonl", run->dir));
    TRY(io_open(l->path, O_WRONLY | O_CREAT, &l->fd));
    if (fstat(l->fd, &st) != 0) return err_set(ERR_IO, "%s: %s", l->path, strerror(errno));
    if (st.st_size >= run->log_bytes && ftruncate(l->fd, (off_t)run->log_bytes) != 0)
        return err_set(ERR_IO, "%s: truncate: %s", l->path, strerror(errno));
    l->bytes = lseek(l->fd, 0, SEEK_END);
    return l->bytes >= 0 ? ERR_OK : err_set(ERR_IO, "%s: %s", l->path, strerror(errno));
}

static void jsonl_close(void *self) {
    jsonl *l = self;
    if (l->fd >= 0) close(l->fd);
}

static err_t jsonl_sync(void *self) {
    jsonl *l = self;
    return fdatasync(l->fd) == 0 ? ERR_OK : err_set(ERR_IO, "%s: sync: %s", l->path, strerror(errno));
}

static int64_t jsonl_length(const void *self) { return ((const jsonl *)self)->bytes; }

// If a record can't be written (mostly a full disk), the file is truncated to its last whole record.
static err_t append(jsonl *l, text *j) {
    err_t rc = json_write(j, l->fd, l->path);
    if (rc == ERR_OK) {
        l->bytes += (int64_t)j->n;
        return rc;
    }
    (void)!ftruncate(l->fd, (off_t)l->bytes);
    lseek(l->fd, (off_t)l->bytes, SEEK_SET);  // the next record starts here, even if ftruncate failed
    return rc;
}

// --- records ---------------------------------------------------------------------------------------------------------

static void put_field(text *j, const field_about *of, const char *unit, double x) {
    char key[64];
    snprintf(key, sizeof key, of->key, unit);
    switch (of->as) {
    case FIELD_REAL: json_put_real(j, key, x); break;
    case FIELD_WHOLE: text_whole(j, key, isfinite(x) ? (int64_t)x : -1); break;
    case FIELD_YESNO: text_key(j, key), text_put(j, x != 0 ? "true" : "false"); break;
    case FIELD_TIME: text_key(j, key), text_put(j, isfinite(x) ? "%.3f" : "null", x); break;
    }
}

static err_t take_step(void *self, const record *all) {
    jsonl *l = self;
    const step_record *r = &all->step;
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"step\",\"step\":%" PRId64, r->step);
    for (step_field f = 0; f < STEP_COUNT; f++)
        if (step_has(r, f)) put_field(&j, &step_about[f], l->unit, step_value(r, f));
    if (r->rows > 0) text_whole(&j, "rows", r->rows);
    if (r->cold_rows > 0) text_whole(&j, "cold_rows", r->cold_rows);
    if (r->why) json_put_text(&j, "why", r->why);
    if (r->hash) json_put_text(&j, "hash", r->hash);
    return append(l, &j);
}

static err_t take_eval(void *self, const record *all) {
    const eval_record *r = &all->eval;
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"eval\",\"step\":%" PRId64, r->step);
    json_put_real(&j, "loss", r->loss);
    for (int i = 0; i < r->metrics; i++) json_put_real(&j, r->metric[i], r->value[i]);
    json_put_real(&j, "best", r->best);
    if (r->possible > 0) json_put_real(&j, "possible", r->possible);
    text_put(&j, ",\"best_step\":%" PRId64, r->best_step);
    if (r->best_of && *r->best_of) json_put_text(&j, "best_of", r->best_of);
    text_put(&j, ",\"%s\":%" PRId64, r->of, r->samples);
    json_put_real(&j, "ms", r->ms);
    return append(self, &j);
}

static err_t take_checkpoint(void *self, const record *all) {
    const checkpoint_record *r = &all->checkpoint;
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"checkpoint\",\"step\":%" PRId64, r->step);
    json_put_text(&j, "hash", r->hash);
    json_put_real(&j, "ms", r->ms);
    return append(self, &j);
}

static err_t take_sample(void *self, const record *all) {
    const sample_record *r = &all->sample;
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"sample\",\"step\":%" PRId64, r->step);
    json_put_text(&j, "prompt", r->prompt);
    json_put_text(&j, "text", r->text);
    return append(self, &j);
}

static void put_device(text *j, const power_device *d) {
    char why[LIMITED_TEXT];
    text_put(j, "{\"rank\":%d", d->rank);
    json_put_real(j, "watts", d->watts);
    json_put_real(j, "celsius", d->celsius);
    json_put_real(j, "mhz", d->mhz);
    if (d->limited == LIMITED_UNKNOWN) text_put(j, ",\"limited\":null}");
    else text_put(j, ",\"limited\":\"%s\"}", device_limited_text(d->limited, why));
}

static err_t append_devices(jsonl *l, const power_record *r, int first, int end) {
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"power\",\"step\":%" PRId64, r->step);
    json_put_real(&j, "watts", r->watts);
    json_put_named(&j, "joules_per_%s", l->unit, r->joules_per_unit);
    text_put(&j, ",\"devices\":[");
    for (int k = first; k < end; k++) {
        if (k > first) text_put(&j, ",");
        put_device(&j, &r->device[k]);
    }
    text_put(&j, "]");
    return append(l, &j);
}

// {"t":"power","step":100,"watts":W,"joules_per_token":J,
//  "devices":[{"rank":0,"watts":W,"celsius":C,"mhz":M,"limited":"no"},...]}
// null: not known. limited: "no", or what limits the clocks (device_limited_text). A line has at most POWER_DEVICES
// devices: a larger run writes several for a step, each with the sums over all devices.
static err_t take_power(void *self, const record *r) {
    enum { POWER_DEVICES = 128 };
    err_t rc = ERR_OK;
    for (int first = 0, all = r->power.devices; first < all; first += POWER_DEVICES) {
        err_t one = append_devices(self, &r->power, first, first + POWER_DEVICES < all ? first + POWER_DEVICES : all);
        if (one != ERR_OK) rc = one;
    }
    return rc;
}

// ,"key":[a,b,...]: means over the record's steps, of ranks first .. end-1.
static void put_means(text *j, const char *key, const ranks_record *r, int item, int first, int end) {
    text_put(j, ",\"%s\":", key);
    for (int k = first; k < end; k++)
        text_put(j, "%c%.5g", k == first ? '[' : ',', r->sum[k * REPORT_ITEMS + item] / (double)r->steps);
    text_put(j, "]");
}

static void put_lanes(text *j, const ranks_record *r, int first, int end) {
    if (!r->lanes) return;
    text_put(j, ",\"lanes\":");
    for (int k = first; k < end; k++) text_put(j, "%c%" PRId64, k == first ? '[' : ',', r->lanes[k]);
    text_put(j, "]");
}

static err_t append_ranks(jsonl *l, const ranks_record *r, int first, int end) {
    char line[JSON_LINE];
    text j = json_line(line);
    text_put(&j, "{\"t\":\"ranks\",\"step\":%" PRId64 ",\"steps\":%" PRId64, r->step, r->steps);
    if (first) text_put(&j, ",\"first\":%d", first);
    put_means(&j, "compute_ms", r, REPORT_COMPUTE_MS, first, end);
    put_means(&j, "data_ms", r, REPORT_DATA_MS, first, end);
    put_means(&j, "wait_ms", r, REPORT_WAIT_MS, first, end);
    put_means(&j, "before_ms", r, REPORT_BEFORE_MS, first, end);
    put_means(&j, "after_ms", r, REPORT_AFTER_MS, first, end);
    put_means(&j, "tensor_ms", r, REPORT_TENSOR_MS, first, end);
    put_lanes(&j, r, first, end);
    return append(l, &j);
}

// {"t":"ranks","step":100,"steps":99,"compute_ms":[a,b,...],...}: one number for each rank, its mean over the steps. A
// larger run writes several lines for a step, each with its first rank. "lanes" only where they were dealt.
static err_t take_ranks(void *self, const record *all) {
    enum { RANKS = 128 };
    const ranks_record *r = &all->ranks;
    err_t rc = ERR_OK;
    for (int first = 0; first < r->world; first += RANKS) {
        err_t one = append_ranks(self, r, first, first + RANKS < r->world ? first + RANKS : r->world);
        if (one != ERR_OK) rc = one;
    }
    return rc;
}

const sink sink_jsonl = {
    .name = "log.jsonl",
    .bytes = sizeof(jsonl),
    .wanted = jsonl_wanted,
    .open = jsonl_open,
    .close = jsonl_close,
    .sync = jsonl_sync,
    .length = jsonl_length,
    .take = {[RECORD_STEP] = take_step,
             [RECORD_EVAL] = take_eval,
             [RECORD_CHECKPOINT] = take_checkpoint,
             [RECORD_SAMPLE] = take_sample,
             [RECORD_POWER] = take_power,
             [RECORD_RANKS] = take_ranks},
};
