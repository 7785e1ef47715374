// trainer/report/heat.c: the map of ranks over steps. Its colours say how a rank's compute time compares with the
// median: what differs stands out from a page that is else empty.
#include "trainer/report/chart.h"

#include <math.h>

// Orange is slower, blue is faster, by at least `from`.
static const struct {
    double from;
    const char *colour, *opacity, *name;
} levels[] = {{1.5, "#D55E00", "1", "1.5 or more"}, {1.25, "#D55E00", ".75", "1.25"}, {1.1, "#D55E00", ".5", "1.1"},
              {1.04, "#D55E00", ".25", "1.04"},     {0.96, NULL, NULL, NULL},         {0.9, "#0072B2", ".4", "0.96"},
              {0, "#0072B2", ".8", "0.9 or less"}};
enum { LEVELS = sizeof levels / sizeof *levels, ROW = 10 };

// A record is about the steps before it, so that a column without values is like the next one that has some. -1: there
// is none.
static int level_of(const heat *m, int row, int column) {
    while (column < m->columns && !m->n[row][column]) column++;
    if (column == m->columns) return -1;
    double ratio = m->sum[row][column] / (float)m->n[row][column];
    int i = 0;
    while (i + 1 < LEVELS && ratio < levels[i].from) i++;
    return i;
}

// One path for each level.
static void draw_level(text *h, const heat *m, int level) {
    bool any = false;
    for (int row = 0; row < m->rows; row++)
        for (int c = 0; c < m->columns; c++) {
            int end = c + 1;
            if (level_of(m, row, c) != level) continue;
            while (end < m->columns && level_of(m, row, end) == level) end++;
            if (!any)
                text_put(h, "<path fill=\"%s\" fill-opacity=\"%s\" d=\"", levels[level].colour, levels[level].opacity);
            text_put(h, "M%d %dh%dv%dh-%dz", c * ROW, row * ROW, (end - c) * ROW, ROW, (end - c) * ROW);
            any = true;
            c = end - 1;
        }
    if (any) text_put(h, "\"/>");
}

static void legend(text *h) {
    text_put(h, "<span class=\"l\">");
    for (int i = LEVELS - 1; i >= 0; i--) {
        if (!levels[i].colour) continue;
        text_put(
            h,
            "<span><svg class=\"s\" width=\"22\" height=\"10\" aria-hidden=\"true\"><rect class=\"e\" width=\"20\" height=\"10\" fill=\"%s\" "
            "fill-opacity=\"%s\"/></svg>%s</span>",
            levels[i].colour, levels[i].opacity, levels[i].name);
    }
    text_put(h, "</span>");
}

// Of each row its mean and its largest ratio.
static void table(text *h, const heat *m) {
    text_put(
        h,
        "<details><summary>Values</summary><div class=\"o\"><table><tr><th scope=\"col\">rank</th><th scope=\"col\">mean</th><th "
        "scope=\"col\">largest</th></tr>");
    for (int row = 0; row < m->rows; row++) {
        double sum = 0, most = 0;
        int64_t n = 0;
        for (int c = 0; c < m->columns; c++) {
            if (!m->n[row][c]) continue;
            sum += m->sum[row][c], n += m->n[row][c];
            most = fmax(most, m->sum[row][c] / m->n[row][c]);
        }
        if (!n) continue;
        if (m->ranks == 1) text_put(h, "<tr><th scope=\"row\">%d</th>", row);
        else text_put(h, "<tr><th scope=\"row\">%d to %d</th>", row * m->ranks, (row + 1) * m->ranks - 1);
        text_put(h, "<td>%.3f</td><td>%.3f</td></tr>", sum / (double)n, most);
    }
    text_put(h, "</table></div></details>");
}

static void describe(text *h, const heat *m) {
    double most = 0;
    int where = 0;
    for (int row = 0; row < m->rows; row++)
        for (int c = 0; c < m->columns; c++)
            if (m->n[row][c] && m->sum[row][c] / m->n[row][c] > most) most = m->sum[row][c] / m->n[row][c], where = row;
    text_put(h, "The largest ratio to the median is %.2f, of rank %d%s.", most, where * m->ranks,
             m->ranks > 1 ? " and its neighbours" : "");
}

bool chart_heat(text *h, const heat *m, int world, int64_t last_step, int number) {
    int height = m->rows * (m->rows <= 8 ? 22 : m->rows <= 16 ? 14 : 7);
    char text[FIGURE_TEXT];
    double to = fmin(m->width * m->columns, (double)(last_step > 1 ? last_step : 1));
    if (m->rows < 2 || m->columns == 0) return false;
    text_put(
        h,
        "<figure class=\"w\"><figcaption><b id=\"t%d\">Compute time of each rank</b> <small>divided by the median of those that do the same</small>",
        number);
    legend(h);
    text_put(h,
             "</figcaption><svg class=\"p\" height=\"%d\" role=\"img\" aria-labelledby=\"t%d d%d\"><desc id=\"d%d\">",
             height, number, number, number);
    describe(h, m);
    text_put(h, "</desc><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" width=\"100%%\" height=\"%d\">",
             m->columns * ROW, m->rows * ROW, height);
    for (int i = 0; i < LEVELS; i++)
        if (levels[i].colour) draw_level(h, m, i);
    text_put(h, "</svg><rect class=\"f\" width=\"100%%\" height=\"%d\" fill=\"none\"/>", height);
    int every = 1;
    while (every * height < 14 * m->rows) every *= 2;
    for (int row = 0; row < m->rows; row += every)
        text_put(h, "<text x=\"-7\" y=\"%.1f\" text-anchor=\"end\">%d</text>", height * (row + 0.5) / m->rows + 4,
                 row * m->ranks);
    double tick[CHART_TICKS];
    for (int i = 0, ticks = chart_ticks(tick, 0, to, 6); i < ticks; i++)
        text_put(h, "<text x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%s</text>", 100 * tick[i] / to, height + 17,
                 figure_text(text, FIGURE_PLAIN, tick[i], 6));
    text_put(h, "<text class=\"n\" x=\"100%%\" y=\"%d\" text-anchor=\"end\">step; a row is %s%.0d%s of %d</text></svg>",
             height + 31, m->ranks == 1 ? "one rank" : "", m->ranks == 1 ? 0 : m->ranks, m->ranks == 1 ? "" : " ranks",
             world);
    table(h, m);
    text_put(h, "</figure>\n");
    return true;
}
