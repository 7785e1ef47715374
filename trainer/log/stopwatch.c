// trainer/log/stopwatch.c: see trainer/log/stopwatch.h.
#include "trainer/log/stopwatch.h"

#include <stdlib.h>
#include <string.h>

static err_t open_list(span_list *l, device *d, int most) {
    l->room = most;
    l->at = calloc(2 * (size_t)most + 1, sizeof *l->at);
    if (!l->at) return err_set(ERR_INTERNAL, "no memory for %d timed events", 2 * most);
    for (int i = 0; i < 2 * most; i++) TRY(event_open_timed(d, &l->at[i]));
    return ERR_OK;
}

static void close_list(span_list *l) {
    for (int i = 0; l->at && i < 2 * l->room; i++)
        if (l->at[i]) event_close(l->at[i]);
    free(l->at);
}

err_t stopwatch_open(stopwatch *w, device *d, const int most[SPANS]) {
    *w = (stopwatch){.open = true};
    for (int k = 0; k < STOPWATCH_STEPS; k++)
        for (int i = 0; i < SPANS; i++) TRY(open_list(&w->list[k][i], d, most[i]));
    return ERR_OK;
}

void stopwatch_close(stopwatch *w) {
    for (int k = 0; k < STOPWATCH_STEPS; k++)
        for (int i = 0; i < SPANS; i++) close_list(&w->list[k][i]);
    *w = (stopwatch){0};
}

void stopwatch_start(stopwatch *w) {
    if (w->open) w->running = true;
}

void stopwatch_stop(stopwatch *w) {
    if (w->open) w->running = false;
}

// A full list records nothing more: the step's times are then unknown, which is better than too small.
err_t stopwatch_begin(stopwatch *w, span_kind kind, stream *s) {
    if (!w->running) return ERR_OK;
    span_list *l = &w->list[w->now][kind];
    if (l->count < l->room) return event_record(l->at[2 * l->count], s);
    w->lost[w->now] = true;
    return ERR_OK;
}

err_t stopwatch_end(stopwatch *w, span_kind kind, stream *s) {
    if (!w->running) return ERR_OK;
    span_list *l = &w->list[w->now][kind];
    return l->count < l->room ? event_record(l->at[2 * l->count++ + 1], s) : ERR_OK;
}

void stopwatch_turn(stopwatch *w) {
    if (!w->open) return;
    w->now = (w->now + 1) % STOPWATCH_STEPS;
    w->lost[w->now] = false;
    for (int i = 0; i < SPANS; i++) w->list[w->now][i].count = 0;
}

err_t stopwatch_read(const stopwatch *w, double ms[SPANS], bool *known) {
    int at = (w->now + 1) % STOPWATCH_STEPS;
    memset(ms, 0, SPANS * sizeof *ms);
    *known = w->open && w->list[at][SPAN_STEP].count > 0 && !w->lost[at];
    for (int i = 0; *known && i < SPANS; i++) {
        const span_list *l = &w->list[at][i];
        for (int k = 0; k < l->count; k++) {
            double span;
            TRY(event_elapsed(l->at[2 * k], l->at[2 * k + 1], &span));
            ms[i] += span;
        }
    }
    return ERR_OK;
}
