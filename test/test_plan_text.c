// test/test_plan_text.c: what `lockstep plan` says of wires, servers, deals, stages and codes, each figure beside what
// the plans of all ranks add up to.
#include "test/support/search.h"

#include <inttypes.h>

static const char base[] = "[model]\nlayers = 6\nheads = 4\nembed = 64\ncontext = 32\n[batch]\nglobal = 16\nmicro = 1\n"
                           "lanes = 16\n[reduce]\nbucket_mb = 0.02\n[device]\nthreads = 1\n";

typedef struct printed {
    config c;
    plan_world w;
    plan_ranks p;
    grid shape;
    char *text;
} printed;

static void print_plan(printed *x, const char *dir, const char *more, const char *cluster) {
    size_t n;
    rank_config(&x->c, dir, base, more);
    FILE *f = open_memstream(&x->text, &n);
    OK(verb_plan(&x->c, false, cluster, f));
    fclose(f);
    OK(plan_world_made(&x->w, &x->c, cluster));
    OK(plan_ranks_open(&x->p, &x->c, &x->w, true));
    x->shape = config_grid(&x->c, x->w.world);
}

static void close_plan(printed *x) {
    plan_ranks_close(&x->p), plan_world_close(&x->w);
    free(x->text);
}

static void says(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void says(const char *text, const char *format, ...) {
    char wanted[512];
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    if (!strstr(text, wanted)) fail_msg("expected `%s` in:\n%s", wanted, text);
}

static const char *human(double bytes) {
    static char text[32];
    if (bytes >= 999.95e3) snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
    else snprintf(text, sizeof text, "%.1f kB", bytes / 1e3);
    return text;
}

// A row of what is sent: bytes have a short form after them, messages have none.
static void says_sent(const char *from, int indent, int width, const char *name, int64_t all, const char *beside,
                      bool messages) {
    if (messages) says(from, "%*s%-*s %16" PRId64 "   %s\n", indent, "", width, name, all, beside);
    else says(from, "%*s%-*s %16" PRId64 "   %-36s %10s\n", indent, "", width, name, all, beside, human((double)all));
    assert_true(all > 0);
}

// --- wires -----------------------------------------------------------------------------------------------------------

// Of joined ranks, a node, others of a rack, and other racks: what all send there, and what the one with most does.
static int64_t sent_at(const plan_rank *p, int level, bool messages) {
    int64_t n = 0;
    for (int g = 0; g < PLAN_GROUPS; g++) {
        const comm_cost *c = &p->to[g];
        const int64_t up[] = {messages ? c->messages : c->sent, messages ? c->messages_apart : c->sent_apart,
                              messages ? c->messages_far : c->sent_far, messages ? c->messages_racks : c->sent_racks,
                              0};
        n += up[level] - up[level + 1];
    }
    return n;
}

static void each_wire_has_its_share(void **state) {
    (void)state;
    static const char *const name[] = {"joined ranks", "within nodes", "between nodes", "between racks"};
    static const struct {
        const char *more, *cluster;
    } of[] = {{"[cluster]\njoined = 2\n", "4x4x2"},
              {"[cluster]\njoined = 2\n[parallel]\npipeline = 2\nzero = 2\n", "4x4x2"},
              {"[cluster]\njoined = 2\n[reduce]\norder = any\n", "2x4"}};
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        printed x;
        print_plan(&x, dir, of[i].more, of[i].cluster);
        for (int messages = 0; messages < 2; messages++) {
            const char *from = strstr(x.text, messages ? "messages of a step" : "traffic of a step");
            for (int level = 0; level < (x.w.racks > 1 ? 4 : 3); level++) {
                int64_t all = 0, most = 0;
                char beside[64];
                for (int r = 0; r < x.w.world; r++) {
                    int64_t n = sent_at(plan_of(&x.p, r), level, messages);
                    all += n, most = n > most ? n : most;
                }
                snprintf(beside, sizeof beside, "by the rank with most %" PRId64, most);
                says_sent(from, 2, 18, name[level], all, beside, messages);
            }
        }
        close_plan(&x);
    }
    drop_dir(dir);
}

// Of each group, and of what goes between nodes in it.
static void each_group_has_its_row(void **state) {
    (void)state;
    static const char *const name[] = {[PLAN_DATA] = "data groups",
                                       [PLAN_TENSOR] = "tensor groups",
                                       [PLAN_STAGES] = "stages",
                                       [PLAN_ALL] = "all ranks"};
    char *dir = rank_dir();
    printed x;
    print_plan(&x, dir, "[parallel]\npipeline = 2\ntensor = 2\nslices = 2\n", "2x4");
    for (int messages = 0; messages < 2; messages++) {
        const char *from = strstr(x.text, messages ? "messages of a step" : "traffic of a step");
        for (int g = 0; g < PLAN_GROUPS; g++) {
            int64_t all = 0, far = 0;
            char beside[64];
            if (g == PLAN_CONTEXT || g == PLAN_ISLANDS) continue;
            for (int r = 0; r < x.w.world; r++) {
                const comm_cost *c = &plan_of(&x.p, r)->to[g];
                all += messages ? c->messages : c->sent, far += messages ? c->messages_far : c->sent_far;
            }
            snprintf(beside, sizeof beside, "of these %" PRId64 " between nodes", far);
            says_sent(from, 4, 16, name[g], all, beside, messages);
        }
    }
    close_plan(&x);
    drop_dir(dir);
}

// --- roles -----------------------------------------------------------------------------------------------------------

static void servers_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *more, *cluster, *says;
        int servers;
    } of[] = {
        {"[server]\ncount = 1\n[parallel]\nzero = 1\n", "1x4",
         "servers 1: the last rank runs no lanes and keeps masters and optimizer state; the others keep none\n", 1},
        {"[server]\ncount = 1\n[parallel]\nzero = 1\ntensor = 2\nslices = 2\n", "1x6",
         "servers 2: the last ranks run no lanes and keep masters and optimizer state; the others keep none\n", 2},
        {"[server]\ncount = 2\nweight = 0.5\n[parallel]\nzero = 2\n", "1x4",
         "servers 2: the last ranks run no lanes and keep masters and optimizer state; another keeps 0.5 of what one",
         2}};
    char *dir = rank_dir();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        printed x;
        size_t most[2] = {0};
        int n = 0;
        print_plan(&x, dir, of[i].more, of[i].cluster);
        says(x.text, "%s", of[i].says);
        for (int r = 0; r < x.w.world; r++) {
            size_t bytes = plan_bytes(plan_of(&x.p, r));
            bool serves = plan_of(&x.p, r)->lanes == 0;
            most[serves] = bytes > most[serves] ? bytes : most[serves];
            n += serves;
        }
        assert_int_equal(n, of[i].servers);
        assert_true(most[0] != most[1]);
        says(x.text, "    of a server      %16zu   %-36s %10s\n", most[1], "at most", human((double)most[1]));
        says(x.text, "    of another       %16zu   %-36s %10s\n", most[0], "at most", human((double)most[0]));
        close_plan(&x);
    }
    drop_dir(dir);
}

// The lanes that were dealt by hand, to each that computes; what the largest share waits for is idle.
static void deals_are_repeated(void **state) {
    (void)state;
    char *dir = rank_dir();
    printed x;
    print_plan(&x, dir, "[parallel]\ndeal = 3,1,8,4\n", "1x4");
    says(x.text, "lanes   16 on 4 ranks, dealt 3,1,8,4, at most 8 each: 50.0 %% of the time idle\n");
    close_plan(&x);
    print_plan(&x, dir, "[parallel]\npipeline = 2\ndeal = 12,4\n", "1x4");
    says(x.text, "lanes   16 on 2 pipelines, dealt 12,4, at most 12 each: 33.3 %% of the time idle\n");
    says(x.text, "stages  2 on 2 ranks, 1f1b, 12 micro-batches: ");
    close_plan(&x);
    print_plan(&x, dir, "[parallel]\npipeline = 2\ndeal = 4,12\n", "1x4");
    says(x.text, "stages  2 on 2 ranks, 1f1b, 12 micro-batches: ");
    close_plan(&x);
    drop_dir(dir);
}

// Blocks, bytes, and what is held at a time, of each stage of each rank.
static void stages_are_listed(void **state) {
    (void)state;
    static const char *const more[] = {"schedule = 1f1b\nstages = 6 2\n", "schedule = interleaved\nchunks = 2\n",
                                       "schedule = zb-v\nchunks = 2\n"};
    char *dir = rank_dir(), text[128];
    for (int i = 0; i < 3; i++) {
        printed x;
        int blocks = 0;
        double part[2];
        snprintf(text, sizeof text, "[parallel]\npipeline = 2\n%s", more[i]);
        print_plan(&x, dir, text, "1x2");
        for (int s = 0; s < 2; s++) {
            const plan_rank *p = plan_of(&x.p, s);
            char line[256];
            int n = snprintf(line, sizeof line, "  stage rank %-3d blocks", s);
            for (int k = 0; k < p->chunks; k++) {
                n += snprintf(line + n, sizeof line - (size_t)n, "%s %d", k ? "," : "", p->first[k]);
                if (p->last[k] > p->first[k]) n += snprintf(line + n, sizeof line - (size_t)n, "-%d", p->last[k]);
                blocks += p->last[k] - p->first[k] + 1;
            }
            n += snprintf(line + n, sizeof line - (size_t)n, "  %zu bytes  micro-batches held %d", plan_bytes(p),
                          p->held[0]);
            if (p->chunks > 1) snprintf(line + n, sizeof line - (size_t)n, " + %d, at once ", p->held[1]);
            says(x.text, "%s", line);
            const char *idle = strstr(strstr(x.text, line), " % idle");
            while (*--idle != ' ') {}
            part[s] = strtod(idle, NULL);
        }
        // of all the time, which is of as many ranks
        const char *whole = strstr(x.text, " micro-batches: ") + strlen(" micro-batches: ");
        assert_true(fabs(strtod(whole, NULL) - (part[0] + part[1]) / 2) < 0.11 && part[0] != part[1]);
        assert_int_equal(blocks, 8);
        close_plan(&x);
    }
    drop_dir(dir);
}

// --- stages of ZeRO --------------------------------------------------------------------------------------------------

// Each as a plan of its own has it: the fullest rank's memory, and what all ranks send. Of the first layout some ranks
// do what others do.
static void each_stage_of_zero_is_as_planned(void **state) {
    (void)state;
    static const struct {
        const char *more, *cluster;
        int own;
    } of[] = {{"", "4x4", 0}, {"pipeline = 2\n", "1x6", 1}, {"tensor = 2\nslices = 2\n", "2x4", 3}};
    char *dir = rank_dir(), more[128];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        printed x[4];
        size_t most[4] = {0}, least = SIZE_MAX;
        int64_t sent[4] = {0};
        for (int z = 0; z < 4; z++) {
            snprintf(more, sizeof more, "[parallel]\nzero = %d\n%s", z, of[i].more);
            print_plan(&x[z], dir, more, of[i].cluster);
            for (int r = 0; r < x[z].w.world; r++) {
                const plan_rank *p = plan_of(&x[z].p, r);
                most[z] = plan_bytes(p) > most[z] ? plan_bytes(p) : most[z], sent[z] += p->sent;
            }
            least = most[z] < least ? most[z] : least;
        }
        for (int z = 0; z < 4; z++) {
            char memory[32];
            snprintf(memory, sizeof memory, "%s", human((double)most[z]));
            says(x[of[i].own].text, "  %d %16zu %10s %10s%s%s\n", z, most[z], memory, human((double)sent[z]),
                 most[z] == least ? "   takes least" : "", z == of[i].own ? "   this run" : "");
        }
        for (int z = 0; z < 4; z++) close_plan(&x[z]);
    }
    drop_dir(dir);
}

// --- codes -----------------------------------------------------------------------------------------------------------

static int64_t most_of(const char *dir, const char *more) {
    config c;
    plan_world w;
    plan_ranks p;
    int64_t most = 0;
    rank_config(&c, dir, base, more);
    OK(plan_world_made(&w, &c, "1x4"));
    OK(plan_ranks_open(&p, &c, &w, true));
    for (int r = 0; r < 4; r++) most = plan_of(&p, r)->sent > most ? plan_of(&p, r)->sent : most;
    plan_ranks_close(&p), plan_world_close(&w);
    return most;
}

// With codes, without them, and while they begin with a quarter of each lane.
static void codes_are_compared(void **state) {
    (void)state;
    static const char sgd[] = "[optimizer]\ntype = sgd\ngrad_clip = 0\n[reduce]\n";
    char *dir = rank_dir(), more[256], first[256], coded[32], plain[32];
    printed x;
    snprintf(more, sizeof more, "%scompress = topk\ndensity = 0.01\ndensity_warmup = 10\n", sgd);
    snprintf(first, sizeof first, "%scompress = topk\ndensity = 0.25\n", sgd);
    print_plan(&x, dir, more, "1x4");
    snprintf(coded, sizeof coded, "%s", human((double)most_of(dir, more)));
    snprintf(plain, sizeof plain, "%s", human((double)most_of(dir, sgd)));
    says(x.text, "codes   topk, 0.01 of each lane: a rank sends %s a step, without them %s\n", coded, plain);
    says(x.text, "        until step 10 more, first a quarter of each lane: %s\n", human((double)most_of(dir, first)));
    close_plan(&x);
    print_plan(&x, dir, "[reduce]\ncompress = int8\ncompress_back = fp16\ncompress_span = 2\n", "1x4");
    says(x.text, "codes   int8 to owners, fp16 back, 2 lanes at once: a rank sends ");
    close_plan(&x);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wire_has_its_share), cmocka_unit_test(each_group_has_its_row),
        cmocka_unit_test(servers_are_counted),     cmocka_unit_test(deals_are_repeated),
        cmocka_unit_test(stages_are_listed),       cmocka_unit_test(each_stage_of_zero_is_as_planned),
        cmocka_unit_test(codes_are_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
