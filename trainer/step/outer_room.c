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

static bool is_in(const outer_room *x, const model *net, int row, int fragment) {
    return net->param[row].tied < 0 && x->of_row[row] == fragment;
}

// Where in the slab this rank's range of a row lies, with the row's padding. Ranks of a layer have slices of different
// lengths, and padding that makes them equal: so they have equal ranges.
typedef struct extent {
    size_t from, to;
} extent;

static extent extent_of(const zero_layout *z, const model *net, int segment, int row) {
    const param *p = &net->param[row];
    if (!zero_has(z, row)) return (extent){0, 0};
    size_t begin = z->slab_at[segment], end = begin + zero_range(z, segment, z->rank), from = z->row_at[row],
           to = from + (size_t)(zero_slices(z, p) * param_slice_room(p));
    from = from > begin ? from : begin, to = to < end ? to : end;
    return from < to ? (extent){from, to} : (extent){0, 0};
}

// Elements of this rank's ranges of a fragment, with padding.
static int64_t elements_of(const outer_room *x, const zero_layout *z, const model *net, int fragment) {
    int64_t n = 0;
    for (int g = 0; g < z->segments; g++)
        for (int i = z->segment[g].first; i < z->segment[g].first + z->segment[g].rows; i++) {
            extent e = extent_of(z, net, g, i);
            if (is_in(x, net, i, fragment)) n += (int64_t)(e.to - e.from);
        }
    return n;
}

static err_t allocate_pieces(outer_room *x, const zero_layout *z) {
    size_t most = (size_t)x->count * ((size_t)x->islands + 1), numbers = (size_t)x->islands + 1;
    for (int i = 0; i < z->owned; i++) most += (size_t)chunks_of(z->piece[i].count);
    x->piece = calloc(most, sizeof *x->piece);
    x->fragment = calloc((size_t)x->count, sizeof *x->fragment);
    bool all = x->piece && x->fragment;
    for (int f = 0; all && f < x->count; f++) {
        outer_fragment *to = &x->fragment[f];
        to->period = x->rules.of[f].period, to->offset = x->rules.of[f].offset;
        to->first = calloc(numbers, sizeof *to->first);
        to->cut = calloc(numbers, sizeof *to->cut);
        all = to->first && to->cut;
    }
    return all ? ERR_OK : err_set(ERR_INTERNAL, "no memory for the coded pieces of %d islands", x->islands);
}

// The codes of rows of one dimension and of running statistics would save nothing, or mean nothing.
static bool is_coded(const outer_room *x, const param *row) {
    return x->codec != CODEC_NONE && row->dims > 1 && row->rule != PARAM_AVERAGE;
}

// A fragment's pieces, as they are listed.
typedef struct listing {
    outer_fragment *f;
    int begin, owner;  // its first piece; whose turn it is
    size_t at;         // bytes of its message
    int64_t elements;  // of the fragment
} listing;

// Cuts a piece of the masters where the next island's begin. before: elements of the fragment before it.
static void cut_piece(outer_room *x, listing *l, const zero_piece *of, bool codes, int64_t before) {
    for (int64_t k = 0, run; k < of->count; k += run) {
        outer_piece *last = x->pieces > l->begin ? &x->piece[x->pieces - 1] : NULL, *p = &x->piece[x->pieces];
        run = of->count - k < CHUNK ? of->count - k : CHUNK;
        while (l->owner < (before + k) * x->islands / l->elements)
            l->f->first[++l->owner] = x->pieces, l->f->cut[l->owner] = l->at;
        if (k > 0 && last->owner == l->owner && last->of.count + run <= OUTER_PIECE) {
            l->at = last->there - l->f->out, last->of.count += run, l->at += outer_bytes(x, last);
            continue;
        }
        *p = (outer_piece){*of, l->owner, codes, l->f->out + l->at};
        p->of.first += k, p->of.slab += (size_t)k, p->of.shard += (size_t)k, p->of.count = run;
        l->at += outer_bytes(x, p), x->pieces++;
    }
}

// Islands share out the chunks of a fragment in the order of the table, so that each adds up one range of a row at
// most. Ranks of a layer all have the rows that are not divided, and of these a chunk has the same owner on each of
// them: what a checkpoint has of it is read by the first, and goes to the others of its island.
static void fill_pieces(outer_room *x, const zero_layout *z, const model *net, int fragment) {
    listing l = {&x->fragment[fragment], x->pieces, 0, 0, elements_of(x, z, net, fragment)};
    int64_t before = 0;
    l.f->first[0] = x->pieces;
    for (int g = 0, i = 0; g < z->segments; g++)
        for (int row = z->segment[g].first; row < z->segment[g].first + z->segment[g].rows; row++) {
            bool in = is_in(x, net, row, fragment);
            extent e = extent_of(z, net, g, row);
            for (; i < z->owned && z->piece[i].row == row; i++)
                if (in)
                    cut_piece(x, &l, &z->piece[i], is_coded(x, &net->param[row]),
                              before + (int64_t)(z->piece[i].slab - e.from));
            if (in) before += (int64_t)(e.to - e.from);
        }
    while (l.owner < x->islands) l.f->first[++l.owner] = x->pieces, l.f->cut[l.owner] = l.at;
}

static int64_t longest(const outer_room *x) {
    int64_t most = 0;
    for (int i = 0; i < x->pieces; i++)
        if (x->piece[i].of.count > most) most = x->piece[i].of.count;
    return most;
}

static err_t declare_residuals(outer_room *x, const zero_layout *z, bool on_gpu, arena *memory, arena *host) {
    size_t end = 0;
    x->back_at = SIZE_MAX;
    for (const outer_piece *p = x->piece; p < x->piece + x->pieces; p++) {
        if (p->owner != x->island) continue;
        if (p->of.shard < x->back_at) x->back_at = p->of.shard;
        if (p->of.shard + (size_t)p->of.count > end) end = p->of.shard + (size_t)p->of.count;
    }
    if (!end) x->back_at = 0;
    int64_t all = (int64_t)z->shard_values, back = (int64_t)(end - x->back_at);
    if (all) TRY(arena_1d(memory, &x->residual, FP32, all));
    if (all && on_gpu) TRY(arena_1d(host, &x->residual_mirror, FP32, all));
    if (back) TRY(arena_1d(memory, &x->residual_back, FP32, back));
    return back && on_gpu ? arena_1d(host, &x->back_mirror, FP32, back) : ERR_OK;
}

static err_t declare_deltas(outer_room *x, const zero_layout *z, const model *net, const outer_options *o,
                            arena *memory, arena *host) {
    size_t out = 0, in = 0;
    TRY(allocate_pieces(x, z));
    for (int f = 0; f < x->count; f++) {
        x->fragment[f].out = out, x->fragment[f].in = in;
        fill_pieces(x, z, net, f);
        out += x->fragment[f].cut[x->islands];
        in += outer_part(&x->fragment[f], x->island) * (size_t)(x->islands - 1);
    }
    x->buffers = lane_counter_buffers(0, x->islands, true);
    if (x->buffers < 2) x->buffers = 2;  // a sum and its mean
    if (o->overlap) x->work = x->buffers, x->buffers += 2;
    if (out) TRY(arena_1d(memory, &x->out, UINT8, (int64_t)out));
    if (in) TRY(arena_1d(memory, &x->in, UINT8, (int64_t)in));
    if (out) TRY(arena_2d(memory, &x->sums, FP32, x->buffers, longest(x)));
    return x->codec == CODEC_NONE ? ERR_OK : declare_residuals(x, z, o->on_gpu, memory, host);
}

// --- fragments -------------------------------------------------------------------------------------------------------

// Where a pattern fits nothing, it is a mistake: of a name, or of the model.
static err_t check_patterns(const outer_room *x, const model *net) {
    for (int f = 0; f < x->count - 1; f++) {
        bool any = false;
        for (int i = 0; i < net->params && !any; i++) any = x->of_row[i] == f;
        if (any) continue;
        return err_set(
            ERR_CONFIG,
            "[outer] fragments: no tensor is left for the pattern %s: each belongs to the first that fits its "
            "name, such as %s, %s or %s; * stands for any part of a name",
            x->rules.of[f].pattern, net->param[0].name, net->param[net->params / 2].name,
            net->param[net->params - 1].name);
    }
    return ERR_OK;
}

static err_t find_fragments(outer_room *x, const model *net, const outer_options *o) {
    size_t n = (size_t)net->params;
    x->of_row = calloc(n, sizeof *x->of_row);
    x->mixed = calloc(n, sizeof *x->mixed);
    if (!x->of_row || !x->mixed) return err_set(ERR_INTERNAL, "no memory for the fragments of %zu tensors", n);
    TRY(fragments_parse(&x->rules, o->fragments ? o->fragments : "", o->every));
    x->count = x->rules.count;
    for (int i = 0; i < net->params; i++) {
        int of = net->param[i].tied >= 0 ? net->param[i].tied : i;
        x->of_row[i] = fragments_find(&x->rules, net->param[of].name);
    }
    return check_patterns(x, net);
}

// --- all -------------------------------------------------------------------------------------------------------------

err_t outer_room_open(outer_room *x, const zero_layout *z, const model *net, const outer_options *o, arena *memory,
                      arena *host) {
    const int64_t words = (int64_t)(sizeof(step_state) + 3) / 4;
    *x = (outer_room){
        .codec = o->codec, .islands = o->islands, .island = o->island, .deltas = o->apart || o->codec != CODEC_NONE};
    TRY(find_fragments(x, net, o));
    if (o->moments || o->apart || !x->deltas) TRY(declare_room(x, z, net, memory));  // apart: a mean is shown
    TRY(arena_1d(memory, &x->whole, INT32, words));
    TRY(arena_1d(memory, &x->step, INT32, words));
    if (o->overlap) TRY(arena_1d(memory, &x->give, INT32, words));
    return x->deltas ? declare_deltas(x, z, net, o, memory, host) : ERR_OK;
}

err_t outer_room_begin(outer_room *x, device *dev) {
    TRY(stream_open_queue(dev, &x->beside));
    TRY(event_open(dev, &x->left));
    for (int f = 0; f < x->count; f++) TRY(event_open(dev, &x->fragment[f].arrived));
    return ERR_OK;
}

void outer_room_close(outer_room *x) {
    if (x->beside) stream_close(x->beside);
    if (x->left) event_close(x->left);
    for (int f = 0; x->fragment && f < x->count; f++) {
        if (x->fragment[f].arrived) event_close(x->fragment[f].arrived);
        free(x->fragment[f].first), free(x->fragment[f].cut);
    }
    free(x->fragment), free(x->piece), free(x->of_row), free(x->mixed);
    *x = (outer_room){0};
}
