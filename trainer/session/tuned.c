// trainer/session/tuned.c: see trainer/session/tuned.h.
#include "trainer/session/tuned.h"

#include "base/io.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, FILE_MOST = 4 << 20, HEAD = 256 + DEVICE_ARITHMETIC };

// --- reading ---------------------------------------------------------------------------------------------------------

typedef struct reader {
    const char *path;
    char *at;
    int line;
} reader;

// The next line, without its end; NULL after the last.
static char *next_line(reader *r) {
    char *line = r->at, *end = strchr(line, '\n');
    if (!*line) return NULL;
    r->line++;
    r->at = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    return line;
}

static err_t not_such(const reader *r, const char *expected, const char *found) {
    return err_set(ERR_DATA,
                   "%s:%d: expected `%s`, found `%.60s`: it is not a whole file of `lockstep tune`; make it again",
                   r->path, r->line, expected, found ? found : "");
}

// What stands after `word` and a space.
static err_t take(reader *r, const char *word, const char **rest) {
    const char *line = next_line(r);
    size_t n = strlen(word);
    if (!line || strncmp(line, word, n) != 0 || line[n] != ' ') return not_such(r, word, line);
    *rest = line + n + 1;
    return ERR_OK;
}

static err_t take_head(reader *r, const device *d, int *plans) {
    const char *version, *about, *count;
    char mine[DEVICE_ARITHMETIC];
    TRY(take(r, "lockstep plans", &version));
    if (strcmp(version, "1") != 0)
        return err_set(ERR_CONFIG, "%s: version %.20s, this build knows %d: make it again with `lockstep tune`",
                       r->path, version, VERSION);
    TRY(take(r, "device", &about));
    device_arithmetic(d, mine, sizeof mine);
    if (strcmp(about, mine) != 0)
        return err_set(
            ERR_CONFIG,
            "%s: was measured on \"%.150s\", and this device is \"%s\": make one here with `lockstep tune`, or leave [device] plans empty",
            r->path, about, mine);
    TRY(take(r, "plans", &count));
    char *end;
    long n = strtol(count, &end, 10);
    if (end == count || *end || n < 0 || n > 100000) return not_such(r, "plans N", count);
    *plans = (int)n;
    return ERR_OK;
}

static err_t take_plans(reader *r, device *d, int plans) {
    int found = 0;
    for (const char *line; (line = next_line(r));) {
        if (*line == '#') continue;
        found++;
        if (device_plans_set(d, line) != ERR_OK) return err_prefix("%s:%d", r->path, r->line);
    }
    if (found == plans) return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: says that it has %d plans, and has %d: it is not whole; make it again with `lockstep tune`",
                   r->path, plans, found);
}

static void hash_of(const char *bytes, size_t n, char hash[TUNED_HASH]) {
    unsigned char digest[32];
    crypto_generichash(digest, sizeof digest, (const unsigned char *)bytes, n, NULL, 0);
    sodium_bin2hex(hash, TUNED_HASH, digest, TUNED_HASH / 2);
}

err_t tuned_load(device *d, const char *path, char hash[TUNED_HASH]) {
    char *text;
    size_t n;
    int plans;
    if (device_about(d)->kind != DEVICE_CUDA)
        return err_set(ERR_CONFIG, "%s: a CPU multiplies without plans; leave it empty, or set backend = cuda", path);
    TRY(io_read_file(path, FILE_MOST, &text, &n));
    hash_of(text, n, hash);
    reader r = {.path = path, .at = text};
    err_t rc = take_head(&r, d, &plans);
    if (rc == ERR_OK) rc = take_plans(&r, d, plans);
    free(text);
    return rc;
}

// --- writing ---------------------------------------------------------------------------------------------------------

err_t tuned_save(const device *d, const char *path, const plan_tuning *plan, int plans) {
    size_t room = HEAD + (size_t)plans * (sizeof *plan + HEAD), at;
    char *text = malloc(room), about[DEVICE_ARITHMETIC];
    if (!text) return err_set(ERR_INTERNAL, "no memory for a file of %d plans", plans);
    device_arithmetic(d, about, sizeof about);
    at = (size_t)snprintf(text, room, "lockstep plans %d\ndevice %s\nplans %d\n", VERSION, about, plans);
    for (int i = 0; i < plans; i++) {
        const plan_tuning *t = &plan[i];
        at += (size_t)snprintf(text + at, room - at,
                               "# %.4f ms (%.4f the first choice, %d tried, %d refused), %.1f TFLOP/s: %s\n%s\n",
                               t->best_ms, t->first_ms, t->tried, t->refused,
                               t->best_ms > 0 ? 1e-9 * t->flops / t->best_ms : 0, t->name, t->text);
    }
    err_t rc = io_write_file(path, text, at, NULL);
    free(text);
    return rc;
}
