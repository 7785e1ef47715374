// trainer/joined.c: see trainer/joined.h.
#include "trainer/joined.h"

#include <inttypes.h>

static void print_gpu(const nvlinks *x, const char (*bus)[DEVICE_BUS], int gpu, FILE *out) {
    int named = x->switched[gpu];
    const char *comma = "";
    fprintf(out, "  GPU %-3d %-13s group %-3d", gpu, bus[gpu], x->group[gpu]);
    if (!x->up[gpu]) fprintf(out, " no link");
    if (x->switched[gpu]) fprintf(out, " %d to switches", x->switched[gpu]), comma = ",";
    for (int k = 0; k < x->n; k++) {
        if (!x->to[gpu][k]) continue;
        fprintf(out, "%s %d to GPU %d", comma, x->to[gpu][k], k);
        comma = ",", named += x->to[gpu][k];
    }
    if (named < x->up[gpu]) fprintf(out, "%s %d to others", comma, x->up[gpu] - named);
    fprintf(out, "\n");
}

// Those that have fewer links than their equals.
static void print_short(const nvlinks *x, FILE *out) {
    int equal = nvlinks_equal(x);
    for (int i = 0; i < x->n; i++) {
        if (x->up[i] >= equal || x->up[i] + x->down[i] == 0) continue;
        fprintf(out, "slow    GPU %d has %d working NVLink%s, its equals have %d", i, x->up[i],
                x->up[i] == 1 ? "" : "s", equal);
        if (x->down[i]) fprintf(out, "; %d %s down", x->down[i], x->down[i] == 1 ? "is" : "are");
        fprintf(out, ": see `nvidia-smi nvlink --status -i %d`\n", i);
    }
}

// Whether neighbours that the INI calls joined are in one group each.
static bool fits(const nvlinks *x, int64_t joined) {
    for (int i = 1; i < x->n; i++)
        if (i % joined && x->group[i] != x->group[i - 1]) return false;
    return true;
}

void joined_print_links(const nvlinks *x, const char (*bus)[DEVICE_BUS], int64_t joined, FILE *out) {
    int each = nvlinks_joined(x), links = 0;
    for (int i = 0; i < x->n; i++) links += x->up[i] + x->down[i];
    if (!links) fprintf(out, "nvlink  none between %d GPUs\n", x->n);
    else fprintf(out, "nvlink  %d GPUs in %d group%s\n", x->n, x->groups, x->groups == 1 ? "" : "s");
    for (int i = 0; links && i < x->n; i++) print_gpu(x, bus, i, out);
    print_short(x, out);
    if (joined && !fits(x, joined))
        fprintf(out, "slow    [cluster] joined = %" PRId64 ", and NVLink does not join such neighbours\n", joined);
    if (each && each != joined)
        fprintf(out, "faster  with [cluster] joined = %d sums are added inside these groups first\n", each);
}

void joined_print(const config *c, FILE *out) {
    char bus[NVLINKS_GPUS][DEVICE_BUS];
    nvlinks x;
    int n = c->resolved.kind == DEVICE_CPU ? 0 : device_count(DEVICE_CUDA);
    if (n < 2) return;
    for (int i = 0; i < n && i < NVLINKS_GPUS; i++)
        if (!device_bus(DEVICE_CUDA, i, bus[i])) bus[i][0] = 0;
    if (nvlinks_read(&x, n, (const char(*)[DEVICE_BUS])bus, NULL) == ERR_OK)
        joined_print_links(&x, (const char(*)[DEVICE_BUS])bus, c->cluster.joined, out);
    else fprintf(out, "nvlink  not known: %s\n", err_last()->text);
}
