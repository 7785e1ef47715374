// test/test_runlog_known.c: what is known of a run from its log, however the log came to be as it is: resumed, begun
// anew, logged again, polled as it grew or read at once.
#include "test/support/runlog.h"

#include <sys/stat.h>

// --- the same as read at once ----------------------------------------------------------------------------------------

static void same_sheet(const sheet *a, const sheet *b, const char *name) {
    if (a->used != b->used || a->width != b->width || a->count != b->count)
        fail_msg("%s: %d of %g, %d of %g", name, a->used, a->width, b->used, b->width);
    for (int c = 0; c < a->count; c++)
        for (int i = 0; i < SERIES_BUCKETS; i++) {
            const bucket *x = sheet_bucket(a, c, i), *y = sheet_bucket(b, c, i);
            if (x->n != y->n || x->least != y->least || x->most != y->most ||
                fabs(x->sum - y->sum) > 1e-9 * fabs(y->sum))
                fail_msg("%s, curve %d, bucket %d: %lld of %g, %lld of %g", name, c, i, (long long)x->n, x->sum,
                         (long long)y->n, y->sum);
        }
}

static void same(double a, double b, const char *name) {
    if (a != b && !(isnan(a) && isnan(b))) fail_msg("%s: %.9g, read at once %.9g", name, a, b);
}

// However its files came to be as they are: what is known of them is what one knows who reads them now.
static void same_as_fresh(const runlog *r, const char *dir) {
    runlog *f = open_log(dir);
    same_sheet(&r->steps, &f->steps, "steps"), same_sheet(&r->early, &f->early, "early"),
        same_sheet(&r->seconds, &f->seconds, "seconds");
    for (int c = 0; c < SPREAD_COLUMNS; c++) {
        assert_memory_equal(r->rate.count[c], f->rate.count[c], sizeof r->rate.count[c]);
        assert_memory_equal(r->mfu.count[c], f->mfu.count[c], sizeof r->mfu.count[c]);
    }
    assert_memory_equal(&r->heat, &f->heat, sizeof r->heat);
#define SAME(field) same((double)r->field, (double)f->field, #field)
    SAME(records), SAME(first_step), SAME(last_step), SAME(skipped), SAME(first_time), SAME(last_time), SAME(trained_s),
        SAME(loss);
    SAME(lowest_loss), SAME(units), SAME(lowest_step), SAME(eval_loss), SAME(best), SAME(best_step), SAME(evals),
        SAME(hash_step);
    SAME(measured), SAME(samples), SAME(events_seen), SAME(marks), SAME(rank_step), SAME(rank_count);
#undef SAME
    assert_string_equal(r->unit, f->unit);
    assert_string_equal(r->rate_key, f->rate_key);
    assert_string_equal(r->hash, f->hash);
    for (int64_t s = r->samples > RUNLOG_SAMPLES ? r->samples - RUNLOG_SAMPLES : 0; s < r->samples; s++) {
        assert_int_equal(r->sample[s % RUNLOG_SAMPLES].step, f->sample[s % RUNLOG_SAMPLES].step);
        assert_string_equal(r->sample[s % RUNLOG_SAMPLES].text, f->sample[s % RUNLOG_SAMPLES].text);
    }
    for (int64_t e = r->events_seen > RUNLOG_EVENTS ? r->events_seen - RUNLOG_EVENTS : 0; e < r->events_seen; e++)
        assert_int_equal(r->event[e % RUNLOG_EVENTS].step, f->event[e % RUNLOG_EVENTS].step);
    for (int i = 0; i < r->marks; i++) assert_int_equal(r->mark[i].step, f->mark[i].step);
    runlog_close(f);
}

static void poll_and_compare(runlog *r, const char *dir) {
    OK(runlog_poll(r));
    same_as_fresh(r, dir);
}

// All that a run logs at this step.
static void log_all(const char *dir, int step, const char *unit, double loss) {
    char text[4096], *to = text;
    to += sprintf(
        to,
        "{\"t\":\"step\",\"step\":%d,\"loss\":%.9g,\"grad_norm\":%g,\"mfu\":%g,\"skipped\":%s,\"%ss\":%d,\"ms\":%g,\"%ss_per_s\":%g,\"time\":%.3f%s}\n",
        step, loss, 1.0 / step, 0.4 + 1e-4 * step, step % 7 ? "false" : "true", unit, 64 * step, 100.0 + step % 3, unit,
        640.0 + step, 1.7e9 + 0.1 * step, step % 5 ? "" : ",\"hash\":\"00ff\"");
    if (step % 10 == 0) to += sprintf(to, "{\"t\":\"eval\",\"step\":%d,\"loss\":%g,\"acc\":0.5}\n", step, loss + 0.1);
    if (step % 20 == 0)
        to += sprintf(
            to,
            "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"a\",\"text\":\"%d\"}\n{\"t\":\"checkpoint\",\"step\":%d,\"hash\":\"%04x\"}\n",
            step, step, step, step);
    if (step % 4 == 0)
        to += sprintf(
            to,
            "{\"t\":\"power\",\"step\":%d,\"devices\":[{\"rank\":0,\"watts\":%d},{\"rank\":1,\"watts\":300}],\"joules_per_%s\":0.5}\n",
            step, 200 + step % 50, unit);
    if (step % 8 == 0)
        sprintf(to, "{\"t\":\"ranks\",\"step\":%d,\"steps\":8,\"compute_ms\":[%d,20],\"data_ms\":[1,1]}\n", step,
                20 + step % 5);
    append(dir, "log.jsonl", text);
    sprintf(text, "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"k\",\"step\":%d,\"text\":\"x\"}\n",
            step);
    if (step % 3 == 0) append(dir, "events.jsonl", text);
    sprintf(
        text,
        "{\"t\":\"machine\",\"time\":%d,\"disk_free\":%d,\"ranks\":[{\"rank\":0,\"watts\":200,\"watts_max\":250}]}\n",
        1700000000 + 10 * step, 1000000 - step);
    append(dir, "machine.jsonl", text);
}

static int64_t bytes_of(const char *dir, const char *name) {
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

// A run that is stopped and goes on, again and again: its log is cut back to the checkpoint, or begins anew with other
// units, or isn't cut at all. Who has read it as it grew knows what one knows who reads it at the end.
static void resumes(void **state) {
    char *dir = make_dir();
    (void)state;
    append(dir, "log.jsonl", "");
    runlog *r = open_log(dir);
    int step = 0;
    for (int life = 0; life < 8; life++) {
        int64_t at = 0, from = step;
        for (int i = 0; i < 130; i++) {
            step++;
            log_all(dir, step, life == 4 ? "sample" : "token", 5.0 / (step + life));
            if (step % 40 == 0 && i > 20) at = bytes_of(dir, "log.jsonl"), from = step;
            if (i % (5 + life) == 0) poll_and_compare(r, dir);
        }
        poll_and_compare(r, dir);
        assert_int_equal(r->log.damaged, 0);
        step = (int)from;
        if (life == 3 || life == 4) cut(dir, "log.jsonl", 0), step = 0;
        else if (life == 5) cut(dir, "log.jsonl", at), cut(dir, "events.jsonl", 0), cut(dir, "machine.jsonl", 0);
        else cut(dir, "log.jsonl", at);
        if (life % 2 || life == 4) poll_and_compare(r, dir);
    }
    runlog_close(r);
    drop_dir(dir);
}

// Steps that are logged again add nothing, the last one neither; those after them do.
static void logged_again(void **state) {
    (void)state;
    for (int polled = 0; polled < 2; polled++) {
        char *dir = make_dir();
        append(dir, "log.jsonl", "");
        runlog *r = open_log(dir);
        for (int i = 1; i <= 10; i++) append(dir, "log.jsonl", step_line(i, 2));
        if (polled) OK(runlog_poll(r));
        append(dir, "log.jsonl", step_line(10, 50));
        if (polled) poll_and_compare(r, dir);
        for (int i = 8; i <= 12; i++) append(dir, "log.jsonl", step_line(i, i > 10 ? 4 : 60));
        poll_and_compare(r, dir);
        bucket all = sheet_total(&r->steps, CURVE_LOSS);
        assert_true(all.n == 12 && all.sum == 28 && all.most == 4);
        assert_true(r->records == 12 && r->last_step == 12 && r->units == 12 * 64 && r->log.damaged == 4);
        assert_true(fabs(r->trained_s - 0.12) < 1e-12);
        assert_int_equal(spread_count(&r->rate, 0, SPREAD_COLUMNS), 12);
        runlog_close(r);
        drop_dir(dir);
    }
}

// Lines that are damaged are counted and passed over, wherever they stand in each of the files.
static void damaged_anywhere(void **state) {
    static const char *const files[] = {"log.jsonl", "events.jsonl", "machine.jsonl"};
    static const char bad[] =
        "{\"t\":\"step\",\"time\":1,\"step\":3,\n[{\"kind\":\"k\"}]\n\0\0\0\n{\"kind\":\"\0\",\"t\":\"step\",\"step\":9}\nnull\n"
        "{\"t\":\"step\",\"step\":5}{}\n\n";
    enum { DAMAGED = 6, STEPS = 40 };  // an empty line is no line
    char *dir = make_dir(), path[1024], *text;
    size_t n;
    (void)state;
    for (int i = 1; i <= STEPS; i++) log_all(dir, i, "token", 5.0 / i);
    for (int k = 0; k < 3; k++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[k]);
        OK(io_read_file(path, 1 << 20, &text, &n));
        for (int place = 0; place < 4; place++) {
            size_t at = place == 0 ? 0 : place == 3 ? n : n * (size_t)place / 3;
            while (at > 0 && text[at - 1] != '\n') at--;
            FILE *f = fopen(path, "w");
            assert_true(f && fwrite(text, 1, at, f) == at && fwrite(bad, 1, sizeof bad - 1, f) == sizeof bad - 1);
            assert_true(fwrite(text + at, 1, n - at, f) == n - at && fclose(f) == 0);
            runlog *r = open_log(dir);
            assert_int_equal((k == 0 ? &r->log : k == 1 ? &r->events : &r->machine)->damaged, DAMAGED);
            OK(io_write_file(path, text, n, NULL));
            same_as_fresh(r, dir);
            runlog_close(r);
        }
        free(text);
    }
    drop_dir(dir);
}

// --- what is known of a run ------------------------------------------------------------------------------------------

static void line_of(const char *dir, const char *text) {
    append(dir, "log.jsonl", text);
    append(dir, "log.jsonl", "\n");
}

// Of a log with one step in ten, of a run that went on at step 5000; by its steps' times, and by the clock.
static void times_of_steps(void **state) {
    (void)state;
    for (int clock = 0; clock < 2; clock++) {
        char *dir = make_dir(), line[256];
        for (int i = 0; i < 5; i++) {
            int n = sprintf(
                line, "{\"t\":\"step\",\"step\":%d,\"loss\":%s,\"mfu\":%s,\"ms\":%s,\"skipped\":%s,\"tokens\":%s",
                5010 + 10 * i,
                i == 3   ? "null"
                : i == 1 ? "1.5"
                : i == 2 ? "1.5"
                         : "2",
                i == 4 ? "null" : "0.25", i == 2 ? "null" : "100", i == 3 ? "true" : "false", i == 4 ? "null" : "77");
            if (clock) n += sprintf(line + n, ",\"time\":%d", 1000 + 2 * i);
            sprintf(line + n, "}");
            line_of(dir, line);
        }
        runlog *r = open_log(dir);
        assert_true(r->first_step == 5010 && r->last_step == 5050 && r->records == 5 && r->measured == clock);
        assert_true(fabs(r->trained_s - 3.1) < 1e-9);  // one step of 0.1 s, and three times ten
        for (int i = 0; i < 5; i++) {
            static const double took[5] = {0.1, 1.1, 1.1, 2.1, 3.1};
            double want = clock ? 0.1 + 2 * i : took[i],
                   got = mean_at(r, CURVE_ELAPSED, (int)((5009 + 10 * i) / r->steps.width));
            if (fabs(got - want) > 1e-9) fail_msg("record %d: %g s, expected %g", i, got, want);
        }
        if (clock) assert_true(fabs(r->first_time - 999.9) < 1e-9 && r->last_time == 1008);
        else assert_true(isnan(r->first_time) && isnan(r->last_time));
        assert_true(r->loss == 2 && r->lowest_loss == 1.5 && r->lowest_step == 5020 && r->skipped == 1);
        assert_int_equal(r->units, 77);  // the last that was known
        assert_int_equal(spread_count(&r->mfu, 0, SPREAD_COLUMNS), 4);
        assert_true(fabs(spread_quantile(&r->mfu, 0, SPREAD_COLUMNS, 0.5) - 0.25) < 0.25 / 50);
        bucket all = sheet_total(&r->steps, CURVE_LOSS);
        assert_true(all.n == 4 && all.sum == 7);
        line_of(dir, "{\"t\":\"step\",\"step\":5060,\"loss\":null,\"ms\":100}");
        OK(runlog_poll(r));
        assert_true(isnan(r->loss) && r->lowest_loss == 1.5);  // it says now that it has none
        runlog_close(r);
        drop_dir(dir);
    }
}

static void evaluations(void **state) {
    char *dir = make_dir();
    (void)state;
    line_of(
        dir,
        "{\"t\":\"eval\",\"step\":0,\"loss\":3,\"accuracy\":0.1,\"bits_per_byte\":0.2,\"acc\":0.3,\"acc_norm\":0.4}");
    line_of(dir, "{\"t\":\"eval\",\"step\":10,\"loss\":2}");
    line_of(dir, "{\"t\":\"eval\",\"step\":20,\"loss\":2}");
    line_of(dir, "{\"t\":\"eval\",\"step\":30,\"loss\":null}");
    line_of(dir, "{\"t\":\"eval\",\"loss\":1}");
    line_of(dir, "{\"t\":\"sample\",\"step\":0,\"prompt\":\"a\",\"text\":\"b\"}");  // before the first step
    runlog *r = open_log(dir);
    assert_true(r->samples == 1 && r->sample[0].step == 0);
    assert_true(r->evals == 3 && r->eval_loss == 2 && r->best == 2 && r->best_step == 10 && r->records == 0);
    static const double first[] = {3, 0.1, 0.2, 0.3, 0.4};
    for (int k = 0; k < 5; k++) {
        bucket all = sheet_total(&r->steps, CURVE_EVAL + k);
        assert_true(all.n == (k ? 1 : 3) && fabs(all.sum - (k ? first[k] : 7)) < 1e-12);
    }
    assert_int_equal(sheet_total(&r->early, EARLY_EVAL).n, 3);
    // of a run that went on: it knows better
    line_of(dir, "{\"t\":\"eval\",\"step\":40,\"loss\":2.5,\"best\":1.5,\"best_step\":5}");
    OK(runlog_poll(r));
    assert_true(r->evals == 4 && r->eval_loss == 2.5 && r->best == 1.5 && r->best_step == 5);
    line_of(dir, "{\"t\":\"eval\",\"step\":50,\"loss\":1.75}");
    OK(runlog_poll(r));
    assert_true(r->eval_loss == 1.75 && r->best == 1.5 && r->best_step == 5);
    runlog_close(r);
    drop_dir(dir);
}

// The newest samples and events; marks over all of the run, the last one always; the newest hash of a step or a
// checkpoint.
static void the_newest(void **state) {
    char *dir = make_dir(), line[256];
    (void)state;
    append(dir, "log.jsonl", "");
    runlog *r = open_log(dir);
    for (int i = 1; i <= 1000; i++) {
        sprintf(line, "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"k%d\",\"step\":%d,\"text\":\"x\"}\n",
                i, i);
        append(dir, "events.jsonl", line);
        sprintf(line, "{\"t\":\"sample\",\"step\":%d,\"prompt\":\"p%d\",\"text\":\"t%d\"}", i, i, i);
        if (i % 50 == 0) line_of(dir, line);
        OK(runlog_poll(r));
        // also where older ones just went
        for (int k = 0; k < 2 && k < i; k++) assert_int_equal(r->mark[r->marks - 1 - k].step, i - k);
        if (i % 100) continue;
        char kind[16], text[16];
        assert_true(r->events_seen == i && r->samples == i / 50 && r->marks <= RUNLOG_MARKS);
        for (int k = 0; k < RUNLOG_EVENTS; k++) assert_int_equal(r->event[(i - 1 - k) % RUNLOG_EVENTS].step, i - k);
        for (int k = 0; k < RUNLOG_SAMPLES && k < i / 50; k++) {
            const runlog_sample *s = &r->sample[(i / 50 - 1 - k) % RUNLOG_SAMPLES];
            sprintf(text, "t%d", i - 50 * k);
            assert_string_equal(s->text, text);
        }
        sprintf(kind, "k%d", i);
        assert_string_equal(r->mark[r->marks - 1].kind, kind);
        for (int k = 0; k < r->marks; k++) {
            sprintf(kind, "k%d", (int)r->mark[k].step);
            assert_string_equal(r->mark[k].kind, kind);
            assert_true(r->mark[k].step > (k ? r->mark[k - 1].step : 0) && r->mark[k].time == 1795521600.0);
        }
        assert_true(r->mark[0].step <= 128 && r->marks >= (i < RUNLOG_MARKS ? i : RUNLOG_MARKS / 2));
    }
    line_of(dir, "{\"t\":\"step\",\"step\":7,\"loss\":1,\"hash\":\"0a\"}");
    line_of(dir, "{\"t\":\"checkpoint\",\"step\":7,\"hash\":\"0b\"}");
    line_of(dir, "{\"t\":\"step\",\"step\":8,\"loss\":1}");
    OK(runlog_poll(r));
    assert_string_equal(r->hash, "0b");
    assert_int_equal(r->hash_step, 7);
    line_of(dir, "{\"t\":\"step\",\"step\":9,\"loss\":1,\"hash\":\"0c\"}");
    OK(runlog_poll(r));
    assert_string_equal(r->hash, "0c");
    assert_int_equal(r->hash_step, 9);
    runlog_close(r);
    drop_dir(dir);
}

static void power_and_ranks(void **state) {
    char *dir = make_dir();
    (void)state;
    line_of(
        dir,
        "{\"t\":\"power\",\"step\":2,\"joules_per_token\":0.5,\"devices\":[{\"rank\":0,\"watts\":100,\"celsius\":50,\"mhz\":1000},"
        "{\"rank\":6,\"watts\":300,\"celsius\":70,\"mhz\":null}]}");
    line_of(dir, "{\"t\":\"ranks\",\"step\":2,\"first\":2,\"compute_ms\":[90,10]}");  // its beginning is not there
    line_of(
        dir,
        "{\"t\":\"ranks\",\"step\":4,\"compute_ms\":[10,20],\"data_ms\":[1,3],\"wait_ms\":[5,7],\"tensor_ms\":[2,4],\"before_ms\":[6,null],\"after_ms\":[null,8]}");
    line_of(dir, "{\"t\":\"ranks\",\"step\":4,\"first\":2,\"compute_ms\":[10,10]}");
    line_of(dir, "{\"t\":\"ranks\",\"step\":6,\"compute_ms\":[10,30]}");
    runlog *r = open_log(dir);
    assert_int_equal(r->world, 7);
    static const struct {
        curve of;
        int step, n;
        double sum, least, most;
    } want[] = {{CURVE_WATTS, 2, 2, 400, 100, 300},  {CURVE_CELSIUS, 2, 2, 120, 50, 70},
                {CURVE_MHZ, 2, 1, 1000, 1000, 1000}, {CURVE_JOULES, 2, 1, 0.5, 0.5, 0.5},
                {CURVE_R_DATA, 4, 1, 2, 2, 2},       {CURVE_R_WAIT, 4, 1, 6, 6, 6},
                {CURVE_R_TENSOR, 4, 1, 3, 3, 3},     {CURVE_R_STAGES, 4, 1, 14, 14, 14},
                {CURVE_R_COMPUTE, 4, 2, 25, 10, 15}, {CURVE_R_COMPUTE, 6, 1, 20, 20, 20}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const bucket *b = sheet_bucket(&r->steps, want[i].of, want[i].step - 1);
        if (b->n != want[i].n || b->sum != want[i].sum || b->least != (float)want[i].least ||
            b->most != (float)want[i].most)
            fail_msg("curve %d: %lld, %g, %g to %g", want[i].of, (long long)b->n, b->sum, b->least, b->most);
    }
    // Beside the median: 10, 20, 10, 10 and 10, 30, of which the greater one is the upper one of the two in the middle.
    static const double four[4] = {1, 2, 1, 1}, two[2] = {1.0 / 3, 1};
    for (int k = 0; k < 4; k++)
        assert_true(r->heat.n[k][1] == 0 && r->heat.n[k][3] == 1 && fabs(r->heat.sum[k][3] - four[k]) < 1e-6);
    for (int k = 0; k < 2; k++) assert_true(r->heat.n[k][5] == 1 && fabs(r->heat.sum[k][5] - two[k]) < 1e-6);
    assert_true(r->heat.rows == 4 && r->heat.n[2][5] == 0);
    runlog_close(r);
    drop_dir(dir);
}

// With which checkpoint of another run it began is known as long as its events say so.
static void a_fork(void **state) {
    static const char *const texts[][2] = {
        {"from runs/a step 5", "runs/a step 5"}, {"runs/b", "runs/b"}, {"from ", ""}};
    char *dir = make_dir(), line[256];
    (void)state;
    append(dir, "log.jsonl", "");
    runlog *r = open_log(dir);
    for (int k = 0; k < 3; k++) {
        assert_string_equal(r->forked, "");
        sprintf(line,
                "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"forked\",\"step\":0,\"text\":\"%s\"}\n",
                texts[k][0]);
        append(dir, "events.jsonl", line);
        append(dir, "events.jsonl",
               "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"stop\",\"step\":9,\"text\":\"from x\"}\n");
        OK(runlog_poll(r));
        assert_string_equal(r->forked, texts[k][1]);
        assert_true(r->marks == 2 && r->mark[0].step == 0 && r->mark[1].step == 9 && r->events_seen == 2);
        cut(dir, "events.jsonl", 0);
        OK(runlog_poll(r));
        assert_true(r->marks == 0 && r->events_seen == 0);
    }
    runlog_close(r);
    drop_dir(dir);
}

// How many ranks there are follows from the last of them, whichever file names it.
static void ranks_are_counted(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++)
        for (int file = 0; file < 3; file++) {
            char *dir = make_dir(), line[512], *to = line;
            append(dir, "log.jsonl", "");
            to += sprintf(to, file == 0   ? "{\"t\":\"power\",\"step\":1,\"devices\":["
                              : file == 1 ? "{\"t\":\"machine\",\"time\":1700000000.75,\"ranks\":["
                                          : "{\"t\":\"ranks\",\"step\":1,\"compute_ms\":[");
            for (int i = 0; i < n; i++)
                to += sprintf(to, file == 2 ? "%s%d" : "%s{\"rank\":%d,\"watts\":1}", i ? "," : "", i);
            sprintf(to, "]}\n");
            append(dir, file == 1 ? "machine.jsonl" : "log.jsonl", line);
            runlog *r = open_log(dir);
            assert_int_equal(r->world, n);
            if (file == 1) assert_true(r->seconds.origin == 1700000000);  // whole seconds
            runlog_close(r);
            drop_dir(dir);
        }
}

// Of more ranks than are compared, those beyond are passed over, in one record or in several that go on where the one
// before ended.
static void more_ranks_than_are_compared(void **state) {
    (void)state;
    for (int parts = 1; parts <= 2; parts++)
        for (int more = -1; more <= 2; more++) {
            char *dir = make_dir(), *text = malloc(32768), *to = text;
            int ranks = RUNLOG_RANKS + more, cut = parts == 1 ? 0 : RUNLOG_RANKS - 5;
            assert_non_null(text);
            if (cut) to += sprintf(to, "{\"t\":\"ranks\",\"step\":4,\"compute_ms\":[");
            for (int i = 0; i < cut; i++) to += sprintf(to, "%s20", i ? "," : "");
            if (cut) to += sprintf(to, "]}\n");
            to += sprintf(to, "{\"t\":\"ranks\",\"step\":4,\"first\":%d,\"compute_ms\":[", cut);
            for (int i = cut; i < ranks; i++)
                to += sprintf(to, "%s%d", i > cut ? "," : "", i == RUNLOG_RANKS - 2 ? 60 : i < RUNLOG_RANKS ? 20 : 70);
            sprintf(to, "]}\n");
            append(dir, "log.jsonl", text);
            runlog *r = open_log(dir);
            int kept = ranks < RUNLOG_RANKS ? ranks : RUNLOG_RANKS, of = RUNLOG_RANKS / HEAT_ROWS;
            assert_true(r->world == kept && r->heat.ranks == of && r->heat.rows == HEAT_ROWS);
            for (int row = 0; row < HEAT_ROWS; row++) {
                bool last = row == HEAT_ROWS - 1;
                assert_int_equal(r->heat.n[row][3], last ? kept - of * (HEAT_ROWS - 1) : of);
                assert_true(r->heat.sum[row][3] == (float)(r->heat.n[row][3] + (last ? 2 : 0)));
            }
            runlog_close(r);
            free(text);
            drop_dir(dir);
        }
}

// What a person should look at, and the devices, are those of now.
static void status_of_now(void **state) {
    char *dir = make_dir(), text[8192] = "{\"state\":\"training\",\"host\":\"h\",\"world\":9,\"alarms\":[",
         *to = text + strlen(text);
    (void)state;
    append(dir, "log.jsonl", "");
    for (int i = 0; i < RUNLOG_ALARMS + 2; i++)
        to += sprintf(to, "%s{\"kind\":\"hang\",\"text\":\"alarm %d\"}", i ? "," : "", i);
    to += sprintf(to, "],\"ranks\":[");
    for (int i = 0; i < RUNLOG_DEVICES + 2; i++)
        to += sprintf(to, "%s{\"rank\":%d,\"host\":\"h%d\",\"device\":\"d%d\"}", i ? "," : "", 8 + i, i, i);
    sprintf(to, "]}");
    write_text(dir, "status.json", text);
    runlog *r = open_log(dir);
    assert_true(r->world == 9 && r->alarms == RUNLOG_ALARMS && r->devices == RUNLOG_DEVICES);
    assert_string_equal(r->alarm[0], "alarm 0");
    assert_string_equal(r->alarm[RUNLOG_ALARMS - 1], "alarm 7");
    assert_true(r->device[0].rank == 8 && r->device[63].rank == 71 && strcmp(r->device[63].host, "h63") == 0 &&
                strcmp(r->device[63].device, "d63") == 0);
    assert_string_equal(r->host, "h");
    write_text(dir, "status.json", "{\"state\":\"done\",\"host\":\"i\",\"alarms\":[],\"ranks\":[{\"device\":\"x\"}]}");
    OK(runlog_poll(r));
    assert_true(r->alarms == 0 && r->devices == 1 && r->device[0].rank == 0);
    assert_string_equal(r->state, "done");
    assert_string_equal(r->host, "i");
    // of another version, or torn: what was known stays
    write_text(dir, "status.json", "{\"state\":\"none\",\"alarms\":[{\"text\":\"half\"}");
    OK(runlog_poll(r));
    assert_string_equal(r->state, "done");
    assert_true(r->alarms == 0);
    runlog_close(r);
    drop_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes),
        cmocka_unit_test(logged_again),
        cmocka_unit_test(damaged_anywhere),
        cmocka_unit_test(times_of_steps),
        cmocka_unit_test(evaluations),
        cmocka_unit_test(the_newest),
        cmocka_unit_test(power_and_ranks),
        cmocka_unit_test(status_of_now),
        cmocka_unit_test(a_fork),
        cmocka_unit_test(ranks_are_counted),
        cmocka_unit_test(more_ranks_than_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
