// trainer/step/links.h: messages between the stages of a pipeline. Each neighbour, direction and kind of message is a
// FIFO with its own communicator and stream. So a receive can be posted long before its data arrives, no message waits
// for one of another FIFO, and computing does not wait for a send.
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
    event *ready[LINKS_MOST];  // on s: the data to send is complete, or the buffer to receive into is free
    event **done;              // one for each message of the table, on its side stream
    int messages;
    int *before;           // for each received gradient: the message that sent its activations; -1: none
    int last[LINKS_MOST];  // the last message of the table that is sent there, -1: none
} links;

// The links that a layout uses, as grid.links wants them.
unsigned links_of(const pipeline_layout *l, bool tied);

// For a pipeline of more than one rank. Without training the table's messages are not used.
err_t links_open(links *x, const stages *of, const groups *ranks, device *dev, stream *s, bool training);
void links_close(links *x);

// Queues a message of the table, after what is queued on s so far. bytes at data.
err_t links_post(links *x, int message, void *data, size_t bytes, int64_t step);
// The event that the message has arrived, or left. Work on s that needs it must wait for it.
event *links_done(const links *x, int message);

// A received gradient was made from activations that this rank sent, so these have left, and their slot may be
// overwritten. Makes s wait for that, which costs no time.
err_t links_left(const links *x, int message);

// Makes s wait until all messages have left, since the next step writes into the same buffers. For a step's end.
err_t links_settle(links *x);

// Sends or receives this stage's input at once, on the caller's stream.
err_t links_pass(links *x, int stage, bool sends, void *data, size_t bytes);

// Bytes of a message that this rank sends, and whether they leave the node.
comm_cost links_cost(const groups *ranks, const stages *of, const message *m, size_t bytes);

#endif
