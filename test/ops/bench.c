// test/ops/bench.c: one line for each benchmark row: median time, bytes and flops that must move by the row's own account,
// and their share of what this machine does at best: the larger share is the ceiling that the operation is under. A row that
// stays in the cache may pass 100 % of the triad, which does not.
#include "test/ops/op_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { SAMPLES = 21 };

// Median seconds of one call; negative when it failed.
static double median_time(op_run *r, const fixture *f, tensor *t[ARGS]) {
    const op_kind *kind = kind_of(r->row->op);
    double sample[SAMPLES], began = now();
    int n = 0, inner = 1;
    for (int warm = 0; warm < 2; warm++) {
        double start = now();
        if (kind->call(r, f->table, t, f->s) != ERR_OK || stream_wait(f->s) != ERR_OK) return -1;
        double one = now() - start;
        inner = one < 1e-4 ? (int)(2e-4 / (one + 1e-7)) + 1 : 1;
    }
    while (n < SAMPLES && (n < 5 || now() - began < 2)) {
        double start = now();
        for (int i = 0; i < inner; i++)
            if (kind->call(r, f->table, t, f->s) != ERR_OK) return -1;
        if (stream_wait(f->s) != ERR_OK) return -1;
        sample[n++] = (now() - start) / inner;
    }
    qsort(sample, (size_t)n, sizeof *sample, by_value);
    return sample[n / 2];
}

// A triad, a = b + c, far larger than any cache: 12 bytes for each element.
static double peak_bandwidth(const fixture *f) {
    enum { N = 1 << 25 };
    tensor t[3];
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        t[i] = (tensor){NULL, FP32, 1, {N, 1, 1, 1}};
        if (device_alloc(f->dev, MEMORY_DEVICE, tensor_bytes(&t[i]), &t[i].data) != ERR_OK) return 0;
        if (stream_zero(f->s, t[i].data, tensor_bytes(&t[i])) != ERR_OK) return 0;
    }
    for (int k = 0; k < 20; k++) {
        double start = now();
        if (f->table->add(&t[0], &t[1], &t[2], f->s) != ERR_OK || stream_wait(f->s) != ERR_OK) return 0;
        double s = now() - start;
        if (s < best) best = s;
    }
    for (int i = 0; i < 3; i++) device_free(f->dev, MEMORY_DEVICE, t[i].data, tensor_bytes(&t[i]));
    return 12.0 * N / best;
}

static void bench_row(const op_row *row, const fixture *f, double bandwidth, double flops_peak) {
    op_run r;
    tensor view[ARGS], *t[ARGS] = {0};
    char name[200];
    double bytes, flops;
    bool ok = true;
    run_open(&r, row, true);
    for (int i = 0; i < r.count && ok; i++) {
        view[i] = r.arg[i].t;
        if (r.arg[i].absent) continue;
        ok = device_alloc(f->dev, MEMORY_DEVICE, tensor_bytes(&view[i]), &view[i].data) == ERR_OK &&
             stream_copy(f->s, view[i].data, r.arg[i].t.data, tensor_bytes(&view[i])) == ERR_OK;
        t[i] = &view[i];
    }
    row_name(name, sizeof name, row);
    double s = ok ? median_time(&r, f, t) : -1;
    kind_of(row->op)->cost(&r, &bytes, &flops);
    if (s < 0) printf("%-72s failed: %s\n", name, err_last()->text);
    else {
        printf("%-72s %10.1f us %7.1f GB/s %3.0f%%", name, 1e6 * s, 1e-9 * bytes / s,
               bandwidth > 0 ? 100 * bytes / s / bandwidth : 0);
        if (flops > 0) printf(" %8.1f GFLOP/s", 1e-9 * flops / s);
        if (flops > 0 && flops_peak > 0) printf(" %3.0f%%", 100 * flops / s / flops_peak);
        putchar('\n');
    }
    fflush(stdout);
    for (int i = 0; i < r.count; i++)
        if (t[i]) device_free(f->dev, MEMORY_DEVICE, t[i]->data, tensor_bytes(t[i]));
    run_close(&r);
}

// only: the name of one operation, or NULL for all.
int bench_run(const char *only) {
    fixture f = {0};
    if (device_open(&f.dev, &(device_options){.kind = DEVICE_AUTO}) != ERR_OK || stream_open(f.dev, &f.s) != ERR_OK) {
        fprintf(stderr, "test_ops: %s\n", err_last()->text);
        return 1;
    }
    f.table = device_ops(f.dev);
    const device_info *about = device_about(f.dev);
    double flops = about->kind == DEVICE_CPU ? peak_flops(about->threads) : 0, bandwidth = peak_bandwidth(&f);
    printf("%s   triad %.1f GB/s   FMA %.0f GFLOP/s   medians; bytes and flops are those that must move\n", about->name,
           1e-9 * bandwidth, 1e-9 * flops);
    double load;
    if (getloadavg(&load, 1) == 1 && load > 1)
        printf("The load average is %.1f: others use this machine, and these figures are not to be quoted.\n", load);
    int shown = 0;
    for (int i = 0; i < bench_row_count; i++) {
        if (only && strcmp(only, kind_of(bench_rows[i].op)->name)) continue;
        bench_row(&bench_rows[i], &f, bandwidth, flops);
        shown++;
    }
    stream_close(f.s);
    device_close(f.dev);
    if (shown) return 0;
    fprintf(stderr, "test_ops: no benchmark row of an operation called '%s'\n", only);
    return 64;
}
