// test/fuzz/fuzz_runlog.c: any bytes at all as the files of a run. The first byte says which file the rest is; nothing
// is refused but what can't be read, every line is read or counted as damaged, curves hold what they should, and the
// page that is drawn has no tag of a stranger's.
#include "base/io.h"
#include "trainer/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static const char *const names[] = {"log.jsonl",  "events.jsonl", "machine.jsonl",
                                    "config.ini", "status.json",  "answers.json"};
enum { NAMES = sizeof names / sizeof *names };

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64];
static void leave(void) { io_remove_tree(dir); }

static void put(const char *name, const uint8_t *data, size_t size) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void check(const sheet *s) {
    expect(s->used >= 0 && s->used <= SERIES_BUCKETS);
    for (int c = 0; c < s->count; c++)
        for (int i = 0; i < SERIES_BUCKETS; i++) {
            const bucket *b = sheet_bucket(s, c, i);
            expect(b->n >= 0 && isfinite(b->sum) && (b->n == 0 || b->least <= b->most) && (i < s->used || b->n == 0));
        }
}

static int count(const char *in, const char *what) {
    int n = 0;
    for (; (in = strstr(in, what)) != NULL; in += strlen(what)) n++;
    return n;
}

// The page has tags of ours only, pictures that it has in itself, and no coordinate that is no number.
// Does it say what a model answers?
static bool draw(runlog *r) {
    char *page;
    size_t n;
    expect(report_render((runlog *const[]){r}, 1, false, &page, &n) == ERR_OK && strlen(page) == n && n < 1000000);
    expect(count(page, "<img") == count(page, "<img width=\"") &&
           count(page, "<img") == count(page, " src=\"data:image/"));
    expect(!strstr(page, "<script") && !strstr(page, "nan%") && !strstr(page, "\"nan") && !strstr(page, "inf%"));
    bool answers = strstr(page, " samples of the validation data") != NULL;
    free(page);
    return answers;
}

// Valid is what has a line that is read, a setting, or answers.
bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    const char *base = getenv("TMPDIR");
    runlog *r;
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%.40s/fuzz-r-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
    }
    for (int i = 0; i < NAMES; i++) put(names[i], (const uint8_t *)"", 0);
    int which = size ? data[0] % NAMES : 0;
    const uint8_t *text = size ? data + 1 : data;
    size_t n = size ? size - 1 : 0, half = n / 2;
    put(names[which], text, half);
    expect(runlog_open(&r, dir) == ERR_OK && runlog_poll(r) == ERR_OK);
    put(names[which], text, n);
    expect(runlog_poll(r) == ERR_OK && runlog_poll(r) == ERR_OK);
    check(&r->steps);
    check(&r->early);
    check(&r->seconds);
    const runlog_file *files[] = {&r->log, &r->events, &r->machine};
    bool valid = r->settings > 0 || r->state[0];
    for (int i = 0; i < 3; i++) {
        expect(files[i]->damaged <= files[i]->lines && files[i]->of.at <= (int64_t)n);
        valid = valid || files[i]->lines > files[i]->damaged;
    }
    expect(r->settings <= RUNLOG_SETTINGS && r->marks <= RUNLOG_MARKS && r->devices <= RUNLOG_DEVICES);
    valid = draw(r) || valid;
    runlog_close(r);
    return valid;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const seeds[] = {
        "\0"
        "{\"t\":\"step\",\"step\":1,\"loss\":5.41,\"grad_norm\":6.4,\"lr\":1.6e-05,\"tokens\":2048,\"ms\":157.3,\"tokens_per_s\":13019.4,\"mfu\":null,"
        "\"data_wait_ms\":0.06,\"comm_wait_ms\":0,\"loss_scale\":1,\"skipped\":false,\"hash\":\"00112233\",\"time\":1700000000.125}\n"
        "{\"t\":\"step\",\"step\":20000,\"loss\":null,\"samples\":1,\"samples_per_s\":3}\n"
        "{\"t\":\"eval\",\"step\":20000,\"loss\":2.5,\"accuracy\":0.5,\"best\":2,\"best_step\":1}\n",
        "\0"
        "{\"t\":\"sample\",\"step\":1,\"prompt\":\"\\u00e9\\ud83d\\ude00\",\"text\":\"<b>\\n\"}\n{\"t\":\"checkpoint\",\"step\":1,\"hash\":\"ab\"}\n"
        "{\"t\":\"power\",\"step\":1,\"watts\":1,\"joules_per_token\":0.1,\"devices\":[{\"rank\":0,\"watts\":70,\"celsius\":40,\"mhz\":1400,\"limited\":\"no\"}]}\n"
        "{\"t\":\"ranks\",\"step\":2,\"steps\":2,\"first\":0,\"compute_ms\":[1,2,3],\"data_ms\":[0,0],\"wait_ms\":[1],\"before_ms\":[],\"after_ms\":[1]}\n",
        "\1"
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":3,\"text\":\"x\"}\n",
        "\2"
        "{\"t\":\"machine\",\"time\":1700000000,\"node\":0,\"disk_free\":1e12,\"cpu\":1.5,\"ranks\":[{\"rank\":0,\"watts\":70,\"watts_max\":90}]}\n"
        "{\"t\":\"machine\",\"time\":1700900000,\"disk_free\":1e11}\n",
        "\3"
        "# lockstep 0.1  config a  data b\n[model]\ntype = llama  ; bits   a.ini:1\nlanes = 2   ; bits   default, chosen\nx = \"a\\\"b\"\n   ; local  default\n",
        "\4"
        "{\"state\":\"done\",\"host\":\"h\",\"world\":2,\"ranks\":[{\"rank\":0,\"host\":\"h\",\"device\":\"\"}]}\n",
        "\5"
        "{\"step\":1,\"samples\":3,\"right\":2,\"classes\":[{\"label\":0,\"name\":\"<b>\",\"of\":3,\"right\":2,\"said\":2}],"
        "\"pairs\":[{\"label\":0,\"answer\":1,\"count\":1}],\"examples\":[{\"sample\":0,\"label\":0,\"answer\":0,\"sure\":0.5,"
        "\"png\":\"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=\"}],\"mistakes\":[]}"};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        seed(ctx, (const uint8_t *)seeds[i], 1 + strlen(seeds[i] + 1));
    return 0;
}
