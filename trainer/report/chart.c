// trainer/report/chart.c: see trainer/report/chart.h.
#include "trainer/report/chart.h"

#include "base/fmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 12 };  // rows of a table of values

// At least 3:1 on #fff and on #121212.
static const char *const colours[CHART_COLOURS] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7"};
static const char *const dashes[] = {"", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
                                     " stroke-dasharray=\"9 3 2 3\""};

const char *chart_colour(int i) { return i == CHART_GREY ? "#767676" : colours[i % CHART_COLOURS]; }
const char *chart_dashes(int i) { return dashes[i < 0 ? 0 : (i + i / CHART_COLOURS) % 4]; }

// --- axes ------------------------------------------------------------------------------------------------------------

typedef struct axis {
    double from, to, scale;  // labels are of v / scale
    bool log;
    const char *unit;  // what the scale is, "" or NULL: nothing
    double tick[CHART_TICKS];
    int ticks;
} axis;

static double place(const axis *a, double v) {
    if (a->log) {
        v = v < a->from ? a->from : v;
        return fm_log(v / a->from) / fm_log(a->to / a->from);
    }
    return (v - a->from) / (a->to - a->from);
}

static double log_10(double v) { return fm_log(v) / fm_log(10); }

// A step of 1, 2 or 5 times a power of ten, of which at most `most` fit.
static double nice(double range, int most) {
    double rough = range / most, ten = fm_pow(10, (int64_t)floor(log_10(rough) + 1e-12)), m = rough / ten * (1 - 1e-12);
    return ten * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void linear_ticks(axis *a, int most) {
    double step = nice((a->to - a->from) / a->scale, most) * a->scale;
    for (double k = ceil(a->from / step - 1e-9);
         k * step <= a->to * (1 + 1e-12) + 1e-9 * step && a->ticks < CHART_TICKS; k++)
        a->tick[a->ticks++] = k == 0 ? 0 : k * step;
}

int chart_ticks(double tick[CHART_TICKS], double from, double to, int most) {
    axis a = {.from = from, .to = to, .scale = 1};
    linear_ticks(&a, most);
    memcpy(tick, a.tick, sizeof a.tick);
    return a.ticks;
}

// Of each decade these, and never more than `most` in all.
static const double tenths[] = {1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9},
                    halves[] = {1, 1.5, 2, 3, 4, 5, 6, 8}, four[] = {1, 2, 3, 5}, three[] = {1, 2, 5};
static const struct {
    const double *of;
    int count;
} decade[] = {{tenths, 14}, {halves, 8}, {four, 4}, {three, 3}, {three, 1}};

// The ticks of every `every`-th decade, as many as there is room for. Returns how many there are.
static int decade_ticks(axis *a, const double *of, int count, int every) {
    int found = 0;
    a->ticks = 0;
    for (double k = floor(log_10(a->from)); k <= ceil(log_10(a->to)); k += every)
        for (int i = 0; i < count; i++) {
            double v = of[i] * fm_pow(10, (int64_t)k);
            if (v < a->from * (1 - 1e-9) || v > a->to * (1 + 1e-9)) continue;
            if (a->ticks < CHART_TICKS) a->tick[a->ticks++] = v;
            found++;
        }
    return found;
}

// As many as fit. In a small part of one decade there are too few of all: then as on a linear axis, which such a part
// is nearly.
static void log_ticks(axis *a, int most) {
    int every = (int)ceil(log_10(a->to / a->from) / most);
    for (size_t i = 0; i < sizeof decade / sizeof *decade; i++) {
        if (i + 1 < sizeof decade / sizeof *decade && every > 1) continue;
        if (decade_ticks(a, decade[i].of, decade[i].count, every) <= most) break;
    }
    if (a->ticks >= 3) return;
    a->ticks = 0;
    linear_ticks(a, most);
}

static axis axis_of(double least, double most, bool is_log, int ticks, figure kind) {
    axis a = {.from = least, .to = most, .scale = 1, .log = is_log && least > 0};
    if (kind == FIGURE_SECONDS) {
        a.unit = most < 180 ? "s" : most < 3 * 3600 ? "min" : most < 72 * 3600 ? "h" : "d";
        a.scale = most < 180 ? 1 : most < 3 * 3600 ? 60 : most < 72 * 3600 ? 3600 : 86400;
    }
    if (!(a.to > a.from)) {  // one value: something around it
        double around = a.from == 0 ? 1 : 0.05 * fabs(a.from);
        a.from -= a.log ? 0.04 * fabs(a.from) : a.from == 0 ? 0 : around, a.to += around;  // nothing here is negative
    }
    if (a.log) log_ticks(&a, ticks);
    else linear_ticks(&a, ticks);
    return a;
}

// Wide enough for all that is drawn.
static axis x_axis(const chart *c) {
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < c->layers; i++)
        for (int k = 0; k < c->layer[i].of.n; k++) {
            double x = c->layer[i].of.at[k].x;
            if (c->log_x && !(x > 0)) continue;
            least = fmin(least, x), most = fmax(most, x);
        }
    if (c->x_to > most) most = c->x_to;
    if (!c->log_x && least > 0 && (least <= 0.05 * most || least == most)) least = 0;
    return axis_of(least, most, c->log_x, 6, c->x);
}

static axis y_axis(const chart *c) {
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < c->layers; i++)
        for (int k = 0; k < c->layer[i].of.n; k++) {
            const point *p = &c->layer[i].of.at[k];
            if (c->layer[i].kind == LAYER_TICKS) continue;
            bool spans = c->layer[i].kind == LAYER_BAND || c->layer[i].kind == LAYER_AREA;
            double low = spans ? p->low : p->y, high = spans ? p->high : p->y;
            if (!c->log_y || low > 0) least = fmin(least, low);
            most = fmax(most, high);
        }
    for (int i = 0; i < c->rules; i++) {  // a line far away would flatten the curve
        if (c->rule[i].y <= most + 2 * (most - least) && c->rule[i].y > most) most = c->rule[i].y;
        if (c->rule[i].y < least && c->rule[i].y >= least - 2 * (most - least)) least = c->rule[i].y;
    }
    bool is_log = c->log_y && least > 0;
    if (!isfinite(least)) least = 0, most = 1;
    if (c->from_zero && least > 0) least = 0;
    if (is_log) {
        double share = fm_exp(0.03 * fm_log(most / least));
        most *= share, least /= share;
    } else most += 0.05 * (most - least), least -= c->from_zero ? 0 : 0.04 * (most - least);
    return axis_of(least, most, is_log, (c->wide ? 6 : 4) + (is_log ? 2 : 0), c->y);
}

static const char *tick_text(char dst[FIGURE_TEXT], figure kind, const axis *a, double v) {
    if (kind == FIGURE_SECONDS) return snprintf(dst, FIGURE_TEXT, "%.6g", v / a->scale), dst;
    if (kind == FIGURE_WHOLE) kind = FIGURE_PLAIN;
    return figure_text(dst, kind, v, kind == FIGURE_SMALL ? 3 : 6);
}

// --- curves ----------------------------------------------------------------------------------------------------------

typedef struct pen {
    text *h;
    const axis *x, *y;
    int last_x, last_y;
    bool down;
} pen;

static int across(const pen *p, double x) { return (int)lrint(CHART_WIDE * fmin(fmax(place(p->x, x), -0.1), 1.1)); }
static int up(const pen *p, double y) { return (int)lrint(CHART_HIGH * (1 - fmin(fmax(place(p->y, y), -0.1), 1.1))); }

// Relative coordinates are short. A point that is where the one before is says nothing.
static void draw_to(pen *p, double x, double y) {
    int to_x = across(p, x), to_y = up(p, y);
    if (!p->down) text_put(p->h, "M%d %d", to_x, to_y);
    else if (to_y == p->last_y && to_x != p->last_x) text_put(p->h, "h%d", to_x - p->last_x);
    else if (to_x == p->last_x && to_y != p->last_y) text_put(p->h, "v%d", to_y - p->last_y);
    else if (to_x != p->last_x)
        text_put(p->h, to_y < p->last_y ? "l%d%d" : "l%d %d", to_x - p->last_x, to_y - p->last_y);
    p->last_x = to_x, p->last_y = to_y, p->down = true;
}

static void trace(pen *p, const layer *l, const chart *c) {
    const points *of = &l->of;
    for (int i = 0; i < of->n; i++) {
        const point *at = &of->at[i];
        if (l->kind == LAYER_BAND || l->kind == LAYER_AREA) draw_to(p, at->x, at->high);
        else if (l->kind == LAYER_TICKS) text_put(p->h, "M%d %dv-%d", across(p, at->x), CHART_HIGH, CHART_HIGH / 16);
        else if (c->log_y && !(at->y > 0)) continue;
        else if (l->kind == LAYER_DOTS) text_put(p->h, "M%d %dh0", across(p, at->x), up(p, at->y));
        else {
            if (l->kind == LAYER_STAIRS && p->down) draw_to(p, at->x, of->at[i - 1].y);
            draw_to(p, at->x, at->y);
        }
    }
    if (l->kind != LAYER_BAND && l->kind != LAYER_AREA) {
        if (l->kind != LAYER_DOTS && l->kind != LAYER_TICKS && of->n == 1) text_put(p->h, "h0");
        return;
    }
    for (int i = of->n - 1; i >= 0; i--) draw_to(p, of->at[i].x, of->at[i].low);
    text_put(p->h, "z");
}

static void draw_layer(text *h, const layer *l, const chart *c, const axis *x, const axis *y) {
    pen p = {.h = h, .x = x, .y = y};
    const char *colour = chart_colour(l->colour);
    static const char keep[] = " vector-effect=\"non-scaling-stroke\"";
    bool dots = l->kind == LAYER_DOTS || (l->of.n == 1 && l->kind != LAYER_TICKS);
    if (l->kind == LAYER_BAND) text_put(h, "<path class=\"q\" fill=\"%s\" fill-opacity=\".3\" d=\"", colour);
    else if (l->kind == LAYER_AREA) text_put(h, "<path class=\"a\" fill=\"%s\"%s d=\"", colour, keep);
    else if (dots)
        text_put(h, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"6\" stroke-linecap=\"round\"%s d=\"", colour,
                 keep);
    else
        text_put(h, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-linejoin=\"round\"%s%s d=\"", colour,
                 l->kind == LAYER_TICKS ? "1.5" : "1.75", l->solid ? "" : chart_dashes(l->colour), keep);
    trace(&p, l, c);
    text_put(h, "\"/>");
}

// Events at about one place.
typedef struct mark {
    double at;  // part of the axis
    int64_t step;
    char kinds[4 * RUNLOG_WORD];  // "stop, resume"
} mark;

// "hang" is not in "unhang".
static bool has_kind(const mark *m, const char *kind) {
    size_t n = strlen(kind);
    for (const char *at = m->kinds; (at = strstr(at, kind)) != NULL; at++)
        if ((at == m->kinds || at[-1] == ' ') && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

static void add_kind(mark *m, const char *kind) {
    size_t n = strlen(m->kinds);
    if (has_kind(m, kind) || n + strlen(kind) + 3 > sizeof m->kinds) return;
    snprintf(m->kinds + n, sizeof m->kinds - n, "%s%s", n ? ", " : "", kind);
}

static void draw_line(text *h, const mark *m, int height) {
    char when[FIGURE_TEXT];
    text_put(h, "<line class=\"m\" x1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"%d\"><title>step %s: ", 100 * m->at, 100 * m->at,
             height, figure_text(when, FIGURE_WHOLE, (double)m->step, 0));
    text_html(h, m->kinds);
    text_put(h, "</title></line>");
}

// *free: from where on there is room for a name.
static void draw_name(text *h, const mark *m, double *free) {
    if (m->at < *free || m->at > 0.92) return;
    text_put(h, "<text class=\"n\" x=\"%.2f%%\" y=\"9\" dx=\"4\">", 100 * m->at);
    text_html(h, m->kinds);
    text_put(h, "</text>");
    *free = m->at + 0.02 + 0.0085 * (double)strlen(m->kinds);
}

// Those that are nearer than half a percent to the one before are one line, with all their names.
static void draw_marks(text *h, const chart *c, const axis *x, int height) {
    enum { MOST = 60 };
    mark m[MOST];
    int n = 0;
    double free = 0;
    for (int i = 0; c->marks && i < c->marks->marks; i++) {
        const runlog_mark *e = &c->marks->mark[i];
        double v = isnan(c->marks_from) ? (double)(e->step < 1 ? 1 : e->step) : e->time - c->marks_from,
               at = place(x, v);
        if (!(at >= -0.001 && at <= 1.001)) continue;
        if (n == 0 || fabs(at - m[n - 1].at) >= 0.005) {
            if (n == MOST) break;
            m[n++] = (mark){.at = at, .step = e->step};
        }
        add_kind(&m[n - 1], e->kind);
    }
    for (int i = 0; i < n; i++) draw_line(h, &m[i], height);
    for (int i = 0; i < n && c->wide; i++) draw_name(h, &m[i], &free);
}

static void draw_grid(text *h, const chart *c, const axis *x, const axis *y, int height) {
    char text[FIGURE_TEXT];
    for (int i = 0; i < y->ticks; i++) {
        double at = height * (1 - place(y, y->tick[i]));
        text_put(
            h,
            "<line class=\"g\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"-7\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
            at, at, at + 4, tick_text(text, c->y, y, y->tick[i]));
    }
    text_put(h, "<line class=\"b\" x2=\"100%%\" y1=\"%d\" y2=\"%d\"/>", height, height);
    for (int i = 0; i < x->ticks; i++) {
        double at = 100 * place(x, x->tick[i]);
        text_put(
            h,
            "<line class=\"b\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%d\" y2=\"%d\"/><text x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            at, at, height, height + 4, at, height + 17, tick_text(text, c->x, x, x->tick[i]));
    }
    text_put(h, "<text class=\"n\" x=\"100%%\" y=\"%d\" text-anchor=\"end\">%s%s%s</text>", height + 31, c->x_name,
             x->unit ? ", " : "", x->unit ? x->unit : "");
}

static void draw_rules(text *h, const chart *c, const axis *y, int height) {
    for (int i = 0; i < c->rules; i++) {
        double at = place(y, c->rule[i].y);
        if (!(at >= 0 && at <= 1)) continue;
        text_put(
            h,
            "<line stroke=\"%s\" stroke-width=\"1.25\" stroke-dasharray=\"7 3\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>",
            chart_colour(1), height * (1 - at), height * (1 - at));
        text_put(h, "<text class=\"r\" x=\"100%%\" dx=\"-2\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                 height * (1 - at) - 4, c->rule[i].name);
    }
}

// --- words -----------------------------------------------------------------------------------------------------------

void chart_swatch(text *h, layer_kind kind, int colour, bool solid) {
    const char *c = chart_colour(colour);
    text_put(h, "<svg class=\"s\" width=\"22\" height=\"10\" aria-hidden=\"true\">");
    if (kind == LAYER_BAND)
        text_put(h, "<rect class=\"q\" y=\"1\" width=\"20\" height=\"8\" fill=\"%s\" fill-opacity=\".3\"/>", c);
    else if (kind == LAYER_AREA) text_put(h, "<rect y=\"1\" width=\"20\" height=\"8\" fill=\"%s\"/>", c);
    else if (kind == LAYER_DOTS) text_put(h, "<circle cx=\"10\" cy=\"5\" r=\"3\" fill=\"%s\"/>", c);
    else if (kind == LAYER_TICKS) text_put(h, "<path d=\"M10 1v8\" stroke=\"%s\" stroke-width=\"1.5\"/>", c);
    else
        text_put(h, "<path d=\"M0 5h20\" stroke=\"%s\" stroke-width=\"1.75\"%s/>", c,
                 solid ? "" : chart_dashes(colour));
    text_put(h, "</svg>");
}

static void legend(text *h, const chart *c) {
    int named = 0;
    for (int i = 0; i < c->layers; i++) named += c->layer[i].name != NULL;
    if (named < (c->many ? 1 : 2)) return;
    text_put(h, "<span class=\"l\">");
    for (int i = 0; i < c->layers; i++) {
        const layer *l = &c->layer[i];
        if (!l->name) continue;
        text_put(h, "<span>");
        chart_swatch(h, l->kind, l->colour, l->solid);
        text_html(h, l->name);
        text_put(h, "</span>");
    }
    text_put(h, "</span>");
}

static const layer *first_line(const chart *c) {
    for (int i = 0; i < c->layers; i++)
        if (c->layer[i].kind != LAYER_BAND && c->layer[i].kind != LAYER_TICKS) return &c->layer[i];
    return &c->layer[0];
}

// What a screen reader says of each named curve: where it begins and ends, and its extremes.
static void describe(text *h, const chart *c) {
    char a[FIGURE_TEXT], b[FIGURE_TEXT], low[FIGURE_TEXT], high[FIGURE_TEXT], x0[FIGURE_TEXT], x1[FIGURE_TEXT];
    for (int i = 0; i < c->layers; i++) {
        const points *p = &c->layer[i].of;
        if (c->layer[i].kind == LAYER_BAND || (!c->layer[i].name && &c->layer[i] != first_line(c))) continue;
        if (c->layer[i].kind == LAYER_TICKS) {
            text_put(h, "%s at %d places. ", c->layer[i].name, p->n);
            continue;
        }
        double least = INFINITY, most = -INFINITY;
        for (int k = 0; k < p->n; k++) least = fmin(least, p->at[k].y), most = fmax(most, p->at[k].y);
        text_html(h, c->layer[i].name ? c->layer[i].name : c->title);
        text_put(h, ": from %s at %s %s to %s at %s, lowest %s, highest %s. ", figure_text(a, c->y, p->at[0].y, 4),
                 c->x_name, figure_text(x0, c->x, p->at[0].x, 4), figure_text(b, c->y, p->at[p->n - 1].y, 4),
                 figure_text(x1, c->x, p->at[p->n - 1].x, 4), figure_text(low, c->y, least, 4),
                 figure_text(high, c->y, most, 4));
    }
}

static const point *nearest(const points *p, double x) {
    const point *best = &p->at[0];
    for (int i = 1; i < p->n; i++)
        if (fabs(p->at[i].x - x) < fabs(best->x - x)) best = &p->at[i];
    return best;
}

static void table(text *h, const chart *c) {
    const points *rows = &first_line(c)->of;
    char text[FIGURE_TEXT];
    int count = rows->n < ROWS ? rows->n : ROWS;
    text_put(h, "<details><summary>Values</summary><div class=\"o\"><table><tr><th scope=\"col\">%s</th>", c->x_name);
    for (int i = 0; i < c->layers; i++) {
        if (c->layer[i].kind == LAYER_TICKS) continue;
        text_put(h, "<th scope=\"col\">");
        text_html(h, c->layer[i].name ? c->layer[i].name : c->title);
        text_put(h, "</th>");
    }
    text_put(h, "</tr>");
    for (int r = 0; r < count; r++) {
        double x = rows->at[count > 1 ? (int)((int64_t)r * (rows->n - 1) / (count - 1)) : 0].x;
        text_put(h, "<tr><th scope=\"row\">%s</th>", figure_text(text, c->x, x, 4));
        for (int i = 0; i < c->layers; i++) {
            const point *p = nearest(&c->layer[i].of, x);
            if (c->layer[i].kind == LAYER_TICKS) continue;
            text_put(h, "<td>%s", figure_text(text, c->y, c->layer[i].kind == LAYER_BAND ? p->low : p->y, 4));
            if (c->layer[i].kind == LAYER_BAND) text_put(h, " to %s", figure_text(text, c->y, p->high, 4));
            text_put(h, "</td>");
        }
        text_put(h, "</tr>");
    }
    text_put(h, "</table></div></details>");
}

// --- the whole -------------------------------------------------------------------------------------------------------

void chart_add(chart *c, layer_kind kind, points p, int colour, const char *name) {
    if (p.n == 0 || c->layers == CHART_LAYERS) points_free(&p);
    else c->layer[c->layers++] = (layer){.kind = kind, .of = p, .colour = colour, .name = name};
}

void chart_rule(chart *c, double y, const char *name) {
    if (!isfinite(y) || c->rules == CHART_RULES) return;
    c->rule[c->rules].y = y;
    c->rule[c->rules++].name = name;
}

static void caption(text *h, const chart *c, const axis *x, const axis *y, int number) {
    const char *scale = x->log && y->log ? "both axes logarithmic"
                        : y->log         ? "logarithmic axis"
                        : x->log         ? "logarithmic over x"
                                         : NULL;
    text_put(h, "<figcaption><b id=\"t%d\">%s</b>", number, c->title);
    if (c->note || scale)
        text_put(h, " <small>%s%s%s</small>", c->note ? c->note : "", c->note && scale ? "; " : "", scale ? scale : "");
    legend(h, c);
    text_put(h, "</figcaption>");
}

bool chart_draw(chart *c, text *h, int number) {
    int height = c->wide ? 300 : 170;
    bool drawn = c->layers > 0;
    if (drawn) {
        axis x = x_axis(c), y = y_axis(c);
        text_put(h, "<figure%s>", c->wide ? " class=\"w\"" : "");
        caption(h, c, &x, &y, number);
        text_put(h, "<svg class=\"p\" height=\"%d\" role=\"img\" aria-labelledby=\"t%d d%d\"><desc id=\"d%d\">", height,
                 number, number, number);
        describe(h, c);
        text_put(h, "</desc>");
        draw_grid(h, c, &x, &y, height);
        text_put(
            h,
            "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" overflow=\"visible\" width=\"100%%\" height=\"%d\">",
            CHART_WIDE, CHART_HIGH, height);
        for (int i = 0; i < c->layers; i++) draw_layer(h, &c->layer[i], c, &x, &y);
        text_put(h, "</svg>");
        draw_rules(h, c, &y, height);
        draw_marks(h, c, &x, height);
        text_put(h, "</svg>");
        table(h, c);
        text_put(h, "</figure>\n");
    }
    for (int i = 0; i < c->layers; i++) points_free(&c->layer[i].of);
    c->layers = 0;
    return drawn;
}
