// trainer/config/config.h: the settings of a run. The table of keys in trainer/config/keys.c is their only source:
// parsing, checking, `lockstep config`, config.ini and the resume check all use it.
#ifndef TRAINER_CONFIG_CONFIG_H
#define TRAINER_CONFIG_CONFIG_H

#include "base/err.h"
#include "comm/groups.h"
#include "comm/transport.h"
#include "data/source.h"
#include "gpu/gpu.h"
#include "model/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_WORD = KEY_WORD_MAX, CONFIG_TEXT = KEY_TEXT_MAX, CONFIG_KEYS_MAX = 160, CONFIG_FILES_MAX = 16 };

// A key whose values are words holds the index of its word. Where the values have an enum (device_kind, vector_width,
// dtype, products, source_format, recomputation, transport_kind) or a list (model_types), the words are in its order.
typedef enum { RESUME_AUTO, RESUME_NEVER, RESUME_MUST, RESUME_OTHER_BITS } resume_mode;
typedef enum { TOKENIZER_BYTES } tokenizer_mode;
typedef enum { ORDER_FIXED, ORDER_ANY } order_mode;
typedef enum { CHOICE_AUTO, CHOICE_NO, CHOICE_YES } choice_mode;
typedef enum { ROUNDING_NEAREST, ROUNDING_STOCHASTIC } rounding_mode;
typedef enum { OPTIMIZER_ADAMW, OPTIMIZER_SGD } optimizer_kind;
typedef enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } schedule_kind;

enum { ORIGIN_COMMAND_LINE = CONFIG_FILES_MAX + 1 };

typedef struct key_origin {
    int file;            // 0: the default; ORIGIN_COMMAND_LINE; else files[file - 1]: an index, for copies
    int line;            // from 1; of the command line: which override
    bool chosen;         // the key was left open (0), and config_load derived the value from other keys
    const char *family;  // the word of [model] type, at that place, that implies the value; NULL: it does not
} key_origin;

// Each optimizer reads its own and ignores the others (trainer/step/optimizer.h).
typedef struct optimizer_keys {
    int type;
    double lr, beta1, beta2, eps, weight_decay, grad_clip, momentum;
    bool nesterov;
} optimizer_keys;

enum { SAMPLE_BATCH_MOST = 256 };  // texts that grow at the same time

typedef struct config {
    // clang-format off
    struct { char name[CONFIG_WORD], dir[CONFIG_TEXT], faults[CONFIG_TEXT]; int64_t seed, steps, bad_steps; int resume; } run;
    struct { int backend, simd; bool graph, check, match; int64_t ranks, threads; char plans[CONFIG_TEXT]; int kind; char why[256]; } device;  // kind: the backend, or what auto is here (config_decide), and why; threads 0: a fair share of the cores
    struct { int type; const model_alias *family; model_options of; char init_from[CONFIG_TEXT]; bool init_resize; } model;  // of: the keys of the chosen architecture; family: the word that chose it, NULL: its own
    struct { char train[CONFIG_TEXT], val[CONFIG_TEXT]; int format; int64_t prefetch, retry, holdout, ignore; bool shuffle; } data;  // ignore -1: nothing is
    struct { char input[CONFIG_TEXT], output[CONFIG_TEXT]; char tokenizer[CONFIG_TEXT], text_key[CONFIG_TEXT]; int64_t shard_tokens; double val_fraction; bool compress; } pack;
    struct { int64_t global, micro, lanes; } batch;  // lanes 0 in the file: resolved by config_load
    struct { int compute, products, rounding; double loss_scale; int64_t scale_window; } precision;  // loss_scale 0: dynamic
    optimizer_keys optimizer;
    struct { int type; int64_t warmup, decay_steps; double final_fraction; } schedule;  // both 0: resolved, but decay_steps stays 0 for constant; warmup -1: none
    struct { int64_t data, context, tensor, pipeline, chunks, zero, slices, token_slices; int schedule, recompute; bool offload, sequence; char stages[CONFIG_TEXT]; } parallel;  // data 0: the rest; schedule: pipeline_kind (trainer/step/pipeline.h)
    struct { int order, transport, nccl_ib; double bucket_mb; char nccl_library[CONFIG_TEXT], nccl_interface[CONFIG_TEXT], nccl_algorithm[CONFIG_TEXT]; } reduce;
    struct { char nodes[CONFIG_TEXT], secret_file[CONFIG_TEXT]; int64_t port, timeout; double heartbeat; } cluster;
    struct { int64_t every, keep; bool keep_best; } checkpoint;
    struct { int64_t every, batches; char text[CONFIG_TEXT], choices[CONFIG_TEXT]; int protocol; const char *ckpt; } eval;  // batches 0: the whole validation split; ckpt: of the command line
    struct { int64_t every, tokens, top_k, batch; char prompt[CONFIG_TEXT], stop[CONFIG_TEXT], tokenizer[CONFIG_TEXT]; double temperature, top_p, min_p; } sample;
    struct { int64_t every, hash_every, power_every, ranks_every, machine_every; bool jsonl, tensorboard, watch, report; char http[CONFIG_TEXT], http_token[CONFIG_TEXT], prom_file[CONFIG_TEXT]; } log;
    // clang-format on

    key_origin origin[CONFIG_KEYS_MAX];  // one for each row of the table
    char files[CONFIG_FILES_MAX][CONFIG_TEXT];
    int file_count;
} config;

// Reads the files in order; later ones override earlier ones, and without files every key has its default. Checks every
// value and every rule between keys, and resolves what was left open. On failure ERR_CONFIG (also when a file can't be
// read), `file:line: [section] key: ...`, and *c is unspecified.
err_t config_load(config *c, const char *const *files, int count);

// The same, and after the files `overrides` of the command line, each "section.key=value": they win over all files,
// later ones over earlier ones. What stands after the = is the value as it is, without quotes and escapes.
err_t config_load_with(config *c, const char *const *files, int count, const char *const *overrides, int n);

// [run] name, checked as the INI's.
err_t config_rename(config *c, const char *name);

// Has one of the files after the first `after` ones given this key?
bool config_given(const config *c, const char *section, const char *key, int after);

// Puts the key whose value led to this thread's failure, and where it was set, before the failure's text: "mine.ini:7:
// [sample] tokenizer: ", of a default "[sample] tokenizer: ". Returns its code.
err_t config_blame(const config *c, const char *section, const char *key);

// Says which kind of device `auto` is on this machine, and why; what was left open to be chosen by the kind is chosen
// anew. config_load alone chooses as for a CPU where the backend is auto.
err_t config_decide(config *c, device_kind kind, const char *why);

// Can `world` ranks share the work of a step? ERR_CONFIG says what would fit. (trainer/config/rules.c)
err_t config_fits(const config *c, int world);

// How `world` ranks are arranged, as [parallel] says and config_fits allows; one rank alone has all of the model.
grid config_grid(const config *c, int world);

// The words of [parallel] schedule: trainer/step/pipeline.h has the same ones, in this order.
typedef enum { SCHEDULED_GPIPE, SCHEDULED_1F1B, SCHEDULED_INTERLEAVED, SCHEDULED_ZB_H1, SCHEDULED_ZB_V } pipeline_word;
static inline int config_chunks(const config *c) {
    return c->parallel.schedule == SCHEDULED_ZB_V ? 2 : (int)c->parallel.chunks;
}

// Prints every key: value, class, where it came from. The text is a valid INI (origin and class are comments).
void config_print(const config *c, FILE *out);

// In which type it computes: "bf16", or "bf16, products bf16-pairs". Returns dst.
enum { CONFIG_COMPUTE = 2 * CONFIG_WORD };
const char *config_compute(const config *c, char dst[CONFIG_COMPUTE]);

// Prints config.ini: every key with its default and one comment line (test/test_config_keys.c compares it with the
// file).
void config_print_defaults(FILE *out);

// Calls visit(ctx, "section.key", value) for every key of the class, in table order, with the resolved value in
// canonical form. Stops at the first failure and returns it.
typedef err_t (*config_visit)(void *ctx, const char *key, const char *value);
err_t config_each(const config *c, key_class class, config_visit visit, void *ctx);

// Was "section.key" left open, and is its value derived from run.steps? Then a run that goes on keeps the value that it
// began with: config_adopt sets it. ERR_CONFIG: it is no such value.
bool config_follows_steps(const config *c, const char *key);
err_t config_adopt(config *c, const char *key, const char *value);

// First 16 hex digits of the BLAKE2b-256 of all bits and layout keys: what ranks compare.
void config_hash(const config *c, char hex[17]);

#endif
