// trainer/plan/graph.c: `lockstep plan --graph`: what a model's blocks do in a step of this run (model/show.h), and
// that what they keep is what the plan counts.
#include "model/show.h"
#include "trainer/plan/plan_ranks.h"
#include "trainer/session/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool any_is_meant(const model *m, const char *which) {
    for (int b = 0; b < m->blocks; b++)
        if (show_means(m, b, which)) return true;
    return !*which;
}

// Of blocks that are alike the first one stands for all.
static bool form_is_meant(const model *m, int form, const char *which) {
    for (int b = form; b < m->blocks; b++)
        if (show_form(m, b) == form && (!*which || show_means(m, b, which))) return true;
    return false;
}

static err_t check_block(const model *m, const char *which) {
    char blocks[1024];
    if (any_is_meant(m, which)) return ERR_OK;
    show_blocks(m, blocks, sizeof blocks);
    return err_set(
        ERR_USAGE,
        "--graph %s: no such block; this model's are %s. Give a name or a number, or neither for all of them", which,
        blocks);
}

// "model   gpt: embedding (block 0), ...", a block's name and numbers never on two lines.
static void print_blocks(const model *m, FILE *out) {
    enum { INDENT = 8 };
    char blocks[1024];
    show_blocks(m, blocks, sizeof blocks);
    int column = fprintf(out, "model   %s:", m->type->name);
    for (const char *at = blocks, *end; *at; at = end) {
        end = strstr(at, "), ");
        end = end ? end + 3 : at + strlen(at);
        int n = (int)(end - at) - (end[-1] == ' ');
        if (column + 1 + n > SHOW_COLUMNS) column = fprintf(out, "\n%*s", INDENT - 1, "") - 1;
        column += fprintf(out, " %.*s", n, at);
    }
    fputc('\n', out);
}

static void print_settings(const config *c, const model *m, const grid *shape, FILE *out) {
    static const char *const again[] = {RECOMPUTE_WORDS(WORD_NAME)};
    char text[GRID_SHAPE], type[CONFIG_COMPUTE];
    print_blocks(m, out);
    fprintf(out, "run     %s, micro-batches of %" PRId64 " samples, recompute %s", config_compute(c, type),
            c->resolved.micro, again[c->parallel.recompute]);
    if (m->dropout > 0) fprintf(out, ", dropout %g", m->dropout);
    if (grid_is_divided(shape)) fprintf(out, "\nlayout  %s", grid_shape(shape, text));
    fprintf(out, "\nmarks   * is kept for backward   + is computed again for it\n");
    if (m->slices.of == 1) return;
    fprintf(out, "rows    own: those of the residual stream that are here; matrix: those of matrix products; all\n");
    fprintf(out, "width   whole; slices: those that are here; heads: slices of those heads whose attention is here\n");
}

static void print_total(const session *x, FILE *out) {
    show_bytes b = show_memory(x->net);
    int64_t all = (int64_t)x->runner.memory.bytes;
    fprintf(out, "\nmemory of rank %d, bytes\n", x->ranks->rank);
    fprintf(out, "  kept        %16" PRId64 "   by its blocks for all micro-batches under way: %d sets\n", b.kept,
            b.sets);
    fprintf(out, "  held        %16" PRId64 "   what is computed again\n", b.held);
    fprintf(out, "  scratch     %16" PRId64 "   what lives within a list\n", b.scratch);
    fprintf(out, "  other       %16" PRId64 "   what goes between blocks, inputs, logits, sums over slices\n",
            all - b.kept - b.held - b.scratch);
    fprintf(out, "  activations %16" PRId64 "   as `lockstep plan` counts them\n", all);
}

// shown [blocks]: the forms that a rank before has shown.
static void print_rank(const session *x, const char *which, bool *shown, FILE *out) {
    const model *m = x->net;
    bool any = false;
    for (int form = 0; form < m->blocks; form++) {
        if (show_form(m, form) != form || shown[form] || !show_has(m, form) || !form_is_meant(m, form, which)) continue;
        if (!any && x->ranks->world > 1)
            fprintf(out, "\nrank %d of %d, the first one that has these blocks\n", x->ranks->rank, x->ranks->world);
        any = shown[form] = true;
        show_lists(m, form, out);
    }
    if (any) print_total(x, out);
}

// The first rank of each stage, until all forms were shown.
static err_t print_ranks(const config *c, const char *which, int world, const comm_place *place, FILE *out) {
    grid shape = config_grid(c, world);
    bool *shown = NULL;
    err_t rc = ERR_OK;
    for (int s = 0; s < shape.pipeline && rc == ERR_OK; s++) {
        session x = {0};
        comm *ranks;
        rc = comm_imaginary_open(&ranks, grid_rank(&shape, (grid_place){.stage = s}), world, place);
        if (rc == ERR_OK) rc = session_plan(&x, c, ranks);
        if (rc == ERR_OK && s == 0) {
            rc = check_block(x.net, which);
            shown = calloc((size_t)x.net->blocks, sizeof *shown);
            if (!shown && rc == ERR_OK) rc = err_set(ERR_INTERNAL, "no memory for a table of %d blocks", x.net->blocks);
            if (rc == ERR_OK) print_settings(c, x.net, &shape, out);
        }
        if (rc == ERR_OK) print_rank(&x, which, shown, out);
        session_close(&x);
    }
    free(shown);
    return rc;
}

err_t verb_graph(const config *c, const char *which, FILE *out) {
    plan_world who;
    TRY(plan_world_open(&who, c));
    err_t rc = print_ranks(c, which, who.world, who.place, out);
    plan_world_close(&who);
    return rc;
}
