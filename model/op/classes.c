// model/op/classes.c: the losses of samples (model/head.h). Softmax cross entropy of the logits x W^T + b against a
// class for each row, and whether the largest logit is that of the class, or one of the largest; or the squared error
// of the number x W^T + b. In training it runs in backward.
#include "model/op/op.h"

#include "model/slices.h"

// 16 bytes of a 16-bit type: rows of logits begin where tensor cores want them.
enum { CLASS_ALIGN = 8 };

// Where ranks share the samples, each computes its own.
static err_t losses(const frame *f, const step *s) {
    pass p = *f->p;
    int64_t first = model_first_row(f->m, p.B);
    tensor x = at(f, s->v[0]), all = view1(&p.losses, p.B), loss = tensor_rows(&all, first, matrix_rows(&x)),
           metrics = view2(&p.metrics, f->m->metrics, p.B), hits = metrics, labels = view1(&p.in[f->m->targets], p.B),
           dx;
    int64_t own = matrix_rows(&x);
    labels = tensor_rows(&labels, first, own);
    hits.data = (double *)hits.data + first;  // each row from there on
    const tensor *to = at_if(f, s->v[1], &dx), *wanted = p.metrics.data ? &hits : NULL, scores = p.scores;
    if (scores.data) p.scores = tensor_rows(&scores, first, own);
    if (own) TRY(head_losses(&f->net->g.head, &p, &loss, wanted, to, &x, &labels));
    TRY(slices_share_rows(&p, &all));
    if (scores.data) TRY(slices_share_rows(&p, &scores));
    for (int k = 0; wanted && k < f->m->metrics; k++) {
        tensor row = tensor_rows(&metrics, k, 1), hit = view1(&row, p.B);
        TRY(slices_share_rows(&p, &hit));
    }
    return ERR_OK;
}

static step *losses_step(lowering *L, int op, const operation *o, const char *name) {
    step *s = emit(L, name, losses, op, "r", o->in[0]);
    uses(s, o->at.w), uses(s, o->at.b);
    if (o->at.division == LINEAR_INPUTS) s->meets = MEET_SUM;
    if (L->g->m->tokens.of > 1) s->meets = MEET_SOFTMAX;
    return s;
}

static void forward(lowering *L, int op, const operation *o) { losses_step(L, op, o, "losses of classes"); }

static void backward(lowering *L, int op, const operation *o) {
    value x = o->in[0];
    step *s = losses_step(L, op, o, "losses and their gradient");
    adds(s, o->at.w), adds(s, o->at.b);
    if (!is_made_by(L, x, ROLE_INPUT)) add_operand(s, 'w', L->grad[x] = make_gradient(L, x, L->v[x].at));
}

static double flops(const model *m, const operation *o) {
    const param *w = &m->param[o->at.w];
    return (w->block ? 6 : 4) * (double)shape_count(2, w->size);  // the model's input has no gradient
}

static const op_type type = {.name = "classes", .forward = forward, .backward = backward, .flops = flops};

static operation *begin_loss(graph *g, const op_type *of, const char *name, value x) {
    model *m = g->m;
    m->targets = m->inputs;
    m->losses = m->units = 1, m->unit = "sample", m->short_unit = "samples";
    m->adds_once = true;
    return graph_add(g, of, name, x, 0);
}

void number_loss(graph *g, value x, const char *name, number_options n) {
    operation *o = begin_loss(g, &type, name, x);
    model *m = g->m;
    m->root = n.root, m->numbers = !n.root;
    if (m->numbers) m->metrics = 2, m->metric[0] = "pearson", m->metric[1] = "spearman";
    graph_input(g, "label", FP32, 0, 0);
    int w = graph_param(g, name, ".weight", 1, graph_at(g, x)->width, n.std, 0),
        b = graph_param(g, name, ".bias", 1, 0, 0, (float)n.begin);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = b}, .classes = 1, .Vp = CLASS_ALIGN, .squares = true};
    g->chunks = 1;
    m->param[w].rows_in_memory = m->param[b].rows_in_memory = CLASS_ALIGN;
    if (m->tokens.of > 1) g->head.at.of = m;
    o->at = g->head.at;
}

void class_loss(graph *g, value x, const char *name, class_options c) {
    operation *o = begin_loss(g, &type, name, x);
    model *m = g->m;
    m->metrics = c.top ? 2 : 1, m->metric[0] = "accuracy", m->metric[1] = c.top == 5 ? "top_5" : "top_k";
    m->classes = c.classes, m->ranks = c.ranks;
    graph_input(g, "label", INT32, 0, c.classes);
    int w = graph_param(g, name, ".weight", c.classes, graph_at(g, x)->width, c.std, 0),
        b = graph_param(g, name, ".bias", c.classes, 0, 0, 0);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = b},
                     .classes = c.classes,
                     .Vp = (c.classes + CLASS_ALIGN - 1) / CLASS_ALIGN * CLASS_ALIGN,
                     .smoothing = (float)c.smoothing,
                     .top = c.top};
    g->chunks = 1;
    if (c.divided) linear_divide(&g->head.at, m, LINEAR_INPUTS, 0, NULL);
    // each slice is a matrix, and has no room for padding
    if (g->head.at.division == LINEAR_INPUTS) g->head.Vp = c.classes;
    else m->param[w].rows_in_memory = m->param[b].rows_in_memory = g->head.Vp;
    if (m->tokens.of > 1) g->head.at.of = m;
    o->at = g->head.at;
}
