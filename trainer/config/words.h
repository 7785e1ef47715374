// trainer/config/words.h: the words of settings whose enums belong to the trainer. The enums of other rooms have their
// words beside them. The table of keys (trainer/config/keys.c) uses these lists.
#ifndef TRAINER_CONFIG_WORDS_H
#define TRAINER_CONFIG_WORDS_H

#include "base/words.h"

#define RESUME_WORDS(X) \
    X(RESUME_AUTO, "auto") \
    X(RESUME_NEVER, "never") \
    X(RESUME_MUST, "must") \
    X(RESUME_OTHER_BITS, "other-bits")

// What frozen weights are kept in, beside adapters.
#define LORA_WORDS(X) \
    X(LORA_COMPUTE, "compute") \
    X(LORA_INT8, "int8")

// Which weights are evaluated and write samples: the last ones, or their mean ([optimizer] ema).
#define EVAL_WORDS(X) \
    X(EVAL_LAST, "last") \
    X(EVAL_EMA, "ema")

#define ROUNDING_WORDS(X) \
    X(ROUNDING_NEAREST, "nearest") \
    X(ROUNDING_STOCHASTIC, "stochastic")

#define OPTIMIZER_WORDS(X) \
    X(OPTIMIZER_ADAMW, "adamw") \
    X(OPTIMIZER_SGD, "sgd") \
    X(OPTIMIZER_LARS, "lars") \
    X(OPTIMIZER_MUON, "muon")

#define SCHEDULE_WORDS(X) \
    X(SCHEDULE_COSINE, "cosine") \
    X(SCHEDULE_LINEAR, "linear") \
    X(SCHEDULE_CONSTANT, "constant") \
    X(SCHEDULE_WSD, "wsd") /* warm-up, stable, decay */

// How a pipeline works through the micro-batches of a step (trainer/step/pipeline.h).
//   gpipe        all forward, then all backward (Huang et al. 2019), here in ascending order
//   1f1b         one forward, one backward (Narayanan et al. 2019; flushed: 2021, arXiv 2104.04473)
//   interleaved  the same with several stages a rank, one after p others (arXiv 2104.04473, section 2.2)
//   zb-h1        backward in halves, weights later, with the memory of 1F1B (Qi et al. 2023, arXiv 2401.10241)
//   zb-v         two stages a rank, down and up again as a V (Qi et al. 2023, section 6; arXiv 2405.15362)
#define PIPELINE_WORDS(X) \
    X(PIPELINE_GPIPE, "gpipe") \
    X(PIPELINE_1F1B, "1f1b") \
    X(PIPELINE_INTERLEAVED, "interleaved") \
    X(PIPELINE_ZB_H1, "zb-h1") \
    X(PIPELINE_ZB_V, "zb-v")

// Where masters and optimizer state are: on the device, in host memory, or in files.
#define OFFLOAD_WORDS(X) \
    X(OFFLOAD_NONE, "none") \
    X(OFFLOAD_HOST, "host") \
    X(OFFLOAD_NVME, "nvme")

#define BALANCE_WORDS(X) \
    X(BALANCE_NONE, "none") \
    X(BALANCE_AUTO, "auto")
#define ORDER_WORDS(X) \
    X(ORDER_FIXED, "fixed") \
    X(ORDER_ANY, "any")

// How islands mix their weights (trainer/step/outer.h).
#define OUTER_WORDS(X) \
    X(OUTER_AVERAGE, "average") \
    X(OUTER_NESTEROV, "nesterov")
// What becomes of what their optimizers keep.
#define MOMENTS_WORDS(X) \
    X(MOMENTS_MEAN, "mean") \
    X(MOMENTS_OWN, "own")

// How servers and the others wait for each other.
#define SERVER_WORDS(X) \
    X(SERVER_SYNC, "sync") \
    X(SERVER_BOUNDED, "bounded") \
    X(SERVER_ASYNC, "async") \
    X(SERVER_HYBRID, "hybrid")
// What becomes of a gradient that comes too late, in hybrid.
#define LATE_WORDS(X) \
    X(LATE_DROP, "drop") \
    X(LATE_DECAY, "decay")

// What is sent of a lane: all of it, in the codes of gpu/ops.h, or its largest elements alone.
#define SEND_WORDS(X) \
    X(SEND_ALL, "none") \
    X(SEND_FP16, "fp16") \
    X(SEND_INT8, "int8") \
    X(SEND_INT4, "int4") \
    X(SEND_TOPK, "topk")

// What is done to the files of checkpoints.
#define COMPRESS_WORDS(X) \
    X(COMPRESS_NONE, "none") \
    X(COMPRESS_ZSTD, "zstd")

#define CHOICE_WORDS(X) \
    X(CHOICE_AUTO, "auto") \
    X(CHOICE_NO, "no") \
    X(CHOICE_YES, "yes")

typedef enum { RESUME_WORDS(WORD_ENUM) } resume_mode;
typedef enum { LORA_WORDS(WORD_ENUM) } lora_weights;
typedef enum { EVAL_WORDS(WORD_ENUM) } eval_weights;
typedef enum { ROUNDING_WORDS(WORD_ENUM) } rounding_mode;
typedef enum { OPTIMIZER_WORDS(WORD_ENUM) } optimizer_kind;
typedef enum { SCHEDULE_WORDS(WORD_ENUM) } schedule_kind;
typedef enum { SERVER_WORDS(WORD_ENUM) } server_mode;
typedef enum { LATE_WORDS(WORD_ENUM) } late_mode;
typedef enum pipeline_kind { PIPELINE_WORDS(WORD_ENUM) PIPELINE_KINDS } pipeline_kind;
typedef enum { OFFLOAD_WORDS(WORD_ENUM) } offload_kind;
typedef enum { BALANCE_WORDS(WORD_ENUM) } balance_kind;
typedef enum { ORDER_WORDS(WORD_ENUM) } order_mode;
typedef enum { OUTER_WORDS(WORD_ENUM) } outer_kind;
typedef enum { MOMENTS_WORDS(WORD_ENUM) } moments_kind;
typedef enum { SEND_WORDS(WORD_ENUM) } send_kind;
typedef enum { COMPRESS_WORDS(WORD_ENUM) } compress_kind;
typedef enum { CHOICE_WORDS(WORD_ENUM) } choice_mode;

#endif
