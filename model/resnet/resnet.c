// model/resnet/resnet.c: residual networks that sort images into classes (He et al. 2015): ResNet-18, 34, 50 and 101 as
// torchvision has them, with the stride of a bottleneck in its 3 x 3 convolution, and ResNet-20, 32 and 56 of the same
// paper's section 4.2 for images of 32 x 32 pixels.
//
//   stem    convolution 7 x 7 / 2, norm, relu, the largest of 3 x 3 / 2     (small: convolution 3 x 3, norm, relu)
//   unit    x -> convolution, norm, relu, convolution, norm -> + x -> relu  (bottleneck: 1 x 1, 3 x 3, 1 x 1)
//   head    the mean of all pixels, linear, softmax
//
// The first unit of each stage but the first halves the image; x goes past it through a convolution of 1 x 1 with a
// norm. Initial values: convolutions normal(0, sqrt(2 / (filters * taps^2))); the last gain of each unit 0, so that a
// unit begins as nothing (Goyal et al. 2017, section 5.1); the last layer normal(0, 0.01).
#include "model/resnet/resnet.h"

#include "model/keys.h"
#include "model/op/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the page --------------------------------------------------------------------------------------------------------

enum { WIDENS = 4 };  // a bottleneck's last convolution has so many times the filters

// A convolution that keeps the size of the image, or divides it by the stride, and the norm after it.
static value conv_norm(graph *g, value x, const char *name, const char *norm, int64_t filters, int taps, int stride,
                       float gain) {
    x = conv(g, x, name, (convolution){.filters = filters, .taps = taps, .stride = stride, .pad = taps / 2});
    return batch_norm(g, x, norm, gain);
}

static value stem(graph *g, const resnet_options *o) {
    value x = pixels(g, "pixels", o->image, o->image, (int)o->channels, o->mean_of, o->deviation_of);
    if (o->small) return relu(g, conv_norm(g, x, "conv1", "bn1", o->width, 3, 1, 1));
    return max_pool(g, relu(g, conv_norm(g, x, "conv1", "bn1", o->width, 7, 2, 1)), 3, 2, 1);
}

// What goes past a unit.
static value shortcut(graph *g, value x, int64_t filters, int stride) {
    if (stride == 1 && graph_at(g, x)->C == filters) return x;
    return conv_norm(g, x, "downsample.0", "downsample.1", filters, 1, stride, 1);
}

static value basic(graph *g, value x, int64_t filters, int stride) {
    value past = shortcut(g, x, filters, stride);
    x = relu(g, conv_norm(g, x, "conv1", "bn1", filters, 3, stride, 1));
    return relu(g, add(g, past, conv_norm(g, x, "conv2", "bn2", filters, 3, 1, 0)));
}

static value bottleneck(graph *g, value x, int64_t filters, int stride) {
    value past = shortcut(g, x, filters * WIDENS, stride);
    x = relu(g, conv_norm(g, x, "conv1", "bn1", filters, 1, 1, 1));
    x = relu(g, conv_norm(g, x, "conv2", "bn2", filters, 3, stride, 1));
    return relu(g, add(g, past, conv_norm(g, x, "conv3", "bn3", filters * WIDENS, 1, 1, 0)));
}

static void resnet_page(graph *g, const void *options) {
    const resnet_options *o = options;
    begin_block(g, "stem");
    leave(g, stem(g, o));
    for (int s = 0; s < o->stages; s++)
        for (int k = 0; k < o->count[s]; k++) {
            value x = begin_layer(g, "layer%d.%d.", s + 1, k);
            int stride = s > 0 && k == 0 ? 2 : 1;
            leave(g, (o->unit == RESNET_BASIC ? basic : bottleneck)(g, x, o->width << s, stride));
        }
    value x = begin_block(g, "head");
    class_loss(
        g, mean_pool(g, x), "fc",
        (class_options){.classes = o->classes, .std = 0.01, .smoothing = o->smoothing, .top = o->classes > 10 ? 5 : 0});
    leave(g, 0);
}

static void resnet_describe(const void *options, char *dst, size_t room) {
    const resnet_options *o = options;
    snprintf(dst, room, "%" PRId64 " layers, %" PRId64 " x %" PRId64 " x %" PRId64 " images, %" PRId64 " classes",
             o->depth, o->image, o->image, o->channels, o->classes);
}

// --- settings --------------------------------------------------------------------------------------------------------

// clang-format off
#define OPTIONS resnet_options

static const setting keys[] = {
    ROW(depth, SHAPE, KEY_INT, "50", 18, 101, NULL, "num_layers", "18, 34, 50 or 101; for images of 32 x 32 pixels 20, 32 or 56"),
    ROW(units, SHAPE, KEY_TEXT, "", 0, 0, NULL, "layers stages blocks", "residual units of each stage, space between; empty = those of this depth"),
    ROW(width, SHAPE, KEY_INT, "0", 0, 16384, NULL, "base_width num_filters", "filters of the first stage, twice as many in each one after it; 0 = 64, or 16 for small images"),
    ROW(image, MAY, KEY_INT, "0", 0, 8192, NULL, "image_size img_size resolution", "pixels of each side of an image; 0 = 224, or 32 for small images"),
    ROW(channels, SHAPE, KEY_INT, "3", 1, RESNET_CHANNELS, NULL, "in_channels num_channels", "of a pixel: 3 of colour, 1 of grey"),
    ROW(classes, SHAPE, KEY_INT, "1000", 2, 16777216, NULL, "num_classes num_labels", "number of different labels"),
    ROW(mean, MEANING, KEY_TEXT, "", 0, 0, NULL, "image_mean", "of each channel, from 0 to 1, is subtracted; empty = 0.485 0.456 0.406 of ImageNet, or 0.5"),
    ROW(deviation, MEANING, KEY_TEXT, "", 0, 0, NULL, "image_std std", "of each channel, which the rest is divided by; empty = 0.229 0.224 0.225, or 0.25"),
    ROW(smoothing, MAY, KEY_REAL, "0", 0, 0.99, NULL, "", "this share of each target goes to all classes alike, in training"),
};
// clang-format on

// Reads numbers with spaces between. Returns how many, at most `most`; -1: there is something else, or one outside of
// low .. high.
static int numbers(const char *text, double *to, int most, double low, double high) {
    int n = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        char *end;
        double x = strtod(at, &end);
        if (end == at || (*end && *end != ' ') || n == most || !(x >= low && x <= high)) return -1;
        to[n++] = x, at = end;
    }
    return n;
}

static err_t read_units(resnet_options *o, model_rule *r) {
    double count[RESNET_STAGES];
    int n = numbers(o->units, count, RESNET_STAGES, 1, 1000);
    if (n < 0)
        return rule_break(r, KEYS("units"),
                          "expected at most %d whole numbers from 1 to 1000, such as 2 2 2 2, found `%s`",
                          RESNET_STAGES, o->units);
    if (n > 0) o->stages = n;
    for (int s = 0; s < n; s++) {
        o->count[s] = (int64_t)count[s];
        if ((double)o->count[s] != count[s])
            return rule_break(r, KEYS("units"), "expected whole numbers, such as 2 2 2 2, found `%s`", o->units);
    }
    return ERR_OK;
}

static err_t read_channels(const resnet_options *o, model_rule *r, const char *key, const char *text, double low,
                           const double *colour, double grey, double *to) {
    int n = numbers(text, to, RESNET_CHANNELS, low, 1);
    if (n != 0 && n != o->channels)
        return rule_break(r, KEYS(key, "channels"),
                          "expected a number from %g to 1 for each of %" PRId64 " channels, found `%s`", low,
                          o->channels, text);
    for (int c = 0; c < o->channels && n == 0; c++) to[c] = o->channels == 3 ? colour[c] : grey;
    return ERR_OK;
}

// Each stage after the first halves the image, and before it the stem does, twice.
static err_t check_image(const resnet_options *o, model_rule *r) {
    int64_t least = (int64_t)(o->small ? 1 : 4) << (o->stages - 1);
    if (o->image >= least) return ERR_OK;
    return rule_break(r, KEYS("image", "units"),
                      "images of %" PRId64 " x %" PRId64 " pixels are too small: %d stages want at least %" PRId64,
                      o->image, o->image, o->stages, least);
}

static err_t resnet_resolve(void *options, model_rule *r) {
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    resnet_options *o = options;
    const net_depth *d = resnet_depths, *end = resnet_depths + RESNET_DEPTHS;
    TRY(rule_divide_samples(r, "residual network", &o->by));
    while (d < end && d->depth != o->depth) d++;
    if (d == end)
        return rule_break(r, KEYS("depth"), "expected 18, 34, 50, 101, 20, 32 or 56, found %" PRId64, o->depth);
    o->small = d->small, o->unit = d->unit, o->stages = d->stages;
    memcpy(o->count, d->count, sizeof o->count);
    TRY(read_units(o, r));
    if (o->width == 0) rule_choose(r, "width", &o->width, d->small ? 16 : 64);
    if (o->image == 0) rule_choose(r, "image", &o->image, d->small ? 32 : 224);
    TRY(read_channels(o, r, "mean", o->mean, 0, mean, 0.5, o->mean_of));
    TRY(read_channels(o, r, "deviation", o->deviation, 1e-3, deviation, 0.25, o->deviation_of));
    TRY(check_image(o, r));
    r->blocks = 2;
    for (int s = 0; s < o->stages; s++) r->blocks += (int)o->count[s];
    return ERR_OK;
}

static const model_alias alias[] = {
    {"resnet18", "depth=18"}, {"resnet34", "depth=34"}, {"resnet50", "depth=50"}, {"resnet101", "depth=101"},
    {"resnet20", "depth=20"}, {"resnet32", "depth=32"}, {"resnet56", "depth=56"}, {NULL, NULL}};

const model_type model_resnet = {.name = "resnet",
                                 .alias = alias,
                                 .key = keys,
                                 .keys = sizeof keys / sizeof *keys,
                                 .resolve = resnet_resolve,
                                 .page = resnet_page,
                                 .options = sizeof(resnet_options),
                                 .parts = resnet_parts,
                                 .from_tensors = resnet_from_tensors,
                                 .describe = resnet_describe};
