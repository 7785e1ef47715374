// trainer/log/cut.c: see trainer/log/cut.h.
#include "trainer/log/cut.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The step that a record tells of; -1: of none.
static int64_t step_of(const char *line) {
    const char *at = strstr(line, "\"step\":");
    return at ? strtoll(at + strlen("\"step\":"), NULL, 10) : -1;
}

static bool is_beyond(const char *line, int64_t step, bool saved) {
    int64_t its = step_of(line);
    return its > step || (its == step && !saved && strstr(line, "\"t\":\"checkpoint\""));
}

err_t log_cut(const char *path, int64_t step, bool saved, int64_t *bytes) {
    *bytes = 0;
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? ERR_OK : err_set(ERR_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    // the last line may be torn
    while ((n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n' && !is_beyond(line, step, saved)) *bytes += n;
    bool failed = ferror(f);
    free(line);
    fclose(f);
    return failed ? err_set(ERR_IO, "%s: it can't be read", path) : ERR_OK;
}
