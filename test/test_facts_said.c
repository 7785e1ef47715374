// test/test_facts_said.c: both forms of `lockstep status` say each fact that was gathered: which words follow from
// which numbers, and under which key of its JSON a fact stands. (How its lines are laid out is in test/test_status.c.)
#include "test/support/facts.h"

#include "trainer/watch/rundir.h"
#include "trainer/watch/status.h"

#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>

typedef struct house {
    char *dir, *text;
    int lock;
} house;

// What a status of these fields, and of a run that lives, comes to.
static void look_at(house *h, bool json) {
    size_t n;
    int code;
    free(h->text);
    h->text = NULL;
    FILE *f = open_memstream(&h->text, &n);
    OK(status_write(h->dir, NOW, json, f, &code));
    fclose(f);
}

static house a_house(void) {
    house h = {.dir = make_dir()};
    char path[600];
    snprintf(path, sizeof path, "%s/lock", h.dir);
    h.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(flock(h.lock, LOCK_EX | LOCK_NB), 0);
    return h;
}

static void leave_house(house *h) {
    close(h->lock);
    drop_dir(h->dir);
    free(h->text);
}

// Lines whose words follow from numbers: one of each form.
static void words_for_numbers(void **state) {
    (void)state;
    static const struct {
        const char *fields, *word;  // "!WORD": it does not say that
    } cases[] = {
        {"\"p99_ms\":600", "0 s ago (p99 600 ms)"},
        {"\"p99_ms\":999", "(p99 999 ms)"},
        {"\"p99_ms\":1500", "(p99 1.5 s)"},
        {"\"p99_ms\":9990", "(p99 9.99 s)"},
        {"\"p99_ms\":12000", "(p99 12 s)"},
        {"\"p99_ms\":90000", "(p99 1 m 30 s)"},
        {"\"p99_ms\":null", "!p99"},
        {"\"ranks\":[{\"rank\":0,\"watts\":300,\"median_watts\":310}]", "power     300 W of 1 device, median 310 W\n"},
        {"\"ranks\":[{\"rank\":8,\"watts\":300,\"median_watts\":310},{\"rank\":9,\"watts\":null,\"median_watts\":500}]",
         "power     300 W of 1 device, median 310 W\n"},
        {"\"ranks\":[{\"rank\":8,\"watts\":300,\"median_watts\":310},{\"rank\":9,\"watts\":100,\"median_watts\":400},"
         "{\"rank\":7,\"watts\":90,\"median_watts\":100}]",
         "power     490 W of 3 devices, median 810 W; rank 9: 100 W, median 400 W\n"},
        {"\"ranks\":[{\"rank\":0,\"watts\":null}]", "!power"},
        {"\"tokens_per_s\":2500000", "\nspeed     2.50M samples/s\n"},
        {"\"loss\":1.25,\"tokens_per_s\":null", "\nspeed     loss 1.2500\n"},
        {"\"steps\":51", "\nsaved     nothing yet; at risk: 50 steps\n"},
        {"\"step\":1,\"p50_ms\":2000", "\nsaved     nothing yet; at risk: 1 step (2 s)\n"},
        {"\"steps\":60,\"p50_ms\":2000,\"loss\":2", "\nspeed     loss 2.0000, done in 20 s (2026-11-24 12:07Z)\n"},
        {"\"alarms\":[{\"kind\":\"hang\",\"rank\":9,\"text\":\"x\"}],\"ranks\":[{\"rank\":9,\"host\":\"h9\",\"role\":\"stage 1\",\"device\":"
         "\"0000:41:00.0\",\"pid\":7,\"phase\":\"step\",\"doing\":\"forward\",\"number\":0,\"step\":51,\"doing_s\":31.4}]",
         "\nwaits for rank 9 (h9, stage 1), GPU 0000:41:00.0, pid 7: phase step, forward 0\n          of step 51 for 31 s\n"},
        {"\"alarms\":[{\"kind\":\"hang\",\"rank\":9,\"text\":\"x\"}],\"ranks\":[{\"rank\":9,\"host\":\"h9\",\"role\":\"\",\"device\":\"\","
         "\"pid\":7,\"phase\":\"save\",\"doing\":null,\"number\":3,\"step\":51,\"doing_s\":31}]",
         "\nwaits for rank 9 (h9), CPU, pid 7: phase save of step 51 for 31 s\n"},
    };
    house h = a_house();
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[2048];
        bool lacks = cases[i].word[0] == '!';
        snprintf(
            text, sizeof text,
            "{\"time\":%.1f,\"every_s\":1,\"state\":\"training\",\"step\":50,\"step_time\":%.1f,\"unit\":\"sample\",%s}",
            NOW - 0.5, NOW - 0.25, cases[i].fields);
        // The last of two equal keys counts, so that a case may have another step.
        write_text(h.dir, "status.json", text);
        look_at(&h, false);
        if (!strstr(h.text, cases[i].word + lacks) != lacks)
            fail_msg("%s: \"%s\" in:\n%s", cases[i].fields, cases[i].word, h.text);
    }
    leave_house(&h);
}

static void same_real(const json_t *o, const char *key, double want) {
    double got = rundir_real(o, key);
    if (!json_object_get(o, key) || !(got == want || (isnan(got) && !isfinite(want))))
        fail_msg("\"%s\": %g, expected %g", key, got, want);
}

static void same_text(const json_t *o, const char *key, const char *want) {
    if (strcmp(rundir_text(o, key), want) != 0)
        fail_msg("\"%s\": \"%s\", expected \"%s\"", key, rundir_text(o, key), want);
}

// The object has every fact under its own key: those of files in which no two numbers are alike, and where nothing is
// known null.
static void every_fact_is_under_its_key(void **state) {
    (void)state;
    for (int known = 0; known < 2; known++) {
        house h = a_house();
        char path[600], text[1024];
        snprintf(path, sizeof path, "%s/ckpt/step-%08d", h.dir, 40);
        if (known) {
            OK(io_mkdirs(path));
            snprintf(
                text, sizeof text,
                "{\"time\":%.1f,\"every_s\":1,\"began\":1,\"state\":\"training\",\"step\":50,\"steps\":80,\"step_time\":%.1f,\"p50_ms\":200,"
                "\"p99_ms\":700,\"disk\":{\"free_per_s\":-1000},\"ranks\":[{\"rank\":9,\"pid\":4}],"
                "\"alarms\":[{\"kind\":\"stopped\",\"rank\":9,\"text\":\"w. Next: n\"},{\"kind\":\"throttled\",\"rank\":9,\"text\":\"u\"}]}",
                NOW - 0.5, NOW - 3);
            write_text(h.dir, "status.json", text);
            write_text(h.dir, "log.jsonl",
                       "{\"t\":\"step\",\"step\":45,\"loss\":1.5,\"tokens\":5,\"tokens_per_s\":77,\"ms\":9}\n"
                       "{\"t\":\"checkpoint\",\"step\":40,\"hash\":\"0a0b\"}\n");
            write_text(h.dir, "events.jsonl",
                       "{\"at\":\"2026-11-24T12:00:40Z\",\"kind\":\"resume\",\"step\":2,\"text\":\"a\"}\n"
                       "{\"at\":\"2026-11-24T12:05:40Z\",\"kind\":\"hang\",\"step\":3,\"text\":\"b\"}\n");
        }
        facts f = gathered(h.dir);
        verdict v = facts_judge(&f);
        look_at(&h, true);
        json_t *o = json_loads(h.text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(o);
        same_text(o, "t", "verdict"), same_text(o, "life", "runs"),
            same_text(o, "verdict", known ? "attention" : "fine");
        same_text(o, "says", v.headline), same_text(o, "why", known ? "w" : ""),
            same_text(o, "next", known ? "n" : v.next);
        same_text(o, "dir", h.dir), same_text(o, "unit", known ? "tokens" : "");
        same_real(o, "code", known), same_real(o, "step", known ? 50 : 0), same_real(o, "steps", known ? 80 : NAN);
        same_real(o, "step_age_s", known ? 3 : NAN), same_real(o, "p50_s", known ? f.p50 : NAN),
            same_real(o, "p99_s", known ? f.p99 : NAN);
        same_real(o, "loss", known ? 1.5 : NAN), same_real(o, "rate", known ? 77 : NAN),
            same_real(o, "eta_s", known ? f.eta_s : NAN);
        same_real(o, "checkpoint_step", known ? 40 : NAN), same_real(o, "steps_at_risk", known ? 10 : 0);
        same_real(o, "status_age_s", known ? 0.5 : NAN), same_real(o, "restarts_24h", known);
        same_real(o, "checkpoint_age_s", f.checkpoint_age);
        assert_true(!known || (fabs(f.p99 - 0.7) < 1e-9 && fabs(f.p50 - 0.2) < 1e-9 && fabs(f.eta_s - 6) < 1e-9));
        assert_true(json_is_true(json_object_get(o, "status_used")) == known && rundir_real(o, "disk_free") > 0);
        assert_true(known ? rundir_real(o, "disk_full_in_s") * 1000 > 0.9 * rundir_real(o, "disk_free")
                          : isnan(rundir_real(o, "disk_full_in_s")));
        if (known) same_text(o, "checkpoint_hash", "0a0b");
        else
            assert_true(json_is_null(json_object_get(o, "checkpoint_hash")) &&
                        json_is_null(json_object_get(o, "waits_for")));
        if (known) {
            const json_t *events = json_object_get(o, "events"), *alarms = json_object_get(o, "alarms");
            same_real(json_object_get(o, "waits_for"), "pid", 4);
            assert_true(json_array_size(events) == 2 && json_array_size(alarms) == 2);
            for (size_t i = 0; i < 2; i++) {
                const json_t *e = json_array_get(events, i);
                same_text(e, "kind", i ? "resume" : "hang"), same_text(e, "text", i ? "a" : "b");
                same_real(e, "step", i ? 2 : 3), same_real(e, "age_s", i ? 360 : 60);
                same_text(json_array_get(alarms, i), "kind", i ? "throttled" : "stopped");
            }
        }
        json_decref(o);
        facts_release(&f);
        leave_house(&h);
    }
}

// What a watcher said long ago is no word of now: its age is told, and nothing else of it is used.
static void a_word_of_long_ago(void **state) {
    (void)state;
    house h = a_house();
    put_status(
        h.dir,
        "{\"time\":%.1f,\"step_time\":%.1f,\"every_s\":1,\"step\":5,\"state\":\"training\",\"disk\":{\"free_per_s\":-1000},"
        "\"ranks\":[{\"rank\":0,\"watts\":7}],\"alarms\":[{\"kind\":\"hang\",\"rank\":0,\"text\":\"x\"}]}",
        NOW - 50, NOW - 51);
    look_at(&h, true);
    json_t *o = json_loads(h.text, 0, NULL);
    assert_true(json_is_false(json_object_get(o, "status_used")) && json_array_size(json_object_get(o, "alarms")) == 0);
    assert_true(json_is_null(json_object_get(o, "disk_full_in_s")) && json_is_null(json_object_get(o, "waits_for")));
    same_real(o, "status_age_s", 50), same_real(o, "step", 5), same_text(o, "verdict", "fine");
    json_decref(o);
    for (int ahead = 4; ahead <= 6; ahead += 2) {  // of a clock that is ahead by more than a little it is told, too
        put_status(h.dir, "{\"time\":%.1f,\"every_s\":1,\"step\":%g,\"state\":\"training\"}", NOW + ahead, 5);
        look_at(&h, false);
        assert_int_equal(strstr(h.text, "status.json is 6 s in the future: clocks differ") != NULL, ahead == 6);
    }
    leave_house(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_for_numbers),
        cmocka_unit_test(every_fact_is_under_its_key),
        cmocka_unit_test(a_word_of_long_ago),
    };
    return cmocka_run_group_tests_name("facts_said", tests, NULL, NULL);
}
