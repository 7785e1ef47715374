// trainer/step/stages.c: see trainer/step/stages.h.
#include "trainer/step/stages.h"

#include "trainer/config/pipes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- where the model is cut ------------------------------------------------------------------------------------------

// Are `count` stages enough, if each has at most this much work and at least one block? Filled from the last block on,
// so that later stages are full.
static bool fits(const double *work, int blocks, int count, double most, int *cut) {
    int end = blocks;
    for (int s = count - 1; s >= 0; s--) {
        double sum = 0;
        int first = end;
        cut[s + 1] = end;
        while (first > s && (first == end || sum + work[first - 1] <= most)) sum += work[--first];
        if (sum > most) return false;
        end = first;
    }
    cut[0] = 0;
    return end == 0;
}

void stages_cut(const double *work, int blocks, int count, int *cut) {
    double best = -1;
    for (int first = 0; first < blocks; first++) {
        double sum = 0;
        for (int last = first; last < blocks; last++) {  // the largest stage is some range of blocks
            sum += work[last];
            if ((best < 0 || sum < best) && fits(work, blocks, count, sum, cut)) best = sum;
        }
    }
    fits(work, blocks, count, best, cut);
}

void stages_balance(const model *net, int count, int *cut) {
    double work[net->blocks + 1];
    work[0] = 0;
    for (int b = 0; b < net->blocks; b++) work[b] = net->block[b].flops;
    stages_cut(work, net->blocks, count, cut);
}

// Settings were checked for this already (trainer/config/layout.c).
static err_t cut_blocks(stages *x, const model *net, const char *cuts) {
    if (x->count > net->blocks)
        return err_set(ERR_CONFIG, "%d stages, and the model has only %d blocks", x->count, net->blocks);
    if (!cuts || !*cuts) return stages_balance(net, x->count, x->cut), ERR_OK;
    if (pipe_cuts(cuts, x->count, net->blocks, x->cut)) return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "[parallel] stages = %s: expected %d numbers of blocks, 1 or more each, that add up to the model's %d blocks",
        cuts, x->count, net->blocks);
}

static void find_chunks(stages *x, const model *net) {
    for (int b = 0; b < net->blocks; b++) x->chunk[b] = -1;
    for (int c = 0; c < x->pipe.chunks; c++)
        for (int b = x->cut[stages_of(x, c)]; b < x->cut[stages_of(x, c) + 1]; b++) x->chunk[b] = c;
}

// --- slots -----------------------------------------------------------------------------------------------------------

// The slots of each stage, which follow each other in the table, are numbered from 0.
static void number_slots(stages *x) {
    unit_table *t = &x->table;
    for (int c = 0; c < x->pipe.chunks; c++) {
        int stage = stages_of(x, c), lowest = t->slots, highest = -1;
        for (int i = 0; i < t->units; i++) {
            if (t->unit[i].stage != stage) continue;
            lowest = t->unit[i].slot < lowest ? t->unit[i].slot : lowest;
            highest = t->unit[i].slot > highest ? t->unit[i].slot : highest;
        }
        for (int i = 0; i < t->units; i++)
            if (t->unit[i].stage == stage) t->unit[i].slot -= lowest;
        for (int b = x->cut[stage]; b < x->cut[stage + 1]; b++) x->slots[b] = highest - lowest + 1;
    }
    for (int i = 0; i < t->messages; i++)
        if (t->message[i].kind == MESSAGE_ACTIVATIONS) t->message[i].buffer = t->unit[t->message[i].unit].slot;
}

// A micro-batch's inputs are here from its first unit to its last; where they come ahead, while the one before is
// computed, too.
static err_t number_inputs(stages *x) {
    const unit_table *t = &x->table;
    if (x->ahead) {
        for (int i = 0; i < x->pipe.micros; i++) x->input_slot[i] = i % 2, x->input_slots = i ? 2 : 1;
        return ERR_OK;
    }
    int m = x->pipe.micros, *left = calloc((size_t)m + 1, sizeof *left), *at = malloc((size_t)(m + 1) * sizeof *at);
    if (!left || !at) return free(left), free(at), err_set(ERR_INTERNAL, "no memory for %d micro-batches", m);
    for (int i = 0; i < t->units; i++) left[t->unit[i].micro]++;
    for (int i = 0; i < m; i++) x->input_slot[i] = at[i] = -1;  // at: which micro-batch has a slot
    for (int i = 0; i < t->units; i++) {
        int k = t->unit[i].micro;
        if (x->input_slot[k] < 0) {
            int p = 0;
            while (p < x->input_slots && at[p] >= 0) p++;
            if (p == x->input_slots) x->input_slots++;
            x->input_slot[k] = p, at[p] = k;
        }
        if (--left[k] == 0) at[x->input_slot[k]] = -1;
    }
    free(left), free(at);
    return ERR_OK;
}

// --- opening ---------------------------------------------------------------------------------------------------------

// One rank is a pipeline of one stage, which has all blocks, whatever the settings say about stages. It runs each
// micro-batch forward and backward before the next one.
err_t stages_open(stages *x, const model *net, const stage_options *o) {
    bool alone = o->ranks == 1;
    *x = (stages){.pipe = {.kind = alone ? PIPELINE_1F1B : o->kind,
                           .ranks = o->ranks,
                           .micros = (int)o->micros,
                           .chunks = o->chunks},
                  .rank = o->rank,
                  .ahead = alone && net->table.width > 0};
    TRY(pipeline_check(&x->pipe));
    x->count = pipeline_stages(&x->pipe);
    x->cut = calloc((size_t)x->count + 1, sizeof *x->cut);
    x->slots = calloc((size_t)net->blocks, sizeof *x->slots);
    x->input_slot = calloc((size_t)o->micros + 1, sizeof *x->input_slot);
    x->chunk = alone ? NULL : calloc((size_t)net->blocks, sizeof *x->chunk);
    if (!x->cut || !x->slots || !x->input_slot || (!alone && !x->chunk))
        return err_set(ERR_INTERNAL, "no memory for %d stages", x->count);
    TRY(cut_blocks(x, net, alone ? NULL : o->cuts));
    if (!alone) find_chunks(x, net);
    TRY(pipeline_units(&x->pipe, o->rank, &x->table));
    number_slots(x);
    return number_inputs(x);
}

err_t stages_deal(stages *x, int64_t micros) {
    stages next = *x;
    next.pipe.micros = (int)micros, next.table = (unit_table){0}, next.input_slots = 0;
    next.input_slot = calloc((size_t)micros + 1, sizeof *next.input_slot);
    err_t rc = next.input_slot ? pipeline_units(&next.pipe, next.rank, &next.table)
                               : err_set(ERR_INTERNAL, "no memory for %" PRId64 " micro-batches", micros);
    if (rc == ERR_OK) number_slots(&next), rc = number_inputs(&next);
    stages *old = rc == ERR_OK ? x : &next;
    unit_table_free(&old->table);
    free(old->input_slot);
    if (rc == ERR_OK) *x = next;
    return rc;
}

void stages_close(stages *x) {
    unit_table_free(&x->table);
    free(x->cut), free(x->chunk), free(x->slots), free(x->input_slot);
    *x = (stages){0};
}
