// trainer/step/frozen_values.c: see trainer/step/frozen_values.h. The hash is a sum, modulo 2^64, of a number for each
// CHUNK elements of a slice, which is the beginning of the BLAKE2b-256 of name, place and FP32 values. So it does not
// depend on which ranks hold what.
#include "trainer/step/frozen_values.h"

#include "trainer/step/state_read.h"

#include <float.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    train_state *t;
    values from;
    device *dev;  // a CPU
    stream *s;
    float *x;
    void *y;        // in the compute type, or codes
    float *scale;   // of codes
    uint64_t sum;   // of the chunks that this rank counts
    int64_t chunk;  // their number so far
} reading;

// Ranks that hold the same take turns.
static bool counts(const reading *r, const param *p, int64_t chunk) {
    const train_state *t = r->t;
    if (t->o.islands && t->o.islands->rank > 0) return false;
    if (param_slices(p) == 1 && t->o.tensor && t->o.tensor->rank > 0) return false;
    return chunk % t->ranks->world == t->ranks->rank;
}

static void count_chunk(reading *r, const param *p, const zero_piece *of) {
    crypto_generichash_state h;
    uint8_t out[crypto_generichash_BYTES];
    uint64_t word = 0;
    int64_t place[] = {of->slice, of->first, of->count};
    if (!counts(r, p, r->chunk++)) return;
    crypto_generichash_init(&h, NULL, 0, sizeof out);
    crypto_generichash_update(&h, (const uint8_t *)p->name, strlen(p->name) + 1);
    crypto_generichash_update(&h, (const uint8_t *)place, sizeof place);
    crypto_generichash_update(&h, (const uint8_t *)r->x, (size_t)of->count * sizeof *r->x);
    crypto_generichash_final(&h, out, sizeof out);
    for (int i = 0; i < 8; i++) word = word << 8 | out[i];
    r->sum += word;
}

// x[n] as codes, and the scale of each WIDEN_GROUP of them: the largest of a group is 127 or -127, the others are to
// nearest even. A group of what is too small has the scale 0.
static err_t code(const float *x, int64_t n, int8_t *code, float *scale) {
    for (int64_t g = 0; g < n / WIDEN_GROUP; g++, x += WIDEN_GROUP, code += WIDEN_GROUP) {
        float most = 0, whole = 0x1.8p23f;  // a sum with it is rounded to an integer
        for (int i = 0; i < WIDEN_GROUP; i++) most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
        float by = most < CODEC_LEAST ? 0 : 127 / most;
        scale[g] = most < CODEC_LEAST ? 0 : most / 127;
        for (int i = 0; i < WIDEN_GROUP; i++) {
            if (!(__builtin_fabsf(x[i]) <= FLT_MAX)) return err_set(ERR_DATA, "%g is no weight", (double)x[i]);
            code[i] = (int8_t)(x[i] * by + whole - whole);
        }
    }
    return ERR_OK;
}

// The same in 8 bits. A piece is of whole groups.
static err_t put_codes(reading *r, const zero_piece *of) {
    train_state *t = r->t;
    const param *p = &t->net->param[of->row];
    int64_t room = param_slice_room(p), first = (of->slice - zero_first(&t->zero, p)) * room + of->first;
    char *row = (char *)t->frozen.codes.data + t->frozen.row_at[of->row],
         *scales = row + room * zero_slices(&t->zero, p);
    if (code(r->x, of->count, r->y, r->scale) != ERR_OK) return err_prefix("%s", p->name);
    TRY(stream_copy(t->s, row + first, r->y, (size_t)of->count));
    TRY(stream_copy(t->s, scales + first / WIDEN_GROUP * 4, r->scale, (size_t)(of->count / WIDEN_GROUP * 4)));
    return stream_wait(t->s);
}

// Some of a slice, which is in r->x, to its place.
static err_t put(reading *r, const zero_piece *of) {
    train_state *t = r->t;
    const param *p = &t->net->param[of->row];
    size_t at =
        t->frozen.row_at[of->row] + (size_t)((of->slice - zero_first(&t->zero, p)) * param_slice_room(p) + of->first);
    tensor from = state_flat(r->x, FP32, of->count), to = state_flat(r->y, t->o.compute, of->count);
    TRY(device_ops(r->dev)->cast(&(cast_args){.y = &to, .x = &from}, r->s));
    TRY(stream_wait(r->s));
    TRY(stream_copy(t->s, state_at(&t->frozen.at, at), r->y, tensor_bytes(&to)));
    return stream_wait(t->s);
}

// A row that shares the values of another one has theirs, under its own name: only the other one is counted.
static err_t read_slice(reading *r, int row, int slice) {
    const param *p = &r->t->net->param[row];
    int64_t n = param_slice_count(p, slice);
    for (int64_t k = 0; k < n; k += CHUNK) {
        zero_piece of = {.row = row, .slice = slice, .first = k, .count = n - k < CHUNK ? n - k : CHUNK}, source = of;
        if (p->tied >= 0) source.row = p->tied;
        TRY(state_read_piece(r->t, &source, &r->from, r->x));
        if (p->tied < 0) count_chunk(r, p, &of);
        TRY(p->int8 ? put_codes(r, &of) : put(r, &of));
    }
    return ERR_OK;
}

static err_t read_rows(reading *r) {
    train_state *t = r->t;
    for (int i = 0; i < t->net->params; i++) {
        const param *p = &t->net->param[i];
        if (!frozen_has(&t->frozen, i) || (p->tied >= 0 && frozen_has(&t->frozen, p->tied))) continue;
        for (int c = 0; c < zero_slices(&t->zero, p); c++) TRY(read_slice(r, i, zero_first(&t->zero, p) + c));
    }
    return ERR_OK;
}

static err_t read_all(reading *r) {
    r->x = malloc(CHUNK * sizeof *r->x);
    r->y = malloc(CHUNK * sizeof *r->x);
    r->scale = malloc(CHUNK / WIDEN_GROUP * sizeof *r->scale);
    if (!r->x || !r->y || !r->scale) return err_set(ERR_INTERNAL, "no memory to read %d numbers at a time", CHUNK);
    TRY(device_open(&r->dev, &(device_options){.kind = DEVICE_CPU, .threads = 1}));
    TRY(stream_open(r->dev, &r->s));
    return read_rows(r);
}

// Of all ranks: in parts of 16 bits, whose sums are exact.
static err_t add_up(const train_state *t, uint64_t *sum) {
    double part[4];
    comm *host = t->all->host;
    if (t->all->world == 1) return ERR_OK;
    for (int i = 0; i < 4; i++) part[i] = (double)(*sum >> 16 * i & 0xFFFF);
    host->phase = (comm_phase){"hash the frozen weights", -1, -1};
    TRY(host->table->all_reduce(host, part, 4, FP64, REDUCE_SUM, t->s));
    TRY(stream_wait(t->s));
    *sum = 0;
    for (int i = 0; i < 4; i++) *sum += (uint64_t)part[i] << 16 * i;
    return ERR_OK;
}

static err_t read_from(reading *r, const char *path, const void *options, unsigned lenient) {
    weights *w = NULL;
    weights_map *map = NULL;
    err_t rc = path ? weights_open(&w, path) : ERR_OK;
    if (rc == ERR_OK && path) rc = weights_match(&map, w, r->t->net, options, lenient);
    r->from.map = map;
    if (rc == ERR_OK) rc = read_all(r);
    weights_map_close(map);
    if (w) weights_close(w);
    if (r->s) stream_close(r->s);
    if (r->dev) device_close(r->dev);
    free(r->x), free(r->y), free(r->scale);
    return rc;
}

err_t frozen_read(train_state *t, const char *path, const void *options, unsigned lenient, uint64_t seed) {
    reading r = {.t = t, .from.seed = seed};
    TRY(comm_agree_ok(t->all, read_from(&r, path, options, lenient), t->s));  // the files are each node's own
    TRY(add_up(t, &r.sum));
    snprintf(t->frozen.hash, sizeof t->frozen.hash, "%016" PRIx64, r.sum);
    return ERR_OK;
}
