// trainer/checkpoint/state_hash.c: the hashes of a state that ranks share; see trainer/checkpoint/checkpoint.h. Nothing
// here allocates: hashing every step makes no heap calls in steady state.
#include "trainer/checkpoint/digest.h"
#include "trainer/checkpoint/parts.h"

// Alone, the chunks' digests go straight into the group's. With several ranks, each digests its own chunks, and the
// digests are gathered in memory from ckpt_prepare.
static err_t hash_group(const ckpt_state *s, int g, const ckpt_tensor *t, uint8_t out[CKPT_DIGEST]) {
    if (ckpt_alone(s) || !t) {
        group_digest(t, t ? s->params : 0, out);
        return ERR_OK;
    }
    if (!s->work) return err_set(ERR_INTERNAL, "a state of %d ranks is hashed before ckpt_prepare", s->ranks->world);
    s->work->of = s;
    work_digest(s->work, g, t);
    TRY(work_gather(s->work, g));
    work_group_digest(s->work, t, out);
    return ERR_OK;
}

err_t ckpt_hash(const ckpt_state *s, char hash[17]) {
    uint8_t masters[CKPT_DIGEST];
    hash[0] = 0;
    TRY(hash_group(s, 0, s->master, masters));
    digest_hex(hash, masters, 8);
    return ERR_OK;
}

err_t ckpt_state_hash(const ckpt_state *s, char hash[17]) {
    uint8_t group[3][CKPT_DIGEST], state[CKPT_DIGEST];
    hash[0] = 0;
    TRY(hash_group(s, 0, s->master, group[0]));
    TRY(hash_group(s, 1, s->m, group[1]));
    TRY(hash_group(s, 2, s->v, group[2]));
    state_digest(group, &s->at, state);
    digest_hex(hash, state, 8);
    return ERR_OK;
}
