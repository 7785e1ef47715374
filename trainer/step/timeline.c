// trainer/step/timeline.c: see trainer/step/timeline.h. The tables are run as lists of actions, of a model with one
// block a stage: there every unit is one action. trainer/step/simulate.c says when each of them runs.
#include "trainer/step/timeline.h"

#include "trainer/step/simulate.h"
#include "trainer/step/table_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The lists of all ranks of a pipeline.
typedef struct paper {
    const pipeline_layout *l;
    const timeline_costs *costs;
    stages *of;
    action_list *list;  // [ranks]
    const stages **all_of;
    const action_list **all_lists;
} paper;

static void *array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static err_t no_memory(void) { return err_set(ERR_INTERNAL, "no memory to run a pipeline's tables"); }

// --- the lists -------------------------------------------------------------------------------------------------------

// Stage s has block s.
static err_t cut_blocks(stages *x, const pipeline_layout *l, int rank, const unit_table *t) {
    int count = pipeline_stages(l);
    *x = (stages){.pipe = *l, .rank = rank, .count = count, .table = *t, .input_slots = 1};
    x->cut = array((size_t)count + 1, sizeof *x->cut), x->chunk = array((size_t)count, sizeof *x->chunk);
    x->input_slot = array((size_t)l->micros, sizeof *x->input_slot);
    if (!x->cut || !x->chunk || !x->input_slot) return no_memory();
    for (int s = 0; s <= count; s++) x->cut[s] = s;
    for (int s = 0; s < count; s++) x->chunk[s] = -1;
    for (int c = 0; c < l->chunks; c++) x->chunk[stages_of(x, c)] = c;
    return ERR_OK;
}

// One lane has all micro-batches.
static err_t make_lists(paper *x, const unit_table *tables) {
    size_t n = (size_t)x->l->ranks;
    x->of = array(n, sizeof *x->of), x->list = array(n, sizeof *x->list);
    x->all_of = array(n, sizeof *x->all_of), x->all_lists = array(n, sizeof *x->all_lists);
    if (!x->of || !x->list || !x->all_of || !x->all_lists) return no_memory();
    for (int i = 0; i < x->l->ranks; i++) {
        TRY(table_check(x->l, i, &tables[i]));
        TRY(cut_blocks(&x->of[i], x->l, i, &tables[i]));
        action_layout a = {.world = 1,
                           .lanes = 1,
                           .micros = x->l->micros,
                           .unrecorded = true,
                           .blocks = x->of[i].count,
                           .pipe = &x->of[i]};
        TRY(action_step(&a, 0, &x->list[i]));
        x->all_of[i] = &x->of[i], x->all_lists[i] = &x->list[i];
    }
    return ERR_OK;
}

static void free_lists(paper *x) {
    for (int i = 0; x->of && i < x->l->ranks; i++) free(x->of[i].cut), free(x->of[i].chunk), free(x->of[i].input_slot);
    for (int i = 0; x->list && i < x->l->ranks; i++) action_list_free(&x->list[i]);
    free(x->of), free(x->list), free(x->all_of), free(x->all_lists);
}

// --- what the simulation says of them --------------------------------------------------------------------------------

static int unit_of(action_kind kind) {
    switch (kind) {
    case ACTION_FORWARD: return UNIT_FORWARD;
    case ACTION_BACKWARD: return UNIT_BACKWARD;
    case ACTION_INPUTS: return UNIT_INPUTS;
    case ACTION_WEIGHTS: return UNIT_WEIGHTS;
    default: return -1;
    }
}

static double time_of(void *ctx, int rank, const action *a) {
    const timeline_costs *c = ctx;
    int kind = unit_of(a->kind);
    (void)rank;
    return kind >= 0 ? c->unit[a->first][kind] : a->kind == ACTION_POST ? c->transfer : 0;
}

// The actions that are units come in the order of the table.
static err_t read_bars(const paper *x, int rank, const simulated_rank *s, timeline_rank *out) {
    const unit_table *t = &x->of[rank].table;
    const action_list *a = &x->list[rank];
    out->bar = array((size_t)t->units, sizeof *out->bar);
    if (!out->bar) return no_memory();
    for (int i = 0; i < a->count; i++) {
        const unit *u = &t->unit[out->bars];
        if (unit_of(a->at[i].kind) < 0) continue;
        out->bar[out->bars++] = (timeline_bar){s->came[i], s->left[i], u->kind, u->stage, u->micro};
    }
    out->busy = s->busy;
    return ERR_OK;
}

// Activations at once; and free [chunks * micros], when the slot of each was free.
static void read_slots(const pipeline_layout *l, timeline_rank *out, double *free) {
    int held = 0;
    for (int i = 0; i < out->bars; i++) {
        const timeline_bar *b = &out->bar[i];
        if (b->kind == UNIT_FORWARD && ++held > out->held) out->held = held;
        if (b->kind != UNIT_BACKWARD && b->kind != UNIT_WEIGHTS) continue;
        free[b->stage / l->ranks * l->micros + b->micro] = b->end;
        held--;
    }
}

// A slot's output has left before the slot is free.
static err_t check_outputs(const paper *x, int rank, const simulated_rank *s, const double *free) {
    const unit_table *t = &x->of[rank].table;
    char one[MESSAGE_TEXT];
    for (int i = 0; i < t->messages; i++) {
        const message *m = &t->message[i];
        const unit *u = &t->unit[m->unit];
        if (m->sends && m->kind == MESSAGE_ACTIVATIONS &&
            s->message[i] > free[u->stage / x->l->ranks * x->l->micros + u->micro])
            return err_set(ERR_INTERNAL, "rank %d: `%s` has not left when its slot is free", rank,
                           message_text(m, one));
    }
    return ERR_OK;
}

static err_t read_rank(const paper *x, int rank, const simulated_rank *s, timeline_rank *out) {
    double *at = array((size_t)x->l->chunks * (size_t)x->l->micros, sizeof *at);
    err_t rc = at ? read_bars(x, rank, s, out) : no_memory();
    if (rc == ERR_OK) read_slots(x->l, out, at), rc = check_outputs(x, rank, s, at);
    free(at);
    return rc;
}

static err_t read_all(const paper *x, const simulation *s, timeline *out) {
    double busy = 0;
    *out = (timeline){.ranks = s->ranks, .rank = array((size_t)s->ranks, sizeof *out->rank), .makespan = s->total};
    if (!out->rank) return no_memory();
    for (int i = 0; i < s->ranks; i++) {
        TRY(read_rank(x, i, &s->rank[i], &out->rank[i]));
        busy += out->rank[i].busy;
        out->rank[i].idle = 1 - out->rank[i].busy / out->makespan;
    }
    out->idle = 1 - busy / (out->makespan * s->ranks);
    return ERR_OK;
}

static err_t simulate(paper *x, const unit_table *tables, timeline *out) {
    simulate_costs costs = {.time = time_of, .ctx = (void *)x->costs, .depth = x->costs->depth};
    simulation s;
    TRY(make_lists(x, tables));
    TRY(simulate_run(&(simulate_lists){x->l->ranks, 1, x->all_lists, x->all_of}, &costs, &s));
    err_t rc = read_all(x, &s, out);
    simulation_free(&s);
    return rc;
}

err_t timeline_run(const pipeline_layout *l, const unit_table *tables, const timeline_costs *c, timeline *out) {
    paper x = {.l = l, .costs = c};
    *out = (timeline){0};
    TRY(pipeline_check(l));
    err_t rc = simulate(&x, tables, out);
    free_lists(&x);
    if (rc != ERR_OK) timeline_free(out);
    return rc;
}

err_t timeline_of(const pipeline_layout *l, const timeline_costs *c, timeline *out) {
    *out = (timeline){0};
    TRY(pipeline_check(l));
    unit_table *tables = calloc((size_t)l->ranks, sizeof *tables);
    if (!tables) return err_set(ERR_INTERNAL, "no memory for a pipeline's tables");
    err_t rc = ERR_OK;
    for (int i = 0; i < l->ranks && rc == ERR_OK; i++) rc = pipeline_units(l, i, &tables[i]);
    if (rc == ERR_OK) rc = timeline_run(l, tables, c, out);
    for (int i = 0; i < l->ranks; i++) unit_table_free(&tables[i]);
    free(tables);
    return rc;
}

// A block without halves does both in the first one. The last block has its loss, all of which waits for backward.
static void add_block(const model *net, int b, recomputation again, double unit[UNIT_KINDS]) {
    const block *k = &net->block[b];
    double part = k->flops / 3, forward = b + 1 < net->blocks ? part : 0, backward = k->flops - forward;
    if (again == RECOMPUTE_BLOCK && k->recomputes) backward += forward;
    unit[UNIT_FORWARD] += forward, unit[UNIT_BACKWARD] += backward;
    unit[UNIT_INPUTS] += block_has_halves(k, again) ? backward - part : backward;
    unit[UNIT_WEIGHTS] += block_has_halves(k, again) ? part : 0;
}

err_t timeline_of_flops(const pipeline_layout *l, const model *net, const int *cut, recomputation again,
                        timeline *out) {
    int n = pipeline_stages(l);
    double(*each)[UNIT_KINDS] = calloc((size_t)n, sizeof *each);
    if (!each) return err_set(ERR_INTERNAL, "no memory for %d stages", n);
    for (int s = 0; s < n; s++) {
        for (int b = net ? cut[s] : 0; net && b < cut[s + 1]; b++) add_block(net, b, again, each[s]);
        for (int u = 0; u < UNIT_KINDS; u++)
            // a unit of nothing comes in its turn
            each[s][u] = !net ? (u == UNIT_BACKWARD ? 2 : 1) : each[s][u] > 0 ? each[s][u] : 1e-6;
    }
    err_t rc = timeline_of(l, &(timeline_costs){.unit = (const double(*)[UNIT_KINDS])each}, out);
    free(each);
    return rc;
}

void timeline_free(timeline *t) {
    for (int i = 0; t->rank && i < t->ranks; i++) free(t->rank[i].bar);
    free(t->rank);
    *t = (timeline){0};
}

// --- the drawing -----------------------------------------------------------------------------------------------------

typedef struct pen {
    char *dst;
    size_t room, length;
} pen;

static void draw(pen *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void draw(pen *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool fits = p->length < p->room;
    int n = vsnprintf(fits ? p->dst + p->length : NULL, fits ? p->room - p->length : 0, fmt, ap);
    va_end(ap);
    if (n > 0) p->length += (size_t)n;
}

static char bar_text(const timeline_bar *b) {
    char first = b->kind == UNIT_FORWARD ? '0' : b->kind == UNIT_WEIGHTS ? 'A' : 'a';
    return (char)(first + b->micro % 10);
}

size_t timeline_draw(const timeline *t, double column, char *dst, size_t room) {
    pen p = {dst, room, 0};
    char label[32];
    if (room) dst[0] = 0;
    int digits = snprintf(label, sizeof label, "%d", t->ranks - 1),
        width = TIMELINE_WIDTH - (int)strlen("rank   ") - digits;
    double columns = t->makespan / column;
    if (columns > (double)width * TIMELINE_FOLDS) {
        column = t->makespan / width;
        draw(&p, "one column = %.4g\n", column);
        columns = width;
    }
    int all = (int)(columns + 0.999);
    for (int from = 0; from < all; from += width) {
        int to = from + width < all ? from + width : all;
        if (from) draw(&p, "\n");
        for (int i = 0; i < t->ranks; i++) {
            const timeline_rank *k = &t->rank[i];
            draw(&p, "rank %*d  ", digits, i);
            for (int c = from, b = 0; c < to; c++) {
                double at = (c + 0.5) * column;
                while (b < k->bars && k->bar[b].end <= at) b++;
                draw(&p, "%c", b < k->bars && k->bar[b].start <= at ? bar_text(&k->bar[b]) : '.');
            }
            draw(&p, "\n");
        }
    }
    return p.length;
}
