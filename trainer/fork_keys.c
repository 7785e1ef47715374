// trainer/fork_keys.c: which bits keys may differ between a run and its fork (trainer/fork.h). A checkpoint holds FP32
// masters, what the optimizer keeps of each, and counters: whatever these mean the same under may differ. Of an
// architecture's keys it is said in their rows (model/keys.h), of all others here.
#include "trainer/fork.h"

#include "model/types.h"

#include <string.h>

static const char SHAPE[] = "the weights would have another shape", MEANING[] = "the weights would mean something else";

// NULL: may differ.
static const struct {
    const char *key, *why;
} keys[] = {
    {"run.seed", NULL},
    {"device.plans", NULL},  // the checkpoint keeps its own, and the run compares them
    {"model.type", SHAPE},
    {"lora.rank", SHAPE},
    {"lora.alpha", MEANING},
    {"lora.dropout", NULL},
    {"lora.weights", NULL},  // they are read again
    {"lora.targets", SHAPE},
    {"data.shuffle", NULL},
    {"data.holdout", NULL},
    {"data.ignore", NULL},
    {"data.answers", NULL},
    {"data.documents", NULL},
    {"data.document_end", NULL},
    {"data.crop", NULL},  // the shape of the weights says whether it fits
    {"data.area", NULL},
    {"data.shift", NULL},
    {"data.flip", NULL},
    {"batch.global", NULL},
    {"batch.micro", NULL},
    {"batch.lanes", NULL},
    {"batch.bn_span", NULL},
    {"precision.compute", NULL},
    {"precision.products", NULL},
    {"precision.rounding", NULL},
    {"precision.loss_scale", NULL},
    {"precision.scale_window", NULL},
    {"optimizer.type", "what the optimizer keeps would mean something else"},
    {"optimizer.lr", NULL},
    {"optimizer.beta1", NULL},
    {"optimizer.beta2", NULL},
    {"optimizer.eps", NULL},
    {"optimizer.weight_decay", NULL},
    {"optimizer.grad_clip", NULL},
    {"optimizer.skip_norm", NULL},
    {"optimizer.rollback", NULL},
    {"optimizer.momentum", NULL},  // whether the arrays are there is compared
    {"optimizer.nesterov", NULL},
    {"optimizer.trust", NULL},
    {"optimizer.muon_momentum", NULL},
    {"optimizer.ema", "the mean of the weights is one of all steps since the first"},
    {"optimizer.groups", "which weights are trained, and what the optimizer keeps of them, would be others"},
    {"schedule.type", NULL},
    {"schedule.warmup", NULL},
    {"schedule.decay_steps", NULL},
    {"schedule.final_fraction", NULL},
    {"parallel.slices", NULL},
    {"parallel.token_slices", NULL},
    {"reduce.order", NULL},
    {"outer.islands", NULL},  // whether the outer momentum is there is compared
    {"outer.every", NULL},
    {"outer.type", NULL},
    {"outer.lr", NULL},
    {"outer.momentum", NULL},
    {"outer.compress", NULL},  // whether the rests and the islands' own moments are there is compared
    {"outer.moments", NULL},
    {"outer.fragments", NULL},  // as is whether islands are apart
    {"outer.overlap", NULL},
    {"outer.keep", NULL},
    {"server.mode", NULL},
    {"server.staleness", NULL},
    {"server.timeout", NULL},
    {"server.late", NULL},
    {"server.every", NULL},
    {"reduce.compress", NULL},  // whether the rests are there is compared
    {"reduce.compress_back", NULL},
    {"reduce.compress_span", NULL},
    {"reduce.density", NULL},
    {"reduce.density_warmup", NULL},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int find(const char *key) {
    for (int i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, key) == 0) return i;
    return -1;
}

// The row of an architecture's key; NULL: it is none.
static const setting *row_of(const config *c, const char *key) {
    const model_type *type = model_types[c->model.type];
    for (int i = 0; i < type->keys && strncmp(key, "model.", 6) == 0; i++)
        if (strcmp(type->key[i].key, key + 6) == 0) return &type->key[i];
    return NULL;
}

bool fork_knows(const config *c, const char *key) {
    const setting *row = row_of(c, key);
    return row ? row->fork != FORK_UNSAID : find(key) >= 0;
}

const char *fork_forbids(const config *c, const char *key) {
    const setting *row = row_of(c, key);
    if (!fork_knows(c, key)) return "this build does not know what a fork would make of it";
    if (!row) return keys[find(key)].why;
    return row->fork == FORK_SHAPE ? SHAPE : row->fork == FORK_MEANING ? MEANING : NULL;
}
