// trainer/log/tensorboard.c: events.out.tfevents.*, for TensorBoard. Its files are only ever appended to, so a run that
// continues can't truncate what a killed process had logged beyond the checkpoint. Each start of a run has a file of
// its own instead, and tells where it begins:
//
//   first process    version  START 1   settings  1 2 3 4 5 6 7 8     killed; step 5 was the last one in a checkpoint
//   second           version  START 6   settings  6 7 8 9 10 ...      a reader forgets what it has of step 6 and later
//                    ones
//
// Readers take the files in the order of their names, which begin with a time in seconds: it is made later than that of
// every file that is there, also for two starts within a second, or with a clock that was set back.
//
// The numbers are those of log.jsonl, rounded to float32. What is null there is absent here.
#include "base/clock.h"
#include "base/io.h"
#include "base/utf8.h"
#include "trainer/log/fields.h"
#include "trainer/log/sink.h"
#include "trainer/log/tfrecord.h"

#include <dirent.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETTINGS = 16384, SAMPLE = 16384, NAME = 64 };  // bytes: of all settings, of a sample's text, of a scalar's name

// Numbers of fields, from the .proto files of TensorFlow (event, summary, tensor) and of TensorBoard
// (hparams/plugin_data) and of protocol buffers (struct.proto: Value).
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7, EVENT_SOURCE = 10 };
enum { SESSION_STATUS = 1, SESSION_START = 1, SOURCE_WRITER = 1, SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, CLASS_TENSOR = 2, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, TYPE_STRING = 7, SHAPE_DIM = 2, DIM_SIZE = 1 };
enum {
    HPARAMS_START = 3,
    HPARAMS_END = 4,
    START_SETTING = 1,
    START_TIME = 5,
    END_STATUS = 1,
    END_TIME = 2,
    STATUS_SUCCESS = 1
};
enum { MAP_KEY = 1, MAP_VALUE = 2, VALUE_NUMBER = 2, VALUE_STRING = 3, VALUE_BOOL = 4 };

typedef struct tensorboard {
    tfrecord file;
    bool begun;     // the file's first records are written, or wait to be
    bool done;      // the run's last step is logged
    int64_t steps;  // of the run
    const char *unit;
    proto settings;  // fields of a message SessionStartInfo
    uint8_t bytes[SETTINGS];
} tensorboard;

static bool tensorboard_wanted(const config *c) { return c->log.tensorboard; }

// --- the name --------------------------------------------------------------------------------------------------------

static const char prefix[] = "events.out.tfevents.";

// The time in the name of the next file.
static int64_t stamp(const char *dir) {
    int64_t latest = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *digits = e->d_name + sizeof prefix - 1;
        if (strncmp(e->d_name, prefix, sizeof prefix - 1) != 0 || strspn(digits, "0123456789") != 10) continue;
        int64_t one = strtoll(digits, NULL, 10);
        if (one > latest) latest = one;
    }
    if (d) closedir(d);
    int64_t now = (int64_t)clock_wall();
    return now > latest ? now : latest + 1;
}

static err_t name_file(char path[IO_PATH], const char *dir) {
    char host[64];
    if (gethostname(host, sizeof host) != 0) snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
    return io_path(path, "%s/%s%010lld.%s.%d.0", dir, prefix, (long long)stamp(dir), host, (int)getpid());
}

// --- settings --------------------------------------------------------------------------------------------------------

// A number, yes or no, or text: as TensorBoard sorts and colours by it.
static void put_setting_value(proto *p, const char *value) {
    char text[3 * CONFIG_TEXT], *end;
    double number = strtod(value, &end);
    bool yes = strcmp(value, "yes") == 0;
    if (end != value && !*end && isfinite(number)) proto_double(p, VALUE_NUMBER, number);
    else if (yes || strcmp(value, "no") == 0) proto_whole(p, VALUE_BOOL, yes);
    else if (strlen(value) < CONFIG_TEXT) utf8_replace(text, value), proto_text(p, VALUE_STRING, text);
    else proto_text(p, VALUE_STRING, "(long)");
}

static err_t put_setting(void *ctx, const char *key, const char *value) {
    proto *p = ctx;
    size_t entry = proto_begin(p, START_SETTING);
    proto_text(p, MAP_KEY, key);
    size_t at = proto_begin(p, MAP_VALUE);
    put_setting_value(p, value);
    proto_end(p, at);
    proto_end(p, entry);
    return p->full ? err_set(ERR_INTERNAL, "the settings have no room in %d bytes", SETTINGS) : ERR_OK;
}

// What decides the weights: what one compares runs by.
static err_t tensorboard_open(void *self, const log_setup *run) {
    tensorboard *t = self;
    char path[IO_PATH];
    t->file.fd = -1;
    t->unit = run->unit;
    t->steps = run->c->run.steps;
    t->settings = (proto){.at = t->bytes, .room = sizeof t->bytes};
    TRY(name_file(path, run->dir));
    tfrecord_open(&t->file, path);
    return config_each(run->c, CLASS_BITS, put_setting, &t->settings);
}

// --- events ----------------------------------------------------------------------------------------------------------

static proto *begin_event(tensorboard *t, int64_t step) {
    proto *p = tfrecord_begin(&t->file);
    proto_double(p, EVENT_TIME, clock_wall());
    if (step > 0) proto_whole(p, EVENT_STEP, (uint64_t)step);
    return p;
}

// A value that only says something to a plugin of TensorBoard: its name, and a message for it.
static size_t begin_plugin(proto *p, const char *name) {
    size_t plugin = proto_begin(p, METADATA_PLUGIN);
    proto_text(p, PLUGIN_NAME, name);
    return plugin;
}

// An event with one value, for the plugin of hyperparameters: a message in field `field` of its data.
static err_t put_hparams(tensorboard *t, int64_t step, const char *tag, int field, const proto *message) {
    proto *p = begin_event(t, step);
    size_t summary = proto_begin(p, EVENT_SUMMARY), value = proto_begin(p, SUMMARY_VALUE);
    proto_text(p, VALUE_TAG, tag);
    size_t metadata = proto_begin(p, VALUE_METADATA), plugin = begin_plugin(p, "hparams"),
           content = proto_begin(p, PLUGIN_CONTENT);
    proto_bytes(p, field, message->at, message->n);
    proto_end(p, content);
    proto_end(p, plugin);
    proto_end(p, metadata);
    proto_end(p, value);
    proto_end(p, summary);
    return tfrecord_end(&t->file);
}

static err_t put_version(tensorboard *t) {
    proto *p = begin_event(t, 0);
    proto_text(p, EVENT_VERSION, "brain.Event:2");
    size_t source = proto_begin(p, EVENT_SOURCE);
    proto_text(p, SOURCE_WRITER, "lockstep.trainer.log");
    proto_end(p, source);
    return tfrecord_end(&t->file);
}

static err_t put_session(tensorboard *t, int64_t first) {
    proto *p = begin_event(t, first);
    size_t session = proto_begin(p, EVENT_SESSION);
    proto_whole(p, SESSION_STATUS, SESSION_START);
    proto_end(p, session);
    return tfrecord_end(&t->file);
}

// What each file begins with. first: the step that this process does first.
static err_t begin_file(tensorboard *t, int64_t first) {
    if (t->begun) return ERR_OK;
    t->begun = true;
    TRY(put_version(t));
    TRY(put_session(t, first));
    proto_double(&t->settings, START_TIME, clock_wall());
    return put_hparams(t, 0, "_hparams_/session_start_info", HPARAMS_START, &t->settings);
}

static err_t take_start(void *self, const record *r) {
    tensorboard *t = self;
    TRY(begin_file(t, r->start.step + 1));
    return tfrecord_write(&t->file);
}

// A run that is killed, stopped or failed continues later, and TensorBoard keeps the first end that it reads of it:
// only one that has done all its steps has an end.
static void tensorboard_close(void *self) {
    tensorboard *t = self;
    uint8_t bytes[16];
    proto end = {.at = bytes, .room = sizeof bytes};
    proto_whole(&end, END_STATUS, STATUS_SUCCESS);
    proto_double(&end, END_TIME, clock_wall());
    if (t->done) put_hparams(t, t->steps, "_hparams_/session_end_info", HPARAMS_END, &end);
    if (t->begun) tfrecord_write(&t->file);
    tfrecord_close(&t->file);
}

static err_t tensorboard_sync(void *self) { return tfrecord_sync(&((tensorboard *)self)->file); }

// --- scalars ---------------------------------------------------------------------------------------------------------

// The float nearest to the number as log.jsonl has it, with 9 digits, so that who compares both finds them equal.
// Nothing where log.jsonl has null, or where no float is as large.
static void put_scalar(proto *p, const char *tag, double x) {
    char text[32];
    if (!isfinite(x) || fabs(x) > FLT_MAX) return;
    snprintf(text, sizeof text, "%.9g", x);
    size_t value = proto_begin(p, SUMMARY_VALUE);
    proto_text(p, VALUE_TAG, tag);
    proto_float(p, VALUE_SIMPLE, strtof(text, NULL));
    proto_end(p, value);
}

// The same under a name with a word in it: "speed/%ss_per_s" and "token".
static void put_named(proto *p, const char *format, const char *word, double x) {
    char tag[NAME];
    snprintf(tag, sizeof tag, format, word);
    put_scalar(p, tag, x);
}

// Ends an event of scalars, and writes it.
static err_t end_scalars(tensorboard *t, proto *p, size_t summary) {
    proto_end(p, summary);
    TRY(tfrecord_end(&t->file));
    return tfrecord_write(&t->file);
}

static err_t take_step(void *self, const record *all) {
    tensorboard *t = self;
    const step_record *r = &all->step;
    TRY(begin_file(t, r->step));
    t->done = r->step == t->steps;
    proto *p = begin_event(t, r->step);
    size_t summary = proto_begin(p, EVENT_SUMMARY);
    for (int i = 0; i < STEP_COUNT; i++) {
        const char *tag = step_about[step_nth[i]].tag;
        if (tag && step_has(r, step_nth[i])) put_named(p, tag, t->unit, step_value(r, step_nth[i]));
    }
    return end_scalars(t, p, summary);
}

static err_t take_eval(void *self, const record *all) {
    tensorboard *t = self;
    const eval_record *r = &all->eval;
    TRY(begin_file(t, r->step));
    proto *p = begin_event(t, r->step);
    size_t summary = proto_begin(p, EVENT_SUMMARY);
    put_scalar(p, "eval/loss", r->loss);
    for (int i = 0; i < r->metrics; i++) put_named(p, "eval/%s", r->metric[i], r->value[i]);
    return end_scalars(t, p, summary);
}

static void put_device(proto *p, const power_device *d) {
    char rank[16];
    snprintf(rank, sizeof rank, "%d", d->rank);
    put_named(p, "device/%s/watts", rank, d->watts);
    put_named(p, "device/%s/celsius", rank, d->celsius);
    put_named(p, "device/%s/mhz", rank, d->mhz);
}

// Of many devices several events, so that each is as short as that of a step.
static err_t put_devices(tensorboard *t, const power_record *r, int first, int end) {
    proto *p = begin_event(t, r->step);
    size_t summary = proto_begin(p, EVENT_SUMMARY);
    if (first == 0) put_scalar(p, "power/watts", r->watts);
    if (first == 0) put_named(p, "power/joules_per_%s", t->unit, r->joules_per_unit);
    for (int k = first; k < end; k++) put_device(p, &r->device[k]);
    return end_scalars(t, p, summary);
}

static err_t take_power(void *self, const record *r) {
    enum { DEVICES = 64 };
    err_t rc = begin_file(self, r->power.step);
    for (int first = 0, all = r->power.devices; first < all; first += DEVICES) {
        err_t one = put_devices(self, &r->power, first, first + DEVICES < all ? first + DEVICES : all);
        if (one != ERR_OK) rc = one;
    }
    return rc;
}

// --- text ------------------------------------------------------------------------------------------------------------

// TensorBoard takes text for Markdown, in which four spaces before each line mean: as it stands. What is no UTF-8 would
// make the record unreadable. *left: bytes that may still be put.
static void put_code(proto *p, const char *text, size_t *left) {
    for (const unsigned char *s = (const unsigned char *)text; *s && *left >= 8;) {
        int n = utf8_length(s);
        size_t before = p->n;
        if (n) proto_raw(p, s, (size_t)n);
        else proto_raw(p, "\xEF\xBF\xBD", 3);
        if (*s == '\n') proto_raw(p, "    ", 4);
        *left -= p->n - before;
        s += n ? n : 1;
    }
}

// A tensor of one text.
static void put_sample(proto *p, const sample_record *r) {
    size_t left = SAMPLE, tensor = proto_begin(p, VALUE_TENSOR);
    proto_whole(p, TENSOR_TYPE, TYPE_STRING);
    size_t shape = proto_begin(p, TENSOR_SHAPE), dim = proto_begin(p, SHAPE_DIM);
    proto_whole(p, DIM_SIZE, 1);
    proto_end(p, dim);
    proto_end(p, shape);
    size_t text = proto_begin(p, TENSOR_STRING);
    proto_raw(p, "    ", 4);
    put_code(p, r->prompt, &left);
    put_code(p, r->text, &left);
    proto_end(p, text);
    proto_end(p, tensor);
}

static err_t take_sample(void *self, const record *all) {
    tensorboard *t = self;
    const sample_record *r = &all->sample;
    TRY(begin_file(t, r->step));
    proto *p = begin_event(t, r->step);
    size_t summary = proto_begin(p, EVENT_SUMMARY), value = proto_begin(p, SUMMARY_VALUE);
    proto_text(p, VALUE_TAG, "sample");
    put_sample(p, r);
    size_t metadata = proto_begin(p, VALUE_METADATA);
    proto_end(p, begin_plugin(p, "text"));
    proto_whole(p, METADATA_CLASS, CLASS_TENSOR);
    proto_end(p, metadata);
    proto_end(p, value);
    return end_scalars(t, p, summary);
}

const sink sink_tensorboard = {
    .name = "events.out.tfevents",
    .bytes = sizeof(tensorboard),
    .wanted = tensorboard_wanted,
    .open = tensorboard_open,
    .close = tensorboard_close,
    .sync = tensorboard_sync,
    .take = {[RECORD_START] = take_start,
             [RECORD_STEP] = take_step,
             [RECORD_EVAL] = take_eval,
             [RECORD_SAMPLE] = take_sample,
             [RECORD_POWER] = take_power},
};
