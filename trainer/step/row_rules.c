// trainer/step/row_rules.c: see trainer/step/row_rules.h.
#include "trainer/step/row_rules.h"

#include "base/edits.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The name that the glob comes nearest to, of which it may be the beginning.
static const char *nearest(const model *net, const char *glob) {
    int best = -1, least = 0;
    for (int i = 0; i < net->params; i++) {
        char start[GROUP_GLOB];
        snprintf(start, sizeof start, "%.*s", (int)strlen(glob), net->param[i].name);
        int d = edits_between(glob, start);
        if (best < 0 || d < least) best = i, least = d;
    }
    return best < 0 ? "" : net->param[best].name;
}

static err_t check_glob(const model *net, const char *glob) {
    for (int i = 0; i < net->params; i++)
        if (fnmatch(glob, net->param[i].name, 0) == 0) return ERR_OK;
    return err_set(ERR_CONFIG, "%s matches none of the %d parameters, such as %s: `lockstep plan --graph` lists them",
                   glob, net->params, nearest(net, glob));
}

static err_t check_globs(const model *net, const param_groups *g) {
    char glob[GROUP_GLOB];
    for (int i = 0; i < g->count; i++)
        for (const char *at = g->at[i].globs; group_next_glob(&at, glob);) TRY(check_glob(net, glob));
    return ERR_OK;
}

// Muon is for matrices between hidden layers, unless a group says otherwise.
static err_t fill(row_rule *r, const param *p, const param_groups *g, const optimizer_keys *o) {
    r->group = groups_find(g, p->name);
    const param_group *of = r->group < 0 ? NULL : &g->at[r->group];
    r->lr = of ? of->lr : 1;
    r->decay = !p->decay ? 0 : of && of->decay >= 0 ? of->decay : o->weight_decay;
    bool asked = of && of->type == OPTIMIZER_MUON, other = of && of->type == OPTIMIZER_ADAMW;
    r->muon = p->hidden && p->rule == PARAM_OPTIMIZER && (asked || (o->type == OPTIMIZER_MUON && !other));
    if (!asked || r->muon || p->dims < 2 || param_is_frozen(p)) return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%s: type=muon is for matrices between hidden layers, and %s is none: it stays with adamw where its "
                   "name does not match",
                   of->globs, p->name);
}

static err_t no_matrix(const model *net) {
    for (int i = 0; i < net->params; i++)
        if (net->param[i].hidden)
            return err_set(
                ERR_CONFIG,
                "type = muon updates matrices between hidden layers, such as %s, and the groups leave it none: "
                "they freeze those, give them to adamw, or name others for muon; `lockstep plan --graph` "
                "lists all",
                net->param[i].name);
    return err_set(ERR_CONFIG,
                   "type = muon updates matrices between hidden layers, and a %s has none: expected adamw, sgd or lars",
                   net->type->name);
}

static err_t fill_all(row_rule *r, model *net, const param_groups *g, const optimizer_keys *o) {
    bool wanted = o->type == OPTIMIZER_MUON || groups_have(o->groups, OPTIMIZER_MUON), any = false;
    for (int i = 0; i < net->params; i++) {
        TRY(fill(&r[i], &net->param[i], g, o));
        net->param[i].whole = r[i].muon, any |= r[i].muon;
    }
    if (!model_trained(net)) return err_set(ERR_CONFIG, "all parameters are frozen: a run has to train some");
    return wanted && !any ? no_matrix(net) : ERR_OK;
}

err_t row_rules_open(row_rule **out, model *net, const optimizer_keys *o) {
    param_groups g;
    *out = calloc((size_t)net->params + 1, sizeof **out);
    if (!*out) return err_set(ERR_INTERNAL, "no memory for a table of %d parameters", net->params);
    TRY(groups_parse(&g, o->groups));
    TRY(check_globs(net, &g));
    return fill_all(*out, net, &g, o);
}
