// trainer/report/braille.c: see trainer/report/braille.h.
#include "trainer/report/braille.h"

#include "base/fmath.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOTS_X = 2 * BRAILLE_COLUMNS, DOTS_Y = 4 * BRAILLE_ROWS, LABEL = 8 };

typedef struct canvas {
    unsigned char dots[BRAILLE_ROWS][BRAILLE_COLUMNS];  // bits of U+2800
    signed char owner[BRAILLE_ROWS][BRAILLE_COLUMNS];   // the curve that was drawn here last, -1: none, -2: several
    // a curve's name, 0: none; the last two columns are beside the picture
    char letter[BRAILLE_ROWS][BRAILLE_COLUMNS + 2];
    double from, to, low, high;
    bool log_y;
} canvas;

static double scale(const canvas *c, double y) { return c->log_y ? fm_log(y) : y; }

static int dot_x(const canvas *c, double x) { return (int)lrint((DOTS_X - 1) * (x - c->from) / (c->to - c->from)); }
static int dot_y(const canvas *c, double y) {
    return (int)lrint((DOTS_Y - 1) * (1 - (scale(c, y) - scale(c, c->low)) / (scale(c, c->high) - scale(c, c->low))));
}

static void dot(canvas *c, int x, int y, int curve) {
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || x >= DOTS_X || y < 0 || y >= DOTS_Y) return;
    signed char *owner = &c->owner[y / 4][x / 2];
    c->dots[y / 4][x / 2] |= bit[y % 4][x % 2];
    *owner = (signed char)(*owner == -1 || *owner == curve ? curve : -2);
}

static void line(canvas *c, int x0, int y0, int x1, int y1, int curve) {
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double part = steps ? (double)i / steps : 0;
        dot(c, (int)lrint(x0 + part * (x1 - x0)), (int)lrint(y0 + part * (y1 - y0)), curve);
    }
}

static bool usable(const canvas *c, const point *p) { return isfinite(p->y) && (!c->log_y || p->y > 0); }

// Its name stands after its end, and, as colours may be missing, once on the curve, each curve's elsewhere.
static void name_curve(canvas *c, const points *p, int curve, int curves, bool also_inside) {
    char letter = (char)('A' + curve);
    const point *end = &p->at[p->n - 1];
    int at = dot_y(c, end->y) / 4, column = dot_x(c, end->x) / 2 + 1, row = at;
    for (int away = 1; away < 2 * BRAILLE_ROWS && (row < 0 || row >= BRAILLE_ROWS || c->letter[row][column]); away++)
        row = at + (away % 2 ? -1 : 1) * (away + 1) / 2;  // the nearest free one
    if (row < 0 || row >= BRAILLE_ROWS) return;
    c->letter[row][column] = letter;
    if (!also_inside) return;
    const point *inside = &p->at[(int)((double)p->n * (curve + 1) / (curves + 1))];
    if (usable(c, inside)) c->letter[dot_y(c, inside->y) / 4][dot_x(c, inside->x) / 2] = letter;
}

static bool set_axes(canvas *c, const points *curves, int n, bool log_y) {
    *c = (canvas){.from = INFINITY, .to = -INFINITY, .low = INFINITY, .high = -INFINITY, .log_y = log_y};
    memset(c->owner, -1, sizeof c->owner);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < curves[i].n; k++) {
            const point *p = &curves[i].at[k];
            if (!usable(c, p)) continue;
            c->from = fmin(c->from, p->x), c->to = fmax(c->to, p->x);
            c->low = fmin(c->low, p->y), c->high = fmax(c->high, p->y);
        }
    if (!isfinite(c->from)) return false;
    if (c->to == c->from) c->to = c->from + 1;
    if (c->high == c->low) c->high += 0.05 * fabs(c->high) + (c->high == 0), c->low -= 0.05 * fabs(c->low);
    return true;
}

static void draw(canvas *c, const points *p, int curve) {
    int last_x = 0, last_y = 0;
    bool down = false;
    for (int k = 0; k < p->n; k++) {
        if (!usable(c, &p->at[k])) continue;
        int x = dot_x(c, p->at[k].x), y = dot_y(c, p->at[k].y);
        line(c, down ? last_x : x, down ? last_y : y, x, y, curve);
        last_x = x, last_y = y, down = true;
    }
}

const char *braille_colour(const braille_look *look, int i) {
    static const char *const of[] = {"\033[34m", "\033[33m", "\033[32m", "\033[35m", "\033[36m", "\033[31m"};
    if (!look->colour) return "";
    return i < 0 ? "\033[0m" : of[i % 6];
}

static void print_cell(FILE *out, const canvas *c, const braille_look *look, int row, int column) {
    char letter = c->letter[row][column];
    bool inside = column < BRAILLE_COLUMNS;
    int owner = inside ? c->owner[row][column] : -1;
    unsigned char dots = inside ? c->dots[row][column] : 0;
    if (letter) fprintf(out, "%s%c%s", braille_colour(look, letter - 'A'), letter, braille_colour(look, -1));
    else if (!dots) fputc(' ', out);
    else if (!look->utf8) fputc(owner >= 0 ? 'A' + owner : '*', out);
    else if (owner >= 0)
        fprintf(out, "%s\xE2%c%c%s", braille_colour(look, owner), 0xA0 | dots >> 6, 0x80 | (dots & 63),
                braille_colour(look, -1));
    else fprintf(out, "\xE2%c%c", 0xA0 | dots >> 6, 0x80 | (dots & 63));
}

static void print(FILE *out, const canvas *c, const braille_look *look) {
    for (int row = 0; row < BRAILLE_ROWS; row++) {
        char label[FIGURE_TEXT] = "";
        int end = BRAILLE_COLUMNS + 2;
        double part = 1 - (double)row / (BRAILLE_ROWS - 1),
               y = scale(c, c->low) + part * (scale(c, c->high) - scale(c, c->low));
        if (row % 5 == 0) figure_text(label, FIGURE_PLAIN, c->log_y ? fm_exp(y) : y, 3);
        while (end > 0 && !c->letter[row][end - 1] && (end > BRAILLE_COLUMNS || !c->dots[row][end - 1])) end--;
        fprintf(out, "%*s %s", LABEL - 1, label, look->utf8 ? "\xE2\x94\x82" : "|");
        for (int column = 0; column < end; column++) print_cell(out, c, look, row, column);
        fputc('\n', out);
    }
    char from[FIGURE_TEXT], to[FIGURE_TEXT], right[80];
    figure_text(from, FIGURE_WHOLE, c->from, 0);
    snprintf(right, sizeof right, "%s %s", look->x_name, figure_text(to, FIGURE_WHOLE, c->to, 0));
    fprintf(out, "%*s%s%*s\n", LABEL + 1, "", from, BRAILLE_COLUMNS - (int)strlen(from), right);
}

void braille_draw(FILE *out, const points *curves, int n, const braille_look *look) {
    canvas c;
    if (!set_axes(&c, curves, n, look->log_y)) return;
    for (int i = n - 1; i >= 0; i--) draw(&c, &curves[i], i);
    for (int i = 0; i < n; i++)
        if (curves[i].n && usable(&c, &curves[i].at[curves[i].n - 1]))
            name_curve(&c, &curves[i], i, n, n > 1 && look->utf8 && !look->colour);
    print(out, &c, look);
}

braille_look braille_look_of(FILE *out) {
    locale_t here = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    const char *term = getenv("TERM"), *plain = getenv("NO_COLOR");
    braille_look look = {.utf8 = here && strcmp(nl_langinfo_l(CODESET, here), "UTF-8") == 0};
    if (here) freelocale(here);
    look.colour = isatty(fileno(out)) && !(plain && *plain) && !(term && strcmp(term, "dumb") == 0);
    return look;
}
