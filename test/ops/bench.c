// test/ops/bench.c: one line for each benchmark row: median time, bytes and flops that must move by the row's own
// account, and their share of what this machine does at best (gpu/peak.h): the larger share is the ceiling that the
// operation is under. On a CPU a row that stays in the cache may pass 100 % of the triad, which does not; and since
// others may use the machine, the peaks are measured again after every row, whose shares are those of the higher ones
// before and after it. On a GPU a row is repeated over copies of its arguments that together are far larger than the L2
// cache, so that nothing is found there that a training step would not find.
#include "test/ops/bench.h"

#include "base/clock.h"
#include "gpu/peak.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 21, COPIES = 1024 };
#define WORKING_SET 0x1p28  // bytes; an H200's L2 has 60 MB

// The arguments of a row on the device: `copies` of each, `stride` bytes apart.
typedef struct operands {
    int copies;
    tensor first[ARGS];
    size_t stride[ARGS];
    int64_t calls;
} operands;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static err_t call_next(const op_run *r, const fixture *f, operands *o) {
    tensor view[ARGS], *t[ARGS] = {0};
    for (int i = 0; i < r->count; i++) {
        if (r->arg[i].absent) continue;
        view[i] = o->first[i];
        view[i].data = (char *)view[i].data + o->stride[i] * (size_t)(o->calls % o->copies);
        t[i] = &view[i];
    }
    o->calls++;
    return kind_of(r->row->op)->call(r, f->table, t, f->s);
}

// Median seconds of one call; negative when it failed.
static double median_time(const op_bench *b, const op_run *r, operands *o) {
    const fixture *f = &b->f;
    double sample[SAMPLES], began = clock_now(), target = (b->cuda ? 5e-3 : 2e-4) / (double)b->scale,
                            most = 2.0 / (double)b->scale;
    int n = 0, inner = 1;
    for (int warm = 0; warm < 2; warm++) {
        double start = clock_now();
        if (call_next(r, f, o) != ERR_OK || stream_wait(f->s) != ERR_OK) return -1;
        double one = clock_now() - start;
        inner = one < target / 2 ? (int)(target / (one + 1e-7)) + 1 : 1;
    }
    while (n < SAMPLES && (n < 5 || clock_now() - began < most)) {
        double start = clock_now();
        for (int i = 0; i < inner; i++)
            if (call_next(r, f, o) != ERR_OK) return -1;
        if (stream_wait(f->s) != ERR_OK) return -1;
        sample[n++] = (clock_now() - start) / inner;
    }
    qsort(sample, (size_t)n, sizeof *sample, by_value);
    return sample[n / 2];
}

// Numbers are made on the device, on which a row has more of them than a host fills in a minute. Indices and states
// come from the row.
static bool fill(const op_bench *b, const arg *a, const tensor *t, int seed) {
    if (a->random) {
        tensor to = *t;
        return b->f.table->random_fill(&(random_fill_args){.y = &to, .seed = (uint64_t)seed + 1}, b->f.s) == ERR_OK;
    }
    return stream_copy(b->f.s, t->data, a->t.data, tensor_bytes(t)) == ERR_OK;
}

static bool operands_open(operands *o, const op_bench *b, const op_run *r) {
    const fixture *f = &b->f;
    double bytes = 0;
    bool ok = true;
    *o = (operands){.copies = 1};
    for (int i = 0; i < r->count; i++) {
        o->stride[i] = (tensor_bytes(&r->arg[i].t) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
        if (!r->arg[i].absent) bytes += (double)o->stride[i];
    }
    double copies = WORKING_SET / (double)b->scale / bytes + 1, most = (COPIES - 1) / (double)b->scale + 1;
    if (b->cuda) o->copies = (int)(copies < most ? copies : most);
    for (int i = 0; i < r->count && ok; i++) {
        tensor *t = &o->first[i];
        *t = r->arg[i].t, t->data = NULL;
        if (r->arg[i].absent) continue;
        ok = device_alloc(f->dev, MEMORY_DEVICE, o->stride[i] * (size_t)o->copies, &t->data) == ERR_OK &&
             fill(b, &r->arg[i], t, i);
        for (int k = 1; k < o->copies && ok; k++)
            ok = stream_copy(f->s, (char *)t->data + o->stride[i] * (size_t)k, t->data, tensor_bytes(t)) == ERR_OK;
    }
    return ok && stream_wait(f->s) == ERR_OK;
}

static void operands_close(operands *o, const op_bench *b) {
    for (int i = 0; i < ARGS; i++)
        if (o->first[i].data) device_free(b->f.dev, MEMORY_DEVICE, o->first[i].data, o->stride[i] * (size_t)o->copies);
}

// A row with its sizes divided; heads keep their size, since kernels are written for some, and so do
// images and filters, which have to fit each other.
static op_row scaled(const op_row *row, int64_t scale) {
    op_row s = *row;
    const bool conv = row->op == OP_conv_forward || row->op == OP_conv_inputs || row->op == OP_conv_weights,
               pool = row->op == OP_max_pool_forward || row->op == OP_max_pool_backward;
    for (int i = 0; i < ROW_SIZES; i++)
        if (row->size[i] && !((conv || pool) && (i == 1 || i == 2 || i > (conv ? 4 : 3))))
            s.size[i] = (row->size[i] + scale - 1) / scale;
    if (row->op != OP_attention_forward && row->op != OP_attention_backward && row->op != OP_attention_past) return s;
    s.size[2] = row->size[2] / row->size[3] * s.size[3];
    if (row->size[4]) s.size[4] = s.size[3] * row->size[4] > row->size[3] ? s.size[3] * row->size[4] / row->size[3] : 1;
    return s;
}

const char *bench_unit(const op_bench *b) { return b->pairs && cpu_native_pairs_pay() ? "BF16 pairs" : "FMA"; }

double bench_peak(const op_bench *b) {
    const int threads = device_about(b->f.dev)->threads;
    double pairs = b->pairs ? peak_pairs(threads) : 0;
    return pairs > 0 ? pairs : peak_fma(threads);
}

static void measure_peaks(op_bench *b) {
    b->bandwidth_before = b->bandwidth;
    memcpy(b->flops_before, b->flops, sizeof b->flops);
    b->bandwidth = peak_bandwidth(b->f.dev, b->f.s, b->scale);
    double fma = b->cuda ? 0 : bench_peak(b);
    for (int t = FP32; t <= FP16; t++)
        b->flops[t] = b->cuda ? peak_matmul(b->f.dev, b->f.s, (dtype)t, (8192 + b->scale - 1) / b->scale) : fma;
}

double bench_seconds(const op_bench *b, const op_row *row, double *bytes, double *flops) {
    op_run r;
    operands o;
    run_open(&r, row, true);
    double s = operands_open(&o, b, &r) ? median_time(b, &r, &o) : -1;
    kind_of(row->op)->cost(&r, bytes, flops);
    operands_close(&o, b);
    run_close(&r);
    return s;
}

static bool bench_row(const op_row *declared, op_bench *b) {
    op_row row = scaled(declared, b->scale);
    char name[200];
    double bytes, flops, s = bench_seconds(b, &row, &bytes, &flops);
    row_name(name, sizeof name, &row);
    if (!b->cuda && b->scale == 1) measure_peaks(b);
    double bandwidth = fmax(b->bandwidth, b->bandwidth_before),
           peak = fmax(b->flops[row.type], b->flops_before[row.type]);
    if (s < 0) printf("%-72s failed: %s\n", name, err_last()->text);
    else {
        printf("%-72s %10.1f us %8.2f MB %7.1f GB/s %3.0f%%", name, 1e6 * s, 1e-6 * bytes, 1e-9 * bytes / s,
               bandwidth > 0 ? 100 * bytes / s / bandwidth : 0);
        if (flops > 0) printf(b->cuda ? " %8.2f TFLOP/s" : " %8.1f GFLOP/s", (b->cuda ? 1e-12 : 1e-9) * flops / s);
        if (flops > 0 && peak > 0) printf(" %3.0f%%", 100 * flops / s / peak);
        putchar('\n');
    }
    fflush(stdout);
    return s >= 0;
}

static void print_peaks(const op_bench *b) {
    const device_info *about = device_about(b->f.dev);
    printf("%s   %s %.1f GB/s   ", about->name, b->cuda ? "copy" : "triad", 1e-9 * b->bandwidth);
    if (b->cuda)
        printf("matmul fp32 %.1f, bf16 %.1f, fp16 %.1f TFLOP/s", 1e-12 * b->flops[FP32], 1e-12 * b->flops[BF16],
               1e-12 * b->flops[FP16]);
    else printf("%s %.0f GFLOP/s", bench_unit(b), 1e-9 * b->flops[FP32]);
    printf("   medians; bytes and flops are those that must move\n");
}

int bench_run(device_kind kind, products products, int64_t scale, const char *only) {
    op_bench b = {.scale = scale, .pairs = products == PRODUCTS_BF16_PAIRS};
    if (device_open(&b.f.dev, &(device_options){.kind = kind, .products = products}) != ERR_OK ||
        stream_open(b.f.dev, &b.f.s) != ERR_OK) {
        fprintf(stderr, "test_ops: %s\n", err_last()->text);
        return 1;
    }
    b.f.table = device_ops(b.f.dev);
    b.cuda = device_about(b.f.dev)->kind == DEVICE_CUDA;
    const op_row *rows = b.cuda ? bench_rows_gpu : bench_rows;
    int count = b.cuda ? bench_row_gpu_count : bench_row_count, shown = 0, failures = 0;
    measure_peaks(&b);
    print_peaks(&b);
    double load;
    if (getloadavg(&load, 1) == 1 && load > 1 && !b.cuda)
        printf("The load average is %.1f: others use this machine, and these figures are not to be quoted.\n", load);
    if (scale > 1) printf("Sizes are divided by %" PRId64 ": these figures are not to be quoted.\n", scale);
    if (only && bench_net(&b, only, &failures)) shown++;
    for (int i = 0; i < count; i++) {
        if (only && strcmp(only, kind_of(rows[i].op)->name)) continue;
        failures += !bench_row(&rows[i], &b);
        shown++;
    }
    stream_close(b.f.s);
    device_close(b.f.dev);
    if (shown) return failures ? 1 : 0;
    fprintf(stderr, "test_ops: no benchmark row of an operation, and no net, called '%s'\n", only);
    return 64;
}
