// test/fuzz/fuzz_served.c: any bytes as the record of what a server served (comm/server/record.h). They become an
// unnamed file in memory and are read from the beginning, and from a later step. The answer is ERR_DATA with the file's
// name, or lines with workers that there are; written again, they are read as the same lines.
#include "comm/server/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
bool lockstep_fuzz_try(const uint8_t *data, size_t size);
int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx);

enum { LINES = 64, WORKERS = 3 };

static const served_about about = {.server = 0, .servers = 1, .workers = WORKERS, .mode = "async"};

static void expect(bool truth) {
    if (!truth) abort();
}

// The lines from this step on, LINES at most. False: the bytes are no record, or have a line that is none.
static bool read_lines(const char *path, int64_t after, served_line *line, int *n) {
    served_replay p;
    *n = 0;
    err_t rc = served_replay_open(&p, path, &about, after);
    for (; rc == ERR_OK && !p.ended && *n < LINES; rc = served_replay_next(&p)) {
        expect(p.now.a >= 0 && (p.now.what > SERVED_DROP || p.now.a < WORKERS));
        line[(*n)++] = p.now;
    }
    expect(rc == ERR_OK || (rc == ERR_DATA && strncmp(err_last()->text, path, strlen(path)) == 0));
    served_replay_close(&p);
    return rc == ERR_OK;
}

static void write_again(const served_line *line, int n) {
    served_line again[LINES];
    served_record to;
    char path[64];
    int fd = memfd_create("again", MFD_CLOEXEC), found;
    expect(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    expect(served_record_open(&to, path, &about, 0) == ERR_OK);
    for (int i = 0; i < n; i++) expect(served_write(&to, line[i]) == ERR_OK);
    served_record_close(&to);
    expect(read_lines(path, line[0].a - 1, again, &found) && found == n);
    for (int i = 0; i < n; i++)
        expect(again[i].what == line[i].what && again[i].a == line[i].a && again[i].b == line[i].b);
    close(fd);
}

bool lockstep_fuzz_try(const uint8_t *data, size_t size) {
    served_line line[LINES];
    char path[64];
    int n, fd = memfd_create("fuzz", MFD_CLOEXEC);
    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool valid = read_lines(path, 0, line, &n);
    if (valid && n > 0) write_again(line, n);
    read_lines(path, 10, line, &n);
    close(fd);
    return valid;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lockstep_fuzz_try(data, size);
    return 0;
}

int lockstep_fuzz_seeds(void (*seed)(void *ctx, const uint8_t *bytes, size_t n), void *ctx) {
    static const char *const seeds[] = {
        "lockstep served 1\nserver 0 of 1, workers 3, mode async\nperiod 1 10\nnext 2 0\npull 2 0\npush 2 0\nend 1 10\n"
        "period 11 20\nnext 0 30\npull 0 30\ndrop 0 30\nclose 11 0\nend 11 20\n",
        "lockstep served 1\nserver 0 of 1, workers 3, mode async\nperiod 1 1\n",
    };
    for (size_t k = 0; k < sizeof seeds / sizeof *seeds; k++) seed(ctx, (const uint8_t *)seeds[k], strlen(seeds[k]));
    return 0;
}
