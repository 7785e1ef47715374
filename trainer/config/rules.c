// trainer/config/rules.c: the rules between keys, and the values of keys that were left open (0). Those of [parallel]
// are in trainer/config/layout.c, what is done with a rule that does not hold in trainer/config/resolve.c.
#include "data/weights.h"
#include "trainer/config/cluster_parse.h"
#include "trainer/config/groups.h"
#include "trainer/config/judge.h"

#include <inttypes.h>
#include <string.h>

enum { LANES_MOST = 8, WARMUP_MOST = 100 };  // the most that an open `lanes` and `warmup` become

// --- the model -------------------------------------------------------------------------------------------------------

// A key that an architecture names: its own, or "section.key".
static int row_of(const config *c, const char *name) {
    char section[CONFIG_WORD] = "model";
    const char *dot = name ? strchr(name, '.') : NULL;
    if (!name) return -1;
    if (dot) snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    return config_find(c, section, dot ? dot + 1 : name);
}

// The slices are a power of two, and divide what the architecture says that they divide.
static err_t judge_slices(judge *j, const model_rule *r) {
    int64_t slices = j->c->parallel.slices;
    if (slices & (slices - 1))
        return judge_refuse(j, ROWS(ROW(parallel, slices)), "slices = %" PRId64 " is not a power of two", slices);
    for (int k = 0; k < RULE_DIVIDED && r->divided[k]; k++) {
        if (r->value[k] % slices == 0) continue;
        judge_number(j, (double)(r->value[k] & -r->value[k]));  // the largest power of two that divides
        return judge_refuse(j, ROWS(ROW(parallel, slices), row_of(j->c, r->divided[k])),
                            "slices = %" PRId64 " don't divide %s: %" PRId64, slices, r->divided[k], r->value[k]);
    }
    return ERR_OK;
}

// What the architecture chooses and demands.
err_t judge_model(judge *j, config *c) {
    model_adapters lora = {.rank = c->lora.rank, .alpha = c->lora.alpha, .dropout = c->lora.rank ? c->lora.dropout : 0};
    param_groups groups;
    lora.int8 = c->lora.weights == LORA_INT8;
    snprintf(lora.targets, sizeof lora.targets, "%s", c->lora.targets);
    TRY(groups_parse(&groups, c->optimizer.groups));  // as judge_groups found them
    groups_frozen(&groups, lora.frozen, sizeof lora.frozen);
    model_rule r = {.micro = c->resolved.micro,
                    .gpu = c->resolved.kind == DEVICE_CUDA,
                    .slices = c->parallel.slices,
                    .rows = c->parallel.sequence,
                    .tokens = c->parallel.token_slices,
                    .span = c->resolved.span,
                    .documents = c->data.documents,
                    .adapters = &lora};
    err_t rc = model_types[c->model.type]->resolve(&c->model.of, &r);
    // Also where it is refused: what it chose before that is open in a proposal.
    for (int i = 0; i < RULE_KEYS && r.chosen[i]; i++) c->origin[row_of(c, r.chosen[i])].chosen = true;
    if (rc != ERR_OK)
        return judge_refuse(
            j, ROWS(row_of(c, r.broken[0]), row_of(c, r.broken[1]), row_of(c, r.broken[2]), row_of(c, r.broken[3])),
            "%s", err_last()->text);
    j->blocks = r.blocks, j->tied = r.tied, j->shared = r.shared, j->demand = r.demand;
    return judge_slices(j, &r);
}

// What adapters can't be had with so far.
static err_t judge_lora(judge *j) {
    const config *c = j->c;
    if (!c->lora.rank && c->lora.weights)
        return judge_refuse(j, ROWS(ROW(lora, weights), ROW(lora, rank)),
                            "weights = int8 is for frozen weights beside adapters, and rank = 0 makes none");
    if (!c->lora.rank) return ERR_OK;
    if (!c->lora.targets[0])
        return judge_refuse(j, ROWS(ROW(lora, targets), ROW(lora, rank)),
                            "rank = %" PRId64
                            " makes adapters, and targets names nothing that gets one: expected names "
                            "such as q_proj v_proj",
                            c->lora.rank);
    if (strlen(c->lora.targets) >= ADAPTER_TARGETS)
        return judge_refuse(j, ROWS(ROW(lora, targets)), "targets has %zu letters: %d are the most",
                            strlen(c->lora.targets), ADAPTER_TARGETS - 1);
    return ERR_OK;
}

// Which parameters there are is known once there is a model.
static err_t judge_groups(judge *j) {
    const config *c = j->c;
    param_groups g;
    char frozen[FROZEN_GLOBS];
    if (groups_parse(&g, c->optimizer.groups) != ERR_OK)
        return judge_refuse(j, ROWS(ROW(optimizer, groups)), "%s", err_last()->text);
    if (!groups_frozen(&g, frozen, sizeof frozen))
        return judge_refuse(j, ROWS(ROW(optimizer, groups)),
                            "where some are frozen the globs of all groups have %d letters at most", FROZEN_GLOBS - 1);
    for (int i = 0; i < g.count; i++) {
        bool mixes = c->optimizer.type == OPTIMIZER_ADAMW || c->optimizer.type == OPTIMIZER_MUON;
        if (g.at[i].type >= 0 && !mixes)
            return judge_refuse(j, ROWS(ROW(optimizer, groups), ROW(optimizer, type)),
                                "%s: adamw and muon may stand side by side, and type = %s is neither", g.at[i].globs,
                                c->optimizer.type == OPTIMIZER_SGD ? "sgd" : "lars");
        if (g.at[i].decay >= 0 && c->optimizer.type == OPTIMIZER_LARS)
            return judge_refuse(j, ROWS(ROW(optimizer, groups), ROW(optimizer, type)),
                                "%s: lars measures all matrices with one weight_decay", g.at[i].globs);
    }
    return ERR_OK;
}

// --- data ------------------------------------------------------------------------------------------------------------

static err_t judge_holdout(judge *j) {
    const config *c = j->c;
    if (!c->data.holdout || !c->data.val[0]) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(data, holdout), ROW(data, val)),
                        "holdout = %" PRId64 " takes validation data from the end of train, and val names other files",
                        c->data.holdout);
}

static err_t judge_mean(judge *j) {
    const config *c = j->c;
    if (c->eval.weights == EVAL_LAST) return ERR_OK;
    if (c->optimizer.ema == 0)
        return judge_refuse(j, ROWS(ROW(eval, weights), ROW(optimizer, ema)),
                            "weights = ema is the mean of the weights, and with [optimizer] ema = 0 none is kept");
    if (c->parallel.offload != OFFLOAD_NVME) return ERR_OK;
    return judge_refuse(
        j, ROWS(ROW(eval, weights), ROW(parallel, offload)),
        "weights = ema puts the mean in the masters' place, and with offload = nvme these are in a file");
}

// What never improves because it is never measured would end no run, or the first one.
static err_t judge_patience(judge *j) {
    const config *c = j->c;
    if (!c->eval.patience) return ERR_OK;
    judge_number(j, 0);
    if (!c->eval.every)
        return judge_refuse(j, ROWS(ROW(eval, patience), ROW(eval, every)),
                            "patience = %" PRId64 " counts evaluations, and every = 0 asks for none", c->eval.patience);
    if (c->data.val[0] || c->data.holdout || c->resolved.best_of[0]) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(eval, patience), ROW(data, val), ROW(data, holdout), ROW(eval, sets)),
                        "patience = %" PRId64 " looks at the loss on validation data, and there is none",
                        c->eval.patience);
}

// A token is ignored by its number, so the model must have tokens, and this one among them.
static err_t judge_ignore(judge *j, const config *c) {
    int vocab = row_of(c, "vocab");
    if (c->data.ignore < 0) return ERR_OK;
    if (vocab < 0) {
        judge_number(j, -1);
        return judge_refuse(j, ROWS(ROW(data, ignore), ROW(model, type)),
                            "ignore = %" PRId64 " is a token, and type = %s reads none", c->data.ignore,
                            model_types[c->model.type]->name);
    }
    int64_t tokens = *(int64_t *)config_at((config *)c, vocab);
    if (c->data.ignore < tokens) return ERR_OK;
    judge_number(j, -1);
    return judge_refuse(j, ROWS(ROW(data, ignore), vocab),
                        "ignore = %" PRId64 " is not one of the tokens 0 .. vocab - 1 = %" PRId64, c->data.ignore,
                        tokens - 1);
}

// Answers are of tokens.
static err_t judge_answers(judge *j, const config *c) {
    if (!c->data.answers || row_of(c, "vocab") >= 0) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(data, answers), ROW(model, type)),
                        "answers = yes is for texts, and type = %s reads no tokens", model_types[c->model.type]->name);
}

// The token that ends a document is one of the model's, and says nothing where documents are not told apart.
static err_t judge_documents(judge *j, const config *c) {
    int vocab = row_of(c, "vocab");
    int64_t tokens = vocab < 0 ? 0 : *(int64_t *)config_at((config *)c, vocab);
    if (c->data.document_end < 0) return ERR_OK;
    judge_number(j, -1);
    if (!c->data.documents)
        return judge_refuse(j, ROWS(ROW(data, document_end), ROW(data, documents)),
                            "document_end = %" PRId64 " ends documents, which documents = no does not tell apart",
                            c->data.document_end);
    if (c->data.document_end < tokens) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(data, document_end), vocab),
                        "document_end = %" PRId64 " is not one of the tokens 0 .. vocab - 1 = %" PRId64,
                        c->data.document_end, tokens - 1);
}

// How many parts the key's names are a mix of; 1: none.
static err_t count_parts(judge *j, int row, const char *files, int *parts) {
    weights w = {0};
    err_t rc = weights_parse(&w, files) == ERR_OK ? ERR_OK : judge_refuse(j, &row, 1, "%s", err_last()->text);
    *parts = w.parts > 1 ? w.parts : 1;
    weights_free(&w);
    return rc;
}

// That the named sets can be read, and which one says what is best.
static err_t judge_sets(judge *j, config *c) {
    eval_sets s;
    char names[SETS_NAMES];
    int parts;
    if (sets_parse(&s, c->eval.sets) != ERR_OK) return judge_refuse(j, ROWS(ROW(eval, sets)), "%s", err_last()->text);
    for (int i = 0; i < s.count; i++) {
        TRY(count_parts(j, ROW(eval, sets), s.at[i].files, &parts));
        if (parts > 1)
            return judge_refuse(j, ROWS(ROW(eval, sets)),
                                "%s: an evaluation reads each sample once: write the same names without @ and weight",
                                s.at[i].name);
    }
    bool first = !c->data.val[0] && !c->data.holdout && s.count;
    snprintf(c->resolved.best_of, SET_NAME, "%s", first ? s.at[0].name : "");
    if (!c->eval.best_of[0]) return ERR_OK;
    if (sets_find(&s, c->eval.best_of) < 0)
        return judge_refuse(j, ROWS(ROW(eval, best_of), ROW(eval, sets)), "%.40s is none of the sets: %s%s",
                            c->eval.best_of, s.count ? "expected " : "there are none in sets", sets_names(&s, names));
    snprintf(c->resolved.best_of, SET_NAME, "%.*s", SET_NAME - 1, c->eval.best_of);
    return ERR_OK;
}

static err_t judge_mix(judge *j) {
    const config *c = j->c;
    int train, val;
    TRY(count_parts(j, ROW(data, train), c->data.train, &train));
    TRY(count_parts(j, ROW(data, val), c->data.val, &val));
    if (val > 1)
        return judge_refuse(
            j, ROWS(ROW(data, val)),
            "weights say how often a run draws from each of several parts, and validation reads each sample of val once: write the same "
            "names without @ and weight");
    if (train > 1 && c->data.holdout)
        return judge_refuse(
            j, ROWS(ROW(data, holdout), ROW(data, train)),
            "holdout = %" PRId64
            " takes validation data from the end of train, and a mix of %d parts with weights has no end: name files of "
            "validation data in val",
            c->data.holdout, train);
    return ERR_OK;
}

// --- a step ----------------------------------------------------------------------------------------------------------

static err_t judge_rounding(judge *j) {
    const config *c = j->c;
    if (c->precision.rounding == ROUNDING_NEAREST || c->precision.compute != FP32) return ERR_OK;
    return judge_refuse(
        j, ROWS(ROW(precision, rounding), ROW(precision, compute)),
        "with compute = fp32 the weights in use are the masters themselves, and rounding = stochastic would round nothing");
}

// On GPUs products of BF16 numbers are other sums. Of `auto` it is known once it is decided (config_decide).
err_t judge_products(judge *j) {
    const config *c = j->c;
    bool found = c->device.backend == DEVICE_AUTO && c->resolved.kind == DEVICE_CUDA;
    if (c->precision.products == PRODUCTS_FP32) return ERR_OK;
    if (c->precision.compute == FP16)
        return judge_refuse(j, ROWS(ROW(precision, products), ROW(precision, compute)),
                            "products = bf16-pairs multiplies BF16 numbers, and compute = fp16 stores FP16 ones");
    if (c->device.backend != DEVICE_CUDA && !found) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(precision, products), ROW(device, backend)),
                        "products = bf16-pairs is an arithmetic of CPUs, whose bits no GPU computes, and %s%s",
                        found ? c->resolved.why : "backend = cuda", found ? "" : " is a GPU");
}

static err_t judge_nesterov(judge *j) {
    const config *c = j->c;
    if (!c->optimizer.nesterov || c->optimizer.momentum > 0) return ERR_OK;
    judge_number(j, 0.9);  // what most use
    return judge_refuse(j, ROWS(ROW(optimizer, nesterov), ROW(optimizer, momentum)),
                        "nesterov = yes looks ahead along the momentum, and with momentum = 0 there is none");
}

// A file's windows hold chunks, and a matrix is more.
static err_t judge_muon(judge *j) {
    const config *c = j->c;
    bool muon = c->optimizer.type == OPTIMIZER_MUON || groups_have(c->optimizer.groups, OPTIMIZER_MUON);
    if (!muon || c->parallel.offload != OFFLOAD_NVME) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(optimizer, type), ROW(parallel, offload)),
                        "offload = nvme updates chunk by chunk, and muon needs a whole matrix: offload = host has it");
}

static err_t judge_rollback(judge *j) {
    double times = j->c->optimizer.rollback;
    if (times == 0 || times > 1) return ERR_OK;
    judge_number(j, 3);
    return judge_refuse(j, ROWS(ROW(optimizer, rollback)),
                        "rollback = %g: half of all losses are above their median; 0 never goes back", times);
}

// global = lanes * micro * a whole number; lanes a power of two.
static err_t judge_batch(judge *j, config *c) {
    int64_t global = c->batch.global, micro = c->batch.micro, lanes = c->batch.lanes;
    if (lanes & (lanes - 1))
        return judge_refuse(j, ROWS(ROW(batch, lanes)), "lanes = %" PRId64 " is not a power of two", lanes);
    if (global % micro)
        return judge_refuse(j, ROWS(ROW(batch, global), ROW(batch, micro)),
                            "global = %" PRId64 " is not a multiple of micro = %" PRId64, global, micro);
    int64_t most = global / micro & -(global / micro);  // largest power of two that divides
    if (lanes == 0) {
        c->resolved.lanes = most < LANES_MOST ? most : LANES_MOST;
        c->origin[ROW(batch, lanes)].chosen = true;
    } else if (lanes > most) {
        judge_number(j, (double)most);
        judge_number(j, (double)(lanes * micro));
        judge_number(j, (double)(global / lanes));
        return judge_refuse(j, ROWS(ROW(batch, global), ROW(batch, micro), ROW(batch, lanes)),
                            "global = %" PRId64 " is not lanes = %" PRId64 " * micro = %" PRId64 " * a whole number",
                            global, lanes, micro);
    }
    return ERR_OK;
}

// The lanes of a span run as one, with a micro-batch of all their samples, of which each lane's are a token slice: so a
// gradient is the sum of the same parts, and BatchNorm has the samples of the whole span in one pass.
static err_t judge_span(judge *j, config *c) {
    int64_t lanes = c->resolved.lanes, micros = c->batch.global / lanes / c->batch.micro,
            span = c->batch.bn_span ? c->batch.bn_span : lanes;
    if (span & (span - 1))
        return judge_refuse(j, ROWS(ROW(batch, bn_span)), "bn_span = %" PRId64 " is not a power of two", span);
    judge_number(j, (double)lanes);
    if (span > lanes)
        return judge_refuse(j, ROWS(ROW(batch, bn_span), ROW(batch, lanes), ROW(batch, global), ROW(batch, micro)),
                            "bn_span = %" PRId64 " is more than the lanes = %" PRId64 " of a step", span, lanes);
    if (!c->batch.bn_span && micros > 1) {
        judge_number(j, (double)(c->batch.global / lanes));
        return judge_refuse(j, ROWS(ROW(batch, bn_span), ROW(batch, lanes), ROW(batch, global), ROW(batch, micro)),
                            "bn_span = 0 takes all samples of a step at once, and each of the lanes = %" PRId64
                            " computes %" PRId64 " micro-batches one after the other",
                            lanes, micros);
    }
    c->resolved.span = span, c->resolved.lanes = lanes / span, c->resolved.micro = c->batch.micro * span;
    return ERR_OK;
}

// Of steps and epochs the later one counts, as of any key that is given twice.
static err_t judge_epochs(judge *j, config *c) {
    int steps = c->origin[ROW(run, steps)].file, epochs = c->origin[ROW(run, epochs)].file;
    if (c->run.epochs == 0 || epochs > steps) return ERR_OK;
    if (steps > epochs) return c->run.epochs = 0, ERR_OK;
    return judge_refuse(j, ROWS(ROW(run, epochs), ROW(run, steps)),
                        "epochs = %g and steps = %" PRId64 " both say when the run ends: leave one of them out",
                        c->run.epochs, c->run.steps);
}

// A tenth of the schedule, at most WARMUP_MOST. A constant rate without an end gets WARMUP_MOST, whatever run.steps is:
// the run can be extended.
static void choose_warmup(config *c) {
    int64_t tenth = c->resolved.decay_steps / 10;
    if (c->schedule.warmup) return;
    if (tenth < 1) tenth = 1;
    c->resolved.warmup = c->resolved.decay_steps && tenth < WARMUP_MOST ? tenth : WARMUP_MOST;
    c->origin[ROW(schedule, warmup)].chosen = true;
}

// A constant rate has no decay: an open decay_steps stays 0 there, so that the run can be extended without another
// schedule.
static err_t judge_schedule(judge *j, config *c) {
    bool endless = c->schedule.type == SCHEDULE_CONSTANT && c->schedule.decay_steps == 0;
    bool open = c->schedule.decay_steps == 0 && !endless;
    if (open && c->run.epochs > 0) return ERR_OK;  // it follows from steps, which are not known yet
    if (open) {
        c->resolved.decay_steps = c->run.steps;
        c->origin[ROW(schedule, decay_steps)].chosen = true;
    }
    choose_warmup(c);
    if (endless || c->resolved.warmup <= c->resolved.decay_steps) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(schedule, warmup), open ? ROW(run, steps) : ROW(schedule, decay_steps)),
                        "the warm-up of %" PRId64 " steps ends after the decay, which ends at step %" PRId64 " (%s)",
                        c->resolved.warmup, c->resolved.decay_steps, open ? "run.steps" : "decay_steps");
}

// --- nodes -----------------------------------------------------------------------------------------------------------

// Data connections use the ports after `port`, one for each rank of a node.
static err_t judge_ports(judge *j, const cluster *cl) {
    int most = 0;
    for (int i = 0; i < cl->nodes; i++) most = cl->ranks[i] > most ? cl->ranks[i] : most;
    most += j->c->cluster.elastic != 0;  // rank 0's, above those of the ranks
    if (cl->nodes == 1 || j->c->cluster.port + most <= 65535) return ERR_OK;
    judge_number(j, 65535 - most);
    return judge_refuse(j, ROWS(ROW(cluster, port), ROW(cluster, nodes)),
                        "port = %" PRId64 " and one more for each rank of a node, %d, go beyond 65535",
                        j->c->cluster.port, most);
}

// A node's ranks are in its entry. Which entry is this machine's is not known here.
static err_t judge_entries(judge *j, const cluster *cl) {
    int64_t ranks = j->c->device.ranks;
    if (!ranks) return ERR_OK;
    for (int i = 0; i < cl->nodes; i++)
        if (cl->ranks[i] == ranks) return ERR_OK;
    for (int i = 0; i < cl->nodes; i++)
        if (i == 0 || cl->ranks[i] != cl->ranks[i - 1]) judge_number(j, cl->ranks[i]);
    return judge_refuse(j, ROWS(ROW(device, ranks), ROW(cluster, nodes)),
                        "[device] ranks = %" PRId64 ", and no entry of [cluster] nodes gives a node %" PRId64
                        ": the first gives %s %d; 0 leaves it to the list",
                        ranks, ranks, cl->host[0], cl->ranks[0]);
}

static err_t judge_elastic(judge *j, const cluster *cl) {
    const config *c = j->c;
    if (!c->cluster.elastic || c->cluster.min_ranks <= cl->world) return ERR_OK;
    judge_number(j, cl->world);
    return judge_refuse(j, ROWS(ROW(cluster, min_ranks), ROW(cluster, nodes)),
                        "min_ranks = %" PRId64 ", and nodes has %d in all: it would wait for ever",
                        c->cluster.min_ranks, cl->world);
}

static err_t judge_signs(judge *j) {
    const config *c = j->c;
    if (c->cluster.evict_slow && !c->cluster.elastic)
        return judge_refuse(j, ROWS(ROW(cluster, evict_slow), ROW(cluster, elastic)),
                            "evict_slow = yes wants elastic = yes: only such a run goes on with fewer ranks");
    if ((double)c->cluster.timeout < 2 * c->cluster.heartbeat)
        return judge_refuse(j, ROWS(ROW(cluster, timeout), ROW(cluster, heartbeat)),
                            "with heartbeat = %g a rank would be given up after timeout = %" PRId64
                            " seconds, before a late sign of life can come",
                            c->cluster.heartbeat, c->cluster.timeout);
    if (c->reduce.transport == TRANSPORT_NCCL && c->device.backend == DEVICE_CPU && !c->reduce.nccl_library[0])
        return judge_refuse(j, ROWS(ROW(reduce, transport), ROW(device, backend)),
                            "transport = nccl moves the memory of GPUs, and backend = cpu has none");
    return ERR_OK;
}

// Numbers of ranks that were counted are looked at by cluster_resolve().
static err_t judge_joined(judge *j, cluster *cl, int ranks_row) {
    if (cluster_joined(cl, j->c->cluster.joined) == ERR_OK) return ERR_OK;
    for (int n = 0; n < cl->nodes; n++) judge_number(j, cl->ranks[n]);
    return judge_refuse(j, ROWS(ROW(cluster, joined), ranks_row), "%s", err_last()->text);
}

static err_t judge_alone(judge *j) {
    const config *c = j->c;
    int world = c->device.ranks ? (int)c->device.ranks : j->world;
    cluster one = {.nodes = 1, .ranks = {(int)c->device.ranks}, .host = {"this machine"}};
    RULE(j, judge_joined(j, &one, ROW(device, ranks)));
    return world ? judge_ranks(j, world) : ERR_OK;
}

// The number of ranks is known if the INI or the caller gives it; cluster_resolve() asks again after it has counted
// them.
static err_t judge_cluster(judge *j) {
    const config *c = j->c;
    RULE(j, judge_signs(j));
    if (!*c->cluster.nodes && *c->cluster.racks)
        return judge_refuse(j, ROWS(ROW(cluster, racks), ROW(cluster, nodes)),
                            "racks = %s, and nodes is empty: this machine is the only one", c->cluster.racks);
    if (!*c->cluster.nodes) return judge_alone(j);
    cluster cl;
    if (cluster_parse(&cl, c->cluster.nodes) != ERR_OK)
        return judge_refuse(j, ROWS(ROW(cluster, nodes)), "%s", err_last()->text);
    if (cluster_racks(&cl, c->cluster.racks) != ERR_OK)
        return judge_refuse(j, ROWS(ROW(cluster, racks), ROW(cluster, nodes)), "%s", err_last()->text);
    RULE(j, judge_joined(j, &cl, ROW(cluster, nodes)));
    RULE(j, judge_ports(j, &cl));
    RULE(j, judge_entries(j, &cl));
    RULE(j, judge_elastic(j, &cl));
    return judge_ranks(j, cl.world);
}

// --- all of them -----------------------------------------------------------------------------------------------------

err_t judge_all(judge *j, config *c) {
    c->optimizer.by_lanes = c->reduce.compress == SEND_TOPK;
    j->keys = j->numbers = j->passed = 0;
    c->resolved.lanes = c->batch.lanes;
    c->resolved.warmup = c->schedule.warmup;
    c->resolved.decay_steps = c->schedule.decay_steps;
    RULE(j, judge_batch(j, c));
    RULE(j, judge_span(j, c));
    RULE(j, judge_lora(j));
    RULE(j, judge_groups(j));
    RULE(j, judge_model(j, c));
    RULE(j, judge_demand(j));
    RULE(j, judge_layout(j));
    RULE(j, judge_holdout(j));
    RULE(j, judge_sets(j, c));
    RULE(j, judge_mean(j));
    RULE(j, judge_patience(j));
    RULE(j, judge_ignore(j, c));
    RULE(j, judge_answers(j, c));
    RULE(j, judge_documents(j, c));
    RULE(j, judge_mix(j));
    RULE(j, judge_products(j));
    RULE(j, judge_rounding(j));
    RULE(j, judge_nesterov(j));
    RULE(j, judge_muon(j));
    RULE(j, judge_rollback(j));
    RULE(j, judge_epochs(j, c));
    RULE(j, judge_schedule(j, c));
    return judge_cluster(j);
}
