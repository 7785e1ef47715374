// model/net.c: a model as a whole: opened from its page, planned, run.
#include "model/lower.h"

#include <stdlib.h>
#include <string.h>

// --- a plan ----------------------------------------------------------------------------------------------------------

static void drop_lists(lists *x) {
    free(x->v), free(x->place);
    for (int i = 0; i < LISTS; i++) free(x->list[i].at);
    *x = (lists){0};
}

static void drop_plan(net *l) {
    for (int i = 0; i < VARIANTS; i++)
        for (int b = 0; l->form[i] && b < l->g.m->blocks; b++) drop_lists(&l->form[i][b]);
    free(l->kept);
    l->kept = NULL;
}

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

static err_t bytes_of(arena *a, tensor *t, int64_t bytes) {
    return bytes ? arena_1d(a, t, FP32, (bytes + 3) / 4) : ERR_OK;
}

// Kept values have a set for each slot of each block. Values that are computed again, and those that live within one
// block, share memory among all blocks.
static err_t declare_memory(net *l, arena *a, const model_plan *o) {
    const model *m = l->g.m;
    int64_t held = 0, scratch = 0;
    int sets = model_plan_sets(o, 0, m->blocks, l->set);
    l->set[m->blocks] = sets;
    l->kept = calloc((size_t)sets + 1, sizeof *l->kept);
    l->held = l->scratch = (tensor){0};
    if (!l->kept) return err_set(ERR_INTERNAL, "no memory for a table of %d sets", sets);
    for (int b = 0; b < m->blocks; b++) {
        int64_t kept = 0;
        for (int i = 0; i < VARIANTS && o->slots[b]; i++) {
            const int64_t *bytes = l->form[i][l->g.block[b].form].bytes;
            kept = largest(kept, bytes[REGION_KEPT]), held = largest(held, bytes[REGION_HELD]),
            scratch = largest(scratch, bytes[REGION_SCRATCH]);
        }
        for (int s = 0; s < o->slots[b]; s++) TRY(bytes_of(a, &l->kept[l->set[b] + s], kept));
    }
    TRY(bytes_of(a, &l->held, held));
    return bytes_of(a, &l->scratch, scratch);
}

static err_t lower_forms(net *l, const model_plan *o) {
    for (int i = 0; i < (graph_drops(&l->g) ? VARIANTS : 1); i++)
        for (int b = 0; b < l->g.m->blocks; b++) {
            int form = l->g.block[b].form;
            if (!o->slots[b] || l->form[i][form].v) continue;
            lowering *L = calloc(1, sizeof *L);
            if (!L) return err_set(ERR_INTERNAL, "no memory to lower a block");
            *L = (lowering){.g = &l->g, .o = o, .b = form, .drops = i == WITH_DROPOUT};
            err_t rc = lower_form(L, &l->form[i][form]);
            free(L);
            TRY(rc);
        }
    return ERR_OK;
}

err_t model_declare(model *m, arena *a, const model_plan *o) {
    net *l = m->net;
    graph *g = &l->g;
    TRY(model_plan_slices(m, a, o, o->B * model_positions(m), g->widest));
    drop_plan(l);
    l->type = o->compute, l->B = o->B;
    l->recomputes = o->recompute != RECOMPUTE_NONE && !o->forward_only;
    m->held.block = -1;
    TRY(lower_forms(l, o));
    TRY(declare_memory(l, a, o));
    if (g->layers) {
        g->past.slices = g->read.slices = model_head_slices(m);
        TRY(past_plan(&g->past, a, o, g->attends, g->layers, m->context - m->reads, g->head_size));
        if (m->reads) TRY(past_plan(&g->read, a, o, g->attends, g->layers, m->reads, g->head_size));
    }
    for (int k = 0; k < g->ropes; k++) TRY(arena_2d(a, &l->angles[k], FP32, m->context, g->rope[k].head_size));
    if (g->constants) TRY(arena_1d(a, &l->constants, FP32, g->constants));
    if (!o->slots[m->blocks - 1]) return ERR_OK;
    if (g->pairs.classes) TRY(head_plan(&g->pairs, a, o, o->B, 1));
    return head_plan(&g->head, a, o, o->B * m->losses, g->chunks);
}

static err_t fill_angles(const tensor *angles, const rope *r, stream *s) {
    int64_t T = angles->size[0], D = angles->size[1];
    float *table = malloc(tensor_bytes(angles));
    if (!table) return err_set(ERR_INTERNAL, "no memory for the angles of %lld positions", (long long)T);
    rope_table(r, T, D, table);
    err_t rc = stream_copy(s, angles->data, table, tensor_bytes(angles));
    if (rc == ERR_OK) rc = stream_wait(s);
    free(table);
    return rc;
}

// --- running ---------------------------------------------------------------------------------------------------------

static frame frame_with(net *l, int b, const pass *p, const lists *x) {
    const model *m = l->g.m;
    frame f = frame_of(l, b, p, x);
    f.base[REGION_KEPT] = l->kept[l->set[b] + p->slot].data;
    f.base[REGION_HELD] = l->held.data, f.base[REGION_SCRATCH] = l->scratch.data,
    f.base[REGION_ALL] = m->scratch.all_rows.data;
    f.base[REGION_INPUT] = p->in[0].data;
    if (b > 0) f.base[REGION_X] = p->x[b - 1].data;
    if (b < m->blocks - 1) f.base[REGION_Y] = p->x[b].data;
    if (p->dw && b < m->blocks - 1) f.base[REGION_DY] = p->dx[b].data;
    if (p->dw) f.base[REGION_DX] = p->dx[b > 0 ? b - 1 : b].data;
    return f;
}

// A pass of one text does nothing for rows of the other one.
static bool has_rows(const frame *f, const step *s) {
    pass_text text = f->x->v[s->v[0]].text;
    return !f->p->text || !text || text == f->p->text;
}

// Of the last samples of an evaluation a rank may have none. Then it only meets the others. (Texts have rows for
// attention also there.)
static err_t run_list(const frame *f, list_kind k) {
    const step_list *list = &f->x->list[k];
    bool idle = !f->m->stream && !f->matrix;
    for (int i = 0; i < list->count; i++) {
        const step *s = &list->at[i];
        if (has_rows(f, s) && (!idle || s->meets != MEET_NEVER)) TRY(s->run(f, s));
    }
    return ERR_OK;
}

static bool shares_values(const net *l, int b) { return l->recomputes && l->g.m->block[b].recomputes; }

static err_t run_backward(net *l, const frame *f, pass_part part, bool is_last) {
    bool finds = !shares_values(l, f->b) || model_held_pass(&l->g.m->held, part, f->p->slot, f->b);
    if (is_last || !finds) TRY(run_list(f, LIST_AGAIN));
    return run_list(f, LIST_BACKWARD);
}

static err_t net_run(net *l, int b, pass *p, pass_part part) {
    model *m = l->g.m;
    bool is_last = b == m->blocks - 1;
    const lists *x =
        &l->form[p->drop.p > 0 || p->drop_adapted > 0 ? WITH_DROPOUT : WITHOUT_DROPOUT][l->g.block[b].form];
    frame f = frame_with(l, b, p, x);
    if (part == PASS_FORWARD) {
        if (is_last && p->dw) return ERR_OK;  // waits for the backward pass: other micro-batches may come in between
        if (shares_values(l, b)) model_held_pass(&m->held, part, p->slot, b);
        return run_list(&f, LIST_FORWARD);
    }
    if (part != PASS_WEIGHTS) TRY(run_backward(l, &f, part, is_last));
    return part == PASS_INPUTS ? ERR_OK : run_list(&f, LIST_WEIGHTS);
}

err_t model_run(model *m, pass_part part, int first, int last, pass *p) {
    for (int i = first; i <= last; i++) TRY(net_run(m->net, part == PASS_FORWARD ? i : first + last - i, p, part));
    return ERR_OK;
}

bool model_reads_weights(const model *m, int b, pass_text text) {
    const block_graph *k = &m->net->g.block[b];
    bool reads = false;
    for (int i = 0; i < k->ops; i++) {
        pass_text of = k->v[k->op[i].out[0]].text;
        reads |= k->op[i].at.w >= 0 && (!text || !of || of == text);
    }
    return reads;
}

// --- opening ---------------------------------------------------------------------------------------------------------

// An architecture's options begin with it.
static void take_division(model *m) {
    const model_division *by = m->options;
    int slices = by->slices > 1 ? (int)by->slices : 1, tokens = by->tokens > 1 ? (int)by->tokens : 1;
    m->slices = (model_slices){slices, 0, slices, false};
    m->tokens = (model_tokens){tokens, 0, tokens};
}

static err_t write_page(model *m) {
    net *l = m->net;
    graph_open(&l->g, m);
    m->type->page(&l->g, m->options);
    TRY(graph_end(&l->g));
    l->set = calloc((size_t)m->blocks + 1, sizeof *l->set);
    for (int i = 0; i < VARIANTS; i++) l->form[i] = calloc((size_t)m->blocks, sizeof **l->form);
    return l->set && l->form[0] && l->form[1] ? ERR_OK
                                              : err_set(ERR_INTERNAL, "no memory for tables of %d blocks", m->blocks);
}

err_t model_open(model **out, const model_type *type, const void *options) {
    model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) m->type = type, m->held.block = -1, m->options = malloc(type->options), m->net = calloc(1, sizeof *m->net);
    err_t rc =
        m && m->options && m->net ? ERR_OK : err_set(ERR_INTERNAL, "no memory for a model of type %s", type->name);
    if (rc == ERR_OK) {
        memcpy(m->options, options, type->options);
        take_division(m);
        rc = write_page(m);
    }
    if (rc == ERR_OK) *out = m;
    else model_close(m);
    return rc;
}

void model_close(model *m) {
    if (!m) return;
    net *l = m->net;
    if (l) {
        drop_plan(l);
        free(l->set), free(l->form[0]), free(l->form[1]);
        past_close(&l->g.past), past_close(&l->g.read);
        graph_close(&l->g);
    }
    free(l), free(m->options), free(m->param), free(m->block);
    free(m);
}

void model_forget(model *m) {
    drop_plan(m->net);
    past_close(&m->net->g.past), past_close(&m->net->g.read);
}

err_t model_fill(model *m, stream *s) {
    const net *l = m->net;
    for (int k = 0; k < l->g.ropes; k++) TRY(fill_angles(&l->angles[k], &l->g.rope[k].r, s));
    if (!l->g.constants) return ERR_OK;
    TRY(stream_copy(s, l->constants.data, l->g.constant, tensor_bytes(&l->constants)));
    return stream_wait(s);
}
