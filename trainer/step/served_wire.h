// trainer/step/served_wire.h: what workers and servers send each other (trainer/step/served.h). Sizes are known on both
// sides; the transport authenticates each message.
//
//     worker  NEXT                                        of the first server
//     server  NEXT ticket
//     worker  PULL ticket
//     server  its part of the weights, segment by segment
//     worker  its part of the gradient, bucket by bucket
//     server  PUSH squares                                of its part
//     worker  PUSH squares, loss                          of all
//     worker  BYE                                         the period has ended for it
#ifndef TRAINER_STEP_SERVED_WIRE_H
#define TRAINER_STEP_SERVED_WIRE_H

#include "trainer/step/state.h"

typedef enum { SERVED_SAYS_NEXT, SERVED_SAYS_PULL, SERVED_SAYS_PUSH, SERVED_SAYS_BYE } served_says;

typedef struct served_head {
    int64_t says, ticket;
    int64_t failed;  // its data could not be read: no gradient
    double squares, loss;
} served_head;

// Which rank a worker and a server are of the two that their communicator has.
enum { SERVED_WORKER, SERVED_SERVER };

err_t served_send(comm *c, int to, const served_head *x, stream *s);
err_t served_receive(comm *c, int from, served_head *x, stream *s);

// How what a server owns lies in messages: of a segment of weights, of elements of so many bytes, and of a bucket of
// gradients. base: the slab, where a worker has it; else what the server owns, segment after segment. part [segments].
// Returns how many parts there are, with addresses and sizes.
int served_weights(const train_state *t, int server, int segment, size_t element, char *base, bool slab,
                   comm_part *part);
int served_bucket(const train_state *t, int server, int bucket, char *base, bool slab, comm_part *part);

#endif
