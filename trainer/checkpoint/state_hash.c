// trainer/checkpoint/state_hash.c: the hashes of a state that ranks share; see trainer/checkpoint/checkpoint.h. Nothing
// here allocates: hashing every step makes no heap calls in steady state.
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/parts.h"
#include "trainer/checkpoint/rows.h"

// Alone, the chunks' digests go straight into the group's. With several ranks, each digests its own chunks, and the
// digests are gathered in memory from ckpt_prepare.
static err_t hash_group(const ckpt_state *s, int g, uint8_t out[CKPT_DIGEST]) {
    const ckpt_tensor *t = s->group[g].tensor;
    if (ckpt_alone(s)) return group_digest(t, s->params, out);
    if (!s->work) return err_set(ERR_INTERNAL, "a state of %d ranks is hashed before ckpt_prepare", s->ranks->world);
    s->work->of = s;
    TRY(work_digest(s->work, g, t));
    TRY(work_gather(s->work, g));
    work_group_digest(s->work, t, out);
    return ERR_OK;
}

// Of their values and their sums.
static err_t hash_rows(const ckpt_state *s, uint8_t out[2][CKPT_DIGEST]) {
    TRY(ckpt_rows_digest(s));
    rows_table_digest(s->row_digests, s->rows_name, row_table_about(s->rows)->width, out);
    return ERR_OK;
}

err_t ckpt_hash(const ckpt_state *s, char hash[17]) {
    uint8_t masters[CKPT_DIGEST], rows[2][CKPT_DIGEST];
    hash[0] = 0;
    TRY(hash_group(s, GROUP_MASTER, masters));
    if (s->rows) TRY(hash_rows(s, rows));
    if (s->rows) rows_hash(masters, rows[ROWS_VALUES], masters);
    digest_hex(hash, masters, 8);
    return ERR_OK;
}

err_t ckpt_state_hash(const ckpt_state *s, const run_progress *at, char hash[17]) {
    uint8_t group[CKPT_DIGEST], state[CKPT_DIGEST], rows[2][CKPT_DIGEST];
    state_digest d;
    hash[0] = 0;
    state_digest_begin(&d);
    for (int g = 0; g < s->groups; g++) {
        TRY(hash_group(s, g, group));
        state_digest_put(&d, group);
    }
    if (s->rows) TRY(hash_rows(s, rows));
    for (int k = 0; s->rows && k < 2; k++) state_digest_put(&d, rows[k]);
    for (int k = 0; k < s->scalars; k++) state_digest_scalar(&d, s->scalar[k].name, *s->scalar[k].value);
    state_digest_end(&d, at, state);
    digest_hex(hash, state, 8);
    return ERR_OK;
}
