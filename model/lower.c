// model/lower.c: see model/lower.h.
#include "model/lower.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- steps -----------------------------------------------------------------------------------------------------------

void add_operand(step *s, char how, value v) {
    s->how[s->count] = how;
    s->v[s->count++] = v;
}

step *emit(lowering *L, const char *name, step_call run, int op, const char *how, ...) {
    step_list *to = L->to;
    va_list values;
    if (to->count == to->room) {
        int room = to->room ? 2 * to->room : 16;
        step *at = realloc(to->at, (size_t)room * sizeof *at);
        if (!at && L->rc == ERR_OK) L->rc = err_set(ERR_INTERNAL, "no memory for a list of %d steps", room);
        if (!at) return L->spare = (step){.name = name}, &L->spare;
        to->at = at, to->room = room;
    }
    step *s = &to->at[to->count++];
    *s = (step){.name = name, .run = run, .op = op, .other = {-1, -1}, .into = -1, .over = -1};
    va_start(values, how);
    for (; *how; how++) add_operand(s, *how, va_arg(values, value));
    va_end(values);
    return s;
}

static void parameter(step *s, char how, int row) {
    if (row < 0) return;
    s->row_how[s->rows] = how;
    s->row[s->rows++] = row;
}
void uses(step *s, int row) { parameter(s, 'r', row); }
void adds(step *s, int row) { parameter(s, 'a', row); }

value make_value(lowering *L, const graph_value *x) {
    if (L->values == LOWER_VALUES) {
        if (L->rc == ERR_OK) L->rc = err_set(ERR_INTERNAL, "a block's lists have at most %d values", LOWER_VALUES);
        return 0;
    }
    value v = L->values++;
    L->v[v] = *x;
    graph_name(L->v[v].name, L->v, v, "", x->name, "");
    L->v[v].maker = -1, L->v[v].users = 0, L->v[v].storage = v;
    L->v[v].all_rows = L->v[v].is_input = false;  // where x lies
    memset(L->v[v].as, 0, sizeof L->v[v].as);
    L->made[v] = false;
    return v;
}

static value make_named(lowering *L, value x, const char *before, const char *after, layout at) {
    graph_value y = L->v[x];
    graph_name(y.name, L->v, L->values, before, L->v[x].name, after);
    y.at = at, y.shape = SHAPE_MATRIX, y.is_E = true;
    return make_value(L, &y);
}

value make_gradient(lowering *L, value x, layout at) { return make_named(L, x, "d", "", at); }
value make_like(lowering *L, value x, const char *after, layout at) { return make_named(L, x, "", after, at); }

value make_unread(lowering *L, int row) {
    graph_value x = {.name = "unread", .letters = "C", .width = L->g->m->param[row].size[0], .shape = SHAPE_PLAIN};
    x.type = FP32;
    return make_value(L, &x);
}

int only_user(const lowering *L, value v, op_role r) {
    return L->v[v].users == 1 && L->op[L->v[v].user[0]].type->role == r ? L->v[v].user[0] : -1;
}

bool is_wanted(const lowering *L, value v) {
    const graph_value *x = &L->v[v];
    bool wanted = L->again[v] || (v == L->out && !L->kept[v]);
    for (int i = 0; i < x->users; i++) wanted |= L->need[x->user[i]];
    return wanted;
}

// --- conversions -----------------------------------------------------------------------------------------------------

static err_t gather_rows(const frame *f, const step *s) {
    tensor own = at(f, s->v[0]), all;
    return slices_gather(f->m, f->p, &all, &own, f->matrix);
}
static err_t take_rows(const frame *f, const step *s) {
    tensor all = at(f, s->v[0]), own = at(f, s->v[1]);
    return slices_take(f->m, f->p, &own, &all);
}
static err_t rows_to_heads(const frame *f, const step *s) {
    tensor rows = at(f, s->v[0]), heads = at(f, s->v[1]);
    return f->p->swap->to_heads(f->p->swap->merge.ctx, &heads, &rows, f->p->s);
}
static err_t heads_to_rows(const frame *f, const step *s) {
    tensor heads = at(f, s->v[0]), rows = at(f, s->v[1]);
    return f->p->swap->to_rows(f->p->swap->merge.ctx, &rows, &heads, f->p->s);
}

// Converts between the rows of attention and those of matrices. Both forms of a value of forward may be kept, so each
// knows the other.
static value as_heads(lowering *L, value v, layout want) {
    value y = L->v[v].as[want.rows];
    bool heads = want.rows == ROWS_ALL;
    if (y && (!L->remakes || L->made[y])) return y;
    if (!y) {
        y = L->v[v].as[want.rows] = make_like(L, v, heads ? ".heads" : ".rows", want);
        L->v[y].maker = L->v[v].maker;
    }
    L->made[y] = true;
    emit(L, heads ? "to heads" : "to rows", heads ? rows_to_heads : heads_to_rows, -1, "rw", v, y)->meets = MEET_ROWS;
    return y;
}

value as(lowering *L, value v, layout want) {
    const model *m = L->g->m;
    row_span from = L->v[v].at.rows;
    if (from == want.rows) return v;
    if (from == ROWS_ALL || want.rows == ROWS_ALL) return model_row_ranks(m) > 1 ? as_heads(L, v, want) : v;
    if (!m->slices.rows) return v;
    if (want.rows == ROWS_OWN) {
        value own = make_like(L, v, ".own", want);
        emit(L, "take rows", take_rows, -1, "rw", v, own);
        return own;
    }
    if (L->gathered_from == v) return L->gathered;
    L->gathered_from = v, L->gathered = make_like(L, v, ".all", want);
    L->v[L->gathered].all_rows = true;
    emit(L, "gather rows", gather_rows, -1, "rw", v, L->gathered)->meets = MEET_ROWS;
    return L->gathered;
}

// --- the lists of a form ---------------------------------------------------------------------------------------------

static void begin_list(lowering *L, step_list *to, bool remakes) {
    L->to = to, L->remakes = remakes, L->gathered_from = 0;
    memset(L->done, 0, sizeof L->done);
}

static void list_forward(lowering *L, step_list *to) {
    begin_list(L, to, true);
    for (int i = 0; i < L->ops; i++)
        if (L->need[i] && !L->done[i]) L->op[i].type->forward(L, i, &L->op[i]);
}

// Of an operation whose work another one does: the operand that that one makes.
static value through(const operation *o) { return o->in[1] ? o->in[1] : o->in[0]; }

static void list_backward(lowering *L, step_list *to, backward_part part) {
    begin_list(L, to, false);
    L->part = part;
    for (int i = L->ops - 1; i >= 0; i--) {
        if (L->passed[i] || L->done[i] || (part == BACKWARD_WEIGHTS && !L->op[i].type->halves)) continue;
        if (part != BACKWARD_WEIGHTS) L->given[i] = L->grad[L->op[i].out[0]];
        if (L->by[i] >= 0) L->grad[through(&L->op[i])] = L->given[i];
        else L->op[i].type->backward(L, i, &L->op[i]);
    }
}

static void find_kept(const lowering *L, const step_list *x, bool *kept) {
    for (int i = 0; i < x->count; i++)
        for (int k = 0; k < x->at[i].count; k++) {
            value v = x->at[i].v[k];
            if (v && x->at[i].how[k] != 'w' && L->v[v].maker >= 0) kept[v] = true;
        }
}

// Marks the operations that compute a value again, back to values that are kept.
static void need_op(lowering *L, int i, const bool *kept, const bool *again) {
    if (L->need[i]) return;
    L->need[i] = true;
    for (int k = 0; k < OP_INPUTS; k++) {
        value v = L->op[i].in[k];
        bool there = kept[v] && !again[v];
        for (int r = 0; r <= ROWS_ALL; r++) there |= L->v[v].as[r] && kept[L->v[v].as[r]] && !again[L->v[v].as[r]];
        if (v && L->v[v].maker >= 0 && !there) need_op(L, L->v[v].maker, kept, again);
    }
}

// Backward reads this value. Is it computed again? The block's output is not: the next block has it.
static bool is_made_again(const lowering *L, value v, bool is_last) {
    if (v == L->out) return false;
    const operation *o = &L->op[L->v[v].maker];
    recomputation r = L->o->recompute;
    return is_last || (L->g->m->block[L->b].recomputes &&
                       (r == RECOMPUTE_BLOCK || (r == RECOMPUTE_SELECTIVE && o->type->cheap && o->out[0] == v)));
}

static bool has_halves(const lowering *L) {
    return L->o->halves && block_has_halves(&L->g->m->block[L->b], L->o->recompute);
}

static err_t copy_value(const frame *f, const step *s) {
    tensor x = at(f, s->v[0]), y = at(f, s->v[1]);
    return f->p->ops->cast(&(cast_args){.y = &y, .x = &x}, f->p->s);
}

// The gradient of the block's input overwrites that of its output. If the second half reads the latter for a product,
// it is copied first.
static void copy_given(lowering *L, value dy) {
    int sum = L->v[L->out].maker;
    if (sum < 0 || !is_made_by(L, L->op[sum].in[1], ROLE_PRODUCT)) return;
    L->copy[dy] = make_like(L, dy, ".copy", L->v[dy].at);
    emit(L, "copy", copy_value, -1, "rw", dy, L->copy[dy]);
}

static void lower_backward(lowering *L, lists *x) {
    bool halves = has_halves(L);
    begin_list(L, &x->list[LIST_BACKWARD], false);
    if (L->out) {
        value dy = make_gradient(L, L->out, L->v[L->out].at);
        L->grad[L->out] = dy;
        if (halves) copy_given(L, dy);
    }
    list_backward(L, &x->list[LIST_BACKWARD], halves ? BACKWARD_INPUTS : BACKWARD_WHOLE);
    if (halves) list_backward(L, &x->list[LIST_WEIGHTS], BACKWARD_WEIGHTS);
}

static void lower_again(lowering *L, lists *x) {
    const bool *kept = L->kept, *again = L->again;
    memset(L->need, 0, sizeof L->need), memset(L->made, 0, sizeof L->made);
    for (value v = 1; v < L->values; v++)
        if (again[v]) need_op(L, L->v[v].maker, kept, again);
    list_forward(L, &x->list[LIST_AGAIN]);
}

static void replace_user(graph_value *x, int user, const graph_value *by) {
    int n = 0;
    for (int i = 0; i < x->users; i++)
        if (x->user[i] != user) x->user[n++] = x->user[i];
    for (int i = 0; i < by->users && n < VALUE_USERS; i++) x->user[n++] = by->user[i];
    x->users = n;
}

// An operation that does nothing: those who read its result read its input instead.
static void pass_by(lowering *L, int op) {
    value x = L->op[op].in[0], y = L->op[op].out[0];
    replace_user(&L->v[x], op, &L->v[y]);
    for (int i = 0; i < L->ops; i++)
        for (int k = 0; k < OP_INPUTS; k++)
            if (L->op[i].in[k] == y) L->op[i].in[k] = x;
    if (L->out == y) L->out = x;
    L->op[op].in[0] = 0, L->passed[op] = true;
}

static void take_block(lowering *L) {
    const block_graph *k = &L->g->block[L->b];
    memcpy(L->v, k->v, (size_t)k->values * sizeof *L->v);
    memcpy(L->op, k->op, (size_t)k->ops * sizeof *L->op);
    L->ops = k->ops, L->values = k->values, L->in = k->in, L->out = k->out;
    for (int i = 0; i < L->ops && !L->drops; i++)
        if (L->op[i].type->drops) pass_by(L, i);
}

err_t lower_form(lowering *L, lists *x) {
    bool *kept = L->kept, *again = L->again, is_last = !L->g->block[L->b].out;
    take_block(L);
    for (int i = 0; i < L->ops; i++) L->by[i] = L->bias_by[i] = -1, L->need[i] = !L->passed[i];
    for (int i = L->ops - 1; i >= 0; i--)
        if (L->op[i].type->claim) L->op[i].type->claim(L, i, &L->op[i]);
    list_forward(L, &x->list[LIST_FORWARD]);
    if (!L->o->forward_only) {
        lower_backward(L, x);
        for (int i = LIST_BACKWARD; i <= LIST_WEIGHTS; i++) find_kept(L, &x->list[i], kept);
        for (value v = 1; v < L->values; v++) again[v] = kept[v] && is_made_again(L, v, is_last);
        lower_again(L, x);
    }
    x->v = malloc((size_t)L->values * sizeof *x->v);
    x->place = calloc((size_t)L->values, sizeof *x->place);
    x->values = L->values;
    if (!x->v || !x->place) return err_set(ERR_INTERNAL, "no memory for a table of %d values", L->values);
    place_values(x, L, kept, again);
    memcpy(x->v, L->v, (size_t)L->values * sizeof *x->v);
    return L->rc;
}
