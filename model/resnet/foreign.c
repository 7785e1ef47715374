// model/resnet/foreign.c: residual networks as torchvision has them. Names are the same here; filters are stored as
// (K,C,R,S). There is no config.json: names and shapes say what net it is.
#include "model/resnet/resnet.h"

#include "model/foreign.h"

#include <stdio.h>
#include <string.h>

int resnet_parts(const void *options, const param *p, weight_part *part) {
    (void)options;
    *part = (weight_part){.filters = p->dims == 4, .rows = p->size[0]};
    memcpy(part->name, p->name, sizeof part->name);
    return 1;
}

// The sizes of a tensor whose name has these numbers, if it has so many dimensions; NULL: there is none.
static const int64_t *find(const tensor_shapes *t, int dims, const char *format, int stage, int64_t unit) {
    char name[MODEL_NAME];
    const int64_t *size;
    int has;
    snprintf(name, sizeof name, format, stage, (int)unit);
    return t->find(t->of, name, &has, &size) && has == dims ? size : NULL;
}

// The units of each stage. Returns how many stages there are.
static int count_units(const tensor_shapes *t, int64_t count[RESNET_STAGES]) {
    int stages = 0;
    memset(count, 0, RESNET_STAGES * sizeof *count);
    for (; stages < RESNET_STAGES && find(t, 4, "layer%d.%d.conv1.weight", stages + 1, 0); stages++)
        while (find(t, 4, "layer%d.%d.conv1.weight", stages + 1, count[stages])) count[stages]++;
    return stages;
}

// The depth with these units, or else the first one with such a stem and such units.
static const net_depth *depth_of(bool small, resnet_unit unit, const int64_t count[RESNET_STAGES]) {
    const net_depth *near = NULL;
    for (const net_depth *d = resnet_depths; d < resnet_depths + RESNET_DEPTHS; d++) {
        if (d->small != small || d->unit != unit) continue;
        if (memcmp(d->count, count, sizeof d->count) == 0) return d;
        if (!near) near = d;
    }
    return near;
}

bool resnet_from_tensors(void *options, const tensor_shapes *t) {
    resnet_options *o = options;
    const int64_t *stem = find(t, 4, "conv1.weight", 0, 0), *head = find(t, 2, "fc.weight", 0, 0);
    int64_t count[RESNET_STAGES];
    int stages = count_units(t, count);
    if (!stem || !head || !stages) return false;
    bool bottleneck = find(t, 4, "layer%d.%d.conv3.weight", 1, 0) != NULL;
    const net_depth *d = depth_of(stem[2] == 3, bottleneck ? RESNET_BOTTLENECK : RESNET_BASIC, count);
    if (!d) return false;
    o->depth = d->depth, o->width = stem[0], o->channels = stem[1], o->classes = head[0];
    for (int s = 0; s < stages && memcmp(d->count, count, sizeof count) != 0; s++) {
        size_t n = strlen(o->units);
        snprintf(o->units + n, sizeof o->units - n, "%s%d", s ? " " : "", (int)count[s]);
    }
    return true;
}
