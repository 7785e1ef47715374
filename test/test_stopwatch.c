// test/test_stopwatch.c: whose time is reported when, and what is not known is not reported. On a CPU, whose timed
// events are the host's clock.
#include "trainer/log/stopwatch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call), ERR_OK)

typedef struct scene {
    device *d;
    stream *s;
    stopwatch w;
} scene;

static void open_scene(scene *x) {
    OK(device_open(&x->d, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    OK(stream_open(x->d, &x->s));
    OK(stopwatch_open(&x->w, x->d, (int[SPANS]){[SPAN_STEP] = 1, [SPAN_WAIT] = 2}));
}

static void close_scene(scene *x) {
    stopwatch_close(&x->w);
    stream_close(x->s);
    device_close(x->d);
}

static void span(scene *x, span_kind kind) {
    OK(stopwatch_begin(&x->w, kind, x->s));
    OK(stopwatch_end(&x->w, kind, x->s));
}

static void step(scene *x, int waits) {
    stopwatch_start(&x->w);
    OK(stopwatch_begin(&x->w, SPAN_STEP, x->s));
    for (int i = 0; i < waits; i++) span(x, SPAN_WAIT);
    OK(stopwatch_begin(&x->w, SPAN_WAIT, x->s));  // and never ended: a micro-batch that did not come
    OK(stopwatch_end(&x->w, SPAN_STEP, x->s));
}

static bool reads(const scene *x, bool waited) {
    double ms[SPANS];
    bool known;
    OK(stopwatch_read(&x->w, ms, &known));
    if (known)
        assert_true(ms[SPAN_STEP] > 0 && (ms[SPAN_WAIT] > 0) == waited && ms[SPAN_WAIT] <= ms[SPAN_STEP] &&
                    ms[SPAN_BUSY] == 0);
    else
        for (int i = 0; i < SPANS; i++) assert_true(ms[i] == 0);
    return known;
}

// Step by step, before it is over: what is reported is two steps old.
static void a_step_is_told_two_steps_later(void **state) {
    (void)state;
    scene x;
    open_scene(&x);
    static const int waits[] = {1, 0, 1, 0, 0, 1, 1, 0};
    for (int i = 0; i < 8; i++) {
        step(&x, waits[i]);
        assert_int_equal(reads(&x, i >= 2 && waits[i - 2]), i >= 2);
        stopwatch_turn(&x.w);
        stopwatch_stop(&x.w);
        span(&x, SPAN_WAIT);  // nobody's
    }
    close_scene(&x);
}

// More spans than there is room for: none is reported, and the next step has its own room again.
static void half_a_time_is_not_told(void **state) {
    (void)state;
    scene x;
    open_scene(&x);
    static const int waits[] = {1, 3, 1, 1, 1};
    for (int i = 0; i < 5; i++) {
        step(&x, waits[i]);
        assert_int_equal(reads(&x, true), i == 2 || i == 4);
        stopwatch_turn(&x.w);
        stopwatch_stop(&x.w);
    }
    close_scene(&x);
}

static void one_that_is_not_open_does_nothing(void **state) {
    (void)state;
    scene x = {.s = NULL};
    for (int i = 0; i < 4; i++) {
        step(&x, 5);
        assert_false(reads(&x, false));
        stopwatch_turn(&x.w);
    }
    stopwatch_close(&x.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_told_two_steps_later),
        cmocka_unit_test(half_a_time_is_not_told),
        cmocka_unit_test(one_that_is_not_open_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
