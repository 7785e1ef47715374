// test/ops/op_test.h: the declared table of operations. A row is (operation, sizes, type, tolerance, why), and gives
// all of:
//
//   value       the device against a naive reference in double, whose inputs were first rounded to the storage type
//   gradient    that reference's own gradient against central differences of its forward, lest both be wrong the same
//               way; no device takes part, so this is asked once, with the CPU's kernels
//   bits        every vector width and thread count of a kind of device gives the same ones, and so does a second run
//   (=), (+=)   overwritten outputs do not see old content (NaN at first), accumulated ones are fl(old + contribution
//               from zero)
//   batch       two calls on parts of the batch give the bits of one call: what lanes stand on
//   key         dropout whose step and sample lie in device memory has the bits of dropout by value; where the device
//               records, a recording reads them when it runs
//   memory      poison before and after every argument is intact, inputs are unchanged, and poison that is read shows
//               as NaN
//   benchmark   time, bytes and flops that must move, share of what the machine can do
//
// Nothing here knows which device it runs on: inputs are made on the host and copied, outputs are copied back.
#ifndef TEST_OPS_OP_TEST_H
#define TEST_OPS_OP_TEST_H

#include "gpu/gpu.h"
#include "gpu/ops.h"

#include <stdarg.h>

typedef enum op_id {
#define OP_ID(op) OP_##op,
    OPS(OP_ID)
#undef OP_ID
        OP_COUNT
} op_id;

// Options of a row. The lowest bits are matmul's epilogue.
enum {
    OPT_TA = 1 << 4,
    OPT_TB = 1 << 5,            // matmul: transposed operands; rotary: backwards
    OPT_OUT32 = 1 << 6,         // matmul: d is FP32 while T is not
    OPT_DROP = 1 << 7,          // attention: with dropout
    OPT_RESIDUAL = 1 << 8,      // layer norm, matmul: fused residual
    OPT_ALIAS = 1 << 9,         // the output lies on its (first) input
    OPT_ALIAS2 = 1 << 10,       // add: the output lies on its second input
    OPT_LOSS_ONLY = 1 << 11,    // cross entropy: scale NULL
    OPT_EXTREME = 1 << 12,      // inputs that break careless arithmetic
    OPT_SKIP = 1 << 13,         // what a step changes: it was decided against
    OPT_NO_W = 1 << 14,         // adamw, sgd: no rounded copy; embedding: no table of positions
    OPT_STOCHASTIC = 1 << 15,   // adamw, sgd: w is rounded stochastically
    OPT_AT = 1 << 16,           // dropout: step and first sample come from device memory
    OPT_NO_MOMENTUM = 1 << 17,  // sgd: no buffer
    OPT_NESTEROV = 1 << 18,     // sgd
    OPT_COLUMNS = 1 << 19,      // the column sums of what is computed, too
    OPT_TO_SHIFT = 20,          // cast: destination type, 2 bits
    OPT_FRESH = 1 << 22,        // gradients are (=)
    OPT_CUT_M = 1 << 23,        // matmul: what is cut into slices, size[3] of them
    OPT_CUT_N = 1 << 24,        // ... and of operations on rows, whose columns are cut
    OPT_CUT_K = 1 << 25,
    OPT_SHIFT = 1 << 26,   // norms of rows and of heads: the gain is 1 + w
    OPT_FACTOR = 1 << 27,  // embedding: the table's rows are multiplied; encode_sparse: the gradient is clipped
    OPT_RELU = 1 << 28,    // batch norm: with a relu after it
    OPT_RATIO = 1 << 29,   // sgd: with a ratio of the row
    OPT_ERF = 1 << 30,     // GELU: its erf form; attention: all positions are seen
};

enum { ROW_SIZES = 10 };
typedef struct op_row {
    op_id op;
    int64_t size[ROW_SIZES];  // in the order of the operation's comment in kinds_*.c
    dtype type;
    unsigned options;
    double nmse;  // tolerance of the arithmetic; an output stored in 16 bits is allowed one rounding more (values.c)
    const char *why;
} op_row;

// OUT is (=), ADDS is (+=), UPDATES is read and overwritten; what SCRATCH holds after the call is nobody's business.
typedef enum role { IN, OUT, ADDS, UPDATES, SCRATCH } role;

typedef struct arg {
    const char *name;
    role role;
    tensor t;     // type and shape; its data is the host's initial content (inputs) or content to add to (ADDS)
    int alias;    // 1 + the argument whose memory this one shares; 0: its own
    bool batch;   // dimension 0 is the batch: halves when the batch is split
    bool absent;  // NULL is passed
    // of a matrix whose columns are cut: what is here is whole, and is cut on its way to the device. 0: it is not cut
    int64_t slices;
    int rounded;    // on a GPU: operands of its sums that are rounded to the storage type first (values.c)
    bool random;    // a benchmark's: random numbers, which the device makes
    double *value;  // inputs: what storage holds
    double *want;   // outputs: the reference (of ADDS: the contribution); NULL: compared by bits only
} arg;

enum { ARGS = 12, WHY = 512 };

typedef struct op_run {
    const op_row *row;
    bool bench;  // no doubles are kept
    int count;
    arg arg[ARGS];
    dropout_key drop;
    bool has_drop;
    int key_at;     // OPT_AT: 1 + the argument that holds step and sample
    bool by_value;  // OPT_AT: but not in this call
    float scale;    // cross_entropy's
    step_state state;
    step_rules step;
    adamw_rules adamw;
    sgd_rules sgd;
    lars_rules lars;
    rounding_key round;
    char why[WHY];  // of the first failure
} op_run;

// What an execution left in each argument.
typedef struct outcome {
    unsigned char *data[ARGS];
} outcome;

typedef struct op_kind {
    const char *name;
    void (*setup)(op_run *r);
    err_t (*call)(const op_run *r, const ops *o, tensor *t[ARGS], stream *s);
    void (*reference)(op_run *r);
    bool (*gradient)(op_run *r);                   // or NULL
    bool (*exact)(op_run *r, const outcome *got);  // relations that hold to the bit, or NULL
    void (*cost)(const op_run *r, double *bytes, double *flops);
} op_kind;

// kinds_attention.c, kinds_batch_norm.c, kinds_click.c, kinds_codec.c, kinds_cross.c, kinds_dense.c, kinds_image.c,
// kinds_llama.c, kinds_model.c, kinds_sparse.c and kinds_step.c: one for each operation of the list.
#define OP_KIND(op) extern const op_kind kind_##op;
OPS(OP_KIND)
#undef OP_KIND

// rows.c
extern const op_row test_rows[], bench_rows[], bench_rows_gpu[];
extern const int test_row_count, bench_row_count, bench_row_gpu_count;
const op_kind *kind_of(op_id op);
void row_name(char *out, size_t size, const op_row *row);

// values.c: storage and comparison.
double storage_get(const void *p, dtype t, int64_t i);
void storage_set(void *p, dtype t, int64_t i, double x);
double storage_round(dtype t, double x);  // nearest even, straight from double
// False, with why, when `got` is further from `want` than the tolerance allows, in the mean or in any element.
bool values_near(const char *name, dtype t, const void *got, const double *want, int64_t n, double nmse, int rounded,
                 char why[WHY]);

// run.c: declaring arguments, executing, checking.
arg *arg_add(op_run *r, const char *name, role role, dtype t, int dims, int64_t s0, int64_t s1, int64_t s2);
arg *arg_add_shape(op_run *r, const char *name, role role, dtype t, int dims, const int64_t *size);
void arg_fill(op_run *r, arg *a, double scale, double offset);  // uniform, variance scale^2 around offset
// many magnitudes: the order of sums shows in double too
void arg_fill_wide(op_run *r, arg *a, double scale);
void arg_fill_with(op_run *r, arg *a, const double *x);                   // given values, rounded to storage
void arg_fill_index(op_run *r, arg *a, int64_t limit, int ignore_every);  // INT32 in [0,limit); every k-th is -1
void arg_fill_bytes(arg *a, const void *bytes);
// OPT_AT: where r->drop says in memory which step and sample it is
void arg_add_key(op_run *r, int64_t samples);
dropout_key call_key(const op_run *r, tensor *const t[ARGS]);  // r->drop for a call
// bytes: inputs and (=) outputs once, (+=) and updated ones twice, scratch never
double arg_traffic(const op_run *r);
// fixed, in [-1,1): turns an output into one number, the sum of w_i y_i
double loss_weight(int64_t i);
bool failed(op_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));  // always false
void run_open(op_run *r, const op_row *row, bool bench);
void run_close(op_run *r);

// Central differences of loss(ctx) at a few elements of x against g.
bool gradient_near(op_run *r, const char *what, double (*loss)(void *), void *ctx, double *x, const double *g,
                   int64_t n);

// KIN_PAIRS: CPUs whose products are BF16 pairs, for the operations that multiply
typedef enum kin { KIN_CPU, KIN_PAIRS, KIN_CUDA } kin;
typedef struct fixture {
    device *dev;
    const ops *table;
    stream *s;
    kin kin;    // fixtures of the same kin must agree in every bit
    bool slow;  // portable kernels: large rows are not for them
    char name[96];
} fixture;

enum { FIXTURES = 16 };
// once: one execution of each row, its values and its memory; for builds in which an execution is dear and what it
// touches is the question.
typedef struct fixtures {
    int count;
    bool once;
    fixture f[FIXTURES];
} fixtures;

// Of one kind, of which there must be one; DEVICE_AUTO: whatever this machine has.
bool fixtures_open(fixtures *all, device_kind kind, char why[WHY]);
void fixtures_close(fixtures *all);

// All that a row promises, on every fixture.
bool run_row(const op_row *row, const fixtures *all, char why[WHY]);

// special.c: what does not fit a row.
typedef struct special {
    const char *name;
    bool (*check)(const fixture *f, char why[WHY]);
} special;
extern const special specials[];
extern const int special_count;

// bench.c: the exit status. Sizes are divided by `scale`; only: the name of one operation or of a net
// (bench_net.c), or NULL.
int bench_run(device_kind kind, products products, int64_t scale, const char *only);

#endif
