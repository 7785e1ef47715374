// test/test_trace.c: a simulated step as a trace and as a picture: the texts of one that is small enough to be written
// out.
#include "trainer/step/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

// Two ranks: the first one computes for 2 ms and sends; the second one waits for 2.5 ms and computes for 1.5.
typedef struct step {
    action first[4], second[4];
    action_list list[2];
    message message[2];
    stages of[2];
    const action_list *lists[2];
    const stages *stages[2];
    double came[2][4], left[2][4], arrived[2][1];
    simulated_rank rank[2];
    simulate_lists in;
    simulation out;
} step;

static void fill(step *s) {
    *s = (step){
        .first = {{.kind = ACTION_LOAD, .micro = 0},
                  {.kind = ACTION_FORWARD, .first = 0, .last = 1},
                  {.kind = ACTION_POST, .message = 0},
                  {.kind = ACTION_SHARE}},
        .second = {{.kind = ACTION_POST, .message = 0},
                   {.kind = ACTION_AWAIT, .message = 0},
                   {.kind = ACTION_WEIGHTS, .first = 2, .last = 3},
                   {.kind = ACTION_UPDATE}},
        .message = {{.kind = MESSAGE_ACTIVATIONS, .sends = true, .peer = 1, .stage = 1, .buffer = 0, .after = -1},
                    {.kind = MESSAGE_ACTIVATIONS, .sends = false, .peer = 0, .stage = 1, .buffer = 0, .after = -1}},
        .came = {{0, 0, 0.002, 0.002}, {0, 0, 0.0025, 0.0035}},
        .left = {{0, 0.002, 0.002, 0.004}, {0, 0.0025, 0.0035, 0.004}},
        .arrived = {{0.0025}, {0.0025}},
    };
    for (int r = 0; r < 2; r++) {
        s->list[r] = (action_list){.count = 4, .at = r ? s->second : s->first};
        s->of[r].table = (unit_table){.messages = 1, .message = &s->message[r]};
        s->lists[r] = &s->list[r], s->stages[r] = &s->of[r];
        s->rank[r] = (simulated_rank){s->came[r], s->left[r], s->arrived[r], r ? 0.0015 : 0.002};
    }
    s->in = (simulate_lists){2, 1, s->lists, s->stages};
    s->out = (simulation){2, s->rank, 0.004};
}

static const char *const names[] = {"stage 0", "stage 1"};

static const char trace[] =
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"of two\"}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"stage 0\"}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":1,\"args\":{\"name\":\"stage 1\"}},\n"
    "{\"name\":\"forward 0-1\",\"cat\":\"compute\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0.000,\"dur\":2000.000},\n"
    "{\"name\":\"send activations 1.0 to 1 from slot 0 at once\",\"cat\":\"message\",\"ph\":\"b\",\"pid\":0,\"tid\":0,"
    "\"id\":\"0.0\",\"ts\":2000.000},\n"
    "{\"name\":\"send activations 1.0 to 1 from slot 0 at once\",\"cat\":\"message\",\"ph\":\"e\",\"pid\":0,\"tid\":0,"
    "\"id\":\"0.0\",\"ts\":2500.000},\n"
    "{\"name\":\"share\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":2000.000,\"dur\":2000.000},\n"
    "{\"name\":\"await 0\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":0.000,\"dur\":2500.000},\n"
    "{\"name\":\"weights 3-2\",\"cat\":\"compute\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":2500.000,\"dur\":1000.000},\n"
    "{\"name\":\"update\",\"cat\":\"compute\",\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":3500.000,\"dur\":500.000}\n"
    "]}\n";

static void a_trace_is_written_out(void **state) {
    (void)state;
    step s;
    text t = {0};
    fill(&s);
    trace_json(&t, &s.in, &s.out, "of two", names);
    assert_string_equal(t.at, trace);
    json_t *read = json_loads(t.at, 0, NULL);
    assert_non_null(read);
    assert_int_equal(json_array_size(json_object_get(read, "traceEvents")), 10);
    json_decref(read);
    text_free(&t);
}

static int count(const char *in, const char *what) {
    int n = 0;
    for (const char *p = in; (p = strstr(p, what)); p++) n++;
    return n;
}

// The bars begin and end where the times say; 4 ms are 1030 wide. What waits leaves no bar.
static void a_picture_has_a_bar_for_each_work(void **state) {
    (void)state;
    step s;
    text t = {0};
    fill(&s);
    trace_svg(&t, &s.in, &s.out, "of two", names);
    assert_int_equal(count(t.at, "<title>"), 3);
    assert_non_null(strstr(t.at, "<rect x=\"110.00\" y=\"40\" width=\"515.00\" height=\"20\" fill=\"#4a7fd4\">"
                                 "<title>forward 0-1: 0.000 to 2.000 ms</title></rect>"));
    assert_non_null(strstr(t.at, "<rect x=\"753.75\" y=\"68\" width=\"257.50\" height=\"20\" fill=\"#23733f\">"
                                 "<title>weights 3-2: 2.500 to 3.500 ms</title></rect>"));
    assert_non_null(strstr(t.at, "<rect x=\"1011.25\" y=\"68\" width=\"128.75\" height=\"20\" fill=\"#e08a2e\">"
                                 "<title>update: 3.500 to 4.000 ms</title></rect>"));
    for (int ms = 0; ms <= 4; ms++) {
        char tick[16];
        snprintf(tick, sizeof tick, ">%d ms</text>", ms);
        assert_int_equal(count(t.at, tick), 1);
    }
    assert_int_equal(count(t.at, "stage 1</text>"), 1);
    assert_string_equal(t.at + t.n - 7, "</svg>\n");
    text_free(&t);
}

// All that simulate.h says a rank may wait in.
static void all_waiting_is_left_blank(void **state) {
    (void)state;
    static const action_kind kinds[] = {ACTION_AWAIT,  ACTION_NEED, ACTION_HAVE,
                                        ACTION_SETTLE, ACTION_ROWS, ACTION_SHARE};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    step s;
    action all[KINDS + 1] = {{.kind = ACTION_UPDATE}};
    double came[KINDS + 1], left[KINDS + 1];
    text trace = {0}, picture = {0};
    fill(&s);
    for (int i = 0; i <= KINDS; i++) {
        if (i) all[i].kind = kinds[i - 1];
        came[i] = 0.001 * i, left[i] = 0.001 * (i + 1);
    }
    s.list[0] = (action_list){.count = KINDS + 1, .at = all}, s.list[1].count = 0;
    s.rank[0].came = came, s.rank[0].left = left, s.out.total = left[KINDS];
    trace_json(&trace, &s.in, &s.out, "waits", names);
    trace_svg(&picture, &s.in, &s.out, "waits", names);
    assert_int_equal(count(trace.at, "\"cat\":\"wait\""), KINDS);
    assert_int_equal(count(trace.at, "\"cat\":\"compute\""), 1);
    assert_int_equal(count(picture.at, "<title>"), 1);
    text_free(&trace), text_free(&picture);
}

static void a_step_of_no_time_is_drawn(void **state) {
    (void)state;
    step s;
    text t = {0};
    fill(&s);
    s.out.total = 0, s.list[0].count = s.list[1].count = 0;
    trace_svg(&t, &s.in, &s.out, "nothing", names);
    assert_int_equal(count(t.at, "<title>"), 0);
    assert_int_equal(count(t.at, "nan") + count(t.at, "inf"), 0);
    text_free(&t);
}

// One rank that does one thing for 3 ms, from 1 ms on, drawn as a trace and as a picture.
static void draw_one(action_kind kind, text *json, text *svg) {
    step s;
    fill(&s);
    s.first[0] = (action){.kind = kind}, s.came[0][0] = 0.001, s.left[0][0] = 0.004;
    s.list[0].count = 1, s.list[1].count = 0;
    trace_json(json, &s.in, &s.out, "of one", names), trace_svg(svg, &s.in, &s.out, "of one", names);
}

// What ends when something else does is waiting; and what is computed has the color of its kind.
static void each_kind_is_drawn_as_what_it_is(void **state) {
    (void)state;
    static const action_kind waits[] = {ACTION_AWAIT,  ACTION_NEED, ACTION_HAVE,
                                        ACTION_SETTLE, ACTION_ROWS, ACTION_SHARE};
    static const char *const color[ACTION_KINDS] = {
        [ACTION_FORWARD] = "#4a7fd4", [ACTION_BACKWARD] = "#4caf6e", [ACTION_INPUTS] = "#4caf6e",
        [ACTION_WEIGHTS] = "#23733f", [ACTION_MASTERS] = "#e08a2e",  [ACTION_SQUARES] = "#e08a2e",
        [ACTION_UPDATE] = "#e08a2e",  [ACTION_OUTER] = "#e08a2e"};
    for (action_kind kind = 0; kind < ACTION_KINDS; kind++) {
        text json = {0}, svg = {0};
        bool wait = false;
        if (kind == ACTION_POST) continue;  // has a message
        for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) wait |= waits[i] == kind;
        draw_one(kind, &json, &svg);
        assert_int_equal(count(json.at, "\"cat\":\"wait\""), wait);
        assert_int_equal(count(json.at, "\"cat\":\"compute\""), !wait);
        assert_int_equal(count(json.at, "\"tid\":0,\"ts\":1000.000,\"dur\":3000.000}"), 1);
        assert_int_equal(count(svg.at, "<title>"), !wait);
        char bar[128];
        snprintf(bar, sizeof bar, "width=\"772.50\" height=\"20\" fill=\"%s\">", color[kind] ? color[kind] : "#9a9a9a");
        assert_int_equal(count(svg.at, bar), !wait);
        text_free(&json), text_free(&svg);
    }
}

// However long a step takes, 4 to 10 round distances go into it, and as many of them are labelled.
static void an_axis_has_a_few_labels(void **state) {
    (void)state;
    for (double total = 1e-5; total < 20; total *= 1.07) {
        step s;
        text t = {0};
        fill(&s);
        s.out.total = total, s.list[0].count = s.list[1].count = 0;
        trace_svg(&t, &s.in, &s.out, "of two", names);
        int labels = count(t.at, " ms</text>");
        if (labels < 5 || labels > 11) fail_msg("%d labels of %g s", labels, total);
        assert_int_equal(count(t.at, ">0 ms</text>"), 1);
        text_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_is_written_out),    cmocka_unit_test(a_picture_has_a_bar_for_each_work),
        cmocka_unit_test(all_waiting_is_left_blank), cmocka_unit_test(each_kind_is_drawn_as_what_it_is),
        cmocka_unit_test(an_axis_has_a_few_labels),  cmocka_unit_test(a_step_of_no_time_is_drawn),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
