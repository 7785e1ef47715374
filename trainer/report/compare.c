// trainer/report/compare.c: the verb `compare`: several runs in a terminal of 80 columns.
#include "base/utf8.h"
#include "trainer/report/braille.h"
#include "trainer/report/parting.h"
#include "trainer/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct comparison {
    FILE *out;
    runlog *runs[REPORT_RUNS];
    int n;
    braille_look look;
    int class, differences;
} comparison;

// Anyone's text, safe to print, on one line and cut to `width` characters. Where the terminal has no UTF-8, other
// characters are '?'. dst has room for 4 * width + 4 bytes.
static const char *safe(char *dst, const comparison *c, const char *text, int width) {
    size_t room = 4 * (size_t)width + 4;
    int characters = 0;
    utf8_printable(dst, room, text);
    char *to = dst;
    for (const char *s = dst; *s && characters < width; characters++) {
        int n = utf8_length((const unsigned char *)s);
        if (n < 1) n = 1;
        if (*s == '\n' || *s == '\t') *to++ = ' ';
        else if (n > 1 && !c->look.utf8) *to++ = '?';
        else memmove(to, s, (size_t)n), to += n;
        s += n;
    }
    *to = 0;
    return dst;
}

// printf counts bytes; names are padded by characters.
static void padded(const comparison *c, const char *text, int width) {
    char dst[4 * BRAILLE_WIDTH + 4];
    int characters = 0;
    safe(dst, c, text, width);
    for (const char *s = dst; *s; s++) characters += ((unsigned char)*s & 0xC0) != 0x80;
    fprintf(c->out, "%s%*s", dst, width - characters, "");
}

// "–" is for pages.
static const char *number(char dst[FIGURE_TEXT], figure kind, double v, int digits) {
    if (!isfinite(v)) return strcpy(dst, "-");
    return figure_text(dst, kind, v, digits);
}

static const char *short_time(char dst[FIGURE_TEXT], double s) {
    if (s < 100) snprintf(dst, FIGURE_TEXT, "%.1f s", s);
    else if (s < 6000) snprintf(dst, FIGURE_TEXT, "%.1f min", s / 60);
    else if (s < 48 * 3600) snprintf(dst, FIGURE_TEXT, "%.1f h", s / 3600);
    else snprintf(dst, FIGURE_TEXT, "%.1f d", s / 86400);
    return dst;
}

static void print_table(const comparison *c) {
    char a[FIGURE_TEXT];
    fprintf(c->out, "   %-20s %9s %8s %8s %8s %7s %9s\n", "run", "steps", "loss", "best val", "rate/s", "mfu", "time");
    for (int i = 0; i < c->n; i++) {
        const runlog *r = c->runs[i];
        fprintf(c->out, "%s%c%s  ", braille_colour(&c->look, i), 'A' + i, braille_colour(&c->look, -1));
        padded(c, r->name, 20);
        fprintf(c->out, " %9s", number(a, FIGURE_WHOLE, (double)r->last_step, 0));
        fprintf(c->out, " %8s", number(a, FIGURE_PLAIN, r->loss, 5));
        fprintf(c->out, " %8s", number(a, FIGURE_PLAIN, r->best, 5));
        fprintf(c->out, " %8s", number(a, FIGURE_PLAIN, spread_quantile(&r->rate, 0, SPREAD_COLUMNS, 0.5), 3));
        fprintf(c->out, " %7s", number(a, FIGURE_SHARE, spread_quantile(&r->mfu, 0, SPREAD_COLUMNS, 0.5), 3));
        fprintf(c->out, " %9s\n", short_time(a, r->trained_s));
    }
}

static void print_curves(comparison *c) {
    points curves[REPORT_RUNS];
    double least = INFINITY;
    for (int i = 0; i < c->n; i++) {
        points raw = points_of(&c->runs[i]->steps, CURVE_LOSS, -1, (double)c->runs[i]->last_step, 2 * BRAILLE_COLUMNS);
        curves[i] = raw.n > 40 ? points_smooth(&raw, 1.5) : raw;
        if (raw.n > 40) points_free(&raw);
        for (int k = 0; k < curves[i].n; k++) least = fmin(least, curves[i].at[k].y);
    }
    c->look.log_y = least > 0, c->look.x_name = "step";
    if (isfinite(least)) fprintf(c->out, "\ntraining loss%s\n", c->look.log_y ? ", logarithmic" : "");
    braille_draw(c->out, curves, c->n, &c->look);
    for (int i = 0; i < c->n; i++) points_free(&curves[i]);
}

// After its first line a sentence goes on under its beginning.
static void print_wrapped(const comparison *c, const char *text, int indent) {
    int column = indent;
    for (const char *word = text; *word;) {
        int n = (int)strcspn(word, " ");
        if (column + 1 + n > BRAILLE_WIDTH - 1) fprintf(c->out, "\n%*s", indent, ""), column = indent;
        column += fprintf(c->out, "%s%.*s", column > indent ? " " : "", n, word);
        word += n + (word[n] == ' ');
    }
    fputc('\n', c->out);
}

static err_t print_partings(const comparison *c) {
    if (c->n > 1) fprintf(c->out, "\nbeside A\n");
    for (int i = 1; i < c->n; i++) {
        parting p;
        char text[PARTING_TEXT];
        TRY(parting_of(&p, c->runs[0]->dir, c->runs[i]->dir));
        fprintf(c->out, "%c  ", 'A' + i);
        print_wrapped(c, parting_text(text, &p), 3);
        if (!p.hashed) continue;
        char first[4 * RUNLOG_WORD + 4], second[4 * RUNLOG_WORD + 4];
        safe(first, c, p.hash[0], RUNLOG_WORD), safe(second, c, p.hash[1], RUNLOG_WORD);
        if (strcmp(first, second) == 0) fprintf(c->out, "   hash at step %" PRId64 ": %s\n", p.last_hash, first);
        else fprintf(c->out, "   hash at step %" PRId64 ": %s, and of A %s\n", p.last_hash, second, first);
    }
    return ERR_OK;
}

static void print_difference(void *ctx, key_class class, const char *name, const char *const *value) {
    comparison *c = ctx;
    char text[4 * BRAILLE_WIDTH + 4];
    if (!c->differences++) fprintf(c->out, "\nsettings that differ\n");
    if (c->class != (int)class) fprintf(c->out, "%s\n", parting_classes[class]);
    c->class = (int)class;
    size_t width = 30;
    for (int i = 0; i < c->n; i++) width += strlen(value[i] ? safe(text, c, value[i], BRAILLE_WIDTH - 7) : "-") + 4;
    bool one_line = width < BRAILLE_WIDTH && strlen(name) < 28;
    fprintf(c->out, one_line ? "  %-26s" : "  %s", safe(text, c, name, BRAILLE_WIDTH - 2));
    for (int i = 0; i < c->n; i++)
        fprintf(c->out, one_line ? "  %c %s" : "\n    %c  %s", 'A' + i,
                value[i] ? safe(text, c, value[i], BRAILLE_WIDTH - 7) : "-");
    fputc('\n', c->out);
}

static err_t compare(comparison *c, char **dirs) {
    for (int i = 0; i < c->n; i++) {
        TRY(runlog_open(&c->runs[i], dirs[i]));
        TRY(runlog_poll(c->runs[i]));
    }
    print_table(c);
    print_curves(c);
    TRY(print_partings(c));
    parting_settings(c->runs, c->n, print_difference, c);
    if (c->n > 1 && !c->differences) fprintf(c->out, "\nno setting differs\n");
    return ERR_OK;
}

err_t verb_compare(int argc, char **argv, FILE *out) {
    comparison c = {.out = out, .n = argc, .look = braille_look_of(out), .class = -1};
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0)
            return err_set(ERR_USAGE, "%s: no such option here; lockstep compare RUN_DIR...", argv[i]);
    if (argc == 0)
        return err_set(ERR_USAGE,
                       "lockstep compare: expected the directories of runs, e.g. lockstep compare runs/a runs/b");
    if (argc > REPORT_RUNS) return err_set(ERR_USAGE, "more than %d runs", REPORT_RUNS);
    err_t rc = compare(&c, argv);
    for (int i = 0; i < c.n; i++) runlog_close(c.runs[i]);
    return rc;
}
