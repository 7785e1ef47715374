// trainer/costs/failures_drawn.c: see trainer/costs/failures_drawn.h.
#include "trainer/costs/failures_drawn.h"

#include "base/io.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name, *color;
} spans[FAILURE_SPANS] = {[FAILURE_WORK] = {"work and saves", "#4caf6e"},
                          [FAILURE_LOST] = {"work that is lost", "#e08a2e"},
                          [FAILURE_DOWN] = {"noticing and restarting", "#c0392b"},
                          [FAILURE_WAITING] = {"waiting for a spare", "#8e44ad"}};

static bool ends_in(const char *path, const char *with) {
    size_t n = strlen(path), m = strlen(with);
    return n > m && strcmp(path + n - m, with) == 0;
}

bool drawing_is_svg(const char *path) { return ends_in(path, ".svg"); }

err_t drawing_name(const char *path) {
    if (ends_in(path, ".json") || drawing_is_svg(path)) return ERR_OK;
    return err_set(
        ERR_USAGE,
        "--trace %s: expected a name that ends in .json, for chrome://tracing and Perfetto, or in .svg, for a "
        "browser",
        path);
}

static void put_title(text *to, const failure_rules *r) {
    text_put(to, "%" PRId64 " nodes of %" PRId64 " devices, %" PRId64 " spare, saves every %.4g s: %g days, simulated",
             r->nodes, r->devices, r->spares, r->every_s, r->days);
}

// --- a trace ---------------------------------------------------------------------------------------------------------

static void put_span(void *ctx, failure_span what, double from_s, double to_s) {
    text_put(ctx, ",\n{\"name\":\"%s\",\"cat\":\"cluster\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.0f,\"dur\":%.0f}",
             spans[what].name, (int)what, 1e6 * from_s, 1e6 * (to_s - from_s));
}

err_t failures_json(text *to, const failure_rules *r) {
    text_put(to, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                 "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"");
    put_title(to, r);
    text_put(to, "\"}}");
    for (int k = 0; k < FAILURE_SPANS; k++)
        text_put(to, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", k,
                 spans[k].name);
    TRY(failures_walk(r, put_span, to));
    text_put(to, "\n]}\n");
    return ERR_OK;
}

// --- a picture -------------------------------------------------------------------------------------------------------

enum { LEFT = 70, WIDTH = 1100, TOP = 56, ROW = 12, BAR = 10, ROWS = 100 };

typedef struct picture {
    text *to;
    double row_s;  // of a row: a day, or more where there are many
} picture;

static void draw_part(const picture *x, failure_span what, double from_s, double to_s, int row) {
    double scale = (WIDTH - LEFT - 20) / x->row_s;
    text_put(x->to,
             "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: day %.3f, for %.3f h"
             "</title></rect>\n",
             LEFT + (from_s - row * x->row_s) * scale, TOP + row * ROW, (to_s - from_s) * scale, BAR, spans[what].color,
             spans[what].name, from_s / FAILURES_DAY, (to_s - from_s) / FAILURES_HOUR);
}

// From row to row.
static void draw_span(void *ctx, failure_span what, double from_s, double to_s) {
    const picture *x = ctx;
    for (int row = (int)(from_s / x->row_s); from_s < to_s && row < ROWS; row++) {
        double until = fmin(to_s, (row + 1) * x->row_s);
        if (until > from_s) draw_part(x, what, from_s, until, row);
        from_s = fmax(from_s, until);
    }
}

static void draw_legend(text *to) {
    for (int k = 0; k < FAILURE_SPANS; k++)
        text_put(to,
                 "<rect x=\"%d\" y=\"30\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"40\">%s</text>\n",
                 LEFT + 200 * k, spans[k].color, LEFT + 200 * k + 18, spans[k].name);
}

err_t failures_svg(text *to, const failure_rules *r) {
    picture x = {to, FAILURES_DAY * ceil(r->days / ROWS)};
    int rows = (int)ceil(r->days * FAILURES_DAY / x.row_s);
    text_put(to,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
             "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\">",
             WIDTH, TOP + rows * ROW + 12);
    put_title(to, r);
    text_put(to, "</text>\n");
    draw_legend(to);
    for (int row = 0; row < rows; row += 5)
        text_put(to, "<text x=\"8\" y=\"%d\">day %.0f</text>\n", TOP + row * ROW + BAR, row * x.row_s / FAILURES_DAY);
    TRY(failures_walk(r, draw_span, &x));
    text_put(to, "</svg>\n");
    return ERR_OK;
}

err_t failures_draw(const failure_rules *r, const char *path) {
    text t = {0};
    err_t rc = (drawing_is_svg(path) ? failures_svg : failures_json)(&t, r);
    if (rc == ERR_OK && t.full) rc = err_set(ERR_INTERNAL, "no memory for a drawing of %g days", r->days);
    if (rc == ERR_OK) rc = io_write_file(path, t.at, t.n, NULL);
    text_free(&t);
    return rc;
}
