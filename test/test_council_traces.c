// test/test_council_traces.c: each way in which the first design of healing went wrong, as models and readers found
// them, is a test of its own, played with the product's decisions. Take a mend out, and its test fails.
#include "gpu/cpu/cpu.h"
#include "test/support/council_world.h"

static void begins(world *w) {
    world_begins(w);
    world_run_for(w, 2, NULL);
}

static void cut_pair(world *w, int a, int b, double s) { w->cut[a][b] = w->cut[b][a] = w->now + s; }

static void cut_off(world *w, int a, double s) {
    for (int b = 0; b < w->n; b++)
        if (b != a) cut_pair(w, a, b, s);
}

static const council_record *newest(const world *w) {
    const council_record *r = NULL;
    for (int i = 0; i < w->decisions; i++)
        if (!r || w->decided[i]->k > r->k) r = w->decided[i];
    return r;
}

static uint64_t members(const world *w) { return newest(w)->members.word[0]; }
static uint64_t voters(const world *w) { return newest(w)->voters.word[0]; }

// Seconds until a record with these members is decided; fails if there is none within `most`.
static double until_members(world *w, uint64_t who, double most) {
    double from = w->now;
    while (members(w) != who) {
        if (w->now > from + most)
            fail_msg("after %.1f s the members are %llx, not %llx", most, (unsigned long long)members(w),
                     (unsigned long long)who);
        world_tick(w);
    }
    return w->now - from;
}

static void until_voters(world *w, uint64_t who, double most) {
    for (double from = w->now; voters(w) != who; world_tick(w)) assert_true(w->now <= from + most);
}

static void steps_on(world *w) { assert_true(world_until_step(w, 15) > 0); }

// --- 1: an aborted sum is applied ------------------------------------------------------------------------------------

// Two ranks, one step, as commit.pml has it: a stream runs on after an abort, and an aborted call ends with anything.
// Every order of: gives its part, gets a sum, decides; is revoked, aborts one communicator and then the other.
typedef struct rank_stream {
    uint8_t at, revoked, aborted, gave_sum, gave_word, good_word, ok_word, mine, word, applied;
} rank_stream;

typedef struct streams {
    rank_stream of[2];
} streams;

enum { STREAMS = 1 << 14 };
typedef struct seen_streams {
    streams met[STREAMS];
    int count;
} seen_streams;

// Whether the product applies the step: `words` ranks of two said with their sums that they were whole.
static bool applies(int words, bool revoked) {
    const double ended[2] = {words > 0, words > 1};
    double square = 1;
    const tensor sums = {&square, FP64, 1, {1, 1, 1, 1}};
    const int32_t word = revoked;
    step_state s = {.loss_scale = 1};
    const step_rules rules = {0};
    const step_decide_args args = {
        .state = &s, .sums = &sums, .rules = &rules, .ranks = 2, .apart = 1, .ended = ended, .revoked = &word};
    assert_int_equal(cpu_ops_portable.step_decide(&args, NULL), ERR_OK);
    return s.apply;
}

// Rank r's next event; `garbage`: its call was aborted. false: it has none.
static bool stream_moves(streams *s, int r, bool garbage) {
    rank_stream *x = &s->of[r], *y = &s->of[1 - r];
    if (garbage && (x->at == 4 || x->aborted < (x->at < 2 ? 1 : 2))) return false;
    switch (x->at++) {
    case 0: x->gave_sum = !garbage; return true;
    case 1: x->mine = !garbage; return garbage || (x->gave_sum && y->gave_sum);
    case 2:
        x->gave_word = !garbage, x->good_word = !garbage && x->mine, x->ok_word = !garbage && !x->revoked;
        return true;
    case 3:
        x->mine = !garbage && x->mine && y->good_word;
        x->word = garbage ? 2 : x->ok_word + y->ok_word;  // garbage may look like the world
        return garbage || (x->gave_word && y->gave_word);
    case 4:
        x->applied = applies(x->word, x->revoked);
        if (x->applied && !x->mine) fail_msg("rank %d applies an aborted sum", r);
        return true;
    default: return false;
    }
}

static void explore_streams(seen_streams *seen, streams s) {
    for (int i = 0; i < seen->count; i++)
        if (memcmp(&seen->met[i], &s, sizeof s) == 0) return;
    assert_true(seen->count < STREAMS);
    seen->met[seen->count++] = s;
    for (int r = 0; r < 2; r++) {
        streams next = s;
        for (int garbage = 0; garbage < 2; garbage++, next = s)
            if (stream_moves(&next, r, garbage)) explore_streams(seen, next);
        if (!s.of[r].revoked) next.of[r].revoked = 1;
        else if (s.of[r].aborted < 2) next.of[r].aborted++;
        else continue;
        explore_streams(seen, next);
    }
}

static void trace_1_an_aborted_sum(void **state) {
    (void)state;
    seen_streams *seen = calloc(1, sizeof *seen);
    assert_non_null(seen);
    explore_streams(seen, (streams){0});
    assert_true(seen->count > 1000);
    free(seen);
    assert_true(applies(2, false));
    assert_false(applies(2, true));
    assert_false(applies(1, false));
}

// --- 2: two histories after a cold start -----------------------------------------------------------------------------

// {0,1,2} -> {1,2} -> {1}. 0 and 2 come back while 1, which they do not hear, trains.
static void trace_2_a_majority_starts_anew(void **state) {
    (void)state;
    world *w = world_open(3, 2);
    begins(w);
    world_die(w, 0, 60), until_members(w, 6, 15), until_voters(w, 6, 30);
    world_die(w, 2, 30), until_members(w, 2, 15), until_voters(w, 2, 30);
    cut_off(w, 1, 1e9);
    world_run_for(w, 90, NULL);
    assert_int_equal(w->runs, 1);
    assert_string_equal(w->node[0].why, "waits for node 1: a run begins with all nodes");
    steps_on(w);  // 1 has never stopped
    world_close(w);
}

// --- 3: an epoch of that number of another run -----------------------------------------------------------------------

static void trace_3_another_run(void **state) {
    (void)state;
    static council_outbox out;
    world *w = world_open(3, 3);
    begins(w);
    council *c = &w->node[2].c;
    council_record mine = *council_newest(c), other = mine, later;
    uint8_t fence[2][COUNCIL_FENCE];
    other.run[0] ^= 1;
    council_fence(fence[0], &mine), council_fence(fence[1], &other);
    assert_memory_not_equal(fence[0], fence[1], COUNCIL_FENCE);
    later = other, later.k = later.epoch = 9;
    council_message m = {
        .type = COUNCIL_PREPARE, .node = 0, .life = w->node[0].life, .newest = &later, .ballot = {1, 0}};
    council_take(c, &out, w->now, &m);
    assert_int_equal(council_newest(c)->k, 1);
    m.newest = &other;
    council_take(c, &out, w->now, &m);
    assert_int_equal(out.count, 0);
    assert_int_equal(c->page.promised.round, 0);
    world_close(w);
}

// --- 4: a council that is killed -------------------------------------------------------------------------------------

static void fails_and_heals(world *w) {
    uint64_t k = newest(w)->k;
    w->node[1].own.failed = true;
    for (double from = w->now; newest(w)->k == k; world_tick(w)) assert_true(w->now < from + 15);
    steps_on(w);
}

// One after the other, and all in one moment: nobody but the pages knows of the run then.
static void trace_4_councils_are_killed(void **state) {
    (void)state;
    for (int n = 2; n <= 3; n++) {
        world *w = world_open(n, 4);
        begins(w);
        for (int i = 0; i < 3; i++) world_council_dies(w, i % n), world_run_for(w, 1, NULL);
        fails_and_heals(w);
        for (int i = 0; i < n; i++) world_council_dies(w, i);
        w->messages = 0;
        fails_and_heals(w);
        assert_int_equal(w->runs, 1);
        world_close(w);
    }
}

static void trace_4_it_keeps_its_promise(void **state) {
    (void)state;
    static council_outbox out;
    world *w = world_open(3, 4);
    begins(w);
    council *c = &w->node[2].c;
    council_message m = {.type = COUNCIL_PREPARE, .life = w->node[0].life, .newest = w->node[0].newest};
    w->node[2].own.failed = true;  // so that it votes
    world_run_for(w, 0.4, NULL);
    m.ballot = (council_ballot){50, 0};
    council_take(c, &out, w->now, &m);
    assert_int_equal(out.out[0].m.type, COUNCIL_PROMISE);
    world_council_dies(w, 2);
    m.ballot.round = 49;
    council_take(c, &out, w->now, &m);
    assert_int_equal(out.out[0].m.type, COUNCIL_REFUSED);
    assert_int_equal(out.out[0].m.accepted.round, 50);
    world_close(w);
}

// --- 5: stuck although two of three live -----------------------------------------------------------------------------

static void trace_5_voters_stay(void **state) {
    (void)state;
    world *w = world_open(3, 5);
    begins(w);
    cut_pair(w, 0, 2, 8);
    until_members(w, 3, 15);
    world_die(w, 0, 1e6);
    assert_int_equal(voters(w), 7);
    double from = w->now;
    while ((members(w) & 1) && w->now < from + 15) world_tick(w);
    assert_int_equal(members(w) & 1, 0);
    steps_on(w);
    world_close(w);
}

// --- 6: nobody proposes ----------------------------------------------------------------------------------------------

// The first to propose would be 1, the lowest that stays; its council stands still.
static void trace_6_another_one_proposes(void **state) {
    (void)state;
    world *w = world_open(3, 6);
    begins(w);
    w->node[0].own.leaving = true;
    w->node[1].stalled = w->now + 4;
    for (double from = w->now; newest(w)->k == 1; world_tick(w)) assert_true(w->now < from + 3);
    assert_int_equal(members(w), 6);
    world_close(w);
}

// 0 is a voter and no member; its own ranks tell it nothing.
static void trace_6_a_report_says_failed(void **state) {
    (void)state;
    static council_decision d;
    world *w = world_open(3, 6);
    begins(w);
    cut_off(w, 0, 6);
    double ends = w->now + 6;
    until_members(w, 6, 15);
    world_run_for(w, ends + 1 - w->now, NULL);
    w->node[2].own.failed = true;
    world_run_for(w, 0.5, NULL);
    const council *c = &w->node[0].c;
    if (newest(w)->k == 2) {
        epoch_next(&d, w->now, council_newest(c), &c->view, &c->rules);
        assert_int_equal(d.action, COUNCIL_HEAL);
        assert_non_null(strstr(d.why, "reports a failure"));
    }
    double from = w->now;
    w->node[1].stalled = w->now + 60;
    while (newest(w)->k == 2 && w->now < from + 15) world_tick(w);
    assert_true(newest(w)->k > 2);
    world_close(w);
}

// --- 7: the leaver's news is lost ------------------------------------------------------------------------------------

static void trace_7_the_leaver_goes_last(void **state) {
    (void)state;
    world *w = world_open(2, 7);
    begins(w);
    w->node[0].own.leaving = true;
    w->node[1].stalled = w->now + 3;  // so the leaver proposes
    for (double from = w->now; newest(w)->k == 1; world_tick(w)) assert_true(w->now < from + 15);
    w->messages = 0;
    cut_pair(w, 0, 1, 4);
    for (double from = w->now; w->node[0].up; world_tick(w)) assert_true(w->now < from + 15);
    assert_int_equal(w->node[1].own.state, COUNCIL_WORKING);
    world_run_for(w, 60, NULL);
    assert_int_equal(members(w), 2);
    assert_true(!w->node[0].up && w->node[0].gone && w->node[0].code == ERR_OK);
    assert_string_equal(w->node[0].why, "has left: every member goes on without this node");
    assert_int_equal(w->node[1].ends, 0);
    steps_on(w);
    world_close(w);
}

// --- 8: stalled councils and flapping links --------------------------------------------------------------------------

static void stall(world *w) {
    if (w->now - 10 * (int)(w->now / 10) < WORLD_DT) w->node[w->n - 1].stalled = w->now + 3;
}

static void flap(world *w) {
    if (w->now - 6 * (int)(w->now / 6) < 3) cut_pair(w, 0, w->n - 1, 2 * WORLD_DT);
}

static void trace_8_steps_are_heartbeats(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        world *w = world_open(3, seed);
        begins(w);
        world_run_for(w, 120, stall);
        assert_int_equal(w->decisions, 1);
        world_close(w);
    }
}

// A PREPARE of a need that has passed comes late.
static void trace_8_who_works_refuses(void **state) {
    (void)state;
    static council_outbox out;
    world *w = world_open(3, 8);
    begins(w);
    council_message m = {
        .type = COUNCIL_PREPARE, .life = w->node[0].life, .newest = w->node[0].newest, .ballot = {1, 0}};
    council_take(&w->node[1].c, &out, w->now, &m);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.out[0].m.type, COUNCIL_REFUSED);
    assert_string_equal(out.out[0].m.why, "works, and all members with it");
    world_close(w);
}

// Each end of the link waits 10, 30, 90, 270 s after it was put out.
static void trace_8_no_loop_of_joins(void **state) {
    (void)state;
    int all = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        world *w = world_open(3, seed);
        begins(w);
        int before = w->epochs;
        world_run_for(w, 120, flap);
        all += w->epochs - before;
        world_run_for(w, 480, flap);
        assert_in_range(w->epochs - before, 3, 16);
        assert_in_range(w->joins, 1, 8);
        world_close(w);
    }
    assert_in_range(all, 20, 120);
}

// 2 is back, ready and a voter, and a HEAL does not need it.
static void trace_8_nobody_joins_in_a_heal(void **state) {
    (void)state;
    world *w = world_open(3, 8);
    begins(w);
    world_die(w, 2, 0), until_members(w, 3, 15);
    for (double end = w->now + 12; w->now < end; world_tick(w))
        w->node[1].own.sealed = -1, w->node[1].seal_at = w->now + 1;
    assert_true(w->node[0].c.view.of[2].says.ready);
    w->node[1].own.failed = true;
    uint64_t k = newest(w)->k;
    for (double from = w->now; newest(w)->k == k; world_tick(w)) assert_true(w->now < from + 15);
    assert_int_equal(newest(w)->kind, DECREE_HEAL);
    assert_int_equal(members(w), 3);
    world_close(w);
}

// --- 9: a step that kills --------------------------------------------------------------------------------------------

static void trace_9_four_fruitless_epochs(void **state) {
    (void)state;
    world *w = world_open(3, 9);
    begins(w);
    char why[COUNCIL_WHY];
    w->poison = w->node[0].own.step + 3;
    snprintf(why, sizeof why, "4 epochs in a row ended at step %d: a step kills whoever computes it",
             (int)w->poison - 1);
    world_run_for(w, 60, NULL);
    for (int a = 0; a < 3; a++) {
        assert_true(w->node[a].gone);
        assert_int_equal(w->node[a].code, ERR_INTERNAL);
    }
    assert_int_equal(newest(w)->kind, DECREE_END);
    assert_string_equal(newest(w)->why, why);
    assert_int_equal(w->epochs, 5);  // one that gained steps, and four that gained none
    world_close(w);
}

// A seal that lets the members vote is no new epoch: what it counts from stays.
static void trace_9_to_settle_is_no_step(void **state) {
    (void)state;
    world *w = world_open(3, 9);
    begins(w);
    world_die(w, 2, 1e6), until_members(w, 3, 15);
    int64_t high = newest(w)->high;
    until_voters(w, 3, 30);
    assert_int_equal(newest(w)->kind, DECREE_SETTLE);
    assert_int_equal(newest(w)->high, high);
    assert_int_equal(newest(w)->epoch, newest(w)->k - 1);
    w->node[1].own.failed = true;
    uint64_t k = newest(w)->k;
    for (double from = w->now; newest(w)->k == k; world_tick(w)) assert_true(w->now < from + 15);
    assert_true(newest(w)->high > high);
    assert_int_equal(newest(w)->fruitless, 0);
    world_close(w);
}

// 10: ranks leave an epoch that is over: test_healing. 11 to 13, 15: snapshots, and which is chosen: test_vault_choose.
// 17: pruning: test_checkpoint.

// --- 14: the first seal ----------------------------------------------------------------------------------------------

// Nobody joins, and no voter goes, before the epoch's first seal.
static void trace_14_first_a_seal(void **state) {
    (void)state;
    world *w = world_open(3, 14);
    begins(w);
    world_die(w, 2, 0), until_members(w, 3, 15);
    for (double end = w->now + 60; w->now < end; world_tick(w))
        w->node[1].own.sealed = -1, w->node[1].seal_at = w->now + 1;
    assert_int_equal(members(w), 3);
    assert_int_equal(voters(w), 7);
    w->node[1].seal_at = w->now;
    until_members(w, 7, 15);
    world_close(w);
}

// --- 16: a node wakes ------------------------------------------------------------------------------------------------

static void trace_16_own_pauses(void **state) {
    (void)state;
    world *w = world_open(2, 16);
    begins(w);
    w->node[0].stalled = w->now + 10;
    world_run_for(w, 10.3, NULL);
    assert_int_equal(newest(w)->k, 1);
    world_run_for(w, 10, NULL);
    assert_int_equal(newest(w)->k, 1);
    world_close(w);
    w = world_open(2, 16);  // the first that it reads is a PREPARE
    begins(w);
    static council_outbox out;
    council_message m = {.type = COUNCIL_PREPARE, .node = 1, .life = w->node[1].life, .ballot = {1, 1}};
    m.newest = w->node[1].newest;
    council_take(&w->node[0].c, &out, w->now + 10, &m);
    assert_int_equal(out.out[0].m.type, COUNCIL_REFUSED);
    world_close(w);
    w = world_open(2, 16);  // with its ranks, and what the other said meanwhile comes late
    begins(w);
    council *c = &w->node[0].c;
    council_woke(&c->view, w->now);
    double before = c->view.of[1].said_at, ranks = c->view.of[1].ranks_at;
    council_woke(&c->view, w->now + 10);
    assert_true(c->view.of[1].said_at > before + 9.9 && c->view.of[1].ranks_at > ranks + 9.9);
    static council_loss lost;
    council_lost(&lost, w->now + 10, council_newest(c), &c->view, WORLD_DEAD);
    assert_false(lost.any);
    world_close(w);
}

// --- 18: all are asked to leave --------------------------------------------------------------------------------------

static void trace_18_all_leave(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        world *w = world_open(3, seed);
        begins(w);
        for (int a = 0; a < 3; a++) world_run_for(w, seed % 3 * 0.4, NULL), w->node[a].own.leaving = true;
        world_run_for(w, 45, NULL);
        int stopped = 0;
        for (int a = 0; a < 3; a++) {
            const world_node *x = &w->node[a];
            if (x->up || (x->code != ERR_OK && x->code != ERR_INTERRUPTED))
                fail_msg("seed %d: node %d %s, code %d: %s", (int)seed, a, x->up ? "runs" : "ended", x->code, x->why);
            stopped += x->code == ERR_INTERRUPTED;
        }
        assert_int_equal(newest(w)->kind, DECREE_STOP);
        assert_true(stopped >= set_count(&newest(w)->members));
        world_close(w);
    }
}

// --- 19: 256 nodes and their lanes -----------------------------------------------------------------------------------

static void trace_19_the_largest_message(void **state) {
    (void)state;
    static council_record r[2];
    static uint8_t bytes[COUNCIL_MESSAGE_BYTES];
    static council_room room;
    council_message m, read;
    for (int i = 0; i < 2; i++) {
        r[i] = (council_record){.run = {1}, .k = (uint64_t)i + 1, .epoch = (uint64_t)i + 1, .nodes = COUNCIL_NODES};
        r[i].grid = (council_grid){TEAM_RANKS_MAX, 1, 1, 1}, r[i].ranks = r[i].lanes = TEAM_RANKS_MAX;
        memset(r[i].why, 'w', COUNCIL_WHY - 1);
        for (int j = 0; j < COUNCIL_NODES; j++)
            set_add(&r[i].members, j), r[i].life[j] = ~0u - (uint64_t)j, r[i].slots[j] = r[i].weight[j] = 4;
        for (int s = 0; s < TEAM_RANKS_MAX; s++)
            r[i].seat[s] = (council_seat){(uint16_t)(s / 4), (uint16_t)(s % 4)}, r[i].deal[s] = 1;
        r[i].voters = r[i].members;
    }
    m = (council_message){.type = COUNCIL_PROMISE, .life = 1, .newest = &r[0], .value = &r[1], .ballot = {7, 255}};
    size_t n = council_pack(bytes, sizeof bytes, &m);
    assert_in_range(n, 4097, COUNCIL_MESSAGE_BYTES);
    assert_in_range(record_pack(bytes, COUNCIL_RECORD_BYTES, &r[0]), 4097, COUNCIL_RECORD_BYTES);
    n = council_pack(bytes, sizeof bytes, &m);
    assert_int_equal(council_unpack(&read, &room, bytes, n), ERR_OK);
    assert_memory_equal(&room.value, &r[1], sizeof r[1]);
}

// --- 20: the higher of two ends --------------------------------------------------------------------------------------

static void trace_20_it_gives_up(void **state) {
    (void)state;
    world *w = world_open(2, 20);
    begins(w);
    cut_pair(w, 0, 1, 1e6);
    world_run_for(w, WORLD_GIVE_UP - 5, NULL);
    assert_true(w->node[1].up);
    assert_int_equal(w->node[1].action, COUNCIL_WAIT);
    world_run_for(w, 15, NULL);
    assert_int_equal(w->node[1].ends, 1);
    assert_int_equal(w->node[1].code, ERR_UNAVAILABLE);
    assert_int_equal(members(w), 1);  // the lower one goes on alone
    steps_on(w);
    world_close(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_1_an_aborted_sum),
        cmocka_unit_test(trace_2_a_majority_starts_anew),
        cmocka_unit_test(trace_3_another_run),
        cmocka_unit_test(trace_4_councils_are_killed),
        cmocka_unit_test(trace_4_it_keeps_its_promise),
        cmocka_unit_test(trace_5_voters_stay),
        cmocka_unit_test(trace_6_another_one_proposes),
        cmocka_unit_test(trace_6_a_report_says_failed),
        cmocka_unit_test(trace_7_the_leaver_goes_last),
        cmocka_unit_test(trace_8_steps_are_heartbeats),
        cmocka_unit_test(trace_8_who_works_refuses),
        cmocka_unit_test(trace_8_no_loop_of_joins),
        cmocka_unit_test(trace_8_nobody_joins_in_a_heal),
        cmocka_unit_test(trace_9_four_fruitless_epochs),
        cmocka_unit_test(trace_9_to_settle_is_no_step),
        cmocka_unit_test(trace_14_first_a_seal),
        cmocka_unit_test(trace_16_own_pauses),
        cmocka_unit_test(trace_18_all_leave),
        cmocka_unit_test(trace_19_the_largest_message),
        cmocka_unit_test(trace_20_it_gives_up),
    };
    return cmocka_run_group_tests_name("council traces", tests, NULL, NULL);
}
