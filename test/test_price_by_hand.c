// test/test_price_by_hand.c: what each action of a step takes, on machines where one thing alone takes time: bytes
// times a rate, on one node, on several, and in several racks.
#include "test/support/search.h"

static void close_to(const char *what, double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * fabs(wanted) + 1e-12))
        fail_msg("%s: %.12g, expected %.12g", what, found, wanted);
}

// The sums over a list of what actions of a kind take; ACTION_KINDS: of all.
typedef struct sums {
    int count[ACTION_KINDS + 1];
    double compute[ACTION_KINDS + 1], merge[ACTION_KINDS + 1], send[ACTION_KINDS + 1], bytes[ACTION_KINDS + 1];
    plan_rank plan;
    double elements, weights;  // updated here; of a matrix as a whole
} sums;

static void add_action(sums *to, const session *s, const action *a, const price_time *t) {
    const zero_layout *z = &s->state.zero;
    for (int k = 0; k < 2; k++) {
        int i = k ? ACTION_KINDS : (int)a->kind;
        to->count[i]++;
        to->compute[i] += t->compute.s, to->merge[i] += t->merge.s, to->send[i] += t->send.s;
        if (a->kind == ACTION_ZERO || a->kind == ACTION_TAKE || a->kind == ACTION_ADD)
            to->bytes[i] += 4.0 * (double)(a->bucket < 0 ? z->slab : z->bucket[a->bucket].floats);
    }
}

// slower: ranks share cores.
static void price_rank(sums *to, const config *c, const plan_world *w, int rank, const costs *k, double slower) {
    const price_machine m = {k, slower, 1};
    session s = {0};
    price_blocks b;
    int count;
    *to = (sums){0};
    OK(plan_begin(&s, c, rank, w));
    OK(plan_count(&s, &to->plan));
    const action_list *l = &s.runner.actions;
    price_time *time = calloc((size_t)l->count, sizeof *time);
    OK(price_open(&b, &s, &m));
    OK(price_list(&s, &m, &b, time));
    for (int i = 0; i < l->count; i++) add_action(to, &s, &l->at[i], &time[i]);
    const zero_piece *piece = state_pieces(&s.state, &count);
    for (int i = 0; i < count; i++)
        if (s.net->param[piece[i].row].tied < 0) to->elements += (double)piece[i].count;
    price_close(&b), session_close(&s);
    free(time);
}

static void price_text(sums *to, const char *dir, const char *model, const char *more, const char *world, int rank,
                       const char *table, double slower) {
    config c;
    plan_world w;
    costs k;
    OK(costs_parse(&k, "test", table));
    rank_config(&c, dir, model, more);
    world_of(&w, world);
    OK(config_fits(&c, w.world));
    price_rank(to, &c, &w, rank, &k, slower);
    plan_world_close(&w), costs_free(&k);
}

// --- memory ----------------------------------------------------------------------------------------------------------

static const char copies[] = "lockstep costs 2\ndevice test\ncopy 1 bytes/s 0 spread\n"
                             "link node 1e30 bytes/s 0 us 0 spread\nend 2\n";

// Of 4 layers with 12 matrices of 32 x 32, what is added to products, and two norms; of 131 words, 16 places, a norm.
enum { MATRICES = 4 * 12 * 32 * 32, LAYERS = MATRICES + 4 * (96 + 32 + 128 + 32 + 2 * 64) };
enum { ELEMENTS = LAYERS + 131 * 32 + 16 * 32 + 64 };

// Of each element the gradient is read, its master and what the optimizer keeps are read and written, and its weight is
// written where that is of another type. Two ranks of a ZeRO stage have a part each.
static void updates_move_bytes(void **state) {
    (void)state;
    static const struct {
        const char *more;
        double update, squares, masters;
    } of[] = {{"[optimizer]\ntype = adamw\n", 4 + 8 + 16, 4, 0},
              {"[optimizer]\ntype = adamw\n[precision]\ncompute = bf16\n", 4 + 8 + 16 + 2, 4, 0},
              {"[optimizer]\ntype = sgd\nmomentum = 0\n", 4 + 8, 4, 0},
              {"[optimizer]\ntype = sgd\nmomentum = 0.9\n", 4 + 8 + 8, 4, 0},
              {"[optimizer]\ntype = lars\nmomentum = 0.9\n", 4 + 8 + 8, 4, 4}};
    char *dir = rank_dir(), more[256];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int zero = 0; zero <= 3; zero++) {
            double update = 0, squares = 0, masters = 0;
            for (int rank = 0; rank < (zero ? 2 : 1); rank++) {
                sums s;
                snprintf(more, sizeof more, "%s[parallel]\nzero = %d\n", of[i].more, zero);
                price_text(&s, dir, gpt, more, zero ? "1x2" : "1x1", rank, copies, 1);
                update += s.compute[ACTION_UPDATE], squares += s.compute[ACTION_SQUARES];
                masters += s.compute[ACTION_MASTERS];
                assert_true(s.count[ACTION_UPDATE] == 1 && s.send[ACTION_UPDATE] == 0);
            }
            close_to(of[i].more, update, of[i].update * ELEMENTS);
            close_to(of[i].more, squares, of[i].squares * ELEMENTS);
            close_to(of[i].more, masters, of[i].masters * ELEMENTS);
        }
    drop_dir(dir);
}

// Buffers are zeroed once, and a sum reads two and writes one; what arrives from others is added so, too.
static void sums_move_three_times(void **state) {
    (void)state;
    static const char *const more[] = {"", "[parallel]\nzero = 2\n", "[batch]\nlanes = 4\n[parallel]\nzero = 1\n",
                                       "[reduce]\norder = any\n[batch]\nlanes = 4\n[parallel]\nzero = 2\n"};
    char *dir = rank_dir();
    int seen[3] = {0};
    for (int i = 0; i < 4; i++) {
        sums s;
        price_text(&s, dir, gpt, more[i], "1x3", 2, copies, 1);
        close_to("zero", s.compute[ACTION_ZERO], s.bytes[ACTION_ZERO]);
        close_to("take", s.compute[ACTION_TAKE], s.bytes[ACTION_TAKE]);
        close_to("add", s.compute[ACTION_ADD], 3 * s.bytes[ACTION_ADD]);
        seen[0] += s.count[ACTION_ZERO], seen[1] += s.count[ACTION_TAKE], seen[2] += s.count[ACTION_ADD];
        if (i == 0) close_to("reduce", s.send[ACTION_REDUCE], 3 * (double)s.plan.to[PLAN_DATA].sent);
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
    drop_dir(dir);
}

// Where ranks share cores, all that they compute takes as much longer.
static void all_that_is_computed_shares_cores(void **state) {
    (void)state;
    char *dir = rank_dir();
    sums one, three;
    price_text(&one, dir, gpt, "[batch]\nlanes = 4\n", "1x2", 0, copies, 1);
    price_text(&three, dir, gpt, "[batch]\nlanes = 4\n", "1x2", 0, copies, 3);
    for (int k = 0; k < ACTION_KINDS; k++) close_to("three times", three.compute[k], 3 * one.compute[k]);
    assert_true(one.compute[ACTION_FORWARD] > 0 && one.compute[ACTION_BACKWARD] > 0 && one.compute[ACTION_UPDATE] > 0);
    drop_dir(dir);
}

// --- the host --------------------------------------------------------------------------------------------------------

// Gradients come and weights go: 4 bytes, and what a weight has. Of a matrix that is turned as a whole the direction
// goes to the device and comes back, too. In the host's memory an update moves what it does on a device, and directions
// are written, and read again.
static void the_host_updates(void **state) {
    (void)state;
    static const char table[] = "lockstep costs 2\ndevice test\ncopy 1e30 bytes/s 0 spread\n"
                                "host_link %s bytes/s 0.25 spread\nhost_copy %s bytes/s 0.5 spread\nend 3\n";
    static const struct {
        const char *more;
        double link, turned_link, memory, turned;
    } of[] = {{"", 4 + 4, 0, 4 + 8 + 16, 0},
              {"[precision]\ncompute = bf16\n", 4 + 2, 0, 4 + 8 + 2 + 16, 0},
              {"[optimizer]\ntype = muon\n", 4 + 4, 12 + 4, 4 + 8 + 16, 20 + 8},
              {"[optimizer]\ntype = muon\n[precision]\ncompute = bf16\n", 4 + 2, 12 + 2, 4 + 8 + 2 + 16, 20 + 8 + 2}};
    char *dir = rank_dir(), text[512], more[256];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int way = 0; way < 2; way++) {
            sums s;
            double turned = of[i].turned > 0 ? MATRICES : 0, others = ELEMENTS - turned;
            snprintf(text, sizeof text, table, way ? "1e30" : "1", way ? "1" : "1e30");
            snprintf(more, sizeof more, "%s[parallel]\noffload = host\n", of[i].more);
            price_text(&s, dir, gpt, more, "1x1", 0, text, 1);
            // weights of two bytes are written beside FP32 masters, and of four they are these in the host's memory
            bool apart = strstr(of[i].more, "bf16") || s.plan.weights > 0;
            double own = apart && !strstr(of[i].more, "bf16") ? 4 : 0;
            double wanted = way ? (of[i].memory + own) * others + (of[i].turned + own) * turned
                                : of[i].link * others + of[i].turned_link * turned;
            close_to(of[i].more, s.compute[ACTION_UPDATE], wanted);
            close_to("squares", s.compute[ACTION_SQUARES], 0);
        }
    drop_dir(dir);
}

// --- calls -----------------------------------------------------------------------------------------------------------

// A byte a second for one kind of call; all others take no time.
static void table_of_call(char *text, size_t n, const char *call) {
    snprintf(text, n,
             "lockstep costs 2\ndevice test\ncopy 1e30 bytes/s 0 spread\nlink node 1e30 bytes/s 0 us 0 spread\n"
             "comm %s node 2 1 1e6 us 0 spread\nend 3\n",
             call);
}

static double call_of(sums *s, const char *dir, const char *model, const char *more, costs_call call) {
    char text[512];
    table_of_call(text, sizeof text, costs_call_name[call]);
    price_text(s, dir, model, more, "1x2", 0, text, 1);
    return s->send[ACTION_KINDS];
}

// Gradients go to their owners as an exchange, weights come as a gather, all learn what decides the step by a sum, and
// stages send messages. Each action's bytes are those of the plan.
static void each_action_makes_its_call(void **state) {
    (void)state;
    char *dir = rank_dir(), more[128];
    for (int zero = 0; zero <= 3; zero++) {
        sums s;
        double there[CALLS];
        snprintf(more, sizeof more, "[parallel]\nzero = %d\n", zero);
        for (costs_call call = 0; call < CALLS; call++) {
            there[call] = call_of(&s, dir, gpt, more, call);
            if (call == CALL_ALL_TO_ALL) close_to("exchanges", there[call], s.send[ACTION_REDUCE]);
            if (call == CALL_ALL_GATHER)
                close_to("gathers", there[call], s.send[ACTION_SPREAD] + s.send[ACTION_GATHER]);
            if (call == CALL_ALL_REDUCE) close_to("sums", there[call], s.send[ACTION_SHARE]);
        }
        close_to(more, there[CALL_ALL_TO_ALL] + there[CALL_ALL_GATHER], (double)s.plan.to[PLAN_DATA].sent);
        close_to(more, there[CALL_ALL_REDUCE], (double)s.plan.to[PLAN_ALL].sent);
        // two ranks send each other all numbers, of 8 bytes
        close_to(more, there[CALL_ALL_REDUCE], 8 * (double)s.plan.shared);
        assert_true((there[CALL_ALL_GATHER] > 1) == (zero > 0) && there[CALL_MESSAGE] < 1);
    }
    sums s;
    double said = call_of(&s, dir, llama, "[parallel]\npipeline = 2\n", CALL_MESSAGE);
    close_to("messages", said, s.send[ACTION_POST] + s.send[ACTION_TIE_GRADIENTS]);
    close_to("messages", said, (double)s.plan.to[PLAN_STAGES].sent);
    assert_true(s.send[ACTION_POST] > 0);
    drop_dir(dir);
}

// What islands mix goes there as an exchange and comes back as a gather, and then inside by another one; in the mean of
// all steps.
static void islands_make_their_calls(void **state) {
    (void)state;
    char *dir = rank_dir();
    sums s;
    double there[CALLS];
    for (costs_call call = 0; call < CALLS; call++) {
        call_of(&s, dir, gpt, "[outer]\nislands = 2\nevery = 5\n", call);
        there[call] = s.send[ACTION_OUTER];
    }
    assert_true(s.plan.mixed_each > 0 && s.plan.mixed[PLAN_DATA].sent == 0);
    close_to("exchanges", there[CALL_ALL_TO_ALL], s.plan.mixed_each / 2);
    close_to("gathers", there[CALL_ALL_GATHER], s.plan.mixed_each / 2);
    close_to("others", there[CALL_ALL_REDUCE] + there[CALL_MESSAGE] + there[CALL_MERGE], 0);
    drop_dir(dir);
}

// --- places ----------------------------------------------------------------------------------------------------------

// One level's links send a byte a second: what is sent there, once, and nothing that is sent elsewhere.
static void each_level_has_its_bytes(void **state) {
    (void)state;
    static const struct {
        const char *model, *more, *world;
    } of[] = {{gpt, "[parallel]\nzero = 0\n", "2x2x2"},       {gpt, "[parallel]\nzero = 3\n", "4x2x2"},
              {gpt, "[parallel]\nzero = 1\n", "4x1"},         {llama, "[parallel]\npipeline = 2\n", "1x2"},
              {llama, "[parallel]\npipeline = 2\n", "2x1"},   {llama, "[parallel]\npipeline = 2\n", "2x1x2"},
              {llama, "[parallel]\ntensor = 2\n", "2x2x2"},   {llama, "[parallel]\ntensor = 2\n", "2x1"},
              {llama, "[parallel]\npipeline = 4\n", "4x1x2"}, {llama, "[parallel]\ntensor = 2\n", "2x1x2"}};
    char *dir = rank_dir(), text[512];
    bool seen[COSTS_LEVELS] = {0};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int level = 0; level < COSTS_LEVELS; level++) {
            sums s;
            int64_t wanted = 0;
            snprintf(text, sizeof text,
                     "lockstep costs 2\ndevice test\ncopy 1e30 bytes/s 0 spread\nlink node %s bytes/s 0 us 0 spread\n"
                     "link rack %s bytes/s 0 us 0 spread\nlink spine %s bytes/s 0 us 0 spread\nend 4\n",
                     level == 0 ? "1" : "1e30", level == 1 ? "1" : "1e30", level == 2 ? "1" : "1e30");
            price_text(&s, dir, of[i].model, of[i].more, of[i].world, 0, text, 1);
            for (int g = 0; g < PLAN_GROUPS; g++) {
                const comm_cost *x = &s.plan.to[g];
                wanted += level == COSTS_NODE   ? x->sent - x->sent_far
                          : level == COSTS_RACK ? x->sent_far - x->sent_racks
                                                : x->sent_racks;
            }
            // of what blocks wait for, each call is of whole bytes
            double found = s.send[ACTION_KINDS] + s.merge[ACTION_KINDS], rest = (double)wanted - found;
            if (s.merge[ACTION_KINDS] < 1) close_to(of[i].world, found, (double)wanted);
            else if (rest < 0 || rest > 16) fail_msg("%s: %.0f bytes are left", of[i].world, rest);
            seen[level] |= wanted > 0;
        }
    assert_true(seen[0] && seen[1] && seen[2]);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(updates_move_bytes),
                                       cmocka_unit_test(sums_move_three_times),
                                       cmocka_unit_test(all_that_is_computed_shares_cores),
                                       cmocka_unit_test(the_host_updates),
                                       cmocka_unit_test(each_action_makes_its_call),
                                       cmocka_unit_test(islands_make_their_calls),
                                       cmocka_unit_test(each_level_has_its_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
