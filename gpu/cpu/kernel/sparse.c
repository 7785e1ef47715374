// gpu/cpu/kernel/sparse.c: the largest elements of each chunk of what has gathered. Sizes are compared as the integers
// that their bits are, and digits of these are counted, the highest first (a radix select), so which elements are sent
// follows from the values alone, and every width has the same bits.
#include "gpu/cpu/kernel/bytes.h"
#include "gpu/cpu/kernel/kernel.h"

#include <math.h>

enum { DIGITS = 3, DIGIT_VALUES = 1 << 11 };
static const int digit_shift[DIGITS] = {20, 10, 0}, digit_bits[DIGITS] = {11, 10, 10};  // of 31 bits

typedef struct sparse_job {
    float *value;
    uint16_t *index;
    float *velocity, *residual;
    const float *x;
    int64_t count, kept;
    float momentum, by, back;  // the loss scale, and 1 / that, clipped
    bool nesterov;
} sparse_job;

typedef struct moved {
    vf velocity, residual;
} moved;

BODY moved move_on(const sparse_job *j, int64_t i, int64_t n) {
    vf g = vf_mul(typed_load_n(j->x, FP32, i, n), vf_set1(j->back)), momentum = vf_set1(j->momentum);
    vf u = vf_add(vf_mul(momentum, typed_load_n(j->velocity, FP32, i, n)), g);
    vf d = j->nesterov ? vf_add(g, vf_mul(momentum, u)) : u;
    return (moved){u, vf_add(typed_load_n(j->residual, FP32, i, n), d)};
}

BODY vi sizes_of(vf v) { return vi_and(vf_bits(v), vi_set1(0x7fffffff)); }

// Which elements a chunk sends: those above `least`, and the first `ties` of those equal to it.
typedef struct chosen {
    uint32_t least;
    int64_t ties;
} chosen;

// Elements that begin as `above` does, by their next digit; `most` is the largest size of all.
BODY void count_digit(const sparse_job *j, int digit, uint32_t above, int32_t *counts, uint32_t *most, int64_t i,
                      int64_t n) {
    int32_t size[VL];
    int end = digit_shift[digit] + digit_bits[digit];  // where the digits above begin
    uint32_t mask = (1u << digit_bits[digit]) - 1;
    vi_store(size, sizes_of(move_on(j, i, n).residual));
    for (int64_t k = 0; k < n; k++) {
        uint32_t is = (uint32_t)size[k];
        if (is > *most) *most = is;
        if (is >> end == above >> end) counts[is >> digit_shift[digit] & mask]++;
    }
}

// Finds the k-th largest of a chunk, a digit at a time. False: something is not finite, or is not once it is scaled.
BODY bool choose(const sparse_job *j, int64_t from, int64_t to, int64_t k, chosen *out) {
    *out = (chosen){0, k};
    for (int digit = 0; digit < DIGITS; digit++) {
        int32_t counts[DIGIT_VALUES] = {0};
        uint32_t most = 0;
        EACH_VECTOR(from, to, count_digit, j, digit, out->least, counts, &most);
        float largest;
        memcpy(&largest, &most, sizeof largest);
        if (!isfinite(largest * j->by)) return false;
        int at = (1 << digit_bits[digit]) - 1;
        for (; counts[at] < out->ties; at--) out->ties -= counts[at];
        out->least |= (uint32_t)at << digit_shift[digit];
    }
    return true;
}

typedef struct sent {
    float *value;
    uint16_t *index;
    int64_t from, ties;  // where the chunk begins; how many more of the least go
} sent;

BODY void send_largest(const sparse_job *j, uint32_t least, sent *to, int64_t i, int64_t n) {
    moved m = move_on(j, i, n);
    int32_t size[VL];
    float velocity[VL], residual[VL];
    vi_store(size, sizes_of(m.residual));
    vf_store(velocity, m.velocity), vf_store(residual, m.residual);
    for (int64_t k = 0; k < n; k++) {
        uint32_t is = (uint32_t)size[k];
        bool goes = is > least || (is == least && to->ties > 0);
        if (is == least) to->ties--;
        if (goes) *to->value++ = residual[k] * j->by, *to->index++ = (uint16_t)(i + k - to->from);
        j->velocity[i + k] = goes ? 0.0f : velocity[k];
        j->residual[i + k] = goes ? 0.0f : residual[k];
    }
}

static void encode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const sparse_job j = *(const sparse_job *)ctx;
    int64_t from = item * CHUNK, to = from + CHUNK < j.count ? from + CHUNK : j.count;
    int64_t k = sparse_of_chunk(to - from, j.kept);
    sent out = {j.value + item * j.kept, j.index + item * j.kept, from, 0};
    chosen which;
    if (choose(&j, from, to, k, &which)) {
        out.ties = which.ties;
        EACH_VECTOR(from, to, send_largest, &j, which.least, &out);
    } else {
        for (int64_t i = 0; i < k; i++) out.value[i] = NAN, out.index[i] = (uint16_t)i;
    }
}

// What fills up values and indices.
static void write_ends(char *wire, int64_t n, int64_t kept) {
    size_t values = sparse_values(n, kept), count = (size_t)sparse_kept(n, kept), indices = values + count * 2;
    memset(wire + count * 4, 0, values - count * 4);
    memset(wire + indices, 0, sparse_bytes(n, kept) - indices);
}

// moves: 20 bytes an element, which are read three times more from a cache, and 6 for each that is sent
err_t KERNEL(encode_sparse)(const encode_sparse_args *args, stream *s) {
    int64_t n = tensor_count(args->x);
    assert(args->x->type == FP32 && args->velocity->type == FP32 && args->residual->type == FP32);
    assert(tensor_count(args->velocity) == n && tensor_count(args->residual) == n);
    assert(args->kept >= 1 && args->kept <= CHUNK);
    assert((size_t)tensor_count(args->wire) == sparse_bytes(n, args->kept));
    char *wire = args->wire->data;
    float by = args->state ? args->state->loss_scale : 1.0f;
    sparse_job j = {.value = (float *)wire,
                    .index = (uint16_t *)(wire + sparse_values(n, args->kept)),
                    .velocity = args->velocity->data,
                    .residual = args->residual->data,
                    .x = args->x->data,
                    .count = n,
                    .kept = args->kept,
                    .momentum = args->momentum,
                    .by = by,
                    .back = args->clip ? args->clip->grad_factor : 1.0f / by,
                    .nesterov = args->nesterov};
    write_ends(wire, n, args->kept);
    pool_run(s->workers, (n + CHUNK - 1) / CHUNK, encode_item, &j);
    return ERR_OK;
}

typedef struct add_job {
    float *y;
    const float *value;
    const uint16_t *index;
    int64_t count, kept;
} add_job;

static void decode_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const add_job *j = ctx;
    int64_t from = item * CHUNK, n = from + CHUNK < j->count ? CHUNK : j->count - from;
    int64_t first = item * j->kept, k = sparse_of_chunk(n, j->kept);
    for (int64_t i = first; i < first + k; i++)
        if (j->index[i] < n) j->y[from + j->index[i]] += j->value[i];
}

// moves: 8 bytes for each element that was sent, and the wire
err_t KERNEL(decode_sparse)(const decode_sparse_args *args, stream *s) {
    int64_t n = tensor_count(args->y);
    assert(args->y->type == FP32 && args->kept >= 1 && args->kept <= CHUNK);
    assert((size_t)tensor_count(args->wire) == sparse_bytes(n, args->kept));
    const char *wire = args->wire->data;
    add_job j = {.y = args->y->data,
                 .value = (const float *)wire,
                 .index = (const uint16_t *)(wire + sparse_values(n, args->kept)),
                 .count = n,
                 .kept = args->kept};
    pool_run(s->workers, (n + CHUNK - 1) / CHUNK, decode_item, &j);
    return ERR_OK;
}
