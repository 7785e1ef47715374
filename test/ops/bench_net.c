// test/ops/bench_net.c: the convolutions and batch norms of a net's training step, one line for each kind, weighted by
// their work: shares of the FMA peak of the same run, and the time of a step. Of products of BF16 pairs: shares of what
// those can reach, with FP32 and with BF16 storage.
#include "test/ops/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum after { RELU, ADD_RELU, NOTHING } after;  // what follows its batch norm
enum { CLASSES = 5 };
static const char *const classes[CLASSES] = {"1x1", "3x3", "3x3 stride 2", "1x1 stride 2", "stem"};
typedef struct layer {
    int count, pixels, channels, filters, taps, stride, pad;
    after after;
    int class;
} layer;

// He et al. 2016; stride in the 3x3.
static const layer resnet50[] = {
    {1, 224, 3, 64, 7, 2, 3, RELU, 4},        {1, 56, 64, 64, 1, 1, 0, RELU, 0},
    {2, 56, 256, 64, 1, 1, 0, RELU, 0},       {3, 56, 64, 64, 3, 1, 1, RELU, 1},
    {3, 56, 64, 256, 1, 1, 0, ADD_RELU, 0},   {1, 56, 64, 256, 1, 1, 0, NOTHING, 0},
    {1, 56, 256, 128, 1, 1, 0, RELU, 0},      {1, 56, 128, 128, 3, 2, 1, RELU, 2},
    {4, 28, 128, 512, 1, 1, 0, ADD_RELU, 0},  {1, 56, 256, 512, 1, 2, 0, NOTHING, 3},
    {3, 28, 512, 128, 1, 1, 0, RELU, 0},      {3, 28, 128, 128, 3, 1, 1, RELU, 1},
    {1, 28, 512, 256, 1, 1, 0, RELU, 0},      {1, 28, 256, 256, 3, 2, 1, RELU, 2},
    {6, 14, 256, 1024, 1, 1, 0, ADD_RELU, 0}, {1, 28, 512, 1024, 1, 2, 0, NOTHING, 3},
    {5, 14, 1024, 256, 1, 1, 0, RELU, 0},     {5, 14, 256, 256, 3, 1, 1, RELU, 1},
    {1, 14, 1024, 512, 1, 1, 0, RELU, 0},     {1, 14, 512, 512, 3, 2, 1, RELU, 2},
    {3, 7, 512, 2048, 1, 1, 0, ADD_RELU, 0},  {1, 14, 1024, 2048, 1, 2, 0, NOTHING, 3},
    {2, 7, 2048, 512, 1, 1, 0, RELU, 0},      {2, 7, 512, 512, 3, 1, 1, RELU, 1},
};
// Of CIFAR's 32 x 32: shortcuts without filters.
static const layer resnet20[] = {
    {1, 32, 3, 16, 3, 1, 1, RELU, 4},  {3, 32, 16, 16, 3, 1, 1, RELU, 1}, {3, 32, 16, 16, 3, 1, 1, ADD_RELU, 1},
    {1, 32, 16, 32, 3, 2, 1, RELU, 2}, {2, 16, 32, 32, 3, 1, 1, RELU, 1}, {3, 16, 32, 32, 3, 1, 1, ADD_RELU, 1},
    {1, 16, 32, 64, 3, 2, 1, RELU, 2}, {2, 8, 64, 64, 3, 1, 1, RELU, 1},  {3, 8, 64, 64, 3, 1, 1, ADD_RELU, 1},
};
static const layer resnet18[] = {
    {1, 32, 3, 64, 3, 1, 1, RELU, 4},        {2, 32, 64, 64, 3, 1, 1, RELU, 1},
    {2, 32, 64, 64, 3, 1, 1, ADD_RELU, 1},   {1, 32, 64, 128, 3, 2, 1, RELU, 2},
    {1, 32, 64, 128, 1, 2, 0, NOTHING, 3},   {1, 16, 128, 128, 3, 1, 1, RELU, 1},
    {2, 16, 128, 128, 3, 1, 1, ADD_RELU, 1}, {1, 16, 128, 256, 3, 2, 1, RELU, 2},
    {1, 16, 128, 256, 1, 2, 0, NOTHING, 3},  {1, 8, 256, 256, 3, 1, 1, RELU, 1},
    {2, 8, 256, 256, 3, 1, 1, ADD_RELU, 1},  {1, 8, 256, 512, 3, 2, 1, RELU, 2},
    {1, 8, 256, 512, 1, 2, 0, NOTHING, 3},   {1, 4, 512, 512, 3, 1, 1, RELU, 1},
    {2, 4, 512, 512, 3, 1, 1, ADD_RELU, 1},
};

typedef struct net {
    const char *name;
    int batch, layers;
    const layer *layer;
} net;
#define NET(name, batch) \
    { #name, batch, sizeof name / sizeof *name, name }
static const net nets[] = {NET(resnet50, 8), NET(resnet20, 64), NET(resnet18, 64)};

typedef struct tally {
    double seconds, bytes, flops;
} tally;

static bool add_time(op_bench *b, op_row row, int count, tally *t) {
    double bytes, flops, s = bench_seconds(b, &row, &bytes, &flops);
    if (s < 0) return false;
    t->seconds += count * s, t->bytes += count * bytes, t->flops += count * flops;
    return true;
}

static const op_id conv_ops[] = {OP_conv_forward, OP_conv_inputs, OP_conv_weights};
static const op_id norm_ops[] = {OP_batch_norm_sums, OP_batch_norm_apply, OP_batch_norm_back_sums, OP_batch_norm_back};

// Times the layer's convolutions and adds them to the tally of its class. A stem's inputs need no gradient.
static bool time_convs(op_bench *b, dtype type, int64_t batch, const layer *l, tally t[3]) {
    bool ok = true;
    for (int k = 0; k < 3; k++) {
        op_row row = {
            conv_ops[k], {batch, l->pixels, l->pixels, l->channels, l->filters, l->taps, l->taps, l->stride, l->pad},
            type,        k == 2 ? OPT_FRESH : 0,
            0,           ""};
        if (k != 1 || l->class != 4) ok &= add_time(b, row, l->count, &t[k]);
    }
    return ok;
}

static bool time_norms(op_bench *b, dtype type, int64_t batch, const layer *l, tally t[4]) {
    const int64_t out = conv_out(l->pixels, l->taps, l->stride, l->pad), rows = batch * out * out;
    bool ok = true;
    for (int k = 0; k < 4; k++) {
        unsigned options = k && l->after != NOTHING ? OPT_RELU : 0;
        if (l->after == ADD_RELU && (k == 1 || k == 3)) options |= OPT_RESIDUAL;
        if (k == 2) options |= OPT_FRESH;
        ok &= add_time(b, (op_row){norm_ops[k], {rows, l->filters, k == 3 ? rows : 0}, type, options, 0, ""}, l->count,
                       &t[k]);
    }
    return ok;
}

static void print_line(const char *what, const tally t[3], double peak) {
    tally all = {0};
    printf("%-14s", what);
    for (int k = 0; k < 4; k++) {
        const tally *x = k < 3 ? &t[k] : &all;
        if (k < 3) all.seconds += x->seconds, all.flops += x->flops;
        if (x->seconds > 0) printf("   %8.2f ms %5.1f %%", 1e3 * x->seconds, 100 * x->flops / x->seconds / peak);
        else printf("   %19s", "-");
    }
    putchar('\n');
}

static bool time_net(op_bench *b, const net *n, dtype type) {
    tally conv[CLASSES + 1][3] = {0}, norm[4] = {0}, passes = {0};
    static const char *const pass[] = {"sums", "apply", "back sums", "back"};
    const int64_t batch = (n->batch + b->scale - 1) / b->scale;
    double peak = bench_peak(b);
    bool ok = true;
    for (int i = 0; i < n->layers && ok; i++) {
        ok = time_convs(b, type, batch, &n->layer[i], conv[n->layer[i].class]) &&
             time_norms(b, type, batch, &n->layer[i], norm);
        peak = fmax(peak, bench_peak(b));
    }
    if (!ok) {
        printf("%s failed: %s\n", n->name, err_last()->text);
        return false;
    }
    printf("%s, batch %d, %s: time, and share of %.0f GFLOP/s of %s\n", n->name, (int)batch, dtype_name(type),
           1e-9 * peak, bench_unit(b));
    printf("%-14s   %-19s   %-19s   %-19s   %-19s\n", "", "forward", "inputs", "weights", "all");
    for (int c = 0; c < CLASSES; c++) {
        for (int k = 0; k < 3; k++)
            conv[CLASSES][k].seconds += conv[c][k].seconds, conv[CLASSES][k].flops += conv[c][k].flops;
        if (conv[c][0].seconds > 0) print_line(classes[c], conv[c], peak);
    }
    print_line("convolutions", conv[CLASSES], peak);
    printf("batch norm, relu, add:");
    for (int k = 0; k < 4; k++) {
        printf("   %s %.2f ms %.1f GB/s", pass[k], 1e3 * norm[k].seconds, 1e-9 * norm[k].bytes / norm[k].seconds);
        passes.seconds += norm[k].seconds;
    }
    printf("   all %.2f ms\n", 1e3 * passes.seconds);
    return true;
}

bool bench_net(op_bench *b, const char *name, int *failures) {
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        if (strcmp(name, nets[i].name) != 0) continue;
        *failures += !time_net(b, &nets[i], FP32);
        if (b->pairs) *failures += !time_net(b, &nets[i], BF16);
        return true;
    }
    return false;
}
