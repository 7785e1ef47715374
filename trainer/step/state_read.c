// trainer/step/state_read.c: see trainer/step/state_read.h.
#include "trainer/step/state_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Elements first .. first+count-1 in row-major order.
static err_t read_logical(const train_state *t, int row, const values *from, int64_t first, int64_t count, float *dst) {
    if (from->map) return weights_read(from->map, row, first, count, from->seed, dst);
    model_init(t->net, row, from->seed, first, count, dst);
    return ERR_OK;
}

// A piece of a row whose columns are divided, from files: whole rows are read, a few at a time, and a part of each is
// taken.
static err_t read_columns(const train_state *t, const zero_piece *p, const values *from, float *dst) {
    enum { SOME = 1 << 20 };
    const param *row = &t->net->param[p->row];
    int64_t cols = row->size[1], width = cols / row->slices, end = p->first + p->count;
    int64_t rows = SOME / cols > 0 ? SOME / cols : 1;
    float *some = malloc((size_t)(rows * cols) * sizeof *some);
    err_t rc = some ? ERR_OK : err_set(ERR_INTERNAL, "no memory for %" PRId64 " rows of %s", rows, row->name);
    for (int64_t r = p->first / width; r * width < end && rc == ERR_OK; r += rows) {
        int64_t n = (end + width - 1) / width - r < rows ? (end + width - 1) / width - r : rows;
        rc = read_logical(t, p->row, from, r * cols, n * cols, some);
        for (int64_t k = 0; k < n && rc == ERR_OK; k++) {
            int64_t at = (r + k) * width, skip = at < p->first ? p->first - at : 0,
                    stop = at + width < end ? width : end - at;
            memcpy(dst + (at + skip - p->first), some + k * cols + p->slice * width + skip,
                   (size_t)(stop - skip) * sizeof *dst);
        }
    }
    free(some);
    return rc;
}

err_t state_read_piece(const train_state *t, const zero_piece *p, const values *from, float *dst) {
    const param *row = &t->net->param[p->row];
    if (from->map && param_slices(row) > 1 && row->axis == 1) return read_columns(t, p, from, dst);
    const ckpt_order o = state_order(t, p->row);
    for (int64_t k = 0, run; k < p->count; k += run) {
        int64_t first = order_logical(&o, p->slice * param_slice_room(row) + p->first + k, &run);
        if (run > p->count - k) run = p->count - k;
        TRY(read_logical(t, p->row, from, first, run, dst + k));
    }
    return ERR_OK;
}
