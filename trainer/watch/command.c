// trainer/watch/command.c: see trainer/watch/command.h.
#include "trainer/watch/command.h"

#include "base/shell.h"
#include "base/text.h"
#include "trainer/watch/rundir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_path(text *l, const char *path) {
    char word[SHELL_PATH];
    text_put(l, "%s", shell_path(word, path));
}

void command_on(char *dst, size_t room, const char *words, const char *dir) {
    text l = {.at = dst, .room = room};
    text_put(&l, "%s ", words);
    put_path(&l, dir);
}

// Is one of the paths in the settings relative? Those of [data] may be several, with spaces between them.
static bool has_relative(const char *dir) {
    static const char *const paths[][2] = {{"data", "train"},          {"data", "val"},       {"model", "init_from"},
                                           {"lora", "init_from"},      {"eval", "text"},      {"eval", "choices"},
                                           {"eval", "sets"},           {"device", "plans"},   {"sample", "tokenizer"},
                                           {"cluster", "secret_file"}, {"log", "http_token"}, {"log", "prom_file"}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char value[IO_PATH], *rest = value;
        rundir_setting(dir, paths[i][0], paths[i][1], value, sizeof value);
        // `bytes`, or a tokenizer that is built in
        bool word = strcmp(paths[i][1], "tokenizer") == 0 && !strchr(value, '/');
        bool named = strcmp(paths[i][1], "sets") == 0;
        for (char *path; !word && (path = strsep(&rest, " "));) {
            char *colon = named ? strchr(path, ':') : NULL;
            if (colon) path = colon + 1;
            if (*path && *path != '/') return true;
        }
    }
    return false;
}

// If `path` ends with "/TAIL", its length without that; else -1. A path has no "/." and no "//" here, a tail may begin
// with "./".
static int without(const char *path, const char *tail) {
    while (strncmp(tail, "./", 2) == 0) tail += 2 + strspn(tail + 2, "/");
    size_t n = strlen(path), m = strlen(tail);
    return n > m && path[n - m - 1] == '/' && strcmp(path + n - m, tail) == 0 ? (int)(n - m - 1) : -1;
}

// Where the run was started, by its [run] dir and name, which end the directory's path. false: not known.
static bool start_of(const char *full, const char *dir, const char *name, char start[IO_PATH]) {
    char tail[IO_PATH], path[IO_PATH];
    if (!*dir || !*name || io_path(tail, "%s/%s", dir, name) != ERR_OK || io_path(path, "%s", full) != ERR_OK)
        return false;
    int n = without(path, tail);
    if (n < 0) return false;
    snprintf(start, IO_PATH, "%.*s", n > 0 ? n : 1, full);
    return true;
}

// Where a run was started, and where this is.
typedef struct places {
    char in[IO_PATH], name[IO_PATH], start[IO_PATH];
    char *full;         // the run's directory, NULL: there is none
    bool known, moved;  // start is known, and not here
    bool matters;       // there are relative paths
} places;

static void find_places(places *p, const char *dir) {
    char *here = getcwd(NULL, 0);
    p->full = realpath(dir, NULL);
    bool relative = rundir_setting(dir, "run", "dir", p->in, sizeof p->in) && *p->in != '/';
    rundir_setting(dir, "run", "name", p->name, sizeof p->name);
    p->known = p->full && here && relative && start_of(p->full, p->in, p->name, p->start);
    p->moved = p->known && strcmp(p->start, here) != 0;
    p->matters = relative || has_relative(dir);
    free(here);
}

static void put_start(text *l, const places *p) {
    if (p->moved) text_put(l, "cd "), put_path(l, p->start), text_put(l, " && ");
    else if (!p->known && p->full && p->matters) text_put(l, "where it was started: ");
}

void command_of(char *dst, size_t room, const char *before, const char *verb, const char *dir) {
    char file[2 * IO_PATH + 16];
    text l = {.at = dst, .room = room};
    places p;
    find_places(&p, dir);
    text_put(&l, "%s", before);
    put_start(&l, &p);
    if (p.moved) snprintf(file, sizeof file, "%s/%s/config.ini", p.in, p.name);
    else snprintf(file, sizeof file, "%s/config.ini", p.known || !p.full ? dir : p.full);
    text_put(&l, "lockstep %s", verb);
    put_path(&l, file);
    free(p.full);
}

void command_from(char *dst, size_t room, const char *said, const char *dir) {
    text l = {.at = dst, .room = room};
    places p;
    find_places(&p, dir);
    if (strncmp(said, "lockstep ", 9) == 0) put_start(&l, &p);
    text_put(&l, "%s", said);
    free(p.full);
}
