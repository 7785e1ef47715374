// model/op/masked.c: softmax cross entropy of the logits x W^T + b against the tokens that were masked, chunk by chunk
// (model/head.h). In training it runs in backward, where x's gradient overwrites x.
//
// Of pairs of texts a second head says whether the second one follows the first, and a sample's loss is the sum of both
// (BertForPreTraining). The loss of a sample is the mean of its M masked tokens' losses: so M times that of the pair is
// added to the first of them.
#include "model/op/op.h"

enum { MASKED, POOLED, PAIRS, DPOOLED };  // operands

// 16 bytes of a 16-bit type: rows of logits begin where tensor cores want them.
enum { PAIR_CLASSES = 2, PAIR_ALIGN = 8 };

static err_t add_pairs(const frame *f, const step *s) {
    pass p = *f->p;
    int64_t M = f->m->losses;
    tensor x = at(f, s->v[POOLED]), each = at(f, s->v[PAIRS]), loss = view1(&each, p.B),
           labels = view1(&p.in[f->op[s->op].input], p.B), all = view2(&p.losses, p.B, M), added = view2(&loss, p.B, 1),
           dx, metrics, hits, mean;
    const tensor *to = at_if(f, s->v[DPOOLED], &dx);
    bool asked = p.metrics.data;
    p.loss_factor *= (float)M;  // a pair's share of the step's mean is that of all M together
    if (asked) {
        metrics = view2(&p.metrics, f->m->metrics, p.B);
        hits = tensor_rows(&metrics, 0, 1), mean = tensor_rows(&metrics, 1, 1), mean = view1(&mean, p.B);
        TRY(p.ops->loss_means(&(loss_means_args){.means = &mean, .losses = &all}, p.s));
    }
    TRY(head_losses(&f->net->g.pairs, &p, &loss, asked ? &hits : NULL, to, &x, &labels));
    return p.ops->scale_columns(
        &(scale_columns_args){.y = &all, .x = &added, .width = 1, .factor = (float)M, .add = true}, p.s);
}

static err_t losses(const frame *f, const step *s) {
    tensor x = at(f, s->v[MASKED]);
    int64_t N = matrix_rows(&x);
    pass p = *f->p;
    tensor all = view1(&p.losses, N), targets = view1(&p.in[f->m->targets], N);
    TRY(head_losses(&f->net->g.head, &p, &all, NULL, &x, &x, &targets));
    return s->v[PAIRS] ? add_pairs(f, s) : ERR_OK;
}

static step *losses_step(lowering *L, int op, const operation *o, const char *name) {
    value pairs = 0;
    if (o->in[POOLED]) {
        graph_value of = {.name = "pairs", .letters = "1", .width = 1, .shape = SHAPE_PER_ROW, .type = FP32};
        of.at = L->v[o->in[POOLED]].at, of.rows = 1;
        pairs = make_value(L, &of);
    }
    step *s = emit(L, name, losses, op, "urw", o->in[MASKED], o->in[POOLED], pairs);
    uses(s, o->at.w), uses(s, o->at.b);
    if (pairs) uses(s, L->g->pairs.at.w), uses(s, L->g->pairs.at.b);
    if (o->at.division == LINEAR_OUTPUTS) s->meets = MEET_SOFTMAX;
    return s;
}

static void forward(lowering *L, int op, const operation *o) { losses_step(L, op, o, "losses of masked tokens"); }

static void backward(lowering *L, int op, const operation *o) {
    step *s = losses_step(L, op, o, "losses and their gradient");
    value x = o->in[POOLED];
    adds(s, o->at.w), adds(s, o->at.b);
    L->grad[o->in[MASKED]] = s->v[MASKED];
    if (!x) return;
    adds(s, L->g->pairs.at.w), adds(s, L->g->pairs.at.b);
    add_operand(s, 'w', L->grad[x] = make_gradient(L, x, L->v[x].at));
}

static double flops(const model *m, const operation *o) {
    const head *pairs = &m->net->g.pairs;
    double of_pairs = pairs->classes ? 6 * (double)shape_count(2, m->param[pairs->at.w].size) : 0;
    return 6 * (double)m->losses * (double)shape_count(2, m->param[o->at.w].size) + of_pairs;
}

static const op_type type = {.name = "masked tokens", .forward = forward, .backward = backward, .flops = flops};

static void add_pair_head(graph *g, operation *o, const masked_options *c) {
    model *m = g->m;
    m->metrics = 2, m->metric[0] = "accuracy", m->metric[1] = "masked_loss";
    o->input = m->inputs;
    graph_input(g, "label", INT32, 0, PAIR_CLASSES);
    int w = graph_param(g, c->pairs, ".weight", PAIR_CLASSES, graph_at(g, c->pooled)->width, c->pairs_std, 0),
        b = graph_param(g, c->pairs, ".bias", PAIR_CLASSES, 0, 0, 0);
    if (g->rc != ERR_OK) return;
    g->pairs = (head){.at = {.w = w, .b = b}, .classes = PAIR_CLASSES, .Vp = PAIR_ALIGN};
    m->param[w].rows_in_memory = m->param[b].rows_in_memory = PAIR_ALIGN;
}

void masked_loss(graph *g, value x, const char *weight, const char *bias, masked_options c) {
    operation *o = graph_add(g, &type, weight, x, c.pooled);
    model *m = g->m;
    int64_t rows = graph_at(g, x)->rows;
    m->losses = rows ? rows : m->context, m->units = m->context, m->unit = "token", m->short_unit = "tok";
    m->targets = m->inputs;
    m->adds_once = c.chunks == 1;
    m->mask = c.mask, m->begin = c.begin, m->end = c.end;
    graph_input(g, "targets", INT32, m->losses, c.vocab);
    int w = graph_param(g, weight, "", c.vocab, graph_at(g, x)->width, c.std, 0),
        b = graph_param(g, bias, "", c.vocab, 0, 0, 0);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = b}, .classes = c.vocab, .Vp = head_rows_in_memory(c.vocab, m->slices.of)};
    g->chunks = c.chunks;
    m->param[w].tied = c.tied;
    m->param[w].rows_in_memory = m->param[b].rows_in_memory = g->head.Vp;
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);
    o->at = g->head.at;
    if (c.pooled) add_pair_head(g, o, &c);
}
