// model/op/adapter.c: y += alpha / rank * (d(x) A^T) B^T beside a frozen product y = x W^T    (Hu et al. 2022, section
// 4.1). In training d drops elements of x, for each adapter others; its mask is drawn again in backward. A product of
// several matrices side by side, such as queries, keys and values, has a pair A, B for each that is named, as its files
// have.
//
//   outputs divided   A whole, on all ranks the same; B by its outputs      x A^T needs no other rank; the gradient of
//                                                                           x A^T is a sum over slices
//   inputs divided    A by its inputs; B whole, on all ranks the same       x A^T is a sum over slices
//
// x A^T comes before the product and its sum after it. So backward adds to the gradient of x that the product has made.
//
// Where ranks have rows of their own (model/slices.h), x A^T and its gradient, which are narrow, have all rows on each.
// So sums over rows are whole as ever. What is added to own rows is computed of these.
#include "model/op/adapter.h"

#include "model/dropout.h"

#include <stdio.h>
#include <string.h>

enum { D_U, D_X, D_DROPPED };                               // of x A^T: forward
enum { DB_DX, DB_MINE, DB_DU, DB_PAST, DB_X, DB_DROPPED };  // ... and backward
enum { U_Y, U_U, U_PART };                                  // of what is added: forward
enum { UB_PART, UB_DY, UB_U, UB_DU };                       // ... and backward

static layout layout_of_x(const operation *o) {
    return o->at.division == LINEAR_INPUTS ? LAYOUT_SLICES : LAYOUT_MATRIX;
}
static layout layout_of_dy(const operation *o) {
    return o->at.division == LINEAR_OUTPUTS ? LAYOUT_SLICES : LAYOUT_MATRIX;
}
static layout layout_of_y(const operation *o) {
    return o->at.division == LINEAR_OUTPUTS ? LAYOUT_SLICES : LAYOUT_STREAM;
}

// Of the rows of a narrow matrix those that `like` has, which are all, or this rank's own.
static tensor rows_like(const frame *f, const tensor *all, const tensor *like) {
    int64_t N = matrix_rows(all), n = matrix_rows(like);
    return n < N ? tensor_rows(all, model_row(f->m, f->m->slices.first, N), n) : *all;
}

static double flops(const model *m, const operation *o) {
    return 6 * (double)m->context * (double)shape_count(2, m->param[o->at.w].size);
}

// --- u = x A^T -------------------------------------------------------------------------------------------------------

// Makes *x what is left of it, in the memory of `dropped`, if that is there. No rows: nothing.
static err_t drop(const frame *f, const step *s, value dropped, tensor *x) {
    tensor to, *y = at_if(f, dropped, &to);
    if (!y) return ERR_OK;
    if (matrix_rows(x)) TRY(dropout_adapted(f->m, f->p, f->b, f->op[s->op].site, y, x));
    *x = *y;
    return ERR_OK;
}

static err_t down(const frame *f, const step *s) {
    tensor u = at(f, s->v[D_U]), x = at(f, s->v[D_X]);
    TRY(drop(f, s, s->v[D_DROPPED], &x));
    return linear_forward(f->p, &f->op[s->op].at, &u, &x, NULL, false, NULL);
}

static err_t down_gradients(const frame *f, const step *s) {
    const linear *l = &f->op[s->op].at;
    tensor dx = at(f, s->v[DB_DX]), mine = at(f, s->v[DB_MINE]), du = at(f, s->v[DB_DU]), past = at(f, s->v[DB_PAST]),
           x = at(f, s->v[DB_X]), own = rows_like(f, &du, &mine);
    TRY(drop(f, s, s->v[DB_DROPPED], &x));
    TRY(linear_weights_only(f->p, l, &du, &x));
    if (matrix_rows(&mine)) TRY(linear_inputs(f->p, l, &mine, &own, NULL, false, NULL, NULL));
    if (s->v[DB_DROPPED] && matrix_rows(&mine)) TRY(dropout_adapted(f->m, f->p, f->b, f->op[s->op].site, &mine, &mine));
    return matrix_rows(&dx) ? f->p->ops->add(&(add_args){.y = &dx, .a = &past, .b = &mine}, f->p->s) : ERR_OK;
}

// What is left of x; 0: nothing is dropped.
static value make_dropped(lowering *L, const operation *o) {
    graph_value x = {.name = "left", .letters = "I", .width = L->v[o->in[0]].width, .at = layout_of_x(o), .is_E = true};
    if (!L->drops || model_adapts(L->g->m)->dropout == 0) return 0;
    if (L->o->slice_rows && x.width % 4 && o->at.division != LINEAR_INPUTS && L->rc == ERR_OK)
        L->rc =
            err_set(ERR_CONFIG,
                    "[lora] dropout: %s reads %lld numbers of a position, which with [parallel] sequence = yes must be "
                    "a multiple of 4: leave one of them out",
                    o->name, (long long)x.width);
    return make_value(L, &x);
}

static void down_forward(lowering *L, int op, const operation *o) {
    step *s = emit(L, "adapter, down", down, op, "wr", o->out[0], as(L, o->in[0], layout_of_x(o)));
    add_operand(s, 'w', make_dropped(L, o));
    uses(s, o->at.w);
    if (o->at.division == LINEAR_INPUTS) s->meets = MEET_SUM;
}

// The product reads x after it, so there is a gradient to add to.
static void down_backward(lowering *L, int op, const operation *o) {
    value x = o->in[0], past = L->grad[x];
    layout at = o->at.division == LINEAR_INPUTS ? LAYOUT_SLICES : LAYOUT_STREAM;
    value in = as(L, x, layout_of_x(o)), mine = make_gradient(L, x, at), dx = make_gradient(L, x, at);
    step *s = emit(L, "adapter's gradients, down", down_gradients, op, "wwrrr", dx, mine, L->given[op], past, in);
    add_operand(s, 'w', make_dropped(L, o));
    s->into = DB_DX, s->over = DB_PAST;
    uses(s, o->at.w), adds(s, o->at.w);
    L->grad[x] = dx;
}

static const op_type down_type = {.name = "adapter, down",
                                  .adds = true,
                                  .freezes = true,
                                  .forward = down_forward,
                                  .backward = down_backward,
                                  .flops = flops};

// --- y += factor * u B^T ---------------------------------------------------------------------------------------------

static err_t up(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor part = at(f, s->v[U_PART]), u = at(f, s->v[U_U]), from = at_rows(f, s->v[U_PART]), y = at_rows(f, s->v[U_Y]);
    tensor own = rows_like(f, &u, &part);
    TRY(linear_forward(f->p, &o->at, &part, &own, NULL, false, NULL));
    if (!y.size[0]) return ERR_OK;
    return f->p->ops->scale_columns(
        &(scale_columns_args){
            .y = &y, .x = &from, .width = from.size[1], .y_first = o->first, .factor = o->factor, .add = true},
        f->p->s);
}

static err_t up_gradients(const frame *f, const step *s) {
    const operation *o = &f->op[s->op];
    tensor part = at(f, s->v[UB_PART]), u = at(f, s->v[UB_U]), du = at(f, s->v[UB_DU]), to = at_rows(f, s->v[UB_PART]),
           dy = at_rows(f, s->v[UB_DY]);
    if (dy.size[0])
        TRY(f->p->ops->scale_columns(
            &(scale_columns_args){.y = &to, .x = &dy, .width = to.size[1], .x_first = o->first, .factor = o->factor},
            f->p->s));
    TRY(linear_weights_only(f->p, &o->at, &part, &u));
    return linear_inputs(f->p, &o->at, &du, &part, NULL, false, NULL, NULL);
}

// The part's columns alone.
static value make_part(lowering *L, const operation *o, layout at) {
    graph_value x = {.name = "part", .letters = "O", .width = o->outputs, .at = at, .is_E = true};
    return make_value(L, &x);
}

static void up_forward(lowering *L, int op, const operation *o) {
    uses(emit(L, "adapter, up", up, op, "urw", o->out[0], o->in[1], make_part(L, o, layout_of_y(o))), o->at.w);
}

static void up_backward(lowering *L, int op, const operation *o) {
    value y = o->in[0], u = o->in[1], dy = as(L, L->given[op], layout_of_dy(o)),
          du = make_gradient(L, u, LAYOUT_MATRIX);
    step *s = emit(L, "adapter's gradients, up", up_gradients, op, "wrrw", make_part(L, o, layout_of_dy(o)), dy, u, du);
    uses(s, o->at.w), adds(s, o->at.w);
    if (o->at.division == LINEAR_OUTPUTS) s->meets = MEET_SUM;
    L->grad[y] = L->given[op], L->grad[u] = du;
}

static const op_type up_type = {
    .name = "adapter, up", .freezes = true, .forward = up_forward, .backward = up_backward, .flops = flops};

// --- which -----------------------------------------------------------------------------------------------------------

// Is it the end of the name, from a dot on?
static bool ends(const char *name, const char *target, size_t n) {
    size_t all = strlen(name);
    return n <= all && strncmp(name + all - n, target, n) == 0 && (n == all || name[all - n - 1] == '.');
}

// Does a target name it? Remembers which do.
static bool is_named(graph *g, const char *name) {
    const char *t = model_adapts(g->m)->targets;
    bool named = false;
    size_t n;
    for (int k = 0; *(t = adapter_target(t, &n)); k++, t += n)
        if (ends(name, t, n)) named = true, g->targets |= UINT64_C(1) << k % 64;
    return named;
}

// A name without its prefix and without ".weight".
static void shorten(const graph *g, char dst[MODEL_NAME], const char *name) {
    size_t before = strncmp(name, g->prefix, strlen(g->prefix)) == 0 ? strlen(g->prefix) : 0;
    const char *end = strstr(name, ".weight");
    size_t n = end ? (size_t)(end - name) : strlen(name);
    snprintf(dst, MODEL_NAME, "%.*s", (int)(n - before), name + before);
}

// The parts of a product's matrix, as files have them.
static int parts_of(const graph *g, int w, weight_part part[WEIGHT_PARTS]) {
    const model *m = g->m;
    if (m->type->parts) return m->type->parts(m->options, &m->param[w], part);
    part[0] = (weight_part){.rows = m->param[w].size[0]};
    snprintf(part[0].name, sizeof part[0].name, "%s", m->param[w].name);
    return 1;
}

// Does a target name the part, or the whole of which it is one?
static bool takes(graph *g, const char *part, const char *whole) {
    bool one = is_named(g, part), all = is_named(g, whole);
    size_t used = strlen(g->named), n = strlen(part);
    if (!strstr(g->named, part) && used + n + 2 < sizeof g->named)
        snprintf(g->named + used, sizeof g->named - used, "%s%s", used ? " " : "", part);
    return one || all;
}

// --- what project calls ----------------------------------------------------------------------------------------------

// A row that is trained. Where it is whole it is on all ranks, and all its rows are read.
static linear trained(graph *g, const adapter *a, const char *suffix, int64_t rows, int64_t cols,
                      linear_division divide, const projection *shares) {
    linear l = {.w = graph_param(g, a->name, suffix, rows, cols, 0, 0), .b = -1};
    if (g->rc != ERR_OK) return l;
    graph_rule(g, l.w, PARAM_OPTIMIZER);
    if (divide != LINEAR_WHOLE)
        linear_divide(&l, g->m, divide, shares ? shares->matrices : 0, shares ? shares->share : NULL);
    if (g->m->slices.of > 1) l.of = g->m, l.all_rows = true;
    return l;
}

static err_t check_adapter(const graph *g, const adapter *one, int64_t I, linear_division divide) {
    const model_adapters *is = model_adapts(g->m);
    int64_t most = I < one->outputs ? I : one->outputs, width = divide == LINEAR_INPUTS ? I / g->m->slices.of : I;
    if (is->rank > most)
        return err_set(ERR_CONFIG, "[lora] rank = %lld is more than %s can have: expected at most %lld",
                       (long long)is->rank, one->name, (long long)most);
    if (is->dropout > 0 && g->m->tokens.of > 1 && width % 4 != 0)
        return err_set(ERR_CONFIG,
                       "[lora] dropout = %g: %s reads %lld numbers of a position in a slice, which with [parallel] "
                       "token_slices must be a multiple of 4: leave one of them out",
                       is->dropout, one->name, (long long)width);
    return ERR_OK;
}

// Adapters of the block that is being written.
static int count_adapters(const graph *g) {
    int n = 0;
    for (int i = 0; i < g->ops; i++) n += g->op[i].type == &down_type;
    return n;
}

static void begin_adapter(graph *g, adapter *one, value x, const projection *of) {
    int64_t rank = model_adapts(g->m)->rank, I = graph_at(g, x)->width;
    linear_division divide = of->divide == LINEAR_INPUTS ? of->divide : LINEAR_WHOLE;
    int site = count_adapters(g);
    operation *o = graph_add(g, &down_type, one->name, x, 0);
    if (g->rc == ERR_OK) g->rc = check_adapter(g, one, I, divide);
    o->site = site;
    o->at = trained(g, one, ".lora_A.weight", rank, I, divide, NULL);
    // Kaiming's uniform values with a = sqrt(5)
    if (g->rc == ERR_OK) g->m->param[o->at.w].init_bound = 1 / __builtin_sqrt((double)I);
    one->u = graph_result(
        g, o, 0, (graph_value){.name = ".u", .letters = "r", .width = rank, .at = LAYOUT_MATRIX, .is_E = true});
}

adapters adapters_down(graph *g, value x, int w, const projection *of) {
    adapters a = {.of = *of};
    weight_part part[WEIGHT_PARTS];
    char whole[MODEL_NAME];
    int64_t first = 0;
    if (!model_adapts(g->m)->rank || g->rc != ERR_OK) return a;
    int parts = parts_of(g, w, part);
    a.whole = parts == 1;
    shorten(g, whole, g->m->param[w].name);
    for (int k = 0; k < parts; first += part[k++].rows / g->m->slices.of) {
        adapter *one = &a.at[a.count];
        *one = (adapter){.outputs = part[k].rows, .first = first};
        shorten(g, one->name, part[k].name);
        if (!takes(g, one->name, whole)) continue;
        begin_adapter(g, one, x, of);
        a.count++;
    }
    return a;
}

value adapters_up(graph *g, value y, const adapters *a) {
    const model_adapters *is = model_adapts(g->m);
    for (int k = 0; k < a->count; k++) {
        const adapter *one = &a->at[k];
        operation *o = graph_add(g, &up_type, one->name, y, one->u);
        o->at = trained(g, one, ".lora_B.weight", one->outputs, is->rank,
                        a->of.divide == LINEAR_OUTPUTS ? a->of.divide : LINEAR_WHOLE, a->whole ? &a->of : NULL);
        o->outputs = one->outputs, o->first = one->first, o->factor = (float)(is->alpha / (double)is->rank);
        y = graph_in_place(g, o);
    }
    return y;
}
