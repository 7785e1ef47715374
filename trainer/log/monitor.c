// trainer/log/monitor.c: see trainer/log/monitor.h.
#include "trainer/log/monitor.h"

#include "base/clock.h"
#include "base/io.h"
#include "gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// --- one record ------------------------------------------------------------------------------------------------------------

enum { RECORD = 16384 };

typedef struct json { char text[RECORD]; size_t n; } json;

static void put(json *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(json *j, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(j->text + j->n, RECORD - j->n, fmt, ap);
    va_end(ap);
    if (n > 0) j->n = j->n + (size_t)n < RECORD ? j->n + (size_t)n : RECORD - 1;
}

// JSON has no infinity and no NaN.
static void put_real(json *j, const char *key, double x) {
    if (isfinite(x)) put(j, ",\"%s\":%.9g", key, x);
    else put(j, ",\"%s\":null", key);
}

// Length of the valid UTF-8 sequence at s (RFC 3629), 0 when there is none.
static int utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))) return 0;
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))) return 0;
    return n;
}

// A model may write any bytes, but a JSON string holds only UTF-8. Anything else becomes U+FFFD.
// The number under a name with a word in it: "tokens_per_s".
static void put_named(json *j, const char *format, const char *word, double v) {
    char name[64];
    snprintf(name, sizeof name, format, word);
    put_real(j, name, v);
}

static void put_text(json *j, const char *key, const char *text) {
    put(j, ",\"%s\":\"", key);
    for (const unsigned char *s = (const unsigned char *)text; *s && j->n < RECORD - 64;) {
        int n = utf8_length(s);
        if (n == 0) put(j, "\\ufffd"), n = 1;
        else if (*s == '"' || *s == '\\') put(j, "\\%c", *s);
        else if (*s == '\n') put(j, "\\n");
        else if (*s < 0x20 || *s == 0x7F) put(j, "\\u%04x", *s);
        else put(j, "%.*s", n, (const char *)s);
        s += n;
    }
    put(j, "\"");
}

void monitor_printable(char *to, size_t room, const char *from) {
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)from; *s && n + 5 < room;) {
        int length = utf8_length(s);
        bool bad = length == 0 || ((*s < 0x20 || *s == 0x7F) && *s != '\n' && *s != '\t') || (*s == 0xC2 && s[1] < 0xA0);
        if (bad) to[n++] = '?';
        else memmove(to + n, s, (size_t)length), n += (size_t)length;  // may be in place
        s += length ? length : 1;
    }
    to[n] = 0;
}

static err_t append(int fd, const char *path, json *j) {
    put(j, "}\n");
    j->text[j->n - 1] = '\n';  // also when the record was cut
    return io_write(fd, path, j->text, j->n, NULL);
}

// If a record can't be written (mostly a full disk), the record is lost, but the run goes on: the file is truncated to
// its last whole record, and the first loss in a row is logged as an event.
static void append_log(monitor *m, json *j) {
    if (m->log < 0) return;
    if (append(m->log, m->log_path, j) == ERR_OK) {
        m->log_bytes += (int64_t)j->n;
        m->log_failing = false;
        return;
    }
    char why[ERR_TEXT];
    snprintf(why, sizeof why, "record not written: %s", err_last()->text);
    (void)!ftruncate(m->log, (off_t)m->log_bytes);
    lseek(m->log, (off_t)m->log_bytes, SEEK_SET);  // the next record starts here, even if ftruncate failed
    if (!m->log_failing) monitor_event(m, "log_failed", 0, why);
    m->log_failing = true;
}

// --- for people ------------------------------------------------------------------------------------------------------------

static void wipe_bar(monitor *m) {
    if (m->drawn) fputs("\r\033[K", stdout);
    m->drawn = false;
}

void monitor_say(monitor *m, const char *fmt, ...) {
    if (m->quiet) return;
    va_list ap;
    wipe_bar(m);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

static void time_left(char out[32], double s) {
    long n = isfinite(s) && s >= 0 && s < 1e9 ? (long)(s + 0.5) : -1;
    if (n < 0) snprintf(out, 32, "-");
    else if (n < 60) snprintf(out, 32, "%lds", n);
    else if (n < 3600) snprintf(out, 32, "%ldm%02lds", n / 60, n % 60);
    else snprintf(out, 32, "%ldh%02ldm", n / 3600, n / 60 % 60);
}

static void rate(char out[48], const char *unit, double per_s) {
    if (per_s >= 1e6) snprintf(out, 48, "%.2fM %s/s", per_s / 1e6, unit);
    else if (per_s >= 1e3) snprintf(out, 48, "%.1fk %s/s", per_s / 1e3, unit);
    else snprintf(out, 48, "%.0f %s/s", per_s, unit);
}

// Columns of the terminal; 80 if not known.
static int columns(void) {
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

// On a terminal: the line followed by a bar; the brief line if there is no room for both. Never wider than the
// terminal, or each redraw would scroll.
static void draw(const char *full, const char *brief, double fraction) {
    enum { BAR_LEAST = 5, BAR_MOST = 26, FRAME = 4 };
    int wide = columns() - 1;
    const char *line = (int)strlen(full) + FRAME + BAR_LEAST <= wide ? full : brief;
    int room = wide - (int)strlen(line) - FRAME, bar = room < BAR_MOST ? room : BAR_MOST;
    printf("\r%.*s", wide, line);
    if (bar >= BAR_LEAST) {
        fputs("  [", stdout);
        for (int i = 0; i < bar; i++) putchar(i < (int)(fraction * bar) ? '#' : '-');
        putchar(']');
    }
    fputs("\033[K", stdout);
}

static void show_step(monitor *m, const step_record *r, bool log) {
    double now = clock_now(), done = (double)(r->step - m->first_step + 1), fraction = (double)r->step / (double)m->steps;
    char eta[32], speed[48], at[64], full[256], brief[128];
    if (m->quiet || (m->terminal ? now - m->last_draw < 0.1 && r->step < m->steps : !log)) return;
    time_left(eta, (now - m->started) / done * (double)(m->steps - r->step));
    rate(speed, m->short_unit, r->units_per_s);
    snprintf(at, sizeof at, "step %4" PRId64 "/%" PRId64 " %3d%%  loss %.4f", r->step, m->steps, (int)(100 * fraction), r->loss);
    snprintf(full, sizeof full, "%s  norm %.2f  lr %.1e  %s  data %.1f%%%s  eta %s", at, r->grad_norm, r->lr, speed,
             r->ms > 0 ? 100 * r->data_wait_ms / r->ms : 0, r->skipped ? "  skipped" : "", eta);
    snprintf(brief, sizeof brief, "%s  %s  eta %s", at, speed, eta);
    if (m->terminal) draw(full, brief, fraction);
    else printf("%s\n", full);
    fflush(stdout);
    m->drawn = m->terminal;
    m->last_draw = now;
}

// --- records ---------------------------------------------------------------------------------------------------------------

void monitor_step(monitor *m, const step_record *r, bool log) {
    show_step(m, r, log);
    if (!log) return;
    json j = {.n = 0};
    put(&j, "{\"t\":\"step\",\"step\":%" PRId64, r->step);
    put_real(&j, "loss", r->loss);
    put_real(&j, "grad_norm", r->grad_norm);
    put_real(&j, "lr", r->lr);
    put(&j, ",\"%ss\":%" PRId64, m->unit, r->units);
    put_real(&j, "ms", r->ms);
    put_named(&j, "%ss_per_s", m->unit, r->units_per_s);
    put(&j, ",\"mfu\":null");  // a CPU's peak is not known
    put_real(&j, "data_wait_ms", r->data_wait_ms);
    put_real(&j, "comm_wait_ms", r->comm_wait_ms);
    if (r->world > 1) {
        put_real(&j, "comm_ms", r->comm_ms);
        put_real(&j, "comm_hidden", r->hidden);
        put(&j, ",\"slowest_rank\":%d", r->slowest);
        put_real(&j, "slowest_compute_ms", r->slowest_ms);
        put_real(&j, "median_compute_ms", r->median_ms);
    }
    put_real(&j, "loss_scale", r->loss_scale);
    put(&j, ",\"skipped\":%s", r->skipped ? "true" : "false");
    if (r->hash) put_text(&j, "hash", r->hash);
    append_log(m, &j);
}

void monitor_eval(monitor *m, const eval_record *r) {
    char beside[128] = "";
    for (int i = 0, n = 0; i < r->metrics; i++) n += snprintf(beside + n, sizeof beside - (size_t)n, "  %s %.4f", r->metric[i], r->value[i]);
    monitor_say(m, "eval  step %" PRId64 "  loss %.4f%s over %" PRId64 " %s  best %.4f at step %" PRId64 "  %.1f s", r->step, r->loss, beside, r->samples, r->of,
                r->best, r->best_step, r->ms / 1e3);
    json j = {.n = 0};
    put(&j, "{\"t\":\"eval\",\"step\":%" PRId64, r->step);
    put_real(&j, "loss", r->loss);
    for (int i = 0; i < r->metrics; i++) put_real(&j, r->metric[i], r->value[i]);
    put_real(&j, "best", r->best);
    put(&j, ",\"best_step\":%" PRId64 ",\"%s\":%" PRId64, r->best_step, r->of, r->samples);
    put_real(&j, "ms", r->ms);
    append_log(m, &j);
}

static void put_device(json *j, const power_device *d) {
    char why[LIMITED_TEXT];
    put(j, "{\"rank\":%d", d->rank);
    put_real(j, "watts", d->watts);
    put_real(j, "celsius", d->celsius);
    put_real(j, "mhz", d->mhz);
    if (d->limited == LIMITED_UNKNOWN) put(j, ",\"limited\":null}");
    else put(j, ",\"limited\":\"%s\"}", device_limited_text(d->limited, why));
}

void monitor_power(monitor *m, const power_record *r) {
    for (int first = 0; first < r->devices; first += POWER_DEVICES) {
        int end = first + POWER_DEVICES < r->devices ? first + POWER_DEVICES : r->devices;
        json j = {.n = 0};
        put(&j, "{\"t\":\"power\",\"step\":%" PRId64, r->step);
        put_real(&j, "watts", r->watts);
        put_named(&j, "joules_per_%s", m->unit, r->joules_per_unit);
        put(&j, ",\"devices\":[");
        for (int k = first; k < end; k++) {
            if (k > first) put(&j, ",");
            put_device(&j, &r->device[k]);
        }
        put(&j, "]");
        append_log(m, &j);
    }
}

void monitor_sync(monitor *m) {
    if (m->log >= 0 && fdatasync(m->log) != 0 && !m->log_failing) monitor_event(m, "log_failed", 0, "log.jsonl could not be brought to disk");
}

void monitor_checkpoint(monitor *m, int64_t step, double ms, const char *hash) {
    json j = {.n = 0};
    put(&j, "{\"t\":\"checkpoint\",\"step\":%" PRId64, step);
    put_text(&j, "hash", hash);
    put_real(&j, "ms", ms);
    append_log(m, &j);
}

void monitor_sample(monitor *m, int64_t step, const char *prompt, const char *text) {
    char clean[RECORD], asked[RECORD];
    monitor_printable(clean, sizeof clean, text);
    monitor_printable(asked, sizeof asked, prompt);
    monitor_say(m, "sample at step %" PRId64 "\n%s%s", step, asked, clean);
    json j = {.n = 0};
    put(&j, "{\"t\":\"sample\",\"step\":%" PRId64, step);
    put_text(&j, "prompt", prompt);
    put_text(&j, "text", text);
    append_log(m, &j);
}

void monitor_event(monitor *m, const char *kind, int64_t step, const char *text) {
    monitor_say(m, "%s: %s", kind, text);
    if (m->events < 0) return;
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json j = {.n = 0};
    put(&j, "{\"t\":\"event\",\"at\":\"%s\",\"kind\":\"%s\",\"step\":%" PRId64, when, kind, step);
    put_text(&j, "text", text);
    off_t end = lseek(m->events, 0, SEEK_END);
    if (append(m->events, "events.jsonl", &j) == ERR_OK) return;
    monitor_say(m, "events.jsonl: %s", err_last()->text);
    (void)!ftruncate(m->events, end);  // half a record would spoil the next one
}

// --- files -----------------------------------------------------------------------------------------------------------------

static err_t open_log(monitor *m, int64_t log_bytes) {
    m->log = open(m->log_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    struct stat st;
    if (m->log < 0 || fstat(m->log, &st) != 0) return err_set(ERR_IO, "%s: %s", m->log_path, strerror(errno));
    if (st.st_size < log_bytes)  // the end of the log was lost with the machine's cache
        monitor_event(m, "log_short", 0, "log.jsonl is shorter than its checkpoint remembers; its last records were lost in a crash of the machine");
    else if (ftruncate(m->log, (off_t)log_bytes) != 0) return err_set(ERR_IO, "%s: truncate: %s", m->log_path, strerror(errno));
    off_t end = lseek(m->log, 0, SEEK_END);
    if (end < 0) return err_set(ERR_IO, "%s: %s", m->log_path, strerror(errno));
    m->log_bytes = end;
    return ERR_OK;
}

err_t monitor_open(monitor *m, const char *run_dir, const config *c, int64_t log_bytes) {
    *m = (monitor){.unit = "sample", .short_unit = "samples", .log = -1, .events = -1, .terminal = isatty(STDOUT_FILENO), .steps = c->run.steps};
    char path[IO_PATH];
    TRY(io_path(path, "%s/events.jsonl", run_dir));
    TRY(io_path(m->log_path, "%s/log.jsonl", run_dir));
    m->events = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (m->events < 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    return c->log.jsonl ? open_log(m, log_bytes) : ERR_OK;
}

void monitor_close(monitor *m) {
    wipe_bar(m);
    fflush(stdout);
    if (m->log >= 0) close(m->log);
    if (m->events >= 0) close(m->events);
    m->log = m->events = -1;
}
