// gpu/cpu/kernel/rotary.c: positions as angles by which pairs of elements are turned (Su et al. 2021).
#include "gpu/cpu/kernel/kernel.h"
#include "gpu/cpu/kernel/typed.h"

typedef struct rotary_job {
    dtype type;
    void *x;
    const float *table;     // (T,D)
    const int32_t *places;  // rows of the table; NULL: positions
    int64_t placed;         // so many of them, again and again
    int64_t rows, time, row, head, heads;
    bool back;
} rotary_job;

// Elements i .. i+n-1 of a head's two halves, which begin at x[at] and x[at + D/2].
BODY void turn_vector(dtype t, const rotary_job *j, const float *angle, int64_t at, int64_t i, int64_t n) {
    int64_t half = j->head / 2;
    vf a = typed_load_n(j->x, t, at + i, n), b = typed_load_n(j->x, t, at + half + i, n);
    vf c = typed_load_n(angle, FP32, i, n), s = typed_load_n(angle, FP32, half + i, n);
    if (j->back) s = vf_neg(s);
    typed_store_n(j->x, t, at + i, vf_fnma(b, s, vf_mul(a, c)), n);
    typed_store_n(j->x, t, at + half + i, vf_fma(a, s, vf_mul(b, c)), n);
}

BODY void turn_rows(dtype t, const rotary_job *j, int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
        int64_t place = j->places ? j->places[row % j->placed] : row % j->time;
        for (int64_t h = 0; h < j->heads; h++)
            EACH_VECTOR(0, j->head / 2, turn_vector, t, j, j->table + place * j->head, row * j->row + h * j->head);
    }
}

static void turn_item(void *ctx, int64_t item, int thread) {
    (void)thread;
    const rotary_job j = *(const rotary_job *)ctx;
    int64_t rows = rows_per_item(j.row), to = (item + 1) * rows;
    BY_TYPE(j.type, turn_rows, &j, item * rows, to < j.rows ? to : j.rows);
}

// moves: 2 * sizeof(E) bytes an element of the heads that are turned; memory bound
err_t KERNEL(rotary)(const rotary_args *args, stream *s) {
    rotary_job j = {.type = args->x->type,
                    .x = args->x->data,
                    .table = args->table->data,
                    .rows = args->x->size[0] * args->x->size[1],
                    .time = args->x->size[1],
                    .row = args->x->size[2],
                    .head = args->table->size[1],
                    .heads = args->heads,
                    .back = args->back};
    assert(args->x->dims == 3 && args->table->dims == 2 && args->table->type == FP32 && args->table->size[0] >= j.time);
    if (args->places) j.places = args->places->data, j.placed = tensor_count(args->places);
    assert(!j.places || (args->places->type == INT32 && j.rows % j.placed == 0));
    assert(j.head % 2 == 0 && j.row % j.head == 0 && j.heads >= 1 && j.heads * j.head <= j.row);
    int64_t per_item = rows_per_item(j.row);
    pool_run(s->workers, (j.rows + per_item - 1) / per_item, turn_item, &j);
    return ERR_OK;
}
