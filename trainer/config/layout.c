// trainer/config/layout.c: the rules of [parallel]: how slices, positions, blocks and lanes are shared by ranks.
#include "trainer/config/judge.h"
#include "trainer/config/pipes.h"

#include <inttypes.h>

// --- without a number of ranks ---------------------------------------------------------------------------------------

// Ranks that share layers have equal shares of the slices.
static err_t judge_tensor(judge *j) {
    int64_t tensor = j->c->parallel.tensor, slices = j->c->parallel.slices;
    if (slices % tensor == 0) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(parallel, tensor), ROW(parallel, slices)),
                        "tensor = %" PRId64 " ranks can't have equal shares of slices = %" PRId64, tensor, slices);
}

// Token slices are the lowest levels of the tree of lanes, and subtrees of the slices of rows.
static err_t judge_token_slices(judge *j) {
    int64_t K = j->c->parallel.token_slices, slices = j->c->parallel.slices;
    if (K & (K - 1) || K > slices)
        return judge_refuse(j, ROWS(ROW(parallel, token_slices), ROW(parallel, slices)),
                            "token_slices = %" PRId64 " is not a power of two up to slices = %" PRId64, K, slices);
    if (K > 1 && j->c->parallel.sequence)
        return judge_refuse(j, ROWS(ROW(parallel, token_slices), ROW(parallel, sequence)),
                            "sequence = yes divides the rows that token_slices = %" PRId64 " divides, too", K);
    return ERR_OK;
}

// Ranks that share a span have equal shares of its lanes.
static err_t judge_shares_of_span(judge *j) {
    int64_t context = j->c->parallel.context, span = j->c->resolved.span;
    if (span % context == 0) return ERR_OK;
    judge_number(j, (double)span);
    return judge_refuse(j, ROWS(ROW(parallel, context), ROW(batch, bn_span)),
                        "context = %" PRId64 " ranks can't have equal shares of a span of %" PRId64 " lanes", context,
                        span);
}

// Ranks that share positions have equal shares of the token slices, and, in attention, of the slices of heads.
static err_t judge_shares_of_positions(judge *j) {
    int64_t context = j->c->parallel.context, K = j->c->parallel.token_slices, slices = j->c->parallel.slices,
            tensor = j->c->parallel.tensor;
    judge_number(j, (double)(context * tensor));
    judge_number(j, (double)slices / (double)tensor);
    if (K % context == 0 && slices / tensor % context == 0) return ERR_OK;
    return judge_refuse(
        j, ROWS(ROW(parallel, context), ROW(parallel, token_slices), ROW(parallel, slices), ROW(parallel, tensor)),
        "context = %" PRId64 " ranks can't have equal shares of token_slices = %" PRId64 " and of slices = %" PRId64
        " with tensor = %" PRId64,
        context, K, slices, tensor);
}

// Their gradients are reduced in turns.
static err_t judge_context(judge *j) {
    int64_t context = j->c->parallel.context;
    if (context == 1) return ERR_OK;
    RULE(j, j->c->resolved.span > 1 ? judge_shares_of_span(j) : judge_shares_of_positions(j));
    if (j->c->parallel.zero >= 2) return ERR_OK;
    return judge_refuse(
        j, ROWS(ROW(parallel, zero), ROW(parallel, context)),
        "with context = %" PRId64
        " each rank has a part of every lane's gradient, and sends it when the lane ends, as in ZeRO stages 2 "
        "and 3, and here zero = %" PRId64,
        context, j->c->parallel.zero);
}

// Settings that speak of a pipeline's stages where there is no pipeline would be passed over in silence.
static err_t judge_no_pipeline(judge *j) {
    const config *c = j->c;
    if (c->parallel.stages[0])
        return judge_refuse(j, ROWS(ROW(parallel, stages), ROW(parallel, pipeline)),
                            "stages = %.100s cuts the blocks of a pipeline, and with pipeline = 1 there is none",
                            c->parallel.stages);
    if (c->parallel.chunks > 1)
        return judge_refuse(j, ROWS(ROW(parallel, chunks), ROW(parallel, pipeline)),
                            "chunks = %" PRId64
                            " is how many stages each rank of a pipeline has, and with pipeline = 1 there is none",
                            c->parallel.chunks);
    return ERR_OK;
}

// The stages that a rank has, and where the blocks are cut. An open `chunks` is what the schedule has.
static err_t judge_stages(judge *j) {
    const config *c = j->c;
    int64_t pipeline = c->parallel.pipeline, chunks = config_chunks(c);
    char schedule[CONFIG_WORD];
    int wanted;
    config_word(config_key(ROW(parallel, schedule))->words, c->parallel.schedule, schedule);
    bool has = pipe_has_chunks(c->parallel.schedule, chunks, &wanted);
    if (!has || (c->parallel.chunks > 1 && c->parallel.chunks != chunks))
        return judge_refuse(j, ROWS(ROW(parallel, chunks), ROW(parallel, schedule)),
                            "with schedule = %s each rank has %d stage%s, found chunks = %" PRId64, schedule, wanted,
                            S(wanted), c->parallel.chunks);
    int rows[] = {ROW(parallel, pipeline), ROW(parallel, chunks), ROW(parallel, schedule),
                  config_find(c, "model", "layers"), ROW(parallel, stages)};
    if (pipeline * chunks > j->blocks) {
        judge_number(j, (double)j->blocks / (double)chunks);
        judge_number(j, (double)(pipeline * chunks -
                                 (j->blocks - (rows[3] < 0 ? 0 : *(int64_t *)config_at((config *)c, rows[3])))));
        return judge_refuse(j, rows, 4,
                            "pipeline = %" PRId64 " rank%s with %" PRId64 " stage%s each are %" PRId64
                            " stages, and the model has only %d blocks",
                            pipeline, S(pipeline), chunks, S(chunks), pipeline * chunks, j->blocks);
    }
    if (!c->parallel.stages[0] || pipe_cuts(c->parallel.stages, (int)(pipeline * chunks), j->blocks, NULL))
        return ERR_OK;
    return judge_refuse(j, (const int[]){rows[4], rows[0], rows[1], rows[2], rows[3]}, 5,
                        "stages = %.100s: expected %" PRId64
                        " numbers of blocks, 1 or more each, that add up to the model's %d blocks",
                        c->parallel.stages, pipeline * chunks, j->blocks);
}

// Lanes can be dealt anew between two steps where each rank adds up its own ones, whole. In turns, and in a pipeline's
// schedule, the order of everything follows from the deal. With order = any the sums would follow from measured times.
static err_t judge_balance(judge *j) {
    const config *c = j->c;
    if (c->parallel.balance == BALANCE_NONE) return ERR_OK;
    if (c->parallel.zero >= 2)
        return judge_refuse(j, ROWS(ROW(parallel, balance), ROW(parallel, zero)),
                            "with zero = %" PRId64
                            " lanes are reduced in turns, which are planned for the deal that a run begins with: "
                            "balance = auto wants zero = 0 or 1, and deal = a list of lanes works with every stage",
                            c->parallel.zero);
    if (c->parallel.pipeline > 1)
        return judge_refuse(j, ROWS(ROW(parallel, balance), ROW(parallel, pipeline)),
                            "a pipeline's schedule is made for the lanes that it begins with: balance = auto wants "
                            "pipeline = 1, found %" PRId64 "; deal = a list of lanes works with pipelines",
                            c->parallel.pipeline);
    if (c->reduce.order == ORDER_FIXED) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(parallel, balance), ROW(reduce, order)),
                        "with order = any each deal has sums of its own, and balance = auto would let measured times "
                        "choose the result");
}

// Lin et al. 2018 correct momentum, which is sgd's. A step that overflows in FP16 would lose what other chunks have
// sent.
static err_t judge_topk(judge *j) {
    const config *c = j->c;
    if (c->reduce.density_warmup && (c->reduce.compress != SEND_TOPK || c->reduce.density >= 0.25)) {
        judge_number(j, 0);
        return judge_refuse(j, ROWS(ROW(reduce, density_warmup), ROW(reduce, compress), ROW(reduce, density)),
                            "density_warmup = %" PRId64
                            " are steps that send a quarter of a gradient and less, until compress = topk sends the "
                            "share density: it wants topk, and less than 0.25",
                            c->reduce.density_warmup);
    }
    if (c->reduce.compress != SEND_TOPK) return ERR_OK;
    if (c->optimizer.type != OPTIMIZER_SGD)
        return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(optimizer, type)),
                            "compress = topk corrects the momentum of sgd; adamw and lars divide by what they see of a "
                            "gradient, which would be few elements of it, and int8 works with them");
    if (c->reduce.compress_back != CODEC_NONE)
        return judge_refuse(j, ROWS(ROW(reduce, compress_back), ROW(reduce, compress)),
                            "compress_back codes whole sums, and compress = topk sends few elements of them");
    if (c->optimizer.grad_clip > 0 && c->parallel.pipeline * c->parallel.tensor > 1)
        return judge_refuse(
            j, ROWS(ROW(reduce, compress), ROW(optimizer, grad_clip), ROW(parallel, pipeline), ROW(parallel, tensor)),
            "with compress = topk grad_clip = %g clips each lane by its own norm, and no rank has the "
            "whole of a lane: it wants pipeline = 1 and tensor = 1, or grad_clip = 0",
            c->optimizer.grad_clip);
    if (c->optimizer.grad_clip > 0 && j->tied)
        return judge_refuse(
            j, ROWS(ROW(reduce, compress), ROW(optimizer, grad_clip), config_find(c, "model", "tied")),
            "with compress = topk grad_clip = %g clips each lane by its own norm, and a tied embedding "
            "has two gradients in a lane, which are added later: it wants grad_clip = 0, or a head apart",
            c->optimizer.grad_clip);
    if (c->precision.compute != FP16) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(precision, compute)),
                        "compress = topk loses what it has sent in a step that is skipped, and FP16 skips some: bf16 "
                        "and fp32 don't");
}

// Lanes that are coded as one are a subtree.
static err_t judge_compress_span(judge *j) {
    const config *c = j->c;
    int64_t span = c->reduce.compress_span;
    if (span == 1) return ERR_OK;
    judge_number(j, 1);
    judge_number(j, (double)c->resolved.lanes);
    if (c->reduce.compress == SEND_ALL)
        return judge_refuse(j, ROWS(ROW(reduce, compress_span), ROW(reduce, compress)),
                            "compress_span = %" PRId64 " lanes are coded as one, and compress = none codes nothing",
                            span);
    if (span & (span - 1))
        return judge_refuse(j, ROWS(ROW(reduce, compress_span)), "compress_span = %" PRId64 " is not a power of two",
                            span);
    if (span <= c->resolved.lanes) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(reduce, compress_span), ROW(batch, lanes), ROW(batch, global), ROW(batch, micro)),
                        "compress_span = %" PRId64 " is more than the lanes = %" PRId64 " of a step", span,
                        c->resolved.lanes);
}

// A lane that is coded is coded whole, by the one rank that has it, and its rest stays where the lane is.
static err_t judge_compress(judge *j) {
    const config *c = j->c;
    char word[CONFIG_WORD];
    bool back = c->reduce.compress_back != CODEC_NONE;
    RULE(j, judge_compress_span(j));
    if (c->reduce.compress == SEND_ALL && !back) return ERR_OK;
    if (c->reduce.compress == SEND_ALL)
        return judge_refuse(j, ROWS(ROW(reduce, compress_back), ROW(reduce, compress)),
                            "compress_back codes the sums of lanes that were coded, and compress = none");
    config_word(config_key(ROW(reduce, compress))->words, c->reduce.compress, word);
    if (c->reduce.order == ORDER_ANY)
        return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(reduce, order)),
                            "compress = %s codes each lane by itself, and with order = any lanes are added before they "
                            "are sent",
                            word);
    if (c->parallel.token_slices > 1)
        return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(parallel, token_slices)),
                            "compress = %s codes each lane by itself, and token_slices = %" PRId64
                            " cut a lane into parts that several ranks may have",
                            word, c->parallel.token_slices);
    if (c->resolved.span > 1)
        return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(batch, bn_span)),
                            "compress = %s codes each lane by itself, and bn_span computes %" PRId64 " of them at once",
                            word, c->resolved.span);
    if (c->parallel.pipeline > 1 && j->tied)
        return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(parallel, pipeline), config_find(c, "model", "tied")),
                            "compress = %s codes a lane's gradient of a tensor as one, and of the embedding, which is "
                            "the head too, two stages of a pipeline have a part each",
                            word);
    if (c->parallel.balance == BALANCE_NONE) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(reduce, compress), ROW(parallel, balance)),
                        "with compress = %s what was left out of a lane stays with its rank: balance = auto would move "
                        "lanes, and deal = a list of lanes does not",
                        word);
}

// What would copy the state in memory has no memory that it is in.
static err_t judge_offload(judge *j) {
    const config *c = j->c;
    if (c->parallel.offload != OFFLOAD_NVME) return ERR_OK;
    if (c->checkpoint.async)
        return judge_refuse(j, ROWS(ROW(checkpoint, async), ROW(parallel, offload)),
                            "async = yes writes checkpoints from a copy of the state in memory, and offload = nvme "
                            "keeps the state in files because memory has no room for it");
    if (!c->cluster.elastic || !c->snapshot.every) return ERR_OK;
    judge_number(j, 0);
    return judge_refuse(j, ROWS(ROW(snapshot, every), ROW(parallel, offload), ROW(cluster, elastic)),
                        "snapshot.every = %" PRId64
                        " keeps copies of the state in memory for an elastic run, and offload = nvme keeps the state "
                        "in files because memory has no room for it; with 0 such a run goes back to its checkpoints",
                        c->snapshot.every);
}

// What is tied between stages is tied between the first and the last one (trainer/step/tied.h).
static err_t judge_shared(judge *j) {
    if (j->c->parallel.pipeline == 1 || !j->shared) return ERR_OK;
    return judge_refuse(
        j, ROWS(ROW(parallel, pipeline), ROW(model, type)),
        "all layers of this model share a table, of which each stage of a pipeline would have a part of "
        "the gradient: it wants pipeline = 1, found %" PRId64 "; tensor divides its layers",
        j->c->parallel.pipeline);
}

err_t judge_layout(judge *j) {
    RULE(j, judge_outer(j));
    RULE(j, judge_periods(j));
    RULE(j, judge_tensor(j));
    RULE(j, judge_token_slices(j));
    RULE(j, judge_context(j));
    RULE(j, judge_balance(j));
    RULE(j, judge_compress(j));
    RULE(j, judge_offload(j));
    RULE(j, judge_topk(j));
    RULE(j, judge_servers(j));
    RULE(j, judge_shared(j));
    return j->c->parallel.pipeline == 1 ? judge_no_pipeline(j) : judge_stages(j);
}

// --- how ranks are arranged ------------------------------------------------------------------------------------------

// The first stage and the last may share a tensor, so they are always linked.
static unsigned links_of(const config *c) {
    unsigned plain = c->parallel.schedule == PIPELINE_ZB_V                                    ? LINKS_V
                     : c->parallel.schedule == PIPELINE_INTERLEAVED && c->parallel.chunks > 1 ? LINKS_LOOP
                                                                                              : LINKS_PLAIN;
    return plain | 1u << LINK_TIED;
}

grid config_grid(const config *c, int world) {
    if (world == 1) return (grid){.data = 1, .tensor = 1, .pipeline = 1, .context = 1};
    int pipeline = (int)c->parallel.pipeline, tensor = (int)c->parallel.tensor, context = (int)c->parallel.context,
        islands = (int)c->outer.islands, data = world / pipeline / tensor / context / islands;
    return (grid){.data = data,
                  .islands = islands,
                  .servers = c->server.count < data ? (int)c->server.count
                             : data > 1             ? data - 1
                                                    : 0,
                  .tensor = tensor,
                  .pipeline = pipeline,
                  .context = context,
                  .links = pipeline > 1 ? links_of(c) : 0,
                  .beside = c->checkpoint.async,
                  .paired = config_is_served(c)};
}

// --- with a number of ranks ------------------------------------------------------------------------------------------

// Where the ranks are counted: the row, and its name.
static int counted_in(const config *c) { return *c->cluster.nodes ? ROW(cluster, nodes) : ROW(device, ranks); }
static const char *counted(const config *c) { return *c->cluster.nodes ? "[cluster] nodes" : "[device] ranks"; }

// What the ranks' number must be a multiple of, and what each factor of it may be.
static void grid_numbers(judge *j, int world) {
    int64_t t = j->c->parallel.tensor, x = j->c->parallel.context, p = j->c->parallel.pipeline,
            d = j->c->parallel.data ? j->c->parallel.data : 1, i = j->c->outer.islands;
    const int64_t others[] = {x * p * d * i, t * p * d * i, t * x * d * i, t * x * p * i, t * x * p * d};
    judge_number(j, world);
    judge_number(j, (double)(t * x * p * d * i));
    for (int k = 0; k < 5; k++)
        if (world % others[k] == 0) judge_number(j, (double)(world / others[k]));
}

static err_t judge_grid(judge *j, int world) {
    const config *c = j->c;
    grid g = {.data = (int)c->parallel.data,
              .tensor = (int)c->parallel.tensor,
              .pipeline = (int)c->parallel.pipeline,
              .context = (int)c->parallel.context,
              .islands = (int)c->outer.islands};
    if (grid_of(&g, world, &g) == ERR_OK) return ERR_OK;
    grid_numbers(j, world);
    return judge_refuse(j,
                        ROWS(ROW(parallel, pipeline), ROW(parallel, tensor), ROW(parallel, context),
                             ROW(parallel, data), counted_in(c), ROW(parallel, token_slices), ROW(outer, islands)),
                        "%d rank%s (%s): %s", world, S(world), counted(c), err_last()->text);
}

// A span's lanes are on one rank, or on those that share positions.
static err_t judge_spans(judge *j, int world) {
    const config *c = j->c;
    int64_t rest = world / (c->parallel.tensor * c->parallel.pipeline) - c->server.count * c->parallel.context,
            spans = c->resolved.lanes;
    if (c->resolved.span == 1 || rest / c->parallel.context <= spans) return ERR_OK;
    judge_number(j, (double)((rest + spans - 1) / spans));
    judge_number(j, (double)(spans * c->parallel.context * c->parallel.tensor * c->parallel.pipeline));
    return judge_refuse(j,
                        ROWS(ROW(parallel, context), ROW(batch, bn_span), counted_in(c), ROW(batch, lanes),
                             ROW(batch, global), ROW(batch, micro)),
                        "%d ranks (%s) are too many for the %" PRId64 " span%s of lanes (bn_span = %" PRId64
                        ") of a step: several share one by [parallel] context, found %" PRId64,
                        world, counted(c), spans, S(spans), c->batch.bn_span, c->parallel.context);
}

// A model that ranks share needs lanes too.
static err_t judge_models(judge *j, int world) {
    const config *c = j->c;
    int64_t tensor = c->parallel.tensor * c->parallel.context, each = tensor * c->parallel.pipeline,
            models = world / each - c->server.count;
    const char *who = tensor > 1 ? "models" : "pipelines";
    if (models <= c->resolved.lanes) return ERR_OK;
    grid_numbers(j, world);
    judge_number(j, (double)(each * c->resolved.lanes));
    return judge_refuse(j,
                        ROWS(ROW(parallel, pipeline), ROW(batch, lanes), counted_in(c), ROW(batch, global),
                             ROW(batch, micro), ROW(parallel, tensor), ROW(parallel, context)),
                        "%d ranks (%s) in %s of %" PRId64 " are %" PRId64 " %s, more than the lanes = %" PRId64
                        " that a step is split into: one without a lane would be idle",
                        world, counted(c), who, each, models, who, c->resolved.lanes);
}

static err_t judge_lanes(judge *j, int world) {
    const config *c = j->c;
    int64_t workers = world - c->server.count;
    char but[64] = "";
    if (workers <= c->resolved.lanes) return ERR_OK;
    if (c->server.count)
        snprintf(but, sizeof but, " without %" PRId64 " server%s", c->server.count, S(c->server.count));
    judge_number(j, (double)(workers * c->resolved.micro));
    return judge_refuse(j,
                        ROWS(counted_in(c), ROW(batch, lanes), ROW(batch, global), ROW(batch, micro),
                             c->server.count ? ROW(server, count) : -1),
                        "%d ranks (%s)%s are more than the lanes = %" PRId64
                        " that a step is split into: a rank without a lane would be idle",
                        world, counted(c), but, c->resolved.lanes);
}

static err_t judge_data(judge *j, int world) {
    const config *c = j->c;
    if (!c->parallel.data || c->parallel.data == world) return ERR_OK;
    judge_number(j, world);
    return judge_refuse(j, ROWS(ROW(parallel, data), counted_in(c)),
                        "[parallel] data = %" PRId64
                        ", but the run has %d rank%s (%s), and all of them share the lanes",
                        c->parallel.data, world, S(world), counted(c));
}

// Each pipeline's micro-batches must suit the schedule.
static err_t judge_micros(judge *j, int world) {
    const config *c = j->c;
    grid g = config_grid(c, world);
    int64_t chunks = config_chunks(c);
    for (int d = 0; d < g.data; d++) {
        int64_t micros = pipe_micros(c, &g, d);
        pipe_fault fault = pipe_judge(c->parallel.schedule, g.pipeline, chunks, micros);
        if (fault == PIPE_FITS) continue;
        judge_number(j, (double)(c->resolved.lanes * c->resolved.micro * g.pipeline));
        judge_number(j, (double)(c->resolved.micro * g.pipeline * g.data));
        judge_number(j, (double)micros);
        int rows[] = {ROW(parallel, pipeline), ROW(parallel, schedule), ROW(batch, global),   ROW(batch, micro),
                      ROW(batch, lanes),       counted_in(c),           ROW(parallel, chunks)};
        if (fault == PIPE_GROUPS)
            return judge_refuse(j, rows, 7,
                                "schedule = interleaved takes micro-batches in groups of pipeline = %d, and %" PRId64
                                " of a step pass through a pipeline",
                                g.pipeline, micros);
        if (fault == PIPE_TOO_FEW)
            return judge_refuse(
                j, rows, 7,
                "schedule = zb-v needs at least as many micro-batches as pipeline = %d has ranks, and %" PRId64
                " of a step pass%s through a pipeline",
                g.pipeline, micros, micros == 1 ? "es" : "");
        return judge_refuse(j, rows, 7,
                            "%" PRId64 " micro-batches of a step pass through a pipeline of %d ranks with %" PRId64
                            " stage%s each, and a schedule holds at most %" PRId64,
                            micros, g.pipeline, chunks, S(chunks), pipe_most_micros(g.pipeline, chunks));
    }
    return ERR_OK;
}

// Spans of lanes that are coded as one are each on one rank.
static err_t judge_coded(judge *j, int world) {
    const config *c = j->c;
    const grid g = config_grid(c, world);
    int64_t workers = grid_workers(&g), spans = c->resolved.lanes / c->reduce.compress_span;
    if (c->reduce.compress_span == 1 || workers <= spans) return ERR_OK;
    for (int64_t span = c->reduce.compress_span; span >= 1; span /= 2)
        if (c->resolved.lanes / span >= workers) judge_number(j, (double)span);
    return judge_refuse(j, ROWS(ROW(reduce, compress_span), counted_in(c), ROW(batch, lanes)),
                        "%" PRId64 " ranks that share the lanes (%d rank%s, %s) are more than the %" PRId64
                        " spans of compress_span = %" PRId64 " lanes, each of which one rank runs",
                        workers, world, S(world), counted(c), spans, c->reduce.compress_span);
}

// Where servers apply gradients one by one, each worker has the same share of a step.
static err_t judge_shares(judge *j, int world) {
    const config *c = j->c;
    const grid g = config_grid(c, world);
    int64_t workers = grid_workers(&g), lanes = c->resolved.lanes, fewer = workers, more = workers;
    if (!config_is_served(c) || lanes % workers == 0) return ERR_OK;
    while (lanes % fewer) fewer--;
    while (more < lanes && lanes % more) more++;
    judge_number(j, (double)((c->server.count + fewer) * grid_context(&g)));
    judge_number(j, (double)((c->server.count + more) * grid_context(&g)));
    return judge_refuse(j, ROWS(counted_in(c), ROW(batch, lanes), ROW(server, count), ROW(server, mode)),
                        "a step's lanes = %" PRId64 " can't be divided into a share for each of %" PRId64
                        " workers (%d ranks, %s), which servers ask for that do not wait for all lanes",
                        lanes, workers, world, counted(c));
}

static bool deals_spans(const config *c, int data) {
    int64_t count[data + 1];
    bool whole = pipe_deal(c->parallel.deal, data, c->resolved.lanes, count);
    for (int k = 0; whole && k < data; k++) whole = count[k] % c->reduce.compress_span == 0;
    return whole;
}

static err_t judge_deal(judge *j, int world) {
    const config *c = j->c;
    const grid g = config_grid(c, world);
    int data = grid_workers(&g);
    if (!*c->parallel.deal || deals_spans(c, data)) return ERR_OK;
    if (pipe_deal(c->parallel.deal, data, c->resolved.lanes, NULL))
        return judge_refuse(j, ROWS(ROW(parallel, deal), ROW(reduce, compress_span)),
                            "deal = %.100s: expected whole spans of compress_span = %" PRId64
                            " lanes, which are coded as one",
                            c->parallel.deal, c->reduce.compress_span);
    return judge_refuse(j,
                        ROWS(ROW(parallel, deal), ROW(batch, lanes), counted_in(c), ROW(parallel, tensor),
                             ROW(parallel, pipeline), ROW(parallel, context)),
                        "deal = %.100s: expected %d whole number%s, one for each that shares the lanes, that add up to "
                        "lanes = %" PRId64 "; without it all have as many lanes as the others, or one less",
                        c->parallel.deal, data, S(data), c->resolved.lanes);
}

// Somebody has to compute. A run that has lost ranks goes on with fewer servers.
static err_t judge_workers(judge *j, int world) {
    const config *c = j->c;
    int64_t each = c->parallel.tensor * c->parallel.context * c->parallel.pipeline, models = world / each;
    if (!c->server.count || models > c->server.count || c->cluster.elastic) return ERR_OK;
    judge_number(j, (double)((c->server.count + 1) * each));
    judge_number(j, (double)(models - 1));
    return judge_refuse(j, ROWS(ROW(server, count), counted_in(c), ROW(parallel, tensor), ROW(parallel, context)),
                        "count = %" PRId64 " of %" PRId64
                        " that share the lanes (%d rank%s, %s) leaves none to run them",
                        c->server.count, models, world, S(world), counted(c));
}

// A file has what its rank owns.
static err_t judge_files(judge *j, int world) {
    const config *c = j->c;
    grid g = config_grid(c, world);
    if (c->parallel.offload != OFFLOAD_NVME || c->parallel.zero || grid_group_size(&g, GROUP_DATA) == 1) return ERR_OK;
    judge_number(j, 1);
    return judge_refuse(
        j, ROWS(ROW(parallel, zero), ROW(parallel, offload)),
        "offload = nvme keeps in a file what a rank owns, and with zero = 0 each of %d ranks has masters "
        "and optimizer state of its own: zero = 1 divides them",
        grid_group_size(&g, GROUP_DATA));
}

err_t judge_ranks(judge *j, int world) {
    const config *c = j->c;
    RULE(j, judge_spans(j, world));
    RULE(j, judge_workers(j, world));
    RULE(j, judge_coded(j, world));
    if (c->parallel.tensor * c->parallel.context * c->parallel.pipeline * c->outer.islands > 1) {
        RULE(j, judge_grid(j, world));
        RULE(j, judge_models(j, world));
        RULE(j, judge_deal(j, world));
        RULE(j, judge_files(j, world));
        return c->parallel.pipeline > 1 ? judge_micros(j, world) : ERR_OK;
    }
    RULE(j, judge_lanes(j, world));
    RULE(j, judge_shares(j, world));
    RULE(j, judge_deal(j, world));
    RULE(j, judge_files(j, world));
    return judge_data(j, world);
}
