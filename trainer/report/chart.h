// trainer/report/chart.h: one chart of a page, as SVG: no script, no request, readable at any width.
//
//   outer <svg>   as wide as the page lets it be, `height` pixels high: grid, ticks and text, placed by percent and
//                 pixels, so that text keeps its size
//   inner <svg>   the curves, in a box of CHART_WIDE x CHART_HIGH that is stretched over it; strokes are not
//
// A chart is described, then drawn: its axes, its legend, its description for screen readers and its table of values
// all come from the same layers.
#ifndef TRAINER_REPORT_CHART_H
#define TRAINER_REPORT_CHART_H

#include "base/text.h"
#include "trainer/report/figure.h"
#include "trainer/report/runlog.h"

enum {
    CHART_LAYERS = 48,
    CHART_RULES = 4,
    CHART_WIDE = 4000,
    CHART_HIGH = 1000,
    CHART_COLOURS = 4,
    CHART_GREY = -1,
    CHART_TICKS = 16
};

// low and high: of a band or an area; else as y.
typedef struct point {
    double x, y, low, high;
} point;

typedef struct points {
    point *at;
    int n;
} points;

// The buckets of a curve merged into at most `columns` points; x is the mean of curve `over` in them, or, if over is
// -1, their middle; of the column with `last` in it that. Without memory: no points.
points points_of(const sheet *s, int curve, int over, double last, int columns);

// The same points with y averaged over neighbours: a Gaussian with a standard deviation of `over` points.
points points_smooth(const points *p, double over);

// The band, wider where the line would leave it.
points points_around(const points *band, const points *line);
void points_free(points *p);

typedef enum layer_kind { LAYER_BAND, LAYER_LINE, LAYER_STAIRS, LAYER_DOTS, LAYER_AREA, LAYER_TICKS } layer_kind;

typedef struct layer {
    layer_kind kind;
    points of;   // owned by the chart
    int colour;  // also decides the dashes of a line, unless it is `solid`
    bool solid;
    const char *name;  // in the legend and over the table; NULL: neither
} layer;

typedef struct chart {
    const char *title, *note, *x_name;
    figure x, y;
    bool log_x, log_y, from_zero;
    bool wide;    // higher, and over all columns
    bool many;    // of several runs: its legend is shown also if only one has data
    double x_to;  // the x axis reaches at least so far
    int layers, rules;
    layer layer[CHART_LAYERS];
    struct {
        double y;
        const char *name;
    } rule[CHART_RULES];  // a horizontal line each
    const runlog *marks;  // whose events are vertical lines, NULL: none
    double marks_from;    // x is seconds since this time; NaN: x is a step
} chart;

// Takes p, also if it has no points: then there is no layer. name must outlive the chart.
void chart_add(chart *c, layer_kind kind, points p, int colour, const char *name);
void chart_rule(chart *c, double y, const char *name);

// Appends the chart, and frees its points. number: of this chart on its page, for ids. false: no layer, nothing was
// drawn.
bool chart_draw(chart *c, text *h, int number);

// Where the ticks of a linear axis are: at most `most` steps of 1, 2 or 5 times a power of ten. Returns how many.
int chart_ticks(double tick[CHART_TICKS], double from, double to, int most);

// The colour (CHART_GREY: grey) and the dashes of series i, as attributes of SVG.
const char *chart_colour(int i);
const char *chart_dashes(int i);
// A short sample of them, for legends.
void chart_swatch(text *h, layer_kind kind, int colour, bool solid);

// A heat map of ranks over steps. false: nothing in it.
bool chart_heat(text *h, const heat *m, int world, int64_t last_step, int number);

#endif
