// test/test_stages.c: a model cut into the stages of a pipeline, without a process: where it is cut, against all cuts
// there are; what is refused, and in which words; and what a rank holds of its blocks, by walking its table.
#include "trainer/step/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS_MOST = 64 };

// Blocks of so much work each; nothing else of a model counts here.
static model net_of(block *at, int blocks, const double *flops) {
    for (int b = 0; b < blocks; b++) at[b] = (block){.flops = flops ? flops[b] : 1};
    return (model){.blocks = blocks, .block = at};
}

static stages open_stages(const model *net, stage_options o) {
    stages x;
    if (stages_open(&x, net, &o) != ERR_OK)
        fail_msg("%s, rank %d of %d, %d micro-batches: %s", pipeline_name(o.kind), o.rank, o.ranks, (int)o.micros,
                 err_last()->text);
    return x;
}

// --- even work -------------------------------------------------------------------------------------------------------

// Of all cuts of blocks first .. into `count` stages the best: the least that the largest stage can have.
static double least_most(const model *net, int first, int count) {
    double best = -1, sum = 0;
    if (count == 1) {
        for (int b = first; b < net->blocks; b++) sum += net->block[b].flops;
        return sum;
    }
    for (int b = first; b <= net->blocks - count; b++) {
        sum += net->block[b].flops;
        double rest = least_most(net, b + 1, count - 1), largest = sum > rest ? sum : rest;
        if (best < 0 || largest < best) best = largest;
    }
    return best;
}

// Can blocks first .. be cut into `count` stages of at most this much work?
static bool can(const model *net, int first, int count, double limit) {
    return net->blocks - first >= count && (count == 0 ? first == net->blocks : least_most(net, first, count) <= limit);
}

static double work_of(const model *net, int first, int end) {
    double sum = 0;
    for (int b = first; b < end; b++) sum += net->block[b].flops;
    return sum;
}

// The largest stage is as small as can be, and then stage 0 is as short as can be, then stage 1, and so on.
static void check_cut(const model *net, int count, const int *cut) {
    char text[512] = "", one[32];
    double limit = least_most(net, 0, count);
    for (int b = 0; b < net->blocks; b++) snprintf(one, sizeof one, " %g", net->block[b].flops), strcat(text, one);
    strcat(text, " is cut at");
    for (int s = 0; s <= count; s++) snprintf(one, sizeof one, " %d", cut[s]), strcat(text, one);
    if (cut[0] != 0 || cut[count] != net->blocks) fail_msg("%s", text);
    for (int s = 0; s < count; s++) {
        int shortest = cut[s] + 1;
        if (cut[s + 1] <= cut[s]) fail_msg("%s: stage %d is empty", text, s);
        if (work_of(net, cut[s], cut[s + 1]) > limit) fail_msg("%s: stage %d has more than %g", text, s, limit);
        while (!can(net, shortest, count - s - 1, limit) || work_of(net, cut[s], shortest) > limit) shortest++;
        if (cut[s + 1] != shortest) fail_msg("%s: stage %d could end at %d", text, s, shortest);
    }
}

// All alike; ever more; heavy ends; a few values, so that many cuts are as good; many values.
static double work_in(int round, int b, int blocks, unsigned random) {
    if (round == 0) return 1;
    if (round == 1) return b;
    if (round == 2) return b == 0 || b == blocks - 1 ? 100 : 1;
    return random % (round < 20 ? 4 : 1000);
}

static void even_work_is_the_best_of_all_cuts(void **state) {
    (void)state;
    block at[BLOCKS_MOST];
    double flops[BLOCKS_MOST];
    int cut[BLOCKS_MOST + 1];
    unsigned seed = 1;
    for (int round = 0; round < 40; round++)
        for (int blocks = 1; blocks <= 9; blocks++) {
            for (int b = 0; b < blocks; b++) {
                seed = seed * 1103515245 + 12345;
                flops[b] = work_in(round, b, blocks, seed / 65536);
            }
            model net = net_of(at, blocks, flops);
            for (int count = 1; count <= blocks; count++) {
                stages_balance(&net, count, cut);
                check_cut(&net, count, cut);
            }
        }
}

static void expect_cut(const int *cut, int count, const char *expected) {
    char text[256] = "", one[16];
    for (int s = 0; s < count; s++)
        snprintf(one, sizeof one, "%s%d", s ? " " : "", cut[s + 1] - cut[s]), strcat(text, one);
    assert_string_equal(text, expected);
}

static void some_cuts_are_known(void **state) {
    (void)state;
    block at[BLOCKS_MOST];
    int cut[BLOCKS_MOST + 1];
    model net = net_of(at, 12, NULL);
    stages_balance(&net, 4, cut);
    expect_cut(cut, 4, "3 3 3 3");
    net = net_of(at, 10, NULL);
    stages_balance(&net, 4, cut);
    expect_cut(cut, 4, "1 3 3 3");
    net = net_of(at, 6, (double[]){0.1, 1, 1, 1, 1, 2.5});  // an embedding, four layers, a head
    stages_balance(&net, 3, cut);
    expect_cut(cut, 3, "3 2 1");
}

// --- cuts by hand, and layouts ---------------------------------------------------------------------------------------

static void cuts_by_hand_are_read(void **state) {
    (void)state;
    static const char *const texts[] = {"5 4 3", "5,4,3", " 5,  4 ,3 ", ",5 4 3,"};
    block at[BLOCKS_MOST];
    model net = net_of(at, 12, NULL);
    for (int i = 0; i < 4; i++) {
        stages x = open_stages(
            &net,
            (stage_options){.kind = PIPELINE_1F1B, .ranks = 3, .rank = 1, .chunks = 1, .micros = 4, .cuts = texts[i]});
        assert_int_equal(x.count, 3);
        expect_cut(x.cut, 3, "5 4 3");
        for (int b = 0; b < 12; b++) {
            assert_int_equal(x.chunk[b], b >= 5 && b < 9 ? 0 : -1);
            assert_int_equal(x.slots[b] > 0, b >= 5 && b < 9);
        }
        stages_close(&x);
    }
    // A V: the second of two ranks has the two in the middle.
    stages v = open_stages(
        &net,
        (stage_options){.kind = PIPELINE_ZB_V, .ranks = 2, .rank = 1, .chunks = 2, .micros = 4, .cuts = "1 2 3 6"});
    for (int b = 0; b < 12; b++) assert_int_equal(v.chunk[b], b < 1 ? -1 : b < 3 ? 0 : b < 6 ? 1 : -1);
    stages_close(&v);
}

static void one_rank_has_all_blocks_whatever_the_cuts_are(void **state) {
    (void)state;
    block at[BLOCKS_MOST];
    model net = net_of(at, 5, NULL);
    stages x = open_stages(
        &net, (stage_options){.kind = PIPELINE_INTERLEAVED, .ranks = 1, .chunks = 1, .micros = 4, .cuts = "9 9"});
    assert_true(x.count == 1 && x.cut[0] == 0 && x.cut[1] == 5 && x.chunk == NULL && x.input_slots == 1);
    assert_true(x.table.units == 8 && x.table.messages == 0 && x.table.gradients == 0);
    for (int i = 0; i < 8; i++) {
        const unit *u = &x.table.unit[i];
        assert_true(u->kind == (i % 2 ? UNIT_BACKWARD : UNIT_FORWARD) && u->micro == i / 2 && u->stage == 0);
        assert_true(u->slot == 0 && u->receive == -1 && u->send == -1 && x.input_slot[u->micro] == 0);
    }
    for (int b = 0; b < 5; b++) assert_int_equal(x.slots[b], 1);
    stages_close(&x);
}

static void what_does_not_work_is_refused(void **state) {
    (void)state;
    static const struct {
        stage_options o;
        const char *says;
    } rows[] = {
        {{.kind = PIPELINE_1F1B, .ranks = 7, .chunks = 1, .micros = 8}, "7 stages, and the model has only 6 blocks"},
        {{.kind = PIPELINE_ZB_V, .ranks = 4, .chunks = 2, .micros = 8}, "8 stages, and the model has only 6 blocks"},
        {{.kind = PIPELINE_1F1B, .ranks = 3, .chunks = 2, .micros = 8},
         "pipeline schedule 1f1b: 8 micro-batches, 2 stages a rank and 3 ranks: expected 1 stage a rank"},
        {{.kind = PIPELINE_ZB_V, .ranks = 2, .chunks = 1, .micros = 8}, "expected 2 stages a rank"},
        {{.kind = PIPELINE_INTERLEAVED, .ranks = 3, .chunks = 2, .micros = 4},
         "4 micro-batches, 2 stages a rank and 3 ranks: expected micro-batches that are a multiple of the ranks"},
        {{.kind = PIPELINE_ZB_V, .ranks = 3, .chunks = 2, .micros = 2},
         "expected as many micro-batches as ranks, or more"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "3 2"},
         "[parallel] stages = 3 2: expected 2 numbers of blocks, 1 or more each, that add up to the model's 6 blocks"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "2 2 2"},
         "stages = 2 2 2: expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 3, .chunks = 1, .micros = 4, .cuts = "3 3"},
         "stages = 3 3: expected 3 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 3, .chunks = 1, .micros = 4, .cuts = "3 3 0"},
         "stages = 3 3 0: expected 3 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 3, .chunks = 1, .micros = 4, .cuts = "4 3 -1"},
         "stages = 4 3 -1: expected 3 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "3 3 x"},
         "stages = 3 3 x: expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "3.0 3"},
         "stages = 3.0 3: expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "3;3"},
         "stages = 3;3: expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "99999999999999999999 3"},
         "expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = "4294967299 3"}, "expected 2 numbers"},
        {{.kind = PIPELINE_GPIPE, .ranks = 2, .chunks = 1, .micros = 4, .cuts = " , "},
         "stages =  , : expected 2 numbers"},
    };
    block at[BLOCKS_MOST];
    model net = net_of(at, 6, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stages x;
        err_t rc = stages_open(&x, &net, &rows[i].o);
        if (rc != ERR_CONFIG || !strstr(err_last()->text, rows[i].says))
            fail_msg("row %zu: %d: %s\nexpected: %s", i, rc, rc == ERR_OK ? "accepted" : err_last()->text,
                     rows[i].says);
        stages_close(&x);
    }
}

// --- what a rank holds -----------------------------------------------------------------------------------------------

typedef struct walk {
    stages x;
    char name[96];
    int *last;         // [count][micros] the last unit of (stage, micro-batch), -1: not here
    int *first, *end;  // [micros] the first and the last unit of a micro-batch
} walk;

static int *last_of(const walk *w, int stage, int micro) { return &w->last[stage * w->x.pipe.micros + micro]; }

static void begin_walk(walk *w) {
    const stages *x = &w->x;
    int m = x->pipe.micros;
    snprintf(w->name, sizeof w->name, "%s, p = %d, v = %d, m = %d, rank %d", pipeline_name(x->pipe.kind), x->pipe.ranks,
             x->pipe.chunks, m, x->rank);
    w->last = malloc((size_t)(x->count * m + 2 * m) * sizeof *w->last);
    assert_non_null(w->last);
    for (int i = 0; i < x->count * m + 2 * m; i++) w->last[i] = -1;
    w->first = w->last + x->count * m, w->end = w->first + m;
    for (int i = 0; i < x->table.units; i++) {
        const unit *u = &x->table.unit[i];
        *last_of(w, u->stage, u->micro) = w->end[u->micro] = i;
        if (w->first[u->micro] < 0) w->first[u->micro] = i;
    }
}

// The moment from which the unit's slot is written: by a receive that was posted, or by the unit.
static int written_from(const stages *x, int i) {
    int m = x->table.unit[i].receive;
    return m < 0 ? i : x->table.message[m].after + 1;
}

// The most micro-batches that a stage holds at a time.
static int most_of(const walk *w, int s) {
    int now = 0, most = 0;
    for (int i = 0; i < w->x.table.units; i++) {
        const unit *u = &w->x.table.unit[i];
        if (u->stage != s) continue;
        now += u->kind == UNIT_FORWARD;
        most = now > most ? now : most;
        now -= *last_of(w, s, u->micro) == i;
    }
    return most;
}

// Nobody has a stage's slot while another micro-batch has it, and there are no more than are needed. Returns the slots
// of all the rank's stages.
static int check_slots(const walk *w) {
    const stages *x = &w->x;
    int sum = 0;
    for (int s = 0; s < x->count; s++) {
        int slots = x->slots[x->cut[s]], until[512];
        for (int b = x->cut[s]; b < x->cut[s + 1]; b++)
            if (x->slots[b] != slots)
                fail_msg("%s: the blocks of stage %d have %d slots and %d", w->name, s, slots, x->slots[b]);
        if (slots != most_of(w, s) || (slots > 0) != (stages_rank(x, s) == x->rank))
            fail_msg("%s: stage %d has %d slots and needs %d", w->name, s, slots, most_of(w, s));
        for (int k = 0; k < 512; k++) until[k] = -1;
        for (int i = 0; i < x->table.units; i++) {
            const unit *u = &x->table.unit[i];
            if (u->stage != s) continue;
            if (u->slot < 0 || u->slot >= slots)
                fail_msg("%s: unit %d is in slot %d of %d", w->name, i, u->slot, slots);
            if (u->kind != UNIT_FORWARD) continue;
            if (until[u->slot] >= written_from(x, i))
                fail_msg("%s: slot %d of stage %d is written from unit %d on, and in use until %d", w->name, u->slot, s,
                         written_from(x, i), until[u->slot]);
            until[u->slot] = *last_of(w, s, u->micro);
        }
        sum += slots;
    }
    return sum;
}

// The units of a micro-batch on a stage are in one slot, and its messages come into it and go out of it.
static void check_messages(const walk *w) {
    const stages *x = &w->x;
    for (int i = 0; i < x->table.messages; i++) {
        const message *m = &x->table.message[i];
        const unit *u = &x->table.unit[m->unit];
        int buffer = m->kind == MESSAGE_ACTIVATIONS ? u->slot : m->sends ? u->gradient_out : u->gradient_in;
        if (m->buffer != buffer)
            fail_msg("%s: message %d is in buffer %d, its unit in %d", w->name, i, m->buffer, buffer);
    }
    for (int i = 0; i < x->table.units; i++)
        for (int k = i + 1; k < x->table.units; k++) {
            const unit *a = &x->table.unit[i], *b = &x->table.unit[k];
            if (a->stage == b->stage && a->micro == b->micro && a->slot != b->slot)
                fail_msg("%s: units %d and %d are in two slots", w->name, i, k);
        }
}

// A micro-batch has its place from its first unit to its last, and there are as few places as there are micro-batches
// at a time.
static void check_places(const walk *w) {
    const stages *x = &w->x;
    int most = 0;
    for (int i = 0; i < x->table.units; i++) {
        int now = 0, taken[512] = {0};
        for (int k = 0; k < x->pipe.micros; k++) {
            if (w->first[k] > i || w->end[k] < i) continue;
            now++;
            if (x->input_slot[k] < 0 || x->input_slot[k] >= x->input_slots)
                fail_msg("%s: micro-batch %d has input slot %d of %d", w->name, k, x->input_slot[k], x->input_slots);
            if (taken[x->input_slot[k]]++)
                fail_msg("%s: at unit %d two micro-batches have input slot %d", w->name, i, x->input_slot[k]);
        }
        most = now > most ? now : most;
    }
    if (most != x->input_slots)
        fail_msg("%s: %d input slots, and at most %d are in use", w->name, x->input_slots, most);
}

static int least(int a, int b) { return a < b ? a : b; }

// Slots of all stages of a rank: as many as README.md of trainer/step says that it holds, or more with several stages,
// which do not share.
static void check_memory(const walk *w, int sum) {
    const pipeline_layout *l = &w->x.pipe;
    int p = l->ranks, m = l->micros, v = l->chunks, r = w->x.rank, held = 0;
    switch (l->kind) {
    case PIPELINE_GPIPE: held = m; break;
    case PIPELINE_1F1B: held = least(m, p - r); break;
    case PIPELINE_ZB_H1: held = least(m, p); break;
    case PIPELINE_INTERLEAVED: held = least(m * v, v == 1 ? p - r : 2 * (p - 1 - r) + (v - 1) * p + 1); break;
    case PIPELINE_ZB_V: held = least(least(2 * p, m + 1 + r), 2 * m); break;
    default: fail();
    }
    bool right = v == 1 ? sum == held : l->kind == PIPELINE_ZB_V ? sum >= held && sum <= held + 1 : sum >= held;
    if (!right || w->x.table.slots != sum)
        fail_msg("%s: %d slots, the table has %d, expected %d", w->name, sum, w->x.table.slots, held);
}

static void no_two_micro_batches_share_what_they_hold(void **state) {
    (void)state;
    block at[BLOCKS_MOST];
    int layouts = 0;
    for (int kind = 0; kind < PIPELINE_KINDS; kind++)
        for (int p = 2; p <= 6; p++)
            for (int v = 1; v <= 4; v++)
                for (int m = 1; m <= 24; m++) {
                    pipeline_layout l = {.kind = (pipeline_kind)kind, .ranks = p, .micros = m, .chunks = v};
                    if (pipeline_check(&l) != ERR_OK) continue;
                    model net = net_of(at, 2 * p * v + 1, NULL);
                    for (int r = 0; r < p; r++, layouts++) {
                        walk w = {.x = open_stages(
                                      &net, (stage_options){
                                                .kind = l.kind, .ranks = p, .rank = r, .chunks = v, .micros = m})};
                        begin_walk(&w);
                        check_memory(&w, check_slots(&w));
                        check_messages(&w);
                        check_places(&w);
                        free(w.last);
                        stages_close(&w.x);
                    }
                }
    assert_true(layouts > 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_work_is_the_best_of_all_cuts),
        cmocka_unit_test(some_cuts_are_known),
        cmocka_unit_test(cuts_by_hand_are_read),
        cmocka_unit_test(one_rank_has_all_blocks_whatever_the_cuts_are),
        cmocka_unit_test(what_does_not_work_is_refused),
        cmocka_unit_test(no_two_micro_batches_share_what_they_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
