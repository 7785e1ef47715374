// trainer/step/table_check.c: see trainer/step/table_check.h. The units are read in their order, with what was done so
// far of each (stage, micro-batch), and which unit is the last to read what each buffer has.
#include "trainer/step/table_check.h"

#include <stdlib.h>

typedef struct progress {  // of a (stage, micro-batch)
    bool forward, inputs;
    int last;  // the unit that reads its slot last
} progress;

typedef struct reader {
    const pipeline_layout *l;
    const unit_table *t;
    int rank, at;
    progress *of;     // [chunks * micros]
    int *slot_until;  // [slots] the last unit that reads it, of those that have it so far; -1: free from the start
    int *gradient_until;
} reader;

static progress *progress_of(const reader *k, int stage, int micro) {
    return &k->of[(size_t)(stage / k->l->ranks) * (size_t)k->l->micros + (size_t)micro];
}

static err_t waits_for(const reader *k, const char *what, const unit *other) {
    char one[UNIT_TEXT], two[UNIT_TEXT];
    return err_set(ERR_INTERNAL, "a pipeline's tables never end: rank %d waits in `%s` for %sits own later unit `%s`",
                   k->rank, unit_text(&k->t->unit[k->at], one), what, unit_text(other, two));
}

// What it needs of this rank's other units.
static err_t check_order(const reader *k, const unit *u) {
    const progress *own = progress_of(k, u->stage, u->micro);
    int before = u->kind == UNIT_FORWARD ? u->stage - 1 : u->stage + 1;
    bool here = before >= 0 && before < pipeline_stages(k->l) && pipeline_rank_of(k->l, before) == k->rank;
    const progress *other = here ? progress_of(k, before, u->micro) : NULL;
    unit need = {.kind = UNIT_FORWARD, .stage = u->stage, .micro = u->micro};
    if (u->kind == UNIT_WEIGHTS) {
        need.kind = UNIT_INPUTS;
        return own->inputs ? ERR_OK : waits_for(k, "", &need);
    }
    if (u->kind != UNIT_FORWARD && !own->forward) return waits_for(k, "", &need);
    need.kind = u->kind, need.stage = before;
    return !other || (u->kind == UNIT_FORWARD ? other->forward : other->inputs) ? ERR_OK : waits_for(k, "", &need);
}

// The unit fills a buffer, which unit `to` is the last to read.
static err_t fill(const reader *k, int *until, int to) {
    if (*until >= k->at) return waits_for(k, "a buffer that is free after ", &k->t->unit[*until]);
    *until = to;
    return ERR_OK;
}

// The same of a buffer that a message fills.
static err_t receive(const reader *k, const message *m, int *until, int to) {
    int freed = *until;
    char one[MESSAGE_TEXT], two[UNIT_TEXT];
    TRY(fill(k, until, to));
    if (m->after >= freed) return ERR_OK;
    return err_set(ERR_INTERNAL, "rank %d: `%s` is posted before its buffer is free, after `%s`", k->rank,
                   message_text(m, one), unit_text(&k->t->unit[freed], two));
}

static err_t check_buffers(const reader *k, const unit *u) {
    int last = progress_of(k, u->stage, u->micro)->last;
    const message *m = u->receive >= 0 ? &k->t->message[u->receive] : NULL;
    if (u->kind == UNIT_WEIGHTS) return ERR_OK;
    if (u->kind == UNIT_FORWARD) {
        int *slot = &k->slot_until[u->slot];
        return m ? receive(k, m, slot, last) : fill(k, slot, last);
    }
    if (m) TRY(receive(k, m, &k->gradient_until[u->gradient_in], last));
    if (u->gradient_out < 0 || u->send >= 0) return ERR_OK;
    return fill(k, &k->gradient_until[u->gradient_out], progress_of(k, u->stage - 1, u->micro)->last);
}

static err_t read_table(reader *k) {
    const unit_table *t = k->t;
    for (int b = 0; b < t->slots; b++) k->slot_until[b] = -1;
    for (int b = 0; b < t->gradients; b++) k->gradient_until[b] = -1;
    for (int i = 0; i < t->units; i++) {
        const unit *u = &t->unit[i];
        if (u->kind == UNIT_BACKWARD || u->kind == UNIT_WEIGHTS) progress_of(k, u->stage, u->micro)->last = i;
    }
    for (k->at = 0; k->at < t->units; k->at++) {
        const unit *u = &t->unit[k->at];
        progress *own = progress_of(k, u->stage, u->micro);
        TRY(check_order(k, u));
        TRY(check_buffers(k, u));
        own->forward |= u->kind == UNIT_FORWARD;
        own->inputs |= u->kind == UNIT_BACKWARD || u->kind == UNIT_INPUTS;
    }
    return ERR_OK;
}

err_t table_check(const pipeline_layout *l, int rank, const unit_table *t) {
    reader k = {.l = l, .t = t, .rank = rank};
    k.of = calloc((size_t)l->chunks * (size_t)l->micros + 1, sizeof *k.of);
    k.slot_until = calloc((size_t)t->slots + 1, sizeof *k.slot_until);
    k.gradient_until = calloc((size_t)t->gradients + 1, sizeof *k.gradient_until);
    bool whole = k.of && k.slot_until && k.gradient_until;
    err_t rc = whole ? read_table(&k) : err_set(ERR_INTERNAL, "no memory to check a table of %d units", t->units);
    free(k.of), free(k.slot_until), free(k.gradient_until);
    return rc;
}
