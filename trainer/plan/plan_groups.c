// trainer/plan/plan_groups.c: see trainer/plan/plan_groups.h.
#include "trainer/plan/plan_groups.h"

#include "trainer/step/row_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 118 };

static int64_t elements(const param *p) { return shape_count(p->dims, p->size); }

typedef bool chosen(const row_rule *r, int group);
static bool in_group(const row_rule *r, int group) { return r->group == group; }
static bool by_muon(const row_rule *r, int group) { return (void)group, r->muon; }

// How many parameters are chosen, and what they have.
static void print_count(FILE *out, const model *net, const row_rule *r, chosen *is, int group) {
    int n = 0;
    int64_t all = 0;
    for (int i = 0; i < net->params; i++)
        if (net->param[i].tied < 0 && is(&r[i], group)) n++, all += elements(&net->param[i]);
    fprintf(out, "%d parameter%s of %" PRId64 " elements", n, n == 1 ? "" : "s", all);
}

// Their names, on lines of their own.
static void print_names(FILE *out, const model *net, const row_rule *r, chosen *is, int group) {
    size_t used = 0;
    for (int i = 0; i < net->params; i++) {
        if (!is(&r[i], group)) continue;
        size_t n = strlen(net->param[i].name) + 1;
        if (!used || used + n > WIDTH) used = (size_t)fprintf(out, used ? "\n       " : "       ") - (used > 0);
        fprintf(out, " %s", net->param[i].name);
        used += n;
    }
    fprintf(out, "\n");
}

static void print_rules(FILE *out, const param_group *g) {
    if (g->frozen) fprintf(out, ": frozen");
    else fprintf(out, ": lr x %g", g->lr);
    if (g->decay >= 0) fprintf(out, ", decay %g", g->decay);
    if (g->type >= 0) fprintf(out, ", %s", g->type == OPTIMIZER_MUON ? "muon" : "adamw");
    fprintf(out, "\n");
}

static err_t print(FILE *out, const model *net, const row_rule *r, const optimizer_keys *o) {
    param_groups g;
    bool muon = false;
    TRY(groups_parse(&g, o->groups));
    for (int k = 0; k < g.count; k++) {
        fprintf(out, "group   %s: ", g.at[k].globs);
        print_count(out, net, r, in_group, k);
        print_rules(out, &g.at[k]);
        print_names(out, net, r, in_group, k);
    }
    for (int i = 0; i < net->params; i++) muon |= r[i].muon;
    if (!muon) return ERR_OK;
    fprintf(out, "muon    ");
    print_count(out, net, r, by_muon, 0);
    fprintf(out, "; adamw updates the others\n");
    print_names(out, net, r, by_muon, 0);
    return ERR_OK;
}

err_t plan_groups(FILE *out, model *net, const optimizer_keys *o) {
    row_rule *r;
    err_t rc = row_rules_open(&r, net, o);
    if (rc == ERR_OK) rc = print(out, net, r, o);
    free(r);
    return rc;
}
