// test/support/save_beside.h: ckpt_save by way of a writer (trainer/checkpoint/writer.h). While it writes the state
// itself is scrambled, as steps that go on would do; afterwards it is as before.
#ifndef TEST_SUPPORT_SAVE_BESIDE_H
#define TEST_SUPPORT_SAVE_BESIDE_H

#include "base/io.h"
#include "trainer/checkpoint/writer.h"

#include <stdlib.h>
#include <string.h>

static inline size_t beside_values(const ckpt_state *s, float *to, bool back) {
    size_t n = 0;
    for (int g = 0; g < s->groups; g++)
        for (int i = 0; i < s->params; i++) {
            const ckpt_tensor *t = &s->group[g].tensor[i];
            size_t count = (size_t)t->count;
            if (to && count && back) memcpy(t->data, to + n, count * sizeof *to);
            if (to && count && !back)
                memcpy(to + n, t->data, count * sizeof *to), memset(t->data, 0xa5, count * sizeof *to);
            n += count;
        }
    return n;
}

static inline err_t save_beside(const char *dir, const ckpt_state *s, const run_progress *at, int keep,
                                fault_list *faults) {
    ckpt_writer *w;
    ckpt_written out;
    run_progress then = *at;
    err_record why = {0};
    float *values = malloc((beside_values(s, NULL, false) + 1) * sizeof *values);
    err_t rc = ckpt_writer_open(&w, dir, s, s->ranks, faults);
    if (rc == ERR_OK) {
        ckpt_writer_begin(w, s, &then);
        beside_values(s, values, false);
        memset(&then, 0xa5, sizeof then);
        rc = ckpt_writer_finish(w, &out);
        beside_values(s, values, true);
    }
    if (rc != ERR_OK) why = *err_last();
    ckpt_writer_close(w);
    free(values);
    if (rc != ERR_OK) return err_restore(&why);
    return ckpt_prune(dir, s, at, at->step, keep);
}

#endif
