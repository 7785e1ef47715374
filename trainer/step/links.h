// trainer/step/links.h: what goes between the stages of a pipeline. Each neighbour, direction and kind of message is a
// FIFO with a communicator and a stream of its own: a receive is posted long before its data comes, and no message
// waits for another FIFO's, nor does computing wait for a send.
//
//   compute stream    F0  F1  ...............  B0                    waits for events only
//   activations out      --0--> --1-->                               its own thread, or stream of the GPU
//   gradients in                         --0-->  (posted before F0)
#ifndef TRAINER_STEP_LINKS_H
#define TRAINER_STEP_LINKS_H

#include "comm/cost.h"
#include "comm/groups.h"
#include "trainer/step/stages.h"

enum { LINKS_MOST = 2 * LINK_KINDS };

typedef struct links {
    const stages *of;
    const groups *ranks;
    stream *s;
    // By number: 2 * link_kind, and 1 more for the one to the stage before. NULL: not used.
    comm *to[LINKS_MOST];
    stream *side[LINKS_MOST];
    event *ready[LINKS_MOST];  // on s: what is sent is there, or where it is received is free
    event **done;              // one for each message of the table, on its side stream
    int messages;
    int *before;           // for each received gradient the message that took away the activations it is of; -1: none
    int last[LINKS_MOST];  // the last message of the table that is sent there, -1: none
} links;

// The links that a layout uses, as grid.links wants them.
unsigned links_of(const pipeline_layout *l, bool tied);

// For a pipeline of more than one rank. Where nothing is trained there are no messages of a table.
err_t links_open(links *x, const stages *of, const groups *ranks, device *dev, stream *s, bool training);
void links_close(links *x);

// A message of the table begins once what is queued on s so far is done. bytes at data.
err_t links_post(links *x, int message, void *data, size_t bytes, int64_t step);
// What is queued on s from here on waits for it.
event *links_done(const links *x, int message);

// When a gradient is here, what it was made from has left, and its slot is about to be free. This says so on s as well.
// Costs no time.
err_t links_left(const links *x, int message);

// What is queued on s from here on waits until all that was sent has left: the next step writes into the same buffers.
// For a step's end.
err_t links_settle(links *x);

// Between this rank and its neighbour, at once: the input of this stage. The caller's stream.
err_t links_pass(links *x, int stage, bool sends, void *data, size_t bytes);

// Bytes of a message that this rank sends, and whether they leave the node.
comm_cost links_cost(const groups *ranks, const stages *of, const message *m, size_t bytes);

#endif
