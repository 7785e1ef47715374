// model/resnet/resnet.h: the options of residual networks, for model/types.h.
#ifndef MODEL_RESNET_RESNET_H
#define MODEL_RESNET_RESNET_H

#include "base/key.h"
#include "model/param.h"
#include "model/rule.h"

#include <stdint.h>

enum { RESNET_STAGES = 4, RESNET_CHANNELS = 4 };

typedef enum { RESNET_BASIC, RESNET_BOTTLENECK } resnet_unit;

typedef struct resnet_options {
    model_division by;
    int64_t depth, image, channels, classes, width;
    char units[KEY_TEXT_MAX];                          // "3 4 6 3", as in the file
    char mean[KEY_TEXT_MAX], deviation[KEY_TEXT_MAX];  // "0.485 0.456 0.406"
    double smoothing;
    // read by resolve
    bool small;  // for images of 32 x 32: the first convolution has 3 x 3 taps, and no pool follows
    resnet_unit unit;
    int stages;
    int64_t count[RESNET_STAGES];  // units of each stage
    double mean_of[RESNET_CHANNELS], deviation_of[RESNET_CHANNELS];
} resnet_options;

// What a depth means.
enum { RESNET_DEPTHS = 7 };
typedef struct net_depth {
    int64_t depth;
    bool small;
    resnet_unit unit;
    int stages;
    int64_t count[RESNET_STAGES];
} net_depth;
extern const net_depth resnet_depths[RESNET_DEPTHS];

// model/resnet/foreign.c: for model_type.
struct weight_part;
struct tensor_shapes;
int resnet_parts(const void *options, const param *p, struct weight_part *part);
bool resnet_from_tensors(void *options, const struct tensor_shapes *t);

#endif
