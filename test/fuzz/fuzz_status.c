// test/fuzz/fuzz_status.c: any bytes at all as the files of a run's directory. `lockstep status` answers in its lines
// and columns, and in JSON that a program can read; nothing else is known of what it says. The input is cut at NUL
// bytes: status.json, log.jsonl, events.jsonl, config.ini.
#include "base/io.h"
#include "trainer/watch/rundir.h"
#include "trainer/watch/status.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

static void expect(bool truth) {
    if (!truth) abort();
}

static char dir[64];
static void leave(void) { io_remove_tree(dir); }

static void put(const char *name, const uint8_t *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);  // to write over a file would take longer: some file systems then wait for the disk
    FILE *f = fopen(path, "wb");
    expect(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void check_lines(const char *text) {
    int lines = 0;
    for (const char *end; *text; text = end + 1, lines++) {
        end = strchr(text, '\n');
        expect(end && end - text <= STATUS_COLUMNS);
        for (; text < end; text++) expect((unsigned char)*text >= 32 && *text != 127);
    }
    expect(lines > 0 && lines <= STATUS_LINES);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    static const char *const names[] = {"status.json", "log.jsonl", "events.jsonl", "config.ini"};
    const char *base = getenv("TMPDIR");
    bool damaged;
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%.40s/fuzz-u-XXXXXX", base ? base : "/tmp");
        expect(mkdtemp(dir) != NULL && atexit(leave) == 0);
    }
    for (int i = 0; i < 4; i++) {
        const uint8_t *end = i < 3 && size ? memchr(data, 0, size) : NULL;
        size_t n = end ? (size_t)(end - data) : size;
        put(names[i], data, n);
        n += end != NULL;
        data += n, size -= n;
    }
    for (int json = 0; json < 2; json++) {
        char *said = NULL;
        size_t bytes;
        int code = -1;
        FILE *f = open_memstream(&said, &bytes);
        expect(status_write(dir, 1795522000, json, f, &code) == ERR_OK && code >= 0 && code <= 2 && fclose(f) == 0);
        if (!json) check_lines(said);
        json_t *o = json ? json_loads(said, 0, NULL) : NULL;
        expect(!json || rundir_whole(o, "code", -1) == code);
        json_decref(o);
        free(said);
    }
    json_t *status = rundir_status(dir, &damaged);
    json_decref(status);
    return status && !damaged;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char running[] =
        "{\"t\":\"status\",\"time\":1795521999.5,\"every_s\":1,\"state\":\"training\",\"step\":412,\"steps\":600,\"began_step\":0,\"step_time\":1795521999,"
        "\"p50_ms\":400,\"p99_ms\":600,\"loss\":1.97,\"tokens_per_s\":38123.5,\"checkpoint_step\":400,\"checkpoint_hash\":\"fedcba9876543210\",\"ranks\":[{"
        "\"rank\":0,\"host\":\"a\",\"role\":\"\",\"device\":\"\",\"pid\":1,\"phase\":\"step\",\"doing\":\"forward\",\"number\":3,\"step\":413,\"doing_s\":3,"
        "\"watts\":70.5,\"median_watts\":510}],\"disk\":{\"free_per_s\":-1e6},\"alarms\":[{\"kind\":\"hang\",\"rank\":0,\"since\":1,\"text\":\"no step. Next: "
        "gdb\"}]}\n\0"
        "{\"t\":\"step\",\"step\":410,\"loss\":2.5,\"tokens\":4100,\"ms\":500,\"tokens_per_s\":3.8e4,\"time\":1795521999}\n{\"t\":\"checkpoint\",\"step\":400,"
        "\"hash\":\"0123456789abcdef\",\"ms\":5}\n\0"
        "{\"t\":\"event\",\"at\":\"2026-11-24T12:00:00Z\",\"kind\":\"resume\",\"step\":400,\"text\":\"continuing after step 400\"}\n\0"
        "[run]\nsteps = 600\n";
    static const char over[] =
        "{\"time\":1795520000,\"state\":\"failed\",\"step\":412}\0{\"t\":\"step\",\"step\":410,\"samples\":1,\"ms\":1}\n\0{\"at\":\"\",\"kind\":\"failed\",\"text\":\"why\"}\n";
    seed(ctx, (const uint8_t *)running, sizeof running - 1);
    seed(ctx, (const uint8_t *)over, sizeof over - 1);
    seed(ctx, (const uint8_t *)"{}", 2);
    return 0;
}
