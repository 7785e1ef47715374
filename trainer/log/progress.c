// trainer/log/progress.c: see trainer/log/progress.h.
#include "trainer/log/progress.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void progress_open(progress *p, int64_t steps, const char *unit) {
    *p = (progress){.draws = isatty(STDOUT_FILENO), .steps = steps, .unit = unit};
}

static void wipe_bar(progress *p) {
    if (p->drawn) fputs("\r\033[K", stdout);
    p->drawn = false;
}

void progress_close(progress *p) {
    wipe_bar(p);
    fflush(stdout);
}

// --- lines -----------------------------------------------------------------------------------------------------------

void progress_say(progress *p, const char *fmt, ...) {
    va_list ap;
    wipe_bar(p);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

void progress_event(progress *p, const incident_record *r) { progress_say(p, "%s: %s", r->kind, r->text); }

void progress_eval(progress *p, const eval_record *r) {
    char beside[2048] = "", loss[512] = "", over[64] = "", best[512] = "";
    for (int i = 0, n = 0; i < r->metrics && n < (int)sizeof beside; i++)
        n += snprintf(beside + n, sizeof beside - (size_t)n, "  %s %.4f", r->metric[i], r->value[i]);
    int n = 0;
    if (!isnan(r->loss)) n = snprintf(loss, sizeof loss, "  loss %.4f", r->loss);
    else if (r->samples > 0) snprintf(loss, sizeof loss, "  loss nan");
    if (n > 0 && n < (int)sizeof loss && r->possible > 0)
        snprintf(loss + n, sizeof loss - (size_t)n, ", best possible %.4f (%.1f %% above)", r->possible,
                 100 * (r->loss / r->possible - 1));
    if (r->samples > 0) snprintf(over, sizeof over, " over %" PRId64 " %s", r->samples, r->of);
    bool named = r->best_of && *r->best_of;
    if (named ? isfinite(r->best) : !isnan(r->loss))
        snprintf(best, sizeof best, "  best %s%s%.4f at step %" PRId64, named ? r->best_of : "", named ? " " : "",
                 r->best, r->best_step);
    progress_say(p, "eval  step %" PRId64 "%s%s%s%s  %.1f s", r->step, loss, beside, over, best, r->ms / 1e3);
}

void progress_checkpoint(progress *p, const checkpoint_record *r) {
    progress_say(p, "saved step %" PRId64 "  hash %s  %.2f s", r->step, r->hash, r->ms / 1e3);
}

void progress_sample(progress *p, const sample_record *r) {
    enum { SHOWN = 16384 };
    char text[SHOWN], prompt[SHOWN];
    utf8_printable(text, sizeof text, r->text);
    utf8_printable(prompt, sizeof prompt, r->prompt);
    progress_say(p, "sample at step %" PRId64 "\n%s%s", r->step, prompt, text);
}

// --- the bar ---------------------------------------------------------------------------------------------------------

void progress_time(char out[32], double s) {
    long n = isfinite(s) && s >= 0 && s < 1e9 ? (long)(s + 0.5) : -1;
    if (n < 0) snprintf(out, 32, "-");
    else if (n < 60) snprintf(out, 32, "%lds", n);
    else if (n < 3600) snprintf(out, 32, "%ldm%02lds", n / 60, n % 60);
    else snprintf(out, 32, "%ldh%02ldm", n / 3600, n / 60 % 60);
}

void progress_rate(char out[48], const char *unit, double per_s) {
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

void progress_step(progress *p, const step_record *r, double left_s) {
    double now = clock_now(), fraction = p->steps > 0 ? (double)r->step / (double)p->steps : 0;
    char eta[32], speed[48], of[48] = "", epoch[48] = "", full[320], brief[256], at[160];
    if (p->draws ? now - p->last_draw < 0.1 && r->step != p->steps : !r->logged) return;
    progress_time(eta, left_s);
    progress_rate(speed, p->unit, r->units_per_s);
    if (p->steps > 0) snprintf(of, sizeof of, "/%" PRId64 " %3d%%", p->steps, (int)(100 * fraction));
    if (p->epochs > 0) snprintf(epoch, sizeof epoch, "  epoch %.2f/%g", (double)r->step / p->epoch_steps, p->epochs);
    snprintf(at, sizeof at, "step %4" PRId64 "%s%s  loss %.4f", r->step, of, epoch, r->loss);
    snprintf(full, sizeof full, "%s  norm %.2f  lr %.1e  %s  data %.1f%%%s  eta %s", at, r->grad_norm, r->lr, speed,
             r->ms > 0 ? 100 * r->data_wait_ms / r->ms : 0, r->skipped ? "  skipped" : "", eta);
    snprintf(brief, sizeof brief, "%s  %s  eta %s", at, speed, eta);
    if (p->draws) draw(full, brief, fraction);
    else printf("%s\n", full);
    fflush(stdout);
    p->drawn = p->draws;
    p->last_draw = now;
}
