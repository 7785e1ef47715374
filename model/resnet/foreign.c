// model/resnet/foreign.c: residual networks as torchvision has them. Names are the same here; filters are stored as
// (K,C,R,S). There is no config.json: names and shapes say what net it is.
#include "model/resnet/resnet.h"
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

int resnet_parts(const void *options, const param *p, weight_part *part) {
    (void)options;
    *part = (weight_part){.filters = p->dims == 4, .rows = p->size[0]};
    memcpy(part->name, p->name, sizeof part->name);
    return 1;
}

static const st_tensor *find(const weights *w, const char *format, int stage, int64_t unit) {
    char name[MODEL_NAME];
    const st_file *file;
    snprintf(name, sizeof name, format, stage, (int)unit);
    return weights_find(w, name, &file);
}

// The units of each stage. Returns how many stages there are.
static int count_units(const weights *w, int64_t count[RESNET_STAGES]) {
    int stages = 0;
    memset(count, 0, RESNET_STAGES * sizeof *count);
    for (; stages < RESNET_STAGES && find(w, "layer%d.%d.conv1.weight", stages + 1, 0); stages++)
        while (find(w, "layer%d.%d.conv1.weight", stages + 1, count[stages])) count[stages]++;
    return stages;
}

bool resnet_from_tensors(void *options, const weights *w) {
    resnet_options *o = options;
    const st_tensor *stem = find(w, "conv1.weight", 0, 0), *head = find(w, "fc.weight", 0, 0);
    int64_t count[RESNET_STAGES];
    int stages = count_units(w, count);
    if (!stem || !head || stem->dims != 4 || head->dims != 2 || !stages) return false;
    bool small = stem->size[2] == 3;
    resnet_unit unit = find(w, "layer%d.%d.conv3.weight", 1, 0) ? RESNET_BOTTLENECK : RESNET_BASIC;
    const net_depth *near = NULL, *exact = NULL;
    for (const net_depth *d = resnet_depths; d < resnet_depths + RESNET_DEPTHS; d++) {
        if (d->small != small || d->unit != unit) continue;
        if (!near) near = d;
        if (d->stages == stages && memcmp(d->count, count, sizeof count) == 0) exact = d;
    }
    if (!near) return false;
    o->depth = (exact ? exact : near)->depth;
    for (int s = 0; s < stages && !exact; s++) {
        size_t n = strlen(o->units);
        snprintf(o->units + n, sizeof o->units - n, "%s%d", s ? " " : "", (int)count[s]);
    }
    o->width = stem->size[0], o->channels = stem->size[1], o->classes = head->size[0];
    return true;
}
