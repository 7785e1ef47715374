// test/test_diverged.c: what the losses of a run's steps say of it, when, and how often; and the advice, for each way
// in which checkpoints can be good, ruined, unproven, or gone.
#include "test/support/checkpoint.h"
#include "trainer/diverged.h"

#include <math.h>

// --- steps -----------------------------------------------------------------------------------------------------------

static const char letter[] = {
    [NEWS_NONE] = 0, [NEWS_RUINED] = 'r', [NEWS_MENDED] = 'm', [NEWS_DIVERGED] = 'd', [NEWS_GAVE_UP] = 'g'};

typedef struct course {
    config c;
    divergence d;
    run_progress at;
    char said[512];  // "d5 m9": what was said, and at which step
} course;

static void begin(course *x, int64_t bad_steps) {
    *x = (course){.at = {.loss = NAN, .least_loss = INFINITY, .sound_step = -1}};
    x->c.run.bad_steps = bad_steps;
}

// The steps that the letters say, each as often as its number says: "3. 5x": . near the lowest loss, ^ far above it, x
// skipped, n applied and not finite, and digits before it how often.
static void steps(course *x, const char *text) {
    for (char *end; *text; text = end) {
        long times = strtol(text, &end, 10);
        if (end == text) times = 1;
        char kind = *end++;
        while (*end == ' ') end++;
        for (; times > 0; times--) {
            double loss = kind == '.' ? 2 : kind == '^' ? 9 : kind == 'x' ? 2 : NAN;
            divergence_news news = divergence_step(&x->d, &x->at, &x->c, ++x->at.step, loss, kind != 'x');
            size_t n = strlen(x->said);
            if (news) snprintf(x->said + n, sizeof x->said - n, "%s%c%d", n ? " " : "", letter[news], (int)x->at.step);
        }
    }
}

static void news_come_once_and_again(void **state) {
    (void)state;
    static const struct {
        int64_t bad_steps;
        const char *course, *said;
        int64_t bad, far, sound;  // at the end
    } rows[] = {
        {0, "10.", "", 0, 0, 9},
        {0, ". 4x", "", 4, 4, 0},
        {0, ". 5x", "d6", 5, 5, 0},
        {0, ". 5n", "d6", 5, 5, 0},
        {0, ". 2x 3n 100x", "d6", 105, 105, 0},
        {0, "2. 4x . 4n . 4x", "", 4, 4, 11},
        {0, "2. 6x . 7x 2.", "d7 d14", 0, 0, 17},  // the second is counted from its own first step
        {0, "200x", "d5", 200, 200, -1},
        {3, ". 2x . 2x . 10x", "g10", 3, 3, 6},  // it stops before `diverged` would be reported
        {5, ". 4x . 5x", "g11", 5, 5, 5},
        {8, ". 20x", "d6 g9", 8, 8, 0},
        {8, ". 8x 2. 8x", "d6 g9", 8, 8, 0},  // what was queued is no longer counted
        {0, ". 49^", "", 0, 49, 0},
        {0, ". 50^", "r51", 0, 50, 0},
        {0, ". 300^", "r51", 0, 300, 0},
        {0, ". 49^ . 49^ . 49^", "", 0, 49, 100},
        {0, ". 60^ 5. 60^ 5.", "r51 m62 r116 m127", 0, 0, 130},
        {0, ". 50^ 3x 20^ .", "r51 m75", 0, 0, 74},
        {0, ". 46^ 4x ^", "r52", 0, 51, 0},      // a step without a loss counts, but has none to speak of
        {0, ". 46^ 5x ^", "d52 r53", 0, 52, 0},  // each for itself
        {0, ". 60^ 10x . 10x", "r51 d66 m72 d77", 10, 10, 71},
        {6, ". 60^ 5x . 6x", "r51 d66 m67 d72 g73", 6, 6, 66},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        course x;
        begin(&x, rows[i].bad_steps);
        steps(&x, rows[i].course);
        if (strcmp(x.said, rows[i].said) != 0)
            fail_msg("%s: said \"%s\", expected \"%s\"", rows[i].course, x.said, rows[i].said);
        if (x.at.bad_steps != rows[i].bad || x.d.far_steps != rows[i].far || x.at.sound_step != rows[i].sound)
            fail_msg("%s: %" PRId64 " bad, %" PRId64 " far, sound at %" PRId64, rows[i].course, x.at.bad_steps,
                     x.d.far_steps, x.at.sound_step);
    }
}

static void counters_say_what_was_seen(void **state) {
    (void)state;
    course x;
    begin(&x, 2);
    divergence_step(&x.d, &x.at, &x.c, 1, 3, true);
    assert_true(x.at.loss == 3 && x.at.least_loss == 3 && x.at.sound_step == 0);
    divergence_step(&x.d, &x.at, &x.c, 2, 4, true);
    assert_true(x.at.loss == 4 && x.at.least_loss == 3 && x.at.sound_step == 1);
    divergence_step(&x.d, &x.at, &x.c, 3, INFINITY, true);
    assert_true(isnan(x.at.loss) && x.at.least_loss == 3 && x.at.bad_steps == 1);
    divergence_step(&x.d, &x.at, &x.c, 4, 2.5, true);
    assert_true(x.at.loss == 2.5 && x.at.least_loss == 2.5 && x.at.bad_steps == 0 && x.at.sound_step == 3);
    divergence_step(&x.d, &x.at, &x.c, 5, -INFINITY, true);  // as low as it can be, and no loss
    assert_true(x.at.bad_steps == 1);
    divergence_step(&x.d, &x.at, &x.c, 6, 2.5, false);
    assert_true(x.d.gave_up == 6 && x.at.bad_steps == 2 && x.at.sound_step == 3);
    divergence_step(&x.d, &x.at, &x.c, 7, 1, true);
    assert_true(x.d.gave_up == 6 && x.at.bad_steps == 2 && x.at.loss == 2.5 && x.at.sound_step == 3);
    // a process that goes on from a checkpoint counts on
    x.d = (divergence){0};
    x.at.bad_steps = 1;
    assert_int_equal(divergence_step(&x.d, &x.at, &x.c, 8, 2, false), NEWS_GAVE_UP);
}

static void at_the_end(void **state) {
    (void)state;
    static const struct {
        const char *course;
        bool ruined;
    } rows[] = {{"3.", false},    {". ^", true},       {". ^ .", false},   {". ^ x", false}, {"x", false},
                {". 60^", false}, {". 60^ . ^", true}, {". 60^ .", false}, {"", false},      {". 60^ 2x 2^", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        course x;
        begin(&x, 0);
        steps(&x, rows[i].course);
        if (divergence_at_end(&x.d, &x.at) != rows[i].ruined) fail_msg("%s", rows[i].course);
        assert_false(divergence_at_end(&x.d, &x.at));
    }
}

static void how_many_are_too_many(void **state) {
    (void)state;
    static const struct {
        int compute;
        double scale;
        int64_t bad_steps, limit;
    } rows[] = {{FP32, 0, 50, 5},  {FP32, 0, 0, 5},   {FP32, 0, 3, 3},     {FP32, 0, 1, 1},
                {BF16, 0, 50, 5},  {FP16, 0, 50, 30}, {FP16, 0, 0, 30},    {FP16, 0, 29, 29},
                {FP16, 0, 31, 30}, {FP16, 0, 4, 4},   {FP16, 1024, 50, 5}, {FP16, 1, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config c = {.run.bad_steps = rows[i].bad_steps,
                    .precision = {.compute = rows[i].compute, .loss_scale = rows[i].scale}};
        if (diverged_limit(&c) != rows[i].limit) fail_msg("row %zu: %" PRId64, i, diverged_limit(&c));
    }
}

// --- advice ----------------------------------------------------------------------------------------------------------

typedef struct saved {
    int64_t step, bad;
    double loss, least;
    int64_t sound_step;
    int64_t best_step;  // 0: it was not evaluated
    double best_loss;
} saved;

enum { SAVED = 4 };

static void save(world *w, const saved *x, bool best) {
    fill(w, x->step, 0);
    w->at.bad_steps = x->bad, w->at.loss = x->loss, w->at.least_loss = x->least, w->at.sound_step = x->sound_step;
    w->at.best_step = x->best_step, w->at.best_loss = x->best_step ? x->best_loss : INFINITY;
    OK(ckpt_save(w->dir, &w->s, &w->at, 0, NULL));
    if (best) OK(ckpt_mark_best(w->dir, &w->s, x->step, NULL));
}

// Each text has to be there, in this order, and nothing of other steps.
static void advises(const diverged_run *r, const char *text) {
    char got[DIVERGED_TEXT];
    OK(diverged_advice(r, got));
    assert_string_equal(got, text);
}

#define NOT_FINITE "no finite loss or gradient in "
#define NEWEST "; the newest checkpoint from before is step "
#define RUINED_FAR ", but the loss was 2 before: these weights are ruined already"
#define RUINED_UNPROVEN ", but no loss after it was near that: these weights are ruined already"
#define TRAIN ". Next: lockstep train config.ini -o run.name=a-2 -o optimizer.lr=0.0001"
#define FORK(at) ". Next: lockstep fork @" at " a-2 -o optimizer.lr=0.0001"

static const struct {
    saved saved[SAVED];
    int best;  // the number of the one that is; -1: none
    int64_t first, last;
    double loss;
    int64_t sound_step;
    const char *text;
} cases[] = {
    {{{.step = 0}}, -1, 4, 8, NAN, -1, NOT_FINITE "steps 4 to 8; there is no checkpoint from before" TRAIN},
    {{{.step = 0}}, -1, 8, 8, NAN, -1, NOT_FINITE "step 8; there is no checkpoint from before" TRAIN},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 0, 0}},
     -1,
     5,
     9,
     NAN,
     4,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5)" FORK("4")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 0, 0}},
     -1,
     4,
     8,
     NAN,
     3,
     NOT_FINITE "steps 4 to 8" NEWEST "2 (loss 3)" FORK("2")},
    {{{2, 0, NAN, 2, 1, 0, 0}},
     -1,
     5,
     9,
     NAN,
     -1,
     NOT_FINITE "steps 5 to 9" NEWEST "2 (its loss is not known)" FORK("2")},
    // saved in bad steps, also in those of another time
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 1, 3, 2, 1, 0, 0}, {6, 0, 2.5, 2, 5, 0, 0}, {8, 2, NAN, 2, 5, 0, 0}},
     -1,
     7,
     11,
     NAN,
     6,
     NOT_FINITE "steps 7 to 11" NEWEST "6 (loss 2.5)" FORK("6")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 1, 3, 2, 1, 0, 0}},
     -1,
     7,
     11,
     NAN,
     2,
     NOT_FINITE "steps 7 to 11" NEWEST "2 (loss 3)" FORK("2")},
    // ruined before it was no longer finite
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 90, 2, 1, 0, 0}},
     -1,
     5,
     9,
     NAN,
     2,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 90)" RUINED_FAR "; step 2 is sound (loss 3)" FORK("2")},
    {{{2, 0, 3, 2, 1, 0, 0}, {3, 0, 2.1, 2, 2, 0, 0}, {4, 0, 80, 2, 2, 0, 0}, {6, 0, 90, 2, 2, 0, 0}},
     -1,
     7,
     9,
     NAN,
     3,
     NOT_FINITE "steps 7 to 9" NEWEST "6 (loss 90)" RUINED_FAR "; step 3 is sound (loss 2.1)" FORK("3")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 0, 0}},
     -1,
     5,
     9,
     NAN,
     3,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5)" RUINED_UNPROVEN "; step 2 is sound (loss 3)" FORK("2")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 0, 0}},
     -1,
     5,
     9,
     NAN,
     1,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5)" RUINED_UNPROVEN TRAIN},
    {{{4, 0, 90, 2, 3, 0, 0}}, -1, 5, 9, NAN, 3, NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 90)" RUINED_FAR TRAIN},
    // the best of all, whatever is newer; and one that is not from before, or good only by name
    {{{2, 0, 3, 2, 1, 2, 2.8}, {4, 0, 2.5, 2, 3, 0, 0}},
     0,
     5,
     9,
     NAN,
     4,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5); the best is step 2 (validation loss 2.8)" FORK("best")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 4, 2.8}},
     1,
     5,
     9,
     NAN,
     2,
     // it was measured
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5); the best is step 4 (validation loss 2.8)" FORK("best")},
    {{{2, 0, 3, 2, 1, 0, 0}, {5, 0, 2.5, 2, 3, 5, 2.8}},
     1,
     5,
     9,
     NAN,
     4,
     NOT_FINITE "steps 5 to 9" NEWEST "2 (loss 3)" FORK("2")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 4, 70}},
     1,
     5,
     9,
     NAN,
     4,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 2.5)" FORK("4")},
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 70, 2, 3, 4, 2.8}},
     1,
     5,
     9,
     NAN,
     4,
     NOT_FINITE "steps 5 to 9" NEWEST "4 (loss 70)" RUINED_FAR "; step 2 is sound (loss 3)" FORK("2")},
    // finite, but far above the lowest
    {{{2, 0, 3, 2, 1, 0, 0}, {4, 0, 2.5, 2, 3, 0, 0}},
     -1,
     5,
     54,
     40.5,
     4,
     "the loss of step 54 is 40.5, far above the lowest, 2" NEWEST "4 (loss 2.5)" FORK("4")},
};

// A name that no run has, in a directory that a shell would not read as it stands.
static void advice_is_of_what_is_there(void **state) {
    world *w = *state;
    char parent[300], base[200], text[DIVERGED_TEXT], path[IO_PATH];
    snprintf(base, sizeof base, "%.190s", w->dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config *c = calloc(1, sizeof *c);
        snprintf(parent, sizeof parent, "%s/it's %zu", base, i);
        snprintf(w->dir, sizeof w->dir, "%.230s/a", parent);
        OK(io_mkdirs(w->dir));
        for (int k = 0; k < SAVED && cases[i].saved[k].step; k++) save(w, &cases[i].saved[k], k == cases[i].best);
        c->optimizer.lr = 0.001, c->optimizer.type = OPTIMIZER_ADAMW;
        strcpy(c->run.name, "a"), snprintf(c->run.dir, sizeof c->run.dir, "%s", parent);
        // in the table a path is what stands after the run's directory: "config.ini", "@4"
        const char *want = cases[i].text, *next = strstr(want, ". Next: lockstep "), *arg = strchr(next + 17, ' ') + 1;
        size_t n = strcspn(arg, " ");
        snprintf(text, sizeof text, "%.*s'%s/it'\\''s %zu/a%s%.*s'%s", (int)(arg - want), want, base, i,
                 *arg == '@' ? "" : "/", (int)n, arg, arg + n);
        advises(&(diverged_run){c, w->dir, cases[i].first, cases[i].last, cases[i].loss, 2, cases[i].sound_step}, text);
        free(c);
    }
    strcpy(w->dir, base);
    // one that can't be read is none
    config *c = calloc(1, sizeof *c);
    c->optimizer.lr = 1, c->optimizer.type = OPTIMIZER_SGD;
    strcpy(c->run.name, "a"), strcpy(c->run.dir, base);
    snprintf(w->dir, sizeof w->dir, "%.190s/a", base);
    OK(io_mkdirs(w->dir));
    save(w, &(saved){2, 0, 3, 2, 1, 2, 2.8}, false), save(w, &(saved){4, 0, 2.5, 2, 3, 4, 2.7}, true);
    path_of(path, w, 4, "manifest.json");
    assert_int_equal(truncate(path, 100), 0);
    snprintf(path, sizeof path, "%.190s/a-2", base);
    OK(io_mkdirs(path));
    snprintf(path, sizeof path, "%.190s/a-3", base);
    OK(io_mkdirs(path));
    snprintf(text, sizeof text,
             NOT_FINITE "steps 5 to 9" NEWEST "2 (loss 3). Next: lockstep fork %.190s/a@2 a-4 -o optimizer.lr=0.1",
             base);
    advises(&(diverged_run){c, w->dir, 5, 9, NAN, 2, 4}, text);
    free(c);
    strcpy(w->dir, base);
}

// A tenth, and no more than most models of that optimizer take; and a name of full length leaves room for its number.
static void a_lower_rate(void **state) {
    world *w = *state;
    static const struct {
        int type;
        double lr;
        const char *said;
    } rows[] = {{OPTIMIZER_ADAMW, 1e-3, "=0.0001"}, {OPTIMIZER_ADAMW, 0.02, "=0.001"},
                {OPTIMIZER_ADAMW, 1000, "=0.001"},  {OPTIMIZER_SGD, 0.5, "=0.05"},
                {OPTIMIZER_SGD, 2, "=0.1"},         {OPTIMIZER_SGD, 0.01, "=0.001"},
                {OPTIMIZER_MUON, 0.5, "=0.001"},    {OPTIMIZER_MUON, 0.004, "=0.0004"},
                {OPTIMIZER_LARS, 50, "=5"},         {OPTIMIZER_LARS, 500, "=10"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        config *c = calloc(1, sizeof *c);
        char text[DIVERGED_TEXT], want[200];
        c->optimizer.lr = rows[i].lr, c->optimizer.type = rows[i].type;
        memset(c->run.name, 'n', sizeof c->run.name - 1);
        snprintf(c->run.dir, sizeof c->run.dir, "%s", w->dir);
        OK(diverged_advice(&(diverged_run){c, w->dir, 5, 9, NAN, INFINITY, -1}, text));
        snprintf(want, sizeof want, " -o run.name=%.*s-2 -o optimizer.lr%s", CONFIG_WORD - 12, c->run.name,
                 rows[i].said);
        if (!strstr(text, want)) fail_msg("%s: expected %s", text, want);
        free(c);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(news_come_once_and_again),
        cmocka_unit_test(counters_say_what_was_seen),
        cmocka_unit_test(at_the_end),
        cmocka_unit_test(how_many_are_too_many),
        TEST(advice_is_of_what_is_there),
        TEST(a_lower_rate),
    };
    return cmocka_run_group_tests_name("diverged", tests, NULL, NULL);
}
