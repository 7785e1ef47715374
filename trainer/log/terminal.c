// trainer/log/terminal.c: lines for a person on standard output, and where that is a terminal, a bar below them. A
// person who does not read is no failure: nothing here fails.
#include "base/clock.h"
#include "trainer/log/sink.h"
#include "trainer/log/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct terminal {
    bool draws;          // standard output is a terminal: draw a bar
    bool drawn;          // the last line shows one
    double last_draw;    // seconds
    double started;      // when this process's first step began, seconds
    int64_t first_step;  // and its number
    int64_t steps;       // last step of the run
    const char *unit;    // "tok"
} terminal;

static err_t terminal_open(void *self, const log_setup *run) {
    *(terminal *)self = (terminal){.draws = isatty(STDOUT_FILENO), .steps = run->c->run.steps, .unit = run->short_unit};
    return ERR_OK;
}

static void wipe_bar(terminal *t) {
    if (t->drawn) fputs("\r\033[K", stdout);
    t->drawn = false;
}

static void terminal_close(void *self) {
    wipe_bar(self);
    fflush(stdout);
}

// --- lines -----------------------------------------------------------------------------------------------------------

// One line, above the bar.
static err_t say(terminal *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static err_t say(terminal *t, const char *fmt, ...) {
    va_list ap;
    wipe_bar(t);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    return ERR_OK;
}

static err_t take_line(void *self, const record *r) { return say(self, "%s", r->line); }

static err_t take_event(void *self, const record *r) { return say(self, "%s: %s", r->event.kind, r->event.text); }

static err_t take_eval(void *self, const record *all) {
    const eval_record *r = &all->eval;
    char beside[128] = "";
    for (int i = 0, n = 0; i < r->metrics; i++) n += snprintf(beside + n, sizeof beside - (size_t)n, "  %s %.4f", r->metric[i], r->value[i]);
    if (isnan(r->loss)) return say(self, "eval  step %" PRId64 "%s  %.1f s", r->step, beside, r->ms / 1e3);
    return say(self, "eval  step %" PRId64 "  loss %.4f%s over %" PRId64 " %s  best %.4f at step %" PRId64 "  %.1f s", r->step, r->loss, beside,
               r->samples, r->of, r->best, r->best_step, r->ms / 1e3);
}

static err_t take_sample(void *self, const record *r) {
    enum { SHOWN = 16384 };
    char text[SHOWN], prompt[SHOWN];
    utf8_printable(text, sizeof text, r->sample.text);
    utf8_printable(prompt, sizeof prompt, r->sample.prompt);
    return say(self, "sample at step %" PRId64 "\n%s%s", r->sample.step, prompt, text);
}

// --- the bar ---------------------------------------------------------------------------------------------------------

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

static err_t take_start(void *self, const record *r) {
    terminal *t = self;
    t->started = clock_now();
    t->first_step = r->start.step + 1;
    return ERR_OK;
}

static err_t take_step(void *self, const record *all) {
    terminal *t = self;
    const step_record *r = &all->step;
    double now = clock_now(), done = (double)(r->step - t->first_step + 1);
    double fraction = (double)r->step / (double)t->steps;
    char eta[32], speed[48], at[64], full[256], brief[160];
    if (t->draws ? now - t->last_draw < 0.1 && r->step < t->steps : !r->logged) return ERR_OK;
    time_left(eta, (now - t->started) / done * (double)(t->steps - r->step));
    rate(speed, t->unit, r->units_per_s);
    snprintf(at, sizeof at, "step %4" PRId64 "/%" PRId64 " %3d%%  loss %.4f", r->step, t->steps, (int)(100 * fraction), r->loss);
    snprintf(full, sizeof full, "%s  norm %.2f  lr %.1e  %s  data %.1f%%%s  eta %s", at, r->grad_norm, r->lr, speed,
             r->ms > 0 ? 100 * r->data_wait_ms / r->ms : 0, r->skipped ? "  skipped" : "", eta);
    snprintf(brief, sizeof brief, "%s  %s  eta %s", at, speed, eta);
    if (t->draws) draw(full, brief, fraction);
    else printf("%s\n", full);
    fflush(stdout);
    t->drawn = t->draws;
    t->last_draw = now;
    return ERR_OK;
}

const sink sink_terminal = {
    .name = "the terminal",
    .bytes = sizeof(terminal),
    .people = true,
    .every_step = true,
    .open = terminal_open,
    .close = terminal_close,
    .take = {[RECORD_START] = take_start,
             [RECORD_STEP] = take_step,
             [RECORD_EVAL] = take_eval,
             [RECORD_SAMPLE] = take_sample,
             [RECORD_EVENT] = take_event,
             [RECORD_LINE] = take_line},
};
