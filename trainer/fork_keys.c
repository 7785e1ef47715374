// trainer/fork_keys.c: which bits keys may differ between a run and its fork (trainer/fork.h). A checkpoint holds FP32
// masters, what the optimizer keeps of each, and counters: whatever these mean the same under may differ.
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
    {"model.layers", SHAPE},
    {"model.heads", MEANING},
    {"model.kv_heads", SHAPE},
    {"model.head_dim", SHAPE},
    {"model.embed", SHAPE},
    {"model.hidden", SHAPE},
    {"model.vocab", SHAPE},
    {"model.context", NULL},  // but see fork_forbids
    {"model.dropout", NULL},
    {"model.head_chunks", NULL},
    {"model.tied", SHAPE},
    {"model.bias", SHAPE},
    {"model.qk_norm", SHAPE},
    {"model.window", NULL},
    {"model.norm_eps", NULL},
    {"model.rope_theta", NULL},
    {"model.rope_scaling", NULL},
    {"model.rope_factor", NULL},
    {"model.rope_low", NULL},
    {"model.rope_high", NULL},
    {"model.rope_original", NULL},
    {"model.pattern", NULL},
    {"model.local_theta", NULL},
    {"model.inputs", SHAPE},
    {"model.classes", SHAPE},
    {"model.activation", MEANING},
    {"data.shuffle", NULL},
    {"data.holdout", NULL},
    {"data.ignore", NULL},
    {"batch.global", NULL},
    {"batch.micro", NULL},
    {"batch.lanes", NULL},
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
    {"optimizer.momentum", NULL},  // whether the arrays are there is compared
    {"optimizer.nesterov", NULL},
    {"schedule.type", NULL},
    {"schedule.warmup", NULL},
    {"schedule.decay_steps", NULL},
    {"schedule.final_fraction", NULL},
    {"parallel.slices", NULL},
    {"parallel.token_slices", NULL},
    {"reduce.order", NULL},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int find(const char *key) {
    for (int i = 0; i < KEYS; i++)
        if (strcmp(keys[i].key, key) == 0) return i;
    return -1;
}

bool fork_knows(const char *key) { return find(key) >= 0; }

const char *fork_forbids(const config *c, const char *key) {
    int i = find(key);
    if (i < 0) return "this build does not know what a fork would make of it";
    bool table = strcmp(model_types[c->model.type]->name, "gpt") == 0;  // a row of weights for each position
    return strcmp(key, "model.context") == 0 && table ? SHAPE : keys[i].why;
}
