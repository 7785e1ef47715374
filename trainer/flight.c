// trainer/flight.c: see trainer/flight.h.
#include "trainer/flight.h"

#include "base/io.h"
#include "comm/flight_text.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// One failure reaches all machines within their timeouts.
static const int64_t near_s = 900;

// What was found: files, each with what it says of itself.
typedef struct recording {
    char path[IO_PATH];
    int node, nodes;
    uint32_t epoch;
    int64_t time;
} recording;

typedef struct found {
    recording *at;
    int n;
    text bad;  // a line for each that can't be read
} found;

static err_t load(flight_view *v, const char *path) {
    char *bytes;
    size_t n;
    TRY(io_read_file(path, FLIGHT_FILE, &bytes, &n));
    err_t rc = flight_read(v, path, bytes, n);
    free(bytes);
    return rc;
}

static err_t add_file(found *f, const char *path) {
    recording r = {0}, *more = realloc(f->at, ((size_t)f->n + 1) * sizeof *more);
    flight_view *v = calloc(1, sizeof *v);
    if (more) f->at = more;
    err_t rc = more && v ? io_path(r.path, "%s", path) : err_set(ERR_INTERNAL, "no memory for %d files", f->n + 1);
    if (rc == ERR_OK) rc = load(v, path);
    if (rc == ERR_OK) {
        r.node = v->node, r.nodes = v->nodes, r.epoch = v->epoch, r.time = v->time;
        f->at[f->n++] = r;
    }
    if (v) flight_view_close(v);
    free(v);
    return rc;
}

static int is_recording(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return strncmp(e->d_name, "flight-", 7) == 0 && n > 11 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

// After a crash of the machine one may be empty: the others are read.
static err_t add_directory(found *f, const char *dir) {
    struct dirent **all;
    char path[IO_PATH];
    int n = scandir(dir, &all, is_recording, alphasort);
    err_t rc = n > 0 ? ERR_OK
                     : err_set(ERR_DATA,
                               "%s: no flight recording, flight-*.txt: expected the directory of a run that has failed "
                               "since it began",
                               dir);
    int before = f->n;
    for (int i = 0; i < n; i++) {
        if (rc == ERR_OK || rc == ERR_DATA) rc = io_path(path, "%s/%s", dir, all[i]->d_name);
        if (rc == ERR_OK) rc = add_file(f, path);
        if (rc == ERR_DATA) text_put(&f->bad, "%s\n", err_last()->text);
        free(all[i]);
    }
    if (n >= 0) free(all);
    return rc == ERR_DATA && f->n > before ? ERR_OK : rc;
}

static err_t add(found *f, const char *word) {
    struct stat st;
    if (stat(word, &st) == 0 && S_ISDIR(st.st_mode)) return add_directory(f, word);
    return add_file(f, word);
}

// --- one failure -----------------------------------------------------------------------------------------------------

static const recording *newest_of(const found *f) {
    const recording *best = &f->at[0];
    for (int i = 1; i < f->n; i++)
        if (f->at[i].time > best->time || (f->at[i].time == best->time && f->at[i].epoch > best->epoch))
            best = &f->at[i];
    return best;
}

// A machine's newest one of the same failure, NULL: it has none.
static const recording *one_of(const found *f, const recording *failure, int node) {
    const recording *best = NULL;
    for (int i = 0; i < f->n; i++) {
        const recording *r = &f->at[i];
        bool same = r->node == node && r->epoch == failure->epoch && failure->time - r->time <= near_s;
        if (same && (!best || r->time > best->time)) best = r;
    }
    return best;
}

static err_t merge(const found *f, flight_view *v, text *t) {
    const recording *failure = newest_of(f);
    for (int node = 0; node < failure->nodes; node++) {
        const recording *r = one_of(f, failure, node);
        if (!r) continue;
        TRY(load(v, r->path));
        text_put(t, "%s\n", r->path);
    }
    text_put(t, "%s\n", f->bad.at ? f->bad.at : "");
    flight_verdict(v, t);
    text_put(t, "\n");
    flight_put_where(t, v);
    for (int node = 0; node < failure->nodes; node++)
        if (!one_of(f, failure, node))
            text_put(t, "of node %d there is no recording of this failure here: copy its flight-*.txt\n", node);
    return t->full ? err_set(ERR_INTERNAL, "no memory for the verdict") : ERR_OK;
}

err_t verb_flight(int argc, char **argv, FILE *out) {
    found f = {0};
    text t = {0};
    flight_view *v = calloc(1, sizeof *v);
    err_t rc = argc > 0 ? ERR_OK
                        : err_set(ERR_USAGE, "lockstep flight: expected a run's directory, e.g. runs/default, or "
                                             "several of its machines'");
    if (!v) rc = err_set(ERR_INTERNAL, "no memory for flight recordings");
    for (int i = 0; rc == ERR_OK && i < argc; i++) rc = add(&f, argv[i]);
    if (rc == ERR_OK) rc = merge(&f, v, &t);
    if (rc == ERR_OK) fputs(t.at, out);
    text_free(&t), text_free(&f.bad), free(f.at);
    if (v) flight_view_close(v);
    free(v);
    return rc;
}
