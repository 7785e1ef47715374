// trainer/watch/filling.c: see trainer/watch/filling.h.
#include "trainer/watch/filling.h"

// LONGEST: between two looks; what happened in a longer pause is not known
static const double MINUTE_S = 60, LONGEST_S = 5;

static void begin_save(filling *f, double now) {
    if (f->saves > f->kept) {
        f->save_used = (double)(f->before - f->after);
        f->save_s = now - f->save_at;
    }
    f->saves++;
    f->save_at = now;
    f->before = f->least = f->free;
}

static void end_save(filling *f, int64_t free) {
    f->after = free;
    f->save_bytes = f->before - f->least;
}

static void watch_between(filling *f, double passed, int64_t free) {
    f->watched += passed;
    f->used += (double)(f->free - free);
    if (f->watched < (double)(f->minutes + 1) * MINUTE_S) return;
    f->minutes++;
    f->minute[f->minutes % (FILLING_MINUTES + 1)] = (filling_minute){f->watched, f->used};
}

void filling_look(filling *f, double now, int64_t free, bool saving) {
    double passed = now - f->at;
    if (!f->began) f->began = true, f->free = free, passed = 0;
    if (saving && !f->saving) begin_save(f, now);
    if (saving && free < f->least) f->least = free;
    if (!saving && f->saving) end_save(f, free);
    if (!saving && !f->saving && passed > 0 && passed <= LONGEST_S) watch_between(f, passed, free);
    f->saving = saving;
    f->at = now;
    f->free = free;
}

static double between(const filling *f, int64_t from, int64_t to) {
    const filling_minute *a = &f->minute[from % (FILLING_MINUTES + 1)], *b = &f->minute[to % (FILLING_MINUTES + 1)];
    return (b->used - a->used) / (b->watched - a->watched);
}

static double least_of(double a, double b) { return a < b ? a : b; }

double filling_rate(const filling *f, double look_s) {
    int64_t last = f->minutes, first = last > FILLING_MINUTES ? last - FILLING_MINUTES : 0, middle = (first + last) / 2;
    if (f->watched < look_s || middle == first) return 0;
    double rate = least_of(between(f, first, middle), between(f, middle, last)), since = f->at - f->save_at;
    if (f->save_s > 0) rate += f->save_used / (since > f->save_s ? since : f->save_s);
    return rate > 0 ? rate : 0;
}
