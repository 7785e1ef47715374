// data/loader.h: a thread that fills a ring of micro-batches ahead of the trainer. Where the source lets several
// threads read at once, they share each micro-batch.
//
// Alphabet  B samples of a micro-batch  G samples of a step
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/source.h"

typedef struct loader loader;

typedef struct loader_options {
    uint64_t seed;
    bool shuffle;
    const tensor_spec *in;  // what the source's samples consist of, in the order of its reads; `inputs` of them
    int inputs;
    // G, B, L: lane l of a step is samples [l*G/L, (l+1)*G/L) in micro-batches of B
    int64_t global, micro, lanes;
    // of each micro-batch only these samples are read, where other ranks compute the rest; the others' memory is not
    // written. own_count 0: all
    int64_t own_first, own_count;
    // the lanes of this rank, in the order in which it runs them: first, first + stride, ... With a count of 0 there
    // are none, and nothing is delivered.
    int64_t first_lane, lane_count, lane_stride;
    const int64_t *lane_list;       // [lane_count] instead, ascending; outlives the loader. NULL: as above
    int64_t first_step, last_step;  // steps to deliver, from 1, both included
    // Lanes are delivered that loader_ask asks for, instead of those of above; at most so many that were not delivered
    // are asked for at a time. 0: as above
    int64_t asks;
    int depth;    // most batches in the ring
    int readers;  // threads that fill a micro-batch, if the source has as many; 0: one
    // loader_bytes() bytes, page-aligned (pinned on a GPU); the caller's, outlives the loader
    void *memory;
} loader_options;

typedef struct batch {
    int64_t step, lane, micro;  // micro: number of the micro-batch in its lane
    int64_t first;              // index within the step, 0..G-1, of its first sample
    void *in[SOURCE_TENSORS];   // (B, ...)
} batch;

typedef struct loader_stats {
    double wait_s;  // total time that the trainer has waited for batches
    // batches that the loader now reads ahead: grows when the trainer had to wait, shrinks when it never does
    int depth;
    int64_t retries;  // reads that failed first and succeeded later
    int64_t bytes;    // read of files, as they are stored; what is kept in memory is not read again
    // time of reading a micro-batch, seconds: of the last 1024 that are done; 0: none yet
    double read_p50_s, read_p99_s;
} loader_stats;

int64_t loader_bytes(const loader_options *o);

// Starts the thread. The options are copied; the source and the memory stay the caller's.
err_t loader_open(loader **out, source *from, const loader_options *o);

// With `asks`: the micro-batches of this lane of this step are delivered after those that were asked for before.
// ERR_INTERNAL: too many are.
err_t loader_ask(loader *l, int64_t step, int64_t lane);

// The next micro-batch, in order of step, lane and micro, or as asked for; waits until it is read. Valid until the next
// call. Returns the error of a read whose retries all failed, with file and offset. ERR_DATA past last_step.
err_t loader_next(loader *l, batch *out);

// Is the micro-batch that loader_next returns next here already? Then *out is it, as it will be: its memory stays until
// it is taken and the one after it is asked for. Never waits. On the thread that takes.
bool loader_peek(loader *l, batch *out);

// Any thread. Takes the loader's lock for an instant, as loader_next does.
loader_stats loader_about(loader *l);
void loader_close(loader *l);

#endif
