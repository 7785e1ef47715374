// gpu/cuda/nvlinks.c: see gpu/nvlinks.h. Linked into every build, like sensors.c.
#include "gpu/nvlinks.h"

#include "gpu/cuda/nvml_api.h"

#include <stdio.h>
#include <string.h>

enum { LINKS_MOST = 64 };  // of a GPU: today's have 36 at most

typedef struct address {
    unsigned domain, bus, slot;
} address;

// NVML and CUDA write domains with different numbers of digits.
static bool read_address(const char *text, address *out) {
    return sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->slot) == 3;
}

static int find(const nvlinks *x, const address *all, address of) {
    for (int i = 0; i < x->n; i++)
        if (all[i].domain == of.domain && all[i].bus == of.bus && all[i].slot == of.slot) return i;
    return -1;
}

static bool leads_to_switch(const nvml *n, unsigned link) {
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    return n->nvmlDeviceGetNvLinkRemoteDeviceType &&
           n->nvmlDeviceGetNvLinkRemoteDeviceType(n->device, link, &type) == NVML_SUCCESS &&
           type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
}

// A link that works.
static void count_link(nvlinks *x, const nvml *n, int gpu, unsigned link, const address *all) {
    nvmlPciInfo_t pci;
    x->up[gpu]++;
    if (leads_to_switch(n, link)) {
        x->switched[gpu]++;
        return;
    }
    if (!n->nvmlDeviceGetNvLinkRemotePciInfo_v2 ||
        n->nvmlDeviceGetNvLinkRemotePciInfo_v2(n->device, link, &pci) != NVML_SUCCESS)
        return;
    int peer = find(x, all, (address){pci.domain, pci.bus, pci.device});
    if (peer >= 0) x->to[gpu][peer]++;
}

static void count_links(nvlinks *x, const nvml *n, int gpu, const address *all) {
    for (unsigned link = 0; link < LINKS_MOST && n->nvmlDeviceGetNvLinkState; link++) {
        nvmlEnableState_t on = NVML_FEATURE_DISABLED;
        if (n->nvmlDeviceGetNvLinkState(n->device, link, &on) != NVML_SUCCESS) continue;  // it has no such link
        if (on == NVML_FEATURE_ENABLED) count_link(x, n, gpu, link, all);
        else x->down[gpu]++;
    }
}

err_t nvlinks_read(nvlinks *out, int n, const char (*bus)[DEVICE_BUS], const char *library) {
    address all[NVLINKS_GPUS] = {{0}};
    *out = (nvlinks){.n = n};
    if (n > NVLINKS_GPUS)
        return err_set(ERR_UNAVAILABLE, "nvlink: %d GPUs of one machine, expected at most %d", n, NVLINKS_GPUS);
    for (int i = 0; i < n; i++)
        if (!read_address(bus[i], &all[i]))
            return err_set(ERR_UNAVAILABLE, "nvlink: `%s` is no address on the PCI bus", bus[i]);
    for (int i = 0; i < n; i++) {
        nvml one;
        TRY(nvml_open(&one, library, bus[i]));
        count_links(out, &one, i, all);
        nvml_close(&one);
    }
    nvlinks_group(out);
    return ERR_OK;
}

static bool are_joined(const nvlinks *x, int a, int b) {
    return x->to[a][b] || x->to[b][a] || (x->switched[a] && x->switched[b]);
}

// Each GPU takes the group of the first of those that it is joined to, directly or by others.
void nvlinks_group(nvlinks *x) {
    for (int i = 0; i < x->n; i++) x->group[i] = -1;
    x->groups = 0;
    for (int first = 0; first < x->n; first++) {
        int list[NVLINKS_GPUS], count = 0;
        if (x->group[first] >= 0) continue;
        x->group[first] = x->groups, list[count++] = first;
        for (int at = 0; at < count; at++)
            for (int k = 0; k < x->n; k++)
                if (x->group[k] < 0 && are_joined(x, list[at], k)) x->group[k] = x->groups, list[count++] = k;
        x->groups++;
    }
}

int nvlinks_joined(const nvlinks *x) {
    if (x->groups < 2 || x->groups == x->n || x->n % x->groups) return 0;
    int each = x->n / x->groups;
    for (int i = 0; i < x->n; i++)
        if (x->group[i] != i / each) return 0;
    return each;
}

int nvlinks_equal(const nvlinks *x) {
    int best = 0, most = 0;
    for (int i = 0; i < x->n; i++) {
        int same = 0;
        if (!x->up[i] && !x->down[i]) continue;
        for (int k = 0; k < x->n; k++) same += x->up[k] == x->up[i];
        if (same > most || (same == most && x->up[i] > best)) best = x->up[i], most = same;
    }
    return best;
}
