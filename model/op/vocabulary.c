// model/op/vocabulary.c: the head over a vocabulary, W of (V,C), of losses that each row has against a token of its own
// (model/op/next_token.c, model/op/target.c).
#include "model/op/op.h"

double vocabulary_flops(const model *m, const operation *o) {
    return (param_is_frozen(&m->param[o->at.w]) ? 4 : 6) * (double)m->losses *
           (double)shape_count(2, m->param[o->at.w].size);
}

void vocabulary_head(graph *g, operation *o, value x, const char *weight, int64_t vocab, int tied, int64_t chunks,
                     double std) {
    model *m = g->m;
    m->targets = m->inputs, m->vocab = vocab;
    graph_input(g, "targets", INT32, m->losses, vocab);
    int w = graph_param(g, weight, "", vocab, graph_at(g, x)->width, std, 0);
    if (g->rc != ERR_OK) return;
    g->head = (head){.at = {.w = w, .b = -1}, .classes = vocab, .Vp = head_rows_in_memory(vocab, m->slices.of)};
    g->chunks = chunks;
    m->param[w].tied = tied;
    if (tied >= 0) m->param[w].rule = m->param[tied].rule;
    g->head.frozen = param_is_frozen(&m->param[w]);
    m->param[w].rows_in_memory = g->head.Vp;
    linear_divide(&g->head.at, m, LINEAR_OUTPUTS, 0, NULL);
    o->at = g->head.at;
}
