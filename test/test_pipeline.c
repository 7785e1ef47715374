// test/test_pipeline.c: schedules of pipelines, without a process. Small tables and messages are written out; of all
// others it is asked that they keep the laws of trainer/step/pipeline.h, that they end when they run against each
// other, and that makespan and memory are those of the papers.
#include "test/support/pipelines.h"
#include "trainer/step/table_check.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS_MOST = 4 };

// The table of every rank.
static unit_table *tables_of(const pipeline_layout *l) {
    unit_table *t = calloc((size_t)l->ranks, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < l->ranks; i++)
        if (pipeline_units(l, i, &t[i]) != ERR_OK) fail_msg("%s", err_last()->text);
    return t;
}

static void tables_free(const pipeline_layout *l, unit_table *t) {
    for (int i = 0; i < l->ranks; i++) unit_table_free(&t[i]);
    free(t);
}

// All layouts with p <= 16, m <= 64, v <= 4. Starts from {0}; false: there are no more.
static bool next_layout(pipeline_layout *l) {
    do {
        if (l->ranks == 0) l->kind = PIPELINE_GPIPE, l->ranks = l->micros = l->chunks = 1;
        else if (l->micros < 64) l->micros++;
        else if (l->ranks < 16) l->ranks++, l->micros = 1;
        else if (l->kind == PIPELINE_INTERLEAVED && l->chunks < 4) l->chunks++, l->ranks = l->micros = 1;
        else if (l->kind + 1 < PIPELINE_KINDS) {
            l->kind++, l->ranks = l->micros = 1;
            l->chunks = l->kind == PIPELINE_ZB_V ? 2 : 1;
        } else {
            return false;
        }
    } while (pipeline_check(l) != ERR_OK);
    return true;
}

// --- tables that are written out -------------------------------------------------------------------------------------

static void expect_units(pipeline_kind kind, int p, int m, int rank, const char *expected) {
    pipeline_layout l = layout_of(kind, p, m);
    unit_table *t = tables_of(&l);
    char text[TEXT] = "", one[32];
    for (int i = 0; i < t[rank].units; i++) {
        const unit *u = &t[rank].unit[i];
        snprintf(one, sizeof one, "%s%c%d.%d", i ? " " : "", "FBIW"[u->kind], u -> stage, u -> micro);
        strcat(text, one);
    }
    tables_free(&l, t);
    if (strcmp(text, expected) != 0)
        fail_msg("%s, rank %d of %d:\n%s\nexpected:\n%s", pipeline_name(kind), rank, p, text, expected);
}

static void small_tables_are_those_of_the_papers(void **state) {
    (void)state;
    expect_units(PIPELINE_GPIPE, 2, 3, 0, "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
    expect_units(PIPELINE_GPIPE, 2, 3, 1, "F1.0 F1.1 F1.2 B1.0 B1.1 B1.2");
    expect_units(PIPELINE_1F1B, 3, 4, 0, "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
    expect_units(PIPELINE_1F1B, 3, 4, 1, "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3");
    expect_units(PIPELINE_1F1B, 3, 4, 2, "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3");
    expect_units(PIPELINE_1F1B, 4, 2, 0, "F0.0 F0.1 B0.0 B0.1");
    expect_units(PIPELINE_INTERLEAVED, 2, 4, 0,
                 "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3");
    expect_units(PIPELINE_INTERLEAVED, 2, 4, 1,
                 "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3");
    expect_units(PIPELINE_ZB_H1, 3, 4, 0, "F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3");
    expect_units(PIPELINE_ZB_H1, 3, 4, 1, "F1.0 F1.1 I1.0 F1.2 I1.1 W1.0 F1.3 I1.2 W1.1 I1.3 W1.2 W1.3");
    expect_units(PIPELINE_ZB_H1, 3, 4, 2, "F2.0 I2.0 F2.1 I2.1 F2.2 I2.2 W2.0 F2.3 I2.3 W2.1 W2.2 W2.3");
    expect_units(
        PIPELINE_ZB_V, 2, 4, 0,
        "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 F0.3 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 F3.3 I3.3 W3.3 I0.2 W0.2 I0.3 W0.3");
    expect_units(
        PIPELINE_ZB_V, 2, 4, 1,
        "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 F1.3 I1.1 W1.1 F2.3 I2.2 W2.2 I1.2 I2.3 I1.3 W1.2 W2.3 W1.3");
    expect_units(PIPELINE_ZB_V, 2, 2, 1, "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 I1.0 W1.0 I2.1 W2.1 I1.1 W1.1");
}

static void expect_messages(pipeline_layout l, int rank, const char *expected) {
    unit_table *t = tables_of(&l);
    char text[TEXT] = "", one[MESSAGE_TEXT];
    for (int i = 0; i < t[rank].messages; i++)
        strcat(strcat(text, i ? "; " : ""), message_text(&t[rank].message[i], one));
    tables_free(&l, t);
    if (strcmp(text, expected) != 0)
        fail_msg("%s, rank %d of %d:\n%s\nexpected:\n%s", pipeline_name(l.kind), rank, l.ranks, text, expected);
}

// 1f1b, rank 0: F0 F1 B0 F2 B1 B2; rank 1: F0 B0 F1 B1 F2 B2.
static void messages_are_posted_when_a_buffer_is_free(void **state) {
    (void)state;
    pipeline_layout l = layout_of(PIPELINE_1F1B, 2, 3);
    expect_messages(
        l, 0,
        "receive gradients 1.0 from 1 into buffer 0 at once; send activations 1.0 to 1 from slot 0 after 0; "
        "send activations 1.1 to 1 from slot 1 after 1; receive gradients 1.1 from 1 into buffer 0 after 2; "
        "send activations 1.2 to 1 from slot 0 after 3; receive gradients 1.2 from 1 into buffer 0 after 4");
    expect_messages(
        l, 1,
        "receive activations 1.0 from 0 into slot 0 at once; send gradients 1.0 to 0 from buffer 0 after 1; "
        "receive activations 1.1 from 0 into slot 0 after 1; send gradients 1.1 to 0 from buffer 0 after 3; "
        "receive activations 1.2 from 0 into slot 0 after 3; send gradients 1.2 to 0 from buffer 0 after 5");
    l.ahead = 1;  // one slot more, and a receive is under way while the unit before runs
    expect_messages(
        l, 1,
        "receive activations 1.0 from 0 into slot 0 at once; receive activations 1.1 from 0 into slot 1 at once; "
        "send gradients 1.0 to 0 from buffer 0 after 1; receive activations 1.2 from 0 into slot 0 after 1; "
        "send gradients 1.1 to 0 from buffer 1 after 3; send gradients 1.2 to 0 from buffer 0 after 5");
}

// zb-v, rank 1: F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 I1.0 W1.0 I2.1 W2.1 I1.1 W1.1. Stages 1 and 2 are both here: nothing is
// sent between them.
static void nothing_is_sent_from_a_rank_to_itself(void **state) {
    (void)state;
    expect_messages(
        layout_of(PIPELINE_ZB_V, 2, 2), 1,
        "receive activations 1.0 from 0 into slot 0 at once; receive activations 1.1 from 0 into slot 1 at once; "
        "receive gradients 3.0 from 0 into buffer 0 at once; send activations 3.0 to 0 from slot 2 after 1; "
        "send activations 3.1 to 0 from slot 3 after 3; receive gradients 3.1 from 0 into buffer 0 after 5; "
        "send gradients 1.0 to 0 from buffer 2 after 6; send gradients 1.1 to 0 from buffer 2 after 10");
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) expect_messages(layout_of(kind, 1, 3), 0, "");
}

// --- laws of all tables ----------------------------------------------------------------------------------------------

// What is known of a (stage, micro-batch) while a table is read: the index of each unit, -1: not yet.
typedef struct seen {
    int at[UNIT_KINDS];
    int last;  // the unit that reads its slot last
    int gradient;
} seen;

typedef struct law {
    const pipeline_layout *l;
    const unit_table *t;
    int rank;
    seen *seen;  // by stage * m + micro
    char *text;  // what is broken, "" so far
} law;

static void expect(law *k, bool holds, int i, const char *what) {
    char one[UNIT_TEXT];
    if (holds || k->text[0]) return;
    snprintf(k->text, TEXT, "%s, p = %d, m = %d, v = %d, ahead %d, rank %d: at `%s`: %s", pipeline_name(k->l->kind),
             k->l->ranks, k->l->micros, k->l->chunks, k->l->ahead, k->rank, unit_text(&k->t->unit[i], one), what);
}

static seen *seen_of(const law *k, int stage, int micro) { return &k->seen[stage * k->l->micros + micro]; }

static bool done(const law *k, int stage, int micro, unit_kind kind) {
    const seen *s = seen_of(k, stage, micro);
    return s->at[kind] >= 0 || (kind == UNIT_INPUTS && s->at[UNIT_BACKWARD] >= 0);
}

static bool here(const law *k, int stage) {
    return stage >= 0 && stage < pipeline_stages(k->l) && pipeline_rank_of(k->l, stage) == k->rank;
}

static void check_unit(law *k, int i) {
    const unit *u = &k->t->unit[i];
    seen *s = seen_of(k, u->stage, u->micro);
    expect(k, here(k, u->stage), i, "the stage is another rank's");
    expect(k, s->at[u->kind] < 0, i, "it is here twice");
    expect(k, halves(k->l->kind) ? u->kind != UNIT_BACKWARD : u->kind == UNIT_FORWARD || u->kind == UNIT_BACKWARD, i,
           "not a unit of this schedule");
    for (int kind = 0; kind < UNIT_KINDS && u->micro; kind++)
        expect(k, (int)u->kind != kind || done(k, u->stage, u->micro - 1, kind), i, "micro-batches are out of order");
    if (u->kind == UNIT_FORWARD) {
        expect(k, !here(k, u->stage - 1) || done(k, u->stage - 1, u->micro, UNIT_FORWARD), i,
               "its input is made later");
    } else {
        expect(k, done(k, u->stage, u->micro, UNIT_FORWARD), i, "forward comes later");
        expect(k, u->kind != UNIT_WEIGHTS || s->at[UNIT_INPUTS] >= 0, i, "the inputs' half comes later");
        expect(k, !here(k, u->stage + 1) || done(k, u->stage + 1, u->micro, UNIT_INPUTS), i,
               "its gradient is made later");
        int forward = s->at[UNIT_FORWARD];
        expect(k, forward >= 0 && u->slot == k->t->unit[forward].slot, i, "the slot is not forward's");
    }
    s->at[u->kind] = i;
    if (u->kind == UNIT_BACKWARD || u->kind == UNIT_WEIGHTS) s->last = i;
}

static void check_complete(law *k) {
    int n = 0, last = k->t->units - 1;
    for (int stage = 0; stage < pipeline_stages(k->l); stage++)
        for (int i = 0; here(k, stage) && i < k->l->micros; i++) {
            const int *at = seen_of(k, stage, i)->at;
            n += halves(k->l->kind) ? 3 : 2;
            expect(k,
                   at[UNIT_FORWARD] >= 0 && (at[UNIT_BACKWARD] >= 0 || (at[UNIT_INPUTS] >= 0 && at[UNIT_WEIGHTS] >= 0)),
                   last, "a unit is missing");
        }
    expect(k, n == k->t->units, last, "there are more units than expected");
}

// Nobody has a buffer while another has it. until[b]: the unit after which b is free, `from` the first that may write
// it.
static void take(law *k, int *until, int buffers, int b, int from, int to, int i) {
    expect(k, b >= 0 && b < buffers, i, "no such buffer");
    if (k->text[0]) return;
    expect(k, until[b] < from, i, "the buffer is in use");
    until[b] = to;
}

static int start_of(const law *k, int i) {
    int m = k->t->unit[i].receive;
    return m < 0 ? i : k->t->message[m].after + 1;
}

static void check_buffers(law *k) {
    const unit_table *t = k->t;
    int *slot = malloc(((size_t)t->slots + (size_t)t->gradients) * sizeof *slot), *gradient = slot + t->slots;
    int held[CHUNKS_MOST] = {0}, most[CHUNKS_MOST] = {0}, slots = 0;
    assert_non_null(slot);
    for (int b = 0; b < t->slots + t->gradients; b++) slot[b] = -1;
    for (int i = 0; i < t->units && !k->text[0]; i++) {
        const unit *u = &t->unit[i];
        const seen *s = seen_of(k, u->stage, u->micro);
        bool from_here = here(k, u->stage + 1), to_here = here(k, u->stage - 1);
        int c = u->stage / k->l->ranks;
        if (u->kind == UNIT_FORWARD) {
            take(k, slot, t->slots, u->slot, start_of(k, i), s->last, i);
            if (++held[c] > most[c]) most[c]++, slots++;
        } else if (u->kind == UNIT_WEIGHTS) {
            expect(k, u->gradient_in == t->unit[s->at[UNIT_INPUTS]].gradient_in && u->gradient_out < 0, i,
                   "the gradient is not that of its inputs' half");
        } else {
            expect(k,
                   (u->gradient_in >= 0) == (u->stage + 1 < pipeline_stages(k->l)) &&
                       (u->gradient_out >= 0) == (u->stage > 0),
                   i, "a gradient buffer is missing, or there is one too many");
            if (u->receive >= 0) take(k, gradient, t->gradients, u->gradient_in, start_of(k, i), s->last, i);
            if (from_here)
                expect(k, u->gradient_in == seen_of(k, u->stage + 1, u->micro)->gradient, i,
                       "the gradient is elsewhere");
            if (to_here)
                take(k, gradient, t->gradients, u->gradient_out, i, seen_of(k, u->stage - 1, u->micro)->last, i);
            // and until it has left: `reuse`
            if (u->send >= 0) take(k, gradient, t->gradients, u->gradient_out, i, i, i);
            seen_of(k, u->stage, u->micro)->gradient = u->gradient_out;
        }
        held[c] -= s->last == i;
    }
    expect(k, k->l->ahead ? t->slots >= slots : t->slots == slots, t->units - 1,
           "there are not as many slots as each stage has activations");
    free(slot);
}

static void check_message(law *k, int i, int index, bool sends, message_kind kind, int stage, int buffer) {
    bool wanted = stage > 0 && stage < pipeline_stages(k->l) && (!here(k, stage) || !here(k, stage - 1));
    expect(k, (index >= 0) == wanted, i, "a message is missing, or there is one too many");
    if (index < 0 || k->text[0]) return;
    const message *m = &k->t->message[index];
    int peer = pipeline_rank_of(k->l, sends == (kind == MESSAGE_ACTIVATIONS) ? stage : stage - 1),
        ahead = i - 1 - k->l->ahead;
    expect(k,
           m->sends == sends && m->kind == kind && m->stage == stage && m->micro == k->t->unit[i].micro &&
               m->peer == peer,
           i, "another message");
    expect(k, m->unit == i && m->buffer == buffer && (sends ? m->after == i : m->after <= (ahead > -1 ? ahead : -1)), i,
           "a message is not posted in time");
}

static void check_messages(law *k) {
    int n = 0, *left = calloc((size_t)k->t->gradients + 1, sizeof *left);  // 1 + the last message out of a buffer
    assert_non_null(left);
    for (int i = 0; i < k->t->units; i++) {
        const unit *u = &k->t->unit[i];
        bool forward = u->kind == UNIT_FORWARD;
        n += (u->receive >= 0) + (u->send >= 0);
        if (u->kind == UNIT_WEIGHTS) {
            expect(k, u->receive < 0 && u->send < 0 && u->reuse < 0, i, "weights need no message");
            continue;
        }
        message_kind kind = forward ? MESSAGE_ACTIVATIONS : MESSAGE_GRADIENTS;
        check_message(k, i, u->receive, false, kind, forward ? u->stage : u->stage + 1,
                      forward ? u->slot : u->gradient_in);
        check_message(k, i, u->send, true, kind, forward ? u->stage + 1 : u->stage,
                      forward ? u->slot : u->gradient_out);
        bool leaves = !forward && u->send >= 0;
        expect(k, u->reuse == (leaves ? left[u->gradient_out] - 1 : -1), i, "an earlier gradient may not have left");
        if (leaves) left[u->gradient_out] = u->send + 1;
    }
    expect(k, n == k->t->messages, k->t->units - 1, "there are more messages than units want");
    for (int i = 1; i < k->t->messages; i++)
        expect(k, k->t->message[i - 1].after <= k->t->message[i].after, k->t->message[i].unit,
               "messages are not in the order in which they are posted");
    free(left);
}

// text = the first law that a rank's table breaks, or "".
static void check_table(const pipeline_layout *l, const unit_table *t, int rank, char text[TEXT]) {
    law k = {.l = l, .t = t, .rank = rank, .text = text};
    size_t n = (size_t)pipeline_stages(l) * (size_t)l->micros;
    text[0] = 0;
    k.seen = malloc(n * sizeof *k.seen);
    assert_non_null(k.seen);
    memset(k.seen, -1, n * sizeof *k.seen);
    for (int i = 0; i < t->units && !text[0]; i++) check_unit(&k, i);
    if (!text[0]) check_complete(&k);
    if (!text[0]) check_buffers(&k);
    if (!text[0]) check_messages(&k);
    free(k.seen);
}

static void check_laws(const pipeline_layout *l) {
    unit_table *t = tables_of(l);
    char text[TEXT];
    for (int i = 0; i < l->ranks; i++) {
        check_table(l, &t[i], i, text);
        if (text[0]) fail_msg("%s", text);
    }
    tables_free(l, t);
}

static void all_tables_keep_the_laws(void **state) {
    (void)state;
    int layouts = 0;
    for (pipeline_layout l = {0}; next_layout(&l); layouts++)
        for (int n = 0; n < 2; n++) {
            l.ahead = n ? 1 + l.micros % 3 : 0;
            check_laws(&l);
        }
    assert_int_equal(layouts, 3 * 1024 + 844 + 904);  // interleaved: p divides m, for 4 of v. zb-v: m >= p
}

// --- makespan and memory ---------------------------------------------------------------------------------------------

static double most(double a, double b) { return a > b ? a : b; }

// Of the step, where there is a formula. The time of the work is m * v * (F + I + W); what is added is the bubble.
// zb-h1 and zb-v also take the longest way of the last micro-batch, which is what counts when there are few.
static double makespan_of(const pipeline_layout *l, double f, double i, double w) {
    double p = l->ranks, m = l->micros, work = m * l->chunks * (f + i + w);
    switch (l->kind) {
    case PIPELINE_ZB_H1: return most(work + (p - 1) * (i + most(f - w, 0)), (p + m - 1) * (f + i) + w);
    case PIPELINE_ZB_V: return most(work + p - 1, 4 * p + 4 * m - 2);  // F = I = W = 1 only
    default: return work + (p - 1) * (f + i + w);
    }
}

// (stage, micro-batch) that rank r holds at once.
static int held_by(const pipeline_layout *l, int r) {
    int p = l->ranks, m = l->micros, v = l->chunks, held = m;
    if (l->kind == PIPELINE_1F1B || (l->kind == PIPELINE_INTERLEAVED && v == 1)) held = p - r;
    else if (l->kind == PIPELINE_INTERLEAVED) held = 2 * (p - 1 - r) + (v - 1) * p + 1;
    else if (l->kind == PIPELINE_ZB_H1) held = p;
    else if (l->kind == PIPELINE_ZB_V) held = m + 1 + r < 2 * p ? m + 1 + r : 2 * p;
    return held < m * v ? held : m * v;
}

static void check_timeline(const pipeline_layout *l, const rows *r, double f, double i, double w, int depth) {
    timeline t = timeline_at(l, r, 0, depth);
    double expected = makespan_of(l, f, i, w), work = l->micros * l->chunks * (f + i + w);
    if (t.makespan != expected)
        fail_msg("%s, p = %d, m = %d, v = %d, ahead %d, depth %d, F I W = %g %g %g: it takes %g, expected %g",
                 pipeline_name(l->kind), l->ranks, l->micros, l->chunks, l->ahead, depth, f, i, w, t.makespan,
                 expected);
    assert_float_equal(t.idle, 1 - work / expected, 1e-9);
    for (int k = 0; k < l->ranks; k++) {
        if (t.rank[k].held != held_by(l, k))
            fail_msg("%s, p = %d, m = %d, v = %d: rank %d holds %d activations, expected %d", pipeline_name(l->kind),
                     l->ranks, l->micros, l->chunks, k, t.rank[k].held, held_by(l, k));
        assert_float_equal(t.rank[k].busy, work, 1e-9);
        assert_float_equal(t.rank[k].idle, 1 - work / expected, 1e-9);
    }
    timeline_free(&t);
}

static void all_tables_end_in_the_time_of_the_formulas(void **state) {
    (void)state;
    rows r = rows_of(1, 1, 1);
    for (pipeline_layout l = {0}; next_layout(&l); l.ahead = 0) {
        for (int depth = 0; depth <= 2; depth++) check_timeline(&l, &r, 1, 1, 1, depth);
        l.ahead = 1;
        check_timeline(&l, &r, 1, 1, 1, 0);
    }
}

// The zero-bubble schedules are made for F = I = W. zb-h1 has a formula for other times, if there are p micro-batches
// or W <= F.
static void other_times_have_the_makespan_of_the_formulas(void **state) {
    (void)state;
    static const double times[][3] = {{3, 4, 2}, {2, 4, 2}, {2, 3, 3}, {5, 1, 1}, {1, 5, 1}, {1, 1, 5}};
    for (int n = 0; n < 6; n++) {
        double f = times[n][0], i = times[n][1], w = times[n][2];
        rows r = rows_of(f, i, w);
        for (pipeline_layout l = {0}; next_layout(&l);)
            if (l.kind != PIPELINE_ZB_V && (l.kind != PIPELINE_ZB_H1 || l.micros >= l.ranks || w <= f) &&
                l.micros % 3 == 0)
                check_timeline(&l, &r, f, i, w, 0);
    }
}

// In units of a stage's F of a model cut into 8: chunks are 1 / v as long, and hold 1 / v as much.
static void eight_ranks_and_24_micro_batches_take_what_the_papers_say(void **state) {
    (void)state;
    static const struct {
        pipeline_kind kind;
        int chunks;
        double makespan, held, idle;
    } table[] = {{PIPELINE_GPIPE, 1, 93, 24, 22.6},
                 {PIPELINE_1F1B, 1, 93, 8, 22.6},
                 {PIPELINE_INTERLEAVED, 2, 82.5, 11.5, 12.7},
                 {PIPELINE_INTERLEAVED, 3, 79, 31 / 3., 8.9},
                 {PIPELINE_ZB_H1, 1, 79, 8, 8.9},
                 {PIPELINE_ZB_V, 2, 75.5, 8, 4.6}};
    rows r = rows_of(1, 1, 1);
    for (int i = 0; i < 6; i++) {
        pipeline_layout l = {.kind = table[i].kind, .ranks = 8, .micros = 24, .chunks = table[i].chunks};
        timeline t = timeline_at(&l, &r, 0, 0);
        assert_float_equal(t.makespan / l.chunks, table[i].makespan, 0);
        assert_float_equal((double)t.rank[0].held / l.chunks, table[i].held, 1e-9);
        assert_float_equal(100 * t.idle, table[i].idle, 0.05);
        timeline_free(&t);
    }
}

// A message takes a quarter of a unit. Posted one unit ahead, receives hide what can be hidden; a rendezvous without
// that does not.
static void receives_ahead_hide_the_time_of_messages(void **state) {
    (void)state;
    static const double none[PIPELINE_KINDS] = {102.25, 107, 181.25, 89.75, 159.5},
                        one[PIPELINE_KINDS] = {96.5, 106.5, 172.5, 86, 159.25};
    rows r = rows_of(1, 1, 1);
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) {
        pipeline_layout l = layout_of(kind, 8, 24);
        timeline a = timeline_at(&l, &r, 0.25, 0);
        l.ahead = 1;
        timeline b = timeline_at(&l, &r, 0.25, 0), c = timeline_at(&l, &r, 0.25, 2);
        assert_float_equal(a.makespan, none[kind], 1e-9);
        assert_float_equal(b.makespan, one[kind], 1e-9);
        assert_true(c.makespan <= b.makespan);
        timeline_free(&a);
        timeline_free(&b);
        timeline_free(&c);
    }
}

// F F B B on two ranks, a message takes 1. Rank 1's second backward waits until 11, when the gradient of its first has
// left; two buffers spare it that.
//   rank 0  F 0-2  F 2-4  B 11-14  B 16-19
//   rank 1  F 3-4  F 5-6  B 6-10   B 11-15
static void a_small_timeline_is_as_counted_by_hand(void **state) {
    (void)state;
    static const double unit[2][UNIT_KINDS] = {{2, 3, 0, 0}, {1, 4, 0, 0}};
    static const double start[2][4] = {{0, 2, 11, 16}, {3, 5, 6, 11}};
    pipeline_layout l = layout_of(PIPELINE_GPIPE, 2, 2);
    timeline_costs c = {unit, 1, 0};
    timeline t;
    assert_int_equal(timeline_of(&l, &c, &t), ERR_OK);
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < 4; i++) assert_float_equal(t.rank[rank].bar[i].start, start[rank][i], 0);
    assert_float_equal(t.makespan, 19, 0);
    assert_float_equal(t.rank[0].idle, 1 - 10 / 19., 1e-12);
    timeline_free(&t);
    l.ahead = 1;
    assert_int_equal(timeline_of(&l, &c, &t), ERR_OK);
    assert_float_equal(t.rank[1].bar[3].start, 10, 0);
    assert_float_equal(t.makespan, 18, 0);
    timeline_free(&t);
}

// As above, each transfer takes 3: the second message leaves after the first.
static void messages_of_a_fifo_go_one_after_the_other(void **state) {
    (void)state;
    rows r = rows_of(1, 1, 1);
    pipeline_layout l = layout_of(PIPELINE_GPIPE, 2, 2);
    for (int depth = 0; depth <= 2; depth++) {
        timeline t = timeline_at(&l, &r, 3, depth);
        assert_float_equal(t.rank[1].bar[0].start, 4, 0);
        assert_float_equal(t.rank[1].bar[1].start, 7, 0);
        timeline_free(&t);
    }
}

// Rank 0 takes 10 for a backward, rank 1 takes 1. Rank 0 has one buffer to receive gradients into, and rank 1 one to
// send them from. Its last backward waits until the gradient before has left: to a posted receive, or to one of `depth`
// places.
//   rank 0  F 0-1  F 1-2  F 2-3  F 3-4  B 6-16  B 16-26  B 26-36  B 36-46
//   rank 1  F 1-2  F 2-3  F 3-4  F 4-5  B 5-6   B 6-7    B 16-17  B 26-27    at depth 0
static void a_deeper_fifo_lets_senders_go_on(void **state) {
    (void)state;
    static const double unit[2][UNIT_KINDS] = {{1, 10, 0, 0}, {1, 1, 0, 0}};
    static const double start[3][2] = {{16, 26}, {7, 16}, {7, 8}};
    pipeline_layout l = layout_of(PIPELINE_GPIPE, 2, 4);
    for (int depth = 0; depth <= 2; depth++) {
        timeline_costs c = {unit, 0, depth};
        timeline t;
        assert_int_equal(timeline_of(&l, &c, &t), ERR_OK);
        for (int i = 0; i < 2; i++) assert_float_equal(t.rank[1].bar[6 + i].start, start[depth][i], 0);
        assert_float_equal(t.makespan, 46, 0);
        timeline_free(&t);
    }
}

// The buffers say when a receive can be posted, whatever the table says: one that comes earlier is refused, one that
// has its buffer from the start is not.
static void a_receive_waits_for_its_buffer(void **state) {
    (void)state;
    pipeline_layout l = layout_of(PIPELINE_1F1B, 4, 8);
    unit_table *t = tables_of(&l);
    int refused = 0;
    for (int rank = 0; rank < 4; rank++)
        for (int i = 0; i < t[rank].messages; i++) {
            message *m = &t[rank].message[i];
            int after = m->after;
            if (m->sends) continue;
            assert_int_equal(table_check(&l, rank, &t[rank]), ERR_OK);
            m->after = -1;
            assert_int_equal(table_check(&l, rank, &t[rank]), after < 0 ? ERR_OK : ERR_INTERNAL);
            if (after >= 0) assert_non_null(strstr(err_last()->text, "is posted before its buffer is free, after `"));
            refused += after >= 0;
            m->after = after;
        }
    // of each rank's receives those that come into buffers which another micro-batch had
    assert_int_equal(refused, (0 + 7) + (5 + 7) + (6 + 7) + (7 + 0));
    tables_free(&l, t);
}

static void many_micro_batches_are_no_trouble(void **state) {
    (void)state;
    rows r = rows_of(1, 1, 1);
    for (int kind = 0; kind < PIPELINE_KINDS; kind++) {
        pipeline_layout l = layout_of(kind, 64, 1024);
        check_laws(&l);
        check_timeline(&l, &r, 1, 1, 1, 0);
    }
}

// --- what is refused -------------------------------------------------------------------------------------------------

static void expect_refused(pipeline_layout l, const char *says) {
    unit_table t;
    assert_int_equal(pipeline_units(&l, 0, &t), ERR_CONFIG);
    if (!strstr(err_last()->text, says)) fail_msg("%s\nexpected: %s", err_last()->text, says);
    assert_null(t.unit);
}

static void layouts_without_a_schedule_are_refused(void **state) {
    (void)state;
    expect_refused(
        (pipeline_layout){PIPELINE_INTERLEAVED, 7, 24, 2, 0},
        "interleaved: 24 micro-batches, 2 stages a rank and 7 ranks: expected micro-batches that are a multiple of the ranks");
    expect_refused((pipeline_layout){PIPELINE_INTERLEAVED, 8, 5, 2, 0},
                   "expected micro-batches that are a multiple of the ranks");
    expect_refused((pipeline_layout){PIPELINE_INTERLEAVED, 4, 8, 0, 0}, "expected 1 stage a rank or more");
    expect_refused((pipeline_layout){PIPELINE_ZB_V, 8, 5, 2, 0},
                   "5 micro-batches, 2 stages a rank and 8 ranks: expected as many micro-batches as ranks");
    expect_refused((pipeline_layout){PIPELINE_ZB_V, 4, 8, 3, 0}, "expected 2 stages a rank");
    expect_refused((pipeline_layout){PIPELINE_1F1B, 4, 8, 2, 0},
                   "1f1b: 8 micro-batches, 2 stages a rank and 4 ranks: expected 1 stage a rank");
    expect_refused((pipeline_layout){PIPELINE_ZB_H1, 4, 8, 0, 0}, "expected 1 stage a rank");
    expect_refused((pipeline_layout){PIPELINE_GPIPE, 0, 8, 1, 0}, "0 ranks: expected 1 or more of each");
    expect_refused((pipeline_layout){PIPELINE_GPIPE, 2, 0, 1, 0},
                   "0 micro-batches, 1 stages a rank and 2 ranks: expected 1 or more of each");
    expect_refused((pipeline_layout){PIPELINE_GPIPE, 1 << 20, 1 << 20, 1, 0}, "expected fewer units of work");
    expect_refused((pipeline_layout){PIPELINE_INTERLEAVED, 1 << 20, 1 << 20, 1 << 20, 0},
                   "expected fewer units of work");
    unit_table t;
    pipeline_layout l = layout_of(PIPELINE_1F1B, 2, 2);
    assert_int_equal(pipeline_units(&l, 2, &t), ERR_INTERNAL);
    l.ahead = -1;
    assert_int_equal(pipeline_units(&l, 0, &t), ERR_INTERNAL);
    l.kind = PIPELINE_KINDS;
    assert_int_equal(pipeline_check(&l), ERR_INTERNAL);
}

// --- tables that were broken -----------------------------------------------------------------------------------------

static void swap_units(unit_table *t, int a, int b) {
    unit x = t->unit[a];
    t->unit[a] = t->unit[b], t->unit[b] = x;
    for (int i = 0; i < t->messages; i++) {
        message *m = &t->message[i];
        m->unit = m->unit == a ? b : m->unit == b ? a : m->unit;
        if (m->sends) m->after = m->unit;
    }
}

// gpipe of two micro-batches: backward of micro-batch 1 comes first.
static void descend(unit_table *t) {
    for (int i = 2; i < 4; i++) t->unit[i].micro = 1 - t->unit[i].micro, t->unit[i].slot = 1 - t->unit[i].slot;
    for (int i = 0; i < t->messages; i++)
        if (t->message[i].kind == MESSAGE_GRADIENTS) t->message[i].micro = 1 - t->message[i].micro;
}

// Backward that does not wait for its gradient may free a slot whose output has not left.
static void expect_output_kept(void) {
    static const double unit[2][UNIT_KINDS] = {{1, 2, 0, 0}, {1, 20, 0, 0}};
    pipeline_layout l = layout_of(PIPELINE_1F1B, 2, 4);
    unit_table *t = tables_of(&l);
    timeline_costs c = {unit, 0, 0};
    timeline line;
    for (int i = 0; i < t[0].units; i++) t[0].unit[i].receive = -1;
    assert_int_equal(timeline_run(&l, t, &c, &line), ERR_INTERNAL);
    assert_non_null(
        strstr(err_last()->text,
               "rank 0: `send activations 1.1 to 1 from slot 1 after 1` has not left when its slot is free"));
    tables_free(&l, t);
}

static void expect_broken(const pipeline_layout *l, unit_table *t, int rank, const char *law, const char *run) {
    rows r = rows_of(1, 1, 1);
    timeline_costs c = {r.at, 0, 0};
    timeline line;
    char text[TEXT];
    check_table(l, &t[rank], rank, text);
    if (!strstr(text, law)) fail_msg("%s\nexpected: %s", text, law);
    err_t rc = timeline_run(l, t, &c, &line);
    if (!run) assert_int_equal(rc, ERR_OK);
    else if (rc != ERR_INTERNAL || !strstr(err_last()->text, run))
        fail_msg("%s\nexpected: %s", rc ? err_last()->text : "it ended", run);
    timeline_free(&line);
    tables_free(l, t);
}

static void broken_tables_are_noticed(void **state) {
    (void)state;
    expect_output_kept();
    pipeline_layout l = layout_of(PIPELINE_GPIPE, 2, 2);
    unit_table *t = tables_of(&l);
    swap_units(&t[0], 1, 2);  // F0 B0 F1 B1, and the other rank runs F0 F1 B0 B1
    expect_broken(
        &l, t, 0, "",
        "never end: rank 0 waits in `await 0` for `receive gradients 1.0 from 1 into buffer 0 at once` of rank 1; "
        "rank 1 waits in `await 1` for `receive activations 1.1 from 0 into slot 1 at once` of rank 0");
    t = tables_of(&l);
    for (int rank = 0; rank < 2; rank++) descend(&t[rank]);  // it ends, and the bits are others
    expect_broken(&l, t, 1, "at `backward 1.1`: micro-batches are out of order", NULL);
    t = tables_of(&l);
    swap_units(&t[1], 0, 2);
    expect_broken(&l, t, 1, "at `backward 1.0`: forward comes later",
                  "rank 1 waits in `backward 1.0` for its own later unit `forward 1.0`");
    t = tables_of(&l);
    t[1].unit[3].micro = 0;
    expect_broken(&l, t, 1, "at `backward 1.0`: it is here twice", NULL);
    l = layout_of(PIPELINE_1F1B, 4, 8);
    for (int rank = 0; rank < 3; rank++) {  // one slot less
        t = tables_of(&l);
        t[rank].slots--;
        for (int i = 0; i < t[rank].units; i++) t[rank].unit[i].slot %= t[rank].slots;
        for (int i = 0; i < t[rank].messages; i++)
            if (t[rank].message[i].kind == MESSAGE_ACTIVATIONS) t[rank].message[i].buffer %= t[rank].slots;
        expect_broken(&l, t, rank, "the buffer is in use", "free after its own later unit `backward");
    }
    t = tables_of(&l);
    message x = t[1].message[0];  // two receives change places
    t[1].message[0] = t[1].message[1], t[1].message[1] = x;
    expect_broken(&l, t, 1, "another message", "expected the same order at both ends");
    l = layout_of(PIPELINE_ZB_V, 2, 4);
    t = tables_of(&l);
    swap_units(&t[1], 0, 1);  // stage 2 before stage 1, on one rank
    expect_broken(&l, t, 1, "at `forward 2.0`: its input is made later",
                  "rank 1 waits in `forward 2.0` for its own later unit `forward 1.0`");
}

// The tables above break as another schedule would. This one is made by hand, of rank 1 of two that has both stages in
// the middle, and each of its changes is one that no schedule makes: what a rank would wait for, or overwrite, is said
// before it runs.
static void forged_tables_are_refused(void **state) {
    (void)state;
    enum { FORWARD_1, FORWARD_2, INPUTS_2, WEIGHTS_2, BACKWARD_1, UNITS };
    static const struct {
        int unit, slot, gradient_out;  // of one of them, what these become
        int swap[2];                   // these change places
        unit_kind inputs;              // the kind of INPUTS_2
        const char *says;
    } of[] = {
        {-1, 0, 0, {0, 0}, UNIT_INPUTS, NULL},
        {FORWARD_2,
         0,
         -1,
         {0, 0},
         UNIT_INPUTS,
         "`forward 2.0` for a buffer that is free after its own later unit `backward 1.0`"},
        {INPUTS_2,
         1,
         0,
         {0, 0},
         UNIT_INPUTS,
         "`inputs 2.0` for a buffer that is free after its own later unit `weights 2.0`"},
        {INPUTS_2,
         1,
         0,
         {0, 0},
         UNIT_BACKWARD,
         "`backward 2.0` for a buffer that is free after its own later unit `backward 2.0`"},
        {-1, 0, 0, {INPUTS_2, WEIGHTS_2}, UNIT_INPUTS, "`weights 2.0` for its own later unit `inputs 2.0`"},
        {-1, 0, 0, {INPUTS_2, BACKWARD_1}, UNIT_INPUTS, "`backward 1.0` for its own later unit `backward 2.0`"},
        {-1, 0, 0, {FORWARD_2, INPUTS_2}, UNIT_INPUTS, "`inputs 2.0` for its own later unit `forward 2.0`"},
        {-1, 0, 0, {FORWARD_1, FORWARD_2}, UNIT_INPUTS, "`forward 2.0` for its own later unit `forward 1.0`"},
    };
    const pipeline_layout l = layout_of(PIPELINE_ZB_V, 2, 4);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        unit u[UNITS] = {{UNIT_FORWARD, 1, 0, 0, -1, -1, 0, -1, -1},
                         {UNIT_FORWARD, 2, 0, 1, -1, -1, -1, -1, -1},
                         {of[k].inputs, 2, 0, 1, 0, 1, 1, -1, -1},
                         {UNIT_WEIGHTS, 2, 0, 1, 0, -1, -1, -1, -1},
                         {UNIT_BACKWARD, 1, 0, 0, 1, 2, -1, 2, -1}};
        message m[] = {{MESSAGE_ACTIVATIONS, false, 0, 1, 0, 0, FORWARD_1, -1},
                       {MESSAGE_GRADIENTS, false, 0, 3, 0, 0, INPUTS_2, -1},
                       {MESSAGE_GRADIENTS, true, 0, 1, 0, 2, BACKWARD_1, BACKWARD_1}};
        if (of[k].inputs == UNIT_BACKWARD) u[WEIGHTS_2] = (unit){UNIT_FORWARD, 1, 1, 2, -1, -1, -1, -1, -1};
        if (of[k].unit >= 0) u[of[k].unit].slot = of[k].slot, u[of[k].unit].gradient_out = of[k].gradient_out;
        unit x = u[of[k].swap[0]];
        u[of[k].swap[0]] = u[of[k].swap[1]], u[of[k].swap[1]] = x;
        const unit_table t = {.units = UNITS, .unit = u, .messages = 3, .message = m, .slots = 3, .gradients = 3};
        err_t rc = table_check(&l, 1, &t);
        if (rc != (of[k].says ? ERR_INTERNAL : ERR_OK) || (of[k].says && !strstr(err_last()->text, of[k].says)))
            fail_msg("%s\nexpected: %s", rc ? err_last()->text : "it is accepted",
                     of[k].says ? of[k].says : "no error");
    }
}

int main(void) {
    // or a third of the time goes into giving memory back to the system, and asking for it again, thousands of times
    mallopt(M_TRIM_THRESHOLD, 1 << 30), mallopt(M_TOP_PAD, 64 << 20);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tables_are_those_of_the_papers),
        cmocka_unit_test(messages_are_posted_when_a_buffer_is_free),
        cmocka_unit_test(nothing_is_sent_from_a_rank_to_itself),
        cmocka_unit_test(all_tables_keep_the_laws),
        cmocka_unit_test(all_tables_end_in_the_time_of_the_formulas),
        cmocka_unit_test(other_times_have_the_makespan_of_the_formulas),
        cmocka_unit_test(eight_ranks_and_24_micro_batches_take_what_the_papers_say),
        cmocka_unit_test(receives_ahead_hide_the_time_of_messages),
        cmocka_unit_test(a_small_timeline_is_as_counted_by_hand),
        cmocka_unit_test(messages_of_a_fifo_go_one_after_the_other),
        cmocka_unit_test(a_deeper_fifo_lets_senders_go_on),
        cmocka_unit_test(a_receive_waits_for_its_buffer),
        cmocka_unit_test(many_micro_batches_are_no_trouble),
        cmocka_unit_test(layouts_without_a_schedule_are_refused),
        cmocka_unit_test(broken_tables_are_noticed),
        cmocka_unit_test(forged_tables_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
