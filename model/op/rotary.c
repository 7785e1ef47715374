// model/op/rotary.c: rotary position embedding    (Su et al. 2021): queries and keys turn by their positions, in place;
// values do not. Where a sample is several documents, by their places in these. Backward turns the gradient back.
#include "model/op/op.h"

static err_t turn_all(const frame *f, const step *s, bool back) {
    const tensor *table = &f->net->angles[f->op[s->op].rope];
    tensor x = at_samples(f, s->v[0]);
    rotary_args args = {.x = &x, .table = table, .heads = f->op[s->op].heads / f->m->slices.of, .back = back};
    args.places = input_at(f, &f->op[s->op]);
    if (!f->p->past) return f->p->ops->rotary(&args, f->p->s);
    for (int64_t b = 0; b < x.size[0]; b++) {  // texts that grow have positions of their own
        int64_t first = past_first(f->p, b % f->p->B);
        tensor row = tensor_rows(&x, b, 1), angles = tensor_rows(table, first, table->size[0] - first);
        args.x = &row, args.table = &angles;
        TRY(f->p->ops->rotary(&args, f->p->s));
    }
    return ERR_OK;
}

static err_t turn(const frame *f, const step *s) { return turn_all(f, s, false); }
static err_t turn_back(const frame *f, const step *s) { return turn_all(f, s, true); }

static void forward(lowering *L, int op, const operation *o) {
    value x = as(L, o->in[0], LAYOUT_HEADS);
    L->v[o->out[0]].storage = L->v[x].storage;
    emit(L, "rotary", turn, op, "u", o->out[0]);
}

static void backward(lowering *L, int op, const operation *o) {
    emit(L, "rotary back", turn_back, op, "u", L->given[op]);
    L->grad[o->in[0]] = L->given[op];
}

static const op_type type = {.name = "rotary", .forward = forward, .backward = backward};

// The table of these angles: an earlier layer's, or a new one.
static int table_of(graph *g, const rope *r, int64_t head_size) {
    int k = 0;
    while (k < g->ropes && !(g->rope[k].head_size == head_size && rope_equal(&g->rope[k].r, r))) k++;
    if (k == GRAPH_ROPES) return graph_mistake(g, "rotary", "a model has at most %d tables of angles", GRAPH_ROPES), 0;
    if (k == g->ropes) g->rope[g->ropes++] = (graph_rope){*r, head_size};
    return k;
}

value rotary(graph *g, value qkv, int64_t heads, int64_t head_size, const rope *r) {
    operation *o = graph_add(g, &type, "turned", qkv, 0);
    o->heads = (int)heads, o->rope = table_of(g, r, head_size), o->input = graph_find_input(g, PLACES);
    value y = graph_in_place(g, o);
    if (y) g->v[y].at = LAYOUT_HEADS;
    return y;
}
