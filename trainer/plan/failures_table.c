// trainer/plan/failures_table.c: see trainer/costs/failures.h: `lockstep failures`, and what it prints.
#include "trainer/command.h"
#include "trainer/costs/failures_drawn.h"

#include <inttypes.h>
#include <math.h>

static void print_part(FILE *out, const char *what, double s, double all) {
    fprintf(out, "  %-24s %7.2f %%\n", what, 100 * s / all);
}

static void print_every(FILE *out, const char *what, double every_s) {
    fprintf(out, "  %-24s every %.*f s", what, every_s < 10 ? 2 : 0, every_s);
}

static void print_interval(FILE *out, const failure_rules *r) {
    double best = failures_best(r), young = sqrt(2 * r->save_s / failures_rate(r));
    fprintf(out, "saves   every %.4g s; with a spare at hand always, by closed form (Daly 2006):\n", r->every_s);
    if (r->save_s > 0) {
        print_every(out, "best", best);
        fprintf(out, " (Young 1974: %.*f s): %.2f %% useful\n", young < 10 ? 2 : 0, young,
                100 * failures_useful(r, best));
    } else fprintf(out, "  best                     as often as possible, since a save takes no time (save_s = 0)\n");
    for (int k = -2; k <= 2; k++) {
        double every = r->every_s * (k < 0 ? 1.0 / (1 << -2 * k) : 1 << 2 * k);
        print_every(out, k ? "" : "this", every);
        fprintf(out, ": %.2f %% useful\n", 100 * failures_useful(r, every));
    }
}

void failures_print(FILE *out, const failure_rules *r, const failure_times *t) {
    double all = r->days * FAILURES_DAY;
    fprintf(out, "cluster %" PRId64 " nodes of %" PRId64 " devices, %" PRId64 " spare: a failure every %.2f h\n",
            r->nodes, r->devices, r->spares, 1 / failures_rate(r) / FAILURES_HOUR);
    fprintf(out, "failures in %g days %.0f +- %.0f (two deviations of one such time; %" PRId64 " were simulated)\n",
            r->days, t->interruptions, 2 * t->deviation, r->runs);
    fprintf(out, "time    of all of it\n");
    print_part(out, "useful", t->useful, all);
    print_part(out, "saving", t->saving, all);
    print_part(out, "lost work, done again", t->lost, all);
    print_part(out, "noticing and restarting", t->down, all);
    print_part(out, "waiting for a spare", t->waiting, all);
    print_part(out, "slowed by stragglers", t->slow, all);
    print_interval(out, r);
}

err_t verb_failures(const struct command *asked, FILE *out) {
    failure_rules r;
    failure_times t;
    const char *trace = command_value(asked, "--trace");
    if (asked->count != 1)
        return err_set(ERR_USAGE, "lockstep failures: expected one file, e.g. lockstep failures cluster.ini");
    if (trace) TRY(drawing_name(trace));
    TRY(failures_read(&r, asked->words[0]));
    TRY(failures_simulate(&r, &t));
    failures_print(out, &r, &t);
    return trace ? failures_draw(&r, trace) : ERR_OK;
}
