// test/test_suspect.c: of a run that hangs, the rank that the others wait for: which evidence outweighs which, and what
// is no evidence.
#include "test/support/story.h"

// A node whose ranks all wait for each other, on GPUs that are as busy as ever.
static void all_wait(story *t, int nodes, bool on_gpus) {
    begin(t, watch_limits_default(), nodes);
    if (on_gpus) gpus(t);
    for (int k = 0; k < RANKS; k++)
        does(&t->rank[k], "wait for communication"), t->rank[k].process = 'S', t->rank[k].what_s = 100;
}

static void found(const story *t, int local, suspect_why why) {
    suspect s = suspect_find(&t->s);
    if (s.local != local || s.why != why)
        fail_msg("rank %d, reason %d; expected rank %d, reason %d", s.local, s.why, local, why);
}

// What makes rank k a suspect, the strongest evidence first.
static void make(story *t, int k, suspect_why why) {
    watch_rank *r = &t->rank[k];
    switch (why) {
    case SUSPECT_STOPPED: r->process = 'T'; break;
    case SUSPECT_DISK: r->process = 'D'; break;
    case SUSPECT_DATA: does(r, "wait for data"); break;
    case SUSPECT_COMPUTES: does(r, "forward"); break;
    case SUSPECT_IDLE: r->utilisation = 0.05; break;
    default: r->step--;
    }
}

// Each kind of evidence on one rank, with a weaker one on another rank, which has been at it longer.
static void the_strongest_evidence(void **state) {
    (void)state;
    static const suspect_why order[] = {SUSPECT_STOPPED,  SUSPECT_DISK, SUSPECT_DATA,
                                        SUSPECT_COMPUTES, SUSPECT_IDLE, SUSPECT_BEHIND};
    enum { KINDS = sizeof order / sizeof *order };
    for (int a = 0; a < KINDS; a++)
        for (int b = a + 1; b < KINDS; b++)
            for (int k = 0; k < RANKS; k++) {
                story t;
                all_wait(&t, 1 + k % 2, true);
                make(&t, (k + 1) % RANKS, order[b]);
                t.rank[(k + 1) % RANKS].what_s = 200;
                make(&t, k, order[a]);
                found(&t, k, order[a]);
                end(&t);
            }
}

// Of several with the same evidence it is the one that has been at it longest, if it is still there.
static void the_one_that_is_at_it_longest(void **state) {
    (void)state;
    static const suspect_why kinds[] = {SUSPECT_STOPPED, SUSPECT_DISK, SUSPECT_DATA, SUSPECT_COMPUTES, SUSPECT_IDLE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int last = 0; last < 3; last++) {
            story t;
            all_wait(&t, 1, true);
            for (int k = 0; k < 3; k++) make(&t, k, kinds[i]), t.rank[k].what_s = k == last ? 60 : 50 - k;
            found(&t, last, kinds[i]);
            if (kinds[i] == SUSPECT_STOPPED) t.rank[last].process = 't', found(&t, last, kinds[i]);  // by a debugger
            t.rank[last].phase = PHASE_ENDED;
            found(&t, last == 0 ? 1 : 0, kinds[i]);
            t.rank[last].phase = PHASE_STEPPING;
            t.rank[last].process = 'X';
            found(&t, last == 0 ? 1 : 0, kinds[i]);
            end(&t);
        }
}

static void nobody_here(void **state) {
    (void)state;
    for (int nodes = 1; nodes <= 2; nodes++)
        for (int on_gpus = 0; on_gpus < 2; on_gpus++) {
            story t;
            all_wait(&t, nodes, on_gpus);
            t.rank[2].what_s = 101;
            found(&t, 2, nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN);
            t.rank[1].process = 'D', t.rank[1].what_s = 4;  // for a moment
            found(&t, 2, nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN);
            // on a CPU nothing is known of it; of GPUs none spins
            for (int k = 0; k < RANKS; k++) t.rank[k].utilisation = 0;
            found(&t, 2, nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN);
            for (int k = 0; k < RANKS; k++) t.rank[k].beside = "reduce gradients";  // all are in the same collective
            found(&t, 2, nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN);
            end(&t);
        }
}

// One that draws power computes if others draw little. Where nothing is known of others, or all draw power, it may
// wait, too.
static void the_one_that_draws_power(void **state) {
    (void)state;
    static const struct {
        double watts[RANKS];  // of a median of 510; 0: not known
        int busy;             // -1: nobody
    } cases[] = {{{500, 100, 100, 100}, 0},  {{100, 100, 100, 500}, 3},  {{100, 500, 100, 500}, -1},
                 {{500, 500, 500, 500}, -1}, {{100, 100, 100, 100}, -1}, {{0, 0, 500, 0}, -1},
                 {{0, 100, 500, 0}, 2},      {{260, 250, 250, 250}, 0},  {{250, 250, 250, 250}, -1},
                 {{0, 0, 0, 0}, -1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            story t;
            all_wait(&t, nodes, true);
            for (int k = 0; k < RANKS; k++) {
                does(&t.rank[k], "wait for the step's end");
                t.rank[k].sensors.watts = cases[c].watts[k] > 0 ? cases[c].watts[k] : NAN;
            }
            if (cases[c].busy >= 0) found(&t, cases[c].busy, SUSPECT_COMPUTES);
            else found(&t, 0, nodes > 1 ? SUSPECT_ELSEWHERE : SUSPECT_UNKNOWN);
            t.rank[3].median_watts = NAN;  // its watts are compared with nothing
            if (cases[c].busy >= 0 && cases[c].busy < 3) found(&t, cases[c].busy, SUSPECT_COMPUTES);
            end(&t);
        }
    story t;  // the only rank of its node draws power, as always
    all_wait(&t, 2, true);
    t.s.locals = 1, t.s.world = 2;
    does(&t.rank[0], "wait for the step's end");
    found(&t, 0, SUSPECT_ELSEWHERE);
    t.s.nodes = t.s.world = 1;  // and of the only one of all it is the device
    found(&t, 0, SUSPECT_COMPUTES);
    end(&t);
    all_wait(&t, 1, true);  // one that is gone draws nothing
    for (int k = 0; k < RANKS; k++) does(&t.rank[k], "wait for the step's end"), t.rank[k].sensors.watts = 500;
    t.rank[1].process = 'X', t.rank[1].sensors.watts = 50;
    t.rank[2].phase = t.rank[3].phase = PHASE_ENDED;
    found(&t, 0, SUSPECT_UNKNOWN);
    end(&t);
    all_wait(&t, 1, true);  // to spin for others draws power: that one was given nothing to do tells more
    for (int k = 0; k < RANKS; k++)
        does(&t.rank[k], "wait for the step's end"), t.rank[k].sensors.watts = k == 0 ? 500 : 100;
    t.rank[2].utilisation = 0;
    found(&t, 2, SUSPECT_IDLE);
    end(&t);
}

static void the_one_that_is_behind(void **state) {
    (void)state;
    for (int k = 0; k < RANKS; k++) {
        story t;
        all_wait(&t, 2, false);
        for (int i = 0; i < RANKS; i++) t.rank[i].step = i == k ? 9 : 10 + i;
        found(&t, k, SUSPECT_BEHIND);
        t.rank[k].phase = PHASE_ENDED;  // it was done before the others
        found(&t, k == 0 ? 1 : 0, SUSPECT_BEHIND);
        t.rank[k].phase = PHASE_STEPPING;
        for (int i = 0; i < RANKS; i++) t.rank[i].step = 10, t.rank[i].beside = i == k ? NULL : "reduce gradients";
        found(&t, k, SUSPECT_BEHIND);
        t.rank[k].process = 'X';
        found(&t, k == 0 ? 1 : 0, SUSPECT_ELSEWHERE);
        end(&t);
        all_wait(&t, 2, false);
        t.rank[k].beside = "reduce gradients", t.rank[(k + 1) % RANKS].step--;  // a step weighs more
        found(&t, (k + 1) % RANKS, SUSPECT_BEHIND);
        end(&t);
    }
}

static void says(const story *t, suspect who, const char *word, bool said) {
    char text[ALARM_TEXT];
    suspect_text(text, sizeof text, &t->s, who, 60, 40, 10);
    if (!strstr(text, word) == said) fail_msg("\"%s\" %s \"%s\"", text, said ? "does not say" : "says", word);
}

static void what_is_said(void **state) {
    (void)state;
    static const struct {
        suspect_why why;
        const char *next;
    } cases[] = {
        {SUSPECT_STOPPED, "Next: kill -CONT 4002"}, {SUSPECT_DISK, "Next: dmesg; cat /proc/4002/stack"},
        {SUSPECT_DATA, "Next: look at the disk"},   {SUSPECT_COMPUTES, "Next: gdb -p 4002 "},
        {SUSPECT_IDLE, "Next: gdb -p 4002 "},       {SUSPECT_BEHIND, "Next: gdb -p 4002 "},
        {SUSPECT_UNKNOWN, "Next: gdb -p 4002 "},    {SUSPECT_ELSEWHERE, "Next: lockstep status on the other nodes"}};
    story t;
    all_wait(&t, 2, false);
    t.rank[2].place.rank = 6;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        bool here = cases[c].why != SUSPECT_UNKNOWN && cases[c].why != SUSPECT_ELSEWHERE;
        says(&t, (suspect){2, cases[c].why}, cases[c].next, true);
        says(&t, (suspect){2, cases[c].why}, "waiting for rank 6 (10.0.0.2)", here);
        says(&t, (suspect){2, cases[c].why}, "for the longest time rank 6 (10.0.0.2)", !here);
    }
    const suspect computes = {2, SUSPECT_COMPUTES};
    t.rank[2].cpu = 0.19;
    says(&t, computes, "computes nothing, or waits; ", true);
    t.rank[2].cpu = 0.2;
    says(&t, computes, "computes slowly; ", true);
    t.rank[2].cpu = NAN;
    says(&t, computes, "it computes; ", true);
    gpus(&t);
    t.rank[2].low_watts_s = 9.9;  // what a GPU draws tells more than its host's processor
    says(&t, computes, "computes slowly; ", true);
    t.rank[2].low_watts_s = 10, t.rank[2].cpu = 1;
    says(&t, computes, "computes nothing, or waits; ", true);
    says(&t, computes, "; 500 W, median 510 W", true);
    says(&t, computes, "Next: dmesg (Xid); gdb", true);
    says(&t, computes, "no step for 40 s after step 60: ", true);
    says(&t, computes, "wait for communication 3 of step 1 for 100 s", true);
    t.rank[2].number = -1, t.rank[2].median_watts = NAN;
    says(&t, computes, "wait for communication of step 1 for 100 s", true);
    says(&t, computes, "median", false);
    t.rank[2].what = NULL, t.rank[2].number = 3;
    says(&t, computes, "phase step of step 1 for 100 s", true);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_strongest_evidence),
        cmocka_unit_test(the_one_that_is_at_it_longest),
        cmocka_unit_test(nobody_here),
        cmocka_unit_test(the_one_that_draws_power),
        cmocka_unit_test(the_one_that_is_behind),
        cmocka_unit_test(what_is_said),
    };
    return cmocka_run_group_tests_name("suspect", tests, NULL, NULL);
}
