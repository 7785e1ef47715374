// trainer/step/frozen.c: see trainer/step/frozen.h.
#include "trainer/step/frozen.h"

#include "model/linear.h"

#include <stdlib.h>

enum { ROW_ALIGN = 128 };  // elements: rows start on 256 bytes or more, of codes on 128

static size_t aligned(size_t n) { return (n + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN; }

// A row that shares the values of another one needs a copy where the other one is not.
static int values_of(const model *net, const int *chunk, int row) {
    int of = net->param[row].tied;
    return of >= 0 && (!chunk || chunk[net->param[of].block] >= 0) ? of : row;
}

err_t frozen_open(frozen *f, const model *net, const zero_layout *z, const int *chunk, dtype type, arena *a) {
    size_t n = 0, codes = 0, most = 0;
    f->row_at = malloc((size_t)net->params * sizeof *f->row_at);
    if (!f->row_at) return err_set(ERR_INTERNAL, "no memory for a table of %d parameters", net->params);
    for (int i = 0; i < net->params; i++) {
        const param *p = &net->param[i];
        f->row_at[i] = ZERO_ELSEWHERE;
        if (!param_is_frozen(p) || (chunk && chunk[p->block] < 0)) continue;
        int of = values_of(net, chunk, i);
        f->row_at[i] = of == i ? (p->int8 ? codes : n) : f->row_at[of];
        if (of != i) continue;
        size_t room = (size_t)(param_slice_room(p) * zero_slices(z, p));
        if (p->int8) codes += aligned(linear_codes((int64_t)room)), most = room > most ? room : most;
        else n += aligned(room);
    }
    if (codes) TRY(arena_1d(a, &f->codes, UINT8, (int64_t)codes));
    if (most) TRY(arena_1d(a, &f->wide, type, (int64_t)most));
    return n ? arena_1d(a, &f->at, type, (int64_t)n) : ERR_OK;
}

void frozen_close(frozen *f) {
    free(f->row_at);
    *f = (frozen){0};
}
