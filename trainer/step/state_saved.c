// trainer/step/state_saved.c: the state as a checkpoint sees it: groups of tensors, and of each tensor the range that
// this rank has, in memory that the host reads. Masters come first, then what the optimizer keeps, then what was left
// out of each lane ([reduce] compress), and of the sums of all lanes. Of islands ([outer]) two kinds follow: what the
// optimizers of all but the first keep, where that is each one's own, and what was left out of their deltas and of the
// means of these. Of islands that are apart each one's masters are saved besides, and first of all their mean.
#include "trainer/step/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

store *state_store(train_state *t, int k) { return k == 0 ? &t->masters : &t->array[k - 1]; }

float *state_host(train_state *t, int k, const zero_piece *p) {
    return t->mirror[k].data ? (float *)t->mirror[k].data + p->shard : store_view(state_store(t, k), p).data;
}

optimizer_scalar state_scalar(const train_state *t, int k) {
    optimizer_scalar x = {0};
    t->o.optimizer->scalar(t->o.keys, k, &x);
    return x;
}

// With topk a span of lanes has a velocity, too.
static int lane_groups(const train_state *t) { return (int)state_spans(t) * (t->o.kept ? 2 : 1); }

int state_residual_groups(const train_state *t) {
    return state_codes(t) ? lane_groups(t) + (t->o.back != CODEC_NONE) : 0;
}

// Stores that each island has of its own where a checkpoint is made: moments, and masters before them.
static bool own_moments(const train_state *t) {
    return t->o.training && t->o.islands && (t->o.own_moments || state_apart(t));
}
static int own_stores(const train_state *t) { return (own_moments(t) ? state_moments(t) : 0) + state_apart(t); }
static int own_store(const train_state *t, int k) { return k + !state_apart(t); }

static bool codes_islands(const train_state *t) {
    return t->o.training && t->o.islands && t->o.outer_codec != CODEC_NONE;
}

int state_island_groups(const train_state *t) {
    int islands = t->o.islands ? t->o.islands->world : 1;
    return (islands - 1) * own_stores(t) + (codes_islands(t) ? islands + 1 : 0);
}

static int64_t elements(const tensor *t) { return t->dims ? tensor_count(t) : 0; }

int64_t state_saved(const train_state *t) {
    int64_t own = (int64_t)t->zero.shard_values;
    return own * (1 + t->arrays) + t->residuals * (t->o.kept ? 2 : 1) * (int64_t)t->zero.values +
           (t->residual_back.dims ? own : 0) + elements(&t->outer.residual) + elements(&t->outer.residual_back);
}

int64_t state_saved_by(const train_state *t, int rank) {
    int64_t n = 0;
    for (int g = 0; g < t->zero.segments; g++)
        if (!t->zero.segment[g].tied) n += (int64_t)zero_range(&t->zero, g, rank);
    return n * (1 + t->arrays);
}

// --- a row -----------------------------------------------------------------------------------------------------------

// The order in which it lies in memory.
static void fill_slices(ckpt_tensor *c, const param *p) {
    _Static_assert((int)CKPT_SHARES == (int)PARAM_SHARES, "a row's shares are those of a checkpoint");
    if (param_slices(p) == 1) return;
    c->axis = p->axis, c->slices = p->slices;
    c->split.padded = p->rows_in_memory;
    memcpy(c->split.rows, p->share, sizeof p->share);
}

ckpt_order state_order(const train_state *t, int row) {
    const param *p = &t->net->param[row];
    ckpt_tensor c = {.dims = p->dims, .size = {p->size[0], p->size[1], p->size[2], p->size[3]}};
    fill_slices(&c, p);
    return ckpt_order_of(&c);
}

// Of what islands hold alike where it is saved, the first one speaks. Of ranks that share layers, the first one speaks
// for the rows that all of them have.
static bool speaks_for(const train_state *t, const param *p, int island) {
    if (t->o.islands && t->o.islands->rank != island) return false;
    return param_slices(p) > 1 || !t->o.tensor || t->o.tensor->rank == 0;
}

static void begin_tensor(ckpt_tensor *c, const param *p) {
    *c = (ckpt_tensor){.dims = p->dims, .size = {p->size[0], p->size[1], p->size[2], p->size[3]}};
    memcpy(c->name, p->name, strnlen(p->name, CKPT_NAME - 1));
    fill_slices(c, p);
}

// A row's pieces follow each other in memory as they do in the order of its slices. data: where this one is.
static void add_piece(ckpt_tensor *c, const param *p, const zero_piece *piece, float *data) {
    if (!c->count) c->first = piece->slice * param_slice_room(p) + piece->first, c->data = data;
    c->count += piece->count;
}

// What this rank owns of a row: of store k of an island, or, k = RESIDUAL_BACK, of what was left out of sums.
enum { RESIDUAL_BACK = -1 };
static void fill_owned(train_state *t, ckpt_tensor *c, int row, int k, int island) {
    const param *p = &t->net->param[row];
    float *left_out = t->back_mirror.data ? t->back_mirror.data : t->residual_back.data;
    begin_tensor(c, p);
    for (int i = 0; i < t->zero.owned && speaks_for(t, p, island); i++) {
        const zero_piece *piece = &t->zero.piece[i];
        if (piece->row != row) continue;
        if (k != RESIDUAL_BACK && state_spills(t) && !c->count)
            c->away = spilled_away(&t->spilled, k), c->at = spilled_at(&t->spilled, piece);
        add_piece(c, p, piece, k == RESIDUAL_BACK ? left_out + piece->shard : state_host(t, k, piece));
    }
}

// What was left out of a span of lanes: all that is here of a row. residual: where the host has it; NULL: another rank
// has them.
static void fill_residual(const train_state *t, ckpt_tensor *c, int row, float *residual) {
    const param *p = &t->net->param[row];
    begin_tensor(c, p);
    for (int i = 0; residual && i < t->zero.wholes && speaks_for(t, p, 0); i++)
        if (t->zero.whole[i].row == row) add_piece(c, p, &t->zero.whole[i], residual + t->zero.whole[i].slab);
}

// --- the groups ------------------------------------------------------------------------------------------------------

static float *host_residual(const train_state *t, int64_t span, bool velocity) {
    const tensor *of = velocity ? t->velocity : t->residual,
                 *mirror = velocity ? t->velocity_mirror : t->residual_mirror;
    const lane_table *lanes = reduce_lanes(t->reduce);
    for (int i = 0; i < t->residuals; i++)
        if (lane_table_at(lanes, t->ranks->rank, i) == span * lane_table_span(lanes))
            return mirror[i].data ? mirror[i].data : of[i].data;
    return NULL;
}

static void name_residuals(train_state *t, int n) {
    ckpt_group *g = t->ckpt.group + 1 + t->arrays;
    ckpt_tensor *tensors = t->tensors + (1 + t->arrays) * n;
    int64_t spans = state_spans(t);
    for (int k = 0; k < lane_groups(t); k++) {
        snprintf(t->residual_name[k], sizeof *t->residual_name, "%s%" PRId64, k < spans ? "residual" : "velocity",
                 k % spans);
        g[k] = (ckpt_group){t->residual_name[k], tensors + k * n};
    }
    if (t->o.back != CODEC_NONE) g[spans] = (ckpt_group){"residual-back", tensors + spans * n};
}

static void link_residuals(train_state *t, int row, int at) {
    const ckpt_group *g = t->ckpt.group + 1 + t->arrays;
    int64_t spans = state_spans(t);
    for (int k = 0; k < lane_groups(t); k++)
        fill_residual(t, &g[k].tensor[at], row, host_residual(t, k % spans, k >= spans));
    if (t->o.back != CODEC_NONE) fill_owned(t, &g[spans].tensor[at], row, RESIDUAL_BACK, 0);
}

// --- of islands ------------------------------------------------------------------------------------------------------

// The groups in their order: masters and moments, by island, then deltas, by island, and the means.
static ckpt_group *island_group(const train_state *t, int k) {
    return &t->ckpt.group[1 + t->arrays + state_residual_groups(t) + k];
}

static void name_islands(train_state *t, int n) {
    int at = 1 + t->arrays + state_residual_groups(t), own = own_stores(t), k = 0;
    for (int island = 1; own && island < t->o.islands->world; island++)
        for (int a = 0; a < own; a++) {
            int of = own_store(t, a);
            snprintf(t->island_name[k++], sizeof *t->island_name, "%s%d", of ? t->array[of - 1].name : "island",
                     island);
        }
    for (int island = 0; codes_islands(t) && island < t->o.islands->world; island++)
        snprintf(t->island_name[k++], sizeof *t->island_name, "delta-rest%d", island);
    if (codes_islands(t)) snprintf(t->island_name[k++], sizeof *t->island_name, "mean-rest");
    for (int i = 0; i < k; i++) *island_group(t, i) = (ckpt_group){t->island_name[i], t->tensors + (at + i) * n};
}

// What was left out of deltas that this rank has coded, of all islands or of its own part.
static void fill_rest(const train_state *t, ckpt_tensor *c, int row, int island, bool back) {
    const outer_room *x = &t->outer;
    const param *p = &t->net->param[row];
    const tensor *of = back ? &x->residual_back : &x->residual, *mirror = back ? &x->back_mirror : &x->residual_mirror;
    float *data = mirror->data ? mirror->data : of->data;
    begin_tensor(c, p);
    for (int i = 0; i < x->pieces && speaks_for(t, p, island); i++)
        if (x->piece[i].of.row == row && (!back || x->piece[i].owner == x->island))
            add_piece(c, p, &x->piece[i].of, data + (x->piece[i].of.shard - (back ? x->back_at : 0)));
}

static void link_islands(train_state *t, int row, int at) {
    int own = own_stores(t), k = 0;
    for (int island = 1; own && island < t->o.islands->world; island++)
        for (int a = 0; a < own; a++) fill_owned(t, &island_group(t, k++)->tensor[at], row, own_store(t, a), island);
    for (int island = 0; codes_islands(t) && island < t->o.islands->world; island++)
        fill_rest(t, &island_group(t, k++)->tensor[at], row, island, false);
    if (codes_islands(t)) fill_rest(t, &island_group(t, k)->tensor[at], row, t->o.islands->rank, true);
}

// What a group of a checkpoint holds. The first one is what is shown: of islands that are apart the masters' mean, and
// the first island's masters have its place.
static int store_of(const train_state *t, int group) {
    return group == 0 ? state_shown(t) : group == state_shown(t) ? 0 : group;
}

ckpt_group state_masters(const train_state *t) { return (ckpt_group){"", t->ckpt.group[state_shown(t)].tensor}; }

err_t state_link(train_state *t) {
    ckpt_state *c = &t->ckpt;
    int n = t->net->params;
    c->groups = 1 + t->arrays + state_residual_groups(t) + state_island_groups(t);
    for (int k = 0; k < 1 + t->arrays; k++)
        c->group[k] = (ckpt_group){state_store(t, store_of(t, k))->name, t->tensors + k * n};
    if (state_apart(t)) c->group[t->arrays].name = "island0";
    if (state_codes(t)) name_residuals(t, n);
    name_islands(t, n);
    for (int k = 0; k < t->scalars; k++) {
        optimizer_scalar x = state_scalar(t, k);
        if (!x.follows) c->scalar[c->scalars++] = (ckpt_scalar){x.name, &t->scalar[k].value};
    }
    c->rows = t->rows, c->row_cut = t->row_cut, c->rows_name = t->net->table.name;
    c->ranks = t->all;
    c->s = t->s;
    for (int i = 0; i < n; i++) {
        if (!param_is_saved(&t->net->param[i])) continue;
        for (int k = 0; k < 1 + t->arrays; k++) fill_owned(t, &c->group[k].tensor[c->params], i, store_of(t, k), 0);
        if (state_codes(t)) link_residuals(t, i, c->params);
        link_islands(t, i, c->params);
        c->params++;
    }
    return ckpt_prepare(c);
}
