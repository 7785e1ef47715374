// trainer/step/outer_room.c: see trainer/step/outer_room.h.
#include "trainer/step/outer_room.h"

#include "comm/ordered.h"

#include <stdlib.h>

size_t outer_bytes(const outer_room *x, const outer_piece *p) {
    return p->codes ? codec_bytes(x->codec, p->of.count) : ((size_t)p->of.count * sizeof(float) + 15) / 16 * 16;
}

// --- what travels as it is -------------------------------------------------------------------------------------------

static err_t declare_room(outer_room *x, const zero_layout *z, const model *net, arena *memory) {
    int64_t all = 0, unit = OUTER_ALIGN * x->islands;
    for (int i = 0; i < z->owned; i++)
        if (net->param[z->piece[i].row].tied < 0)
            all += (z->piece[i].count + OUTER_ALIGN - 1) / OUTER_ALIGN * OUTER_ALIGN;
    all = all ? (all + unit - 1) / unit * unit : unit;
    x->most = all > OUTER_MOST ? OUTER_MOST : all;
    return arena_2d(memory, &x->room, FP32, 2, x->most);
}

// --- what is coded ---------------------------------------------------------------------------------------------------

static int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

static err_t allocate_pieces(outer_room *x, const zero_layout *z, const model *net, int64_t *elements) {
    int64_t most = x->islands + 1;
    *elements = 0;
    for (int i = 0; i < z->owned; i++)
        if (net->param[z->piece[i].row].tied < 0) most += chunks_of(z->piece[i].count), *elements += z->piece[i].count;
    x->piece = calloc((size_t)most, sizeof *x->piece);
    x->first = calloc((size_t)x->islands + 1, sizeof *x->first);
    x->cut = calloc((size_t)x->islands + 1, sizeof *x->cut);
    if (x->piece && x->first && x->cut) return ERR_OK;
    outer_room_close(x);
    return err_set(ERR_INTERNAL, "no memory for the coded pieces of %d islands", x->islands);
}

// Islands share out the chunks in the order of the table, so that each adds up one range of a row at most.
static void fill_pieces(outer_room *x, const zero_layout *z, const model *net, int64_t elements) {
    int n = 0, owner = 0;
    int64_t before = 0;
    size_t at = 0;
    for (int i = 0; i < z->owned; i++) {
        const param *row = &net->param[z->piece[i].row];
        if (row->tied >= 0) continue;
        for (int64_t k = 0, run; k < z->piece[i].count; k += run, before += run) {
            outer_piece *last = n ? &x->piece[n - 1] : NULL, *p = &x->piece[n];
            run = z->piece[i].count - k < CHUNK ? z->piece[i].count - k : CHUNK;
            while (owner < before * x->islands / elements) x->first[++owner] = n, x->cut[owner] = at;
            if (k > 0 && last->owner == owner && last->of.count + run <= OUTER_PIECE) {
                at = last->there, last->of.count += run, at += outer_bytes(x, last);
                continue;
            }
            *p = (outer_piece){z->piece[i], owner, row->dims > 1 && row->rule != PARAM_AVERAGE, at};
            p->of.first += k, p->of.slab += (size_t)k, p->of.shard += (size_t)k, p->of.count = run;
            at += outer_bytes(x, p), n++;
        }
    }
    while (owner < x->islands) x->first[++owner] = n, x->cut[owner] = at;
}

static int64_t longest(const outer_room *x) {
    int64_t most = 0;
    for (int i = 0; i < x->first[x->islands]; i++)
        if (x->piece[i].of.count > most) most = x->piece[i].of.count;
    return most;
}

static err_t declare_residuals(outer_room *x, const zero_layout *z, bool on_gpu, arena *memory, arena *host) {
    const int *own = &x->first[x->island];
    size_t end = 0;
    x->back_at = own[1] > own[0] ? x->piece[own[0]].of.shard : 0;
    for (const outer_piece *p = x->piece + own[0]; p < x->piece + own[1]; p++) {
        if (p->of.shard < x->back_at) x->back_at = p->of.shard;
        if (p->of.shard + (size_t)p->of.count > end) end = p->of.shard + (size_t)p->of.count;
    }
    int64_t all = (int64_t)z->shard_values, back = (int64_t)(end - x->back_at);
    if (all) TRY(arena_1d(memory, &x->residual, FP32, all));
    if (all && on_gpu) TRY(arena_1d(host, &x->residual_mirror, FP32, all));
    if (back) TRY(arena_1d(memory, &x->residual_back, FP32, back));
    return back && on_gpu ? arena_1d(host, &x->back_mirror, FP32, back) : ERR_OK;
}

static err_t declare_codes(outer_room *x, const zero_layout *z, const model *net, bool on_gpu, arena *memory,
                           arena *host) {
    int64_t elements;
    TRY(allocate_pieces(x, z, net, &elements));
    fill_pieces(x, z, net, elements);
    int64_t out = (int64_t)x->cut[x->islands], in = (int64_t)outer_part(x, x->island) * (x->islands - 1);
    x->buffers = lane_counter_buffers(0, x->islands, true);
    if (x->buffers < 2) x->buffers = 2;  // a sum and its mean
    if (out) TRY(arena_1d(memory, &x->out, UINT8, out));
    if (in) TRY(arena_1d(memory, &x->in, UINT8, in));
    if (out) TRY(arena_2d(memory, &x->sums, FP32, x->buffers, longest(x)));
    return declare_residuals(x, z, on_gpu, memory, host);
}

// --- all -------------------------------------------------------------------------------------------------------------

err_t outer_room_open(outer_room *x, const zero_layout *z, const model *net, const outer_options *o, arena *memory,
                      arena *host) {
    const int64_t words = (int64_t)(sizeof(step_state) + 3) / 4;
    *x = (outer_room){.codec = o->codec, .islands = o->islands, .island = o->island};
    if (o->moments || !outer_codes(x)) TRY(declare_room(x, z, net, memory));
    TRY(arena_1d(memory, &x->whole, INT32, words));
    TRY(arena_1d(memory, &x->step, INT32, words));
    return outer_codes(x) ? declare_codes(x, z, net, o->on_gpu, memory, host) : ERR_OK;
}

void outer_room_close(outer_room *x) {
    free(x->piece), free(x->first), free(x->cut);
    *x = (outer_room){0};
}
