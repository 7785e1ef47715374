// trainer/config/islands.c: the rules of [outer]: islands of ranks that mix their weights every so many steps.
#include "trainer/config/fragments.h"
#include "trainer/config/judge.h"

#include <inttypes.h>

// Islands are cut off the tree of lanes, and what they mix is the whole of their state.
static err_t judge_islands(judge *j) {
    const config *c = j->c;
    int64_t islands = c->outer.islands;
    if (islands & (islands - 1)) {
        int64_t fits = 1;
        while (fits * 2 < islands) fits *= 2;
        judge_number(j, (double)fits), judge_number(j, (double)(2 * fits));
        return judge_refuse(j, ROWS(ROW(outer, islands)), "islands = %" PRId64 " is not a power of two", islands);
    }
    if (islands > c->resolved.lanes) {
        judge_number(j, (double)c->resolved.lanes);
        judge_number(j, (double)(islands * c->resolved.micro));
        return judge_refuse(j, ROWS(ROW(outer, islands), ROW(batch, lanes), ROW(batch, global), ROW(batch, micro)),
                            "islands = %" PRId64 " are more than the lanes = %" PRId64
                            " of a step: one without a lane would learn nothing",
                            islands, c->resolved.lanes);
    }
    if (islands > 1) return ERR_OK;
    if (c->outer.every > 1)
        return judge_refuse(j, ROWS(ROW(outer, every), ROW(outer, islands)),
                            "every = %" PRId64 " is how often islands mix their weights, and islands = 1",
                            c->outer.every);
    if (c->outer.compress != CODEC_NONE)
        return judge_refuse(j, ROWS(ROW(outer, compress), ROW(outer, islands)),
                            "compress is how islands send their weights, and islands = 1");
    if (c->outer.moments != MOMENTS_MEAN)
        return judge_refuse(j, ROWS(ROW(outer, moments), ROW(outer, islands)),
                            "moments = own is what islands have of their optimizers, and islands = 1");
    if (c->outer.type == OUTER_AVERAGE) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(outer, type), ROW(outer, islands)),
                        "type = nesterov is how islands mix their weights, and islands = 1");
}

// What leaves arrives before the same tensors leave again.
static err_t judge_fragments(judge *j) {
    const config *c = j->c;
    fragments all;
    if (fragments_parse(&all, c->outer.fragments, c->outer.every) != ERR_OK)
        return judge_refuse(j, ROWS(ROW(outer, fragments)), "%s", err_last()->text);
    if (c->outer.islands == 1) {
        if (*c->outer.fragments)
            return judge_refuse(j, ROWS(ROW(outer, fragments), ROW(outer, islands)),
                                "fragments is which tensors islands mix how often, and islands = 1");
        if (c->outer.overlap)
            return judge_refuse(j, ROWS(ROW(outer, overlap), ROW(outer, islands)),
                                "overlap is how long islands wait for what they send, and islands = 1");
        return ERR_OK;
    }
    if (!c->outer.overlap) return ERR_OK;
    for (int k = 0; k < all.count; k++) {
        if (c->outer.overlap < all.of[k].period) continue;
        judge_number(j, (double)(all.of[k].period - 1));
        judge_number(j, (double)(c->outer.overlap + 1));
        return judge_refuse(j,
                            ROWS(ROW(outer, overlap), *all.of[k].pattern ? ROW(outer, fragments) : ROW(outer, every)),
                            "overlap = %" PRId64 ": what leaves after a step must be mixed in before it leaves again, "
                            "and %s leaves every %" PRId64 " step%s",
                            c->outer.overlap, *all.of[k].pattern ? all.of[k].pattern : "what no fragment names",
                            all.of[k].period, S(all.of[k].period));
    }
    if (c->outer.moments == MOMENTS_OWN) return ERR_OK;
    return judge_refuse(j, ROWS(ROW(outer, moments), ROW(outer, overlap)),
                        "with overlap = %" PRId64 " what optimizers keep would be so many steps old when its mean "
                        "arrives: moments = own leaves it where it is",
                        c->outer.overlap);
}

// What can't be had with islands yet.
static err_t judge_beside_islands(judge *j) {
    const config *c = j->c;
    if (c->outer.islands == 1) return ERR_OK;
    const int islands = ROW(outer, islands);
    if (c->reduce.order == ORDER_ANY)
        return judge_refuse(j, ROWS(islands, ROW(reduce, order)),
                            "islands are added along the tree of lanes, which order = any leaves to the transport");
    if (c->reduce.compress != SEND_ALL)
        return judge_refuse(j, ROWS(islands, ROW(reduce, compress)),
                            "what [reduce] compress leaves out of a lane would be saved by one island only");
    if (c->parallel.offload)
        return judge_refuse(j, ROWS(islands, ROW(parallel, offload)),
                            "islands mix their state where steps are computed, and offload keeps it elsewhere");
    if (c->parallel.balance != BALANCE_NONE)
        return judge_refuse(j, ROWS(islands, ROW(parallel, balance)),
                            "balance = auto would move lanes from one island to another, which changes the result");
    if (*c->parallel.deal)
        return judge_refuse(j, ROWS(islands, ROW(parallel, deal)),
                            "each island has an equal share of the lanes, and deal is a list of all ranks'");
    if (c->cluster.elastic)
        return judge_refuse(j, ROWS(islands, ROW(cluster, elastic)),
                            "a run that heals goes on from any step, and islands hold the same at boundaries only");
    if (c->resolved.span > 1)
        return judge_refuse(j, ROWS(islands, ROW(batch, bn_span)),
                            "bn_span takes moments over %" PRId64 " lanes, which islands may divide", c->resolved.span);
    if (config_weighs(c))
        return judge_refuse(
            j,
            ROWS(islands, c->data.documents ? ROW(data, documents)
                          : c->data.answers ? ROW(data, answers)
                                            : ROW(data, ignore)),
            "with [data] ignore, answers or documents losses are weighed over all samples of a step, which an island "
            "does not know");
    if (c->optimizer.ema > 0)
        return judge_refuse(j, ROWS(islands, ROW(optimizer, ema)),
                            "ema follows the weights of each step, and islands hold the same at boundaries only");
    if (c->optimizer.type == OPTIMIZER_LARS)
        return judge_refuse(j, ROWS(islands, ROW(optimizer, type)),
                            "lars weighs an island's gradient by norms of whole rows, which are added over all ranks");
    return ERR_OK;
}

err_t judge_outer(judge *j) {
    RULE(j, judge_islands(j));
    RULE(j, judge_fragments(j));
    RULE(j, judge_beside_islands(j));
    return ERR_OK;
}
