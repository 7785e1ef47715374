// base/memory.c: see base/memory.h. What can't be read limits nothing.
#include "base/memory.h"

#include "base/io.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LINE = IO_PATH + 256 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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
static int64_t number_of(const char *dir, const char *name) {
    char path[IO_PATH];
    long long n = -1;
    FILE *f = io_path(path, "%s/%s", dir, name) == ERR_OK ? fopen(path, "re") : NULL;
    if (f && fscanf(f, "%lld", &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

// --- the machine -----------------------------------------------------------------------------------------------------

typedef struct machine {
    int64_t total, swap, available;  // bytes; -1: not known
} machine;

static machine read_machine(const char *root) {
    static const char *const names[] = {"MemTotal:", "SwapTotal:", "MemAvailable:"};
    char path[IO_PATH];
    int64_t bytes[3] = {-1, -1, -1};
    for (int i = 0; i < 3 && io_path(path, "%s/proc/meminfo", root) == ERR_OK; i++) {
        int64_t kb = rows_of(path, names[i], "");
        if (kb >= 0) bytes[i] = 1024 * kb;
    }
    return (machine){bytes[0], bytes[1], bytes[2]};
}

// --- control groups --------------------------------------------------------------------------------------------------

// The names of one version of control groups.
typedef struct group_files {
    // cached, other: rows of memory.stat that can be dropped at once
    const char *mount, *limit, *used, *cached, *other;
} group_files;

static const group_files second = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};
static const group_files first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file"};

// A limit that is not below the machine's memory, as version 1 has where there is none, limits nothing. A group may
// swap, too.
static void take_group(memory_room *m, const machine *has, const char *dir, const group_files *v) {
    char path[IO_PATH];
    int64_t limit = number_of(dir, v->limit), used = number_of(dir, v->used), swap = has->swap > 0 ? has->swap : 0;
    if (limit < 0 || (has->total >= 0 && limit >= has->total)) return;
    if (limit + swap < m->most) m->most = limit + swap, m->what = "the control group";
    if (used < 0) return;
    int64_t cached = io_path(path, "%s/memory.stat", dir) == ERR_OK ? rows_of(path, v->cached, v->other) : -1;
    int64_t left = limit - used + (cached > 0 ? cached : 0);
    if (left < 0) left = 0;
    m->available = m->available < 0 ? left : least(m->available, left);
}

// A group and those that it is in. A container may see its own group as the first one: what is not there is passed
// over.
static void take_groups(memory_room *m, const machine *has, const char *root, char *group, const group_files *v) {
    for (;;) {
        char dir[IO_PATH];
        if (io_path(dir, "%s%s%s", root, v->mount, group) == ERR_OK) take_group(m, has, dir, v);
        char *end = strrchr(group, '/');
        if (!*group || !end) return;
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

static void read_groups(memory_room *m, const machine *has, const char *root) {
    char path[IO_PATH], line[LINE];
    FILE *f = io_path(path, "%s/proc/self/cgroup", root) == ERR_OK ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const group_files *v = version_of(controllers + 1);
        if (v) take_groups(m, has, root, group, v);
    }
    if (f) fclose(f);
}

memory_room memory_find(const char *root) {
    memory_room m = {.most = INT64_MAX, .available = -1, .addresses = INT64_MAX, .what = "this machine"};
    struct rlimit addresses;
    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur < INT64_MAX)
        m.addresses = (int64_t)addresses.rlim_cur;
    machine has = read_machine(root);
    m.available = has.available;
    if (has.total >= 0) m.most = has.total + (has.swap > 0 ? has.swap : 0);
    read_groups(&m, &has, root);
    return m;
}

// --- words -----------------------------------------------------------------------------------------------------------

static const char *size_text(char dst[32], int64_t bytes) {
    double x = (double)bytes;
    snprintf(dst, 32, x < 1e9 ? "%.1f MB" : "%.1f GB", x < 1e9 ? x / 1e6 : x / 1e9);
    return dst;
}

err_t memory_refuse(const char *who, int64_t bytes, bool alone, const memory_room *m) {
    char need[32], most[32], available[32], now[64] = "";
    bool limited = alone && m->addresses < m->most;
    if (m->available >= 0 && !limited)
        snprintf(now, sizeof now, ", %s of it available now", size_text(available, m->available));
    return err_set(ERR_CONFIG, "%s %s of memory, and %s has %s%s", who, size_text(need, bytes),
                   limited ? "a process under this limit of addresses (ulimit -v)" : m->what,
                   size_text(most, limited ? m->addresses : m->most), now);
}
