// gpu/cpu/kernel/embedding.c: rows of two tables, added. Backward turns a scatter, whose sums would depend on the order
// of the threads, into a gather: positions are sorted by token (a counting sort keeps their order), then every
// vocabulary row sums its own.
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

enum {
    WORDS = 64,     // vocabulary rows of an item in backward
    TIMES = 16,     // positions of an item in backward
    VECTORS = 4,    // vectors that are summed side by side, to hide the latency of an addition
    COLUMNS = 128,  // channels of an item in backward, so that one very frequent token does not keep one thread busy
};

typedef struct embed_job {
    dtype type;
    void *x;
    const int32_t *tokens, *places;
    const void *wte, *wpe;
    int64_t positions, length, width, vocabulary;
    bool part;
    int64_t first;
    float factor;
} embed_job;

BODY void embed_rows(dtype t, const embed_job *j, int64_t from, int64_t to) {
    for (int64_t p = from; p < to; p++) {
        int64_t token = j->tokens[p] - j->first;
        if (j->part && (token < 0 || token >= j->vocabulary)) {
            memset(typed_at_mut(j->x, t, p * j->width), 0, (size_t)j->width * dtype_bytes(t));
            continue;
        }
        assert(token >= 0 && token < j->vocabulary);
        int64_t at = j->places ? j->places[p] : p % j->length;
        const void *word = typed_at(j->wte, t, token * j->width),
                   *place = j->wpe ? typed_at(j->wpe, t, at * j->width) : NULL;
        void *x = typed_at_mut(j->x, t, p * j->width);
        for (int64_t i = 0; i < j->width; i += VL) {
            int64_t n = j->width - i;
            vf v = vf_mul(typed_load_n(word, t, i, n), vf_set1(j->factor));
            typed_store_n(x, t, i, place ? vf_add(v, typed_load_n(place, t, i, n)) : v, n);
        }
    }
}

static void embed_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const embed_job *j = ctx;
    int64_t rows = rows_per_item(j->width), from = item * rows,
            to = from + rows < j->positions ? from + rows : j->positions;
    BY_TYPE(j->type, embed_rows, j, from, to);
}

err_t KERNEL(embedding_forward)(const embedding_forward_args *args, stream *s) {
    const tensor *wpe = args->wpe;
    embed_job j = {args->x->type,
                   args->x->data,
                   args->tokens->data,
                   args->places ? args->places->data : NULL,
                   args->wte->data,
                   wpe ? wpe->data : NULL,
                   tensor_count(args->tokens),
                   args->tokens->size[1],
                   args->wte->size[1],
                   args->wte->size[0],
                   args->part,
                   args->part ? args->first : 0,
                   args->factor};
    assert(args->tokens->type == INT32 && args->tokens->dims == 2 && args->wte->type == args->x->type &&
           tensor_count(args->x) == j.positions * j.width && args->factor != 0);
    assert(!wpe || (wpe->type == args->x->type && wpe->size[1] == j.width && (wpe->size[0] >= j.length || j.places)));
    assert(!j.places || (wpe && args->places->type == INT32 && tensor_count(args->places) == j.positions));
    int64_t rows = rows_per_item(j.width);
    pool_run(s->workers, (j.positions + rows - 1) / rows, embed_item, &j);
    return ERR_OK;
}

// --- backward --------------------------------------------------------------------------------------------------------

typedef struct embed_back_job {
    dtype type;
    float *dwte, *dwpe;
    const int32_t *order, *end;  // positions sorted by token; token v has order[end[v-1] .. end[v])
    const void *dx;
    int64_t samples, length, width, vocabulary, column_items;
    float factor;
} embed_back_job;

// out[c ..] += factor * sum over k of dx[row(k)][c ..], `vectors` vectors, the last of n channels. row(k) is order[k],
// or k * stride + first: of positions, which have no factor.
BODY void sum_rows(dtype t, const embed_back_job *j, float *out, const int32_t *order, int64_t first, int64_t stride,
                   int64_t count, int64_t c, int vectors, int64_t n) {
    vf sum[VECTORS], factor = vf_set1(order ? j->factor : 1);
    for (int v = 0; v < vectors; v++) sum[v] = vf_zero();
    for (int64_t k = 0; k < count; k++) {
        int64_t row = order ? order[k] : first + k * stride;
        for (int v = 0; v < vectors; v++)
            sum[v] = vf_add(sum[v], typed_load_n(j->dx, t, row * j->width + c + v * VL, v == vectors - 1 ? n : VL));
    }
    for (int v = 0; v < vectors; v++) {
        int64_t at = c + v * VL, m = v == vectors - 1 ? n : VL;
        typed_store_n(out, FP32, at, vf_add(typed_load_n(out, FP32, at, m), vf_mul(factor, sum[v])), m);
    }
}

BODY void sum_columns(dtype t, const embed_back_job *j, float *out, const int32_t *order, int64_t first, int64_t stride,
                      int64_t count, int64_t from, int64_t to) {
    int64_t c = from;
    for (; c + VECTORS * VL <= to; c += VECTORS * VL) sum_rows(t, j, out, order, first, stride, count, c, VECTORS, VL);
    for (; c < to; c += VL) sum_rows(t, j, out, order, first, stride, count, c, 1, to - c);
}

BODY void words_block(dtype t, const embed_back_job *j, int64_t block, int64_t from, int64_t to) {
    int64_t last = (block + 1) * WORDS < j->vocabulary ? (block + 1) * WORDS : j->vocabulary;
    for (int64_t v = block * WORDS; v < last; v++) {
        int32_t begin = v ? j->end[v - 1] : 0, count = j->end[v] - begin;
        if (count) sum_columns(t, j, j->dwte + v * j->width, j->order + begin, 0, 0, count, from, to);
    }
}

BODY void times_block(dtype t, const embed_back_job *j, int64_t block, int64_t from, int64_t to) {
    int64_t last = (block + 1) * TIMES < j->length ? (block + 1) * TIMES : j->length;
    for (int64_t i = block * TIMES; i < last; i++)
        sum_columns(t, j, j->dwpe + i * j->width, NULL, i, j->length, j->samples, from, to);
}

static int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Items: first the vocabulary's blocks times the column chunks, then those of the positions.
static void embed_back_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const embed_back_job *j = ctx;
    int64_t block = item / j->column_items, from = item % j->column_items * COLUMNS;
    int64_t to = from + COLUMNS < j->width ? from + COLUMNS : j->width, words = blocks_of(j->vocabulary, WORDS);
    if (block < words) BY_TYPE(j->type, words_block, j, block, from, to);
    else BY_TYPE(j->type, times_block, j, block - words, from, to);
}

// Leaves order sorted by token, equal tokens in order of position, and end[v] the end of token v. end has vocabulary +
// 1 entries. Of a part of the vocabulary, its tokens.
static void sort_part(int32_t *order, int32_t *end, const int32_t *tokens, int64_t positions, int64_t vocabulary,
                      int64_t first) {
    memset(end, 0, (size_t)(vocabulary + 1) * sizeof *end);
    for (int64_t p = 0; p < positions; p++)
        if (tokens[p] >= first && tokens[p] - first < vocabulary) end[tokens[p] - first + 1]++;
    for (int64_t v = 0; v < vocabulary; v++) end[v + 1] += end[v];
    for (int64_t p = 0; p < positions; p++)
        if (tokens[p] >= first && tokens[p] - first < vocabulary) order[end[tokens[p] - first]++] = (int32_t)p;
}

static void sort_by_token(int32_t *order, int32_t *end, const int32_t *tokens, int64_t positions, int64_t vocabulary) {
    memset(end, 0, (size_t)(vocabulary + 1) * sizeof *end);
    for (int64_t p = 0; p < positions; p++) {
        assert(tokens[p] >= 0 && tokens[p] < vocabulary);
        end[tokens[p] + 1]++;
    }
    for (int64_t v = 0; v < vocabulary; v++) end[v + 1] += end[v];  // end[v] is now where v begins
    for (int64_t p = 0; p < positions; p++) order[end[tokens[p]]++] = (int32_t)p;
}

// Rows of positions are those of a vocabulary of places.
static void sum_places(embed_back_job *j, const embedding_backward_args *args, stream *s) {
    int64_t positions = j->samples * j->length, rows = args->dwpe->size[0];
    int32_t *order = args->scratch->data, *end = order + positions;
    assert(args->places->type == INT32 && tensor_count(args->places) == positions);
    assert(tensor_count(args->scratch) >= positions + rows + 1);
    sort_by_token(order, end, args->places->data, positions, rows);
    j->dwte = args->dwpe->data, j->vocabulary = rows, j->factor = 1;
    pool_run(s->workers, blocks_of(rows, WORDS) * j->column_items, embed_back_item, j);
}

// sums: each row from zero over its positions in order, then multiplied and added once; so bits depend on tokens alone
err_t KERNEL(embedding_backward)(const embedding_backward_args *args, stream *s) {
    int64_t samples = args->tokens->size[0], length = args->tokens->size[1], positions = samples * length;
    int64_t vocabulary = args->dwte->size[0], width = args->dwte->size[1];
    tensor *dwpe = args->dwpe;
    assert(args->tokens->type == INT32 && args->tokens->dims == 2 && args->dwte->type == FP32 &&
           positions <= INT32_MAX);
    assert(args->scratch->type == INT32 && tensor_count(args->scratch) >= positions + vocabulary + 1);
    assert(tensor_count(args->dx) == positions * width && args->factor != 0);
    assert(!dwpe || (dwpe->type == FP32 && dwpe->size[1] == width && (dwpe->size[0] >= length || args->places)));
    int32_t *order = args->scratch->data, *end = order + positions;
    if (args->fresh_wte) memset(args->dwte->data, 0, tensor_bytes(args->dwte));
    if (dwpe && args->fresh_wpe) memset(dwpe->data, 0, tensor_bytes(dwpe));
    if (args->part) sort_part(order, end, args->tokens->data, positions, vocabulary, args->first);
    else sort_by_token(order, end, args->tokens->data, positions, vocabulary);
    bool places = dwpe && args->places, times = dwpe && !places;
    embed_back_job j = {
        args->dx->type, args->dwte->data, dwpe ? dwpe->data : NULL,  order,       end, args->dx->data, samples, length,
        width,          vocabulary,       blocks_of(width, COLUMNS), args->factor};
    pool_run(s->workers, (blocks_of(vocabulary, WORDS) + (times ? blocks_of(length, TIMES) : 0)) * j.column_items,
             embed_back_item, &j);
    if (places) sum_places(&j, args, s);
    return ERR_OK;
}
