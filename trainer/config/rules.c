// trainer/config/rules.c: the rules between keys, and the values of keys that were left open (0).
//
// A broken rule is reported at the line of the key that was set last, probably the one just edited, together with the
// nearest values that satisfy the rule.
#include "base/nearest.h"
#include "data/weights.h"
#include "trainer/config/cluster_parse.h"
#include "trainer/config/table.h"

#include <inttypes.h>
#include <string.h>

#define S(n) ((n) == 1 ? "" : "s")  // "1 rank", "2 ranks"
#define ROW(section, key) config_row(offsetof(config, section.key))

enum { LANES_MOST = 8, WARMUP_MOST = 100 };  // the most that an open `lanes` and `warmup` become

static bool later(key_origin a, key_origin b) { return a.file != b.file ? a.file > b.file : a.line > b.line; }

// "file:line: [section] key" of the key set last among these.
static const char *latest(const config *c, const int *rows, int n, char dst[INI_PLACE + 128]) {
    char place[INI_PLACE];
    int at = rows[0];
    for (int i = 1; i < n; i++)
        if (later(c->origin[rows[i]], c->origin[at])) at = rows[i];
    snprintf(dst, INI_PLACE + 128, "%s: [%s] %s", config_place(c, at, place), config_key(at)->section, config_key(at)->key);
    return dst;
}

#define COUNT(...) (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
#define LATEST(...) latest(c, (const int[]){__VA_ARGS__}, COUNT(__VA_ARGS__), (char[INI_PLACE + 128]){0})

// The slices are a power of two, and divide what the architecture says that they divide.
static err_t check_slices(const config *c, const model_rule *r) {
    int64_t slices = c->parallel.slices, below = 1;
    while (below * 2 <= slices) below *= 2;
    if (slices != below)
        return err_set(ERR_CONFIG, "%s: slices = %" PRId64 " is not a power of two. Nearest that work: %" PRId64 " or %" PRId64 ".",
                       LATEST(ROW(parallel, slices)), slices, below, below * 2);
    for (int k = 0; k < RULE_DIVIDED && r->divided[k]; k++) {
        int64_t most = r->value[k] & -r->value[k];  // the largest power of two that divides
        char multiples[64];
        if (slices <= most) continue;
        nearest_multiples(slices, r->value[k], multiples);
        return err_set(ERR_CONFIG, "%s: slices = %" PRId64 " don't divide %s: %" PRId64 ". Nearest that work: slices = %" PRId64 ", or %s there.",
                       LATEST(ROW(parallel, slices), config_find(c, "model", r->divided[k])), slices, r->divided[k], r->value[k], most, multiples);
    }
    return ERR_OK;
}

// Ranks that share layers have equal shares of the slices.
static err_t check_tensor(const config *c) {
    int64_t tensor = c->parallel.tensor, slices = c->parallel.slices, below = 1, above = 1;
    if (slices % tensor == 0) return ERR_OK;
    while (below * 2 <= tensor && below * 2 <= slices) below *= 2;
    while (above < tensor) above *= 2;
    return err_set(ERR_CONFIG,
                   "%s: tensor = %" PRId64 " ranks can't have equal shares of slices = %" PRId64 ". Nearest that work: tensor = %" PRId64
                   ", or slices = %" PRId64 " with tensor = %" PRId64 ".",
                   LATEST(ROW(parallel, tensor), ROW(parallel, slices)), tensor, slices, below, above, above);
}

// Token slices are the lowest levels of the tree of lanes, and subtrees of the slices of rows.
static err_t check_token_slices(const config *c) {
    int64_t K = c->parallel.token_slices, slices = c->parallel.slices, below = 1;
    while (below * 2 <= K && below * 2 <= slices) below *= 2;
    if (K != below)
        return err_set(ERR_CONFIG,
                       "%s: token_slices = %" PRId64 " is not a power of two up to slices = %" PRId64 ". Nearest that work: token_slices = %" PRId64
                       ", or slices of so many.",
                       LATEST(ROW(parallel, token_slices), ROW(parallel, slices)), K, slices, below);
    if (K > 1 && c->parallel.sequence)
        return err_set(ERR_CONFIG,
                       "%s: sequence = yes divides the rows that token_slices = %" PRId64
                       " divides, too. Nearest that work: sequence = no, or token_slices = 1 with context = 1.",
                       LATEST(ROW(parallel, token_slices), ROW(parallel, sequence)), K);
    return ERR_OK;
}

// Ranks that share positions have equal shares of the token slices, and, in attention, of the slices of heads. Their gradients are reduced in turns.
static err_t check_context(const config *c) {
    int64_t context = c->parallel.context, K = c->parallel.token_slices, heads = c->parallel.slices / c->parallel.tensor, below = 1;
    if (context == 1) return ERR_OK;
    while (below * 2 <= context && below * 2 <= K && below * 2 <= heads) below *= 2;
    if (K % context || heads % context)
        return err_set(ERR_CONFIG,
                       "%s: context = %" PRId64 " ranks can't have equal shares of token_slices = %" PRId64 " and of slices = %" PRId64
                       " with tensor = %" PRId64 ". Nearest that work: context = %" PRId64 ", or token_slices of a multiple of %" PRId64
                       " with slices of a multiple of %" PRId64 ".",
                       LATEST(ROW(parallel, context), ROW(parallel, token_slices), ROW(parallel, slices), ROW(parallel, tensor)), context, K,
                       c->parallel.slices, c->parallel.tensor, below, context, context * c->parallel.tensor);
    if (c->parallel.zero >= 2) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: with context = %" PRId64
                   " each rank has a part of every lane's gradient, and sends it when the lane ends, as in ZeRO stages 2 and 3. "
                   "Nearest that work: zero = 2, or context = 1; found zero = %" PRId64 ".",
                   LATEST(ROW(parallel, context), ROW(parallel, zero)), context, c->parallel.zero);
}

// What the architecture chooses and demands.
static err_t resolve_model(config *c) {
    model_rule r = {.micro = c->batch.micro,
                    .gpu = c->device.kind == DEVICE_CUDA,
                    .slices = c->parallel.slices,
                    .rows = c->parallel.sequence,
                    .tokens = c->parallel.token_slices};
    if (model_types[c->model.type]->resolve(&c->model.of, &r) != ERR_OK)
        return err_prefix("%s", LATEST(config_find(c, "model", r.broken[0]), config_find(c, "model", r.broken[1])));
    if (r.chosen) c->origin[config_find(c, "model", r.chosen)].chosen = true;
    return check_slices(c, &r);
}

// What the architecture had chosen is open again.
err_t config_decide(config *c, device_kind kind, const char *why) {
    c->device.kind = kind;
    snprintf(c->device.why, sizeof c->device.why, "%s", why);
    for (int i = config_next(c, -1); i >= 0; i = config_next(c, i))
        if (c->origin[i].chosen && strcmp(config_key(i)->section, "model") == 0) *(int64_t *)config_at(c, i) = 0;
    return resolve_model(c);
}

static err_t check_holdout(const config *c) {
    if (!c->data.holdout || !c->data.val[0]) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: holdout = %" PRId64 " takes validation data from the end of train, and val names other files. "
                   "Nearest that work: holdout = 0, or an empty val.",
                   LATEST(ROW(data, holdout), ROW(data, val)), c->data.holdout);
}

// How many parts the key's names are a mix of; 1: none.
static err_t count_parts(const config *c, int row, const char *files, int *parts) {
    weights w = {0};
    err_t rc = weights_parse(&w, files);
    if (rc != ERR_OK) err_prefix("%s", latest(c, &row, 1, (char[INI_PLACE + 128]){0}));
    *parts = w.parts > 1 ? w.parts : 1;
    weights_free(&w);
    return rc;
}

static err_t check_mix(const config *c) {
    int train, val;
    TRY(count_parts(c, ROW(data, train), c->data.train, &train));
    TRY(count_parts(c, ROW(data, val), c->data.val, &val));
    if (val > 1)
        return err_set(ERR_CONFIG,
                       "%s: weights say how often a run draws from each of several parts, and validation reads each sample of val once. Nearest that "
                       "works: the same names without @ and weight.",
                       LATEST(ROW(data, val)));
    if (train > 1 && c->data.holdout)
        return err_set(ERR_CONFIG,
                       "%s: holdout = %" PRId64 " takes validation data from the end of train, and a mix of %d parts with weights has no end. "
                       "Nearest that work: holdout = 0 and files of validation data in val, or train without weights.",
                       LATEST(ROW(data, holdout), ROW(data, train)), c->data.holdout, train);
    return ERR_OK;
}

static err_t check_rounding(const config *c) {
    if (c->precision.rounding == ROUNDING_NEAREST || c->precision.compute != FP32) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: with compute = fp32 the weights in use are the masters themselves, and rounding = stochastic "
                   "would round nothing. Nearest that work: rounding = nearest, or compute = bf16.",
                   LATEST(ROW(precision, rounding), ROW(precision, compute)));
}

static err_t check_nesterov(const config *c) {
    if (!c->optimizer.nesterov || c->optimizer.momentum > 0) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: nesterov = yes looks ahead along the momentum, and with momentum = 0 there is none. Nearest that work: "
                   "nesterov = no, or momentum = 0.9.",
                   LATEST(ROW(optimizer, nesterov), ROW(optimizer, momentum)));
}

// global = lanes * micro * a whole number; lanes a power of two.
static err_t check_batch(config *c) {
    int64_t global = c->batch.global, micro = c->batch.micro, lanes = c->batch.lanes;
    char divisors[64], multiples[64];
    if (lanes & (lanes - 1)) {
        int64_t below = 1;
        while (below * 2 < lanes) below *= 2;
        return err_set(ERR_CONFIG,
                       "%s: lanes = %" PRId64 " is not a power of two. Nearest that work: %" PRId64 " or %" PRId64 ", or 0 = chosen for "
                       "you.",
                       LATEST(ROW(batch, lanes)), lanes, below, below * 2);
    }
    if (global % micro) {
        nearest_divisors(global, micro, divisors);
        nearest_multiples(micro, global, multiples);
        return err_set(ERR_CONFIG,
                       "%s: global = %" PRId64 " is not a multiple of micro = %" PRId64 ". Nearest that work: micro = %s, "
                       "or global = %s.",
                       LATEST(ROW(batch, global), ROW(batch, micro)), global, micro, divisors, multiples);
    }
    int64_t most = global / micro & -(global / micro);  // largest power of two that divides
    if (lanes == 0) {
        c->batch.lanes = most < LANES_MOST ? most : LANES_MOST;
        c->origin[ROW(batch, lanes)].chosen = true;
    } else if (lanes > most) {
        nearest_multiples(lanes * micro, global, multiples);
        return err_set(ERR_CONFIG,
                       "%s: global = %" PRId64 " is not lanes = %" PRId64 " * micro = %" PRId64 " * a whole number. Nearest that work: "
                       "lanes = %" PRId64 ", or global = %s.",
                       LATEST(ROW(batch, global), ROW(batch, micro), ROW(batch, lanes)), global, lanes, micro, most, multiples);
    }
    return ERR_OK;
}

// A tenth of the schedule, at most WARMUP_MOST. A constant rate without an end gets WARMUP_MOST, whatever run.steps is:
// the run can be extended.
static void choose_warmup(config *c) {
    if (c->schedule.warmup) return;
    int64_t tenth = c->schedule.decay_steps / 10;
    if (tenth < 1) tenth = 1;
    c->schedule.warmup = c->schedule.decay_steps && tenth < WARMUP_MOST ? tenth : WARMUP_MOST;
    c->origin[ROW(schedule, warmup)].chosen = true;
}

// A constant rate has no decay: an open decay_steps stays 0 there, so that the run can be extended without another schedule.
static err_t check_schedule(config *c) {
    bool endless = c->schedule.type == SCHEDULE_CONSTANT && c->schedule.decay_steps == 0;
    bool open = c->schedule.decay_steps == 0 && !endless;
    if (open) {
        c->schedule.decay_steps = c->run.steps;
        c->origin[ROW(schedule, decay_steps)].chosen = true;
    }
    choose_warmup(c);
    if (endless) return ERR_OK;
    if (c->schedule.warmup <= c->schedule.decay_steps) return ERR_OK;
    int end = open ? ROW(run, steps) : ROW(schedule, decay_steps);
    return err_set(ERR_CONFIG,
                   "%s: the warm-up of %" PRId64 " steps ends after the decay, which ends at step %" PRId64 " (%s). Nearest that "
                   "work: warmup = %" PRId64 ", or %s = %" PRId64 ".",
                   LATEST(ROW(schedule, warmup), end), c->schedule.warmup, c->schedule.decay_steps, open ? "run.steps" : "decay_steps",
                   c->schedule.decay_steps, config_key(end)->key, c->schedule.warmup);
}

// A hint how `world` ranks would fit: more lanes, and the batch that these need. "" when there is none.
static void more_lanes(const config *c, int world, char dst[160]) {
    int64_t lanes = 1, global = c->batch.global, micro = c->batch.micro;
    while (lanes < world) lanes *= 2;
    *dst = 0;
    if (lanes > config_key(ROW(batch, lanes))->max) return;
    int64_t needed = (global + lanes * micro - 1) / (lanes * micro) * lanes * micro;
    int n = snprintf(dst, 160, ", or lanes = %" PRId64, lanes);
    if (needed == global) return;
    n += snprintf(dst + n, 160 - (size_t)n, " with global = %" PRId64, needed);
    if (global % lanes) return;
    while (global / lanes % micro) micro--;
    snprintf(dst + n, 160 - (size_t)n, " or micro = %" PRId64, micro);
}

// The first stage and the last may share a tensor, so they are always linked.
static unsigned links_of(const config *c) {
    unsigned plain = c->parallel.schedule == SCHEDULED_ZB_V                                    ? LINKS_V
                     : c->parallel.schedule == SCHEDULED_INTERLEAVED && c->parallel.chunks > 1 ? LINKS_LOOP
                                                                                               : LINKS_PLAIN;
    return plain | 1u << LINK_TIED;
}

grid config_grid(const config *c, int world) {
    if (world == 1) return (grid){.data = 1, .tensor = 1, .pipeline = 1, .context = 1};
    int pipeline = (int)c->parallel.pipeline, tensor = (int)c->parallel.tensor, context = (int)c->parallel.context;
    return (grid){.data = world / pipeline / tensor / context,
                  .tensor = tensor,
                  .pipeline = pipeline,
                  .context = context,
                  .links = pipeline > 1 ? links_of(c) : 0};
}

static err_t check_grid(const config *c, int world, int counted) {
    grid g = {
        .data = (int)c->parallel.data, .tensor = (int)c->parallel.tensor, .pipeline = (int)c->parallel.pipeline, .context = (int)c->parallel.context};
    if (grid_of(&g, world, &g) == ERR_OK) return ERR_OK;
    return err_prefix("%s: %d rank%s ([%s] %s)",
                      LATEST(ROW(parallel, pipeline), ROW(parallel, tensor), ROW(parallel, context), ROW(parallel, data), counted), world, S(world),
                      config_key(counted)->section, config_key(counted)->key);
}

// A model that ranks share needs lanes too.
static err_t check_models(const config *c, int ranks, int counted) {
    int64_t tensor = c->parallel.tensor * c->parallel.context, each = tensor * c->parallel.pipeline, models = ranks / each;
    int64_t lanes = c->batch.lanes, longer = c->parallel.pipeline;
    const char *who = tensor > 1 ? "models" : "pipelines";
    if (models <= lanes) return ERR_OK;
    while (ranks % (tensor * longer) || ranks / (tensor * longer) > c->batch.lanes) longer++;
    while (lanes < models) lanes *= 2;
    return err_set(ERR_CONFIG,
                   "%s: %d ranks ([%s] %s) in %s of %" PRId64 " are %" PRId64 " %s, more than the lanes = %" PRId64
                   " that a step is split into: one without a lane would be idle. Nearest that work: pipeline = %" PRId64 ", or lanes = %" PRId64 ".",
                   LATEST(ROW(parallel, pipeline), ROW(parallel, tensor), ROW(parallel, context), counted, ROW(batch, lanes)), ranks,
                   config_key(counted)->section, config_key(counted)->key, who, each, models, who, c->batch.lanes, longer, lanes);
}

err_t config_fits(const config *c, int world) {
    bool listed = *c->cluster.nodes;
    int counted = listed ? ROW(cluster, nodes) : ROW(device, ranks);
    int64_t each = c->parallel.tensor * c->parallel.context * c->parallel.pipeline;
    if (each > 1) {
        TRY(check_grid(c, world, counted));
        return check_models(c, world, counted);
    }
    if (world > c->batch.lanes) {
        char more[160];
        more_lanes(c, world, more);
        return err_set(ERR_CONFIG,
                       "%s: %d ranks ([%s] %s) are more than the lanes = %" PRId64 " that a step is split into: a rank without a "
                       "lane would be idle. Nearest that work: %" PRId64 " rank%s%s.",
                       LATEST(counted, ROW(batch, lanes), ROW(batch, global), ROW(batch, micro)), world, config_key(counted)->section,
                       config_key(counted)->key, c->batch.lanes, c->batch.lanes, S(c->batch.lanes), more);
    }
    if (c->parallel.data && c->parallel.data != world)
        return err_set(ERR_CONFIG,
                       "%s: [parallel] data = %" PRId64 ", but the run has %d rank%s ([%s] %s), and all of them share the lanes. "
                       "Nearest that work: data = 0, which means all there are, or %" PRId64 " rank%s.",
                       LATEST(ROW(parallel, data), counted), c->parallel.data, world, S(world), config_key(counted)->section,
                       config_key(counted)->key, c->parallel.data, S(c->parallel.data));
    return ERR_OK;
}

// Data connections use the ports after `port`, one for each rank of a node.
static err_t check_ports(const config *c, const cluster *cl) {
    int most = 0;
    for (int i = 0; i < cl->nodes; i++) most = cl->ranks[i] > most ? cl->ranks[i] : most;
    if (cl->nodes == 1 || c->cluster.port + most <= 65535) return ERR_OK;
    return err_set(ERR_CONFIG, "%s: port = %" PRId64 " and one more for each rank of a node, %d, go beyond 65535. Nearest that works: port = %d.",
                   LATEST(ROW(cluster, port), ROW(cluster, nodes)), c->cluster.port, most, 65535 - most);
}

// Checks the number of ranks only if the INI gives it; cluster_resolve() checks again after it has counted them.
static err_t check_cluster(const config *c) {
    if ((double)c->cluster.timeout < 2 * c->cluster.heartbeat)
        return err_set(ERR_CONFIG,
                       "%s: with heartbeat = %g a rank would be given up after timeout = %" PRId64 " seconds, before a late sign of life "
                       "can come. Nearest that work: timeout = %.0f, or heartbeat = %g.",
                       LATEST(ROW(cluster, timeout), ROW(cluster, heartbeat)), c->cluster.heartbeat, c->cluster.timeout,
                       2 * c->cluster.heartbeat + 0.5, (double)c->cluster.timeout / 2);
    if (c->reduce.transport == TRANSPORT_NCCL && c->device.backend == DEVICE_CPU && !c->reduce.nccl_library[0])
        return err_set(ERR_CONFIG,
                       "%s: transport = nccl moves the memory of GPUs, and backend = cpu has none. Nearest that work: transport = auto, or backend "
                       "= cuda.",
                       LATEST(ROW(reduce, transport), ROW(device, backend)));
    if (!*c->cluster.nodes) return c->device.ranks ? config_fits(c, (int)c->device.ranks) : ERR_OK;
    cluster cl;
    if (cluster_parse(&cl, c->cluster.nodes) != ERR_OK) return err_prefix("%s", LATEST(ROW(cluster, nodes)));
    TRY(check_ports(c, &cl));
    return config_fits(c, cl.world);
}

err_t config_resolve(config *c) {
    c->device.kind = c->device.backend;
    TRY(resolve_model(c));
    TRY(check_tensor(c));
    TRY(check_token_slices(c));
    TRY(check_context(c));
    TRY(check_holdout(c));
    TRY(check_mix(c));
    TRY(check_batch(c));
    TRY(check_rounding(c));
    TRY(check_nesterov(c));
    TRY(check_schedule(c));
    return check_cluster(c);
}
