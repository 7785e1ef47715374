// gpu/cpu/kernel/pixels.c: bytes of pictures become the numbers that a model reads.
#include "gpu/cpu/kernel/bytes.h"
#include "gpu/cpu/kernel/kernel.h"

#include <inttypes.h>

typedef struct pixels_job {
    dtype type;
    void *y;
    const uint8_t *x;
    int64_t rows, channels, width;  // width: channels of y
    const float *mean, *inv;        // (channels + VL), repeated: what vectors that begin with any channel need
} pixels_job;

BODY void together(dtype t, const pixels_job *j, int64_t i, int64_t n) {
    const int64_t c = i % j->channels;
    vf x = vf_sub(bytes_load_n(j->x + i, n), vf_load(j->mean + c));
    typed_store_n(j->y, t, i, vf_mul(x, vf_load(j->inv + c)), n);
}

BODY void pixels_slice(dtype t, const pixels_job *j, int64_t from, int64_t to) {
    if (j->width == j->channels) {
        EACH_VECTOR(from * j->width, to * j->width, together, t, j);
        return;
    }
    for (int64_t m = from; m < to; m++)
        for (int64_t i = 0; i < j->width; i += VL) {
            const int64_t n = j->channels - i < VL ? j->channels - i : VL;
            vf x = vf_zero();
            if (n > 0) {
                x = vf_sub(bytes_load_n(j->x + m * j->channels + i, n), typed_load_n(j->mean, FP32, i, n));
                x = vf_mul(x, typed_load_n(j->inv, FP32, i, n));
            }
            typed_store_n(j->y, t, m * j->width + i, x, j->width - i);
        }
}

static void pixels_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const pixels_job j = *(const pixels_job *)ctx;
    int64_t rows = rows_per_item(j.width), from = item * rows, to = from + rows < j.rows ? from + rows : j.rows;
    BY_TYPE(j.type, pixels_slice, &j, from, to);
}

// alias: none.  moves: a byte and sizeof(E) bytes an element
err_t KERNEL(pixels)(const pixels_args *args, stream *s) {
    const int64_t C = tensor_count(args->mean), width = args->y->size[args->y->dims - 1], rows = rows_per_item(width);
    float *repeated = pool_shared(s->workers, (size_t)(2 * (C + VL)) * sizeof *repeated);
    if (!repeated) return err_set(ERR_INTERNAL, "pixels of %" PRId64 " channels: no memory for their means", C);
    assert(args->x->type == UINT8 && args->x->size[args->x->dims - 1] == C && width >= C);
    assert(args->mean->type == FP32 && args->inv->type == FP32 && tensor_count(args->inv) == C);
    assert(tensor_count(args->x) / C == tensor_count(args->y) / width);
    for (int64_t i = 0; i < C + VL; i++) {
        repeated[i] = ((const float *)args->mean->data)[i % C];
        repeated[C + VL + i] = ((const float *)args->inv->data)[i % C];
    }
    pixels_job j = {.type = args->y->type,
                    .y = args->y->data,
                    .x = args->x->data,
                    .rows = tensor_count(args->x) / C,
                    .channels = C,
                    .width = width,
                    .mean = repeated,
                    .inv = repeated + C + VL};
    pool_run(s->workers, (j.rows + rows - 1) / rows, pixels_item, &j);
    return ERR_OK;
}
