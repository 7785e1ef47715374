// trainer/config/config.h: the settings of a run. The table of keys in trainer/config/keys.c is their only source:
// parsing, checking, `lockstep config`, config.ini and the resume check all use it.
#ifndef TRAINER_CONFIG_CONFIG_H
#define TRAINER_CONFIG_CONFIG_H

#include "base/err.h"
#include "comm/groups.h"
#include "comm/transport.h"
#include "data/chat.h"
#include "data/clicks.h"
#include "data/images.h"
#include "data/protocol.h"
#include "data/source.h"
#include "gpu/gpu.h"
#include "model/types.h"
#include "trainer/config/sets.h"
#include "trainer/config/words.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_WORD = KEY_WORD_MAX, CONFIG_TEXT = KEY_TEXT_MAX, CONFIG_KEYS_MAX = 320, CONFIG_FILES_MAX = 16 };

enum { ORIGIN_COMMAND_LINE = CONFIG_FILES_MAX + 1 };

typedef struct key_origin {
    int file;            // 0: the default; ORIGIN_COMMAND_LINE; else files[file - 1]: an index, for copies
    int line;            // from 1; of the command line: which override
    bool chosen;         // the key was left open (0), and config_load derived the value from other keys
    const char *family;  // the word of [model] type, at that place, that implies the value; NULL: it does not
} key_origin;

// --- what was read ---------------------------------------------------------------------------------------------------
//
// A struct for each section, a field for each key, under its name. A key whose values are words holds the index of its
// word, which is its enum's value.

// Each optimizer reads its own and ignores the others (trainer/step/optimizer.h).
typedef struct optimizer_keys {
    optimizer_kind type;
    double lr;  // at the end of the warm-up
    double beta1, beta2;
    double eps;
    double weight_decay;
    double grad_clip;  // largest norm of the gradient; 0: not clipped
    double skip_norm;  // a norm above so many times the mean of those before skips the step; 0: none does
    double rollback;   // losses above so many times the median of those before let the run go back; 0: none do
    double momentum;
    bool nesterov;
    double trust;
    double muon_momentum;
    double ema;                // decay of the mean of the weights (trainer/step/mean.h); 0: none is kept
    char groups[CONFIG_TEXT];  // rules for parameters by name (trainer/config/groups.h); "": none
    bool by_lanes;             // no key: momentum is that of each lane ([reduce] compress = topk)
} optimizer_keys;

enum { SAMPLE_BATCH_MOST = 256 };  // texts that grow at the same time

// What was not read, but follows from it: the values of keys that were left open, and the kind of device. config_load
// fills it in; config_decide replaces kind and why. Whoever runs steps reads these, and not the keys.
typedef struct config_resolved {
    device_kind kind;     // [device] backend, or what `auto` is here
    char why[256];        // ... and why; "": not decided, or not `auto`
    int64_t lanes;        // [batch] lanes of a step; those of a span are one
    int64_t micro;        // [batch] micro of all lanes of a span: samples that are computed at once
    int64_t span;         // [batch] bn_span: lanes that BatchNorm's moments are of, a token slice each; 1: of one micro
    int64_t warmup;       // [schedule] warmup: steps; -1: none
    int64_t decay_steps;  // [schedule] decay_steps: step at which the decay ends; 0: never
    // [run] epochs as given, and how many steps one takes; 0: steps were given, or it is not settled
    double epochs, epoch_steps;
    char best_of[SET_NAME];  // [eval] best_of; "": [data] val
} config_resolved;

typedef struct config {
    struct {
        char name[CONFIG_WORD];    // the run's files are in dir/name
        char dir[CONFIG_TEXT];     // of all runs
        char faults[CONFIG_TEXT];  // failures to rehearse (base/fault.h); "": none
        int64_t seed;
        int64_t steps;
        double epochs;      // of the training data, in place of steps, until config_settle; 0: steps are given
        int64_t bad_steps;  // in a row, after which the run stops; 0: never
        resume_mode resume;
    } run;
    struct {
        device_kind backend;
        vector_width simd;
        bool graph;               // GPU: record micro-batches and replay them
        bool check;               // GPU: wait after every kernel
        bool match;               // refuse a checkpoint of another kind of device
        int64_t ranks;            // on this node; 0: one for each GPU, or one, or what [cluster] nodes says
        int64_t threads;          // of a rank; 0: a fair share of the cores
        char plans[CONFIG_TEXT];  // file of measured matmul plans; "": the library's first choice
    } device;
    struct {
        int type;                     // of model_types
        model_options of;             // the keys of that architecture, what it leaves open filled in
        char init_from[CONFIG_TEXT];  // "": random weights
        bool init_resize, init_missing;
        double demand_mb;  // of rows on demand in memory; 0: all of them
    } model;
    struct {
        int64_t rank;  // 0: no adapters
        double alpha;
        double dropout;
        lora_weights weights;  // in what the weights beside them are kept
        char targets[CONFIG_TEXT];
        char init_from[CONFIG_TEXT];  // "": as new ones
    } lora;
    struct {
        char train[CONFIG_TEXT];  // files and globs, space between
        char val[CONFIG_TEXT];    // "": no evaluation
        source_format format;
        int64_t prefetch;  // micro-batches
        int64_t workers;   // threads that fill a micro-batch; 0: open
        // of images, as in source_view
        int64_t crop, shift;
        double area;
        flip_mode flip;
        int64_t retry;         // times that a failed read is tried again
        int64_t holdout;       // samples at the end of train that are validation data
        int64_t ignore;        // a token whose loss does not count; -1: all count
        bool answers;          // only marked tokens count
        bool documents;        // a sample is several, which do not see each other
        int64_t document_end;  // the token that ends one; -1: the files say where they begin
        bool shuffle;
    } data;
    struct {
        char input[CONFIG_TEXT];
        image_kind images;  // what input is
        char val_input[CONFIG_TEXT];
        char output[CONFIG_TEXT];  // the shards' names begin with it
        char tokenizer[CONFIG_TEXT];
        char text_key[CONFIG_TEXT];  // member of a JSONL line
        chat_template template;      // of conversations
        bool documents;              // several of them in a row
        int64_t shard_tokens;        // most tokens of a shard
        double val_fraction;         // of the tokens, or images
        int64_t shard_images;        // most images of a shard
        int64_t size;                // shorter side of images; 0: as they are
        int64_t bad_most;            // pictures that may be left out
        click_kind clicks;           // what input is
        int64_t threshold;           // of ratings: from this on they are clicks
        int64_t shard_records;       // most clicks of a shard
        bool compress;
    } pack;
    struct {
        int64_t global;   // samples of a step
        int64_t micro;    // samples of a micro-batch
        int64_t lanes;    // 0: open, see resolved.lanes
        int64_t bn_span;  // lanes; 0: all, see resolved.span
    } batch;
    struct {
        dtype compute;
        products products;
        rounding_mode rounding;
        double loss_scale;     // 0: dynamic
        int64_t scale_window;  // good steps until a dynamic scale doubles
    } precision;
    optimizer_keys optimizer;
    struct {
        schedule_kind type;
        int64_t warmup;         // steps; 0: open, see resolved.warmup; -1: none
        int64_t decay_steps;    // step at which the decay ends; 0: open, see resolved.decay_steps
        double final_fraction;  // of lr, at the end
    } schedule;
    struct {
        int64_t data;      // ranks, or models of several ranks, that share the lanes; 0: as many as there are
        int64_t context;   // ranks that share positions
        int64_t tensor;    // ranks that share layers
        int64_t pipeline;  // ranks that have blocks one after the other; 1: no pipeline
        int64_t chunks;    // stages of a rank of a pipeline: config_chunks
        int64_t zero;      // stage
        int64_t slices;
        int64_t token_slices;
        pipeline_kind schedule;
        recomputation recompute;
        offload_kind offload;
        bool sequence;
        balance_kind balance;
        char offload_dir[CONFIG_TEXT];  // "": the run's
        char deal[CONFIG_TEXT];         // lanes of each of those that share them; "": as equal as they can be
        char stages[CONFIG_TEXT];       // blocks of each stage; "": cut by flops
    } parallel;
    struct {
        order_mode order;
        send_kind compress;
        codec compress_back;
        int64_t compress_span;   // lanes that are added before they are coded
        double density;          // topk: the share of a chunk that is sent
        int64_t density_warmup;  // steps that send more
        transport_kind transport;
        choice_mode nccl_ib;
        double bucket_mb;                   // megabytes of gradients that are sent together
        char nccl_library[CONFIG_TEXT];     // "": the usual places
        char nccl_interface[CONFIG_TEXT];   // "": NCCL's choice
        char nccl_algorithm[CONFIG_TEXT];   // "": NCCL's choice
        char fabric_provider[CONFIG_TEXT];  // "": libfabric's choice
        char fabric_domain[CONFIG_TEXT];    // "": libfabric's choice
    } reduce;
    struct {
        int64_t islands;  // 1: all ranks share every step's gradient
        int64_t every;    // steps between two boundaries
        outer_kind type;
        double lr, momentum;  // nesterov's
        codec compress;       // what goes between islands of the weights
        moments_kind moments;
        char fragments[CONFIG_TEXT];  // which tensors are mixed how often (trainer/config/fragments.h)
        int64_t overlap;              // steps between what islands send and its mixing
        double keep;                  // with overlap: the share of its own weights that an island keeps
    } outer;
    struct {
        int64_t count;  // of those that share the lanes: they have none, and keep the optimizer's state; 0: none
        double weight;  // what each of the others keeps of it beside one of them
        server_mode mode;
        int64_t staleness;  // bounded: steps that a worker may be ahead of the slowest
        double timeout;     // hybrid: seconds that a step waits after its first gradient
        late_mode late;
        int64_t every;             // modes that do not wait for all: steps after which all ranks meet
        bool record;               // write in which order servers served
        char replay[CONFIG_TEXT];  // where such records are, whose order is repeated; "": nowhere
    } server;
    struct {
        char nodes[CONFIG_TEXT];        // host:ranks, comma between; "": this machine alone
        char racks[CONFIG_TEXT];        // how many, or the nodes of each; "": one
        int64_t joined;                 // neighbouring ranks of a node; 0: nothing is known
        char secret_file[CONFIG_TEXT];  // "": systemd's credential
        int64_t port;
        int64_t timeout;    // seconds
        double heartbeat;   // seconds
        int elastic;        // bool: a run goes on in other processes when some are lost
        int64_t min_ranks;  // of several nodes: fewer wait
        double dead_s;      // seconds without a word after which a node is given up
        int64_t give_up_s;  // seconds without a world after which this node ends
        int evict_slow;     // bool: the run goes on without a rank or node that stays slow
        int64_t slow_s;     // seconds of computing after which one is
    } cluster;
    struct {
        int64_t every;  // steps; 0: never
        bool live;      // after a loss, what ranks hold alike is worth more
    } snapshot;
    struct {
        int64_t every;   // steps; 0: only at the end
        int64_t keep;    // newest checkpoints
        bool compare;    // of what several ranks hold
        bool async;      // written beside the steps, from a copy of the state
        int64_t misses;  // in a row after which an elastic run ends; 0: none
        compress_kind compress;
        int64_t compress_level;
        bool keep_best;
    } checkpoint;
    struct {
        int64_t every;              // steps; 0: never
        int64_t batches;            // micro-batches; 0: the whole validation split
        char text[CONFIG_TEXT];     // file; "": none
        char choices[CONFIG_TEXT];  // file; "": none
        question_protocol protocol;
        eval_weights weights;
        int64_t patience;           // evaluations; 0: never ends
        char sets[CONFIG_TEXT];     // more data by name (trainer/config/sets.h); "": none
        char best_of[CONFIG_TEXT];  // name of the set whose loss says what is best; "": see resolved.best_of
    } eval;
    struct {
        int64_t every;   // steps; 0: at the end only
        int64_t tokens;  // of a sample; 0: no samples
        int64_t top_k;   // 0: all tokens
        int64_t batch;   // texts at the same time
        char prompt[CONFIG_TEXT];
        char stop[CONFIG_TEXT];  // texts, | between; "": none
        char tokenizer[CONFIG_TEXT];
        chat_template template;  // the prompt is put into it
        double temperature;      // 0: always the likeliest token
        double top_p;            // 1: all tokens
        double min_p;            // 0: all tokens
    } sample;
    struct {
        int64_t every;          // steps
        int64_t hash_every;     // steps; 0: never, as in the next two
        int64_t power_every;    // steps
        int64_t ranks_every;    // steps
        int64_t machine_every;  // seconds
        bool jsonl;
        bool tensorboard;
        bool watch;
        bool report;
        char http[CONFIG_TEXT];        // address; "": none
        char http_token[CONFIG_TEXT];  // file; "": no password
        char prom_file[CONFIG_TEXT];   // file; "": none
    } log;
    const char *eval_ckpt;     // no key: `eval --ckpt`, a checkpoint's directory. NULL: as session_load chooses
    const char *eval_set;      // no key: `eval --set`, the only one of [eval] sets that is asked. NULL: all are
    const char *eval_answers;  // no key: `eval --answers`, the directory of answers.json. NULL: none is written
    const char *save;          // `bench --save`: a table of costs that what is measured goes into; NULL: none

    config_resolved resolved;
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

// The same of settings that were changed since they were loaded, by all rules and without words; what was left open is
// chosen anew.
bool config_would(config *c, int world);

// How `world` ranks are arranged, as [parallel] says and config_fits allows; one rank alone has all of the model.
grid config_grid(const config *c, int world);

// May a target's loss not count? Then losses are weighed over all samples of a step.
static inline bool config_weighs(const config *c) {
    return c->data.ignore >= 0 || c->data.answers || c->data.documents;
}

// Do islands never all hold the same? Then what is shown of them after any step is their mean, and a checkpoint has
// each one's state.
static inline bool config_is_apart(const config *c) {
    return c->outer.islands > 1 && (*c->outer.fragments || c->outer.overlap > 0);
}

// Do servers apply gradients without waiting for all of a step's? With staleness 0 they do wait.
static inline bool config_is_served(const config *c) {
    bool waits = c->server.mode == SERVER_SYNC || (c->server.mode == SERVER_BOUNDED && c->server.staleness == 0);
    return c->server.count > 0 && !waits;
}

// Steps after which all ranks hold the same, of those that do so at some steps only; else 1.
static inline int64_t config_period(const config *c) {
    if (config_is_served(c)) return c->server.every;
    return c->outer.islands == 1 || config_is_apart(c) ? 1 : c->outer.every;
}

// May the state after this step be kept, compared or shown?
static inline bool config_is_boundary(const config *c, int64_t step) { return step % config_period(c) == 0; }

// Stages of each rank of a pipeline.
static inline int config_chunks(const config *c) {
    return c->parallel.schedule == PIPELINE_ZB_V ? 2 : (int)c->parallel.chunks;
}

// [run] epochs are so many steps, epoch_steps each: both as if the steps had been given. ERR_CONFIG: a rule does not
// hold then.
err_t config_settle(config *c, int64_t steps, double epoch_steps);

// Prints every key: value, class, where it came from. The text is a valid INI (origin and class are comments).
void config_print(const config *c, FILE *out);

// In which type it computes: "bf16", or "bf16, products bf16-pairs". Returns dst.
enum { CONFIG_COMPUTE = 2 * CONFIG_WORD };
const char *config_compute(const config *c, char dst[CONFIG_COMPUTE]);

// Of a batch whose batch norms take moments over several lanes: " (spans of 4 lanes of 8)"; else "". Returns dst.
enum { CONFIG_SPAN = 64 };
const char *config_span(const config *c, char dst[CONFIG_SPAN]);

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

// Lines "section.key=value" of all bits and layout keys. The caller frees *out.
err_t config_shared(const config *c, char **out);

// First 16 hex digits of the BLAKE2b-256 of all bits and layout keys: what ranks compare.
void config_hash(const config *c, char hex[17]);

#endif
