// test/bench/foreign.h: steps as other trainers run them (Megatron-LM, DeepSpeed, torchtitan), priced by the planner's
// own terms: operations by trainer/costs/costs.h's roofline with waves of tiles, collectives by its curves, and the
// whole by trainer/step/simulate.h, which runs lists of actions that are made here. So published tables judge the
// planner's terms on machines with hundreds of GPUs.
#ifndef TEST_BENCH_FOREIGN_H
#define TEST_BENCH_FOREIGN_H

#include "test/bench/foreign_sheet.h"
#include "trainer/step/action.h"
#include "trainer/step/simulate.h"

// What is computed again in backward: nothing; attention between its products with weights; every second layer; all.
typedef enum { AGAIN_NONE, AGAIN_ATTENTION, AGAIN_HALF, AGAIN_ALL } foreign_again;

// A step. Of a pipeline all ranks with the same stage do the same.
typedef struct foreign_run {
    foreign_device device;
    foreign_type type;
    double card;  // bytes/s of a GPU's share of its node's cards
    int64_t hidden, heads, keys, inner, layers, vocabulary, sequence;
    bool llama;  // gated, attention in one kernel; else GPT as Megatron had it in 2021
    int tensor, data, pipeline, chunks, context;
    pipeline_kind schedule;
    int64_t micro, micros;  // samples of a micro-batch; micro-batches of a data rank
    foreign_again again;
    bool rows;        // between layers, tensor ranks divide rows: gathers and scatters, no all-reduces
    bool beside;      // collectives of tensor ranks are in pieces, beside products
    bool deepspeed;   // Megatron-DeepSpeed on vTrain's machines
    bool shards;      // weights are gathered layer by layer, and gradients scattered (FSDP, ZeRO-3)
    bool one_by_one;  // ... parameter by parameter, with the rate of a100_zero3
    int gradient;     // bytes of a gradient's element, when it is added to and sent
} foreign_run;

// Seconds of each part of a layer on one rank, and of the step's other work.
typedef struct foreign_price {
    double forward, backward;  // of a layer
    double embed, head;        // forward and backward together
    double message;            // between two stages
    double gather, scatter;    // of a layer's weights and gradients
    double reduce, update;     // at the end
} foreign_price;

void foreign_price_of(foreign_price *p, const foreign_run *r, const costs *c, const foreign_sheet *sheet);

// The lists of all stages. Freed with foreign_close. ERR_CONFIG: there is no such pipeline.
typedef struct foreign_lists {
    int pipeline, layers;
    action_list *list;  // [pipeline]
    stages *of;
} foreign_lists;

err_t foreign_open(foreign_lists *x, const foreign_run *r, int64_t micros);
void foreign_close(foreign_lists *x);

// How long the lists take.
err_t foreign_simulate(double *s, const foreign_lists *x, const foreign_price *p);

// A step whose lists are made once. A pipeline's micro-batches repeat each other: of very many only some are simulated,
// twice, and the rest follows.
typedef struct foreign_case {
    foreign_run run;
    foreign_lists few, more;  // more: of all, if there are no more than that
    int64_t left;             // micro-batches that neither has
} foreign_case;

// ERR_CONFIG: there is no such pipeline.
err_t foreign_case_open(foreign_case *x, const foreign_run *r);
void foreign_case_close(foreign_case *x);

// The seconds of a step.
err_t foreign_step(double *s, const foreign_case *x, foreign_machines *m);

#endif
