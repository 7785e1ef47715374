// test/bench/predict.c: what a training step would take on a GPU that is not here: PREDICTED, from bytes, flops and
// machine code, never measured.
//
//   build/predict h100 CONFIG.ini...         one rank of the INI's run; test/bench/gpt2-124m.ini is GPT-2 124M at 64 x
//   1024 build/predict --attention FILE h100 ...  with the counts of `sh test/bench/sass.sh --plain` build/predict
//   --products 600 h100 ...    with every matrix product at 600 TFLOP/s, whatever its shape
//
// It puts a GPU of paper in the place of the CUDA device: no memory, no results, and a clock that each operation moves
// on by what the model below says. The trainer is the real one, so the operations of a step, their shapes and their
// number are the real ones, and gpu/cost.c says what each must move and compute. The model:
//
//   memory     bytes over the rate of a device-to-device copy as measured, times STREAMS: what kernels reach of a copy;
//              and a LAUNCH each
//   products   tiles of 128 x 256 or 256 x 128, dealt to the multiprocessors in waves; each takes k + PROLOGUE steps of
//              the rate that makes 8192 x 8192 x 8192 come out as measured; k in 1 to 4 parts where it may be divided;
//              or the bytes, if they take longer. The passes that gpu/cuda/matmul.c adds to a product are added: GELU
//              and its gradient, and the sum of a k in parts that goes to what is there
//   attention  tiles of 16 x 64 scores on each of four schedulers: instructions over ISSUE, or the tensor cores' share,
//              whichever is longer
#include "gpu/backend.h"
#include "gpu/cost.h"
#include "gpu/profile.h"
#include "trainer/session/restore.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// --- the machines ----------------------------------------------------------------------------------------------------

typedef struct gpu_figures {
    const char *name;
    int sms;
    double ghz;      // under load: the datasheet's boost clock
    double copy;     // bytes/s, read and written: a device-to-device copy, measured
    double product;  // flop/s of a BF16 product of 8192 x 8192 x 8192 on random numbers, measured
} gpu_figures;

static const gpu_figures machines[] = {
    {"h100", 132, 1.755, 3.0e12, 798e12},
    {"h200", 132, 1.755, 4.3e12, 788e12},
};

static const double STREAMS = 0.9, LAUNCH = 2e-6, ISSUE = 0.75;
enum { PROLOGUE = 192, TILE = 128 * 256, SPLIT_MOST = 4, WARP_ROWS = 16, TILE_KEYS = 64 };

// Of mma.m16n8k16 with 16-bit operands, which on Hopper reaches 62 % of what wgmma does (Luo et al. 2024, "Benchmarking
// and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking"): 4096 flop, at 0.62 of 1024 flop a clock
// and scheduler.
static const double MMA_CYCLES = 4096 / (0.62 * 1024);

// Instructions and products of a tile of 16 x 64 scores, by kernel, for heads of up to 64.
typedef struct tile_counts {
    double all, mma;
} tile_counts;
typedef struct attention_counts {
    tile_counts forward, keys, queries;
} attention_counts;

typedef struct paper {
    device head;
    const gpu_figures *gpu;
    attention_counts attention;
    double products;  // flop/s of every product; 0: by its shape
    double now;       // seconds
} paper;

// --- the model -------------------------------------------------------------------------------------------------------

static double stream_time(const paper *p, double bytes) { return LAUNCH + bytes / (STREAMS * p->gpu->copy); }

// Of a step of k for a tile, so that the measured product comes out.
static double step_time(const gpu_figures *g) {
    double n = 8192, waves = ceil(n * n / TILE / g->sms);
    return 2 * n * n * n / g->product / (waves * (n + PROLOGUE));
}

// Bytes of the passes after a product of `parts` parts of k: elements of two bytes; sums of four.
static double bytes_after(const op_cost *c, int parts) {
    double elements = (double)c->size[0] * (double)c->size[1], bytes = 0;
    if (c->options & MATMUL_GELU) bytes += 4 * elements;
    if (c->options & MATMUL_DGELU) bytes += 6 * elements;
    if (parts > 1) bytes += 4 * elements * (parts + 1 + (c->options & MATMUL_ACCUMULATE ? 3 : 0));
    return bytes;
}

static double product_time(const paper *p, const op_cost *c) {
    double m = (double)c->size[0], n = (double)c->size[1], k = (double)c->size[2], best = INFINITY;
    bool divides = (c->options & COST_TA) || c->size[2] >= 16384;
    if (p->products > 0)
        return LAUNCH + c->flops / p->products + (bytes_after(c, 1) > 0 ? stream_time(p, bytes_after(c, 1)) : 0);
    for (int turned = 0; turned < 2; turned++)
        for (int parts = 1; parts <= (divides ? SPLIT_MOST : 1); parts++) {
            double tiles = ceil(m / (turned ? 256 : 128)) * ceil(n / (turned ? 128 : 256)) * parts;
            double after = bytes_after(c, parts), waves = ceil(tiles / p->gpu->sms);
            double itself =
                fmax(waves * (k / parts + PROLOGUE) * step_time(p->gpu), c->bytes / (STREAMS * p->gpu->copy));
            best = fmin(best, LAUNCH + itself + (after > 0 ? stream_time(p, after) : 0));
        }
    return best;
}

// Tiles on and below the diagonal, of all heads.
static double attention_tiles(const op_cost *c) {
    double T = (double)c->size[1], rows = ceil(T / WARP_ROWS), wide = T / TILE_KEYS;
    return (double)(c->size[0] * c->size[3]) * rows * (wide + 1) / 2;
}

static double attention_time(const paper *p, const op_cost *c, const tile_counts *t) {
    return attention_tiles(c) * fmax(t->all / ISSUE, t->mma * MMA_CYCLES) / (4 * p->gpu->sms) / (1e9 * p->gpu->ghz) +
           LAUNCH;
}

static double time_of(const paper *p, const char *op, const op_cost *c) {
    if (strcmp(op, "matmul") == 0) return product_time(p, c);
    if (strcmp(op, "attention_forward") == 0) return attention_time(p, c, &p->attention.forward);
    if (strcmp(op, "attention_backward") == 0) {
        double delta = stream_time(p, 4.0 * (double)(c->size[0] * c->size[1] * c->size[2]));  // reads dy and y
        return attention_time(p, c, &p->attention.keys) + attention_time(p, c, &p->attention.queries) + delta;
    }
    return stream_time(p, c->bytes);
}

// --- a GPU of paper --------------------------------------------------------------------------------------------------

struct stream {
    paper *dev;
};
struct event {
    device *dev;
    double at;
};

static paper *paper_of(stream *s) { return s->dev; }

#define PAPER_OP(op) \
    static err_t paper_##op(const op##_args *args, stream *s) { \
        op_cost c = op##_cost(args); \
        paper_of(s)->now += time_of(paper_of(s), #op, &c); \
        return ERR_OK; \
    }
OPS(PAPER_OP)
#define PAPER_ENTRY(op) .op = paper_##op,
static const ops paper_ops = {OPS(PAPER_ENTRY)};

static void paper_close(device *d) { free(d); }
static err_t paper_sense(device *d, device_sensors *out) {
    (void)d, (void)out;
    return err_set(ERR_UNAVAILABLE, "paper has no sensors");
}

// Device memory is addresses only: what reads or writes it ends the program.
static err_t paper_alloc(device *d, memory_kind kind, size_t bytes, void **out) {
    (void)d;
    *out = mmap(NULL, bytes, kind == MEMORY_PINNED ? PROT_READ | PROT_WRITE : PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *out == MAP_FAILED ? err_set(ERR_INTERNAL, "no addresses for %zu bytes", bytes) : ERR_OK;
}
static void paper_free(device *d, memory_kind kind, void *at, size_t bytes) {
    (void)d, (void)kind;
    munmap(at, bytes);
}

static err_t paper_stream_open(device *d, stream **out) {
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->dev = (paper *)d;
    return *out ? ERR_OK : err_set(ERR_INTERNAL, "no memory");
}
static void paper_stream_close(stream *s) { free(s); }
static err_t paper_stream_wait(stream *s) { return (void)s, ERR_OK; }
static err_t paper_stream_call(stream *s, stream_function fn, const void *ctx, size_t bytes) {
    _Alignas(16) unsigned char copy[STREAM_CALL];
    memcpy(copy, ctx, bytes);
    return fn(copy, s);
}
static void *paper_stream_native(stream *s) { return s; }

static err_t paper_event_open(device *d, event **out) {
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->dev = d;
    return *out ? ERR_OK : err_set(ERR_INTERNAL, "no memory");
}
static void paper_event_close(event *e) { free(e); }
static err_t paper_event_record(event *e, stream *s) { return e->at = paper_of(s)->now, ERR_OK; }
static err_t paper_event_wait(event *e) { return (void)e, ERR_OK; }
static err_t paper_stream_wait_event(stream *s, event *e) { return (void)s, (void)e, ERR_OK; }
static err_t paper_event_elapsed(event *from, event *to, double *ms) { return *ms = 1e3 * (to->at - from->at), ERR_OK; }
static err_t paper_copy(stream *s, void *dst, const void *src, size_t bytes) {
    (void)dst, (void)src;
    return paper_of(s)->now += stream_time(paper_of(s), 2.0 * (double)bytes), ERR_OK;
}
static err_t paper_zero(stream *s, void *dst, size_t bytes) {
    (void)dst;
    return paper_of(s)->now += stream_time(paper_of(s), (double)bytes), ERR_OK;
}

static const backend paper_backend = {.close = paper_close,
                                      .sense = paper_sense,
                                      .alloc = paper_alloc,
                                      .free = paper_free,
                                      .stream_open = paper_stream_open,
                                      .stream_open_queue = paper_stream_open,
                                      .stream_close = paper_stream_close,
                                      .stream_call = paper_stream_call,
                                      .stream_native = paper_stream_native,
                                      .stream_wait = paper_stream_wait,
                                      .event_open = paper_event_open,
                                      .event_open_timed = paper_event_open,
                                      .event_close = paper_event_close,
                                      .event_record = paper_event_record,
                                      .event_wait = paper_event_wait,
                                      .stream_wait_event = paper_stream_wait_event,
                                      .event_elapsed = paper_event_elapsed,
                                      .copy = paper_copy,
                                      .zero = paper_zero};

// What the command line asked for, for the two functions through which gpu/device.c finds a GPU: here they are in the
// place of gpu/cuda's.
static struct {
    const gpu_figures *gpu;
    attention_counts attention;
    double products;
} asked;

int cuda_device_count(void) { return 1; }
bool cuda_device_bus(int index, char dst[DEVICE_BUS]) { return (void)index, dst[0] = 0, false; }

err_t cuda_device_open(device **out, const device_options *o) {
    (void)o;
    paper *p = calloc(1, sizeof *p);
    if (!p) return err_set(ERR_INTERNAL, "no memory");
    *p = (paper){.head = {.backend = &paper_backend, .ops = &paper_ops, .info = {.kind = DEVICE_CUDA, .threads = 1}},
                 .gpu = asked.gpu,
                 .attention = asked.attention,
                 .products = asked.products};
    snprintf(p->head.info.name, sizeof p->head.info.name, "%s, of paper", asked.gpu->name);
    *out = &p->head;
    return ERR_OK;
}

// --- the command -----------------------------------------------------------------------------------------------------

// A tile of 16 x 64 has so many products; a kernel whose tiles are narrower has fewer in its loop, which it goes
// through more often.
static tile_counts whole_tile(double all, double mma, double products) {
    return (tile_counts){all * products / mma, products};
}

// Lines of `sass.sh --plain`: KERNEL SM REGISTERS SHARED BLOCKS MMA ALL ..., of which those for 9.0 are taken.
static err_t read_counts(const char *path, attention_counts *to) {
    char line[512], kernel[128];
    double sm, registers, shared, blocks, mma, all;
    int found = 0;
    FILE *f = fopen(path, "re");
    if (!f) return err_set(ERR_IO, "%s: can't be read", path);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%127s %lf %lf %lf %lf %lf %lf", kernel, &sm, &registers, &shared, &blocks, &mma, &all) != 7 ||
            sm != 90)
            continue;
        if (mma <= 0) continue;
        if (strcmp(kernel, "forward") == 0) to->forward = whole_tile(all, mma, 64), found++;
        if (strcmp(kernel, "keys") == 0) to->keys = whole_tile(all, mma, 128), found++;
        if (strcmp(kernel, "queries") == 0) to->queries = whole_tile(all, mma, 96), found++;
    }
    fclose(f);
    return found == 3 ? ERR_OK
                      : err_set(ERR_DATA, "%s: expected a line each of forward, keys and queries for sm 90, found %d",
                                path, found);
}

typedef struct sum {
    double ms, gigabytes, teraflop;
    int64_t calls;
} sum;

static void print_line(const char *name, const sum *s, double whole) {
    printf("| %s | %" PRId64 " | %.2f | %.1f %% | %.2f | %.2f |\n", name, s->calls, s->ms, 100 * s->ms / whole,
           s->gigabytes, s->teraflop);
}

static void add(sum *to, const profile_line *l) {
    to->calls += l->calls, to->ms += 1e3 * l->seconds, to->gigabytes += 1e-9 * l->bytes,
        to->teraflop += 1e-12 * l->flops;
}

static void print_all(const session *x, const profile_line *line, int lines) {
    sum whole = {0};
    double tokens = (double)(x->cfg->batch.global * x->net->units);
    for (int i = 0; i < lines; i++) add(&whole, &line[i]);
    printf(
        "Predicted, not measured: a step of %.0f %ss on one %s: %.1f ms, %.0f %s/s.\n\n| operation | calls | ms | share | GB | TFLOP |\n|---|---|---|---|---|---|\n",
        tokens, x->net->unit, asked.gpu->name, whole.ms, 1e3 * tokens / whole.ms, x->net->short_unit);
    for (int i = 0; i < lines; i++) {
        char name[128];
        sum one = {0};
        add(&one, &line[i]);
        snprintf(name, sizeof name, "%s %s", line[i].op, line[i].shape);
        if (one.ms > 0.0005 * whole.ms) print_line(name, &one, whole.ms);
    }
    print_line("all", &whole, whole.ms);
}

// The second step: the first one makes what later ones find.
static err_t two_steps(session *x) {
    static profile_line line[PROFILE_LINES];
    step_result r;
    TRY(session_init(x));
    TRY(session_feed(x, 2));
    TRY(session_step(x, &r));
    profile_clear(device_profile(x->dev));
    TRY(session_step(x, &r));
    int lines = profile_read(device_profile(x->dev), line);
    print_all(x, line, lines);
    return ERR_OK;
}

static err_t predict_step(const char *const *files, int count) {
    session x = {0};
    config *c = calloc(1, sizeof *c);
    err_t rc = c ? config_load(c, files, count) : err_set(ERR_INTERNAL, "no memory");
    if (rc == ERR_OK) rc = config_decide(c, DEVICE_CUDA, "paper");
    if (rc == ERR_OK) rc = session_open(&x, c, SESSION_PROFILE, NULL);
    if (rc == ERR_OK) rc = two_steps(&x);
    if (c) session_close(&x);
    free(c);
    return rc;
}

int main(int argc, char **argv) {
    err_t rc = ERR_OK;
    asked.attention = (attention_counts){{407, 64}, {634, 128}, {464, 96}};  // of nvcc 13.0, where no file says
    if (argc > 2 && strcmp(argv[1], "--attention") == 0)
        rc = read_counts(argv[2], &asked.attention), argc -= 2, argv += 2;
    if (argc > 2 && strcmp(argv[1], "--products") == 0) asked.products = 1e12 * atof(argv[2]), argc -= 2, argv += 2;
    for (size_t i = 0; argc > 2 && i < sizeof machines / sizeof *machines; i++)
        if (strcmp(argv[1], machines[i].name) == 0) asked.gpu = &machines[i];
    if (rc == ERR_OK && !asked.gpu)
        rc = err_set(ERR_USAGE, "expected: predict [--attention FILE] [--products TFLOPS] h100|h200 CONFIG.ini...");
    if (rc == ERR_OK) rc = predict_step((const char *const *)argv + 2, argc - 2);
    if (rc != ERR_OK) fprintf(stderr, "predict: %s\n", err_last()->text);
    return rc;
}
