// base/cores.c: see base/cores.h.
#include "base/cores.h"

#include <ctype.h>
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

// --- shares ----------------------------------------------------------------------------------------------------------

// The kernel's names have small letters, CUDA's large ones.
int cores_near_pci(const char *sys, const char *address) {
    char path[SYS_PATH], name[32];
    int node = -1, n = 0;
    for (; address[n] && n < (int)sizeof name - 1; n++) name[n] = (char)tolower((unsigned char)address[n]);
    name[n] = 0;
    snprintf(path, sizeof path, "%.400s/bus/pci/devices/%s/numa_node", sys, name);
    FILE *f = n ? fopen(path, "re") : NULL;
    if (!f) return -1;
    if (fscanf(f, "%d", &node) != 1) node = -1;
    fclose(f);
    return node < 0 ? -1 : node;
}

// Those of one NUMA node, in their order.
static void only_of(cores *out, const cores *all, const char *sys, int node) {
    out->n = 0;
    for (int i = 0; i < all->n; i++)
        if (node_of(sys, all->cpu[i]) == node) out->cpu[out->n++] = all->cpu[i];
}

// The rank's place among those near its node, and how many they are. False: some rank's node has no processors here.
static bool place_near(const cores *all, const char *sys, const int *near, int *local, int *locals) {
    cores some;
    int place = 0, count = 0;
    for (int i = 0; i < *locals; i++) {
        only_of(&some, all, sys, near[i]);
        if (near[i] < 0 || !some.n) return false;
        if (near[i] != near[*local]) continue;
        place += i < *local;
        count++;
    }
    *local = place, *locals = count;
    return true;
}

void cores_share(cores *mine, const cores *all, const char *sys, const int *near, int local, int locals) {
    cores from = *all;
    int node = near ? near[local] : -1;
    if (near && place_near(all, sys, near, &local, &locals)) only_of(&from, all, sys, node);
    cores_sort(&from, sys);
    int first = local * from.n / locals, end = (local + 1) * from.n / locals;
    if (locals > from.n) first = local % from.n, end = first + 1;
    mine->n = 0;
    for (int i = first; i < end; i++) mine->cpu[mine->n++] = from.cpu[i];
}

int cores_take(int local, int locals, const int *near) {
    cores all, mine;
    cpu_set_t set;
    if (!cores_here(&all)) return 0;
    cores_share(&mine, &all, "/sys", near, local, locals);
    CPU_ZERO(&set);
    for (int i = 0; i < mine.n; i++) CPU_SET(mine.cpu[i], &set);
    sched_setaffinity(0, sizeof set, &set);  // a refusal costs some speed; the number of threads is still right
    int allowed = within_quota(all.n) / locals;
    return mine.n < allowed ? mine.n : allowed > 1 ? allowed : 1;
}
