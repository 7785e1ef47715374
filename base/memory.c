// base/memory.c: see base/memory.h.
#include "base/memory.h"

#include "base/io.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE = IO_PATH + 256 };

// The sum of the rows "NAME NUMBER" of a file, with any of the two names; -1: there is none.
static int64_t rows_of(const char *path, const char *name, const char *other) {
    char line[LINE], word[64];
    int64_t sum = -1;
    long long n;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %lld", word, &n) == 2 && n >= 0 && (strcmp(word, name) == 0 || strcmp(word, other) == 0))
            sum = (sum < 0 ? 0 : sum) + n;
    if (f) fclose(f);
    return sum;
}

// A file that is one number. -1: it is none ("max"), or not there.
static int64_t number_of(const char *path) {
    long long n = -1;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lld", &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

// The names of one version of control groups.
typedef struct group_files {
    const char *mount, *limit, *used, *cached, *other;  // cached, other: rows of memory.stat that can be dropped at once
} group_files;

static const group_files second = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};
static const group_files first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                  "total_active_file"};

// What the limit of one group leaves; -1: it has none.
static int64_t left_in(const char *dir, const group_files *v) {
    char path[IO_PATH];
    if (io_path(path, "%s/%s", dir, v->limit) != ERR_OK) return -1;
    int64_t limit = number_of(path);
    if (limit < 0 || io_path(path, "%s/%s", dir, v->used) != ERR_OK) return -1;
    int64_t used = number_of(path), cached = io_path(path, "%s/memory.stat", dir) == ERR_OK ? rows_of(path, v->cached, v->other) : -1;
    if (used < 0) return -1;
    int64_t left = limit - used + (cached > 0 ? cached : 0);
    return left < 0 ? 0 : left;
}

// The least that a group and those that it is in leave. A container may see its own group as the first one: what is not there is passed over.
static int64_t left_on_the_way(const char *root, char *group, const group_files *v) {
    int64_t least = -1;
    for (;;) {
        char dir[IO_PATH];
        int64_t left = io_path(dir, "%s%s%s", root, v->mount, group) == ERR_OK ? left_in(dir, v) : -1;
        if (left >= 0 && (least < 0 || left < least)) least = left;
        char *end = strrchr(group, '/');
        if (!*group || !end) return least;
        *end = 0;
    }
}

// "0::/a/b" of version 2, "4:memory:/a/b" or "4:cpu,memory:/a/b" of version 1.
static const group_files *version_of(const char *controllers) {
    if (!*controllers) return &second;
    for (const char *at = controllers; (at = strstr(at, "memory")) != NULL; at++)
        if ((at == controllers || at[-1] == ',') && (at[6] == 0 || at[6] == ',')) return &first;
    return NULL;
}

static int64_t left_in_groups(const char *root) {
    char path[IO_PATH], line[LINE];
    int64_t least = -1;
    FILE *f = io_path(path, "%s/proc/self/cgroup", root) == ERR_OK ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const group_files *v = version_of(controllers + 1);
        int64_t left = v ? left_on_the_way(root, group, v) : -1;
        if (left >= 0 && (least < 0 || left < least)) least = left;
    }
    if (f) fclose(f);
    return least;
}

int64_t memory_available(const char *root) {
    char path[IO_PATH];
    int64_t kb = io_path(path, "%s/proc/meminfo", root) == ERR_OK ? rows_of(path, "MemAvailable:", "") : -1;
    int64_t machine = kb >= 0 ? 1024 * kb : -1, group = left_in_groups(root);
    return group >= 0 && (machine < 0 || group < machine) ? group : machine;
}
