// trainer/step/trace.c: see trainer/step/trace.h.
#include "trainer/step/trace.h"

static bool waits(const action *a) {
    return a->kind == ACTION_AWAIT || a->kind == ACTION_NEED || a->kind == ACTION_HAVE || a->kind == ACTION_SETTLE ||
           a->kind == ACTION_ROWS || a->kind == ACTION_SHARE;
}

static const action_list *list_of(const simulate_lists *in, int rank) { return in->list[rank]; }

// --- a trace ---------------------------------------------------------------------------------------------------------

static void put_action(text *to, const action *a, int rank, double came, double left) {
    char what[ACTION_TEXT];
    text_put(to, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
             action_text(a, what), waits(a) ? "wait" : "compute", rank, 1e6 * came, 1e6 * (left - came));
}

// From where it was posted here: while the other end has not, it waits.
static void put_message(text *to, const message *m, int number, int rank, double came, double arrived) {
    char what[MESSAGE_TEXT];
    const char *name = message_text(m, what);
    text_put(to,
             ",\n{\"name\":\"%s\",\"cat\":\"message\",\"ph\":\"b\",\"pid\":0,\"tid\":%d,\"id\":\"%d.%d\",\"ts\":%.3f}",
             name, rank, rank, number, 1e6 * came);
    text_put(to,
             ",\n{\"name\":\"%s\",\"cat\":\"message\",\"ph\":\"e\",\"pid\":0,\"tid\":%d,\"id\":\"%d.%d\",\"ts\":%.3f}",
             name, rank, rank, number, 1e6 * arrived);
}

static void put_rank(text *to, const simulate_lists *in, const simulation *s, int rank) {
    const action_list *list = list_of(in, rank);
    const simulated_rank *k = &s->rank[rank];
    for (int i = 0; i < list->count; i++) {
        const action *a = &list->at[i];
        if (k->left[i] > k->came[i]) put_action(to, a, rank, k->came[i], k->left[i]);
        if (a->kind != ACTION_POST) continue;
        const message *m = &in->of[rank]->table.message[a->message];
        if (m->sends) put_message(to, m, a->message, rank, k->came[i], k->message[a->message]);
    }
}

void trace_json(text *to, const simulate_lists *in, const simulation *s, const char *title, const char *const *name) {
    text_put(to,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
             "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"%s\"}}",
             title);
    for (int rank = 0; rank < s->ranks; rank++)
        text_put(to, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", rank,
                 name[rank]);
    for (int rank = 0; rank < s->ranks; rank++) put_rank(to, in, s, rank);
    text_put(to, "\n]}\n");
}

// --- a picture -------------------------------------------------------------------------------------------------------

enum { LEFT = 110, WIDTH = 1200, ROW = 28, BAR = 20, TOP = 40 };

static const char *color_of(const action *a) {
    switch (a->kind) {
    case ACTION_FORWARD: return "#4a7fd4";
    case ACTION_BACKWARD:
    case ACTION_INPUTS: return "#4caf6e";
    case ACTION_WEIGHTS: return "#23733f";
    case ACTION_MASTERS:
    case ACTION_SQUARES:
    case ACTION_UPDATE:
    case ACTION_OUTER: return "#e08a2e";
    default: return "#9a9a9a";
    }
}

static void draw_rank(text *to, const action_list *list, const simulated_rank *k, int row, double scale) {
    for (int i = 0; i < list->count; i++) {
        const action *a = &list->at[i];
        double width = (k->left[i] - k->came[i]) * scale;
        char what[ACTION_TEXT];
        if (waits(a) || !(width > 0)) continue;
        text_put(to,
                 "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: %.3f to %.3f ms"
                 "</title></rect>\n",
                 LEFT + k->came[i] * scale, TOP + row * ROW, width, BAR, color_of(a), action_text(a, what),
                 1e3 * k->came[i], 1e3 * k->left[i]);
    }
}

// A round distance of which 4 to 10 go into the whole.
static double tick_of(double total) {
    double ten = 1;
    while (ten > total) ten /= 10;
    while (10 * ten <= total) ten *= 10;
    return total / ten >= 4 ? ten : total / ten >= 2 ? ten / 2 : ten / 5;
}

static void draw_axis(text *to, double total, double scale, int rows) {
    int bottom = TOP + rows * ROW;
    if (!(total > 0)) return;
    double tick = tick_of(total);
    for (int i = 0; i * tick <= total; i++)
        text_put(to,
                 "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"#ccc\"/><text x=\"%.2f\" y=\"%d\">%g ms"
                 "</text>\n",
                 LEFT + i * tick * scale, LEFT + i * tick * scale, TOP - 6, bottom, LEFT + i * tick * scale,
                 bottom + 14, 1e3 * i * tick);
}

void trace_svg(text *to, const simulate_lists *in, const simulation *s, const char *title, const char *const *name) {
    double scale = s->total > 0 ? (WIDTH - LEFT - 60) / s->total : 0;
    text_put(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\">%s</text>\n",
        WIDTH, TOP + s->ranks * ROW + 24, title);
    draw_axis(to, s->total, scale, s->ranks);
    for (int rank = 0; rank < s->ranks; rank++) {
        text_put(to, "<text x=\"8\" y=\"%d\">%s</text>\n", TOP + rank * ROW + BAR - 5, name[rank]);
        draw_rank(to, list_of(in, rank), &s->rank[rank], rank, scale);
    }
    text_put(to, "</svg>\n");
}
