// base/cores.c: see base/cores.h.
#include "base/cores.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SYS_PATH = 512 };

static int within_quota(int n) {
    double quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return n;
    bool limited = fscanf(f, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0;
    fclose(f);
    return limited && quota / period < n ? (int)(quota / period) : n;
}

int cores_usable(void) {
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    int whole = within_quota(n > 0 ? (int)n : 1);
    return whole > 0 ? whole : 1;
}

bool cores_here(cores *out) {
    cpu_set_t set;
    out->n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return false;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < CORES_MOST; cpu++)
        if (CPU_ISSET(cpu, &set)) out->cpu[out->n++] = cpu;
    return out->n > 0;
}

// --- order -----------------------------------------------------------------------------------------------------------

typedef struct site {
    int node, package, core, cpu;
} site;

static int number_in(const char *sys, int cpu, const char *file) {
    char path[SYS_PATH];
    int x = 0;
    snprintf(path, sizeof path, "%.400s/devices/system/cpu/cpu%d/topology/%s", sys, cpu, file);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    if (fscanf(f, "%d", &x) != 1) x = 0;
    fclose(f);
    return x;
}

// A processor's folder has a link named after its NUMA node.
static int node_of(const char *sys, int cpu) {
    char path[SYS_PATH];
    int node = 0;
    snprintf(path, sizeof path, "%.400s/devices/system/cpu/cpu%d", sys, cpu);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (sscanf(e->d_name, "node%d", &node) == 1) break;
    if (d) closedir(d);
    return node;
}

static int order(int a, int b) { return (a > b) - (a < b); }

static int by_site(const void *a, const void *b) {
    const site *x = a, *y = b;
    int rc = order(x->node, y->node);
    if (!rc) rc = order(x->package, y->package);
    if (!rc) rc = order(x->core, y->core);
    return rc ? rc : order(x->cpu, y->cpu);
}

void cores_sort(cores *c, const char *sys) {
    site all[CORES_MOST];
    for (int i = 0; i < c->n; i++) {
        int cpu = c->cpu[i];
        all[i] =
            (site){node_of(sys, cpu), number_in(sys, cpu, "physical_package_id"), number_in(sys, cpu, "core_id"), cpu};
    }
    qsort(all, (size_t)c->n, sizeof *all, by_site);
    for (int i = 0; i < c->n; i++) c->cpu[i] = all[i].cpu;
}

int cores_take(int local, int locals) {
    cores all;
    cpu_set_t mine;
    if (!cores_here(&all)) return 0;
    cores_sort(&all, "/sys");
    int n = all.n, from = local * n / locals, to = (local + 1) * n / locals;
    if (locals > n) from = local % n, to = from + 1;
    CPU_ZERO(&mine);
    for (int i = from; i < to; i++) CPU_SET(all.cpu[i], &mine);
    sched_setaffinity(0, sizeof mine, &mine);  // a refusal costs some speed; the number of threads is still right
    int allowed = within_quota(n) / locals, share = to - from;
    return share < allowed ? share : allowed > 1 ? allowed : 1;
}
