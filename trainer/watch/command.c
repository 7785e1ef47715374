// trainer/watch/command.c: see trainer/watch/command.h.
#include "trainer/watch/command.h"

#include "trainer/watch/line.h"
#include "trainer/watch/rundir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A path as a shell takes it: in quotes if it has to be.
static void put_path(line *l, const char *path) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    const char *dash = *path == '-' ? "./" : "";
    if (*path && !path[strspn(path, plain)]) return line_put(l, "%s%s", dash, path);
    line_put(l, "%s'", dash);
    for (; *path; path++)
        if (*path == '\'') line_put(l, "'\\''");
        else line_put(l, "%c", *path);
    line_put(l, "'");
}

void command_on(char *dst, size_t room, const char *words, const char *dir) {
    line l = {dst, room};
    line_put(&l, "%s ", words);
    put_path(&l, dir);
}

// Is one of the paths in the settings relative? Those of [data] may be several, with spaces between them.
static bool has_relative(const char *dir) {
    static const char *const paths[][2] = {{"data", "train"},   {"data", "val"},     {"model", "init_from"},  {"eval", "text"},
                                           {"eval", "choices"}, {"device", "plans"}, {"sample", "tokenizer"}, {"cluster", "secret_file"}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char value[IO_PATH], *rest = value;
        rundir_setting(dir, paths[i][0], paths[i][1], value, sizeof value);
        bool word = i == 6 && !strchr(value, '/');  // `bytes`, or a tokenizer that is built in
        for (char *path; !word && (path = strsep(&rest, " "));)
            if (*path && *path != '/') return true;
    }
    return false;
}

// If `path` ends with "/TAIL", its length without that; else -1. A path has no "/." and no "//" here, a tail may begin with "./".
static int without(const char *path, const char *tail) {
    while (strncmp(tail, "./", 2) == 0) tail += 2 + strspn(tail + 2, "/");
    size_t n = strlen(path), m = strlen(tail);
    return n > m && path[n - m - 1] == '/' && strcmp(path + n - m, tail) == 0 ? (int)(n - m - 1) : -1;
}

// Where the run was started, by its [run] dir and name, which end the directory's path. false: not known.
static bool start_of(const char *full, const char *dir, const char *name, char start[IO_PATH]) {
    char tail[IO_PATH], path[IO_PATH];
    if (!*dir || !*name || io_path(tail, "%s/%s", dir, name) != ERR_OK || io_path(path, "%s", full) != ERR_OK) return false;
    int n = without(path, tail);
    if (n < 0) return false;
    snprintf(start, IO_PATH, "%.*s", n > 0 ? n : 1, full);
    return true;
}

void command_of(char *dst, size_t room, const char *before, const char *verb, const char *dir) {
    char in[IO_PATH], name[IO_PATH], start[IO_PATH], file[IO_PATH + 16], *full = realpath(dir, NULL), *here = getcwd(NULL, 0);
    line l = {dst, room};
    bool relative = rundir_setting(dir, "run", "dir", in, sizeof in) && *in != '/';
    rundir_setting(dir, "run", "name", name, sizeof name);
    bool known = full && here && relative && start_of(full, in, name, start), moved = known && strcmp(start, here) != 0;
    line_put(&l, "%s", before);
    if (moved) line_put(&l, "cd "), put_path(&l, start), line_put(&l, " && ");
    else if (!known && full && (relative || has_relative(dir))) line_put(&l, "where it was started: ");
    if (moved) snprintf(file, sizeof file, "%s/%s/config.ini", in, name);
    else snprintf(file, sizeof file, "%s/config.ini", known || !full ? dir : full);
    line_put(&l, "lockstep %s", verb);
    put_path(&l, file);
    free(full), free(here);
}
