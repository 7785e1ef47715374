// trainer/costs/costs.h: how long operations and messages take on one kind of machine: what `lockstep bench step
// --save` and `bench comm --save` have measured, or a sheet, whose figures others have published. Text, a figure a
// line:
//
//   lockstep costs 2
//   device cpu avx512, 1 thread
//   sheet                                       only where figures are published ones
//   # a remark, such as where a figure is from
//   memory 80e9 bytes                           of a device
//   peak bf16 989e12 flop/s 0.02 spread         of products
//   copy 3.35e12 bytes/s 0.05 spread            from memory and back
//   launch 2.0 us 0.2 spread                    of any operation
//   beside 0.9 0.1 spread                       seconds of its work that a rank loses by a second of a collective
//                                               that goes on meanwhile
//   host_memory 240e9 bytes                     of the host, a device's share: with these two, offload is looked at
//   host_link 25e9 bytes/s 0.2 spread           between a device and the host's memory, one way
//   host_copy 30e9 bytes/s 0.4 spread           that an update on the host's processors reaches, a device's share
//   disk 3.8e12 bytes                           that offload = nvme may fill, a device's share
//   disk_copy 2.5e9 bytes/s 0.2 spread          that such an update reaches, read and written together; with it,
//                                               offload = nvme is looked at
//   tiles 132 128 256 192                       processors; rows and columns of a product's tile; its k that is lost
//   reach matmul 0.8 0.1 spread                 the share of the roofline that an operation reaches; `other`: the rest
//   link node 450e9 bytes/s 5.0 us 0.1 spread   of a device: node, rack or spine
//   op matmul bf16 4096x3072x768 tb,bias 0.412 ms 0.01 spread 31 calls
//   comm all_reduce node 8 1835008 93.2 us 0.02 spread
//   end 12                                      lines after the device's, without remarks: all or nothing
//
// A comm line is for a number of ranks of the level, and for the bytes that each of them sends. `merge` is an
// all_to_all of what has just been computed, `message` one way between two. A spread is a part of the figure: what is
// printed as an error adds them up.
#ifndef TRAINER_COSTS_COSTS_H
#define TRAINER_COSTS_COSTS_H

#include "gpu/cost.h"

typedef enum { COSTS_NODE, COSTS_RACK, COSTS_SPINE, COSTS_LEVELS } costs_level;  // within a node; a rack; between racks
typedef enum {
    CALL_ALL_REDUCE,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER,
    CALL_ALL_TO_ALL,
    CALL_MERGE,
    CALL_MESSAGE,
    CALLS
} costs_call;
extern const char *const costs_level_name[COSTS_LEVELS], *const costs_call_name[CALLS];

typedef struct costs_figure {
    double is, spread;  // is 0: not known
} costs_figure;

enum { COSTS_NAME = 32, COSTS_DEVICE = 160 };

typedef struct costs_op {
    char name[COSTS_NAME];
    dtype type;
    int64_t size[4];
    unsigned options;
    costs_figure s;
    int64_t calls;
} costs_op;

typedef struct costs_comm {
    costs_call call;
    costs_level level;
    int ranks;
    double bytes;
    costs_figure s;
} costs_comm;

typedef struct costs_reach {
    char name[COSTS_NAME];
    costs_figure share;
} costs_reach;

typedef struct costs {
    char device[COSTS_DEVICE];
    bool sheet;
    double memory;  // bytes; 0: not known
    costs_figure peak[INT32], copy, launch;
    costs_figure beside;                // is 0: nothing is lost
    double host_memory;                 // bytes; 0: not known
    costs_figure host_link, host_copy;  // is 0: nothing is known of the host
    double disk;                        // bytes; 0: not known
    costs_figure disk_copy;             // is 0: nothing is known of the disk
    struct {
        int processors, rows, columns, lost;
    } tiles;  // processors 0: products have no waves
    struct {
        costs_figure rate;  // bytes/s
        double s;
    } link[COSTS_LEVELS];
    int reaches, ops, comms;
    costs_reach *reach;
    costs_op *op;
    costs_comm *comm;
    struct {
        double share, slower;  // of all devices, at random places: they compute so many times as long; share 0: none
        uint64_t seed;
    } stragglers;  // in no file of costs: trainer/costs/cluster_file.h
} costs;

// ERR_CONFIG: of another version; ERR_DATA: not such a file, or not whole: says at which line; ERR_IO. name: of the
// file, for errors.
err_t costs_parse(costs *out, const char *name, const char *text);
err_t costs_load(costs *out, const char *path);
void costs_free(costs *c);

// Replaces or adds one line. ERR_INTERNAL: no memory.
err_t costs_set_op(costs *c, const costs_op *x);
err_t costs_set_comm(costs *c, const costs_comm *x);

// To add to a file: what is in it, or an empty table where there is no such file. ERR_CONFIG: it is of another device,
// or a sheet.
err_t costs_begin(costs *out, const char *path, const char *device);

// Writes the file, all or nothing.
err_t costs_save(const costs *c, const char *path);

// --- times -----------------------------------------------------------------------------------------------------------

// Where a time is from: a line of just that shape; the line of the nearest shape, scaled by what the roofline says of
// both; or the roofline, or a link's rate, alone.
typedef enum { FROM_LINE, FROM_NEAR, FROM_ROOFLINE, FROMS } costs_from;

typedef struct costs_time {
    double s, error;  // error: seconds
    costs_from from;
} costs_time;

costs_time costs_of_op(const costs *c, const char *op, const op_cost *x);

// bytes: that each of the ranks sends. One rank, or no bytes: no time. A merge of which nothing is known is an
// all_to_all.
costs_time costs_of_call(const costs *c, costs_call call, costs_level level, int ranks, double bytes);

// Of the lines that costs_of_call would answer from, the most ranks that called at once; 0: it knows of none.
int costs_called(const costs *c, costs_call call, costs_level level, int ranks);

static inline costs_time costs_add(costs_time a, costs_time b) {
    return (costs_time){a.s + b.s, a.error + b.error, a.from > b.from ? a.from : b.from};
}

#endif
