// comm/server/record.c: see comm/server/record.h.
#include "comm/server/record.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 256 };
static const char first_line[] = "lockstep served 1\n";

#define SERVED_NAME(name, text) text,
static const char *const name_of[] = {SERVED_EVENTS(SERVED_NAME)};
enum { KINDS = sizeof name_of / sizeof *name_of };

const char *served_text(served_line line, char dst[SERVED_TEXT]) {
    snprintf(dst, SERVED_TEXT, "%s %" PRId64 " %" PRId64, name_of[line.what], line.a, line.b);
    return dst;
}

static void print_about(const served_about *x, char dst[LINE]) {
    snprintf(dst, LINE, "server %d of %d, workers %d, mode %s\n", x->server, x->servers, x->workers, x->mode);
}

static bool parse(const char *text, served_line *out) {
    char word[16];
    int end = 0;
    if (sscanf(text, "%15s %" SCNd64 " %" SCNd64 "\n%n", word, &out->a, &out->b, &end) != 3 || text[end]) return false;
    for (int k = 0; k < KINDS; k++)
        if (strcmp(word, name_of[k]) == 0) return out->what = (served_event)k, true;
    return false;
}

static err_t open_file(const char *path, int flags, const char *mode, FILE **out) {
    int fd;
    TRY(io_open(path, flags, &fd));
    *out = fdopen(fd, mode);
    if (*out) return ERR_OK;
    close(fd);
    return err_set(ERR_INTERNAL, "%s: no memory to read it", path);
}

static err_t check_about(FILE *f, const char *path, const served_about *about) {
    char line[LINE], expected[LINE];
    print_about(about, expected);
    if (!fgets(line, sizeof line, f) || strcmp(line, first_line) != 0)
        return err_set(ERR_DATA, "%s: no record of what a server served: expected `%.*s` as its first line", path,
                       (int)sizeof first_line - 2, first_line);
    if (!fgets(line, sizeof line, f)) *line = 0;
    if (strcmp(line, expected) == 0) return ERR_OK;
    expected[strcspn(expected, "\n")] = line[strcspn(line, "\n")] = 0;
    return err_set(ERR_DATA, "%s: it is of another run: expected `%s`, found `%s`", path, expected, line);
}

// Reads up to the END of the period that ends with this step.
static bool find_end(FILE *f, int64_t step) {
    char text[LINE];
    served_line line;
    while (fgets(text, sizeof text, f))
        if (parse(text, &line) && line.what == SERVED_END && line.b == step) return true;
    return false;
}

static err_t cut_off(served_record *x, const served_about *about, int64_t after) {
    TRY(check_about(x->to, x->path, about));
    if (!find_end(x->to, after))
        return err_set(ERR_DATA,
                       "%s: it has no `end` of a period after step %" PRId64
                       ", from which the run goes on: move the file away, or set [server] record = no",
                       x->path, after);
    long at = ftell(x->to);
    if (at < 0 || ftruncate(fileno(x->to), at) != 0 || fseek(x->to, at, SEEK_SET) != 0)
        return err_set(ERR_IO, "%s: it can't be cut off after byte %ld: %s", x->path, at, strerror(errno));
    return ERR_OK;
}

static err_t begin_file(served_record *x, const served_about *about) {
    char line[LINE];
    print_about(about, line);
    if (fputs(first_line, x->to) < 0 || fputs(line, x->to) < 0)
        return err_set(ERR_IO, "%s: it can't be written: %s", x->path, strerror(errno));
    return ERR_OK;
}

err_t served_record_open(served_record *x, const char *path, const served_about *about, int64_t after) {
    *x = (served_record){0};
    TRY(io_path(x->path, "%s", path));
    bool there = after > 0 && access(path, F_OK) == 0;
    TRY(open_file(path, there ? O_RDWR : O_WRONLY | O_CREAT | O_TRUNC, there ? "r+" : "w", &x->to));
    err_t rc = there ? cut_off(x, about, after) : begin_file(x, about);
    if (rc != ERR_OK) served_record_close(x);
    return rc;
}

err_t served_write(served_record *x, served_line line) {
    char text[SERVED_TEXT];
    if (fprintf(x->to, "%s\n", served_text(line, text)) > 0) return ERR_OK;
    return err_set(ERR_IO, "%s: it can't be written: %s", x->path, strerror(errno));
}

err_t served_flush(served_record *x) {
    if (fflush(x->to) == 0) return ERR_OK;
    return err_set(ERR_IO, "%s: it can't be written: %s", x->path, strerror(errno));
}

void served_record_close(served_record *x) {
    if (x->to) fclose(x->to);
    x->to = NULL;
}

// --- replay ----------------------------------------------------------------------------------------------------------

static err_t find_period(served_replay *x, int64_t after) {
    while (!x->ended && !(x->now.what == SERVED_PERIOD && x->now.a == after + 1)) TRY(served_replay_next(x));
    if (!x->ended) return ERR_OK;
    return err_set(ERR_DATA, "%s: it has no period that begins with step %" PRId64, x->path, after + 1);
}

err_t served_replay_open(served_replay *x, const char *path, const served_about *about, int64_t after) {
    *x = (served_replay){.line = 2, .workers = about->workers};
    TRY(io_path(x->path, "%s", path));
    TRY(open_file(path, O_RDONLY, "r", &x->from));
    err_t rc = check_about(x->from, x->path, about);
    if (rc == ERR_OK) rc = served_replay_next(x);
    if (rc == ERR_OK) rc = find_period(x, after);
    if (rc != ERR_OK) served_replay_close(x);
    return rc;
}

static bool of_worker(served_event what) { return what <= SERVED_DROP; }

err_t served_replay_next(served_replay *x) {
    char text[LINE];
    x->line++;
    x->ended = !fgets(text, sizeof text, x->from);
    if (x->ended && ferror(x->from)) return err_set(ERR_IO, "%s: %s", x->path, strerror(errno));
    if (x->ended) return ERR_OK;
    bool known = parse(text, &x->now) && x->now.a >= 0;
    if (known && (!of_worker(x->now.what) || x->now.a < x->workers)) return ERR_OK;
    text[strcspn(text, "\n")] = 0;
    return err_set(ERR_DATA,
                   "%s:%" PRId64 ": `%s`: expected next, pull, push or drop with a worker below %d and a ticket, or "
                   "close, period or end with steps",
                   x->path, x->line, text, x->workers);
}

void served_replay_close(served_replay *x) {
    if (x->from) fclose(x->from);
    x->from = NULL;
}
