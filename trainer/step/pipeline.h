// trainer/step/pipeline.h: pipeline schedules as data. A model is cut into stages, each rank has one or more of them,
// and a step's micro-batches pass through all. The order in which a rank works is a table of units, a pure function of
// the layout and the rank. So are the buffers that the units use and the messages between them. The executor runs the
// tables, trainer/step/timeline.h runs them on paper, tests read them.
//
// Three laws hold for every schedule:
// - Each (stage, micro-batch) is run forward once and backward once, whole or in two halves.
// - A stage adds its micro-batches' gradients of weights in order of micro-batch: all schedules give the same bits.
// - Two ranks name their messages in the same order at both ends, and every table ends, even if a send completes only
//   when its receive is posted.
#ifndef TRAINER_STEP_PIPELINE_H
#define TRAINER_STEP_PIPELINE_H

#include "base/err.h"
#include "trainer/config/words.h"

#include <stdbool.h>

typedef struct pipeline_layout {
    pipeline_kind kind;
    int ranks;   // p: of the pipeline
    int micros;  // m: micro-batches of a step
    int chunks;  // v: stages a rank. interleaved: 1 (which is 1F1B) or more; zb-v: 2; others: 1
    int ahead;   // each receive is posted so many units before the one that needs it, or earlier. 0: the fewest buffers
} pipeline_layout;

typedef enum unit_kind {
    UNIT_FORWARD,
    UNIT_BACKWARD,  // both halves
    UNIT_INPUTS,    // backward, the half that gives the gradient of the stage's inputs
    UNIT_WEIGHTS,   // backward, the half that adds to the gradient of its weights
    UNIT_KINDS,
} unit_kind;

// Buffers of a rank are of two kinds.
// - A slot is a stage's. It holds what one (stage, micro-batch) needs between FORWARD and the last unit that reads it,
//   BACKWARD or WEIGHTS: its input, which is received into it, its activations, and its output, which is sent out of
//   it. The output has always left before the slot is free: the gradient that backward waits for is made from it.
// - A gradient buffer holds the gradient of one boundary: from its receive, or from INPUTS or BACKWARD of the next
//   stage where that is on this rank, to the last unit that reads it; or, to be sent, until it has left.
typedef struct unit {
    unit_kind kind;
    int stage, micro;
    int slot;
    // of BACKWARD and INPUTS, and gradient_in of WEIGHTS. -1: none (last stage, first stage)
    int gradient_in, gradient_out;
    int receive, send;  // messages: what it waits for, what is posted when it is done. -1: none
    // an earlier message out of gradient_out, which must have left before this unit runs. -1: none
    int reuse;
} unit;

typedef enum message_kind {
    MESSAGE_ACTIVATIONS,  // to the next stage
    MESSAGE_GRADIENTS,    // to the previous one
    MESSAGE_KINDS,
} message_kind;

// Both ends call a message by the stage that its boundary is the input of.
typedef struct message {
    message_kind kind;
    bool sends;
    int peer;
    int stage, micro;
    int buffer;  // activations: a slot. gradients: a gradient buffer
    int unit;    // that makes it, or needs it
    int after;   // it is posted when this unit is done, -1: at once. A send: `unit`. A receive: its buffer is free then
} message;

// The table of a rank.
typedef struct unit_table {
    int units;
    unit *unit;  // in the order in which they run
    int messages;
    // in the order in which the rank posts them. Those between two ranks, one way, of one kind, are a FIFO
    message *message;
    // of all the rank's stages, one after the other: of each the fewest for which the table ends (and for `ahead`)
    int slots;
    int gradients;  // gradient buffers
} unit_table;

// The table. Freed with unit_table_free. ERR_CONFIG: pipeline_check; ERR_INTERNAL: no memory, no such rank.
err_t pipeline_units(const pipeline_layout *l, int rank, unit_table *out);
void unit_table_free(unit_table *t);

// Is there such a schedule? ERR_CONFIG: what was expected.
err_t pipeline_check(const pipeline_layout *l);

// Stages are 0 .. pipeline_stages - 1. Chunk c of rank r is stage c * p + r; with zb-v the second one is stage 2p - 1 -
// r.
int pipeline_stages(const pipeline_layout *l);
int pipeline_stage_of(const pipeline_layout *l, int rank, int chunk);
int pipeline_rank_of(const pipeline_layout *l, int stage);

// The number in 0 .. 4p - 1 of the FIFO of messages of a kind between two neighbours in the ring of ranks.
int pipeline_fifo(const pipeline_layout *l, int from, int to, message_kind kind);

// Does it run backward in halves, INPUTS and WEIGHTS, and not as BACKWARD?
bool pipeline_halves(pipeline_kind kind);

// "gpipe", "1f1b", ...: as the INI has it.
const char *pipeline_name(pipeline_kind kind);

// "forward 3.5": stage 3, micro-batch 5. "send activations 4.5 to 1 from slot 0 after 7". Both return dst.
enum { UNIT_TEXT = 64, MESSAGE_TEXT = 128 };
const char *unit_text(const unit *u, char dst[UNIT_TEXT]);
const char *message_text(const message *m, char dst[MESSAGE_TEXT]);

#endif
