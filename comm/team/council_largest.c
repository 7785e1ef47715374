// comm/team/council_largest.c: the largest set of nodes that hear each other. Who hears all others of the pool is in
// every largest set; only the rest has to be tried, node by node, lowest first, with and without it. What cannot become
// larger than the best is left. A storm of one-way cuts among hundreds of nodes could still take for ever, so the
// number of trials is bounded, and the best that was found counts: any set is right that the vote accepts.
#include "comm/team/council_next.h"

typedef struct search {
    const council_view *v;
    node_set hears[COUNCIL_NODES];  // both ways, within the pool
    node_set must, best;
    int most, tries;
} search;

static int slots_of(const council_view *v, const node_set *s) {
    int n = 0;
    FOR_NODES(j, s) n += v->of[j].says.slots;
    return n;
}

// `in` hear each other; `open` hear all of them.
static void extend(search *s, node_set in, node_set open) {
    while (s->tries++ < COUNCIL_TRIES) {
        node_set met = set_and(in, &s->must), all = set_or(in, &open);
        if (slots_of(s->v, &all) <= s->most && !set_empty(&s->best)) return;
        int j = set_lowest(&open);
        if (j < 0) {
            if (set_empty(&in) || (set_empty(&met) && !set_empty(&s->must))) return;
            s->best = in, s->most = slots_of(s->v, &in);
            return;
        }
        node_set with = in, rest;
        set_add(&with, j), set_drop(&open, j);
        rest = set_and(open, &s->hears[j]);
        if (set_same(&rest, &open)) in = with;  // a node that hears all others is never left out
        else extend(s, with, rest);
    }
}

node_set council_largest(const council_view *v, node_set pool, node_set must) {
    search s = {.v = v, .must = must};
    FOR_NODES(a, &pool)
        FOR_NODES(b, &pool)
            if (a != b && council_both(v, a, b)) set_add(&s.hears[a], b);
    extend(&s, (node_set){{0}}, pool);
    return s.best;
}
