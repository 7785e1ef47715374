// test/test_facts.c: what follows from the files of a run's directory, rule by rule: what is gathered of each file (of
// the second event as of the first), which rule outweighs which, and where each limit is. (What is said of it is in
// test/test_facts_said.c; what damaged files are, in test/test_status.c.)
#include "test/support/facts.h"

#include "trainer/watch/rundir.h"

#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>

// --- what is judged --------------------------------------------------------------------------------------------------

// Of ranks 8 and 9 of a second node, which are no indices of their list.
static const char two_ranks[] =
    "{\"state\":\"training\",\"step\":412,\"began_step\":0,\"ranks\":[{\"rank\":8,\"host\":\"h8\",\"doing_s\":3},"
    "{\"rank\":9,\"host\":\"h9\",\"doing_s\":2}],\"alarms\":[%s]}";

// A run in which nothing is wrong. facts_release() it.
static facts well(const char *alarms) {
    char text[1024];
    snprintf(text, sizeof text, two_ranks, alarms);
    facts f = {.dir = "runs/none",
               .now = NOW,
               .locked = true,
               .began = true,
               .status = json_loads(text, 0, NULL),
               .fresh = true,
               .status_age = 0.5,
               .step = 412,
               .steps = 600,
               .step_age = 0.4,
               .p50 = 0.4,
               .p99 = 0.6,
               .gap = 5,
               .loss = 2,
               .checkpoint = 400,
               .failed_save = -1,
               .good_step = 410,
               .disk_free = 400e9,
               .disk_total = 500e9,
               .disk_left_s = NAN};
    assert_non_null(f.status);
    return f;
}

static void says(const verdict *v, int code, const char *headline, const char *why) {
    if (v->code != code || !strstr(v->headline, headline) || !strstr(v->why, why))
        fail_msg("%d, \"%s\", \"%s\"; expected %d, \"%s\", \"%s\"", v->code, v->headline, v->why, code, headline, why);
}

// For how long no step may come: by the watcher's word and without it, in the first step and in later ones.
static void how_old_a_step_may_be(void **state) {
    (void)state;
    static const struct {
        bool fresh;
        int began;  // at which step the process began
        double p99, gap, most;
        const char *text;
    } cases[] = {{true, 0, 0.6, 1000, 30, "30 s"},       {true, 0, 6, 1000, 30, "30 s"},
                 {true, 0, 20, 1000, 100, "1 m 40 s"},   {true, 412, 0.6, 1000, 300, "5 m 0 s"},
                 {true, 412, 80, 1000, 400, "6 m 40 s"}, {true, 411, 0.6, 1000, 30, "30 s"},
                 {true, 0, NAN, NAN, 30, "30 s"},        {false, 0, 0.6, 5, 60, "1 m 0 s"},
                 {false, 412, 0.6, 5, 60, "1 m 0 s"},    {false, 0, 20, 5, 100, "1 m 40 s"},
                 {false, 0, 20, 50, 150, "2 m 30 s"},    {false, 0, 0.6, 20, 60, "1 m 0 s"},
                 {false, 0, 0.6, 1200, 3600, "1 h 0 m"}, {false, 0, NAN, NAN, 60, "1 m 0 s"}};
    char why[128];
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int late = 0; late < 2; late++) {
            facts f = well("");
            f.fresh = cases[i].fresh, f.p99 = cases[i].p99, f.gap = cases[i].gap, f.step_age = cases[i].most + late;
            json_object_set_new(f.status, "began_step", json_integer(cases[i].began));
            verdict v = facts_judge(&f);
            snprintf(why, sizeof why, "; at most %s were expected", cases[i].text);
            says(&v, late, late ? "no step is finished" : f.fresh ? "training" : "running", late ? why : "");
            const char *host = rundir_text(v.suspect, "host");
            assert_string_equal(host, late && f.fresh ? "h8" : "");  // who has been at it longest, if that is known
            facts_release(&f);
        }
}

// An alarm names its rank by its number in the world. Of a hang on no known rank it is who has been at it longest.
static void who_is_waited_for(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        int rank;
        const char *host;
    } cases[] = {{"hang", 9, "h9"}, {"hang", 8, "h8"},     {"hang", -1, "h8"}, {"dead", 9, "h9"},
                 {"dead", 0, ""},   {"disk_full", -1, ""}, {"hang", 1, "h8"}};
    char alarm[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(
            alarm, sizeof alarm,
            "{\"kind\":\"%s\",\"rank\":%d,\"text\":\"a. Next: b\"},{\"kind\":\"stopped\",\"rank\":8,\"text\":\"c\"}",
            cases[i].kind, cases[i].rank);
        facts f = well(alarm);
        verdict v = facts_judge(&f);
        says(&v, 1, "", "a");
        assert_string_equal(v.next, "b");
        if (strcmp(rundir_text(v.suspect, "host"), cases[i].host) != 0)
            fail_msg("%s of rank %d", cases[i].kind, cases[i].rank);
        facts_release(&f);
    }
}

// When a disk is full, and a save that failed is the last one.
static void what_is_left_of_the_disk(void **state) {
    (void)state;
    static const struct {
        double total, free;
        int64_t failed, checkpoint;
        const char *headline;
    } cases[] = {{500e9, 1e9, -1, 400, "training"},
                 {500e9, 0.99e9, -1, 400, "the disk is full"},
                 {10e9, 0.2e9, -1, 400, "training"},
                 {10e9, 0.19e9, -1, 400, "the disk is full"},
                 {NAN, NAN, -1, 400, "training"},
                 {500e9, 400e9, 400, 400, "training"},
                 {500e9, 400e9, 410, 400, "the last checkpoint could not be written"},
                 {500e9, 400e9, 0, -1, "the last checkpoint could not be written"},
                 {500e9, 400e9, -1, -1, "training"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        facts f = well("");
        f.disk_total = cases[i].total, f.disk_free = cases[i].free, f.failed_save = cases[i].failed,
        f.checkpoint = cases[i].checkpoint;
        verdict v = facts_judge(&f);
        bool fine = strcmp(cases[i].headline, "training") == 0;
        says(&v, !fine, cases[i].headline, "");
        assert_string_equal(v.next, fine ? "nothing; lockstep tail runs/none" : "make room: df -h runs/none");
        facts_release(&f);
    }
}

static fact_event event_of(const char *kind, int64_t step) {
    fact_event e = {.step = step};
    snprintf(e.kind, sizeof e.kind, "%s", kind);
    snprintf(e.text, sizeof e.text, "%s at %d. Next: do %s", kind, (int)step, kind);
    return e;
}

// Of several troubles the gravest is said.
static void what_outweighs_what(void **state) {
    (void)state;
    static const char alarm[] = "{\"kind\":\"throttled\",\"rank\":8,\"text\":\"hot\"}";
    static const char *const order[] = {"a device is slowed down", "the run diverges", "no step is finished",
                                        "the disk is full", "the loss is far above what it was"};
    for (int first = 0; first < 5; first++) {
        facts f = well(first == 0 ? alarm : "");
        f.fresh = first == 0;  // that it diverges, a fresh watcher would say
        if (first <= 1) f.diverged = event_of("diverged", 411);
        if (first <= 2) f.step_age = 1000;
        if (first <= 3) f.disk_free = 0;
        f.ruined = event_of("ruined", 400);
        verdict v = facts_judge(&f);
        says(&v, 1, order[first], "");
        facts_release(&f);
    }
    facts f = well("");  // finite since
    f.fresh = false, f.diverged = event_of("diverged", 411), f.good_step = 412;
    verdict v = facts_judge(&f);
    says(&v, 0, "running", "");
    f.good_step = 411;
    v = facts_judge(&f);
    says(&v, 1, "the run diverges", "diverged at 411");
    assert_string_equal(v.next, "do diverged");
    facts_release(&f);
}

// Which life it is when no process is there, and what is said of it.
static void lives(void **state) {
    (void)state;
    static const struct {
        bool locked, began;
        const char *state, *end;
        int64_t step;
        run_life life;
        int code;
        const char *headline, *why, *next;
    } cases[] = {
        {true, true, "done", "stop", 600, LIFE_RUNS, 0, "done", "", "nothing; lockstep tail runs/none"},
        {false, false, "", "", 0, LIFE_NEVER, 2, "has not begun", "", "lockstep runs/none/config.ini"},
        {false, true, "done", "stop", 300, LIFE_DONE, 0, "has all its steps", "",
         "nothing; lockstep eval runs/none/config.ini"},
        {false, true, "training", "stop", 600, LIFE_DONE, 0, "has all its steps", "",
         "nothing; lockstep eval runs/none/config.ini"},
        {false, true, "training", "gave_up", 412, LIFE_DIVERGED, 2, "stopped itself", "gave_up at 412", "do gave_up"},
        {false, true, "diverged", "gave_up", 412, LIFE_DIVERGED, 2, "stopped itself", "gave_up at 412", "do gave_up"},
        {false, true, "stopped", "resume", 412, LIFE_STOPPED, 1, "stopped on request", "resume at 412",
         "lockstep runs/none/config.ini"},
        {false, true, "training", "stop", 412, LIFE_STOPPED, 1, "stopped on request", "stop at 412",
         "lockstep runs/none/config.ini"},
        {false, true, "", "forked", 412, LIFE_STOPPED, 1, "forked, and not started yet", "",
         "lockstep runs/none/config.ini"},
        {false, true, "failed", "resume", 412, LIFE_FAILED, 2, "failed", "resume at 412",
         "when that is mended: lockstep runs/none/config.ini"},
        {false, true, "training", "failed", 412, LIFE_FAILED, 2, "failed", "failed at 412",
         "when that is mended: lockstep runs/none/config.ini"},
        {false, true, "training", "resume", 412, LIFE_DIED, 2, "died", "it ended without a word",
         "lockstep runs/none/config.ini"},
        {false, true, "", "", 412, LIFE_DIED, 2, "died", "it ended without a word", "lockstep runs/none/config.ini"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        facts f = well("");
        f.locked = cases[i].locked, f.began = cases[i].began, f.step = cases[i].step,
        f.end = event_of(cases[i].end, 412);
        if (!*cases[i].end) f.end = (fact_event){.step = 0};
        json_object_set_new(f.status, "state", json_string(cases[i].state));
        verdict v = facts_judge(&f);
        if (v.life != cases[i].life) fail_msg("case %zu: life %d, expected %d", i, v.life, cases[i].life);
        says(&v, cases[i].code, cases[i].headline, cases[i].why);
        if (!*cases[i].why) assert_string_equal(v.why, "");
        assert_string_equal(v.next, cases[i].next);
        facts_release(&f);
    }
    facts f = well("");  // of which no settings are known
    f.locked = f.began = false, f.steps = 0;
    assert_string_equal(facts_judge(&f).next, "lockstep CONFIG.ini");
    facts_release(&f);
}

// --- what is gathered ------------------------------------------------------------------------------------------------

static void same_number(double got, double want, const char *name, const char *where) {
    if (got != want && !(isnan(got) && isnan(want))) fail_msg("%s: %s is %g, expected %g", where, name, got, want);
}

// Events one after the other, ten minutes apart, the last one a minute ago: of each thing it is the last that counts,
// and a run that goes on is another life.
static void the_last_word_counts(void **state) {
    (void)state;
    static const struct {
        const char *kinds;  // one letter each
        const char *diverged, *ruined, *end;
        int64_t diverged_at, failed_save, restarts, heals;
        int evictions;
    } cases[] = {
        // d diverged, r ruined, m mended, R resume, s stop, g gave_up, f failed, F forked, c checkpoint_failed, w
        // watch_failed, h healed, e evicted, B rollback
        {"w", "", "", "", 0, -1, 0, 0, 0},
        {"d", "diverged", "", "", 1, -1, 0, 0, 0},
        {"dd", "diverged", "", "", 2, -1, 0, 0, 0},
        {"dR", "", "", "resume", 0, -1, 1, 0, 0},
        {"dRd", "diverged", "", "resume", 3, -1, 1, 0, 0},
        {"r", "", "ruined", "", 0, -1, 0, 0, 0},
        {"rm", "", "", "", 0, -1, 0, 0, 0},
        {"rR", "", "", "resume", 0, -1, 1, 0, 0},
        {"rmr", "", "ruined", "", 0, -1, 0, 0, 0},
        {"dm", "diverged", "", "", 1, -1, 0, 0, 0},
        {"cRc", "", "", "resume", 0, 3, 1, 0, 0},
        {"cw", "", "", "", 0, 1, 0, 0, 0},
        {"sR", "", "", "resume", 0, -1, 1, 0, 0},
        {"Rs", "", "", "stop", 0, -1, 1, 0, 0},
        {"Rfw", "", "", "failed", 0, -1, 1, 0, 0},
        {"RRR", "", "", "resume", 0, -1, 3, 0, 0},
        {"FRg", "", "", "gave_up", 0, -1, 1, 0, 0},
        {"sF", "", "", "forked", 0, -1, 0, 0, 0},
        {"h", "", "", "", 0, -1, 0, 1, 0},
        {"dhh", "", "", "", 0, -1, 0, 2, 0},
        {"rh", "", "", "", 0, -1, 0, 1, 0},
        {"Rhfh", "", "", "failed", 0, -1, 1, 2, 0},
        {"dl", "diverged", "", "", 1, -1, 0, 0, 0},
        {"dlb", "", "", "", 0, -1, 0, 0, 0},
        {"rlbLl", "", "", "", 0, -1, 0, 0, 0},
        {"lbL", "", "", "", 0, -1, 0, 0, 0},
        {"e", "", "", "", 0, -1, 0, 0, 1},
        {"dhee", "", "", "", 0, -1, 0, 1, 2},
        {"drB", "", "", "", 0, -1, 0, 0, 0},
    };
    static const char *const names[128] = {['d'] = "diverged",     ['r'] = "ruined", ['m'] = "mended",
                                           ['R'] = "resume",       ['s'] = "stop",   ['g'] = "gave_up",
                                           ['f'] = "failed",       ['F'] = "forked", ['c'] = "checkpoint_failed",
                                           ['w'] = "watch_failed", ['h'] = "healed", ['l'] = "lie",
                                           ['b'] = "back",         ['L'] = "liar",   ['e'] = "evicted",
                                           ['B'] = "rollback"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *dir = make_dir(), text[2048], *to = text;
        int n = (int)strlen(cases[i].kinds);
        for (int k = 0; k < n; k++) {
            int ago = 1 + 10 * (n - 1 - k), minute = 12 * 60 + 6 - ago;
            to += sprintf(
                to,
                "{\"t\":\"event\",\"at\":\"2026-11-24T%02d:%02d:40Z\",\"kind\":\"%s\",\"step\":%d,\"text\":\"from word %d\"}\n",
                minute / 60, minute % 60, names[(int)cases[i].kinds[k]], k + 1, k + 1);
        }
        write_text(dir, "events.jsonl", text);
        facts f = gathered(dir);
        assert_string_equal(f.diverged.kind, cases[i].diverged);
        assert_string_equal(f.ruined.kind, cases[i].ruined);
        assert_string_equal(f.end.kind, cases[i].end);
        if (*f.diverged.kind) assert_int_equal(f.diverged.step, cases[i].diverged_at);
        if (f.failed_save != cases[i].failed_save || f.restarts != cases[i].restarts)
            fail_msg("%s: %d", cases[i].kinds, f.restarts);
        assert_int_equal(f.heals, cases[i].heals);
        assert_int_equal(f.evictions, cases[i].evictions);
        assert_string_equal(f.evicted.kind, cases[i].evictions ? "evicted" : "");
        int lies = 0;
        const char *said = strpbrk(cases[i].kinds, "lL") ? "lie" : "";
        for (const char *k = cases[i].kinds; *k; k++)
            lies += *k == 'l', said = *k == 'l' ? "lie" : *k == 'L' ? "liar" : said;
        assert_int_equal(f.lies, lies);
        assert_int_equal(f.rollbacks, strchr(cases[i].kinds, 'B') != NULL);
        assert_string_equal(f.lie.kind, said);
        assert_string_equal(f.forked, cases[i].kinds[0] == 'F' ? "word 1" : "");
        assert_int_equal(f.events, n < FACTS_EVENTS ? n : FACTS_EVENTS);
        for (int k = 0; k < f.events; k++) {
            assert_string_equal(f.event[k].kind, names[(int)cases[i].kinds[n - 1 - k]]);
            assert_true(f.event[k].step == n - k && fabs(f.event[k].age - 60 * (1 + 10 * k)) < 1e-6);
        }
        const char *last = strrchr(cases[i].kinds, 'R');
        if (last) assert_true(fabs(f.restart_age - 60 * (1 + 10 * (n - 1 - (last - cases[i].kinds)))) < 1e-6);
        else assert_true(isnan(f.restart_age));
        assert_true(f.began);
        facts_release(&f);
        drop_dir(dir);
    }
}

// Samples as tokens; steps that were skipped, or have no loss, are no good steps; without times, steps say how far
// records are apart.
static void steps_of_the_log(void **state) {
    (void)state;
    for (int samples = 0; samples < 2; samples++) {
        char *dir = make_dir(), text[2048], *to = text;
        const char *unit = samples ? "samples" : "tokens";
        static const char *const tails[] = {"\"loss\":3,\"skipped\":false", "\"loss\":2.5,\"skipped\":true",
                                            "\"loss\":null,\"skipped\":false"};
        for (int i = 0; i < 3; i++) {
            to += sprintf(to, "{\"t\":\"step\",\"step\":%d,%s,\"ms\":%d,\"%s\":9,\"%s_per_s\":%d}\n", 10 + 30 * i,
                          tails[i], 100 * (i + 1), unit, unit, 1000 + i);
            write_text(dir, "log.jsonl", text);
            facts f = gathered(dir);
            assert_true(f.step == 10 + 30 * i && f.good_step == 10 && f.rate == 1000 + i);
            assert_string_equal(f.unit, unit);
            assert_true(i == 2 ? isnan(f.loss) : f.loss == (i ? 2.5 : 3));
            assert_true(fabs(f.gap - (i == 0 ? 0 : 1e-3 * 100 * (i + 1) * 30)) < 1e-9);
            assert_true(fabs(f.p50 - 0.1 * (i == 2 ? 2 : 1)) < 1e-9 && fabs(f.p99 - 0.1 * (i + 1)) < 1e-9);
            facts_release(&f);
        }
        drop_dir(dir);
    }
    // ninety-nine of a hundred steps are not slower than p99
    char *dir = make_dir(), *text = malloc(20000), *to = text;
    for (int i = 1; i <= 200; i++)
        to += sprintf(to, "{\"t\":\"step\",\"step\":%d,\"loss\":1,\"ms\":%d}\n", i, 1 + (i * 7) % 200);
    write_text(dir, "log.jsonl", text);
    facts f = gathered(dir);
    assert_true(fabs(f.p50 - 0.1) < 1e-9 && fabs(f.p99 - 0.198) < 1e-9);
    facts_release(&f);
    drop_dir(dir);
    free(text);
}

// How old a status may be follows from how often it is written; one of a clock that is a little ahead is no other.
static void a_status_of_this_moment(void **state) {
    (void)state;
    static const struct {
        double every, age;
        bool fresh;
    } cases[] = {{1, 12, true}, {1, 12.5, false}, {30, 70, true}, {30, 70.5, false},
                 {0, 12, true}, {0, 12.5, false}, {1, -5, true},  {1, -5.5, false}};
    char *dir = make_dir();
    for (size_t i = 0; i < COUNT(cases); i++) {
        put_status(dir, "{\"every_s\":%g,\"time\":%.1f}", cases[i].every, NOW - cases[i].age);
        facts f = gathered(dir);
        if (f.fresh != cases[i].fresh || f.status_age != cases[i].age) fail_msg("case %zu: %g s old", i, f.status_age);
        facts_release(&f);
    }
    drop_dir(dir);
}

// What the watcher says of steps counts where it is newer; its trend of the disk where it has watched for ten minutes.
static void what_a_status_adds(void **state) {
    (void)state;
    static const char format[] =
        "{\"time\":%.1f,\"began\":%.1f,\"every_s\":1,\"state\":\"training\",\"step\":50,\"steps\":80,\"step_time\":1795521990,\"p50_ms\":200,"
        "\"p99_ms\":700,\"loss\":1.5,\"tokens_per_s\":77,\"unit\":\"sample\",\"disk\":{\"free_per_s\":-1000}}";
    char *dir = make_dir();
    for (int log = 0; log < 3; log++)  // none; one that is behind; one that went on
        for (int old = 0; old < 2; old++) {
            if (log)
                write_text(dir, "log.jsonl",
                           log == 1
                               ? "{\"t\":\"step\",\"step\":40,\"loss\":3,\"tokens\":1,\"tokens_per_s\":5,\"ms\":9}\n"
                               : "{\"t\":\"step\",\"step\":60,\"loss\":3,\"tokens\":1,\"tokens_per_s\":5,\"ms\":9}\n");
            put_status(dir, format, NOW - (old ? 500 : 1), NOW - 700);
            facts f = gathered(dir);
            bool own = !old || log < 2;  // the status is the last that is known
            assert_true(f.step == (own ? 50 : 60) && f.steps == 80 && f.loss == (own ? 1.5 : 3) &&
                        f.rate == (own ? 77 : 5));
            assert_string_equal(f.unit, log ? "tokens" : "samples");
            assert_true(fabs(f.p50 - (own ? 0.2 : 0.009)) < 1e-9 && fabs(f.p99 - (own ? 0.7 : 0.009)) < 1e-9);
            if (own) assert_true(f.step_age == 10);
            assert_true(fabs(f.eta_s - f.p50 * (own ? 30 : 20)) < 1e-9);
            if (old) assert_true(isnan(f.disk_left_s));
            else assert_true(fabs(f.disk_left_s - f.disk_free / 1000) < 1);
            facts_release(&f);
        }
    put_status(dir, format, NOW - 1, NOW - 599);
    facts f = gathered(dir);
    assert_true(isnan(f.disk_left_s));
    facts_release(&f);
    drop_dir(dir);
}

// A last checkpoint at which the log is not yet; of steps it is the newest that counts.
static void the_newest_checkpoint(void **state) {
    (void)state;
    char *dir = make_dir(), path[600];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/ckpt/step-%08d", dir, (int[]){90, 110, 100}[i]);
        OK(io_mkdirs(path));
        struct timespec at[2] = {{(time_t)NOW - 100 * (i + 1), 0}, {(time_t)NOW - 100 * (i + 1), 0}};
        assert_int_equal(utimensat(AT_FDCWD, path, at, 0), 0);
    }
    write_text(
        dir, "log.jsonl",
        "{\"t\":\"step\",\"step\":100,\"loss\":3,\"ms\":9}\n{\"t\":\"checkpoint\",\"step\":110,\"hash\":\"0a\"}\n"
        "{\"t\":\"checkpoint\",\"step\":100,\"hash\":\"0b\"}\n");
    facts f = gathered(dir);
    assert_true(f.checkpoint == 110 && f.step == 110 && f.checkpoint_age == 200);
    assert_string_equal(f.hash, "0a");
    facts_release(&f);
    drop_dir(dir);
}

// Fields of any object: what is absent, of another type or too large for a double is not known.
static void fields_of_objects(void **state) {
    (void)state;
    static const struct {
        const char *key;
        double real;
        int64_t whole;
        const char *text;
    } cases[] = {
        {"zero", 0, 0, ""},        {"minus", -7, -7, ""},  {"many", 8999999999999999, 8999999999999999, ""},
        {"too many", 9e15, 5, ""}, {"half", 2.5, 2, ""},   {"text", NAN, 5, "a"},
        {"true", NAN, 5, ""},      {"list", NAN, 5, ""},   {"null", NAN, 5, ""},
        {"none", NAN, 5, ""},      {"less", -9e15, 5, ""}, {"least", -8999999999999999, -8999999999999999, ""}};
    json_t *o = json_loads(
        "{\"zero\":0,\"minus\":-7,\"many\":8999999999999999,\"too many\":9000000000000000,\"half\":2.5,\"text\":\"a\",\"true\":true,"
        "\"list\":[1],\"null\":null,\"less\":-9e15,\"least\":-8999999999999999}",
        0, NULL);
    assert_non_null(o);
    for (size_t i = 0; i < COUNT(cases); i++) {
        double real = rundir_real(o, cases[i].key);
        if (!(real == cases[i].real || (isnan(real) && isnan(cases[i].real))) ||
            rundir_whole(o, cases[i].key, 5) != cases[i].whole ||
            strcmp(rundir_text(o, cases[i].key), cases[i].text) != 0)
            fail_msg("\"%s\": %g, %lld", cases[i].key, real, (long long)rundir_whole(o, cases[i].key, 5));
    }
    assert_true(isnan(rundir_real(NULL, "a")) && rundir_whole(NULL, "a", -1) == -1 && !*rundir_text(NULL, "a"));
    json_decref(o);
}

// A run holds its lock and its directory: also where the file was removed, it lives.
static void held_by_either(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        char *dir = make_dir(), path[600];
        snprintf(path, sizeof path, "%s/lock", dir);
        int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644),
            itself = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(file >= 0 && itself >= 0);
        if (which & 1) assert_int_equal(flock(file, LOCK_EX | LOCK_NB), 0);
        if (which & 2) assert_int_equal(flock(itself, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(rundir_locked(dir), which != 0);
        assert_int_equal(rundir_locked(dir), which != 0);  // it was only looked at
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rundir_locked(dir), which >= 2);
        assert_int_equal(flock(itself, LOCK_EX | LOCK_NB), 0);  // who looks holds nothing
        close(file), close(itself);
        drop_dir(dir);
    }
}

// The end of a file: whole lines of its last bytes, however many that are. The first line, however long the file is.
static void ends_of_files(void **state) {
    (void)state;
    char *dir = make_dir(), text[600] = "", *to = text;
    double changed;
    for (int i = 0; i < 50; i++) to += sprintf(to, "{\"n\":%d}\n", 100 + i);
    size_t all = (size_t)(to - text), line = all / 50;
    for (int half = 0; half < 2; half++) {
        if (half) strcpy(to, "{\"n\":1");
        write_text(dir, "a.jsonl", text);
        size_t size = strlen(text);
        for (size_t most = 1; most <= size + 2; most++) {
            char *end = rundir_end(dir, "a.jsonl", most, &changed);
            assert_non_null(end);
            // A line that begins where the bytes do can't be told from the rest of one.
            size_t shown = most >= size ? all : most > size - all ? (most - (size - all) - 1) / line * line : 0;
            if (shown && strlen(end) != shown)
                fail_msg("the last %zu of %zu bytes: %zu, expected %zu", most, size, strlen(end), shown);
            if (shown) assert_memory_equal(end, text + all - shown, shown);
            free(end);
        }
        json_t *o = rundir_first(dir, "a.jsonl");
        assert_true(rundir_whole(o, "n", -1) == 100);
        json_decref(o);
    }
    for (int long_text = 1; long_text <= 16000; long_text = long_text * 2 + 1) {  // a fork says all that differs
        char *line = malloc(20000);
        assert_non_null(line);
        sprintf(line, "{\"n\":7,\"text\":\"%0*d\"}\n{\"n\":8}\n", long_text, 0);
        write_text(dir, "c.jsonl", line);
        json_t *o = rundir_first(dir, "c.jsonl");
        assert_true(rundir_whole(o, "n", -1) == 7 && (int)strlen(rundir_text(o, "text")) == long_text);
        json_decref(o);
        free(line);
    }
    write_text(dir, "b.jsonl", "[1]\n{\"n\":5}\n");
    assert_true(!rundir_first(dir, "b.jsonl") && !rundir_first(dir, "none") && !rundir_end(dir, "none", 10, &changed));
    drop_dir(dir);
}

// Lines that are damaged, between which and before and after which there are whole ones.
static const struct {
    const char *text;
    size_t n;
} damage[] = {
#define DAMAGE(text) \
    { text, sizeof text - 1 }
    DAMAGE("\n"),
    DAMAGE("{\"t\":\"step\",\"step\":7,\"lo\n"),
    DAMAGE("{\"t\":\"step\",\"step\":7,\"loss\":9}{\"t\":\"step\"}\n"),
    DAMAGE("[{\"kind\":\"stop\"}]\n"),
    DAMAGE("null\n7\n\"stop\"\n"),
    DAMAGE("{\"kind\":\"stop\",\"text\":\"\xFF\",\"step\":7}\n"),
    DAMAGE("\0\0\0\0\0\0\0\n"),  // what a machine that lost its power may leave
    DAMAGE("{\"kind\":\"stop\",\"step\":7,\"text\":\"\0\"}\n"),
};

static void same_facts(const facts *f, const facts *want, const char *where) {
#define SAME(field) same_number((double)f->field, (double)want->field, #field, where)
    SAME(step), SAME(steps), SAME(step_age), SAME(p50), SAME(p99), SAME(gap), SAME(loss), SAME(rate), SAME(good_step),
        SAME(eta_s);
    SAME(failed_save), SAME(restarts), SAME(restart_age), SAME(events), SAME(diverged.step), SAME(ruined.step),
        SAME(end.step);
    for (int i = 0; i < want->events; i++) SAME(event[i].step), SAME(event[i].age);
#undef SAME
    assert_string_equal(f->unit, want->unit);
    assert_string_equal(f->forked, want->forked);
    assert_string_equal(f->end.kind, want->end.kind);
    assert_string_equal(f->ruined.kind, want->ruined.kind);
}

// A line that is damaged is passed over, wherever it stands: what the others say is known.
static void damaged_lines(void **state) {
    (void)state;
    static const char *const files[] = {"log.jsonl", "events.jsonl"};
    static const char *const lines[2][4] = {
        {"{\"t\":\"step\",\"step\":1,\"loss\":4,\"ms\":100,\"tokens\":5,\"tokens_per_s\":50,\"time\":1795521000}\n",
         "{\"t\":\"step\",\"step\":11,\"loss\":3,\"ms\":300,\"tokens\":50,\"tokens_per_s\":60,\"time\":1795521900}\n",
         "{\"t\":\"step\",\"step\":21,\"loss\":2,\"ms\":200,\"tokens\":70,\"tokens_per_s\":70,\"time\":1795521901}\n",
         "{\"t\":\"eval\"}\n"},
        {"{\"at\":\"2026-11-24T11:00:00Z\",\"kind\":\"forked\",\"step\":1,\"text\":\"from a\"}\n",
         "{\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":2,\"text\":\"b\"}\n",
         "{\"at\":\"2026-11-24T12:01:00Z\",\"kind\":\"checkpoint_failed\",\"step\":3,\"text\":\"c\"}\n",
         "{\"at\":\"2026-11-24T12:02:00Z\",\"kind\":\"ruined\",\"step\":4,\"text\":\"d\"}\n"}};
    char *dir = make_dir(), path[600], where[64];
    facts want = {.step = 0};
    write_text(dir, "config.ini", "[run]\nsteps = 100\n");
    for (int which = 0; which < 2; which++)
        for (int at = -1; at <= 4; at++)  // before which line; -1: nowhere
            for (size_t k = 0; k < (at < 0 ? 1 : COUNT(damage)); k++) {
                if (which == 1 && at == 0) continue;  // the first event tells of a fork by being the first
                for (int i = 0; i < 2; i++) {
                    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
                    FILE *f = fopen(path, "w");
                    assert_non_null(f);
                    for (int line = 0; line <= 4; line++) {
                        if (i == which && line == at) fwrite(damage[k].text, 1, damage[k].n, f);
                        if (line < 4) fputs(lines[i][line], f);
                    }
                    fclose(f);
                }
                facts f = gathered(dir);
                snprintf(where, sizeof where, "damage %zu before line %d of %s", k, at, files[which]);
                if (at >= 0) same_facts(&f, &want, where);
                else want = f;
                assert_true(f.step == 21 && f.events == FACTS_EVENTS && f.restarts == 1 && f.failed_save == 3);
                facts_release(&f);
            }
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_old_a_step_may_be),
        cmocka_unit_test(who_is_waited_for),
        cmocka_unit_test(what_is_left_of_the_disk),
        cmocka_unit_test(what_outweighs_what),
        cmocka_unit_test(lives),
        cmocka_unit_test(the_last_word_counts),
        cmocka_unit_test(steps_of_the_log),
        cmocka_unit_test(a_status_of_this_moment),
        cmocka_unit_test(what_a_status_adds),
        cmocka_unit_test(the_newest_checkpoint),
        cmocka_unit_test(fields_of_objects),
        cmocka_unit_test(held_by_either),
        cmocka_unit_test(ends_of_files),
        cmocka_unit_test(damaged_lines),
    };
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
